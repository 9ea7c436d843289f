"""Layer B as a Job: a lighthouse and N replicas under torchft, supervised, and none left behind.

In: a Plan and a folder. Out: events files in ``folder/events``, checkpoints in
``folder/checkpoints``, what we saw of the processes (`seen`). A replica that is gone is started
again with RP_ATTEMPT one higher and RP_RESUME=1, at once or, where the plan is not `auto`, when we
are told; torchft heals it from a peer. This module needs no torch, its processes do.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from rackproof.harness.errors import DrillError
from rackproof.harness.launch import processes
from rackproof.harness.launch.kept import Kept
from rackproof.harness.launch.member import Member, Outcome, Seen
from rackproof.harness.launch.tail import Tail
from rackproof.harness.launch.waiting import NoOrders, Waiting
from rackproof.harness.training.plan import Plan
from rackproof.harness.training.torch import require_torch

EVERY = 0.02  # s between two looks
START = 60.0  # s that the lighthouse may take to start
DEATH = 10.0  # s in which a signal must have been seen to work
GRACE = 10.0  # s between SIGTERM and SIGKILL, and for the last replicas to go
RESTARTS = 8  # of one replica
MODULE = "rackproof.harness.training.torch"


class TorchftJob(NoOrders, Waiting):
    """One run; a context manager, at whose end nothing of it is left."""

    layer = "B"

    def __init__(
        self,
        plan: Plan,
        folder: Path,
        *,
        name: str = "faulted",
        placement: Mapping[str, str] | None = None,
    ) -> None:
        """Begin nothing yet. `placement` maps members (r0, r1, …) to subjects of the rack."""
        self.plan, self.folder, self.name = plan, folder.absolute(), name
        self.placement = dict(placement or {})
        self.seen: list[Seen] = []
        self.problems: list[str] = []
        self.happenings = []
        self.tail = Tail(self.folder / "events")
        self._names = [f"r{number}" for number in range(plan.replicas)]
        self._attempts = dict.fromkeys(self._names, 0)
        self._struck: dict[str, int] = {}
        self._killed: set[int] = set()  # pids that we sent SIGKILL
        self._codes: dict[str, int] = {}
        self._worked: set[str] = set()  # who made a step in this attempt
        self._running: dict[str, Kept] = {}
        self._lighthouse: Kept | None = None
        self._address = ""
        self._step = 0
        self._ended = False
        self._news = threading.Condition(threading.RLock())
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="rackproof-torchft", daemon=True)

    # --- begin and end --------------------------------------------------------------------------
    def __enter__(self) -> Self:
        """Start the lighthouse and all replicas; DrillError where they cannot be."""
        require_torch()
        try:
            for part in ("logs", "events", "checkpoints"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
            body = json.dumps(self.plan.as_json(), indent=1)
            (self.folder / "plan.json").write_text(body, "utf-8")
        except OSError as error:
            msg = f"{self.folder}: cannot be written ({error.strerror})"
            raise DrillError(msg) from error
        try:
            self._address = self._light()
            self.start(resume=False)
        except BaseException:
            self.close()
            raise
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """End all that is left."""
        self.close()

    def _light(self) -> str:
        file = self.folder / "lighthouse.txt"
        words = ["--silence", str(self.plan.silence), "--address", str(file)]
        kept = self._lighthouse = self._launch("lighthouse", words, {}, "lighthouse")
        until = time.monotonic() + START
        while not file.exists():
            if kept.poll() is not None or time.monotonic() > until:
                msg = f"torchft's lighthouse does not start: see {self.folder / 'logs'}"
                raise DrillError(msg)
            self._over.wait(EVERY)
        return file.read_text("utf-8").strip()

    def _launch(self, module: str, words: list[str], more: Mapping[str, str], log: str) -> Kept:
        environment = {"RUST_LOG": "error", **os.environ, "PYTHONHASHSEED": "0", **more}
        command = [sys.executable, "-P", "-m", f"{MODULE}.{module}", *words]
        return Kept(command, environment, self.folder / "logs" / f"{log}.log")

    def _spawn(self, name: str, *, resume: bool) -> None:
        attempt = self._attempts[name] = self._attempts[name] + 1
        words = {
            "TORCHFT_LIGHTHOUSE": self._address,
            "RP_RUN_DIR": str(self.folder),
            "RP_EVENTS": str(self.folder / "events" / f"{name}.{attempt}.jsonl"),
            "RP_REPLICA": name.removeprefix("r"),
            "RP_ATTEMPT": str(attempt),
            "RP_CKPT_URL": f"T1={self.folder / 'checkpoints'}",
            "RP_RESUME": "1" if resume else "0",
            "RP_SEED": str(self.plan.seed),
        }
        plan = ["--plan", str(self.folder / "plan.json")]
        self._codes.pop(name, None)
        self._worked.discard(name)
        self._running[name] = self._launch("train", plan, words, f"{name}.{attempt}")

    def start(self, *, resume: bool) -> None:
        """Start each replica that does not run; with `resume` from the newest checkpoint."""
        with self._news:
            for name in self._names:
                if name not in self._running:
                    self._spawn(name, resume=resume)

    def close(self) -> None:
        """End all processes, and wait until they are gone."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join()
        with self._news:
            for name in list(self._running):
                self._end(name, 0.0)
            if self._lighthouse is not None:
                if (code := self._lighthouse.poll()) and self._lighthouse.process is not None:
                    pid = self._lighthouse.process.pid
                    self._see("died", member="lighthouse", pid=pid, code=code, by="")
                self._lighthouse.end(1.0)
                self._lighthouse = None

    def _end(self, name: str, grace: float) -> None:
        """End a replica and all below it."""
        kept = self._running.pop(name)
        process, mine = kept.process, kept.poll() is None
        left = kept.end(grace)
        code = self._codes[name] = -signal.SIGKILL if kept.code is None else kept.code
        if process is not None:
            mine = mine or (code == -signal.SIGKILL and process.pid in self._killed)
            self._see("died", member=name, pid=process.pid, code=code, by="drill" if mine else "")
            if left := [pid for pid in left if pid != process.pid]:
                self._see("left-behind", pids=left)

    # --- what goes on ---------------------------------------------------------------------------
    def _follow(self) -> None:
        while not self._over.wait(EVERY):
            with self._news:
                try:
                    self._look()
                except DrillError as error:  # on a thread of ours: finish tells it
                    self._say(str(error))
                self._news.notify_all()

    def _look(self) -> None:
        for what in self.tail.poll():
            self.happenings.append(what)
            if what.kind == "step":
                self._step = max(self._step, what.number("step") or 0)
                self._worked.add(what.who)
            self._ended = self._ended or what.kind == "ended"
        for name, kept in list(self._running.items()):
            if kept.poll() is None:
                continue
            self._end(name, 0.0)
            code = self._codes[name]
            if code > 0 and name not in self._worked:
                said = f"{name} ended with exit code {code} before any step: {self._why(name)}"
                self._say(Outcome(said))
            elif code != 0 and self.plan.auto:
                self._again(name)

    def _again(self, name: str) -> None:
        """Start a replica again, which a peer will heal; not when the run has come to its end."""
        if self._ended:
            return
        if self._attempts[name] > RESTARTS:
            self._say(Outcome(f"{name} was started {self._attempts[name]} times, and is given up"))
            return
        self._spawn(name, resume=True)

    def _why(self, name: str) -> str:
        """Return the last line that a replica wrote, as far as a person reads it."""
        log = self.folder / "logs" / f"{name}.{self._attempts[name]}.log"
        lines = log.read_text("utf-8", errors="replace").strip().splitlines()
        return lines[-1][:200] if lines else "it said nothing"

    def _see(self, what: str, **fields: Any) -> None:
        self.seen.append(Seen(what, fields, time.monotonic()))

    def _say(self, what: str) -> None:
        if what not in self.problems:
            self.problems.append(what)

    def members(self) -> list[Member]:
        """Return the replicas that live, in order."""
        with self._news:
            found = []
            for name in self._names:
                kept = self._running.get(name)
                if kept is not None and kept.process is not None:
                    pid, subject = kept.process.pid, self.placement.get(name, "")
                    found.append(Member(name, "replica", pid, subject))
            return found

    def _gone(self) -> str:
        told = f" ({self.problems[0]})" if self.problems else ""
        return "" if self._running else f"no replica is left{told}"

    def finish(self, within: float = 120.0) -> bool:
        """Wait for the end, while steps are committed at least every `within` seconds.

        False where it did not come, or a replica had to be ended or ended with an error.
        """
        try:
            self._wait(lambda: self._ended, within, "its end")
        except DrillError as error:
            self._say(Outcome(error))
            return False
        until = time.monotonic() + GRACE
        with self._news:
            while self._running and time.monotonic() < until:
                self._news.wait(0.1)
            late = sorted(self._running)
            for name in late:
                self._say(
                    Outcome(f"{name} was still there {GRACE:g} s after the end, and was ended")
                )
                self._end(name, 0.0)
            return not late and all(self._codes.get(name) == 0 for name in self._names)

    # --- what is done to it ---------------------------------------------------------------------
    def _process(self, member: str) -> processes.Process:
        kept = self._running.get(member)
        if kept is None or kept.process is None:
            msg = f"{member} is no living member: {', '.join(self._running) or 'nobody'} is"
            raise DrillError(msg)
        return kept.process

    def kill(self, member: str) -> None:
        """SIGKILL a replica, and see it dead."""
        with self._news:
            process = self._process(member)
            self._struck[member] = self._attempts[member]
            self._killed.add(process.pid)
            if not processes.send(process, signal.SIGKILL) or not processes.gone(process, DEATH):
                msg = f"{member}: process {process.pid} could not be killed"
                raise DrillError(msg)
            self._running[member].await_code(DEATH)  # its keeper may hear of it later than we
            self._look()
            self._news.notify_all()

    def _signal(self, member: str, number: int, states: str, word: str) -> None:
        with self._news:
            process = self._process(member)
        sent = processes.send(process, number)
        if not sent or not processes.in_state(process, states, DEATH):
            msg = f"{member} could not be {word}"
            raise DrillError(msg)
        self._see(word, member=member, pid=process.pid, by="drill")

    def freeze(self, member: str) -> None:
        """SIGSTOP a replica, and see it stopped."""
        self._struck[member] = self._attempts[member]
        self._signal(member, signal.SIGSTOP, "Tt", "stopped")

    def thaw(self, member: str) -> None:
        """SIGCONT it."""
        self._struck.pop(member, None)
        self._signal(member, signal.SIGCONT, "RSDI", "thawed")

    def replace(self, member: str, subject: str) -> None:
        """Go on at `subject`: the replica is started again, unless it was since it was hit."""
        with self._news:
            if member not in self._attempts:
                msg = f"{member} takes no part in this run: {', '.join(self._names)} do"
                raise DrillError(msg)
            self.placement[member] = subject
            struck = self._struck.pop(member, None)
            if struck is not None and member in self._running and self._attempts[member] > struck:
                return
            if member in self._running:
                self._end(member, 0.0 if struck is not None else GRACE)
            self._again(member)
