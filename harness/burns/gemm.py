"""gemm.fp32: matrix products back to back on fresh random data, checked by Freivalds' oracle.

A product is wrong when the check's residual exceeds its bound, when it holds NaN or Inf, or when
the first and the last of a train of equal products differ in a bit. A fault that gives the same
wrong answer each time is still seen, since the oracle does not compare the GPU with itself.
"""

from collections.abc import Callable

from rackproof.harness.burns import oracle
from rackproof.harness.burns.base import Run
from rackproof.harness.burns.ecc import EccWindow
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device

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


def burn(precision: str) -> Callable[[Device, Bench, Run], None]:
    """Return the run function of gemm.<precision>."""

    def run(device: Device, _bench: Bench, notes: Run) -> None:
        plane = device.plane
        window = EccWindow(device, notes)
        n = plane.order(precision)
        wrong = 0
        residual, flops, seconds, detectable = 0.0, 0.0, 0.0, 0.0
        rounds = ROUNDS[notes.settings.level]
        for number in range(rounds):
            key = _key(notes, number)
            given = oracle.operands(plane.xp, n, key, precision)
            product = plane.multiply(given.a, given.b, precision, SECONDS[notes.settings.level])
            outcome = oracle.freivalds(plane.xp, given, product.c, key)
            flops, seconds = flops + product.flops, seconds + product.seconds
            wrong += outcome.wrong or product.repeats_differ > 0
            residual = max(residual, outcome.ratio)
            detectable = max(detectable, oracle.detectable(plane.xp, given, product.c))
        for metric in (*LOADED, *NOTED):
            notes.read(metric, lambda metric=metric: device.telemetry.read(metric))
        window.close()
        prefix = f"gemm.{precision}"
        notes.note(f"{prefix}.wrong", wrong)
        notes.note(f"{prefix}.checked", rounds)
        notes.note(f"{prefix}.residual", residual)
        notes.note(f"{prefix}.detectable", detectable)
        notes.note(f"{prefix}.rate", flops / seconds / 1e12)

    return run
