"""Truncation by hand: who is cut, how many tokens that costs, and what another limit would read.

Breaks that turn a test red: a text as long as the limit counted as cut, tokens counted whole where the end alone is lost,
the limit of documents for queries.
"""

import json
from typing import Any

import numpy as np
import pytest

from embedtrain.diagnose import lengths
from embedtrain.diagnose.section import HEALTHY, WATCH, Section
from embedtrain.errors import EmbedtrainError


def measures(found: Section) -> dict[str, Any]:
    return {measure.key: measure for measure in found.measures}


def test_shares_by_hand() -> None:
    found = lengths.section([1, 2, 3, 10], [2, 2, 3], 3, 2)
    by_key = measures(found)
    # 3 tokens fit; of 16 tokens the last 7 of the longest document are lost.
    assert by_key["documents_cut"].value == 0.25
    assert by_key["documents_tokens_cut"].value == pytest.approx(7 / 16)
    assert by_key["queries_cut"].value == pytest.approx(1 / 3)
    assert by_key["queries_tokens_cut"].value == pytest.approx(1 / 7)
    assert {measure.verdict for measure in found.measures} == {WATCH}
    assert "harvest --chunk-tokens" in by_key["documents_cut"].sentence
    assert any("3.3 times the limit" in note for note in found.notes)
    assert found.numbers["documents"] == {
        "texts": 4,
        "limit": 3,
        "cut": 1,
        "share_cut": 0.25,
        "tokens": 16,
        "tokens_cut": 7,
        "share_of_tokens_cut": 0.4375,
        "quantiles": {"0.05": 1, "0.5": 2, "0.95": 3, "1.0": 10},
    }


def test_what_fits_is_healthy() -> None:
    found = lengths.section([10, 256], [5], 256, 256)
    assert {measure.verdict for measure in found.measures} == {HEALTHY}
    assert {measure.value for measure in found.measures} == {0.0}
    assert found.notes == []
    assert any("a limit of 64 loses nothing" in note for note in lengths.section([10, 64], [5], 256, 256).notes)


def test_a_tenth_is_watched_and_not_before() -> None:
    counts = np.array([20] * 9 + [11])
    at = measures(lengths.section(np.where(np.arange(10) < 1, 20, 10), [1], 10, 10))
    assert (at["documents_cut"].value, at["documents_cut"].verdict) == (0.1, HEALTHY)
    assert measures(lengths.section(counts, [1], 10, 10))["documents_cut"].verdict == WATCH


def test_what_other_limits_would_read() -> None:
    found = lengths.section([100, 200, 1_000, 700], [3], 256, 256)
    table = found.tables[1]
    assert table.rows == [
        ["64", "0.0 %", "12.8 %"],
        ["128", "25.0 %", "24.2 %"],
        ["256 (now)", "50.0 %", "40.6 %"],
        ["512", "50.0 %", "66.2 %"],
        ["1,024", "100.0 %", "100.0 %"],
    ]
    assert found.tables[0].rows[0] == ["documents", "4", "100", "200", "700", "1,000", "256"]


@pytest.mark.parametrize("counts", [[7], [7, 7, 7], [0, 1, 9_000], [300, 400]])
@pytest.mark.parametrize("limit", [8, 256, 1 << 20])
def test_every_text_is_in_the_picture(counts: list[int], limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    real = np.histogram

    def counted(values: Any, edges: Any) -> Any:
        heights, ends = real(values, edges)
        drawn.append(int(heights.sum()))
        assert not ((edges > limit) & (edges < limit + 0.4)).any()
        return heights, ends

    monkeypatch.setattr(np, "histogram", counted)
    (picture,) = lengths.section(counts, [1], limit, limit).pictures
    assert drawn == [len(counts)]
    assert (f"limit {limit:,}" in picture.svg) == (max(counts) > limit)


def test_the_same_every_time_and_fit_for_json() -> None:
    counts = np.random.default_rng(0).lognormal(5, 1, 500).astype(np.int64)
    found = lengths.section(counts, counts[:40], 256, 64)
    assert found == lengths.section(counts, counts[:40], 256, 64)
    assert json.loads(json.dumps(found.numbers, allow_nan=False)) == found.numbers
    for one in found.tables:
        assert {len(row) for row in one.rows} == {len(one.columns)}


def test_nothing_to_count_is_said() -> None:
    with pytest.raises(EmbedtrainError, match="no lengths of queries"):
        lengths.section([1], [], 3, 3)
    with pytest.raises(EmbedtrainError, match="no lengths of documents"):
        lengths.section([], [1], 3, 3)
