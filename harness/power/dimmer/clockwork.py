"""The Dimmer's own time: the samples' seconds, without their jumps; and when it is due."""

import math

from rackproof.harness.power.dimmer.settings import Settings
from rackproof.harness.power.zone import Sample

_NEAR = 1e-6


class Clockwork:
    """Time that only goes on, and by no more than the time without a look that is bearable."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.now = 0.0
        self.event = True
        """Whether something happened that does not wait for the next cycle."""
        self._last: float | None = None
        self._next = 0.0
        self._moved = -math.inf

    def pass_to(self, sample: Sample) -> tuple[float, str]:
        """Return the seconds since the last look, and in words how the clock jumped, if it did."""
        at, last = sample.at, self._last
        own = sample.seconds if math.isfinite(sample.seconds) and sample.seconds > 0.0 else 0.0
        own = min(own, self._settings.silence)
        jump, seconds = "", own
        if not math.isfinite(at):
            jump, seconds = f"the clock says {at}: this look tells no time", 0.0
        elif last is not None and at < last - _NEAR:
            jump, seconds = f"the clock went back by {last - at:.3g} s: the windows begin anew", 0.0
        elif last is not None and at - last > self._settings.silence:
            jump = f"no look for {at - last:.4g} s: the windows begin anew"
            seconds = 0.0
        elif last is not None:
            seconds = max(at - last, 0.0)
        if math.isfinite(at):
            self._last = at
        self.now += seconds
        return seconds, jump

    def cycle(self) -> bool:
        """Return whether a cycle is over."""
        return self.now >= self._next - _NEAR

    def judged(self, *, cycle: bool) -> None:
        """The feeds were judged: by the cycle, or by an event, with which a new cycle begins."""
        if cycle or self.event:
            self._next = self.now + self._settings.cycle
        self.event = False

    def ramped(self) -> float:
        """Return the seconds for which a ramp may move now."""
        tick, cycle = self._settings.tick, self._settings.cycle
        passed = self.now - self._moved
        self._moved = self.now
        return tick if passed > cycle + tick else passed

    def due(self, at: float, *, moving: bool) -> float:
        """Return when the next look is wanted, at the latest, on the samples' clock."""
        at = at if math.isfinite(at) else (self._last or 0.0)
        wait = max(self._next - self.now, 0.0)
        if self.event:
            return at
        return at + (min(wait, self._settings.tick) if moving else wait)
