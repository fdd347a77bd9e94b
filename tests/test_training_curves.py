"""A run's curve: what is read and refused, and the moments that are marked.

Breaks that turn a test red: a lower dev value taken for the best, the first step without a gain counted from the best,
a falling dev value overlooked, the value before training left out, a broken line that passes.
"""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from embedtrain.diagnose import training_curves
from embedtrain.diagnose.section import HEALTHY, WATCH, Measure, Section
from embedtrain.diagnose.training_curves import moments, read
from embedtrain.errors import EmbedtrainError

METRICS = "metrics.jsonl"


def write(
    folder: Path, losses: list[float | None], dev: dict[int, float] | None = None, **columns: list[float]
) -> Path:
    """A metrics.jsonl of these losses, with dev values {step: value} and further columns."""
    rows: list[dict[str, Any]] = []
    for number, loss in enumerate(losses, start=1):
        row: dict[str, Any] = {"step": number, "loss": loss, "rows": 32}
        row |= {name: values[number - 1] for name, values in columns.items()}
        if dev and number in dev:
            row["dev"] = dev[number]
        rows.append(row)
    path = folder / METRICS
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def record(folder: Path, **summary: Any) -> None:
    (folder / "embedtrain.json").write_text(json.dumps({"kind": "model", "summary": summary}), encoding="utf-8")


def falling(count: int) -> list[float | None]:
    return [2.0 - 1.5 * number / count for number in range(count)]


def made(path: Path) -> Section:
    found = training_curves.section(path)
    assert found is not None
    return found


def by_key(found: Section) -> dict[str, Measure]:
    return {measure.key: measure for measure in found.measures}


def test_the_moments_of_a_run_that_learns_by_heart(tmp_path: Path) -> None:
    # Best at 20; 40 is the first without a gain over it, and 60 is lower still, while the loss falls all the way.
    found = made(write(tmp_path, falling(60), {10: 0.60, 20: 0.66, 40: 0.64, 60: 0.62}))
    assert found.numbers["best_step"] == 20
    assert found.numbers["first_step_without_gain"] == 40
    assert found.numbers["dev_lost_since_best"] == 0.04
    assert found.numbers["loss_fell_while_dev_fell"] is True
    dev = by_key(found)["dev"]
    assert dev.verdict == WATCH
    assert "fell by 0.040 while the loss went on falling" in dev.sentence
    assert by_key(found)["training_loss"].verdict == HEALTHY
    assert "best 0.6600" in found.pictures[0].svg
    assert "shaded part" in found.pictures[0].caption
    assert json.loads(json.dumps(found.numbers, allow_nan=False)) == found.numbers


def test_a_run_that_gets_better_to_the_end(tmp_path: Path) -> None:
    found = made(write(tmp_path, falling(30), {10: 0.60, 20: 0.63, 30: 0.65}))
    assert found.numbers["best_step"] == 30
    assert found.numbers["first_step_without_gain"] is None
    assert {measure.verdict for measure in found.measures} == {HEALTHY}
    assert "more steps may still help" in by_key(found)["dev"].sentence
    assert "shaded" not in found.pictures[0].caption


def test_a_dent_is_not_the_end(tmp_path: Path) -> None:
    found = made(write(tmp_path, falling(40), {10: 0.60, 20: 0.59, 30: 0.65, 40: 0.645}))
    assert found.numbers["best_step"] == 30
    assert found.numbers["first_step_without_gain"] == 20
    assert found.numbers["loss_fell_while_dev_fell"] is False, "half a point is within what evaluations sway"
    assert by_key(found)["dev"].verdict == HEALTHY


def test_of_equal_values_the_second_is_no_gain(tmp_path: Path) -> None:
    found = made(write(tmp_path, falling(20), {10: 0.6, 20: 0.6}))
    assert (found.numbers["best_step"], found.numbers["first_step_without_gain"]) == (10, 20)


def test_dev_falls_with_a_loss_that_rises(tmp_path: Path) -> None:
    # Not by heart: training as a whole went wrong.
    found = made(write(tmp_path, [1.0] * 10 + [3.0] * 10, {10: 0.6, 20: 0.4}))
    assert found.numbers["loss_fell_while_dev_fell"] is False
    loss = by_key(found)["training_loss"]
    assert loss.verdict == WATCH
    assert "did not fall" in loss.sentence


def test_the_value_before_training_is_in_the_record(tmp_path: Path) -> None:
    path = write(tmp_path, falling(20), {10: 0.61, 20: 0.58})
    assert made(path).numbers["best_step"] == 10
    record(tmp_path, dev_values={"step 0": 0.65, "step 10": 0.61, "step 20": 0.58}, kept_step=0)
    found = made(path)
    assert found.numbers["dev"][0] == {"step": 0, "value": 0.65}
    assert found.numbers["best_step"] == 0
    assert found.numbers["first_step_without_gain"] == 10
    assert found.numbers["loss_fell_while_dev_fell"] is True
    assert any(note.startswith("No dev value was better than the one before training") for note in found.notes)
    # Rounded values are equal here: the record knows which was kept.
    path = write(tmp_path, falling(20), {20: 0.64996})
    record(tmp_path, dev_values={"step 0": 0.65, "step 20": 0.65}, kept_step=20)
    assert made(path).numbers["best_step"] == 20


def test_no_step_was_better(tmp_path: Path) -> None:
    record(tmp_path, dev_values={"step 0": 0.65}, kept_step=0)
    dev = by_key(made(write(tmp_path, falling(20), {20: 0.645})))["dev"]
    assert dev.verdict == WATCH
    assert "no step made the model better" in dev.sentence


def test_the_drift_of_a_learned_temperature(tmp_path: Path) -> None:
    drift = [0.05 - 0.001 * number for number in range(20)]
    found = made(write(tmp_path, falling(20), temperature=drift))
    assert found.numbers["temperature"] == {"first": 0.05, "last": 0.031}
    assert by_key(found)["learned_temperature"].verdict == HEALTHY
    assert "0.050 → 0.031" in found.pictures[0].svg
    stuck = made(write(tmp_path, falling(20), temperature=[0.05] * 10 + [0.01] * 10))
    assert by_key(stuck)["learned_temperature"].verdict == WATCH
    assert "end of its range" in by_key(stuck)["learned_temperature"].sentence


def test_a_loss_of_nothing_and_a_loss_alone(tmp_path: Path) -> None:
    found = made(write(tmp_path, [0.0] * 20))
    assert by_key(found)["training_loss"].verdict == WATCH
    assert "nothing to learn" in by_key(found)["training_loss"].sentence
    assert "--dev-split" in found.notes[-1]
    assert set(by_key(found)) == {"training_loss"}
    # Too few steps to say that a loss does not fall.
    assert by_key(made(write(tmp_path, [1.0, 1.1])))["training_loss"].verdict == HEALTHY


def test_losses_count_by_rows(tmp_path: Path) -> None:
    lines = [{"step": 1, "loss": 1.0, "rows": 30}, {"step": 2, "loss": 3.0, "rows": 10}, {"step": 3, "loss": None}]
    (tmp_path / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines))
    curve = read(tmp_path / METRICS)
    assert curve is not None
    assert training_curves.mean(curve.steps, "loss") == pytest.approx(1.5)  # (30 * 1 + 10 * 3) / 40
    assert training_curves.mean(curve.steps, "temperature") is None


def test_long_curves_are_drawn_short(tmp_path: Path) -> None:
    short, long = (len(made(write(tmp_path, falling(count))).pictures[0].svg) for count in (150, 6000))
    assert long < 1.5 * short


def test_a_skipped_step_and_one_step(tmp_path: Path) -> None:
    found = made(write(tmp_path, falling(20), skipped=[1.0] + [0.0] * 19))
    assert any("1 of 20 steps were skipped" in note for note in found.notes)
    assert made(write(tmp_path, [1.0], {1: 0.5})).numbers["best_step"] == 1


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    path = write(tmp_path, falling(60), {10: 0.60, 20: 0.66, 40: 0.64, 60: 0.62})
    assert made(path) == made(path)


def test_nothing_to_read(tmp_path: Path) -> None:
    assert training_curves.section(tmp_path / METRICS) is None
    (tmp_path / METRICS).write_text("\n")
    assert training_curves.section(tmp_path / METRICS) is None


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"step": 2, "loss": 1.0', "line 2 is not JSON"),
        ("[2, 1.0]", "line 2 is not a JSON object"),
        ('{"loss": 1.0}', "line 2 has no step"),
        ('{"step": 2}', "line 2 has no loss"),
        ('{"step": 2, "loss": "low"}', "line 2: loss is 'low'"),
        ('{"step": 2, "loss": true}', "line 2: loss is True"),
        ('{"step": 1, "loss": 1.0}', "line 2: step is 1 where a number above 1"),
        ('{"step": null, "loss": 1.0}', "line 2: step is None"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / METRICS
    path.write_text('{"step": 1, "loss": 2.0}\n' + line + "\n")
    with pytest.raises(EmbedtrainError, match=words) as error:
        training_curves.section(path)
    assert str(path) in str(error.value)


def test_numbers_that_are_none_are_none(tmp_path: Path) -> None:
    path = tmp_path / METRICS
    path.write_text('{"step": 1, "loss": NaN}\n{"step": 2, "loss": null}\n')
    curve = read(path)
    assert curve is not None
    assert [step["loss"] for step in curve.steps] == [None, None]
    found = made(path)
    assert found.numbers["first_loss"] is None
    assert found.measures == []
    assert moments(curve).best is None
    assert math.isnan(curve.last_loss)
