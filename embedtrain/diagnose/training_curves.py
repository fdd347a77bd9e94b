"""A run's curve from its metrics.jsonl, with the moments that matter: the best dev value, the first without a gain,
the drift of a learned temperature, and a loss that falls while the dev value falls too.
"""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from embedtrain import artifacts, readers
from embedtrain.curve import Curve, DevValue, Entry
from embedtrain.dev import MEASURE
from embedtrain.diagnose import pictures
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.pictures import BASE, INK, LINE, MODEL, MUTED, Picture
from embedtrain.diagnose.section import HEALTHY, WATCH, Measure, Section
from embedtrain.errors import EmbedtrainError

# Rules of thumb, as those of the spaces are.
DEV_FALL = 0.02  # of nDCG@10, more than evaluations on small splits sway
NOTHING = 1e-3  # a loss of the first steps below which there is nothing to learn
FEW_STEPS = 10  # in fewer a loss says little
_POINTS = 150  # of a curve that are drawn


def read(path: Path) -> Curve | None:
    """The curve of a metrics.jsonl; None where there is no such file, or no step in it.

    The value before training and the step that was kept come from the record of the model's folder, where it has one.
    Raises EmbedtrainError with the file and line for a line that is no step.
    """
    if not path.is_file():
        return None
    steps: list[Entry] = []
    for number, row in readers.rows(path, format="jsonl"):
        steps.append(_step(row, f"{path} line {number}", steps))
    if not steps:
        return None
    curve = Curve(len(steps), steps)
    summary = (artifacts.read_record(path.parent) or {}).get("summary", {})
    before = summary.get("dev_values", {}).get("step 0")
    values = [DevValue(0, before)] if before is not None else []
    values += [DevValue(int(step["step"] or 0), value) for step in steps if (value := step.get("dev")) is not None]
    for found in values:
        curve.add_dev(found.step, found.value, lower_is_better=False)
    # The record rounds the value before training: which one was best it knows better.
    kept = [place for place, value in enumerate(curve.dev) if value.step == summary.get("kept_step")]
    curve.best = kept[0] if kept else curve.best
    return curve


def _step(row: Mapping[str, Any], where: str, before: list[Entry]) -> Entry:
    for name in ("step", "loss"):
        if name not in row:
            raise EmbedtrainError(f"{where} has no {name}; it is not a step that training wrote")
    for name, value in row.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise EmbedtrainError(
                f"{where}: {name} is {value!r} where a number is needed; mend or remove the line"
            )
    last = (before[-1]["step"] or 0) if before else 0
    if row["step"] is None or not row["step"] > last:
        raise EmbedtrainError(
            f"{where}: step is {row['step']} where a number above {last} is needed; a file holds one run, its steps "
            "in order, the first of them 1"
        )
    return {name: value if value is not None and math.isfinite(value) else None for name, value in row.items()}


def mean(steps: Iterable[Entry], name: str) -> float | None:
    """Mean a row of one number of the steps; None where no step has it."""
    known = [(value, step.get("rows") or 1.0) for step in steps if (value := step.get(name)) is not None]
    return float(np.average([value for value, _ in known], weights=[rows for _, rows in known])) if known else None


@dataclasses.dataclass(frozen=True)
class Moments:
    """What to look at in a curve; None where a run has no such moment."""

    best: DevValue | None
    first_without_gain: DevValue | None  # the first evaluation not above the best before it
    lost: float | None  # dev value, from the best to the last
    loss_fell: bool  # after the best dev value, compared with the steps that led to it
    temperature: tuple[float, float] | None  # learned, at the first step and at the last

    @property
    def by_heart(self) -> bool:
        """Whether the loss went on falling while the dev value fell: the pairs are learned, not what is behind them."""
        return self.loss_fell and self.lost is not None and self.lost >= DEV_FALL


def moments(curve: Curve) -> Moments:
    """The moments of a curve."""
    best = None if curve.best is None else curve.dev[curve.best]
    highest, first = -math.inf, None
    for value in curve.dev:
        if value.value <= highest and first is None:
            first = value
        highest = max(highest, value.value)
    fell = False
    if best is not None and curve.best is not None:
        start = curve.dev[curve.best - 1].step if curve.best else 0
        led = mean((step for step in curve.steps if start < (step["step"] or 0) <= best.step), "loss")
        after = mean((step for step in curve.steps if best.step < (step["step"] or 0)), "loss")
        fell = after is not None and after < (curve.first_loss if led is None else led)
    learned = [tau for step in curve.steps if (tau := step.get("temperature")) is not None]
    return Moments(
        best,
        first,
        None if best is None else best.value - curve.dev[-1].value,
        fell,
        (learned[0], learned[-1]) if learned else None,
    )


def section(metrics_path: Path) -> Section | None:
    """The curves as a part of the report; None where there is nothing to read. See `read` for what is raised."""
    curve = read(metrics_path)
    if curve is None:
        return None
    found = moments(curve)
    notes = [f"{note[0].upper()}{note[1:]}." for note in curve.notes()]
    if not curve.dev:
        notes.append(
            "No dev split was looked at in training (--dev-split): whether more steps helped or hurt is not known."
        )
    return Section(
        "training_curves",
        "Training",
        "How the loss fell, and whether the model got better at it: only the dev split can tell.",
        measures=[
            measure for measure in (_loss(curve), _dev(curve, found), _temperature(found)) if measure is not None
        ],
        pictures=[_picture(curve, found)],
        notes=notes,
        numbers=_numbers(curve, found),
    )


def _numbers(curve: Curve, found: Moments) -> dict[str, Any]:
    def at(value: DevValue | None) -> int | None:
        return None if value is None else value.step

    def number(value: float | None) -> float | None:
        return None if value is None or not math.isfinite(value) else rounded(value)

    return {
        "steps": len(curve.steps),
        "first_loss": number(curve.first_loss),
        "last_loss": number(curve.last_loss),
        "dev": [{"step": value.step, "value": rounded(value.value)} for value in curve.dev],
        "best_step": at(found.best),
        "first_step_without_gain": at(found.first_without_gain),
        "dev_lost_since_best": number(found.lost),
        "loss_fell_while_dev_fell": found.by_heart,
        "temperature": None
        if found.temperature is None
        else {"first": rounded(found.temperature[0]), "last": rounded(found.temperature[1])},
    }


def _loss(curve: Curve) -> Measure | None:
    first, last = curve.first_loss, curve.last_loss
    if not (math.isfinite(first) and math.isfinite(last)):
        return None
    verdict = HEALTHY
    sentence = f"In {len(curve.steps):,} steps the loss went from {first:.3f} to {last:.3f} (means of the first and last tenth)."
    if abs(first) < NOTHING:
        verdict = WATCH
        sentence = (
            "The loss was 0 from the start: there was nothing to learn. Look at the batch size and the negatives."
        )
    elif len(curve.steps) >= FEW_STEPS and last >= first:
        verdict = WATCH
        sentence += " It did not fall: look at the learning rate, the temperature and the positives."
    top = max(first, last, NOTHING)
    return Measure(
        "training_loss", "loss", last, None, f"{first:.3f} at the start", verdict, sentence, 0, top, first
    )


def _dev(curve: Curve, found: Moments) -> Measure | None:
    if found.best is None or found.lost is None:
        return None
    best, last = found.best, curve.dev[-1]
    verdict, sentence = HEALTHY, f"{MEASURE} on the dev split was best after step {best.step:,}."
    if found.by_heart:
        verdict = WATCH
        sentence += (
            f" It fell by {found.lost:.3f} while the loss went on falling: the pairs were learned by heart. Use fewer "
            "epochs or a lower learning rate, or harvest more pairs; the best weights are what is kept."
        )
    elif not best.step:
        verdict = WATCH
        sentence = (
            f"{MEASURE} on the dev split was best before training: no step made the model better. Look at the positives, "
            "or lower the learning rate."
        )
    elif found.lost > 0:
        sentence += f" The last value is {found.lost:.3f} lower; the best weights are what is kept."
    elif len(curve.dev) > 1:
        sentence += " That is the end: more steps may still help."
    low = min(value.value for value in curve.dev)
    return Measure(
        "dev",
        "dev value",
        best.value,
        None,
        f"{last.value:.4f} at the end",
        verdict,
        sentence,
        low,
        max(best.value, low + 1e-6),
        last.value,
        4,
    )


def _temperature(found: Moments) -> Measure | None:
    if found.temperature is None:
        return None
    from embedtrain.losses.objective import HIGHEST, LOWEST  # torch

    first, last = found.temperature
    verdict, sentence = HEALTHY, f"The learned temperature went from {first:.4f} to {last:.4f}."
    if not LOWEST * 1.01 < last < HIGHEST * 0.99:
        verdict = WATCH
        sentence += (
            f" That is the end of its range ({LOWEST:g} to {HIGHEST:g}): it would have gone further. Fix it with "
            "--temperature, and look at the temperature lab."
        )
    top = max(first, last) * 1.25
    return Measure(
        "learned_temperature",
        "learned temperature",
        last,
        None,
        f"{first:.4f} at the start",
        verdict,
        sentence,
        0,
        top,
        first,
        4,
    )


def _points(curve: Curve, name: str) -> tuple[list[float], list[float]]:
    """Steps and values of one number, means of neighbours where there are more than can be seen."""
    known = [step for step in curve.steps if step.get(name) is not None]
    size = -(-len(known) // _POINTS) or 1
    parts = [known[start : start + size] for start in range(0, len(known), size)]
    xs = [float(np.mean([step["step"] or 0 for step in part])) for part in parts]
    return xs, [value for part in parts if (value := mean(part, name)) is not None]


def _picture(curve: Curve, found: Moments) -> Picture:
    panels = ["loss", *(["dev"] if curve.dev else []), *(["temperature"] if found.temperature else [])]

    def draw(figure: Figure) -> None:
        grid = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
        for axes, name in zip(grid, panels, strict=True):
            axes.grid(axis="y")
            axes.set_ylabel(MEASURE if name == "dev" else name)
            if name == "dev":
                _draw_dev(axes, curve, found)
            else:
                axes.plot(
                    *_points(curve, name), color=MODEL, linewidth=1.6, marker="." if len(curve.steps) < 3 else ""
                )
            if name == "loss":
                axes.set_ylim(min(0.0, axes.get_ylim()[0]), None)
            if found.by_heart and found.best is not None:
                axes.axvspan(found.best.step, curve.dev[-1].step, color=LINE, alpha=0.55, linewidth=0)
            if found.best is not None:
                axes.axvline(found.best.step, color=MUTED, linewidth=1, linestyle=(0, (3, 2)))
        if found.temperature is not None:
            # In the corner that the line leaves free.
            where = {"y": 0.92, "va": "top"} if found.temperature[1] < found.temperature[0] else {"y": 0.08}
            words = "{:.3f} → {:.3f}".format(*found.temperature)
            grid[-1].text(0.98, s=words, transform=grid[-1].transAxes, ha="right", color=MODEL, **where)
        figure.align_ylabels()
        grid[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
        grid[-1].set_xlabel("step")

    caption = "Means of neighbouring steps where there are many."
    if found.best is not None:
        caption = "The dashed line is where the dev value was best; those weights are kept."
        if found.first_without_gain is not None:
            caption += " The open ring is the first evaluation without a gain."
        if found.by_heart:
            caption += " In the shaded part the loss falls and the dev value falls too."
    title = "How training went"
    return pictures.picture("training-curves", title, caption, 0.6 + 1.45 * len(panels), draw)


def _draw_dev(axes: Axes, curve: Curve, found: Moments) -> None:
    axes.plot([value.step for value in curve.dev], [value.value for value in curve.dev], color=BASE, linewidth=1.6)
    axes.plot(
        [value.step for value in curve.dev], [value.value for value in curve.dev], ".", color=BASE, markersize=7
    )
    axes.margins(y=0.3)
    if found.first_without_gain is not None:
        ring: dict[str, Any] = {"markersize": 10, "markerfacecolor": "none", "markeredgewidth": 1.5}
        axes.plot([found.first_without_gain.step], [found.first_without_gain.value], "o", color=INK, **ring)
    if found.best is not None:
        axes.plot([found.best.step], [found.best.value], "o", color=BASE, markersize=7)
        right = found.best.step > (curve.steps[-1]["step"] or 0) / 2
        where: dict[str, Any] = {
            "textcoords": "offset points",
            "xytext": (-6 if right else 6, 6),
            "ha": "right" if right else "left",
        }
        pictures.label(
            axes, found.best.step, found.best.value, f"best {found.best.value:.4f}", color=BASE, **where
        )
