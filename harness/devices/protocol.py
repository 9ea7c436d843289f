"""The one seam to hardware: a Device is Telemetry (what the driver says) and a DataPlane (work).

Both planes, silicon and emulated, pass the same contract tests (tests/contract).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rackproof.harness.clock import Clock
from rackproof.harness.model import Event, Gpu, Value


@dataclass(frozen=True, slots=True)
class Pattern:
    """A memory content that is a pure function of the 64-bit word's address and a seed.

    kind: ``constant`` (every word is `seed`), ``address`` (the word's byte address xor `seed`),
    ``random`` (splitmix64 of address and seed). `invert` flips all 64 bits.
    """

    kind: str
    seed: int = 0
    invert: bool = False


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One 64-bit word that was not what had been written: byte address, expected, actual."""

    address: int
    expected: int
    actual: int


@dataclass(frozen=True, slots=True)
class Verified:
    """The outcome of one pass: how many words differed, and the first of them (at most 64)."""

    words: int
    miscompares: int
    first: Sequence[Mismatch] = ()


@dataclass(frozen=True, slots=True)
class Product:
    """C of one GEMM as the device returned it (host or device array), and how long it took."""

    c: Any
    seconds: float
    flops: float
    repeats_differ: int = 0


class Telemetry(Protocol):
    """What the driver says of one GPU. Every reading may raise a DeviceError."""

    def read(self, metric: str) -> Value:
        """Return one reading by its name in metrics.toml, in that metric's unit.

        Raises Unsupported, Lost, NotPermitted, or DeviceError; a missing value is never 0.
        """
        ...

    def read_link(self, metric: str, link: int) -> Value:
        """Return one reading of NVLink `link`."""
        ...

    def events(self) -> list[Event]:
        """Return what the driver reported (XIDs) since the last call."""
        ...


class DataPlane(Protocol):
    """Work on one GPU. Addresses are byte offsets, multiples of 8, into the memory under test."""

    def claim(self) -> int:
        """Claim the free memory for testing; return its size in bytes."""
        ...

    def release(self) -> None:
        """Give the claimed memory back."""
        ...

    def write(self, lo: int, hi: int, pattern: Pattern) -> None:
        """Write `pattern` to [lo, hi)."""
        ...

    def verify(self, lo: int, hi: int, pattern: Pattern) -> Verified:
        """Read [lo, hi) and compare it with `pattern`."""
        ...

    def march(self, lo: int, hi: int, up: bool, expect: Pattern, write: Pattern) -> Verified:  # noqa: FBT001
        """Word by word in address order (`up` or down): read, compare with `expect`, write."""
        ...

    @property
    def xp(self) -> Any:
        """The array module of this plane: numpy, or cupy on a GPU."""
        ...

    def order(self, precision: str) -> int:
        """The matrix order n that loads this plane well for `precision`."""
        ...

    def multiply(self, a: Any, b: Any, precision: str, seconds: float) -> Product:
        """Multiply a by b back to back for about `seconds`; return the last C (fp32).

        `flops` counts the arithmetic of all repeats and `seconds` is the device's time for them;
        `repeats_differ` counts elements in which the first and the last C differ.
        """
        ...


class Device(Protocol):
    """One live GPU."""

    gpu: Gpu
    clock: Clock
    telemetry: Telemetry
    plane: DataPlane

    def begin(self, check: str, attempt: int) -> None:
        """Say that a run of burn `check` begins: a settle gate, and where noise is keyed."""
        ...

    def end(self) -> None:
        """Say that the run is over: the GPU is idle and clean again."""
        ...
