"""Splits share nothing, and rows that come later move no row that was there.

Deliberate breaks that turn a test red: a split by row; a group hashed by its first query (growth moves it); leaving out
the union by text or by page; a shuffled list instead of a hash.
"""

import itertools

import numpy as np
import pytest
from conftest import SCIFACT
from harvested import documents, qrels, queries
from harvested import draft_of as draft_from
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain.config import HarvestOptions
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.harvest import beir
from embedtrain.harvest.draft import Document, Draft, Query
from embedtrain.harvest.identity import document_key, query_key
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
    return {draft.query(query).text: name for name, judged in qrels(draft).items() for query in judged}


def groups_of(draft: Draft) -> list[list[str]]:
    """The texts of the queries of each group, in the order in which they came."""
    texts = {n: query.text for n, _, query in draft.queries()}
    found: dict[int, list[str]] = {}
    for query, group in zip(*(part.tolist() for part in components(draft, draft.pairs("train"))), strict=True):
        found.setdefault(group, []).append(texts[query])
    return sorted(found.values())


def cut_or_keep(draft: Draft, shares: dict[str, float], seed: int) -> dict[str, str] | None:
    try:
        cut(draft, shares, seed)
    except EmbedtrainError:  # too few groups for so many splits
        return None
    return assigned(draft)


def test_p95_groups_are_queries_connected_through_documents() -> None:
    draft = draft_of([("q1", "dA"), ("q2", "dA"), ("q3", "dB"), ("q1", "dC")])
    assert groups_of(draft) == [["q1", "q2"], ["q3"]]
    for seed in range(20):
        found = cut_or_keep(draft_of([("q1", "dA"), ("q2", "dA"), ("q3", "dB"), ("q1", "dC")]), {"dev": 0.5}, seed)
        assert found is None or found["q1"] == found["q2"] != found["q3"]


def test_the_same_text_under_other_ids_connects_too() -> None:
    draft = draft_from(
        {"a": Document("", "one  text", {}), "b": Document("one", "text", {}), "c": Document("", "x", {})},
        {name: Query(name, {}) for name in ("q1", "q2", "q3")} | {"q4": Query("Q3 ", {})},
        {"train": {"q1": {"a": 1.0}, "q2": {"b": 2.0, "c": 0.0}, "q3": {"c": 1.0}, "q4": {"c": -1.0}}},
    )
    # A grade of 0 or less connects nothing; the same words in another spelling do.
    assert groups_of(draft) == [["q1", "q2"], ["q3", "Q3 "]]


def test_sections_of_one_page_stay_together() -> None:
    draft = Draft()
    for query, document, page in [("q1", "dA", "a.md"), ("q2", "dB", "b.md"), ("q3", "dC", "a.md")]:
        identifier = draft.add_weak_document("", f"text of {document}", {}, page=page)
        draft.add_weak_pair(query, identifier, "heading")
    assert groups_of(draft) == [["q1", "q3"], ["q2"]]
    # A text that stands on both pages joins them, though nobody asks for it.
    for page in ("a.md", "b.md"):
        draft.add_weak_document("", "All rights reserved.", {}, page=page)
    assert groups_of(draft) == [["q1", "q2", "q3"]]


@given(
    pairs=st.lists(st.tuples(st.sampled_from("abcdefghij"), st.sampled_from("ABCDEFGHIJ")), max_size=25),
    shares=st.sampled_from([{"dev": 0.3}, {"dev": 0.25, "test": 0.25}]),
    seed=st.integers(0, 5),
)
@settings(max_examples=150, deadline=None)
def test_splits_share_nothing(pairs: list[Pair], shares: dict[str, float], seed: int) -> None:
    draft = draft_of([(f"query {q}", d) for q, d in [*pairs, *APART]])
    before = qrels(draft)["train"]
    if cut_or_keep(draft, shares, seed) is None:
        return
    parts = qrels(draft)
    after = [(name, query) for name, judged in parts.items() for query in judged]
    assert sorted(query for _, query in after) == sorted(before)
    assert {q: grades for judged in parts.values() for q, grades in judged.items()} == before
    texts, asked = documents(draft), queries(draft)
    seen: dict[str, set[str]] = {}
    for name, judged in parts.items():
        for query, grades in judged.items():
            seen.setdefault(query_key(asked[query].text), set()).add(name)
            for document in grades:
                seen.setdefault(document_key("", texts[document].text), set()).add(name)
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
    assert abs(len(qrels(draft)["dev"]) - 800) < 100
    assert abs(len(qrels(draft)["test"]) - 400) < 76
    assert draft.notes[0].startswith("dev was cut from train: ")
    other = draft_of([(f"q{n}", f"d{n}") for n in range(4000)])
    cut(other, {"dev": 0.2, "test": 0.1}, seed=4)
    assert qrels(other)["dev"].keys() != qrels(draft)["dev"].keys()


def test_scifact_is_cut_without_overlap() -> None:
    draft = Draft()
    beir.read(SCIFACT, HarvestOptions(), draft, silent)
    test = qrels(draft)["test"]
    cut(draft, {"dev": 0.2}, seed=0)
    assert qrels(draft)["test"] == test
    dev, train = ({d for row in qrels(draft)[name].values() for d in row} for name in ("dev", "train"))
    assert not dev & train
    assert len(qrels(draft)["dev"]) + len(qrels(draft)["train"]) == 809


def test_the_hash_is_the_same_everywhere() -> None:
    # printf '0\0split\0a' | sha256sum: the first 8 bytes as a number, over 2**64.
    assert stable_unit(0, "split", "a") == int("282a9abd740df8dd", 16) / 2**64
    units = [stable_unit(0, "split", str(n)) for n in range(2000)]
    assert 0 <= min(units) < 0.01
    assert 0.99 < max(units) < 1


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("", {}),
        ("dev=0.2", {"dev": 0.2}),
        (" a=.1 , b=0.5,", {"a": 0.1, "b": 0.5}),
        ("train=0.9,dev=0.05,test=0.05", {"dev": 0.05, "test": 0.05}),
    ],
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
        ("train=0.8", "the shares are 0.8 together; with train among them they must be 1"),
        ("train=0.8,dev=0.3", "the shares are 1.1 together; with train among them they must be 1"),
        ("dev=0.1,dev=0.2", "name each split once"),
        ("dev=0.5,test=0.5", "the shares leave nothing for train"),
    ],
)
def test_shares_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_shares(text)


def test_a_cut_that_cannot_be() -> None:
    with pytest.raises(EmbedtrainError, match=r"would leave (dev|train) empty: the 2 train queries form 1 groups"):
        cut(draft_of([("q1", "d"), ("q2", "d")]), {"dev": 0.5}, seed=0)
    found = {"d": Document("", "x", {})}, {"q": Query("y", {})}
    with pytest.raises(UsageError, match="the source has none; leave it out"):
        cut(draft_from(*found, {"test": {"q": {"d": 1.0}}}), {"dev": 0.5}, seed=0)
    with pytest.raises(UsageError, match="has a split dev already"):
        cut(draft_from(*found, {"dev": {"q": {"d": 1.0}}, "train": {"q": {"d": 1.0}}}), {"dev": 0.5}, seed=0)


def test_by_time_train_holds_nothing_newer_than_what_it_is_tested_on() -> None:
    draft = Draft()
    for query, document, time in [
        ("q0", "d0", 1.0),
        ("q1", "d1", 2.0),
        ("q2", "d2", 3.0),
        ("q3", "d3", 4.0),
        ("q4", "d0", 9.0),  # asks for what q0 asks for: both are as new as this
        ("q5", "d5", None),
        ("q6", "d6", 4.0),
    ]:
        draft.add_weak_pair(query, draft.add_weak_document("", document, {}), "table", time=time)
    # Six queries with a time. By their groups: 1 (2), 2 (3), 3 and 6 (4), 0 and 4 (9). A third is 2: the group of 9 for
    # test, then dev up to 4 queries: 3 and 6, which happened at the same moment.
    cut(draft, {"dev": 1 / 3, "test": 1 / 3}, seed=0, by_time=True)
    assert {name: sorted(judged) for name, judged in assigned_by_split(draft).items()} == {
        "dev": ["q3", "q6"],
        "test": ["q0", "q4"],
        "train": ["q1", "q2", "q5"],
    }
    assert draft.notes[0] == "1 queries without a time stay in train"
    with pytest.raises(UsageError, match="no row has a time; name its column with --time-column"):
        cut(draft_of([("q1", "d"), ("q2", "e")]), {"dev": 0.5}, seed=0, by_time=True)


def assigned_by_split(draft: Draft) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for query, split in assigned(draft).items():
        found.setdefault(split, []).append(query)
    return found


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 20)), min_size=1, max_size=30),
    shares=st.sampled_from([{"dev": 0.3}, {"dev": 0.25, "test": 0.25}]),
)
@settings(max_examples=100, deadline=None)
def test_by_time_splits_share_nothing_and_follow_each_other(rows: list, shares: dict[str, float]) -> None:
    draft = Draft()
    for query, document, time in rows:
        identifier = draft.add_weak_document("", f"text of {document}", {})
        draft.add_weak_pair(f"query {query}", identifier, "table", time=float(time))
    whole = draft.pairs("train")
    try:
        cut(draft, shares, 0, by_time=True)
    except EmbedtrainError:  # too few groups
        return
    parts = [draft.pairs(name) for name in ("train", *shares)]
    assert sum(len(part.p) for part in parts) == len(whole.p)
    for earlier, later in itertools.pairwise(parts):
        assert not np.intersect1d(earlier.document, later.document).size
        latest = [
            max(part.time[part.query == query].max() for query in group)
            for part in (earlier, later)
            for group in [np.unique(part.query)]
        ]
        assert latest[0] < latest[1]
