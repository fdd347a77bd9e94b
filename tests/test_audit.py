"""The audit of a mining run: counts worked by hand, shares, the most suspicious negatives and their order.

Deliberate breaks that turn a test red: the highest positive as the yardstick, candidates counted for retrievers that
did not find them, extras counted as a positive in the window, suspects in the order of blocks.
"""

import math

import numpy as np
import pytest

from embedtrain.audit import Audit, in_words
from embedtrain.candidates import Block, Candidates, Ragged
from embedtrain.negatives import CODE

IDS = [f"d{number}" for number in range(10)]
F = np.float32


def block() -> dict:
    """Two queries. q: positives d0 (0.8) and d1 (0.5); candidates d0, d2, d3, d4. r: positive d5 (0.5); d6, d7."""
    candidates = Candidates(
        np.array([0, 4, 6]),
        np.array([0, 2, 3, 4, 6, 7]),
        np.array([1, 2, 3, 0, 1, 2], dtype=np.int32),
        {
            "bm25": np.array([1, 0, 2, 0, 0, 1], dtype=np.int32),
            "dense": np.array([1, 2, 0, 0, 1, 0], dtype=np.int32),
        },
        {
            "bm25": F([9, 1, 5, 0, 0, 3]),
            "dense": F([0.8, 0.49, 0.25, math.nan, 0.6, 0.4]),
        },
    )
    reasons = ["known positive", "selected", "selected", "selected", "above max ratio", "selected"]
    return {
        "block": Block(
            ["q", "r"],
            Ragged.of([[0, 1], [5]]),
            {"bm25": F([9, 2, 4]), "dense": F([0.8, 0.5, 0.5])},
            candidates,
        ),
        "codes": np.array([CODE[reason] for reason in reasons], dtype=np.uint8),
        "selected": np.array([False, True, True, True, False, True]),
        "ids": IDS,
    }


def test_counts() -> None:
    audit = Audit(["bm25", "dense"], ["dense"], wanted=3)
    audit.add(**block())
    numbers = audit.numbers()
    assert numbers["queries"] == 2
    assert numbers["positives"] == 3
    assert numbers["candidates"] == 6
    assert numbers["negatives"] == 4
    assert numbers["shortfall"] == {"queries": 1, "negatives": 2, "without any": 0}
    assert numbers["candidates_by_reason"] == {"selected": 4, "known positive": 1, "above max ratio": 1}
    assert numbers["found_by"] == {"bm25": 2, "bm25+dense": 1, "dense": 2}
    assert numbers["by_retriever"] == {
        "bm25": {"selected": 2, "known positive": 1},
        "dense": {"selected": 1, "known positive": 1, "above max ratio": 1},
    }
    assert numbers["queries_without_their_positive_in_the_window"] == 1
    # Of those that labels leave over only d6 (0.6) scores above the lowest positive, and it was not chosen.
    assert numbers["candidates_above_their_lowest_positive"] == 1
    assert numbers["negatives_above_their_lowest_positive"] == 0
    # Ratios to the lowest positive, 0.5 for both: 0.98, 0.5 and 0.8; d4 has no score.
    hardness = numbers["hardness (score / lowest positive's, dense)"]
    assert hardness["50%"] == pytest.approx(0.8)
    assert hardness["5%"] == pytest.approx(0.5 + 0.1 * 0.3)
    assert numbers["gates"] == {
        "suspicious": 0.25,
        "above-positive": 0.0,
        "duplicates": 0.0,
        "missed": 0.5,
        "short": 0.5,
        "empty": 0.0,
    }


def test_blocks_add_up() -> None:
    twice = Audit(["bm25", "dense"], ["dense"], wanted=3)
    twice.add(**block())
    twice.add(**block())
    assert twice.numbers()["negatives"] == 8
    assert twice.numbers()["gates"]["suspicious"] == 0.25
    assert twice.numbers()["negatives_per_query"] == 2


def test_positives_that_nobody_finds_are_said() -> None:
    audit = Audit(["bm25", "dense"], ["dense"], wanted=3)
    audit.add(**block())
    assert not any("positive among their candidates" in note for note in audit.notes(None))  # one of two
    lost = block()
    lost["block"].candidates.values[0] = 8
    audit.add(**lost)
    assert any(note.startswith("3 of 4 queries do not have their positive") for note in audit.notes(None))


def test_the_most_suspicious_come_first_whatever_the_blocks() -> None:
    audit = Audit(["bm25", "dense"], ["dense"], wanted=3)
    audit.add(**block())
    (first, second, third) = audit.numbers()["most_suspicious"]
    assert first == {
        "closeness": pytest.approx(-0.02, abs=1e-6),
        "query": "q",
        "positive": "d1",
        "negative": "d2",
        "retriever": "dense",
        "score": pytest.approx(0.49),
        "positive_score": 0.5,
    }
    assert (second["negative"], third["negative"]) == ("d7", "d3")
    closer = block()
    closer["block"].candidates.scores["dense"][5] = 0.499
    audit.add(**closer)
    assert [suspect["negative"] for suspect in audit.numbers()["most_suspicious"]][:3] == ["d7", "d2", "d2"]
    for _ in range(9):
        audit.add(**block())
    assert len(audit.numbers()["most_suspicious"]) == 10


def test_bm25_alone_measures_hardness_and_suspects_nothing() -> None:
    only = block()
    candidates = only["block"].candidates
    del candidates.scores["dense"], candidates.ranks["dense"], only["block"].positive_scores["dense"]
    audit = Audit(["bm25"], [], wanted=1)
    audit.add(**only)
    numbers = audit.numbers()
    assert "suspicious" not in numbers["gates"]
    assert numbers["most_suspicious"] == []
    # d2 1/2, d3 5/2, d4 0/2, d7 3/4.
    assert numbers["hardness (score / lowest positive's, bm25)"]["50%"] == pytest.approx(0.625)
    assert numbers["negatives_above_their_lowest_positive"] == 1


def test_nothing_at_all() -> None:
    numbers = Audit(["bm25"], [], wanted=1).numbers()
    assert numbers["queries"] == 0
    assert numbers["gates"]["missed"] == 0.0


def test_three_are_printed_and_all_are_kept() -> None:
    suspects = [
        {
            "query": f"q{n}",
            "positive": "p",
            "negative": "n",
            "retriever": "dense",
            "score": 0.5,
            "positive_score": 0.6,
            "query_text": "ask " * 60,
            "positive_text": "right",
            "negative_text": "wrong",
        }
        for n in range(5)
    ]
    lines = in_words({"most_suspicious": suspects})
    assert lines[0] == "the negatives closest to their positives (3 of 5; --audit FILE keeps all):"
    assert len(lines) == 1 + 3 * 3
    assert lines[1].startswith("query q0: ask ask")
    assert lines[1].endswith("…")
    assert lines[3] == "  − n (0.500 against 0.600 by dense): wrong"
    assert in_words({"most_suspicious": []}) == []
