"""A GPU of paper: every reading, every pass and every product is what a test says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rackproof.harness.burns import BURNS, Settings, execute
from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices.protocol import (
    LinkCounters,
    Moved,
    Pattern,
    Product,
    Verified,
    Watch,
)
from rackproof.harness.errors import DeviceError, NotPresent, Unsupported
from rackproof.harness.model import Event, Gpu, Measurement, Missing, Seen, Value

SIZE = 1 << 20
GPU = "rack0/tray00/gpu0"
QUIET = LinkCounters(0, 0, 0, 0)


class PaperTelemetry:
    """Readings by metric: a value, an error to raise, or a list of them, one for each call."""

    def __init__(self) -> None:
        self.readings: dict[str, Any] = {
            "memory.free": SIZE / 2**20,
            "ecc.corrected.volatile": 7,
            "ecc.uncorrected.volatile": 0,
            "gpu.name": "NVIDIA H100",
            "temperature": 50,
        }
        self.links: dict[tuple[str, int], Any] = {}
        self.coming: list[Any] = []  # what each call of events() gives

    def read(self, metric: str) -> Value:
        if metric not in self.readings:
            msg = f"{metric}: not supported"
            raise Unsupported(msg)
        return self._said(self.readings[metric])

    def read_link(self, metric: str, link: int) -> Value:
        return self._said(self.links.get((metric, link), 1))

    def link_counters(self, links: int) -> list[LinkCounters]:
        return [self._said(self.links.get(("counters", link), QUIET)) for link in range(links)]

    def events(self) -> list[Event]:
        found = self.coming.pop(0) if self.coming else []
        if isinstance(found, Exception):
            raise found
        return list(found)

    @staticmethod
    def _said(value: Any) -> Value:
        if isinstance(value, list):
            value = value.pop(0) if len(value) > 1 else value[0]
        if isinstance(value, Exception):
            raise value
        return value  # type: ignore[no-any-return]


class PaperPlane:
    """Memory and products; `at` maps the number of an operation to what happens in it."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.log: list[str] = []
        self.claims = SIZE
        self.verified = 1.0  # share of a pass that is verified
        self.at: dict[int, Any] = {}
        self.spoil: Callable[[int, Any], Any] = lambda _n, c: c
        self.repeats_differ = 0
        self.while_loaded: Callable[[Callable[[], None]], None] = lambda watch: watch()
        self.seconds: float | None = None
        self.xp = np

    def _step(self, what: str) -> int:
        number = len([line for line in self.log if line not in ("claim", "release")])
        self.log.append(what)
        self.clock.advance(0.5)
        found = self.at.get(number, 0)
        if isinstance(found, BaseException):
            raise found
        return int(found)

    def claim(self) -> int:
        self.log.append("claim")
        return self.claims

    def release(self) -> None:
        self.log.append("release")

    def write(self, lo: int, hi: int, pattern: Pattern) -> None:
        self._step(f"w{_name(pattern)}")

    def verify(self, lo: int, hi: int, pattern: Pattern) -> Verified:
        wrong = self._step(f"r{_name(pattern)}")
        return Verified(int((hi - lo) // 8 * self.verified), wrong)

    def march(self, lo: int, hi: int, up: bool, expect: Pattern, write: Pattern) -> Verified:  # noqa: FBT001
        way = "up" if up else "down"
        wrong = self._step(f"{way}(r{_name(expect)},w{_name(write)})")
        return Verified(int((hi - lo) // 8 * self.verified), wrong)

    def copy(self, to: int, lo: int, hi: int) -> None:
        self._step(f"copy {lo} {hi} {to}")

    def stream(self, kind: str, seconds: float, watch: Watch = None) -> Moved:
        return Moved(8 * SIZE, self._took(seconds), self._step(f"stream {kind}"))

    def transfer(self, way: str, seconds: float, seed: int, watch: Watch = None) -> Moved:
        wrong = self._step(f"transfer {way} {seed}")
        if watch is not None:
            self.while_loaded(watch)
        return Moved(SIZE, self._took(seconds), wrong)

    def _took(self, seconds: float) -> float:
        return seconds if self.seconds is None else self.seconds

    def order(self, precision: str) -> int:
        return 96

    def multiply(
        self, a: Any, b: Any, precision: str, seconds: float, watch: Watch = None
    ) -> Product:
        number = len(self.log)
        self._step(f"multiply {precision}")
        if watch is not None:
            self.while_loaded(watch)
        c = self.spoil(number, (np.float32(a) @ np.float32(b)).astype(np.float32))
        took = seconds if self.seconds is None else self.seconds
        return Product(c, took, 2.0 * 96**3 * 1000, self.repeats_differ)


def _name(pattern: Pattern) -> str:
    if pattern.kind == "constant" and not pattern.seed:
        return "1" if pattern.invert else "0"
    return f"{pattern.kind[0]}{'-' if pattern.invert else '+'}{pattern.seed}"


class PaperDevice:
    """One GPU; `begins` and `ends` count, and raise what stands in `on_begin` and `on_end`."""

    def __init__(self, subject: str = GPU) -> None:
        self.gpu = Gpu(subject, 0, 0, int(subject[-1]), "h100")
        self.clock = VirtualClock(100.0)
        self.telemetry = PaperTelemetry()
        self.plane = PaperPlane(self.clock)
        self.begun: list[tuple[str, int]] = []
        self.ended = 0
        self.on_begin: Exception | None = None
        self.on_end: Exception | None = None

    def begin(self, check: str, attempt: int, at: float = 0.0) -> None:
        self.begun.append((check, attempt))
        if self.on_begin is not None:
            raise self.on_begin

    def wait(self, seconds: float) -> None:
        self.plane.log.append(f"wait {seconds:g}")
        self.clock.advance(seconds)

    def end(self) -> None:
        self.ended += 1
        if self.on_end is not None:
            raise self.on_end


class PaperFabric:
    """No link of paper carries data."""

    def exchange(self, pairs: Any, size: int, seed: int) -> Any:
        raise NotPresent(self.__doc__)

    def all_reduce(self, gpus: Any, size: int, seed: int) -> Any:
        raise NotPresent(self.__doc__)


class PaperHost:
    """There is no host of paper: nothing can be read, and time stands."""

    def read(self, metric: str, subject: str) -> Value:
        msg = f"{subject}: {metric}: {self.__doc__}"
        raise DeviceError(msg)

    def begin(self, check: str, attempt: int, at: float = 0.0) -> None: ...

    def wait(self, seconds: float) -> None: ...

    def end(self) -> None: ...


@dataclass
class PaperBench:
    """A tray of GPUs of paper. `serials` are by subject; None: the slot says nothing."""

    gpus: int = 1
    links: int = 2
    serials: dict[str, str | None] = field(default_factory=dict)
    counted: bool = False
    count: int = 1
    source: str = "emulated"
    unexpected: Sequence[Any] = ()
    hosts: Sequence[str] = ("rack0/tray00/host", "rack0/tray01/host")

    def __post_init__(self) -> None:
        names = [f"rack0/tray00/gpu{n}" for n in range(self.gpus)]
        self.devices = {name: PaperDevice(name) for name in names}

        self.around = PaperHost()

        gpus = tuple(device.gpu for device in self.devices.values())
        self.spec = SimpleNamespace(gpus=gpus, domain=self.gpus)
        self.fabric = PaperFabric()

    def now(self) -> float:
        return max(device.clock.now() for device in self.devices.values())

    def align(self, devices: Any) -> None:
        """All clocks of paper agree."""

    def parts(self, item: str, sort: str) -> list[str]:
        return [item] if sort == "host" else []

    @property
    def device(self) -> PaperDevice:
        return self.devices[GPU]

    def identity(self, subject: str) -> Any:
        if subject not in self.serials:
            return None
        return SimpleNamespace(serial=self.serials[subject], uuid="GPU-1", pci="0000:01:00.0")

    def burn(
        self, what: Any, attempt: int = 1, seed: int = 3, settings: Settings | None = None
    ) -> "Outcome":
        burn = BURNS[what] if isinstance(what, str) else what
        level = "quick" if "quick" in burn.seconds else "acceptance"
        settings = settings or Settings(level, seed, attempt)
        return Outcome(execute(burn, self, GPU, settings))  # type: ignore[arg-type]

    def burn_host(self, what: Any, host: str = "rack0/tray00/host") -> "Outcome":
        burn = BURNS[what] if isinstance(what, str) else what
        return Outcome(execute(burn, self, host, Settings("quick", 3, 1)))  # type: ignore[arg-type]


@dataclass
class Outcome:
    """What one run saw."""

    seen: list[Seen]

    @property
    def values(self) -> dict[str, Value]:
        return {s.metric: s.value for s in self.seen if isinstance(s, Measurement)}

    @property
    def gaps(self) -> dict[str, Missing]:
        return {s.metric: s for s in self.seen if isinstance(s, Missing)}

    @property
    def events(self) -> list[Event]:
        return [s for s in self.seen if isinstance(s, Event)]

    def on(self, subject: str) -> "Outcome":
        return Outcome([s for s in self.seen if s.subject == subject])


@pytest.fixture
def bench() -> PaperBench:
    return PaperBench()


@pytest.fixture
def paper() -> type[PaperBench]:
    return PaperBench
