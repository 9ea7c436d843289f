"""What one GPU showed under a square wave: its edges, its traces by both sensors, its windows.

In: readings as they come. Out: numbers, or why there is none. The instantaneous sensor sees a wave;
the one that averages over a second hides it, and by how much each does is two of the numbers.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from rackproof.harness.burns.ecc import EccWindow
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import DeviceError
from rackproof.harness.power.together import given, tried
from rackproof.harness.power.wave import Wave
from rackproof.harness.power.window import PowerWindow

RISE = 0.1  # of the limit: a smaller swing is none
NEAR_LIMIT = 0.95  # from here on, as a share of the limit, the limit explains that it holds (PS3)
SLOWEST = Wave(0.1, 0.5)
HIDDEN = (Wave(1.0, 0.5), Wave(2.0, 0.5))
"""Waves that a second's average cannot show."""
INSTANT, AVERAGE = "power.instant", "power.average"
Key = tuple[int, Wave]
"""A round of the sweep, and a wave of it."""
Points = list[tuple[float, float]]
"""(seconds after the wave's start, W) in order."""


@dataclass(slots=True)
class Edge:
    """One period as a sensor saw it: low before, `looked` a little `after` the edge, high."""

    low: float
    after: float
    looked: float
    high: float


@dataclass(slots=True)
class Stepped:
    """What one GPU showed; `limit` in W. Times of `edges` and `traces` are after their start."""

    limit: float
    window: PowerWindow
    ecc: EccWindow
    steady: float | DeviceError = 0.0
    held: float | DeviceError = 0.0
    watts: list[float] = field(default_factory=list)
    margins: list[float | DeviceError] = field(default_factory=list)
    edges: list[Edge] = field(default_factory=list)
    traces: dict[Key, Points] = field(default_factory=lambda: defaultdict(list))
    averages: dict[Key, Points] = field(default_factory=lambda: defaultdict(list))
    means: list[float] = field(default_factory=list)
    mark: tuple[float, float | DeviceError] = (0.0, 0.0)
    blind: DeviceError | None = None
    unaveraged: DeviceError | None = None

    def look(self, device: Device) -> float:
        """Read the power right now; where it cannot be read, keep why, and return NaN."""
        found = tried(lambda: float(device.telemetry.read(INSTANT)))
        if isinstance(found, DeviceError):
            self.blind = self.blind or found
            return math.nan
        self.watts.append(found)
        return found

    def sample(self, device: Device, key: Key, at: float) -> None:
        """Read the power under a wave; by both sensors where that tells something."""
        self.traces[key].append((at, self.look(device)))
        if key[1] != SLOWEST and key[1] not in HIDDEN:
            return
        found = tried(lambda: float(device.telemetry.read(AVERAGE)))
        if isinstance(found, DeviceError):
            self.unaveraged = self.unaveraged or found
        else:
            self.averages[key].append((at, found))

    def seen(self, value: Callable[[], float]) -> float:
        """Return a value that rests on the sensor; raises why it gave none."""
        if self.blind is not None:
            raise self.blind
        return value()

    @property
    def rises(self) -> list[Edge]:
        """The edges that the sensor saw: the power after is well above that before."""
        return [edge for edge in self.edges if edge.high - edge.low >= RISE * self.limit]

    def delay(self) -> float:
        """Return how long after the edge half of the rise is seen, s; raises a DeviceError."""
        for edge in sorted(self.rises, key=lambda edge: edge.after):
            if edge.looked >= (edge.low + edge.high) / 2.0:
                return edge.after
        msg = f"no rising edge was seen in the {len(self.edges)} looks after it was made"
        raise DeviceError(msg)

    def swing(self, wave: Wave, *, averaged: bool = False) -> float:
        """Return the difference of high and low power under a wave, W; by which sensor."""
        traces = self.averages if averaged else self.traces
        trace = [watts for (_, own), t in traces.items() if own == wave for _, watts in t]
        return max(trace) - min(trace)

    def instant(self) -> float:
        """Return which share of the slowest swing the instantaneous sensor shows of HIDDEN."""
        return min(self.swing(wave) for wave in HIDDEN) / self._whole()

    def average(self) -> float:
        """Return which share of the slowest swing the averaging sensor shows of HIDDEN."""
        if self.unaveraged is not None:
            raise self.unaveraged
        return max(self.swing(wave, averaged=True) for wave in HIDDEN) / self._whole()

    def _whole(self) -> float:
        swing = self.swing(SLOWEST)
        if swing < RISE * self.limit:
            msg = f"the slowest wave swung by {swing:.0f} W only: there is nothing to see"
            raise DeviceError(msg)
        return swing

    def capped(self) -> float:
        """Return the share of the full load in which the software's power cap held for no reason.

        That a limit holds a GPU down that draws as much as the limit is what it is there for (PS3).
        """
        share = given(self.held)
        return share if given(self.steady) < NEAR_LIMIT * self.limit else 0.0
