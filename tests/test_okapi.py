"""rank-bm25 as the reference: its formulas by hand, and the same scores from both backends where they coincide.

Deliberate breaks that turn a test red: the floor taken from the mean of non-negative idfs only, Lucene's idf left in
Okapi, a document that shares no token returned by Plus, bm25s's own BM25L let through for rank-bm25's.
"""

import math

import bm25s
import numpy as np
import pytest
import rank_bm25
from conftest import RunCli
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.bm25 import BM25, check_options
from embedtrain.config import LexicalOptions
from embedtrain.errors import UsageError
from embedtrain.mined import read_mined

BACKENDS = ("bm25s", "rank-bm25")


def index(texts: list[str], backend: str, variant: str, k1: float = 0.9, b: float = 0.4) -> BM25:
    ids = [f"d{number:03d}" for number in range(len(texts))]
    return BM25(texts, ids, LexicalOptions("none", backend, variant, k1, b))


def found(searched: BM25, query: str, k: int = 100) -> list[tuple[int, float]]:
    hits = searched.search([query], k)
    return list(zip(hits.positions[0].tolist(), hits.scores[0].tolist(), strict=True))


# --- by hand --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backend", BACKENDS)
def test_okapi_floors_a_negative_idf_at_a_quarter_of_the_mean(backend: str) -> None:
    # N = 4: cat stands in 3, ln(1.5 / 3.5) = -0.8473; five words in 1 each, +0.8473. Mean 4 * 0.8473 / 6 = 0.5649,
    # floor 0.1412. All lengths are 2, so tf * 2.5 / (tf + 1.5) = 1.
    searched = index(["cat a", "cat b", "cat c", "d e"], backend, "okapi", 1.5, 0.75)
    assert found(searched, "cat") == [(place, pytest.approx(0.141217, abs=1e-6)) for place in range(3)]
    assert found(searched, "cat a")[0] == (0, pytest.approx(0.141217 + 0.847298, abs=1e-6))


@pytest.mark.parametrize("backend", BACKENDS)
def test_okapi_can_give_zero_or_less_and_that_is_no_hit(backend: str) -> None:
    """P15: a word in half of the documents has idf 0; in [cat a], [cat b], [cat c] the floor itself is -0.0258."""
    searched = index(["good morning my friend", "strong wind in Oslo tonight"], backend, "okapi", 1.5, 0.75)
    assert found(searched, "wind Oslo") == []
    searched = index(["cat a", "cat b", "cat c"], backend, "okapi", 1.5, 0.75)
    assert found(searched, "cat") == []
    assert searched.scores("cat", [0, 1, 2]).tolist() == [0, 0, 0]
    assert found(searched, "cat b") == [(1, pytest.approx(0.510826 - 0.025840, abs=1e-6))]


@pytest.mark.parametrize("backend", BACKENDS)
def test_plus_adds_delta_and_finds_only_what_shares_a_token(backend: str) -> None:
    # N = 2, n = 1: idf = ln 3. tf part 2 * 1.9 / (0.9 * (0.6 + 0.4 * 3 / 2) + 2) = 3.8 / 3.08. A document with none of
    # the query's words has ln 3 * delta in rank-bm25: no hit here.
    searched = index(["red red wine", "beer"], backend, "plus")
    assert found(searched, "red") == [(0, pytest.approx(math.log(3) * (1 + 3.8 / 3.08)))]
    assert searched.scores("red", [0, 1])[1] == 0
    # Words that a document lacks add their delta all the same: the order is that without it.
    assert found(searched, "red beer")[0][1] == pytest.approx(math.log(3) * (2 + 3.8 / 3.08))


def test_l_by_hand_and_why_bm25s_does_not_have_it() -> None:
    # idf = ln(3 / 1.5); c = 2 / (0.6 + 0.4 * 3 / 2); rank-bm25 has the factor tf = 2 once more than bm25s.
    searched = index(["red red wine", "beer"], "rank-bm25", "l")
    c = 2 / 1.2
    once = math.log(2) * 1.9 * (c + 0.5) / (0.9 + c + 0.5)
    assert found(searched, "red") == [(0, pytest.approx(2 * once))]
    engine = bm25s.BM25(k1=0.9, b=0.4, delta=0.5, method="bm25l")
    engine.index([["red", "red", "wine"], ["beer"]], show_progress=False)
    assert engine.get_scores(["red"]).tolist() == pytest.approx([once, math.log(2) * 1.9 * 0.5 / 1.4])


# --- the two backends, and rank-bm25 itself -------------------------------------------------------------------

WORDS = st.lists(st.sampled_from(["aa", "bb", "cc", "dd", "ee", "ff", "gg"]), max_size=8)


@pytest.mark.parametrize("variant", ["okapi", "plus"])
@settings(max_examples=120, deadline=None)
@given(
    documents=st.lists(WORDS.filter(bool), min_size=1, max_size=12),
    query=WORDS,
    k1=st.sampled_from([0.01, 0.9, 1.5]),
    b=st.sampled_from([0.0, 0.4, 1.0]),
)
def test_the_backends_agree(
    variant: str, documents: list[list[str]], query: list[str], k1: float, b: float
) -> None:
    texts = [" ".join(document) for document in documents]
    engine = {"okapi": rank_bm25.BM25Okapi, "plus": rank_bm25.BM25Plus}[variant](documents, k1=k1, b=b)
    theirs = engine.get_scores(query)
    shared = np.array([not set(query).isdisjoint(document) for document in documents])
    # Words of either sign cancel: what is left is exact to the size of the terms, not to its own.
    size = sum(abs(engine.idf.get(word, 0.0)) for word in query) * (k1 + 2)
    for backend in BACKENDS:
        ours = index(texts, backend, variant, k1, b).scores(" ".join(query), range(len(texts)))
        assert np.abs(ours - np.where(shared, np.maximum(theirs, 0), 0)).max() <= 1e-5 * size


@pytest.mark.parametrize("variant", ["okapi", "plus"])
@pytest.mark.parametrize(("k1", "b"), [(0.9, 0.4), (1.5, 0.75)])
def test_the_backends_find_the_same_lists(variant: str, k1: float, b: float) -> None:
    generator = np.random.default_rng(0)
    # The commonest words stand in most documents: their idf is negative before the floor.
    odds = 1 / np.arange(1, 61)
    draw = [
        " ".join(f"w{n}" for n in generator.choice(60, generator.integers(2, 25), p=odds / odds.sum()))
        for _ in range(150)
    ]
    texts, queries = draw[:110], draw[110:]
    fast, slow = (index(texts, backend, variant, k1, b).search(queries, 20) for backend in BACKENDS)
    if variant == "okapi":
        engine = rank_bm25.BM25Okapi([text.split() for text in texts])
        floored = [word for word, idf in engine.idf.items() if idf == 0.25 * engine.average_idf]
        assert len(floored) >= 2
        assert engine.average_idf > 0
    for number in range(len(queries)):
        assert fast.scores[number] == pytest.approx(slow.scores[number], rel=1e-5)
        assert fast.positions[number].tolist() == slow.positions[number].tolist()


def test_lucene_is_okapi_with_another_idf() -> None:
    texts = ["a a b c", "a d", "b c d", "a e f g h"]
    engine = rank_bm25.BM25Okapi([text.split() for text in texts], k1=0.9, b=0.4)
    for word in engine.idf:
        n = sum(word in text.split() for text in texts)
        engine.idf[word] = math.log(1 + (4 - n + 0.5) / (n + 0.5))
    ours = index(texts, "bm25s", "lucene").scores("a c a h", range(4))
    assert np.allclose(ours * 1.9, engine.get_scores(["a", "c", "a", "h"]), rtol=1e-5)


def test_the_reference_leaves_documents_without_tokens_out_too() -> None:
    """P17: rank-bm25 alone divides by zero where no document holds a token."""
    for variant in ("okapi", "l", "plus"):
        assert found(index(["", " ."], "rank-bm25", variant), "moon") == []
        padded = index(["", "moon base", "sun", "sea", "."], "rank-bm25", variant)
        alone = index(["moon base", "sun", "sea"], "rank-bm25", variant)
        assert found(padded, "moon") == [(1, found(alone, "moon")[0][1])]
        assert found(padded, "") == found(padded, "stars") == []


# --- what there is not, and the flags -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"bm25_variant": "l"},
            "--bm25-variant l is not there with --bm25-backend bm25s: the BM25L of bm25s is another formula than that "
            "of rank-bm25; add --bm25-backend rank-bm25, or choose among lucene, okapi, plus",
        ),
        (
            {"bm25_backend": "rank-bm25"},
            "--bm25-variant lucene is not there with --bm25-backend rank-bm25; "
            "add --bm25-backend bm25s, or choose among okapi, l, plus",
        ),
        ({"bm25_backend": "elastic"}, "--bm25-backend elastic: the backends are bm25s and rank-bm25"),
        ({"bm25_variant": "bm42"}, "--bm25-variant bm42: the variants are lucene, okapi, plus, l"),
    ],
)
def test_refusals_say_what_there_is(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(UsageError) as refused:
        check_options(LexicalOptions(**options))
    assert str(refused.value) == sentence
    with pytest.raises(UsageError):
        BM25(["a"], ["d"], LexicalOptions(**options))


def test_the_flags(tiny, tmp_path, run_cli: RunCli) -> None:
    rows = {}
    flags = ["--bm25-variant", "okapi", "--k1", "1.5", "--b", "0.75"]
    for backend in BACKENDS:
        out = tmp_path / f"{backend}.parquet"
        command = ["mine", tiny, "--retriever", "bm25", "--bm25-backend", backend, *flags, "--out", out]
        done = run_cli(*command)
        assert done.returncode == 0, done.stderr
        rows[backend] = read_mined(out)
    assert len(rows["bm25s"]) == 40
    for ours, theirs in zip(rows["bm25s"], rows["rank-bm25"], strict=True):
        assert ours.candidate_ids == theirs.candidate_ids
        assert ours.scores["bm25"] == pytest.approx(theirs.scores["bm25"], rel=1e-5)
        assert ours.positive_scores["bm25"] == pytest.approx(theirs.positive_scores["bm25"], rel=1e-5)
    done = run_cli("inspect", "rank-bm25.parquet")
    for text in ("bm25 backend rank-bm25", "bm25 variant okapi", "k1 1.5", "b 0.75"):
        assert text in done.stdout, done.stdout
    done = run_cli("eval", tiny, "--bm25", "--bm25-backend", "rank-bm25", "--bm25-variant", "plus", "--out", "e")
    assert done.returncode == 0, done.stderr
    for arguments in (["eval", tiny, "--bm25"], ["mine", tiny, "--retriever", "bm25"]):
        done = run_cli(*arguments, "--bm25-variant", "l", "--out", "none.parquet")
        assert done.returncode == 2
        assert "error: --bm25-variant l is not there with --bm25-backend bm25s" in done.stderr
