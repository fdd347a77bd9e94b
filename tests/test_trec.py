"""TREC runs: round trips, the tie rule on reading, and a sentence with the line for everything malformed."""

import gzip
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from embedtrain import trec
from embedtrain.errors import EmbedtrainError
from embedtrain.hits import Hits


def hits(*rows: list[tuple[int, float]]) -> Hits:
    return Hits(
        [np.array([position for position, _ in row], dtype=np.int64) for row in rows],
        [np.array([score for _, score in row], dtype=np.float32) for row in rows],
    )


def test_a_run_is_written_as_trec_has_it(tmp_path: Path) -> None:
    path = tmp_path / "a.trec"
    trec.write_run(path, ["q1", "q2"], ["d1", "d2"], hits([(1, 0.1), (0, -2.0)], []), "my run")
    assert path.read_text() == "q1 Q0 d2 1 0.1 my_run\nq1 Q0 d1 2 -2.0 my_run\n"
    with path.open() as file:
        assert pytrec_eval.parse_run(file) == {"q1": {"d2": 0.1, "d1": -2.0}}


def test_ranks_are_not_believed_and_ties_go_by_id(tmp_path: Path) -> None:
    path = tmp_path / "a.trec"
    path.write_text("q Q0 9 1 0.5 t\nq Q0 10 2 0.5 t\nq\tQ0\t007\t3\t0.7\tt\r\n\nq Q0  x 4 5e-1 t\n")
    found = trec.read_run(path)
    assert found["q"].ids == ["007", "10", "9", "x"]
    assert found["q"].scores.tolist() == pytest.approx([0.7, 0.5, 0.5, 0.5])
    assert found["q"].scores.dtype == np.float32


def test_scores_that_float32_cannot_tell_apart_tie(tmp_path: Path) -> None:
    path = tmp_path / "a.trec"
    path.write_text("q Q0 b 1 1.00000001 t\nq Q0 a 2 1.0 t\n")
    assert trec.read_run(path)["q"].ids == ["a", "b"]


def test_a_gzipped_run_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.trec.gz"
    path.write_bytes(gzip.compress(b"q Q0 d 1 1 t\n"))
    assert trec.read_run(path)["q"].ids == ["d"]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=30))
@example([float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny), 1e-45, 0.1, 1 / 3, 16777217.0])
def test_float32_scores_come_back_bit_for_bit(tmp_path: Path, scores: list[float]) -> None:
    path = tmp_path / "a.trec"
    ordered = sorted(scores, reverse=True)
    ids = [f"d{index:03}" for index in range(len(ordered))]
    trec.write_run(path, ["q"], ids, hits(list(enumerate(ordered))), "t")
    found = trec.read_run(path)["q"]
    assert sorted(found.ids) == ids
    written = np.array(ordered, dtype=np.float32)
    assert np.array_equal(found.scores, written)


IDS = st.text(st.characters(blacklist_characters="\t\n\r", blacklist_categories=("Cs",)), min_size=1, max_size=8)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(IDS, min_size=1, max_size=6, unique=True), st.lists(IDS, min_size=1, max_size=3, unique=True))
@example(["a b", "007", "\u2028", "NA", " x ", "\u00a0"], ["1e5", "q q"])
def test_any_id_comes_back_as_it_was(tmp_path: Path, ids: list[str], queries: list[str]) -> None:
    path = tmp_path / "a.trec"
    row = [(index, 1.0) for index in sorted(range(len(ids)), key=ids.__getitem__)]
    trec.write_run(path, queries, ids, hits(*[row] * len(queries)), "t")
    found = trec.read_run(path)
    assert list(found) == queries
    assert all(ranked.ids == sorted(ids) for ranked in found.values())


def test_an_id_that_no_run_can_hold_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EmbedtrainError, match=r"id 'a\\tb' holds a tab"):
        trec.write_run(tmp_path / "a.trec", ["q"], ["a\tb"], hits([(0, 1.0)]), "t")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("q Q0 d 1 0.5 t\nq Q0 d2 2 0.4\n", r"a\.trec line 2 has 5 columns; a run line is: qid Q0 docid rank"),
        ("q Q0 d 1 high t\n", r"a\.trec line 1 has the score 'high'"),
        ("q Q0 d 1 nan t\n", r"a\.trec line 1 has the score 'nan'"),
        ("q Q0 d 1 inf t\n", r"a\.trec line 1 has the score 'inf'"),
        ("q Q0 d 1 1e39 t\n", r"a\.trec line 1 has the score '1e39'"),
        ("q Q0 d 1 2 t\np Q0 d 1 2 t\nq Q0 d 3 1 t\n", r"a\.trec line 3 lists document d for query q again"),
        ("q\tQ0\t\t1\t2\tt\n", r"a\.trec line 1 column docid is ''"),
        ("\n", r"a\.trec is empty"),
        ("", r"a\.trec is empty"),
    ],
)
def test_a_malformed_run_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.trec"
    path.write_text(text)
    with pytest.raises(EmbedtrainError, match=message):
        trec.read_run(path)


def test_a_run_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EmbedtrainError, match=r"none\.trec does not exist"):
        trec.read_run(tmp_path / "none.trec")
