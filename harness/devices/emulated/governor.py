"""How an emulated GPU keeps a power limit: late, and then gradually.

In: limits as they are set, and what a load demands, in W. Out: for a load that stays, pieces of
time in which the power that it is driven to is ``level + decay x exp(-t / TAU_CAP_S)``, so that
power and heat have exact solutions.

    a new limit    acts after CAP_DEAD_S and is approached with TAU_CAP_S, down and up
    an excursion   a load that jumps over the limit runs free for CAP_DEAD_S, to EXCURSION x limit

Marks as in physics.py.
"""

import math
from dataclasses import dataclass

TAU_POWER_S = 0.025
"""Lag of electrical power behind the load [a]."""
CAP_DEAD_S = 0.05
"""From a new limit, or a load over it, to the first effect [a]; about 100 ms in all [s, V100]."""
TAU_CAP_S = 0.05
"""How fast the power comes to the limit then [a]."""
EXCURSION = 1.5
"""The most that a load draws before the limit acts, over the limit [s, low confidence]."""
NEAR_W = 1e-3
"""A ceiling this close to where it goes is there."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Steady power ``level + decay x exp(-t / TAU_CAP_S)`` for `seconds`; `capped` by the limit.

    A smoothed load's power grows by `slope` W/s meanwhile (smoothing.py).
    """

    seconds: float
    level: float
    decay: float
    capped: bool
    slope: float = 0.0


class Governor:
    """The ceiling that one GPU's power has right now. It begins at its limit."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._ceiling = limit
        self._dead = 0.0
        self._demand = 0.0

    def set(self, limit: float, *, at_once: bool = False) -> None:
        """Go to another limit; `at_once` where it has been in force for long."""
        if limit == self.limit:
            return
        self.limit = limit
        self._dead = CAP_DEAD_S
        if at_once:
            self._ceiling, self._dead = limit, 0.0

    def meet(self, demand: float) -> None:
        """Take a load that demands so many W from now on."""
        if self._demand <= self.limit < demand and self._dead <= 0.0:
            self._ceiling = max(self._ceiling, min(demand, EXCURSION * self.limit))
            self._dead = CAP_DEAD_S
        self._demand = demand

    def piece(self) -> Piece:
        """Return what the load is driven to from now on, until that changes by itself."""
        demand, gap = self._demand, self._ceiling - self.limit
        if self._dead > 0.0:
            level = min(demand, self._ceiling)
            return Piece(self._dead, level, 0.0, level < demand - NEAR_W)
        if abs(gap) <= 2.0 * NEAR_W:
            level = min(demand, self.limit)
            return Piece(math.inf, level, 0.0, level < demand - NEAR_W)
        above = demand - self.limit
        if gap > 0.0 and demand < self._ceiling - NEAR_W:
            # The ceiling comes down to the load, or stays above it for good.
            until = TAU_CAP_S * math.log(gap / above) if above > NEAR_W else math.inf
            return Piece(until, demand, 0.0, capped=False)
        if gap < 0.0 and demand <= self._ceiling + NEAR_W:
            return Piece(math.inf, demand, 0.0, capped=False)
        far = min(above, -NEAR_W) if gap < 0.0 else NEAR_W
        return Piece(TAU_CAP_S * math.log(gap / far), self.limit, gap, capped=True)

    def advance(self, seconds: float) -> None:
        """Let time pass; no longer than the piece that holds."""
        if self._dead > 0.0:
            self._dead = self._dead - seconds if seconds < self._dead else 0.0
        else:
            gap = self._ceiling - self.limit
            self._ceiling = self.limit + gap * math.exp(-seconds / TAU_CAP_S)
