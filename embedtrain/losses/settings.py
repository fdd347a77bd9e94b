"""The settings of the losses, checked once. What is left out is off; defaults are the options' (config.py)."""

import math
from dataclasses import dataclass

from torch import Tensor

from embedtrain.errors import UsageError

DIRECTIONS = ("q2d", "d2q", "q2q", "d2d")


def parse_dimensions(text: str) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Read `--matryoshka 384,192:0.5` into dimensions and their weights, 1 where none is given; empty: none."""
    dimensions, weights = [], []
    for part in text.split(",") if text else []:
        size, _, weight = part.strip().partition(":")
        try:
            dimensions.append(int(size))
            weights.append(float(weight) if weight else 1.0)
        except ValueError as error:
            raise UsageError(
                f"--matryoshka {text}: give dimensions, with weights or without, as 384,192:0.5"
            ) from error
    return tuple(dimensions), tuple(weights)


@dataclass(frozen=True)
class Settings:
    """Raises UsageError with the flag where a setting makes no sense (ValueError where it has none).

    A Tensor is a learned scalar.
    """

    temperature: float | Tensor  # scores are divided by it: 1 / scale
    teacher_temperature: float = 1.0
    standardize: bool = False  # teacher scores of a row to mean 0 and deviation 1
    directions: tuple[str, ...] = ("q2d",)
    joint: bool = False  # one softmax over all directions; else one each, averaged
    hardness: float = 0.0  # EmbeddingGemma's alpha (5 there)
    margin: float = 0.0  # of the triplet, in similarity
    siglip_scale: float | Tensor = 10.0  # SigLIP's start, section 3.2
    siglip_bias: float | Tensor = -10.0
    dimensions: tuple[int, ...] = ()  # matryoshka; empty: the whole vector alone
    dimension_weights: tuple[float, ...] = ()  # empty: all equal
    gor: float = 0.0  # weight of the spread-out regulariser

    def __post_init__(self) -> None:
        for flag, value in (
            ("--temperature", self.temperature),
            ("--teacher-temperature", self.teacher_temperature),
        ):
            if not isinstance(value, Tensor) and not 0 < value < math.inf:
                raise UsageError(f"{flag} {value}: give a number above 0 (temperature 0.05 is scale 20)")
        if not isinstance(self.siglip_scale, Tensor) and not 0 < self.siglip_scale < math.inf:
            raise ValueError(f"siglip_scale {self.siglip_scale}: a number above 0 is needed")
        for flag, number in (("--hardness", self.hardness), ("--margin", self.margin), ("--gor", self.gor)):
            if not 0 <= number < math.inf:
                raise UsageError(f"{flag} {number}: give 0 (off) or a number above it")
        named = ",".join(self.directions)
        unknown = [name for name in self.directions if name not in DIRECTIONS]
        if unknown:
            raise UsageError(
                f"--directions {named}: {unknown[0]!r} is none; the directions are {', '.join(DIRECTIONS)}"
            )
        if len(set(self.directions)) < len(self.directions):
            raise UsageError(f"--directions {named}: a direction stands twice")
        if "q2d" not in self.directions:
            raise UsageError(f"--directions {named}: q2d is what a search does; name it too")
        self._check_dimensions()

    def _check_dimensions(self) -> None:
        named = ",".join(map(str, self.dimensions))
        if any(size < 1 for size in self.dimensions) or len(set(self.dimensions)) < len(self.dimensions):
            raise UsageError(f"--matryoshka {named}: give different whole numbers above 0")
        weights = self.dimension_weights
        if weights and len(weights) != len(self.dimensions):
            raise UsageError(f"--matryoshka {named}: {len(self.dimensions)} dimensions, {len(weights)} weights")
        if not all(0 < weight < math.inf for weight in weights):
            raise UsageError(f"--matryoshka {named}: every weight must be above 0")

    def fits(self, size: int) -> None:
        """Refuse matryoshka dimensions that a model of `size` dimensions cannot have, or that leave it out."""
        named = ",".join(map(str, self.dimensions))
        if self.dimensions and max(self.dimensions) > size:
            raise UsageError(f"--matryoshka {named}: the model has {size} dimensions; name none above that")
        if self.dimensions and size not in self.dimensions:
            raise UsageError(f"--matryoshka {named}: the whole vector would go untrained; add {size}")
