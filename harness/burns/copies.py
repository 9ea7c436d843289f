"""hbm.bandwidth and copy.*: how fast data move on the GPU, and between it and its host.

Rates are the device's own seconds over the bytes of all repeats; what arrived is compared. An idle
PCIe link rests at Gen 1, so its generation and width are read while data move and at no other time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rackproof.harness.burns.base import LEVELS, Burn, Run
from rackproof.harness.burns.ecc import EccWindow
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device, Moved
from rackproof.harness.errors import DeviceError, Lost, NotPresent
from rackproof.harness.model import Value

STREAM_S = {"quick": 1.0, "acceptance": 10.0, "soak": 10.0}
COPY_S = {"quick": 2.0, "acceptance": 6.0, "soak": 6.0}
STREAMS = {"copy": "hbm.bandwidth", "triad": "hbm.triad"}  # the kind and its metric
REPLAYS = {"pcie.replays.delta": "pcie.replays"}
LOADED = {"pcie.gen.loaded": "pcie.gen", "pcie.width.loaded": "pcie.width"}
HBM_OWES = {
    "gpu": (
        *STREAMS.values(),
        "hbm.wrong",
        "ecc.corrected.delta",
        "ecc.uncorrected.delta",
        "xid.count",
    )
}


def _rate(notes: Run, metric: str, moved: Moved) -> None:
    """Note a rate, or that there is none."""
    if moved.size > 0 and moved.seconds > 0:
        notes.note(metric, moved.rate)
    else:
        notes.miss(metric, DeviceError("no data moved, or it took no time"))


def bandwidth(device: Device, _bench: Bench, notes: Run) -> None:
    """Copy and triad over large arrays of random data, the result compared."""
    seconds = STREAM_S[notes.settings.level]
    window = EccWindow(device, notes)
    wrong = 0
    try:
        for kind, metric in STREAMS.items():
            moved = device.plane.stream(kind, seconds)
            wrong += moved.wrong
            _rate(notes, metric, moved)
    finally:
        if wrong:  # what was seen stays seen, whatever comes after it
            notes.note("hbm.wrong", wrong)
    if not wrong:
        notes.note("hbm.wrong", 0)
    window.close()


@dataclass(slots=True)
class _Loaded:
    """Readings of the PCIe link while data move, by the metric that is read."""

    device: Device
    seen: dict[str, list[Value | DeviceError]] = field(default_factory=dict)

    def watch(self) -> None:
        """Read them now. A lost GPU is not swallowed."""
        for metric in LOADED.values():
            try:
                found: Value | DeviceError = self.device.telemetry.read(metric)
            except (Lost, NotPresent):
                raise
            except DeviceError as error:
                found = error
            self.seen.setdefault(metric, []).append(found)

    def close(self, notes: Run) -> None:
        """Note the lowest reading of each, but for the first where there are more.

        The first may come while the link is still on its way up from its rest.
        """
        for metric, read in LOADED.items():
            found = self.seen.get(read, [])
            found = found[1:] or found
            values = [value for value in found if not isinstance(value, DeviceError)]
            if values:
                notes.note(metric, min(values, key=float))
            elif found and isinstance(found[-1], DeviceError):
                notes.miss(metric, found[-1])
            else:
                notes.miss(metric, DeviceError("nobody looked while data moved"))


def copy(way: str) -> Callable[[Device, Bench, Run], None]:
    """Return the run function of copy.<way>."""

    def run(device: Device, _bench: Bench, notes: Run) -> None:
        settings = notes.settings
        seed = (settings.seed << 10) + settings.attempt
        window = EccWindow(device, notes, counters=REPLAYS)
        loaded = _Loaded(device)
        moved = device.plane.transfer(way, COPY_S[settings.level], seed, loaded.watch)
        notes.note("copy.wrong", moved.wrong)
        _rate(notes, f"copy.{way}.rate", moved)
        loaded.close(notes)
        window.close()

    return run


def _copy(way: str, summary: str, levels: tuple[str, ...]) -> Burn:
    owes = (f"copy.{way}.rate", "copy.wrong", *LOADED, *REPLAYS, "xid.count")
    seconds = {level: COPY_S[level] for level in levels}
    return Burn(f"copy.{way}", summary, {"gpu": owes}, seconds, copy(way))


BURNS = (
    Burn(
        "hbm.bandwidth",
        "device copy and triad over random data, the result compared",
        HBM_OWES,
        {level: len(STREAMS) * STREAM_S[level] for level in LEVELS},
        bandwidth,
    ),
    _copy("h2d", "copies from pinned host memory to the GPU; PCIe under load", LEVELS),
    _copy("d2h", "copies from the GPU to pinned host memory; PCIe under load", LEVELS),
    _copy("both", "copies both ways at once; PCIe under load", LEVELS[1:]),
)
