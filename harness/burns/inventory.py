"""inventory: is everything there that ought to be, and is it what it ought to be. No load."""

from functools import partial

from rackproof.harness.burns.base import LEVELS, Burn, Run
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import DeviceError

GPU = (
    "gpu.name",
    "gpu.pci_id",
    "memory.total",
    "driver.version",
    "vbios.version",
    "pcie.gen.max",
    "pcie.width.max",
    "nvlink.links",
    "ecc.enabled",
    "fabric.state",
    "fabric.status",
    "fabric.health",
    "fabric.clique",
)
LINK = ("nvlink.active", "nvlink.speed")
OWES = {
    "gpu": ("gpu.present", *GPU, "serial.unique"),
    "link": LINK,
    "host": ("gpu.unexpected",),
}


def run(device: Device, bench: Bench, notes: Run) -> None:
    """Read one GPU's identity and that of its links."""
    telemetry = device.telemetry
    notes.read("gpu.name", partial(telemetry.read, "gpu.name"))  # raises when the GPU is not there
    notes.note("gpu.present", 1)
    identity = bench.identity(notes.subject)
    if identity is not None:
        for metric, value in (
            ("gpu.serial", identity.serial),
            ("gpu.uuid", identity.uuid),
            ("gpu.pci", identity.pci),
        ):
            if value:
                notes.note(metric, value)
    if identity is not None and identity.serial:
        others = (bench.identity(subject) for subject in bench.devices)
        same = sum(i is not None and i.serial == identity.serial for i in others)
        notes.note("serial.unique", same)
    else:
        notes.miss("serial.unique", DeviceError("the driver states no serial number"))
    for metric in GPU[1:]:
        notes.read(metric, partial(telemetry.read, metric))
    for number in range(bench.links or 0):
        link = device.gpu.link(number)
        for metric in LINK:
            notes.read(metric, partial(telemetry.read_link, metric, number), link)


def host(bench: Bench, notes: Run) -> None:
    """Count the GPUs of the bench, and those that answer and ought not to be there."""
    first = notes.subject == next(iter(bench.hosts))
    notes.note("gpu.unexpected", len(bench.unexpected) if first else 0)
    if bench.counted:
        notes.note("gpu.count", bench.count)


BURNS = (
    Burn(
        "inventory",
        "GPUs, SKUs, memory, driver, VBIOS, PCIe, NVLinks, ECC and fabric, against the platform",
        OWES,
        dict.fromkeys(LEVELS, 1.0),
        run,
        host,
    ),
)
