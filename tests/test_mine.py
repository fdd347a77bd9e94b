"""Mining on small collections, with worked rows, the cases of shared/cases.md and the real command.

Deliberate breaks that turn a test red: the positive's text searched instead of the query's
(test_the_query_is_searched_...), BM25 scores given to the ratio rule (test_a_dense_rule_...), only the dense
window scored (test_what_bm25_alone_saw_...), known positives other than the row's own forgotten.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

import numpy as np
import pyarrow.parquet as pq
import pytest
from conftest import RunCli, write_collection
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain import artifacts, memory, mine, mined
from embedtrain.artifacts import Claim, Input
from embedtrain.collection import Collection
from embedtrain.config import MineOptions
from embedtrain.console import silent
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.mined import MinedRow


class Fake:
    """An encoder that looks vectors up, and writes down what it was asked for."""

    source = SimpleNamespace(name="fake")
    precision = "float32"
    gpu = None
    prompts = MappingProxyType({"query": "query: ", "document": "passage: "})

    def __init__(self, vectors: dict[str, Sequence[float]], similarity: str = "dot") -> None:
        self.vectors = vectors
        self.similarity = similarity
        self.asked: list[tuple[str, list[str]]] = []

    def encode(self, texts: Sequence[str], role: str, progress: object = None) -> np.ndarray:
        self.asked.append((role, list(texts)))
        return np.array([self.vectors[text] for text in texts], dtype=np.float32)


def collection(
    folder: Path, corpus: dict[str, str], queries: dict[str, str], positives: dict[str, list[str]]
) -> Collection:
    write_collection(
        folder,
        [{"_id": identifier, "text": text} for identifier, text in corpus.items()],
        [{"_id": identifier, "text": text} for identifier, text in queries.items()],
        {"train": [(query, document, 1) for query, documents in positives.items() for document in documents]},
    )
    return Collection(folder)


def run(
    source: Collection, encoder: Fake | None = None, **values: object
) -> tuple[list[MinedRow], dict, dict[str, int]]:
    """Mine in memory: rows, summary, dropped."""
    if encoder is None:
        values.setdefault("retrievers", ("bm25",))
    options = MineOptions(**{"language": "none", **values})
    mine.check(options)
    queries, dropped = mine.read_queries(source, options.split, options.limit)
    choice = mine.Choice(source, queries, options)
    found = mine.retrieve(source, queries, options, [encoder] if encoder else [], silent, 10**9)
    rows = [row for block in found.blocks(choice, silent) for row in mined.from_batch(choice.table(block))]
    summary = {**choice.audit.numbers(), **found.facts, "notes": mine.notes(choice, found.facts)}
    return rows, summary, dropped


def negatives(rows: list[MinedRow]) -> dict[str, list[str]]:
    return {row.query_id: row.negatives for row in rows}


def on_a_line(**scores: float) -> dict[str, list[float]]:
    """Vectors whose dot product with the query's [1, 0] is the score."""
    return {text: [score, 0.0] for text, score in scores.items()}


# --- cases ----------------------------------------------------------------------------------------------------


def test_the_text_of_the_positive_is_never_a_negative(tmp_path: Path) -> None:
    """P03: c2 and c4 say what the positive c1 says."""
    source = collection(
        tmp_path / "c",
        {"c1": "Titan", "c2": "Titan", "c3": "Europa", "c4": " titan "},
        {"q": "largest moon of Saturn?"},
        {"q": ["c1"]},
    )
    vectors = {"Titan": [1, 0], "Europa": [0.5, 0], " titan ": [1, 0], "largest moon of Saturn?": [1, 0]}
    (row,), summary, _ = run(source, Fake(vectors), retrievers=("dense",), negatives=2, max_ratio=None)
    assert row.negatives == ["c3"]
    assert dict(zip(row.candidate_ids, row.reason, strict=True)) == {
        "c1": "known positive",
        "c2": "same text as a positive",
        "c3": "selected",
        "c4": "same text as a positive",
    }
    assert summary["shortfall"] == {"queries": 1, "negatives": 1, "without any": 0}


def test_nothing_is_filled_up(tmp_path: Path) -> None:
    """P04: one other document is there, three are asked for; neither the positive nor a repeat comes in."""
    source = collection(tmp_path / "c", {"p": "good", "n": "bad"}, {"q": "ask"}, {"q": ["p"]})
    encoder = Fake({"ask": [1, 0], "good": [0.8, 0], "bad": [0.2, 0]})
    (row,), summary, _ = run(source, encoder, retrievers=("dense",), negatives=3)
    assert row.negatives == ["n"]
    assert summary["shortfall"] == {"queries": 1, "negatives": 2, "without any": 0}
    assert summary["notes"][0].startswith("queries with fewer than 3 negatives: 1, without any: 0;")


def test_the_query_is_searched_and_all_its_positives_are_left_out(tmp_path: Path) -> None:
    """P05: d4 would show that a positive was searched; d1 and d2 are both right, under one query id or two."""
    source = collection(
        tmp_path / "c",
        {
            "d1": "red apple pie recipe",
            "d2": "apple pie baking time",
            "d3": "apple phone price",
            "d4": "bread baking time",
        },
        {"q0": "apple pie", "q1": "apple pie", "q2": "Apple  pie"},
        {"q0": ["d2", "d1"], "q1": ["d1"], "q2": ["d2"]},
    )
    rows, summary, _ = run(source, negatives=1)
    assert negatives(rows) == {"q0": ["d3"], "q1": ["d3"], "q2": ["d3"]}
    assert [row.positive_ids for row in rows] == [["d2", "d1"], ["d1"], ["d2"]]
    assert all("d4" not in row.candidate_ids for row in rows)
    assert summary["positives"] == 4


def test_the_share_above_the_ratio_is_said(tmp_path: Path) -> None:
    """P06: five paraphrases, one near miss: 4 of the 5 other candidates (80 %) go."""
    scores = {"d1": 0.95, "d2": 0.94, "d3": 0.93, "d4": 0.92, "d5": 0.91, "d6": 0.30}
    source = collection(tmp_path / "c", {d: f"text {d}" for d in scores}, {"q": "ask"}, {"q": ["d1"]})
    encoder = Fake({"ask": [1, 0], **on_a_line(**{f"text {d}": score for d, score in scores.items()})})
    (row,), summary, _ = run(source, encoder, retrievers=("dense",), negatives=2, max_ratio=0.95)
    assert row.negatives == ["d6"]
    assert summary["candidates_by_reason"] == {"selected": 1, "known positive": 1, "above max ratio": 4}
    assert summary["shortfall"] == {"queries": 1, "negatives": 1, "without any": 0}
    assert summary["candidates_above_their_lowest_positive"] == 0
    assert any(note.startswith("80% of the candidates that are no known positive") for note in summary["notes"])


def test_filters_leave_positives_alone(tmp_path: Path) -> None:
    """P08: every row keeps its positives whatever the ratio."""
    source = collection(tmp_path / "c", {"p": "pp", "a": "aa", "b": "bb"}, {"q": "ask"}, {"q": ["p"]})
    encoder = Fake({"ask": [1, 0], **on_a_line(pp=0.9, aa=0.7, bb=0.4)})
    for ratio in (0.0, 0.5, 0.9, 2.0):
        (row,), _, _ = run(source, encoder, max_ratio=ratio)
        assert row.positive_ids == ["p"]
        assert row.positive_scores["dense"] == pytest.approx([0.9])


def test_k_beyond_the_corpus(tmp_path: Path) -> None:
    """P09: 3 documents, 100 candidates and 10 negatives asked for; and a corpus of the positive alone."""
    corpus = {"a": "apple one", "b": "apple two", "c": "apple three"}
    source = collection(tmp_path / "c", corpus, {"q": "apple"}, {"q": ["a"]})
    vectors = {"apple": [1, 0], "apple one": [0.9, 0], "apple two": [0.1, 0], "apple three": [0.2, 0]}
    for encoder in (None, Fake(vectors)):
        (row,), summary, _ = run(source, encoder, top_k=100, negatives=10)
        assert sorted(row.negatives) == ["b", "c"]
        assert summary["shortfall"] == {"queries": 1, "negatives": 8, "without any": 0}
    alone = collection(tmp_path / "alone", {"a": "apple"}, {"q": "apple"}, {"q": ["a"]})
    (row,), summary, dropped = run(alone, negatives=10)
    assert row.negatives == []
    assert summary["shortfall"] == {"queries": 1, "negatives": 10, "without any": 1}
    assert dropped == {}


def test_a_query_with_several_positives_is_one_row(tmp_path: Path) -> None:
    """P10: three positives in, one row with three; the lowest of them sets the threshold."""
    corpus = {"a": "ta", "b": "tb", "c": "tc", "n": "tn", "m": "tm"}
    source = collection(tmp_path / "c", corpus, {"q": "ask"}, {"q": ["c", "a", "b"]})
    encoder = Fake({"ask": [1, 0], **on_a_line(ta=0.9, tb=0.4, tc=0.8, tn=0.5, tm=0.3)})
    rows, summary, _ = run(source, encoder, retrievers=("dense",), negatives=2, max_ratio=1.0)
    assert len(rows) == 1
    assert rows[0].positive_ids == ["c", "a", "b"]
    assert rows[0].positive_scores["dense"] == pytest.approx([0.8, 0.9, 0.4])
    assert rows[0].negatives == ["m"]
    assert summary["positives"] == 3
    assert summary["candidates_above_their_lowest_positive"] == 1


def test_texts_go_to_the_encoder_bare_and_once(tmp_path: Path) -> None:
    """P13: the encoder puts the model's prompts on; the artifact says which."""
    source = collection(tmp_path / "c", {"d": "b"}, {"q": "a"}, {"q": ["d"]})
    encoder = Fake({"a": [1, 0], "b": [1, 0]})
    _, summary, _ = run(source, encoder)
    assert encoder.asked == [("query", ["a"]), ("document", ["b"])]
    assert summary["model"]["prompts"] == {"query": "query: ", "document": "passage: "}
    assert summary["model"]["precision"] == "float32"


def test_queries_without_tokens_are_counted_and_said(tmp_path: Path) -> None:
    """P16."""
    source = collection(
        tmp_path / "c", {"a": "moon", "b": "sun moon"}, {"q1": "?!", "q2": "moon"}, {"q1": ["a"], "q2": ["a"]}
    )
    rows, summary, _ = run(source)
    assert negatives(rows) == {"q1": [], "q2": ["b"]}
    assert summary["queries_without_tokens"] == 1
    assert summary["queries_without_lexical_match"] == 0
    assert "1 of 2 queries hold no token for BM25 with --language none" in summary["notes"]


def test_documents_without_tokens(tmp_path: Path) -> None:
    """P17: blank and stop-word-only documents are never found by BM25, and blank ones never chosen (P92)."""
    corpus = {"e": "", "s": "   ", "w": "the of and", "p": "moon", "z": "\u200b", "n": "stars"}
    source = collection(tmp_path / "c", corpus, {"q": "moon"}, {"q": ["p"]})
    rows, summary, _ = run(source, language="english")
    assert rows[0].candidate_ids == ["p"]
    assert summary["documents_without_tokens"] == 4
    encoder = Fake({text: [1, index / 10] for index, text in enumerate(corpus.values())})
    rows, summary, _ = run(source, encoder, retrievers=("dense",), negatives=9, max_ratio=None)
    assert sorted(rows[0].negatives) == ["n", "w"]
    assert summary["candidates_by_reason"]["no text"] == 3


def test_no_lexical_match_is_no_candidate(tmp_path: Path) -> None:
    """P18."""
    corpus = {"a": "foo", "b": "dog", "c": "baz"}
    source = collection(tmp_path / "c", corpus, {"q": "zzz", "r": "dog"}, {"q": ["a"], "r": ["a"]})
    rows, summary, _ = run(source, negatives=2)
    assert [row.candidate_ids for row in rows] == [[], ["b"]]
    assert summary["queries_without_lexical_match"] == 1
    assert summary["queries_without_their_positive_in_the_window"] == 2


def test_nobody_finds_anything(tmp_path: Path) -> None:
    source = collection(tmp_path / "c", {"a": "foo"}, {"q": "zzz"}, {"q": ["a"]})
    (row,), summary, _ = run(source)
    assert row.candidate_ids == row.negatives == []
    assert summary["queries_without_their_positive_in_the_window"] == 1
    assert summary["gates"]["empty"] == 1.0


def test_blank_queries_and_positives_are_dropped_and_counted(tmp_path: Path) -> None:
    """P92."""
    source = collection(
        tmp_path / "c",
        {"d1": "", "d2": "   ", "d3": "\u200b", "d4": "real", "d5": "other"},
        {"q": "ask", "q2": "real", "q3": " ", "q4": "both"},
        {"q": ["d1"], "q2": ["d4"], "q3": ["d4"], "q4": ["d2", "d5"]},
    )
    rows, _, dropped = run(source)
    assert [(row.query_id, row.positive_ids) for row in rows] == [("q2", ["d4"]), ("q4", ["d5"])]
    assert dropped == {
        "positive without text": 2,
        "query whose positives have no text": 1,
        "query without text": 1,
    }


def test_grades_at_or_below_zero_are_no_positives(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    texts = [{"_id": "a", "text": "red fox"}, {"_id": "b", "text": "red dog"}]
    queries = [{"_id": "q", "text": "red"}, {"_id": "r", "text": "fox"}]
    write_collection(folder, texts, queries, {"train": [("q", "a", 2), ("q", "b", 0), ("r", "b", -1)]})
    rows, _, dropped = run(Collection(folder))
    assert [(row.positive_ids, row.negatives) for row in rows] == [(["a"], ["b"])]
    assert dropped == {"query without a positive": 1}


def test_ids_are_texts(tmp_path: Path) -> None:
    """P83, P84: 007 and 7 are two documents, and ties go by id as text."""
    corpus = {"7": "cat one", "007": "cat two", "1e5": "cat six", "p": "cat"}
    source = collection(tmp_path / "c", corpus, {"7": "cat"}, {"7": ["p"]})
    (row,), _, _ = run(source)
    assert row.candidate_ids == ["p", "007", "1e5", "7"]
    assert row.reason == ["known positive", "selected", "selected", "the query itself"]


# --- retrievers -----------------------------------------------------------------------------------------------


def test_union_of_two_windows_in_fused_order(tmp_path: Path) -> None:
    corpus = {"a": "sun", "b": "sun moon", "c": "moon", "d": "star"}
    source = collection(tmp_path / "c", corpus, {"q": "sun"}, {"q": ["d"]})
    encoder = Fake({"sun": [1, 0], "sun moon": [0.3, 0], "moon": [0.5, 0], "star": [0.9, 0]})
    (row,), summary, _ = run(source, encoder, top_k=2, negatives=1, max_ratio=None)
    # BM25: a, b. Dense: a (1.0), d (0.9). Fused: a, then b and d level (1/62), by id.
    assert row.candidate_ids == ["a", "b", "d"]
    assert row.candidate_ranks == [1, 2, 3]
    assert row.candidate_retrievers == ["bm25+dense", "bm25", "dense"]
    assert row.scores["dense"] == pytest.approx([1.0, 0.3, 0.9])
    assert row.ranks == {"bm25": [1, 2, None], "dense": [1, None, 2]}
    assert row.scores["bm25"][2] == 0, "no token is shared"
    assert row.positive_scores["dense"] == pytest.approx([0.9])
    assert row.reason == ["same text as the query", "selected", "known positive"]
    assert summary["queries_without_their_positive_in_the_window"] == 0


def test_what_bm25_alone_saw_is_judged_by_its_dense_score(tmp_path: Path) -> None:
    corpus = {"a": "sun wind", "b": "sun", "c": "other", "p": "answer"}
    source = collection(tmp_path / "c", corpus, {"q": "sun light"}, {"q": ["p"]})
    encoder = Fake(
        {"sun light": [1, 0], "sun wind": [0.79, 0], "sun": [0.1, 0], "other": [0.2, 0], "answer": [0.8, 0]}
    )
    (row,), _, _ = run(source, encoder, top_k=2, max_ratio=0.95)
    by_id = dict(zip(row.candidate_ids, zip(row.candidate_retrievers, row.reason, strict=True), strict=True))
    assert by_id == {
        "p": ("dense", "known positive"),
        "a": ("bm25+dense", "above max ratio"),
        "b": ("bm25", "selected"),
    }


def test_a_dense_rule_never_reads_a_bm25_score(tmp_path: Path) -> None:
    # BM25 likes b better than the positive; the ratio is off, and that is said.
    corpus = {"p": "sun and wind and rain", "b": "sun", "c": "sun sun wind"}
    source = collection(tmp_path / "c", corpus, {"q": "sun wind"}, {"q": ["p"]})
    (row,), summary, _ = run(source, max_ratio=0.5)
    assert set(row.negatives) == {"b", "c"}
    assert all(score > 0 for score in [*row.positive_scores["bm25"], *row.scores["bm25"]])
    assert summary["notes"] == [
        "the rule --max-ratio 0.5 was off: it reads dense scores, and BM25 was alone",
        "queries with fewer than 7 negatives: 1, without any: 0; nothing was filled up; "
        "a larger --top-k may find more, --mix random=N draws some",
    ]


def test_ratio_below_zero(tmp_path: Path) -> None:
    corpus = {"p": "pp", "a": "aa", "b": "bb"}
    source = collection(tmp_path / "c", corpus, {"q": "ask"}, {"q": ["p"]})
    encoder = Fake({"ask": [1, 0], **on_a_line(pp=-0.5, aa=-0.51, bb=-0.6)})
    (row,), summary, _ = run(source, encoder, retrievers=("dense",), max_ratio=0.95)
    assert row.reason == ["known positive", "above max ratio", "selected"]
    assert summary["candidates_above_their_lowest_positive"] == 0


def test_several_models_are_retrievers_of_their_own(tmp_path: Path) -> None:
    corpus = {"p": "pp", "a": "aa", "b": "bb", "c": "cc"}
    source = collection(tmp_path / "c", corpus, {"q": "ask"}, {"q": ["p"]})
    one = Fake({"ask": [1, 0], **on_a_line(pp=0.9, aa=0.8, bb=0.1, cc=0.0)})
    two = Fake({"ask": [1, 0], **on_a_line(pp=0.5, aa=0.1, bb=0.49, cc=0.2)}, "cosine")
    options = MineOptions(retrievers=("dense", "dense2"), top_k=2, negatives=1, language="none", near_duplicate=0)
    queries, _ = mine.read_queries(source, "train", None)
    choice = mine.Choice(source, queries, options)
    found = mine.retrieve(source, queries, options, [one, two], silent, 10**9)
    (block,) = found.blocks(choice, silent)
    (row,) = mined.from_batch(choice.table(block))
    assert row.positive_scores == {"dense": pytest.approx([0.9]), "dense2": pytest.approx([1.0])}
    # The second goes by cosine, where all of these are 1: ties by id.
    assert row.ranks == {"dense": [2, 1, None], "dense2": [1, None, 2]}
    assert row.candidate_retrievers == ["dense+dense2", "dense", "dense2"]
    assert row.candidate_ids == ["a", "p", "b"]
    assert row.reason == ["above max ratio", "known positive", "above max ratio"]
    assert found.facts["model_dense2"]["similarity"] == "cosine"


def test_documents_judged_not_relevant_are_kept_first(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    corpus = {"p": "sun", "n": "moon", "w": "far off", "x": "moon sun"}
    write_collection(
        folder,
        [{"_id": identifier, "text": text} for identifier, text in corpus.items()],
        [{"_id": "q", "text": "sun and moon"}],
        {"train": [("q", "p", 1), ("q", "w", 0), ("q", "n", -1)]},
    )
    (row,), summary, _ = run(Collection(folder), negatives=2)
    assert row.candidate_ids == ["x", "n", "p", "w"]
    assert row.candidate_ranks == [1, 2, 3, None]
    assert row.candidate_retrievers == ["bm25", "bm25", "bm25", "judged"]
    assert row.reason == ["eligible", "judged not relevant", "known positive", "judged not relevant"]
    assert row.negatives == ["n", "w"]
    assert summary["negatives_judged_not_relevant"] == 2


def test_a_mix_and_random_documents(tmp_path: Path) -> None:
    corpus = {f"d{number}": f"word{number} sun" for number in range(40)}
    source = collection(tmp_path / "c", corpus, {"q": "sun", "r": "word3"}, {"q": ["d0"], "r": ["d3"]})
    rows, summary, _ = run(source, top_k=5, mix="bm25=2,random=3", seed=4)
    for row in rows:
        kinds = dict(zip(row.candidate_ids, row.candidate_retrievers, strict=True))
        assert [kinds[i] for i in row.negatives].count("random") == 3
        assert not set(row.negatives) & set(row.positive_ids)
        ranked = [rank for rank in row.candidate_ranks if rank is not None]
        assert ranked == list(range(1, len(ranked) + 1))
    assert negatives(rows)["q"][:2] == ["d1", "d10"]
    assert len(rows[1].negatives) == 3, "one document has the word, and it is the positive"
    assert summary["shortfall"]["negatives"] == 2
    order = {i: corpus[i] for i in reversed(corpus)}
    again = collection(tmp_path / "d", order, {"r": "word3"}, {"r": ["d3"]})
    assert run(again, top_k=5, mix="bm25=2,random=3", seed=4)[0] == rows[1:]
    assert run(source, top_k=5, mix="bm25=2,random=3", seed=5)[0] != rows


def test_sampling_goes_by_dense_scores_where_there_are_some(tmp_path: Path) -> None:
    corpus = {f"d{number}": f"word{number} sun" for number in range(12)}
    source = collection(tmp_path / "c", corpus, {"q": "sun"}, {"q": ["d0"]})
    scores = {
        text: 1.0 if text == "word0 sun" else 0.9 - number / 20 for number, text in enumerate(corpus.values())
    }
    encoder = Fake({"sun": [1, 0], **on_a_line(**scores)})
    drawn = [
        run(source, encoder, negatives=1, sampling="softmax", max_ratio=None, seed=seed)[0][0].negatives[0]
        for seed in range(60)
    ]
    assert drawn.count("d1") > drawn.count("d11"), "BM25 scores are all alike here"


def test_chunks_of_a_positive_page_are_siblings(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    pages = {"p": "one", "a": "one", "b": "two", "c": ""}
    write_collection(
        folder,
        [{"_id": i, "text": f"sun {i}", "page": page} for i, page in pages.items()],
        [{"_id": "q", "text": "sun"}],
        {"train": [("q", "p", 1)]},
    )
    (row,), summary, _ = run(Collection(folder), group_column="page")
    assert dict(zip(row.candidate_ids, row.reason, strict=True)) == {
        "p": "known positive",
        "a": "same group as a positive",
        "b": "selected",
        "c": "selected",
    }
    assert summary["siblings_of_positives_caught"] == 1
    with pytest.raises(EmbedtrainError, match="has no column 'site'; its columns are: _id, text, page"):
        run(Collection(folder), group_column="site")


def test_rows_with_too_few_negatives_leave_and_are_counted(tmp_path: Path) -> None:
    corpus = {"a": "sun", "b": "sun wind", "c": "moon"}
    source = collection(tmp_path / "c", corpus, {"q": "sun", "r": "moon"}, {"q": ["c"], "r": ["c"]})
    options = MineOptions(retrievers=("bm25",), language="none", min_negatives=1)
    claim = Claim(tmp_path / "m.parquet", kind="mined", stage="mine", options=options, inputs=[source.as_input()])
    mine.mine(claim, options, source.path, [], silent)
    assert negatives(mined.read_mined(claim.out)) == {"q": ["b"]}
    assert claim.record["dropped"] == {"query with fewer than 1 negatives": 1}
    assert claim.record["summary"]["queries"] == claim.record["rows"] == 1


def test_an_artifact_without_rows_is_not_written(tmp_path: Path) -> None:
    source = collection(tmp_path / "c", {"a": "sun", "b": "sun wind"}, {"q": "sun"}, {"q": ["a"]})
    options = MineOptions(retrievers=("bm25",), language="none", min_negatives=2)
    claim = Claim(tmp_path / "m.parquet", kind="mined", stage="mine", options=options, inputs=[source.as_input()])
    with pytest.raises(EmbedtrainError, match="--min-negatives 2 leaves none of 1 queries; lower it"):
        mine.mine(claim, options, source.path, [], silent)
    assert not claim.out.exists()


def test_blocks_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = {f"d{number}": f"word{number % 7} sun {number}" for number in range(30)}
    queries = {f"q{number}": f"word{number} sun" if number % 3 else "..." + "!" * number for number in range(7)}
    source = collection(tmp_path / "c", corpus, queries, {q: [f"d{n}"] for n, q in enumerate(queries)})
    vectors = np.random.default_rng(0).normal(size=(37, 5))
    encoder = Fake(dict(zip([*corpus.values(), *queries.values()], vectors.tolist(), strict=True)))
    both = {"retrievers": ("bm25", "dense"), "sampling": "random", "mix": "bm25=3,random=1", "top_k": 4}
    whole = run(source, encoder, **both)
    assert whole[1]["queries_without_tokens"] == 3
    for together, searched in ((2, 5), (1, 1), (3, 3)):
        monkeypatch.setattr(memory, "CHOSEN", together)
        monkeypatch.setattr(memory, "SEARCHED", searched)
        assert run(source, encoder, **both) == whole


def test_the_bytes_do_not_depend_on_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = {f"d{number}": f"word{number % 7} sun {number}" for number in range(30)}
    queries = {f"q{number}": f"word{number} sun" for number in range(7)}
    source = collection(tmp_path / "c", corpus, queries, {q: [f"d{n}"] for n, q in enumerate(queries)})
    options = MineOptions(retrievers=("bm25",), language="none")
    monkeypatch.setattr(artifacts, "ROW_GROUP", 3)
    found = []
    for together in (1, 2, 7):
        monkeypatch.setattr(memory, "CHOSEN", together)
        out = tmp_path / f"m{together}.parquet"
        claim = Claim(out, kind="mined", stage="mine", options=options, inputs=[source.as_input()])
        mine.mine(claim, options, source.path, [], silent)
        found.append(out.read_bytes())
        assert [pq.ParquetFile(out).metadata.row_group(n).num_rows for n in range(3)] == [3, 3, 1]
    assert found[0] == found[1] == found[2]


# --- properties -----------------------------------------------------------------------------------------------

VECTOR = st.tuples(st.integers(-3, 3), st.integers(-3, 3))
WORD = st.lists(st.sampled_from(["aa", "bb", "cc", "dd"]), min_size=1, max_size=3).map(" ".join)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_properties(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """No positive selected, nothing lost, order of the corpus and other queries without influence."""
    texts = data.draw(st.lists(WORD, min_size=1, max_size=8))
    corpus = {f"d{number}": text for number, text in enumerate(texts)}
    questions = data.draw(st.lists(WORD, min_size=1, max_size=3, unique=True))
    queries = {f"q{number}": text for number, text in enumerate(questions)}
    some = st.lists(st.sampled_from(list(corpus)), min_size=1, max_size=2, unique=True)
    positives = {query: data.draw(some) for query in queries}
    encoder = Fake({text: data.draw(VECTOR) for text in {*texts, *questions}}, "cosine")
    ratio = data.draw(st.sampled_from([None, 0.5, 0.95]))
    settings_ = {"top_k": data.draw(st.integers(1, 9)), "negatives": data.draw(st.integers(0, 5))}
    folder = tmp_path_factory.mktemp("property")

    rows, summary, _ = run(
        collection(folder / "a", corpus, queries, positives), encoder, max_ratio=ratio, **settings_
    )
    for row in rows:
        assert not set(row.negatives) & set(positives[row.query_id])
        assert not {corpus[i] for i in row.negatives} & {corpus[i] for i in positives[row.query_id]}
        assert len(row.negatives) == sum(row.selected) <= settings_["negatives"]
        assert len(set(row.candidate_ids)) == len(row.candidate_ids) == len(row.reason)
    assert sum(summary["candidates_by_reason"].values()) == summary["candidates"]

    order = data.draw(st.permutations(list(corpus)))
    shuffled = collection(folder / "b", {i: corpus[i] for i in order}, queries, positives)
    assert run(shuffled, encoder, max_ratio=ratio, **settings_)[0] == rows

    fewer = dict(list(queries.items())[:-1])
    if fewer:
        smaller = collection(folder / "c", corpus, queries, {query: positives[query] for query in fewer})
        assert run(smaller, encoder, max_ratio=ratio, **settings_)[0] == rows[:-1]
        assert (
            run(Collection(folder / "a"), encoder, max_ratio=ratio, limit=len(fewer), **settings_)[0] == rows[:-1]
        )

    free = {"selected", "eligible"}
    tighter = run(Collection(folder / "a"), encoder, max_ratio=0.4, **settings_)[0]
    for small, large in zip(tighter, rows, strict=True):
        assert small.candidate_ids == large.candidate_ids
        for one, other in zip(small.reason, large.reason, strict=True):
            assert other in free or one not in free


# --- the artifact ---------------------------------------------------------------------------------------------


def test_artifact_has_the_schema_and_reads_back(tmp_path: Path) -> None:
    source = collection(
        tmp_path / "c", {"a": "sun", "b": "sun moon"}, {"q": "sun", "r": "x"}, {"q": ["a"], "r": ["b"]}
    )
    options = MineOptions(retrievers=("bm25",), language="none")
    claim = Claim(
        tmp_path / "mined.parquet",
        kind="mined",
        stage="mine",
        options=options,
        inputs=[Input.of("collection", source.path)],
    )
    mine.mine(claim, options, source.path, [], silent)
    assert pq.read_schema(claim.out).remove_metadata().equals(mined.schema("mined", ["bm25"]))
    rows = mined.read_mined(claim.out)
    assert rows == run(source)[0]
    assert rows[1].candidate_ids == []
    assert claim.record["rows"] == 2
    assert claim.record["summary"]["negatives"] == 1


def test_scored_rows_read_back_and_verdicts_count(tmp_path: Path) -> None:
    row = MinedRow(
        "q",
        ["p"],
        ["a", "b", "c", "d"],
        [4, 1, 3, 2],
        ["dense"] * 4,
        [True, True, True, False],
        ["selected", "selected", "selected", "eligible"],
        {"dense": [0.25, 0.5, 0.125, 0.0]},
        {"dense": [4, 1, 3, 2]},
        {"dense": [0.5]},
        [1.0],
        [0.5, 2.0, 0.25, 3.0],
        ["keep", "drop", "keep", "keep"],
    )
    assert row.negatives == ["c", "a"]
    claim = Claim(tmp_path / "s.parquet", kind="scored", stage="score-teacher", options=MineOptions(), inputs=[])
    claim.write_table(mined.to_table([row], "scored"), dropped={}, summary={})
    assert mined.read_mined(claim.out) == [row]
    promoted = MinedRow(**{**vars(row), "verdict": ["promote", "keep", "keep", "keep"]})
    assert promoted.negatives == ["b", "c"]


def test_rows_that_do_not_fit_together_are_refused(tmp_path: Path) -> None:
    broken = MinedRow(
        "q",
        ["p"],
        ["a"],
        [1],
        ["dense"],
        [True],
        ["selected"],
        {"dense": [0.25, 0.5]},
        {"dense": [1]},
        {"dense": [0.5]},
    )
    claim = Claim(tmp_path / "m.parquet", kind="mined", stage="mine", options=MineOptions(), inputs=[])
    claim.write_table(mined.to_table([broken], "mined"), dropped={}, summary={})
    with pytest.raises(EmbedtrainError, match=r"m\.parquet: the lists of query q differ in length"):
        mined.read_mined(claim.out)
    with pytest.raises(EmbedtrainError, match="does not exist; make a mined artifact with"):
        mined.read_mined(tmp_path / "none.parquet")


def test_errors(tmp_path: Path) -> None:
    source = collection(tmp_path / "c", {"a": "sun"}, {"q": "sun"}, {"q": ["a"]})
    with pytest.raises(EmbedtrainError, match="no split 'dev'; its splits are: train"):
        run(source, split="dev")
    with pytest.raises(UsageError, match="--language klingon"):
        run(source, language="klingon")
    blank = collection(tmp_path / "blank", {"a": "sun"}, {"q": ""}, {"q": ["a"]})
    with pytest.raises(EmbedtrainError, match="no query with text and a positive with text"):
        run(blank)


# --- the command ----------------------------------------------------------------------------------------------


def test_command_gives_the_same_bytes_twice_and_knows_when_it_is_done_p67(
    tiny: Path, tmp_path: Path, run_cli: RunCli
) -> None:
    for name, seed in (("one", "1"), ("two", "2")):
        cache = str(tmp_path / f"cache-{name}")
        done = run_cli(
            "mine", tiny, "--out", f"{name}.parquet", "--limit", "20", EMBEDTRAIN_CACHE=cache, PYTHONHASHSEED=seed
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"mine: {name}.parquet")
        assert "candidates by reason" in done.stdout
        assert "search with BM25 20/20" in done.stderr
    one, two = tmp_path / "one.parquet", tmp_path / "two.parquet"
    assert one.read_bytes() == two.read_bytes()
    rows = mined.read_mined(one)
    train = Collection(tiny).positives("train")
    assert [row.query_id for row in rows] == list(train)[:20]
    for row in rows:
        assert row.positive_ids == train[row.query_id]
        assert len(row.negatives) == 7
        assert not set(row.negatives) & set(row.positive_ids)
        assert set(row.candidate_retrievers) <= {"bm25", "dense", "bm25+dense"}
        assert all(-1 <= score <= 1 for score in row.scores["dense"])
    # Claims and abstracts: the model must put the right abstract among the best few of 77 nearly always.
    ranks = [
        min(r for i, r in zip(row.candidate_ids, row.candidate_ranks, strict=True) if i in row.positive_ids)
        for row in rows
    ]
    assert np.median(ranks) == 1

    again = run_cli("mine", tiny, "--out", "one.parquet", "--limit", "20", "--json")
    assert again.returncode == 0
    assert json.loads(again.stdout)["up_to_date"] is True
    assert json.loads(again.stdout)["queries"] == 20


def test_command_refuses_and_leaves_nothing_behind(tiny: Path, tmp_path: Path, run_cli: RunCli) -> None:
    for arguments, code, sentence in (
        (["--split", "dev"], 1, "has no split 'dev'; its splits are: test, train"),
        (["--retriever", "elastic"], 2, "--retriever elastic: bm25 and dense are the retrievers"),
        (["--language", "klingon"], 2, "--language klingon: the languages are"),
    ):
        base = [] if "--retriever" in arguments else ["--retriever", "bm25"]
        done = run_cli("mine", tiny, "--out", "m.parquet", *base, *arguments)
        assert done.returncode == code, done.stderr
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
        assert list(tmp_path.iterdir()) == []


def test_choosing_again_needs_no_search(tiny: Path, tmp_path: Path, run_cli: RunCli) -> None:
    lexical = (
        "mine",
        tiny,
        "--retriever",
        "bm25",
        "--out",
        "m.parquet",
        "--mix",
        "bm25=3,random=2",
        "--seed",
        "3",
    )
    assert run_cli(*lexical).returncode == 0
    same = ("--mix", "bm25=3,random=2", "--seed", "3")
    done = run_cli("mine", tiny, "--reselect", "m.parquet", "--out", "r.parquet", *same)
    assert done.returncode == 0, done.stderr
    assert "search" not in done.stderr
    first, second = mined.read_mined(tmp_path / "m.parquet"), mined.read_mined(tmp_path / "r.parquet")
    assert first == second
    fewer = run_cli(
        "mine", tiny, "--reselect", "m.parquet", "--out", "f.parquet", "--negatives", "2", "--ranks", "3:"
    )
    assert fewer.returncode == 0, fewer.stderr
    for row, old in zip(mined.read_mined(tmp_path / "f.parquet"), first, strict=True):
        assert row.candidate_ids == old.candidate_ids
        assert len(row.negatives) == 2
        ranks = dict(zip(row.candidate_ids, row.candidate_ranks, strict=True))
        assert min(ranks[i] for i in row.negatives) >= 3
    for flag, value in (("--top-k", "9"), ("--model", "x"), ("--language", "none")):
        refused = run_cli("mine", tiny, "--reselect", "m.parquet", "--out", "x.parquet", flag, value)
        assert refused.returncode == 2
        assert f"{flag} is part of the search, and --reselect only chooses again" in refused.stderr
    assert "give the COLLECTION to mine" in run_cli("mine", "--out", "x.parquet").stderr


def test_choosing_again_from_what_was_mined_before_an_option_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from embedtrain.cli.mine import _SEARCH, _search_options

    options = {name: getattr(MineOptions, name) for name in _SEARCH if name != "precision"}
    record = {"options": {**options, "top_k": 7, "retrievers": ["bm25"]}}
    monkeypatch.setattr("embedtrain.artifacts.require_kind", lambda *_: record)
    found = _search_options(Path("mined.parquet"))
    assert found == {**options, "top_k": 7, "retrievers": ("bm25",), "precision": MineOptions.precision}


def test_audit_and_gates(tiny: Path, tmp_path: Path, run_cli: RunCli) -> None:
    base = ("mine", tiny, "--retriever", "bm25", "--out", "m.parquet", "--audit", "audit.json")
    done = run_cli(*base, "--fail-if", "short>0.9", "--fail-if", "missed>=0")
    assert done.returncode == 3, done.stderr
    assert "a gate was not met: missed>=0 (it is 0" in done.stderr
    assert (tmp_path / "m.parquet").exists(), "the work is done, and kept"
    audit = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    assert audit["queries"] == 40
    assert sum(audit["candidates_by_reason"].values()) == audit["candidates"]
    assert "suspicious" not in audit["gates"], "BM25 alone has no dense score to suspect by"
    again = run_cli(*base, "--fail-if", "missed>0.9")
    assert again.returncode == 0
    assert "up to date" in again.stdout
    assert run_cli(*base, "--fail-if", "suspicious>0.5").returncode == 2
    unknown = run_cli("mine", tiny, "--retriever", "bm25", "--out", "n.parquet", "--fail-if", "nonsense>1")
    assert unknown.returncode == 2
    assert "nonsense is not measured; what is: above-positive" in unknown.stderr
    assert not (tmp_path / "n.parquet").exists()
