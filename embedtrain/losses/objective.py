"""The objective of a run: its losses, their weights, and what of them is learned with the model."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from embedtrain.errors import UsageError
from embedtrain.losses.combined import TEMPERED, combined, total
from embedtrain.losses.inputs import Inputs
from embedtrain.losses.settings import Settings

# A learned temperature stays in here. 0.01: CLIP keeps the scale at 100 or less, which training needed to be stable
# (Radford et al. 2021, section 2.5). 1: unit vectors cannot part further than 2, so that no softmax above it gets sharp.
LOWEST, HIGHEST = 0.01, 1.0


class Objective(nn.Module):
    """A weighted sum of losses. Parameters are only those that are learned; logarithms, so that scales stay positive.

    `siglip` learns its scale and bias (Zhai et al. 2023, section 3.2). Every process computes the whole loss, so
    the gradients of these parameters are whole on each and must not be summed over processes. Raises UsageError
    where a temperature is to be learned that no loss has.
    """

    log_temperature: nn.Parameter | None
    siglip_log_scale: nn.Parameter | None
    siglip_bias: nn.Parameter | None

    def __init__(
        self, weights: Mapping[str, float], settings: Settings, *, learn_temperature: bool = False
    ) -> None:
        super().__init__()
        self.weights = dict(weights)
        self._fixed = settings
        self.log_temperature = self.siglip_log_scale = self.siglip_bias = None
        if learn_temperature:
            if not set(weights) & set(TEMPERED):
                raise UsageError(
                    f"--learn-temperature: {', '.join(weights)} has none; the losses with one are "
                    f"{', '.join(TEMPERED)}"
                )
            temperature = float(settings.temperature)
            if not LOWEST <= temperature <= HIGHEST:
                raise UsageError(
                    f"--temperature {temperature:g}: with --learn-temperature it stays from {LOWEST} to {HIGHEST}; "
                    "start inside"
                )
            self.log_temperature = _parameter(math.log(temperature))
        if "siglip" in weights:
            scale = float(settings.siglip_scale)
            if not 1 / HIGHEST <= scale <= 1 / LOWEST:
                raise ValueError(f"siglip_scale {scale:g}: it is learned from 1 to 100; start inside")
            self.siglip_log_scale = _parameter(math.log(scale))
            self.siglip_bias = _parameter(float(settings.siglip_bias))

    def settings(self) -> Settings:
        """The settings with learned scalars as tensors that take a gradient.

        A parameter that the last step brought out of its range is put back first, as CLIP does: a clamp in the
        formula would give it no gradient and leave it there for good.
        """
        with torch.no_grad():
            if self.log_temperature is not None:
                self.log_temperature.clamp_(math.log(LOWEST), math.log(HIGHEST))
            if self.siglip_log_scale is not None:
                self.siglip_log_scale.clamp_(-math.log(HIGHEST), -math.log(LOWEST))
        learned: dict[str, Any] = {}
        if self.log_temperature is not None:
            learned["temperature"] = self.log_temperature.exp()
        if self.siglip_log_scale is not None and self.siglip_bias is not None:
            learned |= {"siglip_scale": self.siglip_log_scale.exp(), "siglip_bias": self.siglip_bias}
        return replace(self._fixed, **learned)

    def forward(self, inputs: Inputs, settings: Settings) -> tuple[Tensor, dict[str, Tensor]]:
        """The weighted sum, a scalar to go back from, and its unweighted parts; `settings` are `self.settings()`."""
        parts = combined(self.weights, inputs, settings)
        return total(self.weights, parts, settings), parts

    def state(self) -> dict[str, float]:
        """What has been learned, as plain numbers to save with the model: empty where nothing is."""
        settings = self.settings()
        names = ("temperature", "siglip_scale", "siglip_bias")
        found = {name: getattr(settings, name) for name in names}
        return {name: float(value.detach()) for name, value in found.items() if isinstance(value, Tensor)}


def _parameter(value: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(value, dtype=torch.float32))
