"""Ties, copies and queries without an answer, counted the way that is asked for; trec_eval on the written runs.

Deliberate breaks that turn a test red: ids ascending in `descending`, the last copy kept in `of_hits`, the lowest grade
in `of_qrels`.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from conftest import RunCli, write_collection

from embedtrain import conventions, metrics, trec
from embedtrain.collection import Texts
from embedtrain.config import EvalOptions
from embedtrain.errors import UsageError
from embedtrain.hits import Hits
from embedtrain.systems import Questions, System


def ranked(ids: list[str], run: dict[str, float]) -> Hits:
    order = sorted(run, key=lambda document: (-run[document], document))
    return Hits(
        [np.array([ids.index(document) for document in order], dtype=np.int64)],
        [np.array([run[document] for document in order], dtype=np.float32)],
    )


@pytest.mark.parametrize(
    ("run", "relevant", "value"),
    [
        ({"m": 1.0, "k": 1.0}, "m", 1.0),
        ({"m": 1.0, "n": 1.0}, "m", 0.6309),
        ({"x1": 1.0, "y2": 1.0, "z9": 1.0}, "z9", 1.0),
        ({"x1": 1.0, "y2": 1.0, "z9": 1.0}, "x1", 0.5),
        ({"a": 1.00000001, "b": 1.0}, "a", 0.6309),
        ({"10": 1.0, "9": 1.0}, "9", 1.0),
    ],
)
def test_trec_evals_rule_for_ties_p69(run: dict[str, float], relevant: str, value: float) -> None:
    ids = sorted(run)
    found = conventions.descending(ranked(ids, run), ids)
    qrels = {"q": {relevant: 1.0}}
    assert metrics.score_run(found, ids, qrels, "nDCG@10")[0] == pytest.approx(value, abs=5e-5)
    theirs = pytrec_eval.RelevanceEvaluator({"q": {relevant: 1}}, {"ndcg_cut.10"}).evaluate({"q": run})
    assert theirs["q"]["ndcg_cut_10"] == pytest.approx(value, abs=5e-5)


def test_copies_of_a_text_are_one_document_p80() -> None:
    corpus = Texts(["c1", "c2", "c3", "c4", "c5"], None, ["a copy", "a copy", "other", " ", " "])
    copies = conventions.Copies(corpus)
    assert copies.groups == 1  # what is blank says nothing, so it is no copy
    run = ranked(corpus.ids, {"c1": 0.9, "c2": 0.9, "c3": 0.5})
    for judged, alone in (("c1", 1.0), ("c2", 0.6309)):
        qrels = {"q": {judged: 1.0}}
        assert metrics.score_run(run, corpus.ids, qrels, "nDCG@10")[0] == pytest.approx(alone, abs=5e-5)
        asked = Questions(["q"], [""], copies.of_qrels(qrels), 0, {})
        grouped = metrics.score_run(copies.of_hits(run, asked), corpus.ids, asked.qrels, "nDCG@10")
        assert grouped[0] == 1.0
    # The place of the best copy, its score, and the highest grade; a document from elsewhere stays what it is.
    asked = Questions(["q"], [""], {"q": {}}, 0, {})
    found = copies.of_hits(Hits([np.array([2, 1, 7, 0])], [np.array([4, 3, 2, 1], dtype=np.float32)]), asked)
    assert (found.positions[0].tolist(), found.scores[0].tolist()) == ([2, 0, 7], [4.0, 3.0, 2.0])
    assert copies.of_qrels({"q": {"c1": 1.0, "c2": 3.0, "gone": 2.0}}) == {"q": {"c1": 3.0, "gone": 2.0}}


def test_a_copy_of_the_query_leaves_as_the_query_does() -> None:
    corpus = Texts(["a1", "a2", "b"], None, ["asked", "asked", "answer"])
    copies = conventions.Copies(corpus)
    run = Hits([np.array([0, 2])], [np.array([2, 1], dtype=np.float32)])
    asked = Questions(["a2"], ["asked"], {"a2": {"b": 1.0}}, 0, {})
    assert copies.of_hits(run, asked).positions[0].tolist() == [2]
    kept = dataclasses.replace(asked, keep_self=True)
    assert copies.of_hits(run, kept).positions[0].tolist() == [0, 2]
    relevant = dataclasses.replace(asked, qrels=copies.of_qrels({"a2": {"b": 1.0, "a1": 1.0}}))
    assert copies.of_hits(run, relevant).positions[0].tolist() == [0, 2]


def test_copies_that_leave_a_list_short_are_said() -> None:
    corpus = Texts(["c1", "c2", "c3"], None, ["a copy", "a copy", "other"])
    asked = Questions(["q"], [""], {"q": {"c3": 1.0}}, 0, {})
    system = System("base", ranked(corpus.ids, {"c1": 0.9, "c2": 0.8}), corpus.ids, {})
    options = EvalOptions(group_duplicates=True)
    conventions.applied([system], asked, conventions.Copies(corpus), options, 2)
    assert system.said == ["copies leave 1 queries with fewer than 2 documents; a larger --top-k gives more"]


def test_what_there_is_to_choose() -> None:
    with pytest.raises(UsageError, match="--ties up: ascending and descending are the choices"):
        conventions.check(EvalOptions(ties="up"))
    with pytest.raises(UsageError, match="--no-relevant skip: leave-out and zero are the choices"):
        conventions.check(EvalOptions(no_relevant="skip"))


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """Copies, a query that is a document, one without an answer, and one that BM25 finds nothing for."""
    texts = ["red fox", "red fox", "blue fox", "green hen", "red hen", "blue hen"]
    return write_collection(
        tmp_path / "judged",
        [{"_id": f"d{n}", "title": "", "text": text} for n, text in enumerate(texts)],
        [
            {"_id": "d2", "text": "blue fox"},
            {"_id": "q1", "text": "red"},
            {"_id": "q2", "text": "hen"},
            {"_id": "q3", "text": "zebra"},
        ],
        {"test": [("d2", "d5", 1), ("q1", "d0", 2), ("q1", "d4", 1), ("q2", "d3", 0), ("q3", "d1", 1)]},
    )


def means(run_here: RunCli, judged: Path, out: Path, *flags: str) -> dict[str, float]:
    done = run_here("eval", str(judged), "--bm25", "--out", str(out), "--json", *flags)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    return {name: value["mean"] for name, value in printed["systems"]["BM25"].items() if "@" in name}


def test_trec_eval_measures_the_same_on_the_written_run(run_here: RunCli, judged: Path, tmp_path: Path) -> None:
    """Its own order of ties, every judged query in the mean (its flag -c), self-hits kept: the same numbers."""
    flags = ("--ties", "descending", "--no-relevant", "zero", "--keep-self")
    wanted = ("--measure", "nDCG@10", "--measure", "MAP@10", "--measure", "P@1", "--measure", "Success@1")
    ours = means(run_here, judged, tmp_path / "out", *flags, *wanted)
    run = {
        query: dict(zip(found.ids, found.scores.tolist(), strict=True))
        for query, found in trec.read_run(tmp_path / "out" / "runs" / "BM25.trec").items()
    }
    qrels = {"d2": {"d5": 1}, "q1": {"d0": 2, "d4": 1}, "q2": {"d3": 0}, "q3": {"d1": 1}}
    keys = {"nDCG@10": "ndcg_cut.10", "MAP@10": "map_cut.10", "P@1": "P.1", "Success@1": "success.1"}
    theirs = pytrec_eval.RelevanceEvaluator(qrels, set(keys.values())).evaluate(run)
    for name, key in keys.items():
        total = sum(values[key.replace(".", "_")] for values in theirs.values())
        assert ours[name] == pytest.approx(total / len(qrels), abs=1e-6)


def test_each_choice_changes_what_it_says(run_here: RunCli, judged: Path, tmp_path: Path) -> None:
    usual = means(run_here, judged, tmp_path / "usual")
    zero = means(run_here, judged, tmp_path / "zero", "--no-relevant", "zero")
    assert zero["nDCG@10"] == pytest.approx(usual["nDCG@10"] * 3 / 4)
    kept = means(run_here, judged, tmp_path / "kept", "--keep-self")
    assert kept["nDCG@10"] < usual["nDCG@10"]
    grouped = means(run_here, judged, tmp_path / "grouped", "--group-duplicates")
    assert grouped["nDCG@10"] > usual["nDCG@10"]


def test_a_measure_of_what_is_not_judged_is_not_the_first(run_here: RunCli, judged: Path, tmp_path: Path) -> None:
    done = run_here("eval", str(judged), "--bm25", "--out", str(tmp_path / "out"), "--measure", "hole@10")
    assert done.returncode == 2
    assert "--measure hole@10 says how much of a ranking nobody judged" in done.stderr
    found = means(run_here, judged, tmp_path / "out", "--measure", "nDCG@10", "--measure", "hole@2")
    assert 0 < found["hole@2"] < 1
