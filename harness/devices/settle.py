"""The settle gate: a burn begins on a GPU that has come to rest after the one before it.

In: a way to take samples, a clock, and a way to let time pass. Out: whether the GPU rests, within a
bound: hardly utilised, and power and temperature steady over a window. A bandwidth that is taken
while the last burn's work still drains is too low, and accuses a healthy GPU.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rackproof.harness.clock import Clock
from rackproof.harness.errors import DeviceError, Lost, NotPresent

IDLE = 5.0
"""A GPU that is utilised for at most this share of its time (in %) rests: daemons read sensors."""
POWER_W, POWER_SHARE = 5.0, 0.03
"""Power is steady within 5 W or 3 %, whichever is more: idle sensors waver by a few watts."""
TEMPERATURE_C = 1.0
"""Temperature is steady within one step of its sensor."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Utilisation in %, power in W, temperature in C; None is what the driver does not say."""

    utilisation: float | None
    power: float | None
    temperature: float | None


@dataclass(frozen=True, slots=True)
class Gate:
    """How long to look: seconds between samples, of the window, and at most.

    NVML's utilisation and average power are over up to a second, so the bound allows for several.
    """

    step: float = 0.1
    window: float = 0.5
    bound: float = 10.0


def optional(read: Callable[[], float]) -> float | None:
    """Return a reading, or None where the driver does not give it; raises Lost and NotPresent."""
    try:
        return read()
    except (Lost, NotPresent):
        raise
    except DeviceError:
        return None


def _spread(values: Sequence[float | None]) -> tuple[float, float]:
    """Return how far values lie apart, and the largest; zeros where nothing was read."""
    known = [value for value in values if value is not None]
    return (max(known) - min(known), max(known)) if known else (0.0, 0.0)


def rests(samples: Sequence[Sample]) -> bool:
    """Say whether a GPU was at rest during these samples."""
    power, most = _spread([s.power for s in samples])
    heat, _ = _spread([s.temperature for s in samples])
    _, busiest = _spread([s.utilisation for s in samples])
    steady = power <= max(POWER_W, POWER_SHARE * most) and heat <= TEMPERATURE_C
    return busiest <= IDLE and steady


def settle(
    take: Callable[[], Sample], clock: Clock, sleep: Callable[[float], None], gate: Gate
) -> Sample | None:
    """Wait until the GPU rests; return None, or at the bound the last sample.

    Raises what `take` raises.
    """
    begun = clock.now()
    seen: list[tuple[float, Sample]] = []
    while True:
        now = clock.now()
        seen.append((now, take()))
        recent = [sample for at, sample in seen if at >= now - gate.window]
        if now - begun >= gate.window and rests(recent):
            return None
        if now - begun >= gate.bound:
            return seen[-1][1]
        sleep(gate.step)
