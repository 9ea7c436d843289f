"""health: what the driver says of the GPU's past and present, read without load."""

from functools import partial

from rackproof.harness.burns.base import LEVELS, Burn, Run
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device

GPU = (
    "ecc.uncorrected.volatile",
    "sram.threshold",
    "remap.pending",
    "remap.failure",
    "remap.banks.none",
    "retired.pending",
    "retired.pages",
    "throttle.thermal",
    "throttle.power_brake",
    "temperature",
    "thermal.margin",
    "power.limit.gap",
    "recovery.action",
)
NOTED = (
    "ecc.corrected.volatile",
    "ecc.corrected.aggregate",
    "ecc.uncorrected.aggregate",
    "remap.rows.corrected",
    "remap.rows.uncorrected",
    "remap.banks.low",
    "throttle.hw_slowdown",
    "pcie.replays",
    "pcie.gen",
    "pcie.width",
    "power.average",
    "power.limit",
    "clock.sm",
)
LINK = ("nvlink.ber",)
OWES = {"gpu": (*GPU, "xid.count"), "link": LINK}


def run(device: Device, bench: Bench, notes: Run) -> None:
    """Read one GPU's counters, flags and margins, and its links' error rates."""
    telemetry = device.telemetry
    for metric in (*GPU, *NOTED):
        notes.read(metric, partial(telemetry.read, metric))
    for number in range(bench.links or 0):
        link = device.gpu.link(number)
        for metric in (*LINK, "nvlink.errors"):
            notes.read(metric, partial(telemetry.read_link, metric, number), link)


BURNS = (
    Burn(
        "health",
        "ECC, remapped rows, throttle reasons, thermal margin, recovery action, link errors",
        OWES,
        dict.fromkeys(LEVELS, 1.0),
        run,
    ),
)
