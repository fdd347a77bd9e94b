"""Tuned weights mixed with those training started from, and which mixture is kept (LM-Cocktail, Xiao et al. 2023)."""

import dataclasses
import math
from collections.abc import Collection, Mapping

from torch import Tensor

# Shares of the tuned weights that are tried.
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)

# What a general set may lose: half a point of nDCG.
ALLOWED_DROP = 0.005


def interpolate(
    base: Mapping[str, Tensor], tuned: Mapping[str, Tensor], share: float, *, keep: Collection[str] = ()
) -> dict[str, Tensor]:
    """`share` of the tuned weights and the rest of the base ones, name by name (LM-Cocktail, equation 1).

    0 gives the base and 1 the tuned weights to the bit. Whole numbers, and what `keep` names (buffers), are the tuned
    model's. Raises ValueError where the two are not weights of one architecture, and for a share outside 0 to 1.
    """
    if not 0 <= share <= 1:
        raise ValueError(f"a share of {share} of the tuned weights; it goes from 0 to 1")
    if base.keys() != tuned.keys():
        other = sorted(base.keys() ^ tuned.keys())
        raise ValueError(f"the weights have other names before and after training: {', '.join(other[:3])}")
    mixed: dict[str, Tensor] = {}
    for name, after in tuned.items():
        before = base[name]
        if before.shape != after.shape:
            raise ValueError(
                f"{name} has shape {tuple(before.shape)} before and {tuple(after.shape)} after training"
            )
        if name in keep or not after.is_floating_point() or share == 1:
            mixed[name] = after.clone()
        elif share == 0:
            mixed[name] = before.to(after).clone()
        else:
            mixed[name] = before.to(after.device).float().lerp(after.float(), share).to(after.dtype)
    return mixed


@dataclasses.dataclass(frozen=True)
class Choice:
    """The share of the tuned weights that is kept, its dev value, and one sentence why."""

    share: float
    value: float
    why: str


def choose(
    dev: Mapping[float, float], guard: Mapping[float, float] | None = None, allowed_drop: float = ALLOWED_DROP
) -> Choice:
    """The share with the best dev value among those that lose at most `allowed_drop` on the guard set.

    The loss on the guard is against share 0, the base, which is always allowed. Of equal dev values the smallest
    share wins: it moved least for what it gives. Raises ValueError where a share, or the base, was not measured.
    """
    shares = sorted(dev)
    measured = [*dev.values(), *(guard or {}).values()]
    if not shares or not all(map(math.isfinite, measured)):
        raise ValueError("every share needs a dev value, and every value has to be a number")
    if guard is not None and (0.0 not in guard or not set(dev) <= set(guard)):
        raise ValueError("the guard needs a value for every share, and for the base (share 0)")

    def lost(share: float) -> float:
        return guard[0.0] - guard[share] if guard else 0.0

    # A drop of exactly what is allowed must not fall to the last bit of a difference.
    allowed = [share for share in shares if lost(share) <= allowed_drop + 1e-12]
    if not allowed:  # share 0 is none of the candidates
        raise ValueError(f"every share loses more than {allowed_drop} on the guard; put the base (0) among them")
    kept = max(allowed, key=lambda share: (dev[share], -share))
    best = max(shares, key=lambda share: (dev[share], -share))
    parts = [f"{_told(kept)} had the best dev value, {dev[kept]:.4f}"]
    if best != kept and guard:
        parts = [
            f"{_told(best)} had the best dev value, {dev[best]:.4f}, but lost {lost(best):.4f} on the guard, more than "
            f"{allowed_drop:g}; {_told(kept)} was the best of those that did not, {dev[kept]:.4f}"
        ]
    others = [f"{share:g}: {dev[share]:.4f}" for share in shares if share != kept]
    if others:
        parts.append(f"the other shares of the tuned weights {', '.join(others)}")
    if guard:
        parts.append(f"on the guard {guard[kept]:.4f} after {guard[0.0]:.4f}")
    return Choice(kept, dev[kept], "; ".join(parts))


def _told(share: float) -> str:
    if share in (0.0, 1.0):
        return "the tuned model" if share else "the base model"
    return f"{share:g} of the tuned weights"
