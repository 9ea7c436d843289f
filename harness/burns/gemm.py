"""gemm.fp32: matrix products back to back on fresh random data, checked by Freivalds' oracle.

A product is wrong when the check's residual exceeds its bound, when it holds NaN or Inf, or when
the first and the last of a train of equal products differ in a bit. A fault that gives the same
wrong answer each time is still seen, since the oracle does not compare the GPU with itself.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from rackproof.harness.burns import oracle
from rackproof.harness.burns.base import LEVELS, Burn, Run
from rackproof.harness.burns.ecc import EccWindow
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import DataPlane, Device
from rackproof.harness.errors import DeviceError

ROUNDS = {"quick": 3, "acceptance": 12, "soak": 12}
SECONDS = {"quick": 4.0, "acceptance": 10.0, "soak": 10.0}  # of load in each round
LOADED = ("throttle.thermal", "throttle.power_brake", "temperature", "thermal.margin")
NOTED = ("power.average", "clock.sm", "pcie.gen", "pcie.width")


def owes(precision: str) -> dict[str, tuple[str, ...]]:
    """Return what gemm.<precision> owes."""
    own = tuple(f"gemm.{precision}.{what}" for what in ("wrong", "checked", "rate"))
    return {"gpu": (*own, *LOADED, "ecc.corrected.delta", "ecc.uncorrected.delta", "xid.count")}


def _key(notes: Run, number: int) -> int:
    """Return the key of one round's data: the seed's, the attempt's and the round's own."""
    return (notes.settings.seed << 20) + (notes.settings.attempt << 10) + number


@dataclass(slots=True)
class _Train:
    """What the rounds gave so far; seconds are the device's."""

    checked: int = 0
    wrong: int = 0
    residual: float = 0.0
    detectable: float = 0.0
    flops: float = 0.0
    seconds: float = 0.0

    def round(self, plane: DataPlane, key: int, precision: str, seconds: float) -> None:
        """Multiply fresh data for `seconds` and check the last product."""
        given = oracle.operands(plane.xp, plane.order(precision), key, precision)
        product = plane.multiply(given.a, given.b, precision, seconds)
        outcome = oracle.freivalds(plane.xp, given, product.c, key)
        self.checked += 1
        wrong = bool(outcome.wrong or product.repeats_differ > 0)
        self.wrong += wrong
        self.flops, self.seconds = self.flops + product.flops, self.seconds + product.seconds
        self.residual = max(self.residual, outcome.ratio)
        if not wrong:  # what a typical element is, a wrong product cannot say
            detectable = oracle.detectable(plane.xp, given, product.c)
            self.detectable = max(self.detectable, detectable)


def burn(precision: str) -> Callable[[Device, Bench, Run], None]:
    """Return the run function of gemm.<precision>."""
    prefix = f"gemm.{precision}"

    def run(device: Device, _bench: Bench, notes: Run) -> None:
        level = notes.settings.level
        window = EccWindow(device, notes)
        train = _Train()
        try:
            for number in range(ROUNDS[level]):
                train.round(device.plane, _key(notes, number), precision, SECONDS[level])
        finally:
            if train.wrong:  # what was seen stays seen, whatever comes after it
                notes.note(f"{prefix}.wrong", train.wrong)
        for metric in (*LOADED, *NOTED):
            notes.read(metric, partial(device.telemetry.read, metric))
        window.close()
        if not train.wrong:
            notes.note(f"{prefix}.wrong", 0)
        notes.note(f"{prefix}.checked", train.checked)
        notes.note(f"{prefix}.residual", train.residual)
        if train.wrong < train.checked:
            notes.note(f"{prefix}.detectable", train.detectable)
        if train.seconds > 0:
            notes.note(f"{prefix}.rate", train.flops / train.seconds / 1e12)
        else:
            notes.miss(f"{prefix}.rate", DeviceError("the products took no time"))

    return run


BURNS = (
    Burn(
        "gemm.fp32",
        "fp32 matrix products back to back, each train checked by Freivalds' oracle",
        owes("fp32"),
        {level: ROUNDS[level] * SECONDS[level] for level in LEVELS},
        burn("fp32"),
    ),
)
