"""A breaker with memory: how long it lets an overload pass, and how it forgets.

In: the power through it, W. Out: its strain (the trip integral, 0..1) and whether it tripped.

    r = P / P_rated,   t_trip = k / (r - 1)^a
    strain grows by dt / t_trip where r > 1, and decays with a time constant below; at 1 it trips

A tripped breaker stays tripped until somebody closes it. Over the ticks of a run the strain has a
closed form: with C the product of the decays up to a tick and g what each tick adds, it is
C (strain before + sum of g / C).
"""

import math
from dataclasses import dataclass

import numpy as np

from rackproof.harness.errors import SpecError
from rackproof.harness.power.zone import Array

TRIPS = 1.0
"""The strain at which it trips."""
_PIECE_S = 30.0
"""Times the decay: so much at once, so that the closed form stays far from the smallest number."""


@dataclass(frozen=True, slots=True)
class Curve:
    """A trip curve: ``k / (r - 1)^a`` s at r times the rating; `decay` in s below it."""

    k: float
    a: float
    decay: float

    def __post_init__(self) -> None:
        """Refuse a curve that is none."""
        for name in ("k", "a", "decay"):
            value = getattr(self, name)
            if not (value > 0.0 and math.isfinite(value)):
                msg = f"a trip curve's {name} is above 0, not {value!r}"
                raise SpecError(msg)

    def seconds(self, ratio: float) -> float:
        """Return how long it holds at `ratio` times the rating, s; inf where it always does."""
        return self.k / (ratio - 1.0) ** self.a if ratio > 1.0 else math.inf


class Breaker:
    """One breaker: `strain` and `tripped`; `rated` (W) may be changed while it is in use."""

    def __init__(self, rated: float, curve: Curve) -> None:
        self.rated = rated
        self.curve = curve
        self.strain = 0.0
        self.tripped = False

    @property
    def rated(self) -> float:
        """The power that it carries for ever, W."""
        return self._rated

    @rated.setter
    def rated(self, watts: float) -> None:
        if not (watts > 0.0 and math.isfinite(watts)):
            msg = f"a breaker is rated for more than 0 W, not {watts!r}"
            raise SpecError(msg)
        self._rated = watts

    def trip_in(self, watts: float) -> float:
        """Return the seconds until it trips under a constant load; inf for never, 0 if it has."""
        if self.tripped:
            return 0.0
        return (TRIPS - self.strain) * self.curve.seconds(watts / self._rated)

    def run(self, watts: Array, dt: float) -> None:
        """Let `watts` pass, one for each tick of `dt` s. ValueError where one is NaN."""
        if self.tripped or not len(watts):
            return
        highest = float(watts.max())
        if math.isnan(highest):
            msg = "a power that is no number"
            raise ValueError(msg)
        if highest <= self._rated:
            self.strain *= math.exp(-dt * len(watts) / self.curve.decay)
            return
        size = max(1, int(_PIECE_S * self.curve.decay / dt))
        for begin in range(0, len(watts), size):
            if self._trips(watts[begin : begin + size], dt):
                return

    def close(self) -> None:
        """Close it again by hand, its memory gone."""
        self.strain, self.tripped = 0.0, False

    def _trips(self, watts: Array, dt: float) -> bool:
        over = np.maximum(watts / self._rated - 1.0, 0.0)
        gained = dt / self.curve.k * over**self.curve.a
        kept = np.exp(np.cumsum(over <= 0.0) * (-dt / self.curve.decay))
        strain = kept * (self.strain + np.cumsum(gained / kept))
        self.tripped = bool(strain.max() >= TRIPS)
        self.strain = TRIPS if self.tripped else float(strain[-1])
        return self.tripped
