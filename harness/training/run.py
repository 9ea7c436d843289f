"""The reference training run as a job: starts its processes, hits them, and leaves none behind.

In: a Plan and a folder. Out: events files in ``folder/events``, checkpoints on the plan's tiers,
and what we saw of the processes (`seen`). The job owns no training state: a coordinator that dies
is started again, and goes on from what the replicas hold. When this process dies, so do they: stdin
ends, and the kernel kills what does not read it.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Self

from rackproof.harness.checkpoint import commit
from rackproof.harness.errors import DrillError
from rackproof.harness.launch import processes
from rackproof.harness.launch.member import Member, Seen
from rackproof.harness.launch.tail import Tail
from rackproof.harness.launch.waiting import Waiting
from rackproof.harness.training.dataset import DataSet
from rackproof.harness.training.diary import FOLDER, Diary
from rackproof.harness.training.plan import Plan
from rackproof.harness.training.replica import DATA, ORDERS
from rackproof.harness.training.roster import Roster

EVERY = 0.01  # s between two looks; a look costs about 50 µs
STATES = 0.1  # s between two looks at who was stopped
GRACE = 5.0  # s that a process may take to go when it is over
COORDINATOR = "coordinator"
PROXY = "proxy"
SUPERVISOR = "supervisor"
MODULES = {COORDINATOR: "coordinator", PROXY: "proxy"}
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
RESTARTS = 8  # times that a coordinator is started again


class LayerA(Waiting):
    """One run; a context manager, at whose end nothing of it is left."""

    layer = "A"

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        *,
        name: str = "faulted",
        placement: Mapping[str, str] | None = None,
    ) -> None:
        """Begin nothing yet. `placement` maps members (r0, …, s0, …) to subjects of the rack."""
        self.plan, self.folder, self.name = plan, folder.absolute(), name
        self.roster = Roster.of(self.folder, plan, placement or {})
        self.seen: list[Seen] = []
        self.problems: list[str] = []
        self.tail = Tail(self.folder / FOLDER)
        self.happenings = []
        self._step = 0
        self._ended = False
        self._gate: dict[str, Any] | None = None  # the last that was ordered
        self._attempts: dict[str, int] = {}
        self._living: dict[str, subprocess.Popen[bytes]] = {}
        self._ends: dict[int, str] = {}  # by pid, who of ours sends it SIGKILL: drill, order
        self._still: set[int] = set()  # pids that we stopped, or were seen to be stopped
        self._states = 0.0
        self._logs: list[IO[bytes]] = []
        self._news = threading.Condition()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="rackproof-run", daemon=True)

    # --- begin and end --------------------------------------------------------------------------
    def __enter__(self) -> Self:
        """Write the data set and start all processes; raises DrillError."""
        try:
            (self.folder / "logs").mkdir(parents=True, exist_ok=True)
            DataSet.write(self.folder / DATA, self.plan)
            self._diary = Diary(self.folder, SUPERVISOR, 1)
        except OSError as error:
            raise self._unwritten(error) from error
        self._write_roster(resume=False)
        self._thread.start()
        try:
            self._begin()
        except BaseException:
            self.close()
            raise
        return self

    def _begin(self) -> None:
        with self._news:
            if self.plan.proxied:
                self._spawn(PROXY, [seat.name for seat in self.roster.seats])
            self._spawn(COORDINATOR, [])
            for seat in self.roster.seats:
                self._spawn(seat.name, [])

    def _unwritten(self, error: OSError) -> DrillError:
        return DrillError(f"{self.folder}: cannot be written ({error.strerror})")

    def __exit__(self, *_: object) -> None:
        """End all that is left."""
        self.close()

    def _write_roster(self, *, resume: bool) -> None:
        seats, sha = self.roster.seats, self.roster.commit or commit.here(Path(__file__).parent)
        self.roster = Roster(self.folder, self.plan, seats, resume, sha)
        try:
            self.roster.save()
        except OSError as error:
            raise self._unwritten(error) from error

    def _spawn(self, name: str, more: list[str]) -> None:
        """Start one process, the next attempt of its name."""
        attempt = self._attempts[name] = self._attempts.get(name, 0) + 1
        module = f"rackproof.harness.training.{MODULES.get(name, 'replica')}"
        words = [str(self.folder)]
        words += {COORDINATOR: [str(attempt)], PROXY: []}.get(name, [name, str(attempt)])
        threads = self.plan.threads
        kind, _, value = self.plan.defect.partition(":")
        if kind == "threads" and (attempt > 1 or name.startswith("s")):
            threads = int(value)
        environment = {**os.environ, **dict.fromkeys(THREADS, str(threads)), "PYTHONHASHSEED": "0"}
        try:
            log = (self.folder / "logs" / f"{name}.{attempt}.log").open("ab")
            self._logs.append(log)
            self._living[name] = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", module, *words, *more],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE if name == PROXY else log,
                stderr=log, env=environment,
                start_new_session=True, close_fds=True,
            )  # fmt: skip
        except OSError as error:
            msg = f"a process of the training run cannot be started ({error.strerror})"
            raise DrillError(msg) from error

    def start(self, *, resume: bool) -> None:
        """Start what is gone again; with `resume` the job goes on from its newest checkpoint."""
        with self._news:
            self._write_roster(resume=resume)
            for name in [COORDINATOR, *(s.name for s in self.roster.seats if s.role == "replica")]:
                if name not in self._living:
                    self._spawn(name, [])

    def close(self) -> None:
        """End all processes; those that are still there are killed."""
        with self._news:
            for child in self._living.values():
                self._mine(child)  # also those that the kernel ends with the thread that began them
            self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._news:
            for child in self._living.values():
                child.kill()
            for name, child in self._living.items():
                self._died(name, child, child.wait())
                for end in (child.stdin, child.stdout):
                    if end is not None:
                        with contextlib.suppress(OSError):
                            end.close()
            self._living.clear()
            self._diary.close()
            for log in self._logs:
                log.close()
            self._logs.clear()

    # --- what goes on ---------------------------------------------------------------------------
    def _follow(self) -> None:
        while not self._over.wait(EVERY):
            with self._news:
                try:
                    self._look()
                except DrillError as error:  # on a thread of ours: said at the end
                    self._trouble(str(error))
                self._news.notify_all()

    def _trouble(self, what: str) -> None:
        if what not in self.problems:
            self.problems.append(what)

    def _exited(self, **fields: Any) -> None:
        """Write that a process is gone; what cannot be written is kept in words."""
        try:
            self._diary.note("exited", **fields)
        except OSError as error:
            self._trouble(str(self._unwritten(error)))

    def _read(self) -> None:
        for what in self.tail.poll():
            self.happenings.append(what)
            if what.kind == "step" and what.who == COORDINATOR:
                self._step = max(self._step, what.number("step") or 0)
            self._ended = self._ended or what.kind == "ended"

    def _look(self) -> None:
        self._read()
        for name, child in list(self._living.items()):
            if (code := child.poll()) is not None:
                self._read()  # what it wrote last may have come since: its end, and then it went
                del self._living[name]
                if child.stdin is not None:
                    with contextlib.suppress(OSError):  # an order that was under way, to nobody
                        child.stdin.close()
                self._died(name, child, code)
                self._exited(member=name, pid=child.pid, code=code)
                if name == COORDINATOR and code and not self._ended:
                    self._again()
        self._look_for_stops()

    def _look_for_stops(self) -> None:
        """See, now and then, who was stopped, and not by us."""
        if (now := time.monotonic()) < self._states:
            return
        self._states = now + STATES
        for name, child in self._living.items():
            process = None if child.pid in self._still else processes.look(child.pid)
            if process is not None and process.state == "T":
                self._still.add(child.pid)
                self._see("stopped", member=name, pid=child.pid, by="")

    def _mine(self, child: subprocess.Popen[bytes]) -> None:
        """Note that it is we who kill a process, where nobody else has done so before."""
        if child.poll() is None:
            self._ends[child.pid] = "drill"

    def _died(self, name: str, child: subprocess.Popen[bytes], code: int) -> None:
        """See that a process is gone, and who of ours sent the signal of which it died, if any."""
        by = self._ends.get(child.pid, "") if code == -signal.SIGKILL else ""
        self._see("died", member=name, pid=child.pid, code=code, by=by)

    def _again(self) -> None:
        """Start the coordinator again, who is told which members are gone."""
        if self._attempts[COORDINATOR] <= RESTARTS and not self._over.is_set():
            names = [seat.name for seat in self.roster.seats]
            self._spawn(COORDINATOR, [name for name in names if name not in self._living])
            if self._gate is not None:
                with contextlib.suppress(DrillError):  # gone at once: the next look sees it
                    self._say(COORDINATOR, self._gate)

    def _see(self, what: str, **fields: Any) -> None:
        self.seen.append(Seen(what, fields, time.monotonic()))

    def members(self) -> list[Member]:
        """Return who lives: the coordinator first, then the seats in order."""
        with self._news:
            pids = {name: child.pid for name, child in self._living.items()}
            instead = {
                what.text("member"): what.text("instead")
                for what in self.happenings
                if what.kind == "spare-active"
            }
        found = []
        if COORDINATOR in pids:
            found.append(Member(COORDINATOR, COORDINATOR, pids[COORDINATOR]))
        for seat in self.roster.seats:
            if seat.name in pids:
                role = "replica" if seat.name in instead else seat.role
                member = Member(seat.name, role, pids[seat.name], seat.subject, seat.region)
                found.append(member)
        return found

    def _gone(self) -> str:
        return "" if COORDINATOR in self._living else "its coordinator is gone"

    def finish(self, within: float = 120.0) -> bool:
        """Wait for the end, while steps are committed at least every `within` seconds."""
        try:
            self._wait(lambda: self._ended, within, "its end")
        except DrillError:
            return False
        end = time.monotonic() + 60.0
        with self._news:
            while self._working and time.monotonic() < end:
                self._news.wait(0.2)
            return not self._working

    @property
    def _working(self) -> bool:
        """Whether a process that the run still counts on is there; who was isolated is not."""
        out = {what.text("member") for what in self.happenings if what.kind == "isolated"}
        return any(name != PROXY and name not in out for name in self._living)

    # --- what is done to it ---------------------------------------------------------------------
    def _child(self, member: str) -> subprocess.Popen[bytes]:
        child = self._living.get(member)
        if child is None:
            msg = f"{member} is no living member: {', '.join(self._living) or 'nobody'} is"
            raise DrillError(msg)
        return child

    def kill(self, member: str) -> None:
        """SIGKILL a member, and see that it is dead."""
        with self._news:
            child = self._child(member)
            self._mine(child)
            child.kill()
            child.wait()
            self._look()
            self._news.notify_all()

    def _signal(self, member: str, number: int, states: str, word: str) -> None:
        with self._news:
            process = processes.look(self._child(member).pid)
        sent = process is not None and processes.send(process, number)
        if process is not None and sent and processes.in_state(process, states, 5.0):
            self._see(word, member=member, pid=process.pid, by="drill")
            return
        msg = f"{member} could not be {word}"
        raise DrillError(msg)

    def freeze(self, member: str) -> None:
        """SIGSTOP a member, and see that it is stopped."""
        with self._news:
            self._still.add(self._child(member).pid)
        self._signal(member, 19, "Tt", "stopped")

    def thaw(self, member: str) -> None:
        """SIGCONT a member."""
        self._signal(member, 18, "RSD", "thawed")
        with self._news:
            self._still.discard(self._child(member).pid)

    def _say(self, name: str, body: Mapping[str, Any]) -> None:
        with self._news:
            stdin = self._child(name).stdin
            assert stdin is not None  # noqa: S101 - a pipe
            try:
                stdin.write(json.dumps(body).encode() + b"\n")
                stdin.flush()
            except OSError as error:
                msg = f"{name} takes no orders ({error.strerror})"
                raise DrillError(msg) from error

    def order(self, member: str, what: str, **how: Any) -> None:
        """Have a member do what broken hardware would: one of replica.ORDERS."""
        if what not in ORDERS:
            msg = f"{what} is no order: {', '.join(ORDERS)} are"
            raise DrillError(msg)
        if what == "storage":
            how = {"breaks": "", "under": "/", "after": 0, "seconds": 0.0, **how}
            with self._news:
                self._ends[self._child(member).pid] = "order" if how["breaks"] == "torn" else ""
        self._say(member, {"order": what, **how})

    def link(self, member: str, *, delay: float = 0.0, cut: bool = False) -> None:
        """Make the way of a member slow (`delay` s each way), or cut it."""
        if not self.plan.proxied:
            msg = "this run has no ways that could be made slow: its plan is not proxied"
            raise DrillError(msg)
        self.roster.seat(member)
        with self._news:
            self._say(PROXY, {"member": member, "delay": delay, "cut": cut})
            done = self._child(PROXY).stdout
            if done is None or not done.readline():
                msg = "the proxy of the run's ways does not answer"
                raise DrillError(msg)
        if delay or cut:
            self._see("fired", fault="cut" if cut else "slow-link", fired=1, member=member)

    def gate(self, step: int | None) -> None:
        """Have no step begun after `step`; None lets the run go on."""
        self._gate = {"order": "gate", "step": step}
        self._say(COORDINATOR, self._gate)

    def replace(self, member: str, subject: str) -> None:
        """Tell the coordinator to go on with the spare at `subject` instead of a member."""
        self._say(COORDINATOR, {"order": "replace", "member": member, "subject": subject})
