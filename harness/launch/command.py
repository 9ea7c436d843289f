"""Anybody's training command as a Job: started, followed, hit, started again, and left no trace of.

In: the words of a command, and a folder. Out: what it says (`happenings`), what we saw (`seen`),
and what could not be read or went wrong (`problems`). The command is asked for no more than the
contract: it may say hello, it says its steps, and it goes on from its newest checkpoint when
RP_RESUME is 1. A copy of the command that ends with an error, or that goes silent, is started
again, with RP_ATTEMPT one higher; one that heals itself (torchrun --max-restarts) is left alone.
Only processes that descend from the command's keeper are ever signalled.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote_to_bytes

from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening
from rackproof.harness.launch import logtail, processes
from rackproof.harness.launch.copy import EVENTS, Copy, Order
from rackproof.harness.launch.crew import Crew, Note, Terms, nobody
from rackproof.harness.launch.member import Member, Outcome, Seen
from rackproof.harness.launch.processes import Process
from rackproof.harness.launch.tail import Tail
from rackproof.harness.launch.waiting import NoOrders

PATIENCE = 120.0  # s without a step; the first one waits for imports
DEATH = 10.0  # s in which a signal must have been seen to work


@dataclass(slots=True)
class CommandJob(NoOrders):
    """The job. Times are seconds; `steps` None: as many as the command makes.

    A copy that goes on after `steps`, or that tells its steps again and again, is ended for good.
    Each copy is started again at most `restarts` times by itself; with `auto` False only when it is
    told to. A copy that makes no step for `patience` (None: two minutes) is taken for hung. SIGTERM
    gets `grace` before SIGKILL. `url`: where checkpoints belong (default: folder/checkpoints).
    `note` and `fact` are told at once what the job does and sees. Several threads may call it.
    """

    command: Sequence[str]
    folder: Path
    steps: int | None = None
    seed: int = 0
    replicas: int = 1
    restarts: int = 3
    patience: float | None = None
    grace: float = 10.0
    auto: bool = True
    url: str = ""
    log_regex: str | None = None
    placement: dict[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    note: Note = nobody
    fact: Note = nobody
    layer: str = "C"
    _crew: Crew = field(init=False)
    _lock: Any = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        """Raise DrillError for what cannot be run."""
        if not self.command or not self.command[0]:
            msg = "no training command: rackproof drill NAME -- COMMAND…"
            raise DrillError(msg)
        if self.replicas < 1:
            msg = f"{self.replicas} replicas of a command cannot be started"
            raise DrillError(msg)
        if self.log_regex:
            logtail.check(self.log_regex)
        self.folder = self.folder.absolute()
        url = self.url or (self.folder / "checkpoints").as_uri()
        words = tuple(self.command)
        pattern = self.log_regex or ""
        order = Order(words, self.folder, url, self.seed, pattern, self.environment)
        copies = [Copy(index, order) for index in range(self.replicas)]
        patience = PATIENCE if self.patience is None else self.patience
        times = (self.restarts, patience, self.grace, self.auto)
        tail = Tail(self.folder / EVENTS, strict=True)
        self._crew = Crew(
            copies, tail, Terms(*times, self.note, self.fact, self.steps), self.placement
        )

    def __enter__(self) -> Self:
        """Start every copy; DrillError where one cannot be, and then none is left."""
        self._crew.tail.since = time.monotonic()
        try:
            if not self.url:
                (self.folder / "checkpoints").mkdir(parents=True, exist_ok=True)
            self.start(resume=False)
        except OSError as error:
            self.close()
            msg = f"{error.filename or self.folder}: {error.strerror}"
            raise DrillError(msg) from error
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """End everything, then look at the checkpoints that the command told of."""
        self.close()
        if kind is None or issubclass(kind, DrillError):
            self.look()

    # --- what is known --------------------------------------------------------------------------

    @property
    def happenings(self) -> list[Happening]:
        """What the command said and what the job did, as it was found."""
        return self._crew.happenings

    @property
    def acts(self) -> list[Happening]:
        """What the job did itself, without what the drill did (injected), in a list that grows."""
        return self._crew.acts

    @property
    def seen(self) -> list[Seen]:
        """What the job looked at itself, in a list that grows."""
        return self._crew.seen

    @property
    def problems(self) -> list[str]:
        """What could not be read or went wrong, in words."""
        return [*self._crew.tail.told(), *self._crew.problems]

    def members(self) -> Sequence[Member]:
        """Return who takes part now: each rank that said hello, or one process for each copy."""
        with self._lock:
            self._crew.turn()
            return [
                Member(name, "replica", process.pid, self.placement.get(name, ""))
                for copy in self._crew.copies
                for name, process in sorted(copy.present().items())
            ]

    def committed(self) -> int:
        """Return the newest committed step of any copy, 0 before the first."""
        with self._lock:
            self._crew.turn()
            return self._crew.newest

    def reach(self, step: int, within: float = 60.0) -> None:
        """Wait until `step` is committed; DrillError where the run ends or stands still before."""
        crew = self._crew
        if not self._wait(lambda: crew.newest >= step or crew.over(), within):
            msg = f"step {step} did not come within {within:g} s; the newest is {crew.newest}"
            raise DrillError(msg)
        if crew.newest < step:
            whys = "; ".join(f"{copy.name} {copy.why}" for copy in crew.copies if copy.why)
            bad = next((copy for copy in crew.copies if copy.code), crew.copies[0])
            log = bad.order.log(bad.index, bad.attempt)
            msg = f"the command was over before step {step}: {whys}; its output is in {log}"
            raise DrillError(msg)

    def until(self, what: Callable[[Happening], bool], within: float = 60.0) -> Happening | None:
        """Wait for a happening, those that were included; None when it does not come in time."""
        found: list[Happening] = []
        seen = 0

        def there() -> bool:
            nonlocal seen
            fresh, seen = self.happenings[seen:], len(self.happenings)
            found.extend(happening for happening in fresh if what(happening))
            return bool(found) or self._crew.over()

        self._wait(there, within)
        return found[0] if found else None

    def finish(self, within: float = 120.0) -> bool:
        """Wait for the end; False where it did not come, or came with an error."""
        crew = self._crew
        if not self._wait(crew.over, within):
            said = f"the command had not ended after {within:g} s, at step {crew.newest}"
            crew.say(Outcome(said))
            return False
        if self.steps is not None and crew.made < self.steps:
            crew.say(Outcome(f"the command ended at step {crew.newest} of {self.steps}"))
        return all(copy.code == 0 for copy in crew.copies)

    def _wait(self, over: Callable[[], bool], within: float) -> bool:
        """Take turns until `over`; False where that is not so after `within` seconds."""
        deadline = time.monotonic() + within
        while True:
            with self._lock:
                self._crew.turn()
                if over():
                    return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            self._crew.pause(left)

    # --- what is done ---------------------------------------------------------------------------

    def kill(self, member: str) -> None:
        """SIGKILL a member's process, and see it dead."""
        with self._lock:
            copy, process = self._strike(member, "kill", signal.SIGKILL)
            if not processes.gone(process, DEATH):
                msg = f"{member}: process {process.pid} did not die of SIGKILL"
                raise DrillError(msg)
            main = copy.kept is not None and copy.kept.process == process
            code = copy.kept.await_code(DEATH) if main and copy.kept is not None else None
            self._crew.died(process, member, code)
            self._crew.turn()

    def freeze(self, member: str) -> None:
        """SIGSTOP a member's process, and see it stopped."""
        with self._lock:
            _, process = self._strike(member, "freeze", signal.SIGSTOP)
            if not processes.in_state(process, "T", DEATH):
                msg = f"{member}: process {process.pid} did not stop"
                raise DrillError(msg)
            self._crew.saw("stopped", member=member, pid=process.pid)

    def thaw(self, member: str) -> None:
        """SIGCONT it, where it is still there."""
        with self._lock:
            copy = self._crew.copy(member)
            process = copy.one(member)
            copy.struck.pop(member, None)
            if processes.send(process, signal.SIGCONT) and processes.in_state(
                process, "RSDI", DEATH
            ):
                self._crew.saw("thawed", member=member, pid=process.pid)

    def replace(self, member: str, subject: str) -> None:
        """Go on at `subject` instead: the member's copy of the command is started again.

        Not where that has happened since the member was struck, or where its launcher replaces the
        rank within HEAL seconds: then only the place is noted.
        """
        with self._lock:
            crew = self._crew
            copy = crew.copy(member)
            crew.note("told", member=member, subject=subject)
            self.placement[member] = subject
            crew.turn()
            if crew.heals(copy, member):
                copy.struck.pop(member, None)
            else:
                crew.restart(copy, member, "told")

    def start(self, *, resume: bool) -> None:
        """Start each copy that does not run, from the newest checkpoint or afresh."""
        with self._lock:
            crew = self._crew
            crew.turn()
            idle = [copy for copy in crew.copies if not copy.running]
            for copy in idle:
                copy.start(resume=resume)
            if resume and len(idle) == len(crew.copies):
                crew.restarted(idle[0], "told")

    def close(self) -> None:
        """End all that still runs; it may be called again."""
        with self._lock, contextlib.ExitStack() as each:
            for copy in self._crew.copies:
                each.callback(self._end, copy)  # all of them, even where one will not go

    def look(self) -> None:
        """Hash what the command said to be checkpoints; each becomes a fact in `seen`."""
        from rackproof.harness.launch import foreign  # noqa: PLC0415 - at the end only

        stored = self._crew.copies[0].order.url.removeprefix("file://")
        path = Path(os.fsdecode(unquote_to_bytes(stored)))
        roots = [self.folder] if "://" in stored else [path, self.folder]
        with self._lock:
            for fields in foreign.committed(self.happenings, roots):
                self._crew.saw("checkpoint", **fields)

    def _end(self, copy: Copy) -> None:
        if copy.running:
            copy.why = copy.why or "was ended by the drill"
            self._crew.stop(copy, self.grace)

    def _strike(self, member: str, fault: str, number: int) -> tuple[Copy, Process]:
        self._crew.turn()
        copy = self._crew.copy(member)
        process = copy.one(member)
        fields = {"member": member, "subject": self.placement.get(member, ""), "pid": process.pid}
        self._crew.note("injected", fault=fault, **fields)
        copy.struck[member] = time.monotonic()
        if not processes.send(process, number):
            msg = f"{member}: process {process.pid} was gone before it could be hit"
            raise DrillError(msg)
        return copy, process
