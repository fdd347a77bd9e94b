"""Slices of queries: who is in which, and what is said of those that got worse.

Deliberate breaks that turn a test red: the longest word's frequency in the place of the rarest's, overlap with the first
relevant document only, a slice that got worse where it stood.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_collection

from embedtrain import slices
from embedtrain.collection import Collection
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.systems import Questions
from embedtrain.tokens import holds_code


@pytest.fixture
def place(tmp_path: Path) -> tuple[Collection, Questions]:
    """Six queries; "login" stands in all documents, "saml" in one; d1 and d2 are trained on."""
    texts = ["login page", "login page saml", "login help form", "login help page", "login form page"]
    asked = [
        ("q0", "login", "web"),
        ("q1", "login saml", "web"),
        ("q2", "login help with the form", "app"),
        ("q3", "login SSO-4012", "app"),
        ("q4", "login page colour size shape", "web"),
        ("q5", "zebra quagga okapi", ""),
    ]
    folder = write_collection(
        tmp_path / "place",
        [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)],
        [{"_id": identifier, "text": text, "from": source} for identifier, text, source in asked],
        {
            "train": [("q0", "d1", 1), ("q1", "d2", 0)],
            "test": [
                ("q0", "d1", 1),
                ("q0", "d0", 0),
                ("q1", "d0", 1),
                ("q1", "d1", 1),
                ("q2", "d2", 1),
                ("q3", "d3", 1),
                ("q4", "d4", 1),
                ("q5", "d0", 1),
            ],
        },
    )
    collection = Collection(folder)
    return collection, Questions.of(collection, "test", None)


def members(found: list[slices.Slice], asked: Questions) -> dict[tuple[str, str], list[str]]:
    return {
        (one.by, one.name): [query for query, there in zip(asked.ids, one.members, strict=True) if there]
        for one in found
    }


def test_who_is_in_which(place: tuple[Collection, Questions], monkeypatch: pytest.MonkeyPatch) -> None:
    collection, asked = place
    monkeypatch.setattr(slices, "LEAST", 2)
    found = members(slices.of(collection, asked, ["from"], "english")[0], asked)
    assert found == {
        # Lengths 1 2 5 4 5 3: SSO-4012 is a token, and so are its two words. One word alone makes no slice of two.
        ("length", "1 to 2 words"): ["q0", "q1"],
        ("length", "3 to 4 words"): ["q3", "q5"],
        ("length", "5 words"): ["q2", "q4"],
        # Frequencies: login 5, page 4, help 2, form 2, saml 1; the bottom tenth ends at 1.4.
        ("words", "a rare word or a code"): ["q1", "q3"],
        ("words", "common words only"): ["q0", "q2", "q4", "q5"],
        # Of q1 one of two words in d0, both in d1. "with" and "the" are stop words. q3: 1 of 4; q4: 2 of 5.
        ("words in its answer", "under a third"): ["q3", "q5"],
        ("words in its answer", "two thirds or more"): ["q0", "q1", "q2"],
        # d2 is judged in training, but not relevant.
        ("its document", "seen in training"): ["q0", "q1"],
        ("its document", "not seen"): ["q2", "q3", "q4", "q5"],
        ("from", "app"): ["q2", "q3"],
        ("from", "web"): ["q0", "q1", "q4"],
    }


def test_a_column_that_makes_no_slices(
    place: tuple[Collection, Questions], monkeypatch: pytest.MonkeyPatch
) -> None:
    collection, asked = place
    with pytest.raises(EmbedtrainError, match="has no column 'source'; its columns are: _id, text, from"):
        slices.of(collection, asked, ["source"], "english")
    monkeypatch.setattr(slices, "MOST_VALUES", 2)
    with pytest.raises(UsageError, match="--slice from: the queries have 3 different values in it; at most 2"):
        slices.of(collection, asked, ["from"], "english")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("error SSO-4012 at login", True),
        ("what is p53?", True),
        ("max_length of a model", True),
        ("10 of 20", False),
        ("up-to-date e.g. this", False),
        ("DOI 10.1038/nature", True),
    ],
)
def test_what_a_code_is(text: str, code: bool) -> None:
    assert holds_code(text) is code


def two() -> list[slices.Slice]:
    first = np.array([True] * 20 + [False] * 20)
    return [slices.Slice("length", "short", ~first), slices.Slice("length", "long", first)]


def test_what_got_worse_is_said_first_and_stands_first() -> None:
    random = np.random.default_rng(0)
    base = np.full(40, 0.5)
    tuned = base + np.concatenate([random.normal(-0.1, 0.02, 20), random.normal(0.3, 0.02, 20)])
    found = slices.compared(two(), base, tuned, 0)
    assert [(one["slice"], one["queries"]) for one in found] == [("short", 20), ("long", 20)]
    assert found[1]["low"] < -0.1 < found[1]["high"] < 0
    rows = slices.table(found, "base", "tuned", "nDCG@10")["rows"]
    assert [row[0] for row in rows] == ["length: long", "length: short"]
    (said,) = slices.sentences(found, "tuned", float((tuned - base).mean()))
    assert said.startswith(
        "tuned got worse on a part of the queries while the mean rose: length: long (20 queries, -0.1"
    )
    assert slices.sentences(found, "tuned", 0.0) == []


def test_a_few_queries_that_lost_by_chance_are_no_finding() -> None:
    """Five small losses lie below zero for certain by their interval; of 2 ** 5 signs two are as bad: p is 1 / 16."""
    base, tuned = np.full(40, 0.5), np.full(40, 0.6)
    tuned[:5] = [0.49, 0.4, 0.45, 0.3, 0.48]
    one = slices.Slice("from", "web", np.arange(40) < 5)
    (found,) = slices.compared([one], base, tuned, 0)
    assert found["high"] < 0
    assert found["p_randomization"] == found["p_holm"] == 1 / 16
    assert slices.sentences([found], "tuned", 0.1) == []


def test_a_training_split_that_cannot_be_read_is_no_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slices, "LEAST", 1)
    folder = write_collection(
        tmp_path / "part",
        [{"_id": "d0", "title": "", "text": "a"}, {"_id": "d1", "title": "", "text": "b"}],
        [{"_id": "q0", "text": "a"}, {"_id": "q1", "text": "b"}],
        {"train": [("q0", "gone", 1)], "test": [("q0", "d0", 1), ("q1", "d1", 1)]},
    )
    collection = Collection(folder)
    found, said = slices.of(collection, Questions.of(collection, "test", None), [], "english")
    assert "its document" not in {one.by for one in found}
    assert len(said) == 1
    assert said[0].startswith("no slices by what training has seen: ")
    assert "gone" in said[0]


def test_one_system_alone_has_values_and_no_differences() -> None:
    found: list[dict[str, Any]] = slices.compared(two(), np.linspace(0, 1, 40), None, 0)
    assert "difference" not in found[0]
    assert found[0]["low"] < found[0]["base"] < found[0]["high"]
    made = slices.table(found, "base", "base", "P@1")
    assert made["columns"] == ["slice", "queries", "base [95 %]"]
    assert slices.sentences(found, "base", 0.0) == []
