"""A breaker's trip integral by its formula: above its limit dt (r - 1)^a / k, below it decay.

In: a load over time, its limit, the constants of a record. Out: θ over time; it trips at 1.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rackproof.diagnostics.power.values import Array


@dataclass(frozen=True, slots=True)
class Curve:
    """t_trip = k / (r - 1)^a in s; below its limit θ falls with the time constant `decay`, s."""

    k: float
    a: float
    decay: float

    @property
    def known(self) -> bool:
        """Whether all of it is a number that can be."""
        return all(0.0 < each < math.inf for each in (self.k, self.a, self.decay))


def curve(settings: Mapping[str, float]) -> Curve:
    """Return the curve that a record names; NaN where it does not."""
    return Curve(*(settings.get(f"breaker.{key}", math.nan) for key in ("k", "a", "decay")))


def strain(watts: Array, every: float, limit: float, of: Curve, begin: float = 0.0) -> Array:
    """Return θ after each part of `every` s of a load (W); NaN from where the load is not known."""
    over = watts / limit - 1.0
    adds = every * np.maximum(over, 0.0) ** of.a / of.k
    keeps = math.exp(-every / of.decay)
    found = np.empty(len(watts))
    theta = begin
    for place, (much, add) in enumerate(zip(over.tolist(), adds.tolist(), strict=True)):
        theta = theta * keeps if much <= 0.0 else theta + add
        found[place] = theta
    return found
