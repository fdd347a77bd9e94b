"""What a space's numbers mean: each measure with its reference, a verdict and a sentence.

A number is judged against what chance or an even sphere would give and, where a base model is given, against that
of the base. The limits stand at the top; they are rules of thumb, set so that working models pass.
"""

import dataclasses

from embedtrain.diagnose.geometry import Contrast, Spectrum, Spread, uniformity_of_sphere
from embedtrain.diagnose.section import COLLAPSED, HEALTHY, WATCH, Measure

# Random texts this alike leave cosine nothing to work with; below, a high cosine alone is no fault.
COSINE_COLLAPSED, COSINE_WATCH, COSINE_RISE = 0.99, 0.9, 0.15
# Mean squared distance of random pairs is 2 - 2 cos, and uniformity about -2 times that.
UNIFORMITY_COLLAPSED, UNIFORMITY_WATCH, UNIFORMITY_RISE = -0.04, -0.4, 0.6
# Squared distance of positive pairs over that of random pairs: 1 means that training taught nothing.
ALIGNMENT_COLLAPSED, ALIGNMENT_WATCH, ALIGNMENT_RISE = 0.95, 0.8, 0.15
SEPARATION_COLLAPSED, SEPARATION_WATCH, SEPARATION_FALL = 0.6, 0.8, 0.02
# Shares of the dimensions there could be. 95 % of the variance in 50 of 768 is the field's alarm: 0.065.
COMPONENTS_COLLAPSED, COMPONENTS_WATCH = 0.05, 0.1
RANK_COLLAPSED, RANK_WATCH, RANK_OF_BASE = 0.05, 0.15, 0.6
PARTICIPATION_COLLAPSED, PARTICIPATION_WATCH, PARTICIPATION_OF_BASE = 0.01, 0.03, 0.4
FIRST_COLLAPSED, FIRST_WATCH = 0.8, 0.4

SHARES = (0.5, 0.9, 0.95, 0.99)


@dataclasses.dataclass(frozen=True)
class Space:
    """The numbers of one model on one sample of documents and positive pairs."""

    name: str
    dimension: int
    documents: int
    alignment: float
    uniformity: float
    cosine: Spread  # of distinct pairs of documents
    contrast: Contrast
    spectrum: Spectrum
    rank_me: float

    @property
    def directions(self) -> int:
        """The most directions the sample could vary in."""
        return min(self.dimension, self.documents - 1)


def judge(space: Space, base: Space | None = None) -> list[Measure]:
    """All measures of a space, the ones closest to retrieval first."""
    return [
        _separation(space, base),
        _alignment(space, base),
        _cosine(space, base),
        _uniformity(space, base),
        _components(space, base),
        _first(space, base),
        _rank(space, base),
        _participation(space, base),
    ]


def rule(value: float, watch: float, collapsed: float, *, high_is_bad: bool) -> str:
    """The verdict on a value by the limits from which it is one to watch, and a collapse."""
    sign = 1 if high_is_bad else -1
    if sign * value >= sign * collapsed:
        return COLLAPSED
    return WATCH if sign * value >= sign * watch else HEALTHY


def _separation(space: Space, base: Space | None) -> Measure:
    value, before = space.contrast.separation, base.contrast.separation if base else None
    verdict = rule(value, SEPARATION_WATCH, SEPARATION_COLLAPSED, high_is_bad=False)
    sentence = f"A positive scores above a random document of the sample {100 * value:.1f} % of the time."
    if before is not None and value < before - SEPARATION_FALL and verdict == HEALTHY:
        verdict = WATCH
        sentence += f" The base did so {100 * before:.1f} % of the time: training cost it something."
    if verdict != HEALTHY:
        sentence += " Look for noisy positives, a learning rate that is too high, or too few negatives."
    return Measure(
        "separation", "positives above random", value, before, "0.5 chance, 1 always", verdict, sentence, 0.5, 1, 1
    )


def _relative_alignment(space: Space) -> float:
    unrelated = 2.0 - 2.0 * float(space.contrast.random.mean())
    return space.alignment / unrelated if unrelated > 1e-9 else 1.0


def _alignment(space: Space, base: Space | None) -> Measure:
    unrelated = 2.0 - 2.0 * float(space.contrast.random.mean())
    ratio = _relative_alignment(space)
    verdict = rule(ratio, ALIGNMENT_WATCH, ALIGNMENT_COLLAPSED, high_is_bad=True)
    sentence = (
        f"Positive pairs are {space.alignment:.3f} apart (mean squared distance), unrelated pairs {unrelated:.3f}"
    )
    if verdict == HEALTHY:
        sentence += f": {100 * ratio:.0f} % of the way."
        if base is not None and ratio > _relative_alignment(base) + ALIGNMENT_RISE:
            verdict = WATCH
            sentence += (
                f" For the base it is {100 * _relative_alignment(base):.0f} %: positives have drifted away."
            )
    else:
        sentence += ": a query is hardly nearer to its answer than to anything else. Check the positives first."
    reference = "0 perfect, 2 unrelated"
    before = base.alignment if base else None
    return Measure("alignment", "alignment", space.alignment, before, reference, verdict, sentence, 0, 2, 0)


def _cosine(space: Space, base: Space | None) -> Measure:
    value, before = space.cosine.mean, base.cosine.mean if base else None
    verdict = rule(value, COSINE_WATCH, COSINE_COLLAPSED, high_is_bad=True)
    sentence = f"Two random documents have a cosine of {value:.3f} ± {space.cosine.deviation:.3f}"
    if verdict == COLLAPSED:
        sentence += ": everything looks like everything. Raise the temperature, lower the learning rate, and use "
        sentence += "larger batches or more negatives."
    elif verdict == WATCH:
        sentence += ": little room is left between any two texts; see whether the positives still stand out."
    elif before is not None and value > before + COSINE_RISE:
        verdict = WATCH
        sentence += f", {value - before:.2f} more than with the base: training pulled everything together. "
        sentence += "Try larger batches, more negatives or fewer steps."
    elif value > 0.5:
        sentence += ". High, and no fault in itself: a low training temperature does this, and ranking needs "
        sentence += "differences, not low values. A fixed cosine threshold from another model does not carry over."
    else:
        sentence += ": unrelated texts are far apart."
    reference = f"0 ± {space.dimension**-0.5:.3f} even sphere"
    return Measure("random_cosine", "random-pair cosine", value, before, reference, verdict, sentence, 0, 1, 0)


def _uniformity(space: Space, base: Space | None) -> Measure:
    value, before = space.uniformity, base.uniformity if base else None
    best = uniformity_of_sphere(space.dimension)
    verdict = rule(value, UNIFORMITY_WATCH, UNIFORMITY_COLLAPSED, high_is_bad=True)
    if verdict != HEALTHY:
        sentence = (
            "Documents fill next to nothing of the sphere. More negatives and larger batches push them apart."
        )
    elif before is not None and value > before + UNIFORMITY_RISE:
        verdict = WATCH
        sentence = f"Documents are {value - before:.2f} less evenly spread than with the base."
    else:
        sentence = "Documents are spread over the sphere; topics that cluster keep this above the even value."
        if value > -2:
            sentence = "Documents sit in a part of the sphere, as low training temperatures leave them."
    reference = f"0 one point, −{-best:.3f} even sphere"
    return Measure("uniformity", "uniformity", value, before, reference, verdict, sentence, 0, -4, best)


def _components(space: Space, base: Space | None) -> Measure:
    value = space.spectrum.components(0.95)
    verdict = rule(value / space.directions, COMPONENTS_WATCH, COMPONENTS_COLLAPSED, high_is_bad=False)
    counts = [space.spectrum.components(share) for share in SHARES]
    sentence = "50, 90, 95 and 99 % of the variance lie in {}, {}, {} and {} components.".format(*counts)
    if verdict != HEALTHY:
        sentence += f" That is few for {space.directions} possible ones: most dimensions carry nothing."
    return Measure(
        "components_95",
        "components for 95 %",
        value,
        base.spectrum.components(0.95) if base else None,
        f"at most {space.directions:,}",
        verdict,
        sentence,
        0,
        space.directions,
        space.directions,
        digits=0,
    )


def _first(space: Space, base: Space | None) -> Measure:
    value = space.spectrum.first
    even = 1.0 / space.directions
    verdict = rule(value, FIRST_WATCH, FIRST_COLLAPSED, high_is_bad=True) if space.directions > 2 else HEALTHY
    sentence = f"The strongest component holds {100 * value:.1f} % of the variance."
    if verdict != HEALTHY:
        sentence += (
            " One direction rules the space: look for a property of the texts (length, language) behind it."
        )
    return Measure(
        "first_component",
        "share of the first",
        value,
        base.spectrum.first if base else None,
        f"{even:.3f} if all were equal",
        verdict,
        sentence,
        0,
        1,
        even,
    )


def _rank(space: Space, base: Space | None) -> Measure:
    most = min(space.dimension, space.documents)
    value, before = space.rank_me, base.rank_me if base else None
    verdict = rule(value / most, RANK_WATCH, RANK_COLLAPSED, high_is_bad=False)
    sentence = f"The vectors use as many directions as {value:.0f} equally strong ones would."
    if verdict == HEALTHY and before is not None and value < RANK_OF_BASE * before:
        verdict = WATCH
        sentence += f" That is {100 * value / before:.0f} % of the base: training flattened the space."
    elif verdict != HEALTHY:
        sentence += (
            " A space this flat keeps few distinctions: train with more varied data or a lower learning rate."
        )
    reference = f"1 flat, at most {most:,}"
    return Measure("rank_me", "RankMe", value, before, reference, verdict, sentence, 0, most, most, digits=1)


def _participation(space: Space, base: Space | None) -> Measure:
    value = space.spectrum.participation_ratio
    before = base.spectrum.participation_ratio if base else None
    even = space.documents * space.dimension / (space.documents + space.dimension)
    verdict = rule(value / even, PARTICIPATION_WATCH, PARTICIPATION_COLLAPSED, high_is_bad=False)
    sentence = f"{value:.0f} principal directions do most of the work."
    if verdict == HEALTHY and before is not None and value < PARTICIPATION_OF_BASE * before:
        verdict = WATCH
        sentence += f" With the base it was {before:.0f}."
    elif verdict != HEALTHY:
        sentence += " The variance is crowded into a handful of directions."
    reference = f"{even:.0f} if isotropic"
    return Measure(
        "participation_ratio",
        "participation ratio",
        value,
        before,
        reference,
        verdict,
        sentence,
        0,
        even,
        even,
        digits=1,
    )
