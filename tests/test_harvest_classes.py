"""Classes and clusters: as many pairs as were asked for, each once, of texts spread over the class; never all of them.

Deliberate breaks that turn a test red: both directions of a pair; a text with itself; `most` per text where it is per class;
neighbours first in file order; a ring that closes twice in a class of an even size; the same text twice in a class; leaving
out the class or the seed from the hash; pairs across classes; no count of texts that are alone.
"""

import itertools
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from conftest import SHARED
from hypothesis import given
from hypothesis import strategies as st
from test_harvest_table import dropped, found, judged, notes, of_rows, write_rows

from embedtrain import readers
from embedtrain.errors import EmbedtrainError
from embedtrain.harvest.tables.classes import PAIRS_PER_TEXT, ring
from embedtrain.harvest.tables.pairs import Found, Pair


def unordered(pairs: list[tuple[int, int]]) -> set[frozenset[int]]:
    return {frozenset(pair) for pair in pairs}


def texts(items: list[Found]) -> list[tuple[str, str]]:
    return [(item.query, item.document.text) for item in items if isinstance(item, Pair)]


def numbered(count: int, label: object = "a") -> list[dict[str, Any]]:
    return [{"text": f"{label} {n}", "label": label} for n in range(count)]


def test_a_ring_by_hand() -> None:
    # Five in a ring: neighbours that share nothing first (0-1, 2-3), then the rest of the neighbours, then two apart.
    assert list(ring(5, 99)) == [(0, 1), (2, 3), (4, 0), (1, 2), (3, 4), (0, 2), (1, 3), (4, 1), (2, 4), (3, 0)]
    assert list(ring(4, 99)) == [(0, 1), (2, 3), (1, 2), (3, 0), (0, 2), (1, 3)]
    assert list(ring(2, 99)) == [(0, 1)]
    assert list(ring(1, 99)) == list(ring(0, 99)) == list(ring(9, 0)) == []


@given(st.integers(0, 40), st.integers(0, 900))
def test_any_ring_gives_each_pair_once_and_as_many_as_asked_for(count: int, most: int) -> None:
    pairs = list(ring(count, most))
    assert len(pairs) == len(unordered(pairs)) == min(most, count * (count - 1) // 2)
    assert unordered(pairs) <= {frozenset(pair) for pair in itertools.combinations(range(count), 2)}


def test_p96_a_thousand_texts_of_a_class(tmp_path: Path) -> None:
    items = of_rows(tmp_path, *numbered(1_000), max_pairs_per_class=10)
    pairs = texts(items)
    assert len(pairs) == 10
    assert len({text for pair in pairs for text in pair}) == 20  # of 20 texts, not of 11 in a row
    assert (
        "10 pairs of 1 classes or clusters in t.jsonl, of 499,500 that could be made (--max-pairs-per-class)"
        in notes(items)
    )
    # Where nobody says how many: linear in the texts.
    assert len(texts(of_rows(tmp_path, *numbered(1_000)))) == 1_000 * PAIRS_PER_TEXT


@pytest.mark.parametrize(("most", "expected"), [(None, 56), (1_000, 56), (28, 56), (5, 10), (1, 2)])
def test_p96_sixteen_texts_of_two_classes(tmp_path: Path, most: int | None, expected: int) -> None:
    # 8 * 7 / 2 = 28 pairs a class.
    rows = [*numbered(8, "a"), *numbered(8, "b")]
    pairs = texts(of_rows(tmp_path, *rows, max_pairs_per_class=most))
    assert len(pairs) == len({frozenset(pair) for pair in pairs}) == expected
    assert all(left[0] == right[0] and left != right for left, right in pairs)


def test_the_order_of_rows_says_nothing_and_the_seed_does(tmp_path: Path) -> None:
    rows = [*numbered(30, 1), *numbered(30, 2)]
    one = texts(of_rows(tmp_path, *rows, max_pairs_per_class=9))
    assert texts(of_rows(tmp_path, *rows[::-1], max_pairs_per_class=9)) == one
    assert texts(of_rows(tmp_path, *rows, max_pairs_per_class=9, seed=1)) != one
    # Of the same texts two classes choose for themselves.
    same = [{"text": f"text {n}", "label": label} for n in range(30) for label in "ab"]
    pairs = texts(of_rows(tmp_path, *same, max_pairs_per_class=9))
    assert set(pairs[:9]) != set(pairs[9:])


def test_a_text_more_moves_few_pairs(tmp_path: Path) -> None:
    before = {frozenset(pair) for pair in texts(of_rows(tmp_path, *numbered(200), max_pairs_per_class=200))}
    after = {frozenset(pair) for pair in texts(of_rows(tmp_path, *numbered(201), max_pairs_per_class=201))}
    # All neighbours of a ring of 200, and of one of 201: one pair is parted, two are made.
    assert (len(before - after), len(after - before)) == (1, 2)


def test_what_is_left_out_of_classes(tmp_path: Path) -> None:
    rows = [
        {"text": "One", "label": 7},
        {"text": " one ", "label": "7"},
        {"text": "two", "label": 7},
        {"text": "One", "label": 8},
        {"text": " ", "label": 8},
        {"text": "three", "label": None},
        {"text": "four", "label": ""},
    ]
    items = of_rows(tmp_path, *rows)
    assert {frozenset(pair) for pair in texts(items)} == {frozenset({"One", "two"})}
    assert dropped(items) == {
        "repeated text": 1,
        "only text of its class": 1,
        "empty query": 1,
        "text without a class": 2,
    }
    with pytest.raises(EmbedtrainError, match=r"t\.jsonl line 1 column label is 0.5; an id is a string"):
        of_rows(tmp_path, {"text": "a", "label": 0.5})


def test_clusters_of_duplicates_and_their_time(tmp_path: Path) -> None:
    rows = [
        {"cluster": "c", "question": "how?", "at": "1970-01-01T00:00:02"},
        {"question": "in what way?", "at": "1970-01-01T00:00:05", "cluster": "c"},
        {"question": "why?", "cluster": "d", "at": None},
        {"question": "what for?", "cluster": "d", "at": 3},
    ]
    items = of_rows(tmp_path, *rows, time_column="at", weight=0.5)
    made = [item for item in items if isinstance(item, Pair)]
    assert [(frozenset(item[:1]) | {item.document.text}, item.time) for item in made] == [
        (frozenset({"how?", "in what way?"}), 5.0),
        (frozenset({"why?", "what for?"}), None),
    ]
    assert {(item.source, item.weight, item.grade) for item in made} == {("clusters", 0.5, 1.0)}


def test_columns_of_other_names_and_classes_in_several_files(tmp_path: Path) -> None:
    for name, text in (("a", "x"), ("b", "y")):
        write_rows(tmp_path / f"{name}.jsonl", [{"utterance": text, "topic": "t", "label": "other"}])
    flags: dict[str, Any] = {"query_column": "utterance", "label_column": "topic", "shape": "classes"}
    assert {frozenset(pair) for pair in texts(found(tmp_path / "*.jsonl", **flags))} == {frozenset({"x", "y"})}


def test_nothing_but_a_class_is_held(tmp_path: Path) -> None:
    """20,000 texts of 6,000 characters in 2,000 classes (120 MB) in less than half of that: 32 MB of cache and a class."""
    script = """
import resource, sys
from embedtrain.harvest.tables.classes import Classes
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
classes = Classes(0)
for n in range(20_000):
    classes.add(str(n % 2_000), f"{n} " + "x" * 6_000, None)
count = sum(1 for name, _ in classes.sizes() for _ in classes.pairs(name, 10))
assert count == 20_000, count
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    made = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(made.stdout) < 60


def test_intents_of_banking77(tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip("the larger collections are not on this machine")
    source = SHARED / "banking77"
    names = dict(line.split("\t")[:2] for line in (source / "qrels" / "train.tsv").read_text().splitlines()[1:])
    rows = [
        {"text": row["text"], "label": names[row["_id"]]}
        for _, row in readers.rows(source / "queries.jsonl.gz")
        if row["_id"] in names
    ]
    items = of_rows(tmp_path, *rows, max_pairs_per_class=100)
    pairs = texts(items)
    label = {json.dumps(row["text"]): row["label"] for row in rows}
    classes = Counter(label[json.dumps(left)] for left, _ in pairs)
    assert len(rows) == 10_003
    assert set(classes.values()) == {100}
    assert len(classes) == 77
    assert all(label[json.dumps(left)] == label[json.dumps(right)] for left, right in pairs)
    assert len(judged(items)) == len({frozenset(pair) for pair in pairs}) == 7_700
