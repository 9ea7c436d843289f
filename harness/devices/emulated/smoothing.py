"""Power smoothing of one emulated GPU: a floor once it is loaded, and ramps both ways.

In: a profile, and what a load demands, in W. Out: pieces of time in which the power that is asked
of the board is ``watts + slope x t``, so that power and heat have exact solutions.

    up      at the profile's rate, whatever the load demands
    down    at the profile's rate, and never below the floor until the load has been below it for
            the hysteresis; then on to what the load demands

Marks: floor, rates and hysteresis are the driver's (NVML fields 260 to 263) [s]; that both rates
hold between any two powers, and that the hysteresis counts from the load's end, is assumed [a].
"""

import math
from dataclasses import dataclass

NEAR_W = 1e-6
"""A power this close to its goal is there."""
NEAR_S = 1e-9
"""No piece of a ramp is shorter, so that time always passes."""


@dataclass(frozen=True, slots=True)
class Profile:
    """An active profile: `floor` in W, `up` and `down` in W/s (0: at once), `hysteresis` in s."""

    floor: float
    up: float
    down: float
    hysteresis: float


class Smoother:
    """What stands between a load and the board; it begins at `watts`."""

    def __init__(self, profile: Profile, watts: float) -> None:
        self.profile = profile
        self._watts = watts
        self._demand = watts
        self._floor = profile.floor
        self._loaded = False
        self._held = 0.0

    def meet(self, demand: float, most: float = math.inf) -> None:
        """Take a load that demands so many W from now on, on a board that may draw `most` W."""
        self._demand, self._floor = min(demand, most), min(self.profile.floor, most)
        if self._demand >= self._floor:
            self._held = self.profile.hysteresis
        self._settle()

    @property
    def _holds(self) -> bool:
        return self._loaded and self._demand < self._floor

    @property
    def _goal(self) -> float:
        return self._floor if self._holds else self._demand

    def _settle(self) -> None:
        """See whether it is loaded, and go to the goal at once where there is no rate."""
        if self._holds and self._held <= 0.0:
            self._loaded = False
        rate = self.profile.up if self._goal > self._watts else self.profile.down
        if rate <= 0.0 or abs(self._watts - self._goal) < NEAR_W:
            self._watts = self._goal
        if self._demand >= self._floor and self._watts >= self._floor:
            self._loaded = True

    def piece(self) -> tuple[float, float, float]:
        """Return seconds, W and W/s of what is asked for, until that changes by itself."""
        goal, until = self._goal, self._held if self._holds else math.inf
        if goal == self._watts:
            return until, self._watts, 0.0
        slope = self.profile.up if goal > self._watts else -self.profile.down
        change = (goal - self._watts) / slope
        if not self._loaded and self._watts < self._floor < goal:  # from there on it is loaded
            change = (self._floor - self._watts) / slope
        return min(until, max(change, NEAR_S)), self._watts, slope

    def advance(self, seconds: float) -> None:
        """Let time pass; no longer than the piece that holds."""
        _, watts, slope = self.piece()
        self._watts = watts + slope * seconds
        if slope > 0.0:
            self._watts = min(self._watts, max(self._goal, watts))
        elif slope < 0.0:
            self._watts = max(self._watts, min(self._goal, watts))
        if not self._loaded and abs(self._watts - self._floor) < NEAR_W:
            self._watts = max(self._watts, self._floor) if slope > 0.0 else self._watts
        if self._holds:
            self._held = max(0.0, self._held - seconds)
        self._settle()
