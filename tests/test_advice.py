"""The ladder before and after finetuning: its order, who is believed, and the one recommendation.

Deliberate breaks that turn a test red: the best mean taken whatever chance explains, a tuned model measured against the base
only, the order of the command line.
"""

from typing import Any

import numpy as np
import pytest

from embedtrain.advice import advise, climb, ladder
from embedtrain.comparison import all_pairs, measure_all
from embedtrain.hits import Hits
from embedtrain.metrics import parse
from embedtrain.systems import Questions, System

QUERIES = 60


def system(name: str, right: int, start: int = 0, **about: Any) -> System:
    """A system that answers `right` of the queries, from `start` on."""
    answered = [(query - start) % QUERIES < right for query in range(QUERIES)]
    scores = [np.array([1.0], dtype=np.float32)] * QUERIES
    return System(name, Hits([np.array([0 if good else 1]) for good in answered], scores), ["yes", "no"], about)


def advice(systems: list[System], tuned: dict[str, int | None]) -> dict[str, Any]:
    asked = Questions(
        [f"q{n}" for n in range(QUERIES)], [""] * QUERIES, {f"q{n}": {"yes": 1.0} for n in range(QUERIES)}, 0, {}
    )
    results = measure_all(systems, asked, [parse("P@1")], "base", resamples=2_000, seed=0)
    return advise(systems, results, "P@1", tuned, QUERIES, 100, 0)


def everything(base: int, hybrid: int, reranked: int, tuned: int, mixed: int) -> list[System]:
    return [
        system("BM25", 20, language="english"),
        system("base", base, model="base"),
        system("other", base, model="other"),
        system("tuned", tuned, model="tuned"),
        system("hybrid of base", hybrid, fused="BM25 and base", of="base"),
        system("hybrid", mixed, fused="BM25 and tuned", of="tuned"),
        system("hybrid of base, reranked", reranked, teacher="t", of="base"),
        system("reranked", tuned, teacher="t", of="tuned"),
        system("theirs.trec", 60, run="theirs.trec"),
    ]


def test_steps_stand_in_the_order_of_their_cost() -> None:
    found = ladder(everything(30, 30, 30, 30, 30), ["tuned"])
    assert [(rung.system, rung.kind, rung.tuned) for rung in found] == [
        ("BM25", "lexical", False),
        ("base", "base", False),
        ("hybrid of base", "hybrid", False),
        ("hybrid of base, reranked", "reranked", False),
        ("other", "another model", False),
        ("tuned", "tuned", True),
        ("hybrid", "hybrid", True),
        ("reranked", "reranked", True),
    ]


def test_a_tuned_model_that_beats_all_before_it() -> None:
    found = advice(everything(base=25, hybrid=27, reranked=26, tuned=55, mixed=56), {"tuned": 1_234})
    assert (found["recommendation"], found["system"]) == ("finetune", "tuned")
    assert found["reason"] == (
        "finetune: tuned (P@1 0.9167) is +0.5000 on base, more than chance explains with 60 queries (tuned was trained on "
        "1,234 rows)"
    )
    taken = {row[0]: row[-1] for row in found["table"]["rows"]}
    # 2 queries of 60 are chance, and so is the one that a mixture wins on top.
    assert taken["hybrid of base"] == taken["hybrid"] == "no"
    assert taken["tuned"] == "yes"


def test_what_costs_less_is_as_good() -> None:
    """The tuned model is far better than the base, and no better than hybrid search: do not finetune."""
    found = advice(everything(base=25, hybrid=50, reranked=48, tuned=51, mixed=52), {"tuned": 500})
    assert (found["recommendation"], found["system"]) == ("do not finetune", "hybrid of base")
    assert found["reason"].startswith(
        "do not finetune: stop at hybrid of base (P@1 0.8333); the best tuned system, hybrid, is +0.0333 on it, which chance "
        "explains; 60 queries show 0."
    )
    assert "would show this (tuned was trained on 500 rows)" in found["reason"]


def test_tuning_made_it_worse() -> None:
    found = advice(everything(base=50, hybrid=50, reranked=50, tuned=25, mixed=26), {"tuned": None})
    assert (found["recommendation"], found["system"]) == ("do not finetune", "base")
    assert found["reason"] == (
        "do not finetune: stop at base (P@1 0.8333); the best tuned system, hybrid, is -0.4000 on it (tuned, whose record "
        "says nothing, is taken for it)"
    )


def test_what_else_is_measured_changes_no_advice() -> None:
    """Rows that are no steps (smaller vectors, other people's runs) make no family larger."""
    systems = everything(base=25, hybrid=27, reranked=26, tuned=40, mixed=41)
    more = [system(f"tuned, {n} dimensions", 39, compressed=f"{n} dimensions", of="tuned") for n in range(2, 9)]
    alone, together = advice(systems, {"tuned": 10}), advice([*systems, *more], {"tuned": 10})
    assert alone == together


def test_a_model_without_a_record_is_said_to_be_taken_for_the_tuned_one() -> None:
    found = advice(everything(base=25, hybrid=27, reranked=26, tuned=55, mixed=56), {"tuned": None})
    assert found["reason"].endswith("(tuned, whose record says nothing, is taken for it)")


def test_without_a_tuned_model_it_says_what_one_has() -> None:
    systems = [one for one in everything(30, 55, 30, 30, 30) if one.name in ("BM25", "base", "hybrid of base")]
    found = advice(systems, {})
    assert found["recommendation"] == "no tuned model was measured"
    assert found["reason"].startswith("stop at hybrid of base (P@1 0.9167) until a tuned --model beats it")


@pytest.mark.parametrize(("lexical", "start"), [(58, "BM25"), (27, "base"), (25, "base")])
def test_where_the_climb_starts(lexical: int, start: str) -> None:
    systems = [system("BM25", lexical, language="english"), system("base", 25, model="base")]
    assert advice(systems, {})["system"] == start


def test_a_step_is_compared_with_where_one_stands() -> None:
    systems = everything(base=25, hybrid=50, reranked=48, tuned=51, mixed=52)
    asked = Questions(
        [f"q{n}" for n in range(QUERIES)], [""] * QUERIES, {f"q{n}": {"yes": 1.0} for n in range(QUERIES)}, 0, {}
    )
    results = measure_all(systems, asked, [parse("P@1")], "base", resamples=2_000, seed=0)
    pairs = {(one, other): found for one, other, found in all_pairs(results, "P@1", 0)}
    steps = climb(ladder(systems, ["tuned"]), pairs)
    against = {rung.system: before.system for rung, before, *_ in steps if before is not None}
    assert against["hybrid of base"] == "base"
    assert against["tuned"] == against["reranked"] == "hybrid of base"
    tuned = next(versus for rung, _, versus, _ in steps if rung.system == "tuned")
    assert tuned is not None
    assert (tuned.difference, tuned.wins, tuned.losses) == (pytest.approx(1 / 60), 1, 0)


def test_documents_that_are_not_read_to_their_ends_come_first() -> None:
    systems = [system("BM25", 20, language="english"), system("base", 25, model="base", documents_cut=40)]
    assert advice(systems, {})["first"] == (
        "first of all, cut documents into passages: 40 of 100 are longer than a model reads, and what is beyond is not searched"
    )
    systems[1].about["documents_cut"] = 9
    assert advice(systems, {})["first"] is None
