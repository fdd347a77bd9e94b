"""Which documents say the same, and which nearly: worked sets, the obvious loop, properties.

Deliberate breaks that turn a test red: texts compared as they stand, a bound that is too low (pairs lost), a text
shorter than a shingle without any, blank texts alike.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.collection import Texts
from embedtrain.duplicates import BLANK, Duplicates, fingerprint, jaccard, normalised, shingles


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Titan", " titan "),
        ("a\u00a0b\n\tc", "A B C"),
        ("ﬁne", "fine"),
        ("Straße", "STRASSE"),
        ("crème", "cre\u0300me"),
        ("soft\u00adhyphen", "softhyphen"),
        ("\u200b\ufeff ", ""),
    ],
)
def test_texts_that_are_the_same(one: str, other: str) -> None:
    assert normalised(one) == normalised(other)
    assert fingerprint(one) == fingerprint(other)


@given(st.text(max_size=20))
def test_normalising_twice_is_normalising_once(text: str) -> None:
    assert normalised(normalised(text)) == normalised(text)


def test_a_blank_text_has_the_blank_fingerprint_and_no_other_has() -> None:
    assert fingerprint(" \u200b\n") == BLANK
    assert fingerprint("a") not in (BLANK, fingerprint("b"))


def test_shingles_by_hand() -> None:
    # Ten bytes have three runs of eight; the repeated text has only ten different ones.
    assert len(shingles("abcdefghij")) == 3
    assert len(shingles("abcdefghij" * 50)) == 10
    assert len(shingles("abc")) == len(shingles("")) == 1
    assert shingles("abc").tolist() != shingles("abd").tolist()
    assert shingles("ABCDEFGH  x").tolist() == shingles("abcdefgh x").tolist()
    # 3 and 4 shingles, 3 shared: 3 / 4.
    assert jaccard(shingles("abcdefghij"), shingles("abcdefghijk")) == 0.75
    # Any script: two of the 21 bytes' 14 runs differ for every changed character at the end.
    assert jaccard(shingles("維生素補充劑"), shingles("維生素補充劑")) == 1.0


def slow(left: str, right: str) -> float:
    """The obvious loop over runs of eight bytes."""
    sets = []
    for text in (left, right):
        raw = normalised(text).encode().ljust(8, b"\0")
        sets.append({raw[start : start + 8] for start in range(len(raw) - 7)})
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


PIECE = st.sampled_from(["the moon is far away ", "and the sun is near ", "1234567 ", "x", "月は遠い", "y" * 40])
TEXT = st.lists(PIECE, max_size=6).map("".join)


@settings(deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6), st.sampled_from([0.1, 0.5, 0.8, 0.95, 1.0]))
def test_near_is_the_obvious_loop(pairs: list[tuple[str, str]], threshold: float) -> None:
    corpus = [text for pair in pairs for text in pair]
    duplicates = Duplicates(Texts([str(number) for number in range(len(corpus))], None, corpus))
    left = np.arange(0, len(corpus), 2)
    found = duplicates.near(left, left + 1, threshold)
    assert found.tolist() == [slow(one, other) >= threshold for one, other in pairs]


def test_counts_that_do_not_fit_are_no_bound() -> None:
    # More runs in one bucket than two bytes can count.
    rng = np.random.default_rng(5)
    long = "".join(map(chr, rng.integers(97, 123, 5_000_000)))
    duplicates = Duplicates(Texts(["a", "b"], None, [long, long[:-1]]))
    assert duplicates.near(np.array([0]), np.array([1]), 0.99).all()


def test_fingerprints_by_position() -> None:
    duplicates = Duplicates(Texts(["a", "b", "c"], ["T", "", None], ["x", "t X", ""]))
    assert duplicates.fingerprints(np.array([1, 0, 1, 2])).tolist() == [
        fingerprint("t x"),
        fingerprint("T x"),
        fingerprint("t x"),
        BLANK,
    ]
