"""gemm.*: matrix products back to back on fresh random data, checked by Freivalds' oracle.

A product is wrong when the check's residual exceeds its bound, when it holds NaN or Inf, or when
the first and the last of a train of equal products differ in a bit. A fault that gives the same
wrong answer each time is still seen, since the oracle does not compare the GPU with itself. The
first train multiplies the same data on every GPU, so that the bits of like GPUs can be compared.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial

from rackproof.harness.burns import oracle
from rackproof.harness.burns.base import LEVELS, Burn, Run
from rackproof.harness.burns.ecc import EccWindow
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import DataPlane, Device
from rackproof.harness.errors import DeviceError
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Value

PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "fp8")
# (m, n, p) over the order that loads the plane well: square, a long and a short inner sum. The rate
# is that of the first, so that figures of all levels are of one shape.
SHAPES: tuple[tuple[float, float, float], ...] = ((1, 1, 1), (0.5, 2, 1), (2, 0.5, 1))
TRAINS = {"quick": 3, "acceptance": 2, "soak": 4}  # of each shape
SHAPED = {"quick": 1, "acceptance": 3, "soak": 3}  # how many of SHAPES
SECONDS = {"quick": 4.0, "acceptance": 10.0, "soak": 10.0}  # of load in each train
LOADED = ("throttle.thermal", "throttle.power_brake", "temperature", "thermal.margin")
NOTED = ("power.average", "clock.sm", "pcie.gen", "pcie.width")
SHOWN = 3  # elements that are named


def owes(precision: str) -> dict[str, tuple[str, ...]]:
    """Return what gemm.<precision> owes."""
    own = tuple(f"gemm.{precision}.{what}" for what in ("wrong", "checked", "rate"))
    return {"gpu": (*own, *LOADED, "ecc.corrected.delta", "ecc.uncorrected.delta", "xid.count")}


def trains(level: str) -> int:
    """Return how many trains of products a level multiplies."""
    return TRAINS[level] * SHAPED[level]


def _key(notes: Run, number: int) -> int:
    """Return the key of one train's data: the seed's, the attempt's and the train's own.

    The first is the same in every attempt: its bits are compared with those of other GPUs.
    """
    attempt = notes.settings.attempt if number else 0
    return (notes.settings.seed << 20) + (attempt << 10) + number


def _shapes(plane: DataPlane, precision: str, level: str) -> Iterator[oracle.Shape]:
    order = plane.order(precision)
    for shape in SHAPES[: SHAPED[level]]:
        m, n, p = (max(1, round(order * factor)) for factor in shape)
        yield from [(m, n, p)] * TRAINS[level]


@dataclass(slots=True)
class _Products:
    """What the trains gave so far; seconds are the device's."""

    checked: int = 0
    wrong: int = 0
    residual: float = 0.0
    detectable: float = 0.0
    every: float = 0.0  # products of the longest train, of which one was checked
    checking: float = 0.0
    flops: float = 0.0  # of the first shape
    seconds: float = 0.0
    elements: list[oracle.WrongElement] = field(default_factory=list)
    digest: str = ""


class _Work:
    """One run of gemm.<precision> on one GPU."""

    def __init__(self, device: Device, notes: Run, precision: str) -> None:
        self._device, self._notes, self._precision = device, notes, precision
        self.done = _Products()
        self._worst: dict[str, Value | DeviceError] = {}

    def train(self, number: int, shape: oracle.Shape, seconds: float) -> None:
        """Multiply fresh data for `seconds` and check the last product."""
        done, plane, precision = self.done, self._device.plane, self._precision
        key = _key(self._notes, number)
        given = oracle.operands(plane.xp, shape, key, precision)
        product = plane.multiply(given.a, given.b, precision, seconds, self.watch)
        begun = self._device.clock.now()
        outcome = oracle.freivalds(plane.xp, given, product.c, key)
        done.checked += 1
        wrong = bool(outcome.wrong or product.repeats_differ > 0)
        done.wrong += wrong
        done.residual = max(done.residual, outcome.ratio)
        done.every = max(done.every, product.flops / (2.0 * shape[0] * shape[1] * shape[2]))
        if number == 0:
            done.digest = oracle.digest(plane.xp, product.c)
        if number < TRAINS[self._notes.settings.level]:
            done.flops, done.seconds = done.flops + product.flops, done.seconds + product.seconds
        if wrong:  # what a typical element is, a wrong product cannot say
            if len(done.elements) < SHOWN:
                done.elements += oracle.locate(plane.xp, given, product.c, key)[:SHOWN]
        else:
            detectable = oracle.detectable(plane.xp, given, product.c)
            done.detectable = max(done.detectable, detectable)
        done.checking += self._device.clock.now() - begun

    def watch(self) -> None:
        """Read what only shows under load, and keep the worst."""
        table = metrics()
        for metric in (*LOADED, *NOTED):
            before = self._worst.get(metric)
            try:
                now = self._device.telemetry.read(metric)
            except DeviceError as error:
                self._worst.setdefault(metric, error)
                continue
            if before is None or isinstance(before, DeviceError) or isinstance(now, str):
                self._worst[metric] = now
            elif not isinstance(before, str):
                low = table[metric].better == "low"
                self._worst[metric] = max(before, now) if low else min(before, now)

    def note(self) -> None:
        """Write what was found."""
        prefix, done, notes = f"gemm.{self._precision}", self.done, self._notes
        for metric in (*LOADED, *NOTED):
            if metric in self._worst:
                notes.read(metric, partial(_value, self._worst[metric]))
        notes.note(f"{prefix}.checked", done.checked)
        notes.note(f"{prefix}.residual", done.residual)
        notes.note(f"{prefix}.every", done.every)
        notes.note(f"{prefix}.digest", done.digest)
        if done.wrong < done.checked:
            notes.note(f"{prefix}.detectable", done.detectable)
        if done.seconds > 0:
            notes.note(f"{prefix}.rate", done.flops / done.seconds / 1e12)
            notes.note(f"{prefix}.share", done.checking / (done.checking + done.seconds))
        else:
            notes.miss(f"{prefix}.rate", DeviceError("the products took no time"))

    def note_wrong(self) -> None:
        """Write how many products were wrong, and where."""
        self._notes.note(f"gemm.{self._precision}.wrong", self.done.wrong)
        shown = [
            f"row {e.row} column {e.column}: {e.actual:.9g} for {e.expected:.9g}"
            for e in self.done.elements[:SHOWN]
        ]
        if shown:
            self._notes.note(f"gemm.{self._precision}.element", "; ".join(shown))


def _value(found: Value | DeviceError) -> Value:
    if isinstance(found, DeviceError):
        raise found
    return found


def burn(precision: str) -> Callable[[Device, Bench, Run], None]:
    """Return the run function of gemm.<precision>."""

    def run(device: Device, _bench: Bench, notes: Run) -> None:
        level = notes.settings.level
        window = EccWindow(device, notes)
        work = _Work(device, notes, precision)
        try:
            for number, shape in enumerate(_shapes(device.plane, precision, level)):
                work.train(number, shape, SECONDS[level])
        finally:
            if work.done.wrong:  # what was seen stays seen, whatever comes after it
                work.note_wrong()
        work.note()
        window.close()
        if not work.done.wrong:
            work.note_wrong()

    return run


def _burn(precision: str) -> Burn:
    """Return one row of the table; only fp32 is in the quick level."""
    levels = LEVELS if precision == "fp32" else LEVELS[1:]
    summary = f"{precision} matrix products back to back, each train checked by Freivalds' oracle"
    seconds = {level: trains(level) * SECONDS[level] for level in levels}
    return Burn(f"gemm.{precision}", summary, owes(precision), seconds, burn(precision))


BURNS = tuple(_burn(precision) for precision in PRECISIONS)
