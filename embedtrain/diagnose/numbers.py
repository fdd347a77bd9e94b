"""The numbers of a space as they stand in diagnose.json."""

from typing import Any

from embedtrain.diagnose import geometry
from embedtrain.diagnose.section import Measure
from embedtrain.diagnose.verdicts import SHARES, Space


def rounded(value: float) -> float:
    """A number for the file."""
    # Six digits say all there is, and keep the last bits of another machine out; no -0.0.
    return round(float(value), 6) + 0.0


def of_spread(spread: geometry.Spread) -> dict[str, Any]:
    """How values lie."""
    return {
        "count": spread.count,
        "mean": rounded(spread.mean),
        "deviation": rounded(spread.deviation),
        "quantiles": {str(share): rounded(value) for share, value in spread.quantiles.items()},
    }


def of_space(space: Space) -> dict[str, Any]:
    """Everything that is known of a space."""
    return {
        "name": space.name,
        "dimension": space.dimension,
        "alignment": rounded(space.alignment),
        "uniformity": rounded(space.uniformity),
        "uniformity_of_even_sphere": rounded(geometry.uniformity_of_sphere(space.dimension)),
        "separation": rounded(space.contrast.separation),
        "random_document_pairs": of_spread(space.cosine),
        "positive_pairs": of_spread(geometry.Spread.of(space.contrast.positive)),
        "random_query_document_pairs": of_spread(geometry.Spread.of(space.contrast.random)),
        "components": {str(share): space.spectrum.components(share) for share in SHARES},
        "first_component": rounded(space.spectrum.first),
        "participation_ratio": rounded(space.spectrum.participation_ratio),
        "rank_me": rounded(space.rank_me),
        "variance_shares": [rounded(share) for share in space.spectrum.shares],
    }


def of_measure(measure: Measure) -> dict[str, Any]:
    """A measure, without what only a drawing needs."""
    return {
        "key": measure.key,
        "name": measure.name,
        "value": rounded(measure.value),
        "base": None if measure.base is None else rounded(measure.base),
        "reference": measure.reference,
        "verdict": measure.verdict,
        "sentence": measure.sentence,
    }
