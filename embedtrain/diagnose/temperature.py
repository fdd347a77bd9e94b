"""The temperature lab: what each temperature of the softmax looks at among the candidates of a query.

The gradient on a negative j is p_j / tau, so that the shares of the push are a softmax over the negatives alone: the
relative penalty of Wang and Liu 2021, "Understanding the Behaviour of Contrastive Loss" (arXiv:2012.09740). A low
temperature looks at the hardest one, a high one at all alike.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from scipy.special import logsumexp

from embedtrain.cautions import HIGH_FLOOR, loss_floor
from embedtrain.diagnose import pictures
from embedtrain.diagnose.numbers import rounded
from embedtrain.diagnose.pictures import BASE, LINE, MODEL, MUTED, RANDOM, Picture
from embedtrain.diagnose.section import HEALTHY, WATCH, Measure, Section, Table
from embedtrain.errors import EmbedtrainError

Floats = npt.NDArray[np.float64]

_DECADE = "1 1.1 1.2 1.3 1.5 1.6 1.8 2 2.2 2.4 2.7 3 3.3 3.6 3.9 4.3 4.7 5 5.6 6.2 6.8 7.5 8.2 9.1"
# From 0.005 to 1, 24 even steps a decade in numbers that are easy to read.
_GRID = [round(float(step) * unit, 6) for unit in (0.001, 0.01, 0.1) for step in _DECADE.split()]
TEMPERATURES = (*(value for value in _GRID if value >= 0.005), 1.0)
SHOWN = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)

# Rules of thumb. With these, temperatures that are known to work (0.01 to 0.1) pass on candidates without false ones.
EVEN = 0.9  # entropy of the push over its ceiling, above which no negative counts more than another
ALONE = 0.9  # share of the push above which one negative has it all
RULED = 0.5  # share of the push above which suspected false negatives rule
_BLOCK = 1 << 20  # similarities that are in memory at once


@dataclasses.dataclass(frozen=True)
class Row:
    """One temperature; means over queries. Shares are of the gradient that pushes negatives away; nats for logarithms."""

    temperature: float
    hardest: float  # share of the hardest negative
    suspected: float  # share of the suspected false negatives
    entropy: float  # of the shares
    ceiling: float  # of the entropy: log(negatives)
    relative_entropy: float  # entropy over its ceiling
    loss: float  # -log p of the positive against all of the candidates

    @property
    def looks_at_hard(self) -> bool:
        """Whether hard negatives are pushed more than others."""
        return self.relative_entropy <= EVEN

    @property
    def is_ruled(self) -> bool:
        """Whether suspected false negatives, or one negative alone, have the say."""
        return self.suspected > RULED or self.hardest > ALONE


def lab(
    positives: npt.ArrayLike,
    candidates: Sequence[npt.ArrayLike],
    suspected: Sequence[npt.ArrayLike],
    temperatures: Sequence[float] = TEMPERATURES,
) -> list[Row]:
    """What every temperature does with the similarities of queries to their positives (q,) and candidates (q lists).

    `suspected` says which candidates may be false negatives. Every query has at least two candidates, for one alone
    takes all of the push at any temperature. Raises EmbedtrainError otherwise, and for what is not finite.
    """
    closeness = np.asarray(positives, dtype=np.float64)
    lists = [np.asarray(values, dtype=np.float64) for values in candidates]
    marks = [np.asarray(values, dtype=bool) for values in suspected]
    _check(closeness, lists, marks)
    counts = np.array([len(values) for values in lists])
    sums = np.zeros((len(temperatures), 5))
    step = max(1, _BLOCK // int(counts.max()))
    for start in range(0, len(lists), step):
        part = slice(start, start + step)
        scores = _padded(lists[part], -np.inf)
        doubtful = _padded(marks[part], False)
        ceiling = np.log(counts[part])
        for place, temperature in enumerate(temperatures):
            sums[place] += _sums(closeness[part] / temperature, scores / temperature, doubtful, ceiling)
    top = float(np.mean(np.log(counts)))
    rows = []
    for temperature, found in zip(temperatures, (sums / len(lists)).tolist(), strict=True):
        hardest, false, entropy, relative, loss = found
        rows.append(Row(float(temperature), hardest, false, entropy, top, relative, loss))
    return rows


def _check(positives: Floats, candidates: Sequence[Floats], suspected: Sequence[npt.NDArray[np.bool_]]) -> None:
    if not len(positives) == len(candidates) == len(suspected):
        raise ValueError(
            f"{len(positives)} positives, {len(candidates)} lists of candidates, {len(suspected)} of marks"
        )
    if not candidates:
        raise EmbedtrainError("no query has two candidates to weigh; mine more with: embedtrain mine")
    for number, (close, values, marks) in enumerate(zip(positives, candidates, suspected, strict=True), start=1):
        if values.shape != marks.shape or values.ndim != 1:
            raise ValueError(f"query {number}: {values.shape} similarities and {marks.shape} marks")
        if len(values) < 2:
            raise EmbedtrainError(f"query {number} has {len(values)} candidates; two at least can be weighed")
        if not (np.isfinite(close) and np.isfinite(values).all()):
            raise EmbedtrainError(
                f"a similarity of query {number} is not finite; the model gives no usable embedding for a text of it"
            )


def _padded(lists: Sequence[npt.NDArray], filling: float) -> npt.NDArray:
    whole = np.full((len(lists), max(len(values) for values in lists)), filling, dtype=lists[0].dtype)
    for row, values in zip(whole, lists, strict=True):
        row[: len(values)] = values
    return whole


def _sums(positives: Floats, scores: Floats, doubtful: npt.NDArray[np.bool_], ceiling: Floats) -> Floats:
    """Sums over queries of what a `Row` holds the means of, without the ceiling. (5,)"""
    total = logsumexp(scores, axis=1, keepdims=True)
    logs = scores - total
    weights = np.exp(logs)
    entropy = -np.sum(weights * np.where(weights > 0, logs, 0.0), axis=1)
    return np.array(
        [
            weights.max(axis=1).sum(),
            weights[doubtful].sum(),
            entropy.sum(),
            (entropy / ceiling).sum(),
            np.logaddexp(0.0, total[:, 0] - positives).sum(),
        ]
    )


def band(rows: Sequence[Row]) -> tuple[float, float] | None:
    """The lowest and the highest temperature of the longest run that looks at hard negatives and is not ruled by false
    ones; None where no temperature does both."""
    best: list[Row] = []
    run: list[Row] = []
    for row in rows:
        run = [*run, row] if row.looks_at_hard and not row.is_ruled else []
        best = run if len(run) > len(best) else best
    return (best[0].temperature, best[-1].temperature) if best else None


def section(
    positives: npt.ArrayLike,
    candidates: Sequence[npt.ArrayLike],
    suspected: Sequence[npt.ArrayLike],
    in_use: float | None,
) -> Section:
    """The lab as a part of the report; verdicts on the temperature `in_use` where one is known.

    Queries with fewer than two candidates are left out and counted. See `lab` for what comes in and is raised.
    """
    usable = [place for place, values in enumerate(candidates) if np.size(values) > 1]
    close = np.asarray(positives, dtype=np.float64)[usable]
    lists = [np.asarray(candidates[place], dtype=np.float64) for place in usable]
    marks = [np.asarray(suspected[place], dtype=bool) for place in usable]
    rows = lab(close, lists, marks)
    found = band(rows)
    base_rate = float(np.mean([values.mean() for values in marks]))
    counts = [len(values) for values in lists]
    # A floor is known where similarities are cosines.
    cosines = max(abs(float(values.max())) for values in (close, *lists)) <= 1 + 1e-6
    own = lab(close, lists, marks, [in_use])[0] if in_use is not None else None

    def floor(row: Row) -> float | None:
        return float(np.mean([loss_floor(n, row.temperature) for n in counts])) if cosines else None

    floors = [floor(row) for row in rows]
    notes = [_says(rows, found, own, base_rate)]
    if not any(values.any() for values in marks):
        notes.append("No candidate is suspected to be a false negative; what nobody suspects is not counted here.")
    if left := len(candidates) - len(usable):
        notes.append(f"{left:,} queries with fewer than two candidates are left out.")
    return Section(
        "temperature_lab",
        "Temperature lab",
        "What the softmax would look at with each temperature, by this model’s similarities to its mined candidates: "
        "the hardest negative alone, all of them alike, or documents that may be answers themselves.",
        measures=_measures(own, floor(own), base_rate, counts) if own is not None else [],
        pictures=[_picture(rows, floors, found, in_use)],
        tables=[_table(rows, floors, own)],
        notes=notes,
        numbers={
            "queries": len(lists),
            "candidates": rounded(float(np.mean(counts))),
            "suspected_share_of_candidates": rounded(base_rate),
            "in_use": None if own is None else _numbers(own, floor(own)),
            "band": None if found is None else list(found),
            "limits": {"entropy": EVEN, "hardest_share": ALONE, "suspected_share": RULED},
            "temperatures": [_numbers(row, least) for row, least in zip(rows, floors, strict=True)],
        },
    )


def _numbers(row: Row, floor: float | None) -> dict[str, float | None]:
    # The names of metrics.jsonl, where it has them.
    return {
        "temperature": row.temperature,
        "hardest_share": rounded(row.hardest),
        "suspected_share": rounded(row.suspected),
        "negative_entropy": rounded(row.entropy),
        "negative_entropy_ceiling": rounded(row.ceiling),
        "negative_entropy_relative": rounded(row.relative_entropy),
        "loss": rounded(row.loss),
        "loss_floor": None if floor is None else rounded(floor),
    }


def _says(rows: Sequence[Row], found: tuple[float, float] | None, own: Row | None, base_rate: float) -> str:
    """The band in words, and on which side of it the temperature in use lies."""
    if found is None:
        if base_rate > RULED:
            return (
                f"No temperature helps: {base_rate:.0%} of the candidates are suspected false negatives. Take them "
                "out first: mine with --max-ratio, or judge them with score-teacher."
            )
        return (
            "No temperature does both: where hard negatives are looked at, suspected false ones take more than half "
            "of the push. Mine with --max-ratio, or judge the candidates with score-teacher."
        )
    low, high = found
    text = f"From {low:g} to {high:g} the push goes to hard negatives without being ruled by false ones."
    if low > rows[0].temperature:
        below = next(row for row in reversed(rows) if row.temperature < low)
        text += " Below, " + (
            f"suspected false negatives take more than {RULED:.0%} of it."
            if below.suspected > RULED
            else f"one negative takes more than {ALONE:.0%} of it."
        )
    if high < rows[-1].temperature:
        text += " Above, it is spread almost evenly."
    if own is not None:
        place = "inside" if low <= own.temperature <= high else "below" if own.temperature < low else "above"
        text += f" The {own.temperature:g} in use lies {place}{'' if place == 'inside' else ' it'}."
    return text


def _measures(own: Row, floor: float | None, base_rate: float, counts: Sequence[int]) -> list[Measure]:
    even = float(np.mean(1.0 / np.asarray(counts)))
    found = []

    def add(
        key: str, name: str, value: float, reference: str, bad: bool, sentence: str, top: float, mark: float
    ) -> None:
        verdict = WATCH if bad else HEALTHY
        found.append(Measure(key, name, value, None, reference, verdict, sentence, 0, top, mark))

    sentence = f"At temperature {own.temperature:g} the hardest negative takes {own.hardest:.0%} of the push"
    bad = own.hardest > ALONE
    sentence += ": a single text is what a query learns from. Raise the temperature." if bad else "."
    add(
        "hardest_share",
        "share of the hardest negative",
        own.hardest,
        f"{even:.3f} if all were pushed alike",
        bad,
        sentence,
        1,
        even,
    )

    sentence = f"Suspected false negatives take {own.suspected:.0%} of the push"
    bad = own.suspected > RULED
    sentence += (
        ": training would push answers away. Mine with --max-ratio, judge them with score-teacher, or raise the "
        "temperature."
        if bad
        else f"; they are {base_rate:.0%} of the candidates."
    )
    add(
        "suspected_share",
        "share of suspected false negatives",
        own.suspected,
        f"{base_rate:.3f} if all were pushed alike",
        bad,
        sentence,
        1,
        base_rate,
    )

    sentence = (
        f"The push has an entropy of {own.entropy:.2f} nats of at most {own.ceiling:.2f} (log of the candidates)"
    )
    bad = own.relative_entropy > EVEN
    sentence += ": easy negatives count as much as hard ones. Lower the temperature." if bad else "."
    add(
        "negative_entropy_relative",
        "evenness of the push",
        own.relative_entropy,
        "1 if all were pushed alike",
        bad,
        sentence,
        1,
        1,
    )

    if floor is not None:
        bad = floor > HIGH_FLOOR
        sentence = f"However good the model, the loss cannot fall below {floor:.3f}"
        sentence += (
            ": on vectors of length 1 this temperature is too high." if bad else f"; it is {own.loss:.3f} now."
        )
        add(
            "loss_floor",
            "lowest loss there can be",
            floor,
            "0 with a low temperature",
            bad,
            sentence,
            max(own.loss, floor),
            0,
        )
    return found


def _table(rows: Sequence[Row], floors: Sequence[float | None], own: Row | None) -> Table:
    shown = [
        (row, least)
        for row, least in zip(rows, floors, strict=True)
        if row.temperature in SHOWN or (own is not None and row.temperature == own.temperature)
    ]
    return Table(
        "What each temperature looks at",
        ["temperature", "hardest", "suspected", "entropy", "loss", "its floor"],
        [
            [
                f"{row.temperature:g}",
                f"{row.hardest:.1%}",
                f"{row.suspected:.1%}",
                f"{row.entropy:.2f}",
                f"{row.loss:.3f}",
                "" if least is None else f"{least:.3f}",
            ]
            for row, least in shown
        ],
        f"Means over queries. Entropy in nats, at most {rows[0].ceiling:.2f}. The floor is the loss with the positive "
        "at cosine 1 and all candidates at −1.",
    )


def _picture(
    rows: Sequence[Row], floors: Sequence[float | None], found: tuple[float, float] | None, in_use: float | None
) -> Picture:
    taus = [row.temperature for row in rows]

    def draw(figure: Figure) -> None:
        above, below = figure.subplots(2, 1, sharex=True, gridspec_kw={"height_ratios": [3, 2]})
        for axes in (above, below):
            if found is not None:
                axes.axvspan(*found, color=LINE, alpha=0.55, linewidth=0, label="looks at hard, not at false ones")
            if in_use is not None:
                axes.axvline(in_use, color=MUTED, linewidth=1, linestyle=(0, (3, 2)), label=f"in use: {in_use:g}")
            axes.grid(axis="y")
        for values, colour, name in (
            ([row.hardest for row in rows], MODEL, "hardest negative"),
            ([row.suspected for row in rows], BASE, "suspected false negatives"),
            ([row.relative_entropy for row in rows], RANDOM, "evenness (entropy / log N)"),
        ):
            above.plot(taus, [100 * value for value in values], color=colour, linewidth=2, label=name)
        above.set_ylim(-2, 104)
        above.set_yticks([0, 25, 50, 75, 100], ["0", "25", "50", "75", "100 %"])
        above.legend(loc="lower left", bbox_to_anchor=(-0.02, 1.0), ncols=1, labelcolor=MUTED, fontsize=10)
        below.plot(taus, [row.loss for row in rows], color=MODEL, linewidth=2)
        if None not in floors:
            below.plot(taus, floors, color=MUTED, linewidth=1, linestyle=(0, (1, 2)))
        below.set_ylim(0, None)
        below.set_xscale("log")
        below.set_xlim(0.92 * taus[0], taus[-1])
        below.tick_params(axis="x", pad=6)
        ticks = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1]
        below.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        below.set_xticks([], minor=True)
        below.set_ylabel("loss")
        below.set_xlabel("temperature")

    return pictures.picture(
        "temperature-lab",
        "Who is pushed away, by temperature",
        "Shares of the gradient on the negatives. To the left the hardest one takes all, false or not; to the right "
        "all count alike. The dotted line is the lowest loss there can be.",
        4.6,
        draw,
    )
