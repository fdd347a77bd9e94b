"""Splits share nothing, and rows that come later move no row that was there.

Deliberate breaks that turn a test red: a split by row; a group hashed by its first query (growth moves it); leaving out
the union by text or by page; a shuffled list instead of a hash.
"""

import pytest
from conftest import SCIFACT
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.config import HarvestOptions
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest import beir
from embedtrain.harvest.draft import Document, Draft, Query, document_key, query_key
from embedtrain.harvest.split import components, cut, parse_shares, stable_unit

Pair = tuple[str, str]
APART = [(name, name.upper()) for name in "klmnopqrstuvwxyz"]  # pairs that share nothing


def draft_of(pairs: list[Pair]) -> Draft:
    draft = Draft()
    for query, document in pairs:
        identifier = draft.add_weak_document("", f"text of {document}", {})
        draft.add_weak_pair(query, identifier, "table")
    return draft


def assigned(draft: Draft) -> dict[str, str]:
    """{query text: split}"""
    return {draft.queries[query].text: name for name, qrels in draft.splits.items() for query in qrels}


def cut_or_keep(draft: Draft, shares: dict[str, float], seed: int) -> dict[str, str] | None:
    try:
        cut(draft, shares, seed)
    except EmbedtrainError:  # too few groups for so many splits
        return None
    return assigned(draft)


def test_p95_groups_are_queries_connected_through_documents() -> None:
    draft = draft_of([("q1", "dA"), ("q2", "dA"), ("q3", "dB"), ("q1", "dC")])
    groups = [[draft.queries[query].text for query in group] for group in components(draft, "train")]
    assert groups == [["q1", "q2"], ["q3"]]
    for seed in range(20):
        found = cut_or_keep(draft_of([("q1", "dA"), ("q2", "dA"), ("q3", "dB"), ("q1", "dC")]), {"dev": 0.5}, seed)
        assert found is None or found["q1"] == found["q2"] != found["q3"]


def test_the_same_text_under_other_ids_connects_too() -> None:
    draft = Draft(
        documents={
            "a": Document("", "one  text", {}),
            "b": Document("one", "text", {}),
            "c": Document("", "x", {}),
        },
        queries={name: Query(name, {}) for name in ("q1", "q2", "q3")} | {"q4": Query("Q3 ", {})},
        splits={"train": {"q1": {"a": 1.0}, "q2": {"b": 2.0, "c": 0.0}, "q3": {"c": 1.0}, "q4": {"c": -1.0}}},
    )
    # A grade of 0 or less connects nothing; the same words in another spelling do.
    assert components(draft, "train") == [["q1", "q2"], ["q3", "q4"]]


def test_sections_of_one_page_stay_together() -> None:
    draft = draft_of([("q1", "dA"), ("q2", "dB"), ("q3", "dC")])
    documents = list(draft.documents)
    draft.groups = [(documents[0], "a.md"), (documents[2], "a.md"), (documents[1], "b.md")]
    assert [len(group) for group in components(draft, "train")] == [2, 1]


@given(
    pairs=st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from("ABCDEFGHIJ")), max_size=25),
    shares=st.sampled_from([{"dev": 0.3}, {"dev": 0.25, "test": 0.25}]),
    seed=st.integers(0, 5),
)
@settings(max_examples=150, deadline=None)
def test_splits_share_nothing(pairs: list[Pair], shares: dict[str, float], seed: int) -> None:
    draft = draft_of([(f"query {q}", d) for q, d in [*pairs, *APART]])
    before = {query: dict(judged) for query, judged in draft.splits["train"].items()}
    if cut_or_keep(draft, shares, seed) is None:
        return
    after = [(name, query) for name, qrels in draft.splits.items() for query in qrels]
    assert sorted(query for _, query in after) == sorted(before)
    assert {q: judged for qrels in draft.splits.values() for q, judged in qrels.items()} == before
    seen: dict[str, set[str]] = {}
    for name, qrels in draft.splits.items():
        for query, judged in qrels.items():
            seen.setdefault(query_key(draft.queries[query].text), set()).add(name)
            for document in judged:
                seen.setdefault(document_key("", draft.documents[document].text), set()).add(name)
    assert all(len(names) == 1 for names in seen.values())


@given(
    old=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=15, max_size=40),
    new=st.lists(st.tuples(st.integers(50, 80), st.integers(50, 80)), max_size=30),
    visits=st.lists(st.tuples(st.integers(100, 110), st.integers(0, 40)), max_size=10, unique_by=lambda v: v[0]),
    seed=st.integers(0, 5),
    order=st.randoms(use_true_random=False),
)
@settings(max_examples=150, deadline=None)
def test_added_rows_move_no_old_row(old: list, new: list, visits: list, seed: int, order) -> None:
    """New groups, and new queries for old documents, in any place of the file."""
    first = cut_or_keep(draft_of([(f"q{q}", f"d{d}") for q, d in old]), {"dev": 0.3}, seed)
    known = {d for _, d in old}
    rows = [*old, *new, *((q, d) for q, d in visits if d in known)]
    order.shuffle(rows)
    second = cut_or_keep(draft_of([(f"q{q}", f"d{d}") for q, d in rows]), {"dev": 0.3}, seed)
    if first is not None and second is not None:
        assert first.items() <= second.items()


def test_shares_come_out_as_asked() -> None:
    draft = draft_of([(f"q{n}", f"d{n}") for n in range(4000)])
    cut(draft, {"dev": 0.2, "test": 0.1}, seed=3)
    # Binomial: 800 +- 25 and 400 +- 19; four deviations are allowed.
    assert abs(len(draft.splits["dev"]) - 800) < 100
    assert abs(len(draft.splits["test"]) - 400) < 76
    assert draft.notes[0].startswith("dev was cut from train: ")
    other = draft_of([(f"q{n}", f"d{n}") for n in range(4000)])
    cut(other, {"dev": 0.2, "test": 0.1}, seed=4)
    assert other.splits["dev"].keys() != draft.splits["dev"].keys()


def test_scifact_is_cut_without_overlap() -> None:
    draft = Draft()
    beir.read(SCIFACT, HarvestOptions(), draft, silent)
    test = draft.splits["test"]
    cut(draft, {"dev": 0.2}, seed=0)
    assert draft.splits["test"] is test
    dev, train = ({d for row in draft.splits[name].values() for d in row} for name in ("dev", "train"))
    assert not dev & train
    assert len(draft.splits["dev"]) + len(draft.splits["train"]) == 809


def test_the_hash_is_the_same_everywhere() -> None:
    # printf '0\0split\0a' | sha256sum: the first 8 bytes as a number, over 2**64.
    assert stable_unit(0, "split", "a") == int("282a9abd740df8dd", 16) / 2**64
    units = [stable_unit(0, "split", str(n)) for n in range(2000)]
    assert 0 <= min(units) < 0.01
    assert 0.99 < max(units) < 1


@pytest.mark.parametrize(
    ("text", "shares"), [("", {}), ("dev=0.2", {"dev": 0.2}), (" a=.1 , b=0.5,", {"a": 0.1, "b": 0.5})]
)
def test_shares_are_read(text: str, shares: dict[str, float]) -> None:
    assert parse_shares(text) == shares


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dev", "'dev' is no NAME=SHARE"),
        ("dev=20%", "'dev=20%' is no NAME=SHARE"),
        ("dev=1", "'dev=1' is no NAME=SHARE"),
        ("dev=0", "'dev=0' is no NAME=SHARE"),
        ("dev=nan", "'dev=nan' is no NAME=SHARE"),
        ("../dev=0.2", "is no NAME=SHARE"),
        ("=0.2", "is no NAME=SHARE"),
        ("train=0.8", "what is not cut stays in train"),
        ("dev=0.1,dev=0.2", "name each new split once"),
        ("dev=0.5,test=0.5", "the shares leave nothing for train"),
    ],
)
def test_shares_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_shares(text)


def test_a_cut_that_cannot_be() -> None:
    with pytest.raises(EmbedtrainError, match=r"would leave (dev|train) empty: the 2 train queries form 1 groups"):
        cut(draft_of([("q1", "d"), ("q2", "d")]), {"dev": 0.5}, seed=0)
    draft = draft_of([("q1", "d")])
    draft.splits["dev"] = draft.splits.pop("train")
    with pytest.raises(UsageError, match="the source has none; leave it out"):
        cut(draft, {"dev": 0.5}, seed=0)
    draft.splits["train"] = {}
    with pytest.raises(UsageError, match="has a split dev already"):
        cut(draft, {"dev": 0.5}, seed=0)
