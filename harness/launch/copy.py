"""One copy of a training command: its starts, one after another, and the ranks that they name.

A rank is a pid that a hello line named and that descends from the copy's keeper: whatever else a
trainer writes there is never signalled. Where no rank said hello, the process that has used most of
the CPU stands for the copy.
"""

import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening
from rackproof.harness.launch import processes
from rackproof.harness.launch.kept import Kept
from rackproof.harness.launch.logtail import Adapter
from rackproof.harness.launch.processes import Process

EVENTS, LOGS = "events", "logs"
HELLOS = 4096  # hello lines of one copy that are looked at


@dataclass(frozen=True, slots=True)
class Order:
    """What every start of a command has in common. `url` is where its checkpoints belong."""

    command: Sequence[str]
    folder: Path
    url: str
    seed: int = 0
    log_regex: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)

    def words(self, index: int, attempt: int, *, resume: bool) -> dict[str, str]:
        """Return the environment of one start: ours, and the seven words of the contract."""
        buffered = {"PYTHONUNBUFFERED": "1"} if self.log_regex else {}  # else a line comes late
        return {
            **buffered,
            **os.environ,
            **self.environment,
            "RP_RUN_DIR": str(self.folder),
            "RP_EVENTS": str(self.events(index, attempt)),
            "RP_REPLICA": str(index),
            "RP_ATTEMPT": str(attempt),
            "RP_CKPT_URL": self.url,
            "RP_RESUME": "1" if resume else "0",
            "RP_SEED": str(self.seed),
        }

    def events(self, index: int, attempt: int) -> Path:
        """Return the events file of one start."""
        return self.folder / EVENTS / f"replica{index}.{attempt}.jsonl"

    def log(self, index: int, attempt: int) -> Path:
        """Return the file that gets the output of one start."""
        return self.folder / LOGS / f"replica{index}.{attempt}.log"


@dataclass(slots=True)
class Rank:
    """A process that said hello; `since` is when."""

    process: Process
    since: float
    alive: bool = True


@dataclass(frozen=True, slots=True)
class Greeting:
    """What a hello line came to: the process, where it is there, and the rank that it replaces.

    `beside`: who said hello as this rank before, and still lives; that one stays the rank.
    """

    process: Process | None = None
    before: Rank | None = None
    ours: bool = False
    beside: Process | None = None


@dataclass(slots=True)
class Copy:
    """One copy. `said`: the newest step of each speaker in this attempt; `heard`: when it made one.

    `ever`: how many it made; `furthest`: the newest of all; `repeats`: how many each speaker told
    since that one came; `beyond`: when this attempt told one that was not planned (0: it did not).
    `struck`: when a drill hit a member; `renewed`: ranks that the launcher has replaced, until that
    is all of them; `met`: whoever said hello in this attempt and is ours; `again`: how often we
    started it again without being told; `why` it will not be started again.
    """

    index: int
    order: Order
    attempt: int = 0
    kept: Kept | None = None
    ranks: dict[str, Rank] = field(default_factory=dict)
    said: dict[str, int] = field(default_factory=dict)
    struck: dict[str, float] = field(default_factory=dict)
    renewed: set[str] = field(default_factory=set)
    met: dict[Process, str] = field(default_factory=dict)
    began: float = 0.0
    heard: float = 0.0
    ever: int = 0
    furthest: int = 0
    repeats: dict[str, int] = field(default_factory=dict)
    beyond: float = 0.0
    code: int | None = None
    why: str = ""
    again: int = 0
    backwards: bool = False
    _adapter: Adapter | None = None
    _hellos: int = 0

    @property
    def name(self) -> str:
        """The copy's name as a member."""
        return f"replica{self.index}"

    @property
    def running(self) -> bool:
        """Whether its command has been started and was not seen to end."""
        return self.kept is not None

    @property
    def worked(self) -> bool:
        """Whether it ever made a step, or this attempt was cut short by us."""
        return self.ever > 0 or any(when >= self.began for when in self.struck.values())

    def wrote(self) -> int:
        """Return the bytes of output of this start."""
        try:
            return self.order.log(self.index, self.attempt).stat().st_size
        except OSError:
            return 0

    def start(self, *, resume: bool) -> None:
        """Start the command, as the next attempt; DrillError where that cannot be."""
        self.attempt += 1
        self.ranks, self.said, self.renewed, self.met = {}, {}, set(), {}
        self.repeats, self.beyond, self._hellos = {}, 0.0, 0
        self.code, self.why = None, ""
        order = self.order
        events, log = (path(self.index, self.attempt) for path in (order.events, order.log))
        try:
            for path in (events, log):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.touch()
        except OSError as error:
            msg = f"{error.filename or events}: {error.strerror}"
            raise DrillError(msg) from error
        words = order.words(self.index, self.attempt, resume=resume)
        self.kept = Kept(order.command, words, log)
        self.began = self.heard = time.monotonic()
        if order.log_regex:
            self._adapter = Adapter(order.log_regex, log, events)

    def end(self, grace: float, settle: float = 0.0) -> list[int]:
        """End all of it; return who outlived the command by `settle` seconds."""
        kept, self.kept = self.kept, None
        if kept is None:
            return []
        try:
            left = kept.end(grace, settle)
        finally:
            self.code = kept.code
            self.said = {}
            for rank in self.ranks.values():
                rank.alive = False
        return left

    def remarks(self) -> list[str]:
        """End the log adapter, once all output is there; return what it has to say."""
        adapter, self._adapter = self._adapter, None
        return adapter.close() if adapter is not None else []

    def greet(self, hello: Happening) -> Greeting:
        """Take in a hello: look the process up, and take it for the rank where it is ours."""
        pid = hello.number("pid")
        self._hellos += 1
        if pid is None or not 1 < pid < 1 << 22 or self._hellos > HELLOS:
            return Greeting()
        process = processes.look(pid)
        if process is None or not process.alive:
            return Greeting()
        if self.kept is None or not processes.descends(pid, self.kept.root):
            return Greeting(process)
        before = self.ranks.get(hello.who)
        self.met[process] = hello.who
        if before is not None and before.process == process:
            return Greeting(process, ours=True)
        struck = self.struck.get(hello.who, -math.inf) >= self.began  # it may be stopped
        if before is not None and not struck and processes.still(before.process):
            return Greeting(process, ours=True, beside=before.process)
        self.ranks[hello.who] = Rank(process, time.monotonic())
        self.said.pop(hello.who, None)
        return Greeting(process, before, ours=True)

    def gone(self) -> list[tuple[str, Process]]:
        """Return the ranks that died since the last call."""
        dead = [
            (name, rank.process)
            for name, rank in self.ranks.items()
            if rank.alive and not processes.still(rank.process)
        ]
        for name, _ in dead:
            self.ranks[name].alive = False
        return dead

    def present(self) -> dict[str, Process]:
        """Return who takes part: the ranks that said hello, else who stands for the copy."""
        named = {name: rank.process for name, rank in self.ranks.items() if rank.alive}
        if named or self.kept is None:
            return named
        heaviest = self._heaviest()
        return {self.name: heaviest} if heaviest is not None else {}

    def _heaviest(self) -> Process | None:
        """Return the process below the keeper with most CPU time, of equals the nearest.

        A script that runs programs one after another has their time; one that waits for a trainer
        has not.
        """
        below = processes.descendants(self.kept.root) if self.kept is not None else []
        return max(below, key=processes.effort, default=None)

    def one(self, member: str) -> Process:
        """Return the process of a member; DrillError where there is none that lives."""
        rank = self.ranks.get(member)
        if rank is not None and rank.alive:
            return rank.process
        process = None
        if rank is None and member == self.name and self.kept is not None:
            process = self.kept.process if self.ranks else self._heaviest()
        if process is None or not processes.still(process):
            msg = f"{member} has no process that runs"
            raise DrillError(msg)
        return process

    def reborn(self, member: str) -> bool:
        """Return whether a member that was struck has been started again since."""
        struck = self.struck.get(member)
        if struck is None or self.kept is None:
            return False
        rank = self.ranks.get(member)
        return self.began > struck or (rank is not None and rank.alive and rank.since > struck)
