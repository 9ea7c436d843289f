"""What counters say of a window: mean power by energy, and shares of it with the clocks held down.

In: a GPU and the time between two readings of its counters. Out: numbers, or why there is none.
"""

from dataclasses import dataclass, field
from functools import partial

from rackproof.harness.burns.base import Run
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import DeviceError
from rackproof.harness.power.together import given, tried

SHARES = {
    "throttled.thermal.share": "hw_thermal",
    "throttled.brake.share": "power_brake",
    "throttled.cap.share": "sw_power",
}
"""Metric -> the driver's counter; the hardware's own slowdown and brake, and the limit's."""


def energy(device: Device) -> float | DeviceError:
    """Return the energy counter in J, or why there is none."""
    return tried(lambda: float(device.telemetry.read("power.energy")))


@dataclass(slots=True)
class PowerWindow:
    """A window on one GPU, open from its making on; times are the device's."""

    device: Device
    begun: float = field(init=False)
    _energy: float | DeviceError = field(init=False)
    _held: dict[str, float | DeviceError] = field(init=False)

    def __post_init__(self) -> None:
        """Read the counters now."""
        self.begun = self.device.clock.now()
        self._energy = energy(self.device)
        self._held = self._counters()

    def mean(self) -> float:
        """Return the mean power since the start, W; raises a DeviceError."""
        seconds = self.device.clock.now() - self.begun
        return _growth(self._energy, energy(self.device), "energy") / _some(seconds)

    def share(self, metric: str) -> float:
        """Return the share of the window so far in which the clocks were held down for `metric`.

        Raises a DeviceError.
        """
        seconds = self.device.clock.now() - self.begun
        after = self.device.telemetry.throttled(SHARES[metric])
        return min(1.0, _growth(self._held[metric], after, metric) / _some(seconds))

    def note(self, notes: Run) -> None:
        """Write the shares of the window with the clocks held down."""
        for metric in self._held:
            notes.read(metric, partial(self.share, metric), self.device.gpu.subject)

    def _counters(self) -> dict[str, float | DeviceError]:
        telemetry = self.device.telemetry
        return {
            metric: tried(lambda reason=reason: telemetry.throttled(reason))  # type: ignore[misc]
            for metric, reason in SHARES.items()
        }


def _growth(before: float | DeviceError, after: float | DeviceError, name: str) -> float:
    """Return how much a counter grew; a counter that went back is no reading."""
    grown = given(after) - given(before)
    if not grown >= 0.0:
        msg = f"the counter of {name} went back from {before} to {after}"
        raise DeviceError(msg)
    return grown


def _some(seconds: float) -> float:
    if seconds <= 0.0:
        msg = "the window took no time"
        raise DeviceError(msg)
    return seconds
