"""A small emulated rack with planted faults, and the work and the looks that burns take at it."""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from rackproof.fixtures.plant import Planted, plant
from rackproof.harness.devices import Bench, connect
from rackproof.harness.devices.protocol import Device, Pattern
from rackproof.harness.errors import DeviceError, Lost
from rackproof.harness.faults import parse_all
from rackproof.harness.spec import build

RACK = build(
    b"""
[rack]
name = "toy"
source = "emulated"
[[tray]]
count = 2
gpus = 4
[gpu]
sku = "gb300"
[fabric]
switches = 18
[cooling]
kind = "flc"
""",
    "toy.toml",
)
ZERO, ONES = Pattern("constant", 0), Pattern("constant", 0, invert=True)
HORIZON = 20.0

Make = Callable[..., tuple[Bench, Planted]]


@pytest.fixture
def make() -> Iterator[Make]:
    """``make("slow-gpu@...", seed=3)``: a rack with these faults; all are closed at the end."""
    made: list[Bench] = []

    def planted(*texts: str, seed: int = 7, fired: list[int] | None = None):
        bench = connect(RACK, seed=seed)
        made.append(bench)
        faults = parse_all(texts, RACK, seed)
        return bench, plant(bench, faults, horizon_s=HORIZON, fired=fired)

    yield planted
    for bench in made:
        bench.close()


def memory(device: Device, attempt: int = 1, patterns: tuple[Pattern, ...] = (ZERO, ONES)):
    """Run a memory burn; return (miscompares, corrected, uncorrected, XIDs) of its window."""
    device.begin("memory.march", attempt)
    try:
        device.telemetry.events()
        read = device.telemetry.read
        before = read("ecc.corrected.volatile"), read("ecc.uncorrected.volatile")
        size, wrong = device.plane.claim(), 0
        for pattern in patterns:
            device.plane.write(0, size, pattern)
            wrong += device.plane.verify(0, size, pattern).miscompares
        after = read("ecc.corrected.volatile"), read("ecc.uncorrected.volatile")
        codes = [event.code for event in device.telemetry.events()]
    finally:
        device.end()
    return wrong, after[0] - before[0], after[1] - before[1], codes


def product(device: Device, attempt: int = 1, check: str = "gemm.fp32"):
    """Run a product; return it with what is read under the load."""
    device.begin(check, attempt)
    try:
        xp, n = device.plane.xp, device.plane.order("fp32")
        a = xp.arange(n * n, dtype="float32").reshape(n, n) % 7 + 1
        made = device.plane.multiply(a, a, "fp32", 5.0)
        metrics = ("throttle.thermal", "throttle.power_brake", "throttle.hw_slowdown",
                   "temperature", "thermal.margin", "clock.sm", "power.average")  # fmt: skip
        return made, {metric: device.telemetry.read(metric) for metric in metrics}
    finally:
        device.end()


def rate(device: Device, attempt: int = 1) -> float:
    made, _ = product(device, attempt)
    return made.flops / made.seconds


def read(device: Device, metric: str) -> object:
    """Return a reading, or why there is none; a lost GPU is not swallowed."""
    try:
        return device.telemetry.read(metric)
    except Lost:
        raise
    except DeviceError as error:
        return error


def look(device: Device, check: str = "health", attempt: int = 1) -> None:
    """Read what the inventory and the health burn read, whether it answers or not."""
    device.begin(check, attempt)
    with contextlib.suppress(Lost):
        for metric in ("gpu.name", "remap.pending", "remap.failure", "throttle.power_brake",
                       "throttle.thermal", "temperature", "power.average", "fabric.state",
                       "ecc.corrected.volatile"):  # fmt: skip
            read(device, metric)
        for link in range(18):
            device.telemetry.read_link("nvlink.active", link)
    device.end()


@pytest.fixture
def work() -> SimpleNamespace:
    """The functions of this file by name, the rack and the horizon."""
    return SimpleNamespace(
        memory=memory, product=product, rate=rate, read=read, look=look, rack=RACK, horizon=HORIZON
    )
