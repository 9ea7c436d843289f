"""How all GPUs of a house keep their power limits: governor.py's rules, for arrays of GPUs.

In: limits and what the loads demand, W (shape: GPUs). Out: Pieces, one for each GPU, in which its
power is driven to ``level + decay x exp(-t / TAU_CAP_S)``.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rackproof.harness.devices.emulated.governor import (
    CAP_DEAD_S,
    EXCURSION,
    NEAR_W,
    TAU_CAP_S,
)
from rackproof.harness.power.zone import Array

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Pieces:
    """What each GPU is driven to, and for how long at most, as governor.Piece (shapes: GPUs)."""

    seconds: Array
    level: Array
    decay: Array
    capped: Flags
    moving: bool
    """Whether any decay is not 0."""


class Ceilings:
    """The ceilings that the GPUs' powers have now. They begin at their limits."""

    def __init__(self, limit: Array) -> None:
        self.limit = limit.copy()
        self._ceiling = limit.copy()
        self._dead = np.zeros_like(limit)
        self._demand = np.zeros_like(limit)
        self._never = np.full_like(limit, np.inf)
        self._still = np.zeros_like(limit)

    def set(self, limit: Array, *, at_once: bool = False) -> None:
        """Go to other limits; `at_once` where they have been in force for long."""
        changed = limit != self.limit
        if not changed.any():
            return
        self.limit = limit.copy()
        self._dead[changed] = 0.0 if at_once else CAP_DEAD_S
        if at_once:
            self._ceiling[changed] = limit[changed]

    def meet(self, demand: Array) -> None:
        """Take loads that demand so many W from now on."""
        jumps = (self._demand <= self.limit) & (self.limit < demand) & (self._dead <= 0.0)
        if jumps.any():
            free = np.maximum(self._ceiling, np.minimum(demand, EXCURSION * self.limit))
            self._ceiling = np.where(jumps, free, self._ceiling)
            self._dead[jumps] = CAP_DEAD_S
        self._demand = demand

    def pieces(self) -> Pieces:
        """Return what the loads are driven to from now on, until that changes by itself."""
        demand, limit, gap = self._demand, self.limit, self._ceiling - self.limit
        dead, near = self._dead > 0.0, np.abs(gap) <= 2.0 * NEAR_W
        if near.all() and not dead.any():
            level = np.minimum(demand, limit)
            return Pieces(self._never, level, self._still, level < demand - NEAR_W, moving=False)
        above = demand - limit
        open_ = (gap > 0.0) & (demand < self._ceiling - NEAR_W)
        under = (gap < 0.0) & (demand <= self._ceiling + NEAR_W)
        far = np.where(gap < 0.0, np.minimum(above, -NEAR_W), NEAR_W)
        # The ceiling comes down to the load, where it gets there at all; else to its limit.
        comes = open_ & (above > NEAR_W)
        ratio = np.where(comes, gap / np.where(comes, above, 1.0), gap / far)
        ends = comes | ~(near | open_ | under)
        seconds = np.where(ends, TAU_CAP_S * np.log(np.where(ends, ratio, 1.0)), np.inf)
        moves = ~(dead | near | open_ | under)
        level = np.where(open_ | under, demand, np.where(near, np.minimum(demand, limit), limit))
        level = np.where(dead, np.minimum(demand, self._ceiling), level)
        steady = (dead | near) & (level < demand - NEAR_W)
        return Pieces(
            seconds=np.where(dead, self._dead, np.where(near, np.inf, seconds)),
            level=level,
            decay=np.where(moves, gap, 0.0),
            capped=moves | steady,
            moving=bool(moves.any()),
        )

    def advance(self, seconds: Array) -> None:
        """Let time pass for each GPU; no longer than its piece holds."""
        dead = self._dead > 0.0
        gap = self._ceiling - self.limit
        if dead.any():
            left = np.where(seconds < self._dead, self._dead - seconds, 0.0)
            gap = np.where(dead, gap, gap * np.exp(-seconds / TAU_CAP_S))
            self._dead = np.where(dead, left, self._dead)
        elif gap.any():
            gap = gap * np.exp(-seconds / TAU_CAP_S)
        else:
            return
        self._ceiling = self.limit + gap
