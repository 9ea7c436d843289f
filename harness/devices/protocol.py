"""The one seam to hardware: a Device is Telemetry (what the driver says) and a DataPlane (work).

Both planes, silicon and emulated, pass the same contract tests (tests/contract).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rackproof.harness.clock import Clock
from rackproof.harness.errors import DeviceError
from rackproof.harness.model import Event, Gpu, Value

Watch = Callable[[], None] | None
"""What is called a few times while work runs, to read what only shows under load."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A memory content that is a pure function of the 64-bit word's address and a seed.

    kind: ``constant`` (every word is `seed`), ``address`` (the word's byte address xor `seed`),
    ``random`` (splitmix64 of address and seed), ``modulo`` (every 20th word is a random word, all
    others its inverse; `seed` is 20 x the random word's key + the place among the 20). `invert`
    flips all 64 bits. `origin` is the byte address, a multiple of 8, that counts as 0: copying
    moves it.
    """

    kind: str
    seed: int = 0
    invert: bool = False
    origin: int = 0


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


@dataclass(frozen=True, slots=True)
class Moved:
    """Data that was moved and compared at its goal: bytes, device seconds, 64-bit words wrong."""

    size: int
    seconds: float
    wrong: int = 0

    @property
    def rate(self) -> float:
        """GB/s; 0 where it took no time."""
        return self.size / self.seconds / 1e9 if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Reduced:
    """An all-reduce: bytes of the buffer, device seconds, ranks, wrong words by GPU subject."""

    size: int
    seconds: float
    ranks: int
    wrong: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class LinkCounters:
    """What one NVLink counted since the driver was loaded, or for each why it is not told.

    sent, received: KiB of data. errors: replays, recoveries and CRC errors up to NVLink 4, and
    errors that were left after correction on NVLink 5. recoveries: how often the link was trained
    again, with success or without.
    """

    sent: int | DeviceError
    received: int | DeviceError
    errors: int | DeviceError
    recoveries: int | DeviceError


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

    def link_counters(self, links: int) -> list[LinkCounters]:
        """Return the counters of NVLinks 0 to `links` - 1; raises Lost and the like as read()."""
        ...

    def events(self) -> list[Event]:
        """Return what the driver reported (XIDs) since the last call."""
        ...

    def throttled(self, reason: str) -> float:
        """Return the seconds, cumulative, with the clocks held down for `reason`.

        ``sw_thermal``, ``hw_thermal``, ``power_brake`` or ``sw_power``.
        """
        ...

    def power_limits(self) -> "PowerLimits":
        """Return the GPU's power limits."""
        ...

    def set_power_limit(self, watts: float) -> float:
        """Ask for a power limit in W; return the limit in force then, read back."""
        ...

    def smoothing(self) -> "Smoothing":
        """Return how the GPU's power is smoothed; raises Unsupported where it cannot be."""
        ...

    def set_smoothing(self, *, enabled: bool, profile: int) -> "Smoothing":
        """Make a preset profile the active one, and switch smoothing on or off; read back.

        Each switching on wears the GPU's smoothing circuit, which nothing undoes.
        """
        ...


@dataclass(frozen=True, slots=True)
class PowerLimits:
    """Power limits in W. `current` is in force; it falls below `requested` by a cap out of band."""

    current: float
    requested: float
    default: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class SmoothingProfile:
    """A preset of power smoothing.

    `floor` is a share of the GPU's TDP, `up` and `down` are the ramps in W/s, `hysteresis` is how
    long the floor is held after a load, in s.
    """

    floor: float
    up: float
    down: float
    hysteresis: float


@dataclass(frozen=True, slots=True)
class Smoothing:
    """Power smoothing as the driver states it.

    `active` numbers the profile in force where it is `enabled`; `lifetime` is the share that is
    left of the circuit's life; floors may be `low` to `high`, shares of TDP.
    """

    enabled: bool
    active: int
    lifetime: float
    low: float
    high: float
    profiles: tuple[SmoothingProfile, ...]


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

    def multiply(
        self,
        a: Any,
        b: Any,
        precision: str,
        seconds: float,
        watch: Watch = None,
    ) -> Product:
        """Multiply a by b back to back for about `seconds`; return the last C (fp32).

        `flops` counts the arithmetic of all repeats and `seconds` is the device's time for them;
        `repeats_differ` counts elements in which the first and the last C differ. `watch` is
        called a few times while the products run.
        """
        ...

    def copy(self, to: int, lo: int, hi: int) -> None:
        """Copy [lo, hi) of the claimed memory to [to, to + hi - lo), which does not overlap it.

        In steps of 32 bytes; ValueError for others.
        """
        ...

    def stream(self, kind: str, seconds: float, watch: Watch = None) -> Moved:
        """Run ``copy`` or ``triad`` over large arrays of random data for about `seconds`.

        `size` counts bytes read and written; the result of the last repeat is compared. Needs no
        claimed memory.
        """
        ...

    def transfer(self, way: str, seconds: float, seed: int, watch: Watch = None) -> Moved:
        """Copy random data ``h2d``, ``d2h`` or ``both`` ways for about `seconds`; compare it.

        Host memory is pinned. `size` counts the bytes of all repeats, of both ways for ``both``.
        """
        ...

    def load(self, share: float) -> None:
        """From now on load the GPU with `share` (0 to 1) of its arithmetic, until told otherwise.

        Returns at once; 0 ends the load. Time passes by Device.wait.
        """
        ...


class Device(Protocol):
    """One live GPU."""

    gpu: Gpu
    clock: Clock
    telemetry: Telemetry
    plane: DataPlane

    def begin(self, check: str, attempt: int, at: float = 0.0) -> None:
        """Say that a run of burn `check` begins: a settle gate, and where noise is keyed.

        `at` is when it was planned to begin, in seconds after the run's start; virtual time that
        has not come so far is let pass.
        """
        ...

    def wait(self, seconds: float) -> None:
        """Let `seconds` of the device's time pass under the load that `plane.load` set.

        Raises Lost when the GPU is lost, or gets lost on the way.
        """
        ...

    def end(self) -> None:
        """Say that the run is over: the GPU is idle and clean again."""
        ...


class Fabric(Protocol):
    """What joins the GPUs: copies from one to another, and collectives over all."""

    def exchange(
        self, pairs: Sequence[tuple[str, str]], size: int, seed: int
    ) -> Mapping[tuple[str, str], Moved | DeviceError]:
        """Copy `size` bytes of random data from the first to the second of each pair, all at once.

        Subjects are GPUs. Data is compared at its goal. A pair that could not is a DeviceError,
        and the others go on; a pair of which a GPU is lost is a Lost that names the GPU.
        """
        ...

    def all_reduce(self, gpus: Sequence[str], size: int, seed: int) -> Reduced:
        """Sum `size` bytes of each GPU over all of them and compare; raises a DeviceError."""
        ...


class Host(Protocol):
    """What stands around the GPUs: NICs, host memory, PCIe errors, power shelves, cooling."""

    def read(self, metric: str, subject: str) -> Value:
        """Return one reading of a host, NIC, shelf, or cooling, in the metric's unit.

        The counters of metrics that are deltas (flaps, errors) are cumulative here. Raises
        Unsupported, NotPermitted, NotPresent, TimedOut or DeviceError.
        """
        ...

    def begin(self, check: str, attempt: int, at: float = 0.0) -> None:
        """Say that a run of burn `check` begins; as Device.begin."""
        ...

    def wait(self, seconds: float) -> None:
        """Let time pass, so that what flaps can be seen to."""
        ...

    def end(self) -> None:
        """Say that the run is over."""
        ...


class Service(Protocol):
    """What a person does to a machine between two burns. All return the device seconds it took.

    On a real rack each raises Unsupported: rackproof proposes it and never does it.
    """

    def reset(self, gpu: str) -> float:
        """Reset a GPU: what only lasts until a reset is over, volatile counters begin anew."""
        ...

    def reboot(self, host: str) -> float:
        """Reboot a host: all its GPUs are reset, and its own counters begin anew."""
        ...

    def swap(self, gpu: str, other: str) -> float:
        """Exchange the GPUs in two places; what belongs to a place stays there.

        Raises DeviceError where the two are not of one kind.
        """
        ...
