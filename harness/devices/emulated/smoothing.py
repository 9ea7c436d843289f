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


@dataclass(frozen=True, slots=True)
class Profile:
    """An active profile: `floor` in W, `up` and `down` in W/s (0: at once), `hysteresis` in s."""

    floor: float
    up: float
    down: float
    hysteresis: float


class Smoother:
    """What stands between a load and the board; it begins idle at `watts`."""

    def __init__(self, profile: Profile, watts: float) -> None:
        self.profile = profile
        self._watts = watts
        self._demand = watts
        self._loaded = False
        self._held = 0.0

    def meet(self, demand: float) -> None:
        """Take a load that demands so many W from now on."""
        self._demand = demand
        if demand >= self.profile.floor:
            self._loaded, self._held = True, self.profile.hysteresis
        elif self._held <= 0.0:
            self._loaded = False
        self._jump()

    @property
    def _goal(self) -> float:
        held = self._loaded and self._demand < self.profile.floor
        return self.profile.floor if held else self._demand

    def _jump(self) -> None:
        """Go to the goal at once where there is no rate."""
        rate = self.profile.up if self._goal > self._watts else self.profile.down
        if rate <= 0.0:
            self._watts = self._goal

    def piece(self) -> tuple[float, float, float]:
        """Return seconds, W and W/s of what is asked for, until that changes by itself."""
        goal, until = self._goal, math.inf
        if self._loaded and self._demand < self.profile.floor:
            until = self._held
        if goal == self._watts:
            return until, self._watts, 0.0
        slope = self.profile.up if goal > self._watts else -self.profile.down
        return min(until, (goal - self._watts) / slope), self._watts, slope

    def advance(self, seconds: float) -> None:
        """Let time pass; no longer than the piece that holds."""
        until, watts, slope = self.piece()
        if slope:
            self._watts = watts + slope * seconds
            if seconds >= until and abs(self._watts - self._goal) < NEAR_W:
                self._watts = self._goal
        if self._loaded and self._demand < self.profile.floor:
            self._held = max(0.0, self._held - seconds)
            if self._held <= 0.0:
                self._loaded = False
                self._jump()
