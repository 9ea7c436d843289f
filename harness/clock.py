"""Time, injected. An emulated device owns a VirtualClock; a real one reads the machine's."""

import time
from typing import Protocol


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
    """Simulated seconds: they pass only when somebody advances them."""

    def __init__(self, start: float = 0.0) -> None:
        """Begin at `start` seconds."""
        self._now = start

    def now(self) -> float:
        """Return simulated seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let `seconds` pass; a negative number is a ValueError."""
        if not seconds >= 0:
            msg = f"time cannot go back by {seconds} s"
            raise ValueError(msg)
        self._now += seconds
