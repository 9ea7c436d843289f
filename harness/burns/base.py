"""What a burn is, and the notebook that it writes its readings into."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from rackproof.harness.burns.lease import Patience
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import Device
from rackproof.harness.errors import (
    DeviceError,
    Lost,
    NotPermitted,
    NotPresent,
    OverTime,
    TimedOut,
)
from rackproof.harness.errors import Unsupported as NotSupported
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event, Measurement, Missing, Seen, Value, Why
from rackproof.harness.spec import RackSpec

T = TypeVar("T")
LEVELS = ("quick", "acceptance", "soak")


@dataclass(frozen=True, slots=True)
class Settings:
    """How one run of a burn is done. `seed` feeds its data; attempts count from 1.

    `at` is when it was planned to begin, in seconds after the run's start; `gpus` are the GPUs that
    a wide burn works on (none named: all of the bench); `allowed` are the burns that may change
    settings of real GPUs; `patience` is how long it may take.
    """

    level: str
    seed: int
    attempt: int = 1
    at: float = 0.0
    gpus: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    patience: Patience = field(default=Patience())


def why(error: DeviceError) -> tuple[Why, str]:
    """Return why a reading is absent after `error`, and what would cure it."""
    table: tuple[tuple[type[DeviceError], Why, str], ...] = (
        (OverTime, Why.TIMED_OUT, "burn it again alone (--only); if it hangs, look at dmesg"),
        (Lost, Why.LOST, "find out why the GPU was lost, then burn it again"),
        (NotPresent, Why.NOT_RUN, "bring the GPU back, then burn it again"),
        (NotSupported, Why.NOT_SUPPORTED, "use a driver that reports it"),
        (NotPermitted, Why.NOT_PERMITTED, "run with the rights that the driver asks for"),
        (TimedOut, Why.TIMED_OUT, "burn it again"),
    )
    for kind, word, cure in table:
        if isinstance(error, kind):
            return word, cure
    return Why.NO_READING, "read it with another tool; if it stays away, look at the sensor"


@dataclass(slots=True)
class Run:
    """One run of one burn on one subject: its notebook. `begun` is device seconds."""

    check: str
    subject: str
    settings: Settings
    begun: float = 0.0
    now: Callable[[], float] = lambda: 0.0
    seen: list[Seen] = field(default_factory=list)

    def note(self, metric: str, value: Value, subject: str | None = None) -> None:
        """Write a measurement, in the metric's own unit; NumPy's numbers become plain ones."""
        if not isinstance(value, str):
            value = int(value) if isinstance(value, int | np.integer) else float(value)
        self.seen.append(
            Measurement(
                self.check,
                subject or self.subject,
                metric,
                value,
                metrics()[metric].unit,
                self.settings.attempt,
                (self.begun, self.now()),
            )
        )

    def miss(self, metric: str, error: DeviceError, subject: str | None = None) -> None:
        """Write that a value is absent, and why."""
        word, cure = why(error)
        reason = str(error) or type(error).__name__
        self.seen.append(
            Missing(
                self.check,
                subject or self.subject,
                metric,
                word,
                reason,
                cure,
                self.settings.attempt,
            )
        )

    def read(self, metric: str, source: Callable[[], Value], subject: str | None = None) -> None:
        """Note what `source` returns, or that it is missing. A lost GPU is not swallowed.

        A reading that is only noted and that the driver says it does not have leaves no trace.
        """
        try:
            self.note(metric, source(), subject)
        except (Lost, NotPresent, OverTime):
            raise
        except DeviceError as error:
            if metrics()[metric].judged or not isinstance(error, NotSupported):
                self.miss(metric, error, subject)

    def say(self, events: Iterable[Event]) -> int:
        """Write events; return how many there were."""
        before = len(self.seen)
        self.seen.extend(events)
        return len(self.seen) - before


class Crew:
    """The GPUs of a wide burn that are still with it; one that fails is left behind, with why."""

    def __init__(
        self, bench: Bench, subjects: Sequence[str], stops: dict[str, Exception] | None = None
    ) -> None:
        """Begin with the devices of `subjects`; `stops` takes who was left behind, and why."""
        self.devices: dict[str, Device] = {s: bench.devices[s] for s in subjects}
        self.stops: dict[str, Exception] = {} if stops is None else stops

    def leave(self, subject: str, error: Exception) -> None:
        """Go on without `subject`, because of `error`."""
        self.devices.pop(subject, None)
        self.stops.setdefault(subject, error)

    def each(self, work: Callable[[Device], T]) -> dict[str, T]:
        """Do `work` on every device, in the rack's order; return what those gave that could."""
        found: dict[str, T] = {}
        for subject, device in list(self.devices.items()):
            try:
                found[subject] = work(device)
            except OverTime:  # the time is the same for all of them
                raise
            except DeviceError as error:
                self.leave(subject, error)
        return found


def everywhere(_spec: RackSpec) -> str:
    """Every rack can have it."""
    return ""


@dataclass(frozen=True, slots=True)
class Burn:
    """One burn. `owes` maps a sort of subject to the metrics it must read there.

    Sorts: gpu, link; host, nic; power (of a rack), shelf; cooling; fabric. `seconds` is the planned
    device time by level; a level without an entry leaves the burn out. What works where, all of
    which raise DeviceError:
      run    on one GPU and its links
      host   on one host and its NICs
      zone   on one rack's power with its shelves, or on its cooling: `notes.subject` says which
      wide   on all GPUs at once, with their links, the fabric, and the racks' power
    `changes` says that it changes a setting, which on real GPUs the user must allow; `wears`, that
    it uses them up as well, so that real ones have it only where somebody names it; `lacks` returns
    why a rack cannot have the burn at all, or an empty text.
    """

    id: str
    summary: str
    owes: Mapping[str, Sequence[str]]
    seconds: Mapping[str, float]
    run: Callable[[Device, Bench, Run], None] | None = None
    host: Callable[[Bench, Run], None] | None = None
    zone: Callable[[Bench, Run], None] | None = None
    wide: Callable[[Crew, Bench, Run], None] | None = None
    changes: bool = False
    wears: bool = False
    lacks: Callable[[RackSpec], str] = everywhere
