"""Rankings that are compared: self-hits, runs of other people, reranking, names.

Deliberate breaks that turn a test red: every hit with the query's id taken out (test_a_hit_with_...), candidates
below the reranked ones lost (test_reranking_...), a missing query left out (test_queries_of_a_run_...).
"""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import write_collection
from hypothesis import given
from hypothesis import strategies as st

from embedtrain import metrics, retrieval, trec
from embedtrain.collection import Collection
from embedtrain.config import EvalOptions
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError
from embedtrain.hits import Hits
from embedtrain.retrieval import retrieved
from embedtrain.searched import Documents
from embedtrain.systems import Names, Questions, System, file_name, from_file, without_self


def questions(qrels: dict[str, dict[str, float]]) -> Questions:
    return Questions(list(qrels), [f"text of {query}" for query in qrels], qrels, 0, {})


def hits(*rows: list[int]) -> Hits:
    return Hits(
        [np.array(row, dtype=np.int64) for row in rows],
        [np.arange(len(row), 0, -1, dtype=np.float32) for row in rows],
    )


def ndcg(system: System, asked: Questions) -> list[float]:
    return metrics.score_run(system.hits, system.ids, asked.qrels, "nDCG@10").tolist()


@pytest.fixture
def small(tmp_path: Path) -> Collection:
    words = ["apple", "banana", "cherry", "apple banana", "cherry date"]
    return Collection(
        write_collection(
            tmp_path / "small",
            [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(words)],
            [{"_id": f"q{n}", "text": text} for n, text in enumerate(["apple", "cherry", "date", "fig"])],
            {
                "test": [("q0", "d3", 1), ("q1", "d2", 2), ("q1", "d4", 1), ("q2", "d4", 1), ("q3", "d0", 0)],
                "none": [("q0", "d0", 0)],
            },
        )
    )


# Queries


def test_queries_without_a_relevant_document_are_left_out_and_counted(small: Collection) -> None:
    asked = Questions.of(small, "test", None)
    assert (asked.ids, asked.texts, asked.left_out) == (["q0", "q1", "q2"], ["apple", "cherry", "date"], 1)
    assert list(asked.qrels) == asked.ids
    limited = Questions.of(small, "test", 2)
    assert (limited.ids, list(limited.qrels), limited.left_out) == (["q0", "q1"], ["q0", "q1"], 1)


def test_a_split_without_any_relevant_document_is_refused(small: Collection) -> None:
    with pytest.raises(EmbedtrainError, match="no query of split none"):
        Questions.of(small, "none", None)


# Self-hits


def test_a_query_does_not_find_itself() -> None:
    # P70 (a): arg1 is first for itself; without it 1.0, with it 0.6309.
    asked = questions({"arg1": {"arg2": 1.0}})
    kept, removed = without_self(hits([0, 1]), asked, ["arg1", "arg2"], 10)
    assert removed == 1
    assert ndcg(System("s", kept, ["arg1", "arg2"], {}), asked) == [1.0]


def test_a_hit_with_the_query_s_id_that_is_judged_relevant_stays() -> None:
    # P70 (b): document 5 has nothing to do with query 5 but its name. Taken out: nDCG .9202, recall .875.
    ids = [str(number) for number in range(1, 9)]
    asked = questions({"5": dict.fromkeys(ids, 1.0)})
    kept, removed = without_self(hits(list(range(8))), asked, ids, 10)
    assert removed == 0
    assert ndcg(System("s", kept, ids, {}), asked) == [1.0]
    assert metrics.score_run(kept, ids, asked.qrels, "Recall@10").tolist() == [1.0]


def test_self_hits_make_room_for_the_next_document() -> None:
    asked = questions({"a": {"c": 1.0}, "x": {"a": 1.0}})
    kept, removed = without_self(hits([0, 1, 2], [0, 1, 2]), asked, ["a", "b", "c"], 2)
    assert removed == 1
    assert [found.tolist() for found in kept.positions] == [[1, 2], [0, 1]]
    assert [found.tolist() for found in kept.scores] == [[2.0, 1.0], [3.0, 2.0]]


# Run files


def test_queries_of_a_run_that_are_missing_count_0_and_others_are_ignored(
    small: Collection, tmp_path: Path
) -> None:
    # P82 and P71: judged but not run, run but not judged.
    path = tmp_path / "their.trec"
    path.write_text("q0 Q0 d3 1 2 t\nq0 Q0 d0 2 1 t\nq9 Q0 d1 1 1 t\n")
    asked = Questions.of(small, "test", None)
    system = from_file(path, trec.read_run(path), small, asked, Names())
    assert ndcg(system, asked) == [1.0, 0.0, 0.0]
    assert system.name == "their.trec"
    assert system.about == {
        "run": "their.trec",
        "queries_not_measured": 1,
        "unanswered": 2,
        "tied_queries": 0,
        "self_hits": 0,
    }
    assert system.said == [
        "2 measured queries are not in it and count 0: q1, q2",
        "1 of its queries are not measured: q9",
    ]


def test_documents_of_a_run_that_are_not_in_the_corpus_keep_their_ranks(small: Collection, tmp_path: Path) -> None:
    path = tmp_path / "their.trec"
    path.write_text("q0 Q0 gone 1 2 t\nq0 Q0 d3 2 1 t\nq1 Q0 d2 1 1 t\nq2 Q0 d4 1 1 t\n")
    asked = Questions.of(small, "test", None)
    system = from_file(path, trec.read_run(path), small, asked, Names())
    # q0: rank 2, 1 / log2 3. q1: 2 of grades 2 and 1, 2 / (2 + 1 / log2 3).
    assert ndcg(system, asked) == pytest.approx([0.63093, 2 / 2.63093, 1.0], abs=1e-5)
    assert system.about["documents_not_in_corpus"] == 1
    assert system.said == ["1 of its documents are not in the corpus: gone"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "q7 Q0 d3 1 2 t\nq8 Q0 d3 1 2 t\n",
            "has none of the 3 queries that are measured; it has q7, q8 and the split",
        ),
        ("q0 Q0 x 1 2 t\nq0 Q0 y 2 1 t\n", r"names no document of .*small; it names x, y: was it made"),
    ],
)
def test_a_run_of_something_else_is_refused(small: Collection, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "their.trec"
    path.write_text(text)
    with pytest.raises(EmbedtrainError, match=message):
        from_file(path, trec.read_run(path), small, Questions.of(small, "test", None), Names())


# BM25 and reranking


class Short:
    """A teacher that likes short documents, and remembers what it was asked."""

    source = SimpleNamespace(name="short")

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def score(self, pairs: list[tuple[str, str]], progress: Any) -> np.ndarray:
        self.asked += pairs
        return np.array([-3.0 * len(document) for _, document in pairs], dtype=np.float32)


def test_reranking_reorders_the_top_and_keeps_the_rest_below(
    small: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = Short()
    monkeypatch.setattr(retrieval, "_teacher", lambda name: teacher)
    asked = questions({"q": {"d3": 1.0}, "none": {"d1": 1.0}})
    first = System("first", hits([4, 3, 0, 1], []), small.corpus.ids, {})
    reranked, mixed = retrieval._reranked(teacher, first, 3, small, asked, "reranked", Names(), silent)
    # Lengths: d0 apple 5, d3 "apple banana" 12, d4 "cherry date" 11; d1 lies below the depth of 3.
    assert teacher.asked == [("text of q", "cherry date"), ("text of q", "apple banana"), ("text of q", "apple")]
    assert [found.tolist() for found in reranked.hits.positions] == [[0, 4, 3, 1], []]
    assert reranked.hits.scores[0].tolist() == [-15.0, -33.0, -36.0, -37.0]
    # Ranks (own, teacher): d4 1 and 2, d0 3 and 1, d3 2 and 3.
    assert mixed.name == "first + teacher"
    assert [found.tolist() for found in mixed.hits.positions] == [[4, 0, 3, 1], []]
    assert mixed.hits.scores[0][:2].tolist() == pytest.approx([1 / 61 + 1 / 62, 1 / 63 + 1 / 61])
    for system in (reranked, mixed):
        assert system.hits.scores[0].dtype == np.float32
        assert (np.diff(system.hits.scores[0]) < 0).all()
        assert system.about["candidates"] == "first"


def test_bm25_alone_is_reranked_without_a_model(small: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "_teacher", lambda name: Short())
    asked = Questions.of(small, "test", None)
    found = retrieved(
        EvalOptions(bm25=True), small, Documents(small.corpus), asked, [], "teacher", Names(), silent
    )
    assert [system.name for system in found] == ["BM25", "reranked", "BM25 + teacher"]
    assert sorted(found[0].hits.positions[0].tolist()) == sorted(found[1].hits.positions[0].tolist())


@pytest.mark.parametrize("bm25", [True, False])
def test_the_language_that_auto_came_to_is_said_once(
    bm25: bool, small: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By BM25 or, where only its mixture with a model is measured, by that."""
    asked = Questions.of(small, "test", None)
    dense = System("base", hits(*[[0, 1]] * len(asked.ids)), small.corpus.ids, {})
    monkeypatch.setattr(retrieval, "find_model", lambda name: SimpleNamespace(name=name))
    ranker = SimpleNamespace(system=lambda *_: dense, hits=lambda *_: dense.hits)
    monkeypatch.setattr(retrieval.Ranker, "load", lambda *_: ranker)
    options = EvalOptions(bm25=bm25, hybrid=True, language="auto")
    found = retrieved(options, small, Documents(small.corpus), asked, ["m"], None, Names(), silent)
    why = "none (auto: stop words of no language in 5 documents)"
    said = [text for system in found for text in system.said if text.startswith("language")]
    assert said == [f"language: {why}"]
    assert [system.about.get("language") for system in found] == [*[why] * bm25, None, why]


def test_a_teacher_that_gives_no_numbers_is_an_error(small: Collection) -> None:
    broken = SimpleNamespace(
        source=SimpleNamespace(name="broken"),
        score=lambda pairs, progress: np.full(len(pairs), np.nan, dtype=np.float32),
    )
    first = System("first", hits([0, 1]), small.corpus.ids, {})
    with pytest.raises(EmbedtrainError, match="teacher broken gives scores that are no numbers"):
        retrieval._reranked(broken, first, 2, small, questions({"q": {"d0": 1.0}}), "reranked", Names(), silent)


# Names


def test_names_are_unique_as_files_too() -> None:
    names = Names()
    assert [names(wanted) for wanted in ("base", "tuned/a", "tuned_a", "Base", "base", "a/../b")] == [
        "base",
        "tuned/a",
        "tuned_a (2)",
        "Base (2)",
        "base (3)",
        "a/../b",
    ]


@given(st.text(min_size=1))
def test_a_file_name_stays_in_its_folder(name: str) -> None:
    found = file_name(name)
    assert found
    assert not found.startswith(".")
    assert "/" not in found
    assert "\0" not in found
