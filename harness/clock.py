"""Time, injected. An emulated device owns a VirtualClock; a real one reads the machine's."""

import math
import time
from typing import Protocol

from rackproof.harness.errors import OverTime


class Clock(Protocol):
    """Monotonic seconds."""

    def now(self) -> float:
        """Return monotonic seconds since an arbitrary start."""
        ...


class MachineClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()


class VirtualClock:
    """Simulated seconds: they pass only when somebody advances them, and not past `deadline`."""

    def __init__(self, start: float = 0.0) -> None:
        """Begin at `start` seconds."""
        self._now = start
        self.deadline = math.inf

    def now(self) -> float:
        """Return simulated seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; a negative number is a ValueError.

        Raises OverTime where they reach past the deadline, at which the clock then stands.
        """
        if not seconds >= 0:
            msg = f"time cannot go back by {seconds} s"
            raise ValueError(msg)
        if self._now + seconds > self.deadline:
            self._now = max(self._now, self.deadline)
            msg = f"its time limit has passed, at {self.deadline:.6g} s on the device's clock"
            raise OverTime(msg)
        self._now += seconds

    def lift(self, deadline: float) -> None:
        """Take a deadline away, unless there is another one by now."""
        if self.deadline == deadline:
            self.deadline = math.inf
