"""The ECC counters over a burn's own window: what was there before the burn is not its."""

from rackproof.harness.burns.base import Run
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import DeviceError, Lost, NotPresent

COUNTERS = {
    "ecc.corrected.delta": "ecc.corrected.volatile",
    "ecc.uncorrected.delta": "ecc.uncorrected.volatile",
}


class EccWindow:
    """Reads the counters at its start and at `close`; notes the differences."""

    def __init__(self, device: Device, notes: Run) -> None:
        """Read the counters now."""
        self._device, self._notes = device, notes
        self._before = {metric: self._read(metric) for metric in COUNTERS}

    def _read(self, metric: str) -> float | DeviceError:
        try:
            return float(self._device.telemetry.read(COUNTERS[metric]))
        except (Lost, NotPresent):
            raise
        except DeviceError as error:
            return error

    def close(self) -> None:
        """Note each counter's growth; a counter that went back is no reading."""
        for metric, before in self._before.items():
            after = self._read(metric)
            if isinstance(before, DeviceError):
                self._notes.miss(metric, before)
            elif isinstance(after, DeviceError):
                self._notes.miss(metric, after)
            elif not after >= before:
                went = f"the counter went back from {before:.0f} to {after:.0f}"
                self._notes.miss(metric, DeviceError(went))
            else:
                self._notes.note(metric, int(after - before))
