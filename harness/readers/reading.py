"""What reading one file gave: events, measurements, and what was wrong with the file itself.

A Reading never judges. `cut` says that the file ended before what it promised, `worked` is False
where the tool that wrote it did no work, and `problems` are sentences for a person.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rackproof.harness.model import Event, Measurement, Missing
from rackproof.harness.readers.source import Source

UNRECOGNISED = "unrecognised"


@dataclass(frozen=True, slots=True)
class Boot:
    """Of boot `number` of a file (as in its events): its uptime was 0 `at` on `clock`.

    `clock` is ``epoch`` or ``calendar``. `sure` is False where only the line of the kernel's
    beginning tells it, which a daemon writes down when it has begun itself, up to a minute later.
    """

    host: str
    number: int
    clock: str
    at: float
    sure: bool = True


@dataclass(frozen=True, slots=True)
class Job:
    """What a job's output tells of which job it is.

    `names` are what no two jobs share (communicators, runs, a scheduler's numbers), `addresses` the
    network addresses of the hosts that wrote it, `peers` addresses and hosts that it names as the
    other end of a connection that failed.
    """

    names: frozenset[str] = frozenset()
    addresses: frozenset[str] = frozenset()
    peers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Reading:
    """One input file.

    `records` counts what was read: lines of a log, GPUs of a query. `aliases` maps other names of
    a device (``gpu3``, ``mlx5_0``) to its ``pci:`` subject, `serials` and `uuids` map a subject to
    what it carries. `host` is the machine's name where the file tells one alone; otherwise subjects
    carry ``host:NAME/`` themselves. `taken` is when a snapshot was taken, in seconds since the
    epoch, where the file says it. `named` is False for a file that was met in `folder`, the one
    that the user named. `boots` tells when boots began, on the clock that the file's dates have.
    `job` is the job whose output the file is.
    """

    path: Path
    kind: str = UNRECOGNISED
    records: int = 0
    problems: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()
    measurements: tuple[Measurement, ...] = ()
    missing: tuple[Missing, ...] = ()
    cut: bool = False
    worked: bool = True
    aliases: Mapping[str, str] = field(default_factory=dict)
    serials: Mapping[str, str] = field(default_factory=dict)
    uuids: Mapping[str, str] = field(default_factory=dict)
    host: str | None = None
    named: bool = True
    taken: float | None = None
    folder: Path | None = None
    boots: tuple[Boot, ...] = ()
    job: Job | None = None
    parts: tuple["Reading", ...] = ()


@dataclass(frozen=True, slots=True)
class Reader:
    """One kind of file: `likeness` of its head in 0..1, and `read` for the whole of it.

    A likeness is 0 unless the head shows what only this tool writes; it must cost little, since
    every file is shown to every reader.
    """

    kind: str
    summary: str
    likeness: Callable[[bytes], float]
    read: Callable[[Source], Reading]
