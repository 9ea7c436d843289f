"""Counters over a burn's own window, ECC's above all: what was there before is not the burn's."""

from collections.abc import Mapping

from rackproof.harness.burns.base import Run
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import DeviceError, Lost, NotPresent

COUNTERS = {
    "ecc.corrected.delta": "ecc.corrected.volatile",
    "ecc.uncorrected.delta": "ecc.uncorrected.volatile",
}


class EccWindow:
    """Reads the counters at its start and at `close`; notes the differences.

    `counters` maps the metric of each difference to that of its counter: ECC's, unless given.
    """

    def __init__(self, device: Device, notes: Run, counters: Mapping[str, str] = COUNTERS) -> None:
        """Read the counters now."""
        self._device, self._notes, self._counters = device, notes, counters
        self._before = {metric: self._read(metric) for metric in counters}

    def _read(self, metric: str) -> float | DeviceError:
        try:
            return float(self._device.telemetry.read(self._counters[metric]))
        except (Lost, NotPresent):
            raise
        except DeviceError as error:
            return error

    def close(self) -> None:
        """Note each counter's growth; a counter that went back is no reading."""
        for metric, before in self._before.items():
            after = self._read(metric)
            if isinstance(before, DeviceError):
                self._notes.miss(metric, before, self._device.gpu.subject)
            elif isinstance(after, DeviceError):
                self._notes.miss(metric, after, self._device.gpu.subject)
            elif not after >= before:
                went = f"the counter went back from {before:.0f} to {after:.0f}"
                self._notes.miss(metric, DeviceError(went), self._device.gpu.subject)
            else:
                self._notes.note(metric, int(after - before), self._device.gpu.subject)
