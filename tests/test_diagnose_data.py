"""The audit of training data: counts worked by hand, the miner's own audit as an oracle, leaks, stubs, favourites.

Breaks that turn a test red: the highest positive as the bar, a negative that was dropped or judged by hand counted as
suspected, the candidates in the place of the negatives, near-duplicates found by words alone, a limit that is passed in
silence, a part read as the whole.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from conftest import write_collection

from embedtrain.artifacts import Claim
from embedtrain.audit import Audit
from embedtrain.collection import Collection
from embedtrain.config import MineOptions
from embedtrain.diagnose import data, leakage
from embedtrain.diagnose.section import HEALTHY, WATCH, Section
from embedtrain.duplicates import jaccard, shingles
from embedtrain.errors import EmbedtrainError
from embedtrain.mined import MinedRow, read_blocks, to_table
from embedtrain.negatives import CODE

LONG = "the wing of an aircraft in a supersonic flow is heated by the boundary layer, and the skin takes it up"
TEXTS = {
    "d0": ("Flows", "heat on a wing"),
    "d1": ("", LONG),
    "d2": ("Plates", "end plates and their size"),
    "d3": ("", "shells that buckle under a load"),
    "d4": ("", LONG.replace("takes", "take")),
    "d5": ("", "rockets"),
    "d6": ("Login", "press the button to log in"),
    "d7": ("Login ", "another part of the same page"),
    "d8": ("LOGIN", "Press the  button to log in"),
}
QUERIES = {
    "q0": "how is the skin of a wing heated in supersonic flow?",
    "q1": "login",
    "t0": "How is the skin of a wing heated in  supersonic flow?",
    "t1": "how is the skin of a wing heated in supersonic flow? ok",
    "t2": "where is the button?",
}


@pytest.fixture
def place(tmp_path: Path) -> Collection:
    return Collection(
        write_collection(
            tmp_path / "c",
            [{"_id": i, "title": title, "text": text} for i, (title, text) in TEXTS.items()],
            [{"_id": i, "text": text} for i, text in QUERIES.items()],
            {
                "train": [("q0", "d0", 1), ("q0", "d1", 1), ("q1", "d6", 1)],
                "test": [("t0", "d3", 1), ("t1", "d5", 1), ("t2", "d8", 1)],
            },
        )
    )


def mined() -> list[MinedRow]:
    """q0: d2 near its lowest positive (0.5), d3 above both, d4 below, d5 judged by hand. q1: d7 near, d8 at random."""
    return [
        MinedRow(
            query_id="q0",
            positive_ids=["d0", "d1"],
            candidate_ids=["d2", "d0", "d3", "d4", "d5"],
            candidate_ranks=[1, 2, 12, 40, None],
            candidate_retrievers=["bm25+dense", "dense", "dense", "bm25", "judged"],
            selected=[True, False, True, True, True],
            reason=["selected", "known positive", "selected", "selected", "judged not relevant"],
            scores={"bm25": [7.0, None, None, 2.0, None], "dense": [0.49, 0.8, 0.9, 0.3, 0.95]},
            ranks={"bm25": [1, None, None, 9, None], "dense": [2, 1, 12, None, None]},
            positive_scores={"bm25": [5.0, None], "dense": [0.8, 0.5]},
        ),
        MinedRow(
            query_id="q1",
            positive_ids=["d6"],
            candidate_ids=["d7", "d8"],
            candidate_ranks=[101, None],
            candidate_retrievers=["dense", "random"],
            selected=[True, True],
            reason=["selected", "selected"],
            scores={"bm25": [None, None], "dense": [0.39, None]},
            ranks={"bm25": [None, None], "dense": [101, None]},
            positive_scores={"bm25": [1.0], "dense": [0.4]},
        ),
    ]


def scored() -> list[MinedRow]:
    """The teacher suspects d2 and d4, the latter above both positives; d3 was dropped."""
    first, second = mined()
    return [
        dataclasses.replace(
            first,
            positive_teacher=[2.0, 1.0],
            candidate_teacher=[1.5, None, 9.0, 3.0, 9.0],
            verdict=["keep", "keep", "drop", "keep", "keep"],
        ),
        dataclasses.replace(
            second, positive_teacher=[0.0], candidate_teacher=[-1.0, None], verdict=["keep", "keep"]
        ),
    ]


def write(path: Path, rows: list[MinedRow], kind: Any = "mined") -> Path:
    claim = Claim(path, kind=kind, stage="mine", options=MineOptions(), inputs=[])
    claim.write_table(to_table(rows, kind), dropped={}, summary={})
    return path


def measures(found: Section) -> dict[str, Any]:
    return {measure.key: measure for measure in found.measures}


def table(found: Section, title: str) -> list[list[str]]:
    (rows,) = [one.rows for one in found.tables if one.title.startswith(title)]
    return rows


def test_suspected_negatives(place: Collection, tmp_path: Path) -> None:
    found = data.section(write(tmp_path / "m.parquet", mined()), place)
    by_key = measures(found)
    # Scored and not picked by hand: d2, d3, d4, d7. 0.95 of the lowest positive: 0.475 and 0.38.
    assert found.numbers["suspected"] == {
        "dense": {"scored": 4, "near_or_above_the_lowest_positive": 3, "above_every_positive": 1}
    }
    assert by_key["suspected_negatives"].value == 0.75
    assert by_key["negatives_above_positives"].value == 0.25
    assert by_key["suspected_negatives"].verdict == WATCH
    assert "--max-ratio" in by_key["suspected_negatives"].sentence
    assert {
        (e["found_by"], e["rank"]): (e["negatives"], e["suspected by dense"])
        for e in found.numbers["suspected_by_rank"]
    } == {
        ("bm25+dense", "1-10"): (1, 1),
        ("dense", "11-30"): (1, 1),
        ("bm25", "31-100"): (1, 0),
        ("dense", "after 100"): (1, 1),
        ("judged", "none"): (1, 0),
        ("random", "none"): (1, 0),
    }
    ((query, positive, negative, over),) = table(found, "Negatives most likely")
    assert (query, over) == (QUERIES["q0"], "+0.100")
    assert positive.startswith("Flows heat")
    assert negative == "d3: shells that buckle under a load"


def test_the_teacher_has_the_word_where_there_is_one(place: Collection, tmp_path: Path) -> None:
    found = data.section(write(tmp_path / "s.parquet", scored(), "scored"), place)
    # d3, which it likes most, was dropped and is no negative; d5 was judged by hand.
    assert found.numbers["judge"] == "teacher"
    assert found.numbers["counts"]["negatives"] == 5
    assert found.numbers["suspected"]["teacher"] == {
        "scored": 3,
        "near_or_above_the_lowest_positive": 2,
        "above_every_positive": 1,
    }
    assert table(found, "Negatives most likely")[0][3] == "+1.000"
    assert list(found.numbers["scores"]) == ["teacher", "bm25", "dense"]
    assert sum(found.numbers["scores"]["teacher"]["positives"]) == 3
    assert sum(found.numbers["scores"]["teacher"]["negatives"]) == 4  # the judged one too
    (picture,) = found.pictures
    assert ">teacher<" in picture.svg


def test_bm25_alone_cannot_tell(place: Collection, tmp_path: Path) -> None:
    rows = [
        dataclasses.replace(
            row,
            **{name: {"bm25": getattr(row, name)["bm25"]} for name in ("scores", "ranks", "positive_scores")},
        )
        for row in mined()
    ]
    found = data.section(write(tmp_path / "m.parquet", rows), place)
    assert "suspected_negatives" not in measures(found)
    assert any("score-teacher" in note for note in found.notes)


def test_the_miner_counts_the_same(tmp_path: Path) -> None:
    # The audit of `mine` over the same rows, ties and unknown scores included.
    rng = np.random.default_rng(3)
    ids = [f"d{n}" for n in range(60)]
    folder = write_collection(
        tmp_path / "c",
        [{"_id": i, "title": "", "text": f"text of {i}"} for i in ids],
        [{"_id": f"q{n}", "text": f"words of query {n}"} for n in range(40)],
        {"train": [("q0", "d0", 1)]},
    )

    def some(count: int) -> list[float | None]:
        return [None if rng.random() < 0.1 else float(rng.integers(-3, 8)) / 8 for _ in range(count)]

    rows = []
    for number in range(40):
        drawn = [ids[place] for place in rng.permutation(60)[:12].tolist()]
        selected = [bool(flag) for flag in rng.random(9) < 0.6]
        reason = [
            "judged not relevant" if s and rng.random() < 0.2 else "selected" if s else "eligible"
            for s in selected
        ]
        scores = {name: some(9) for name in ("dense", "dense2")}
        ranks: dict[str, Any] = {
            name: [None if value is None else place + 1 for place, value in enumerate(own)]
            for name, own in scores.items()
        }
        positive: dict[str, Any] = {name: [0.5, float(rng.integers(1, 6)) / 8, 0.25] for name in scores}
        finders = ["+".join(name for name in scores if ranks[name][place]) or "random" for place in range(9)]
        order = [None if finder == "random" else place + 1 for place, finder in enumerate(finders)]
        rows.append(
            MinedRow(f"q{number}", drawn[9:], drawn[:9], order, finders, selected, reason, scores, ranks, positive)
        )
    path = write(tmp_path / "m.parquet", rows)
    found = data.section(path, Collection(folder))
    (block,) = read_blocks(path, pa.array(ids), 100)
    audit = Audit(["dense", "dense2"], ["dense"], wanted=5)
    codes = np.array([CODE[why] for row in rows for why in row.reason], dtype=np.uint8)
    audit.add(block, codes, np.array([used for row in rows for used in row.selected]), ids)
    numbers = audit.numbers()
    assert numbers["negatives"] == found.numbers["counts"]["negatives"] > 100
    assert numbers["candidates_by_reason"] == found.numbers["candidates_by_reason"]
    suspicious = numbers["gates"]["suspicious"] * numbers["negatives"]
    assert round(suspicious) == found.numbers["suspected"]["dense"]["near_or_above_the_lowest_positive"] > 20


def test_copies_siblings_and_counts(place: Collection, tmp_path: Path) -> None:
    found = data.section(write(tmp_path / "m.parquet", mined()), place)
    by_key, counts = measures(found), found.numbers["counts"]
    # d8 has the words and the title of d6, d7 its title, d4 nearly the words of d1.
    assert counts["negatives_with_the_words_of_a_positive"] == 1
    assert counts["negatives_near_a_positive"] == 1
    assert counts["negatives_with_the_title_of_a_positive"] == 2
    assert by_key["repeated_positives"].value == pytest.approx(2 / 6)
    assert by_key["repeated_positives"].verdict == WATCH
    assert "--near-duplicate 0.8" in by_key["repeated_positives"].sentence
    assert by_key["same_title"].value == pytest.approx(2 / 6)
    assert (counts["rows"], counts["positives"], counts["candidates"], counts["negatives"]) == (2, 3, 7, 6)
    assert found.numbers["candidates_by_reason"] == {
        "selected": 5,
        "known positive": 1,
        "judged not relevant": 1,
    }
    assert ["known positive", "1 (14.3 %)", "0", "0", "1", "0", "0"] in table(found, "What became")
    clean = [dataclasses.replace(mined()[0], selected=[True, False, True, False, False])]
    by_key = measures(data.section(write(tmp_path / "clean.parquet", clean), place))
    assert by_key["repeated_positives"].verdict == HEALTHY
    assert by_key["repeated_positives"].value == 0


def test_few_queries_and_what_a_split_can_show(place: Collection, tmp_path: Path) -> None:
    found = data.section(write(tmp_path / "m.parquet", mined()), place, "test")
    assert measures(found)["training_queries"].verdict == WATCH
    # Two-sided t-test, 3 queries whose differences deviate by 0.2 * sqrt(9 / 8): far from 0.05.
    assert measures(found)["smallest_difference"].value > 0.5
    section = Section("data", "", "")
    data._support(section, 20_000, place, "")
    assert section.measures[0].verdict == HEALTHY
    assert "enough" in section.measures[0].sentence


def test_leaks(place: Collection, tmp_path: Path) -> None:
    found = data.section(write(tmp_path / "m.parquet", mined()), place, "test")
    # t0 is q0 in another case, t1 has one word more; d8, the answer of t2, has the words of d6.
    assert found.numbers["leakage"] == {
        "split": "test",
        "queries": 3,
        "queries_word_for_word": 1,
        "queries_nearly": 1,
        "queries_of_the_same_id": 0,
        "queries_with_an_answer_trained_on": 1,
    }
    measure = measures(found)["leaked_queries"]
    assert (measure.value, measure.verdict) == (pytest.approx(2 / 3), WATCH)
    assert "--exclude" in measure.sentence
    assert [f"test: {QUERIES['t1']}", f"train: {QUERIES['q0']}"] in table(found, "What test shares")
    itself = data.section(tmp_path / "m.parquet", place, "train")
    assert itself.numbers["leakage"]["queries_of_the_same_id"] == 2
    assert "measure on another split" in measures(itself)["leaked_queries"].sentence


def test_near_texts_are_those_of_the_obvious_loop() -> None:
    rng = np.random.default_rng(1)
    letters = list("abc ")

    def texts(count: int) -> list[str]:
        base = "".join(rng.choice(letters, 60))
        return [
            base[: int(rng.integers(20, 60))] + "".join(rng.choice(letters, int(rng.integers(0, 9))))
            for _ in range(count)
        ]

    own = texts(40)
    other = texts(300) + own[:3] + [own[0] + "c"]
    expected = [
        next((n for n, text in enumerate(own) if jaccard(shingles(text), shingles(one)) >= 0.6), -1)
        for one in other
    ]
    found = leakage.nearly(own, other, 0.6)
    assert found.tolist() == expected
    assert expected.count(-1) > 20
    assert len(set(expected)) > 2
    assert leakage.nearly([], ["a"]).tolist() == [-1]


def test_near_empty_rows(place: Collection, tmp_path: Path) -> None:
    found = data.section(write(tmp_path / "m.parquet", mined()), place)
    measure = measures(found)["near_empty"]
    assert measure.value == 0.5  # "login" is one word
    assert measure.verdict == WATCH
    assert "'login'" in measure.sentence
    stub = [dataclasses.replace(mined()[0], positive_ids=["d5", "d1"]), mined()[0]]
    assert measures(data.section(write(tmp_path / "n.parquet", stub), place))["near_empty"].value == 0
    words = {row[0]: row[1:] for row in table(found, "Lengths")}
    assert words["queries"] == ["1", "1", "1", "11"]


def test_popular_documents(tmp_path: Path) -> None:
    count = 40
    ids = [f"d{n:02}" for n in range(100)]
    folder = write_collection(
        tmp_path / "c",
        [{"_id": i, "title": "", "text": f"a text about {i}"} for i in ids],
        [{"_id": f"q{n}", "text": f"words of query {n}"} for n in range(count)],
        {"train": [("q0", "d00", 1)]},
    )

    def row(number: int) -> MinedRow:
        positive = ids[0] if number < 20 else ids[number]
        others = [ids[99 if number % 4 == 0 else 50 + number]]
        return MinedRow(f"q{number}", [positive], others, [1], ["bm25"], [True], ["selected"])

    found = data.section(write(tmp_path / "m.parquet", [row(n) for n in range(count)]), Collection(folder))
    by_key = measures(found)
    assert (by_key["popular_negative"].value, by_key["popular_negative"].verdict) == (0.25, WATCH)
    assert (by_key["popular_positive"].value, by_key["popular_positive"].verdict) == (0.5, WATCH)
    assert next(iter(found.numbers["popular_negatives"].items())) == ("d99", 10)
    assert table(found, "Popular") == [
        ["d99", "0", "10", "a text about d99"],
        ["d00", "20", "0", "a text about d00"],
    ]


def test_a_part_is_said_to_be_one(place: Collection, tmp_path: Path) -> None:
    found = data.section(write(tmp_path / "m.parquet", mined()), place, most=1)
    assert found.notes[0] == "The first 1 of 2 rows were read; all shares are of these."
    assert found.numbers["counts"]["rows"] == 1
    assert found.numbers["training_queries"] == 2


def test_the_same_every_time_and_fit_for_json(place: Collection, tmp_path: Path) -> None:
    path = write(tmp_path / "s.parquet", scored(), "scored")
    found = data.section(path, place, "test")
    assert found == data.section(path, place, "test")
    assert json.loads(json.dumps(found.numbers, allow_nan=False)) == found.numbers
    for one in found.tables:
        assert {len(row) for row in one.rows} <= {len(one.columns)}, one.title


def test_what_is_refused(place: Collection, tmp_path: Path) -> None:
    stranger = [dataclasses.replace(mined()[1], candidate_ids=["d7", "x9"])]
    with pytest.raises(EmbedtrainError, match=r"1 of its documents are not in .*: x9; give the collection"):
        data.section(write(tmp_path / "a.parquet", stranger), place)
    with pytest.raises(EmbedtrainError, match=r"1 of its queries are not in .*: q9"):
        data.section(write(tmp_path / "b.parquet", [dataclasses.replace(mined()[1], query_id="q9")]), place)
    with pytest.raises(EmbedtrainError, match="has no rows"):
        data.section(write(tmp_path / "c.parquet", []), place)
    with pytest.raises(EmbedtrainError, match="no split 'dev'"):
        data.section(write(tmp_path / "d.parquet", mined()), place, "dev")
    with pytest.raises(EmbedtrainError, match="mine"):
        data.section(place.path, place)


def test_openings() -> None:
    assert data.opening("a  b\nc") == "a b c"
    assert data.opening("abcdefgh", 5) == "abcd…"
