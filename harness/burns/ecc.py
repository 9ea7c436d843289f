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
            trouble = next((x for x in (before, after) if isinstance(x, DeviceError)), None)
            if trouble is None and after < before:  # type: ignore[operator]
                trouble = DeviceError(f"the counter went back from {before} to {after}")
            if trouble is not None:
                self._notes.miss(metric, trouble)
            else:
                self._notes.note(metric, int(after - before))  # type: ignore[operator]
