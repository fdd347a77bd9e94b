"""Measures against hand-worked values, the cases of shared/cases.md (K10), pytrec_eval and the obvious loop.

Deliberate breaks that turn a test red: the ideal list made of what was retrieved (test_ideal_list_...), grade 0
taken as relevant (test_grades_at_or_below_zero_...), RR not cut at k (test_rr_...), MAP divided by min(k, R)
(test_map_...).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from embedtrain import metrics
from embedtrain.errors import EmbedtrainError, UsageError
from embedtrain.hits import Ties

NAMES = (
    "nDCG",
    "nDCG(gain=exp)",
    "MAP",
    "MAP(norm=cutoff)",
    "RR",
    "Recall",
    "R-cap",
    "P",
    "Success",
    "hole",
)
LOG = math.log2


@dataclass(frozen=True)
class Lists:
    positions: Sequence[np.ndarray]


def ranked(runs: list[dict[str, float]]) -> tuple[Lists, list[str]]:
    """Runs {document: score} in the order of the tie rule, and the ids the positions point into."""
    ids = sorted({document for run in runs for document in run})
    ties = Ties(ids)
    positions = []
    for run in runs:
        found = np.array([ids.index(document) for document in run], dtype=np.int64)
        keys = ties.keys(np.array(list(run.values()), dtype=np.float64), found)
        positions.append(ties.best(keys, len(run))[0])
    return Lists(positions), ids


def one(run: dict[str, float] | list[str], judged: dict[str, float], measure: str) -> float:
    if isinstance(run, list):
        run = {document: float(-rank) for rank, document in enumerate(run)}
    ranking, ids = ranked([run])
    return float(metrics.score_run(ranking, ids, {"q": judged}, measure)[0])


# Parsing


@pytest.mark.parametrize(
    ("text", "name", "cutoff"),
    [
        ("nDCG@10", "nDCG", 10),
        ("ndcg@3", "nDCG", 3),
        ("RECALL@100", "Recall", 100),
        ("mrr@10", "RR", 10),
        ("p@1", "P", 1),
        ("r_cap@10", "R-cap", 10),
        ("R-CAP@10", "R-cap", 10),
        ("success@5", "Success", 5),
        ("Hole@10", "hole", 10),
        ("ndcg(gain=exp)@10", "nDCG", 10),
        ("MAP(norm=all)@7", "MAP", 7),
    ],
)
def test_a_measure_is_recognised_in_any_case_and_printed_as_typed(text: str, name: str, cutoff: int) -> None:
    measure = metrics.parse(text)
    assert (measure.name, measure.cutoff, str(measure)) == (name, cutoff, text)


@pytest.mark.parametrize("text", ["nDCG", "nDCG@0", "nDCG@-1", "nDCG@ten", "F1@10", "", "@10", "nDCG@10@5"])
def test_an_unknown_measure_lists_those_there_are(text: str) -> None:
    with pytest.raises(UsageError, match=r"nDCG@k, MAP@k, RR@k, Recall@k, R-cap@k, P@k, Success@k, hole@k"):
        metrics.parse(text)


def test_an_unknown_option_lists_those_there_are() -> None:
    with pytest.raises(
        UsageError, match=r"gain=log is no option of nDCG; nDCG\(gain=linear\)@5 and nDCG\(gain=exp\)@5"
    ):
        metrics.parse("nDCG(gain=log)@5")
    with pytest.raises(UsageError, match=r"gain=exp is no option of P$"):
        metrics.parse("P(gain=exp)@5")


# Hand-worked values


def test_graded_ndcg_has_linear_gain() -> None:
    # P75. d2 d1 d3 d4 with grades 2 3 0 1: (2/1 + 3/log2 3 + 0 + 1/log2 5) / (3/1 + 2/log2 3 + 1/log2 4).
    judged = {"d1": 3.0, "d2": 2.0, "d3": 0.0, "d4": 1.0}
    expected = (2 + 3 / LOG(3) + 1 / LOG(5)) / (3 + 2 / LOG(3) + 1 / 2)
    assert one(["d2", "d1", "d3", "d4"], judged, "nDCG@10") == pytest.approx(expected, abs=1e-12)
    assert expected == pytest.approx(0.9079, abs=5e-5)


def test_exponential_gain_is_an_option() -> None:
    # P75: (3/1 + 7/log2 3 + 0 + 1/log2 5) / (7/1 + 3/log2 3 + 1/log2 4).
    judged = {"d1": 3.0, "d2": 2.0, "d3": 0.0, "d4": 1.0}
    found = one(["d2", "d1", "d3", "d4"], judged, "nDCG(gain=exp)@10")
    assert found == pytest.approx((3 + 7 / LOG(3) + 1 / LOG(5)) / (7 + 3 / LOG(3) + 1 / 2), abs=1e-12)
    assert found == pytest.approx(0.8354, abs=5e-5)


def test_ties_go_by_score_then_id_ascending() -> None:
    # P69 with the ids ascending (trec_eval: descending): the relevant one comes second behind k, first before n.
    assert one({"m": 1.0, "k": 1.0}, {"m": 1.0}, "nDCG@10") == pytest.approx(0.6309, abs=5e-5)
    assert one({"m": 1.0, "n": 1.0}, {"m": 1.0}, "nDCG@10") == 1.0
    three = {"x1": 1.0, "y2": 1.0, "z9": 1.0}
    assert one(three, {"z9": 1.0}, "nDCG@10") == 0.5
    assert one(three, {"z9": 1.0}, "MAP@10") == pytest.approx(1 / 3)
    assert one(three, {"x1": 1.0}, "nDCG@10") == 1.0
    # Strings, not numbers: "10" before "9".
    assert one({"9": 1.0, "10": 1.0}, {"9": 1.0}, "RR@10") == 0.5


def test_scores_that_are_equal_in_float32_tie() -> None:
    # P69 (c): 1.00000001 is 1.0 in float32, so `a`, the smaller id, is first whichever is larger in float64.
    assert one({"a": 1.0, "b": 1.00000001}, {"a": 1.0}, "nDCG@10") == 1.0
    assert one({"a": 1.0, "b": 1.0000002}, {"a": 1.0}, "nDCG@10") == pytest.approx(0.6309, abs=5e-5)


def test_a_judged_query_without_results_counts_as_zero() -> None:
    # P71.
    ranking, ids = ranked([{"d1": 1.0}, {}])
    qrels = {"q1": {"d1": 1.0}, "q2": {"d2": 1.0}}
    for measure in ("nDCG@10", "RR@10", "Recall@10", "MAP@10"):
        assert metrics.score_run(ranking, ids, qrels, measure).tolist() == [1.0, 0.0]


def test_no_query_has_results() -> None:
    empty = Lists([np.empty(0, dtype=np.int64)])
    for name in NAMES:
        assert metrics.score_run(empty, [], {"q": {"d": 1.0}}, f"{name}@10").tolist() == [0.0]


def test_ideal_list_is_made_of_all_judged_documents_and_no_others() -> None:
    # P72: 2 relevant, one of them found at rank 1; then 1 relevant at rank 1 of 10.
    assert one(["A"], {"A": 1.0, "B": 1.0}, "nDCG@10") == pytest.approx(0.6131, abs=5e-5)
    assert one(["A", *"bcdefghij"], {"A": 1.0}, "nDCG@10") == 1.0


def test_a_document_listed_twice_is_an_error() -> None:
    # P73.
    twice = Lists([np.array([0, 1, 0])])
    with pytest.raises(EmbedtrainError, match="query q lists a document more than once: A"):
        metrics.score_run(twice, ["A", "B"], {"q": {"A": 1.0}}, "Recall@10")


def test_grades_at_or_below_zero_are_not_relevant() -> None:
    # P74.
    run = ["d1", "d2"]
    for grade in (0.0, -1.0):
        judged = {"d1": grade, "d2": 1.0}
        assert one(run, judged, "nDCG@10") == pytest.approx(0.6309, abs=5e-5)
        assert one(run, judged, "RR@10") == 0.5
        assert one(run, judged, "Recall@1") == 0.0
        assert one(run, judged, "P@2") == 0.5


def test_map_is_divided_by_all_relevant_documents() -> None:
    # P76.
    judged = {f"r{index}": 1.0 for index in range(10)}
    top = [f"r{index}" for index in range(5)]
    assert one(top, judged, "MAP@5") == 0.5
    assert one(top, judged, "MAP(norm=cutoff)@5") == 1.0
    # Others missed still count: two of the first five, of ten.
    assert one(["r0", "x", "r1", "y", "z"], judged, "MAP(norm=cutoff)@5") == pytest.approx((1 + 2 / 3) / 5)
    assert one(top, judged, "nDCG@10") == pytest.approx(0.6489, abs=5e-5)


def test_rr_and_ndcg_see_nothing_below_the_cutoff() -> None:
    # P77.
    run = [f"d{rank:02}" for rank in range(1, 21)]
    assert one(run, {"d15": 1.0}, "RR@10") == 0.0
    assert one(run, {"d15": 1.0}, "nDCG@10") == 0.0
    assert one(run, {"d15": 1.0}, "RR@20") == pytest.approx(1 / 15)
    assert one(run, {"d15": 1.0}, "nDCG@20") == 0.25


def test_a_judged_document_that_cannot_be_found_still_counts() -> None:
    # P78, the strict value: dX is not in the corpus.
    judged = {"d1": 1.0, "dX": 1.0}
    assert one(["d1", "d2"], judged, "Recall@10") == 0.5
    assert one(["d1", "d2"], judged, "nDCG@10") == pytest.approx(0.6131, abs=5e-5)
    assert one(["d1", "d2"], judged, "MAP@10") == 0.5


def test_queries_without_a_relevant_document_are_left_out() -> None:
    # P79: q2 has only grade 0; q3 keeps its 1.0.
    qrels = {"q1": {"d1": 1.0}, "q2": {"d1": 0.0}, "q3": {"d2": 1.0}, "q4": {}}
    kept = metrics.answerable(qrels)
    assert list(kept) == ["q1", "q3"]
    ranking, ids = ranked([{"d1": 1.0}, {"d2": 1.0}])
    assert metrics.score_run(ranking, ids, kept, "nDCG@10").tolist() == [1.0, 1.0]
    # The other way (--no-relevant zero): 0, never NaN, and q3 stays 1.0.
    every, ids = ranked([{"d1": 1.0}, {"d1": 1.0}, {"d2": 1.0}, {"d1": 1.0}])
    for name in NAMES[:-1]:
        values = metrics.score_run(every, ids, qrels, f"{name}@1")
        assert values.tolist() == [1.0, 0.0, 1.0, 0.0]
    assert metrics.score_run(every, ids, qrels, "nDCG@10").mean() == pytest.approx(0.5)


def test_equal_texts_are_two_documents() -> None:
    # P80 without grouping, the ids ascending: the number depends on which copy is judged.
    run = {"c1": 0.9, "c2": 0.9}
    assert one(run, {"c1": 1.0}, "nDCG@10") == 1.0
    assert one(run, {"c2": 1.0}, "nDCG@10") == pytest.approx(0.6309, abs=5e-5)


def test_a_second_call_gives_the_same() -> None:
    # P81.
    ranking, ids = ranked([{"d1": 1.0, "d2": 0.0}])
    graded = metrics.grade(ranking, ids, {"q1": {"d2": 1.0}})
    for _ in range(2):
        for text in ("nDCG@10", "nDCG@100"):
            assert metrics.parse(text).of(graded)[0] == pytest.approx(0.6309, abs=5e-5)


def test_rankings_and_judgements_of_different_numbers_of_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="1 ranked queries and 2 judged ones"):
        metrics.score_run(Lists([np.array([0])]), ["d"], {"q1": {"d": 1.0}, "q2": {"d": 1.0}}, "P@1")


# Oracles


def loop(run: list[str], judged: dict[str, float], name: str, k: int) -> float:
    """Every measure as its definition reads."""
    relevant = {document: grade for document, grade in judged.items() if grade > 0}
    top = run[:k]
    if name.startswith("nDCG"):
        gain = (lambda grade: 2**grade - 1) if "exp" in name else (lambda grade: grade)
        dcg = sum(gain(relevant.get(document, 0)) / LOG(rank + 1) for rank, document in enumerate(top, 1))
        best = sorted(relevant.values(), reverse=True)[:k]
        return dcg / sum(gain(grade) / LOG(rank + 1) for rank, grade in enumerate(best, 1))
    hits = [rank for rank, document in enumerate(top, 1) if document in relevant]
    if name.startswith("MAP"):
        best = min(len(relevant), k) if "cutoff" in name else len(relevant)
        return sum(number / rank for number, rank in enumerate(hits, 1)) / best
    if name == "RR":
        return 1 / hits[0] if hits else 0.0
    if name == "Success":
        return float(bool(hits))
    if name == "hole":
        return sum(document not in judged for document in top) / k
    return len(hits) / {"Recall": len(relevant), "R-cap": min(len(relevant), k), "P": k}[name]


@pytest.mark.parametrize("seed", range(5))
def test_equal_to_pytrec_eval_on_random_runs(seed: int) -> None:
    """Ties, queries without results, grades at and below 0, relevant documents that are not retrieved."""
    random = np.random.default_rng(seed)
    documents = [f"d{index}" for index in range(60)]
    qrels: dict[str, dict[str, int]] = {}
    runs: dict[str, dict[str, float]] = {}
    for number in range(40):
        judged = random.choice(documents, size=random.integers(1, 20), replace=False)
        qrels[f"q{number}"] = {str(d): int(random.integers(-1, 4)) for d in judged}
        found = random.choice(documents, size=random.integers(0, 50), replace=False)
        runs[f"q{number}"] = {str(d): float(random.integers(0, 12)) / 4 for d in found}
    kept = metrics.answerable(qrels)
    assert 0 < len(kept) < len(qrels) or seed
    ranking, ids = ranked([runs[query] for query in kept])
    # trec_eval breaks ties by id descending: it is given the ranks as scores, after our rule has made the order.
    untied = {
        query: {ids[index]: float(-rank) for rank, index in enumerate(found)}
        for query, found in zip(kept, ranking.positions, strict=True)
    }
    for k in (1, 3, 10, 100):
        theirs = {"nDCG": "ndcg_cut", "MAP": "map_cut", "Recall": "recall", "P": "P", "Success": "success"}
        evaluator = pytrec_eval.RelevanceEvaluator(
            qrels, {f"{name}.{k}" for name in theirs.values()} | {"recip_rank"}
        )
        expected = evaluator.evaluate(untied)
        for name in NAMES:
            values = metrics.score_run(ranking, ids, kept, f"{name}@{k}")
            for query, value in zip(kept, values, strict=True):
                if name in theirs:
                    # pytrec_eval leaves out a query that has no results.
                    theirs_value = expected[query][f"{theirs[name]}_{k}"] if untied[query] else 0.0
                    assert value == pytest.approx(theirs_value, abs=1e-6)
                elif name == "RR" and untied[query]:
                    uncut = expected[query]["recip_rank"]
                    assert value == pytest.approx(uncut if uncut >= 1 / k else 0.0, abs=1e-6)
                order = list(untied[query])
                assert value == pytest.approx(loop(order, dict(kept[query]), name, k), abs=1e-12)


def test_tie_rule_is_that_of_trec_eval_with_the_ids_turned_round() -> None:
    """trec_eval on ids renamed so that their order is reversed gives what we give on the ids as they are."""
    random = np.random.default_rng(7)
    documents = [f"d{index:03}" for index in range(50)]
    turned = dict(zip(documents, reversed(documents), strict=True))
    runs = {f"q{n}": {d: float(random.integers(0, 5)) for d in documents} for n in range(30)}
    qrels = {f"q{n}": {str(d): 1 for d in random.choice(documents, 4, replace=False)} for n in range(30)}
    evaluator = pytrec_eval.RelevanceEvaluator(
        {query: {turned[d]: grade for d, grade in judged.items()} for query, judged in qrels.items()},
        {"ndcg_cut.10"},
    )
    expected = evaluator.evaluate({q: {turned[d]: score for d, score in run.items()} for q, run in runs.items()})
    ranking, ids = ranked(list(runs.values()))
    values = metrics.score_run(ranking, ids, qrels, "nDCG@10")
    assert values == pytest.approx([expected[query]["ndcg_cut_10"] for query in qrels], abs=1e-6)


# Properties

GRADES = st.dictionaries(st.integers(0, 15), st.integers(-2, 4), min_size=1).filter(
    lambda grades: any(grade > 0 for grade in grades.values())
)
RUNS = st.lists(st.integers(0, 15), unique=True)


@settings(deadline=None)
@given(GRADES, RUNS, st.integers(1, 20), st.sampled_from(NAMES))
def test_every_measure_lies_between_0_and_1(grades: dict[int, int], run: list[int], k: int, name: str) -> None:
    ids = [f"{index:02}" for index in range(16)]
    judged = {ids[index]: float(grade) for index, grade in grades.items()}
    value = metrics.score_run(Lists([np.array(run, dtype=np.int64)]), ids, {"q": judged}, f"{name}@{k}")[0]
    assert 0.0 <= value <= 1.0
    assert value == pytest.approx(loop([ids[index] for index in run], judged, name, k), abs=1e-12)


@settings(deadline=None)
@given(GRADES, st.integers(1, 20), st.integers(0, 5))
def test_the_ideal_order_has_ndcg_1(grades: dict[int, int], k: int, more: int) -> None:
    ids = [f"{index:02}" for index in range(16 + more)]
    relevant = sorted((index for index in grades if grades[index] > 0), key=lambda index: -grades[index])
    run = np.array(relevant + list(range(16, 16 + more)), dtype=np.int64)
    judged = {ids[index]: float(grade) for index, grade in grades.items()}
    assert metrics.score_run(Lists([run]), ids, {"q": judged}, f"nDCG@{k}")[0] == 1.0


@settings(deadline=None)
@given(GRADES, RUNS, st.sampled_from(NAMES), st.randoms(use_true_random=False))
def test_documents_of_equal_grade_may_change_places(
    grades: dict[int, int], run: list[int], name: str, random
) -> None:
    """Swapping ranked documents of the same grade, and renumbering the corpus, change nothing."""
    ids = [f"{index:02}" for index in range(16)]
    judged = {ids[index]: float(grade) for index, grade in grades.items()}
    before = metrics.score_run(Lists([np.array(run, dtype=np.int64)]), ids, {"q": judged}, f"{name}@5")
    by_grade: dict[int, list[int]] = {}
    for index in run:
        by_grade.setdefault(grades.get(index, 0), []).append(index)
    for members in by_grade.values():
        random.shuffle(members)
    swapped = [by_grade[grades.get(index, 0)].pop() for index in run]
    order = list(range(16))
    random.shuffle(order)
    renumbered = np.array([order.index(index) for index in swapped], dtype=np.int64)
    shuffled_ids = [ids[index] for index in order]
    after = metrics.score_run(Lists([renumbered]), shuffled_ids, {"q": judged}, f"{name}@5")
    assert before.tolist() == after.tolist()
