"""Jobs on the GPUs of a house: steps of compute, memory and communication, in virtual time.

In: how long each phase takes at full speed, and how much of its dynamic power a GPU uses in it.
Out: steps with their times. Only compute feels a cap:

    t = t_compute / s + t_memory + t_communication,   a job's step is its slowest rank's

A rank that has computed and moved its memory waits for the others where they communicate. The end
of its compute is reckoned within a piece of time of 10 ms at most, at whose end its load changes.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackproof.harness.devices.emulated.house.bank import TICK_S
from rackproof.harness.devices.emulated.house.house import PowerHouse
from rackproof.harness.errors import SpecError, nearest
from rackproof.harness.power.zone import Array, Places

PIECE_S = 0.010
"""Ranks that end within this of each other change their loads together."""
LOOK_S = 0.100
"""How long ranks compute until their speeds are looked at again."""
_NEAR = 1e-9


@dataclass(frozen=True, slots=True)
class Work:
    """A job: its GPUs (places in the house), s of each phase at full speed, loads 0..1 in them.

    The loads of memory and communication are assumed.
    """

    name: str
    gpus: Places
    compute: float
    memory: float
    communication: float
    u_compute: float = 1.0
    u_memory: float = 0.6
    u_communication: float = 0.35

    def __post_init__(self) -> None:
        """Refuse what is no job."""
        if not len(self.gpus):
            msg = f"{self.name}: a job without GPUs"
            raise SpecError(msg)
        if not (0.0 < self.compute < math.inf):
            msg = f"{self.name}: compute takes more than 0 s, not {self.compute!r}"
            raise SpecError(msg)
        for name in ("memory", "communication"):
            if not 0.0 <= getattr(self, name) < math.inf:
                msg = f"{self.name}: {name} takes 0 s or more, not {getattr(self, name)!r}"
                raise SpecError(msg)
        for name in ("u_compute", "u_memory", "u_communication"):
            if not 0.0 <= getattr(self, name) <= 1.0 or not self.u_compute:
                msg = f"{self.name}: {name} is a load of 0 to 1, not {getattr(self, name)!r}"
                raise SpecError(msg)


@dataclass(frozen=True, slots=True)
class Step:
    """A step that was done: numbers from 0, `begin` and `end` in s of the house's clock.

    `spread` is (longest - shortest) / mean of its ranks' compute times.
    """

    job: str
    number: int
    begin: float
    end: float
    spread: float


class _Run:
    """Where one job is. Its own time, `now`, stands while the job stands."""

    def __init__(self, house: PowerHouse, work: Work) -> None:
        self.work = work
        self.paused = False
        self._house = house
        self._number, self._now = 0, 0.0
        self._begin_step()

    @property
    def stands(self) -> bool:
        """Whether it makes no progress: it was paused, or a GPU of it has no power."""
        return self.paused or bool(self._house.dark[self.work.gpus].any())

    def _begin_step(self) -> None:
        self._begun_at, self._begun = self._house.clock.now(), self._now
        self._target = self._done_work() + self.work.compute
        self._ends = np.full(len(self.work.gpus), np.inf)

    def _done_work(self) -> Array:
        return self._house.work[self.work.gpus].copy()

    @property
    def _together(self) -> float:
        """When all communicate; inf as long as one computes."""
        return float(self._ends.max()) + self.work.memory

    def load(self) -> None:
        """Set the loads of its GPUs."""
        work, house = self.work, self._house
        if self.stands:
            house.load[work.gpus] = 0.0
            return
        moved = self._ends + work.memory <= self._now + _NEAR
        busy = np.where(moved, work.u_communication, work.u_memory)
        house.load[work.gpus] = np.where(np.isinf(self._ends), work.u_compute, busy)

    def due(self) -> float:
        """Return the seconds until something changes, a piece of time at least."""
        if self.stands:
            return math.inf
        together = self._together
        if together <= self._now + _NEAR:
            return together + self.work.communication - self._now
        computing = np.isinf(self._ends)
        left = self._ends + self.work.memory - self._now
        soon = [float(left[left > _NEAR].min(initial=math.inf))]
        if computing.any():
            work = (self._target - self._house.work[self.work.gpus])[computing]
            speed = self._house.speed[self.work.gpus][computing]
            soon += [LOOK_S, float((work / np.where(speed > 0.0, speed, 1.0)).min())]
        return min(max(PIECE_S, min(soon)), together - self._now)

    def passed(self, seconds: float, before: Array) -> Step | None:
        """Take in that time has passed; `before` is the work done until then of each GPU."""
        if self.stands:
            return None
        begin, self._now = self._now, self._now + seconds
        now, was = self._done_work(), before[self.work.gpus]
        ended = np.isinf(self._ends) & (now >= self._target - _NEAR)
        if ended.any():
            share = (self._target - was)[ended] / (now - was)[ended]
            self._ends[ended] = begin + np.clip(share, 0.0, 1.0) * seconds
        if self._together + self.work.communication > self._now + TICK_S / 2.0:
            return None
        times = self._ends - self._begun
        spread = float((times.max() - times.min()) / times.mean())
        end = self._house.clock.now()
        step = Step(self.work.name, self._number, self._begun_at, end, spread)
        self._number += 1
        self._begin_step()
        return step


class Workload:
    """The jobs of a house. GPUs of no job idle."""

    def __init__(self, house: PowerHouse, works: Sequence[Work]) -> None:
        """Begin the first step of each. SpecError where two jobs share a GPU, or a name."""
        taken = [int(gpu) for work in works for gpu in work.gpus]
        known = range(len(house.load))
        if len(set(taken)) != len(taken) or any(gpu not in known for gpu in taken):
            msg = "each GPU of a house can be in one job"
            raise SpecError(msg)
        self._house = house
        self._runs = {work.name: _Run(house, work) for work in works}
        if len(self._runs) != len(works):
            msg = "two jobs of one name"
            raise SpecError(msg)

    def advance(self, seconds: float) -> list[Step]:
        """Let time pass; return the steps that ended, in order of their ends."""
        house, steps = self._house, []
        end = house.clock.now() + seconds
        while (left := end - house.clock.now()) > TICK_S / 2.0:
            begin, before = house.clock.now(), house.work
            runs = self._runs.values()
            for run in runs:
                run.load()
            due = min([left, *(run.due() for run in runs)])
            house.advance(max(1, math.ceil(due / TICK_S - 1e-6)) * TICK_S)
            passed = house.clock.now() - begin
            found = [run.passed(passed, before) for run in runs]
            steps += [step for step in found if step is not None]
        for run in self._runs.values():
            run.load()
        return steps

    def pause(self, job: str) -> None:
        """Let a job stand where it is: its GPUs idle."""
        self._run(job).paused = True
        self._run(job).load()

    def resume(self, job: str) -> None:
        """Let it go on from there."""
        self._run(job).paused = False
        self._run(job).load()

    def _run(self, job: str) -> _Run:
        if job not in self._runs:
            msg = f"no job is called {job!r}{nearest(job, self._runs)}"
            raise SpecError(msg)
        return self._runs[job]
