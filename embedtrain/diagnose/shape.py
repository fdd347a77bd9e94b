"""The section on how a space is filled: the numbers of `filling`, judged, beside those of the base."""

import dataclasses
import functools
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from embedtrain.diagnose import pictures, verdicts
from embedtrain.diagnose.filling import (
    Intrinsic,
    alpha,
    centred,
    dead_dimensions,
    effective_rank,
    even_quantiles,
    iso_score,
    jackknife,
    kappa,
    ne_sum,
    resultant,
    two_nn,
)
from embedtrain.diagnose.geometry import QUANTILES, Floats, Spectrum, Spread, Vectors, pair_cosines, unit
from embedtrain.diagnose.numbers import of_spread, rounded
from embedtrain.diagnose.section import COLLAPSED, HEALTHY, WATCH, Measure, Section, Table

# Deviation of the cosines of centred documents: about 1 / sqrt(directions in use). 0.5 are four, 0.9 is one.
CENTRED_COLLAPSED, CENTRED_WATCH = 0.9, 0.5
# Shares of the directions that there could be.
EFFECTIVE_COLLAPSED, EFFECTIVE_WATCH, EFFECTIVE_OF_BASE = 0.05, 0.1, 0.6
ALPHA_COLLAPSED, ALPHA_WATCH, ALPHA_CHANGE = 4.0, 2.0, 0.5
# Texts vary in ten ways and more; in spaces of a few dimensions no less can be asked for than a quarter of them.
INTRINSIC_COLLAPSED, INTRINSIC_WATCH, INTRINSIC_OF_BASE = 2.0, 4.0, 0.5
DEAD_COLLAPSED, DEAD_WATCH, DEAD_RISE = 0.5, 0.05, 0.02

_STREAM = zlib.crc32(b"shape")


@dataclasses.dataclass(frozen=True)
class Shape:
    """The numbers of one model's documents; `errors` are standard errors, as `_smooth` orders them."""

    name: str
    count: int
    dimension: int
    spectrum: Spectrum
    cosine: Spread | None  # of distinct pairs of centred documents; None of one point
    resultant: float
    intrinsic: Intrinsic | None
    dead: float
    errors: dict[str, float]

    @classmethod
    def of(cls, name: str, vectors: Vectors, seed: int) -> "Shape":
        """Measure documents (n, d), at least three of them; EmbedtrainError for vectors without a direction."""
        rows = unit(vectors)
        seen = centred(rows)
        errors = jackknife(rows, _smooth, (seed, _STREAM, 1)).tolist()
        return cls(
            name=name,
            count=len(rows),
            dimension=rows.shape[1],
            spectrum=Spectrum.of(rows),
            cosine=Spread.of(pair_cosines(seen, seed=(seed, _STREAM, 2))) if len(seen) > 1 else None,
            resultant=resultant(rows),
            intrinsic=two_nn(rows),
            dead=dead_dimensions(rows),
            errors=dict(zip(_SMOOTH, errors, strict=True)),
        )

    @property
    def directions(self) -> int:
        """The most directions the sample could vary in."""
        return min(self.dimension, self.count - 1)

    @functools.cached_property
    def alpha(self) -> tuple[float, float] | None:
        """Exponent and factor of the power law of the spectrum."""
        return alpha(self.spectrum)

    @property
    def kappa(self) -> float:
        """Concentration of the documents as one von Mises-Fisher distribution."""
        return kappa(self.resultant, self.dimension)

    @property
    def even(self) -> float:
        """Participation ratio of as many isotropic vectors."""
        return self.count * self.dimension / (self.count + self.dimension)


_SMOOTH = ("resultant", "effective_rank", "ne_sum", "iso_score", "alpha")


def _smooth(rows: Floats) -> Floats:
    spectrum = Spectrum.of(rows)
    law = alpha(spectrum)
    return np.array(
        [
            resultant(rows),
            effective_rank(spectrum),
            ne_sum(spectrum),
            iso_score(spectrum, rows.shape[1]),
            law[0] if law else 0.0,
        ]
    )


def section(
    model: Vectors, name: str, base: Vectors | None = None, base_name: str | None = None, seed: int = 0
) -> Section:
    """What fills the space of a model, from its documents (n, d), beside that of a base model.

    At least three documents; EmbedtrainError for vectors without a direction.
    """
    shape = Shape.of(name, model, seed)
    before = None if base is None else Shape.of(base_name or "base", base, seed)
    made = (_centred, _resultant, _effective, _ne_sum, _iso_score, _alpha, _intrinsic, _dead)
    measures = [make(shape, before) for make in made]
    both = [item for item in (shape, before) if item]
    return Section(
        key="shape",
        title="How the space is filled",
        lead=f"Whether {shape.count:,} documents use the room they have, or crowd into a corner or a few directions.",
        measures=[measure for measure in measures if measure],
        pictures=[_picture(both)] if any(item.alpha for item in both) else [],
        tables=[_quantiles(both)],
        notes=_notes(both),
        numbers={"model": _numbers(shape), "base": _numbers(before) if before else None},
    )


def _centred(shape: Shape, base: Shape | None) -> Measure:
    value = shape.cosine.deviation if shape.cosine else 1.0
    before = (base.cosine.deviation if base.cosine else 1.0) if base else None
    verdict = verdicts.rule(value, CENTRED_WATCH, CENTRED_COLLAPSED, high_is_bad=True)
    if shape.directions <= 4:
        verdict = HEALTHY  # so few directions cannot be more even
    if shape.cosine is None:
        verdict = COLLAPSED
        sentence = "All documents are one point. Nothing was learned, or the learning rate destroyed the model: "
        sentence += "lower it and train again from the base."
    else:
        low, high = shape.cosine.quantiles[0.05], shape.cosine.quantiles[0.95]
        sentence = (
            f"With the common direction taken out, two random documents have a cosine of {_signed(shape.cosine.mean)} "
            f"± {value:.3f}; nine pairs in ten lie between {_signed(low)} and {_signed(high)}."
        )
        if verdict != HEALTHY:
            sentence += " The documents differ along a few axes only: use more varied data and more negatives."
    reference = f"{shape.dimension**-0.5:.3f} even sphere"
    mark = shape.dimension**-0.5
    return Measure(
        "centred_cosine", "spread of centred cosines", value, before, reference, verdict, sentence, 0, 1, mark
    )


def _resultant(shape: Shape, base: Shape | None) -> Measure:
    value, before = shape.resultant, base.resultant if base else None
    # R² is the mean cosine of random pairs, so it has the limits of that.
    verdict = verdicts.rule(value**2, verdicts.COSINE_WATCH, verdicts.COSINE_COLLAPSED, high_is_bad=True)
    sentence = (
        f"The mean of all directions has the length {value:.3f}{_error(shape, 'resultant')}, as in a von Mises-Fisher "
        f"distribution with κ = {shape.kappa:,.1f}"
    )
    if verdict != HEALTHY:
        sentence += ": nearly everything points one way. Raise the temperature, lower the learning rate, and use "
        sentence += "larger batches or more negatives."
    elif before is not None and value**2 > before**2 + verdicts.COSINE_RISE:
        verdict = WATCH
        sentence += (
            f"; with the base it is {before:.3f}. Training pulled everything together: try larger batches, "
        )
        sentence += "more negatives or fewer steps."
    elif value**2 > 0.5:
        sentence += ". A strong common direction is no fault in itself: ranking needs differences, not low values."
    else:
        sentence += ": no direction rules."
    reference = f"{shape.count**-0.5:.3f} even, 1 one point"
    return Measure(
        "resultant_length",
        "mean resultant length",
        value,
        before,
        reference,
        verdict,
        sentence,
        0,
        1,
        shape.count**-0.5,
    )


def _effective(shape: Shape, base: Shape | None) -> Measure:
    most = shape.directions
    value, before = effective_rank(shape.spectrum), effective_rank(base.spectrum) if base else None
    verdict = verdicts.rule(value / most, EFFECTIVE_WATCH, EFFECTIVE_COLLAPSED, high_is_bad=False)
    sentence = (
        f"The variance is as diverse as that of {value:.1f}{_error(shape, 'effective_rank', 1)} equal components."
    )
    if verdict != HEALTHY:
        sentence += f" That is few for {most:,}: use more varied data, more negatives or a lower learning rate."
    elif before is not None and value < EFFECTIVE_OF_BASE * before:
        verdict = WATCH
        sentence += f" With the base there are {before:.1f}: training flattened the space. Use fewer steps or a "
        sentence += "lower learning rate."
    reference = f"1 flat, at most {most:,}"
    return Measure(
        "effective_rank", "effective rank", value, before, reference, verdict, sentence, 0, most, most, digits=1
    )


def _ne_sum(shape: Shape, base: Shape | None) -> Measure:
    most = shape.directions
    value, before = ne_sum(shape.spectrum), ne_sum(base.spectrum) if base else None
    # The share of the first component the other way round, so it has the limits of that.
    verdict = HEALTHY
    if most > 2:
        limits = verdicts.FIRST_WATCH, verdicts.FIRST_COLLAPSED
        verdict = verdicts.rule(1.0 / value, *limits, high_is_bad=True)
    sentence = (
        f"All components together hold {value:.1f}{_error(shape, 'ne_sum', 1)} times what the strongest holds."
    )
    if verdict != HEALTHY:
        sentence += " One direction rules: look for a property of the texts (length, language) behind it."
    reference = f"1 one direction, at most {most:,}"
    return Measure("ne_sum", "NESum", value, before, reference, verdict, sentence, 1, most, most, digits=1)


def _iso_score(shape: Shape, base: Shape | None) -> Measure:
    value = iso_score(shape.spectrum, shape.dimension)
    before = iso_score(base.spectrum, base.dimension) if base else None
    even = max(shape.even - 1.0, 0.0) / max(shape.dimension - 1, 1)
    share = shape.spectrum.participation_ratio / shape.even
    limits = verdicts.PARTICIPATION_WATCH, verdicts.PARTICIPATION_COLLAPSED
    verdict = verdicts.rule(share, *limits, high_is_bad=False)
    sentence = (
        f"The variance fills {100 * value:.1f}{_error(shape, 'iso_score', 1, 100)} % of the dimensions evenly. Texts "
        "have topics: working models are far below 1."
    )
    if verdict != HEALTHY:
        sentence += " Here it is crowded into a handful of directions: use more varied data and more negatives."
    elif before is not None and 1 + value * (shape.dimension - 1) < verdicts.PARTICIPATION_OF_BASE * (
        1 + before * (shape.dimension - 1)
    ):
        verdict = WATCH
        sentence += f" With the base it is {before:.3f}: training flattened the space. Use fewer steps."
    reference = f"0 one direction, {even:.2f} isotropic"
    return Measure("iso_score", "IsoScore", value, before, reference, verdict, sentence, 0, 1, even)


def _alpha(shape: Shape, base: Shape | None) -> Measure | None:
    if shape.alpha is None:
        return None
    value, before = shape.alpha[0], base.alpha[0] if base and base.alpha else None
    verdict = verdicts.rule(value, ALPHA_WATCH, ALPHA_COLLAPSED, high_is_bad=True)
    power = f"{-value:.2f}".replace("-", "−")
    sentence = f"The variances fall as rank to the power of {power}{_error(shape, 'alpha', 2)}"
    if verdict != HEALTHY:
        sentence += ": so fast that the later components say nothing. Use more varied data and more negatives."
    elif before is not None and abs(value - before) > ALPHA_CHANGE:
        verdict = WATCH
        way = (
            "faster than with the base: training flattened the space"
            if value > before
            else "slower than with the base: what was structure looks more like noise"
        )
        sentence += f", {way}. Use fewer steps or a lower learning rate."
    else:
        sentence += "."
    reference = "0 even; about 1 works best in images"
    return Measure("alpha", "decay of the spectrum", value, before, reference, verdict, sentence, 0, 3, 1)


def _intrinsic(shape: Shape, base: Shape | None) -> Measure | None:
    if shape.intrinsic is None:
        return None
    value = shape.intrinsic.dimension
    before = base.intrinsic.dimension if base and base.intrinsic else None
    most = shape.dimension / 4
    limits = min(INTRINSIC_WATCH, most), min(INTRINSIC_COLLAPSED, most)
    verdict = verdicts.rule(value, *limits, high_is_bad=False)
    sentence = f"Close by, the documents vary in {value:.1f} ± {shape.intrinsic.error:.1f} ways (TwoNN)."
    if verdict != HEALTHY:
        sentence += (
            " Texts vary in more: training left a line or a sheet. Use more varied data, more negatives or a "
        )
        sentence += "lower learning rate."
    elif before is not None and value < INTRINSIC_OF_BASE * before:
        verdict = WATCH
        sentence += f" With the base there are {before:.1f}: training flattened the space. Use fewer steps."
    elif before is not None and value * INTRINSIC_OF_BASE > before:
        verdict = WATCH
        sentence += (
            f" With the base there are {before:.1f}: neighbourhoods look like noise now. Check the labels, "
        )
        sentence += "and lower the learning rate."
    reference = "texts: about 10 to 30"
    high = max(40.0, value, before or 0.0)
    return Measure(
        "intrinsic_dimension",
        "intrinsic dimension",
        value,
        before,
        reference,
        verdict,
        sentence,
        0,
        high,
        20,
        digits=1,
    )


def _dead(shape: Shape, base: Shape | None) -> Measure:
    value, before = shape.dead, base.dead if base else None
    verdict = verdicts.rule(value, DEAD_WATCH, DEAD_COLLAPSED, high_is_bad=True)
    count = round(value * shape.dimension)
    sentence = f"{count:,} of {shape.dimension:,} dimensions hardly vary."
    if verdict == HEALTHY and before is not None and value > before + DEAD_RISE:
        verdict = WATCH
        sentence += f" With the base it is {100 * before:.1f} %: training switched some off."
    if verdict != HEALTHY:
        sentence += (
            " They cost memory and say nothing: cut them off, or lower the learning rate if training made them."
        )
    return Measure("dead_dimensions", "dead dimensions", value, before, "0 none", verdict, sentence, 0, 1, 0)


def _signed(value: float) -> str:
    # A mean of -0.0004 is 0.
    return f"{round(value, 3) + 0.0:.3f}".replace("-", "−")


def _error(shape: Shape, key: str, digits: int = 3, times: float = 1.0) -> str:
    """The standard error of a number, as it stands behind it."""
    return f" ± {times * shape.errors[key]:.{digits}f}"


def _notes(shapes: Sequence[Shape]) -> list[str]:
    notes = [
        "± is one standard error of the sample (jackknife of ten groups), or where a cosine is meant, its deviation."
    ]
    for shape in shapes:
        if shape.intrinsic is None:
            notes.append(f"{shape.name}: too few different documents for an intrinsic dimension.")
        elif shape.intrinsic.duplicates:
            count = shape.intrinsic.duplicates
            notes.append(f"{shape.name}: {count:,} duplicates were left out for the intrinsic dimension.")
        if shape.alpha is None:
            notes.append(f"{shape.name}: too few components with variance to fit the decay of the spectrum.")
    return notes


def _quantiles(shapes: Sequence[Shape]) -> Table:
    columns = ["centred cosines", "mean", "deviation", *(f"{100 * share:g} %" for share in QUANTILES)]
    rows = []
    for shape in shapes:
        if shape.cosine:
            spread = shape.cosine
            numbers = [spread.mean, spread.deviation, *spread.quantiles.values()]
            rows.append([shape.name, *(_signed(number) for number in numbers)])
    even = [0.0, shapes[0].dimension ** -0.5, *even_quantiles(shapes[0].dimension).values()]
    rows.append(["even sphere", *(_signed(number) for number in even)])
    note = "Of random pairs of documents, their common direction taken out."
    return Table("How alike random documents are after centring", columns, rows, note)


def _picture(shapes: Sequence[Shape]) -> pictures.Picture:
    def draw(figure: Any) -> None:
        axes = figure.subplots()
        colours = list(zip(shapes, (pictures.MODEL, pictures.BASE), strict=False))
        for shape, colour in reversed(colours):
            held = shape.spectrum.shares[shape.spectrum.shares > 1e-9]
            axes.plot(np.arange(1, len(held) + 1), held, color=colour, linewidth=2)
            if shape.alpha:
                exponent, factor = shape.alpha
                ranks = np.array([1.0, len(held)])
                law = factor / shape.spectrum.variances.sum() * ranks**-exponent
                axes.plot(ranks, law, color=colour, linewidth=1, linestyle=(0, (3, 2)))
        for row, (shape, colour) in enumerate(colours):
            words = pictures.short(shape.name.rstrip("/").rpartition("/")[2], 30)
            words += f": {shape.alpha[0]:.2f}".replace("-", "−") if shape.alpha else ""
            axes.text(0.03, 0.16 - 0.085 * row, words, transform=axes.transAxes, ha="left", color=colour)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(
            lambda value, _: f"{value:g}"
        )  # powers of ten want the math that is off here
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.minorticks_off()
        axes.grid(axis="y")
        axes.set_xlabel("principal components, strongest first")
        axes.set_ylabel("share of the variance")

    return pictures.picture(
        "decay",
        "How fast the variance falls off",
        "Share of the variance in each principal component, both axes logarithmic, with the power law fitted to it "
        "(dashed). A steep fall means few directions; a flat line is noise or an even sphere.",
        3.1,
        draw,
    )


def _numbers(shape: Shape) -> dict[str, Any]:
    return {
        "name": shape.name,
        "documents": shape.count,
        "dimension": shape.dimension,
        "centred_random_pairs": of_spread(shape.cosine) if shape.cosine else None,
        "resultant_length": rounded(shape.resultant),
        "kappa": rounded(shape.kappa),
        "effective_rank": rounded(effective_rank(shape.spectrum)),
        "ne_sum": rounded(ne_sum(shape.spectrum)),
        "iso_score": rounded(iso_score(shape.spectrum, shape.dimension)),
        "alpha": rounded(shape.alpha[0]) if shape.alpha else None,
        "intrinsic_dimension": {
            "value": rounded(shape.intrinsic.dimension),
            "error": rounded(shape.intrinsic.error),
            "documents": shape.intrinsic.points,
            "duplicates": shape.intrinsic.duplicates,
        }
        if shape.intrinsic
        else None,
        "dead_dimensions": rounded(shape.dead),
        "standard_errors": {
            key: rounded(value) for key, value in shape.errors.items() if key != "alpha" or shape.alpha
        },
    }
