"""The copies of a training command together: hears what they say, sees who ends, starts again.

Comes in: copies, and terms. Goes out: happenings, what was seen, and problems, in lists that grow
and, where the terms name somebody, at once. Everything happens in `turn`, which whoever waits calls
often; there is no thread in here.
"""

import select
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackproof.harness.errors import DrillError
from rackproof.harness.happening import TRAINER, Happening
from rackproof.harness.launch import processes
from rackproof.harness.launch.copy import Copy
from rackproof.harness.launch.member import Outcome, Seen
from rackproof.harness.launch.processes import Process
from rackproof.harness.launch.tail import Tail

SETTLE = 1.0  # s in which what a command started may end after it, before it counts as left behind
HEAL = 10.0  # s in which a launcher may replace a lost rank by itself, before its copy is replaced
CRASHED = 1.0  # s that processes of a command get, at most, which has ended with an error itself
EVERY = 0.02  # s between two looks at what a command says
TOO_MUCH = 1 << 30  # bytes of output of one start
OVER = 10.0  # s that a command gets to end after it has told a step beyond its last
ROUNDS = 10  # times all steps may be told again without a further one
FEW = 100  # steps that may always be told again
FULL = "wrote more than can be kept"  # so that something of it is not known
DRILL = "drill"  # who speaks where the job itself does
SHOWN = 100  # problems that are told

Note = Callable[[str, Mapping[str, Any]], None]


def nobody(_what: str, _fields: Mapping[str, Any]) -> None:
    """Tell nobody."""


@dataclass(frozen=True, slots=True)
class Terms:
    """How copies are looked after; CommandJob says what each means."""

    restarts: int = 3
    patience: float = 120.0
    grace: float = 10.0
    auto: bool = True
    note: Note = nobody
    fact: Note = nobody
    last: int | None = None


@dataclass(slots=True)
class Crew:
    """All copies. `newest` is the newest step that any of them committed; `base` their first."""

    copies: Sequence[Copy]
    tail: Tail
    terms: Terms
    placement: dict[str, str]
    newest: int = 0
    base: int = 1
    happenings: list[Happening] = field(default_factory=list)
    acts: list[Happening] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    _dead: set[tuple[int, int]] = field(default_factory=set)

    @property
    def made(self) -> int:
        """How many steps were made, of a trainer that counts from 0 or from 1."""
        return self.newest - self.base + 1

    def over(self) -> bool:
        """Return whether every copy has ended for good."""
        return all(copy.why and not copy.running for copy in self.copies)

    def copy(self, member: str) -> Copy:
        """Return the copy to which a member belongs; DrillError for none."""
        name, _, _ = member.partition(".")
        for copy in self.copies:
            if copy.name == name:
                return copy
        names = ", ".join(name for copy in self.copies for name in copy.present())
        msg = f"no member {member!r}; there are {names or 'none'}"
        raise DrillError(msg)

    def pause(self, seconds: float) -> None:
        """Wait for news of an exit, for `seconds` and EVERY at most."""
        kept = [copy.kept for copy in self.copies if copy.kept is not None]
        try:
            select.select(kept, [], [], max(0.0, min(seconds, EVERY)))
        except (OSError, ValueError):  # another thread has just ended one of them
            return

    def turn(self) -> None:
        """Take in what was said and who ended, and start again what has to be."""
        self._hear(self.tail.poll())
        for copy in self.copies:
            if copy.kept is None:
                continue
            code = copy.kept.poll()
            if code is None:
                for name, process in copy.gone():
                    self.died(process, name)
            if code is not None:
                self._exited(copy, code)
            elif time.monotonic() - copy.heard > self.terms.patience:
                self.stop(copy, self.terms.grace)
                self._lost(copy, f"made no step for {self.terms.patience:g} s")
            elif self.tail.full or copy.wrote() > TOO_MUCH:
                self.stop(copy, 0.0)
                self._fail(copy, FULL)
            elif copy.beyond and time.monotonic() - copy.beyond > OVER:
                self.stop(copy, self.terms.grace)
                told = f"step {self.newest} was told, and {self.terms.last} were planned"
                self._fail(copy, f"went on after its last step: {told}")
            elif max(copy.repeats.values(), default=0) > ROUNDS * copy.furthest + FEW:
                self.stop(copy, self.terms.grace)
                self._fail(copy, f"told its steps again and again, and none after {copy.furthest}")

    # --- what is said ---------------------------------------------------------------------------

    def _hear(self, said: Sequence[Happening]) -> None:
        for happening in said:
            if happening.kind not in TRAINER:
                self.say(f"{happening.who}: kind {happening.kind!r} is not a command's to say")
                continue
            try:
                copy = self.copy(happening.who)
            except DrillError:
                self.say(f"{happening.who[:40]!r} is an events file that nobody was given")
                continue
            self.happenings.append(happening)
            if happening.attempt != copy.attempt:
                continue
            if happening.kind == "step":
                self._stepped(copy, happening)
            elif happening.kind == "restore":
                copy.said.pop(happening.who, None)
            elif happening.kind == "hello":
                self._greeted(copy, happening)

    def _stepped(self, copy: Copy, happening: Happening) -> None:
        step = happening.number("step")
        if step is None or step < 0:
            self.say(f"{happening.who}: a step without a number")
            return
        self.base = min(self.base, step)
        before = copy.said.get(happening.who, self.base - 1)
        if step <= before and not copy.backwards:
            copy.backwards = True
            self.say(f"{happening.who}: step {step} after step {before}, without a restore")
        copy.said[happening.who] = step
        copy.ever += 1
        copy.heard = time.monotonic()
        if self.terms.last is not None and step - self.base >= self.terms.last:
            copy.beyond = copy.beyond or copy.heard
        if step > copy.furthest:
            copy.furthest = step
            copy.repeats.clear()
        else:
            copy.repeats[happening.who] = copy.repeats.get(happening.who, 0) + 1
        self.newest = max(self.newest, step)

    def _greeted(self, copy: Copy, hello: Happening) -> None:
        met = copy.greet(hello)
        pid, there = hello.number("pid"), met.process is not None
        self.saw("alive", member=hello.who, pid=pid, there=there, ours=met.ours, by="hello")
        if met.beside is not None:
            self.saw("doubled", member=hello.who, pids=[met.beside.pid, pid])
        if met.before is None:
            return
        self._out(hello.who, "closed")
        self._in(hello.who)
        copy.renewed.add(hello.who)
        if copy.renewed >= copy.ranks.keys():  # its launcher has started all of them again
            copy.renewed.clear()
            if len(self.copies) == 1:
                self.restarted(copy, "by itself")

    # --- who ends, and what then ----------------------------------------------------------------

    def _exited(self, copy: Copy, code: int) -> None:
        """Clear up after a command that has ended by itself or by a signal."""
        grace = self.terms.grace if code == 0 else min(self.terms.grace, CRASHED)
        left = self.stop(copy, grace)
        if left and code >= 0:
            self.saw("left-behind", member=copy.name, pids=left)
        if code == 0:
            copy.why = "ended with exit code 0"
        else:
            self._lost(copy, f"ended with {f'exit code {code}' if code > 0 else f'signal {-code}'}")

    def _lost(self, copy: Copy, why: str) -> None:
        """Start a copy again that is lost, or have it wait, or let it be."""
        if copy.worked and not self.terms.auto:
            return
        if copy.worked and copy.again < self.terms.restarts:
            copy.again += 1
            self.restart(copy, copy.name, why)
        else:
            self._fail(copy, f"{why}, after {copy.again} restarts" if copy.again else why)

    def _fail(self, copy: Copy, why: str) -> None:
        copy.why, copy.code = why, copy.code or 1
        self.say(f"{copy.name} {why}" if why == FULL else Outcome(f"{copy.name} {why}"))

    def stop(self, copy: Copy, grace: float) -> list[int]:
        """End a copy's command and all below it; return who outlived it."""
        kept = copy.kept
        if kept is None:
            return []
        left = copy.end(grace, SETTLE if kept.code == 0 else 0.0)
        for remark in copy.remarks():
            self.say(f"{copy.name}: {remark}")
        self._hear(self.tail.drain())
        if kept.process is not None:
            self.died(kept.process, copy.name, copy.code)
        for process, member in copy.met.items():  # whose parent reaped it before we looked
            if (process.pid, process.started) not in self._dead and not processes.still(process):
                self.saw("gone", member=member, pid=process.pid)
        return left

    def heals(self, copy: Copy, member: str) -> bool:
        """Return whether a struck member is back, or comes back within HEAL seconds by itself."""
        if member not in copy.struck:
            return False
        deadline = time.monotonic() + HEAL
        while not copy.reborn(member):
            rank = copy.ranks.get(member)
            dead = rank is not None and not rank.alive
            if not (dead and copy.running) or time.monotonic() > deadline:
                return False
            self.pause(EVERY)
            self.turn()
        return True

    def restart(self, copy: Copy, member: str, why: str) -> None:
        """End a copy, where it runs, and start it again from its newest checkpoint."""
        self.stop(copy, self.terms.grace)
        self._out(member, why)
        copy.start(resume=True)
        self._in(member)
        if len(self.copies) == 1:
            self.restarted(copy, why)

    def _out(self, member: str, why: str) -> None:
        self.note("lost", member=member, why=why)
        self.note("isolated", member=member)

    def _in(self, member: str) -> None:
        subject = self.placement.get(member, "")
        self.note("spare-active", member=member, instead=member, subject=subject)

    def restarted(self, copy: Copy, why: str) -> None:
        """Note that the whole job went back to a checkpoint, the newest that it told us of."""
        step, uri = None, ""
        for each in reversed(self.happenings):
            if each.kind == "ckpt" and each.text("phase") == "committed":
                step, uri = each.number("step"), each.text("uri")
                break
        self.note("restarted", step=step, uri=uri, now=copy.attempt, why=why)

    # --- what is told ---------------------------------------------------------------------------

    def note(self, kind: str, **fields: Any) -> None:
        """Take down what the job itself does, now."""
        act = Happening(time.monotonic(), DRILL, kind, fields)
        self.happenings.append(act)
        if kind != "injected":
            self.acts.append(act)
        self.terms.note(kind, fields)

    def saw(self, what: str, **fields: Any) -> None:
        """Take down a fact, now."""
        self.seen.append(Seen(what, fields, time.monotonic()))
        self.terms.fact(what, fields)

    def died(self, process: Process, member: str, code: int | None = None) -> None:
        """Take down a death, each once; `code` where its parent told us."""
        key = (process.pid, process.started)
        if key not in self._dead:
            self._dead.add(key)
            self.note("exited", member=member, pid=process.pid, code=code)
            self.saw("died", member=member, pid=process.pid, code=code)

    def say(self, problem: str) -> None:
        """Take down a problem, each once."""
        if problem not in self.problems and len(self.problems) < SHOWN:
            self.problems.append(problem)
