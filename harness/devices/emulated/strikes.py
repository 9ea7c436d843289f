"""When a planted fault acts: from the start or in some runs, for good or for a while.

In: runs that begin and end on a GPU or on a part around the GPUs, and time that passes there. Out:
calls of `on` and `off`, which the kinds of planted.py and its neighbours fill. The rules, the same
for every kind:

  neither       on from the planting on
  rate=R        each run is decided by (seed, place in the list of plants, check, attempt), so two
                orders of the same runs agree
  lasts=S       until the own clock of the GPU or part passes S seconds
  lasts=once    on in each run until one in which it fired; never again after that run

`fired` counts effects on something that was read or done: a fault that only changes what the driver
says counts once for each run in which the driver was asked for it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices.emulated import draw
from rackproof.harness.devices.emulated.facility import Part
from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.faults import Fault
from rackproof.harness.spec import RackSpec

TICK_S = 1e-9
"""A time that is nearer than this has come."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a fault knows of the run that it is planted into.

    `position` is the fault's place in the list of plants, `horizon_s` the time that one GPU's
    burns are planned to take on its own clock, `already` how often the fault fired before the run
    was taken up again.
    """

    spec: RackSpec
    seed: int
    position: int
    horizon_s: float
    already: int = 0

    def name(self, *words: str | int) -> tuple[str | int, ...]:
        """Return a name for random numbers that belong to this fault alone."""
        return ("plant", self.seed, self.position, *words)


class Struck(Protocol):
    """What a fault can be on: something with a clock of its own, that its faults go along with."""

    clock: VirtualClock

    @property
    def effects(self) -> list[Any]:
        """The faults on it, in order."""
        ...


class AnyStrike:
    """One fault on one subject. Kinds override `on`, `off`, `began`, `worked` and `asked`."""

    early = False
    """Planted before the others: it decides what there is to plant them in."""
    with_gpu = False
    """Goes along when its GPU is put into another place; all else stays where it is."""

    def __init__(self, struck: Struck, fault: Fault, plan: Plan) -> None:
        self.struck = struck
        self.fault = fault
        self.plan = plan
        self.active = False
        self.spent = False
        self._fired = plan.already
        self._felt = True  # there is no run yet
        lasts = fault.parameters.get("lasts")
        self.once = lasts == "once"
        self._until = math.inf if lasts is None or self.once else float(lasts)
        self._rate = float(fault.parameters.get("rate", 1.0))
        self.spent = self.once and self._fired > 0

    # --- what a kind does -----------------------------------------------------------------------

    def on(self) -> None:
        """Let the fault act from now on."""

    def off(self) -> None:
        """Let it act no more."""

    def began(self) -> None:
        """A run has begun on the subject while the fault acts."""

    def worked(self, seconds: float, utilisation: float) -> None:
        """`seconds` have passed while the fault acts."""

    def asked(self, metric: str, link: int | None) -> None:
        """The driver, or the part, was asked for a reading while the fault acts."""

    def reset(self) -> None:
        """The GPU was reset, after which most faults are as they were."""

    @property
    def fired(self) -> int:
        """How often the fault had an effect so far."""
        return self._fired

    def count(self, times: int = 1) -> None:
        """Count effects."""
        self._fired += times

    def count_run(self) -> None:
        """Count an effect: the first of a run, and none between runs."""
        if not self._felt:
            self._felt = True
            self._fired += 1

    # --- when it does it ------------------------------------------------------------------------

    def place(self) -> None:
        """Plant it: a fault that neither waits for a run nor is drawn for it acts at once."""
        self.struck.effects.append(self)
        if not (self.once or self._rate < 1.0):
            self._switch(on=True)

    def begin(self, check: str, attempt: int) -> None:
        """Decide whether it acts in this run."""
        self._felt = False
        self._switch(on=self._strikes(check, attempt))
        if self.active:
            self.began()

    def end(self) -> None:
        """Stop after the run where it was drawn for this run alone."""
        self._felt = True
        if self.once and self.fired > 0:
            self.spent = True
        if self.once or self._rate < 1.0:
            self._switch(on=False)

    def due(self, now: float, utilisation: float) -> float:
        """Return the seconds until it stops by itself."""
        del utilisation
        return max(0.0, self._until - now) if self.active else math.inf

    def passed(self, now: float, seconds: float, utilisation: float) -> None:
        """Act over `seconds`, and stop when the time has come."""
        if not self.active:
            return
        self.worked(seconds, utilisation)
        if now >= self._until - TICK_S:
            self._switch(on=False)

    def read(self, metric: str, link: int | None) -> None:
        """Hear what the driver was asked for."""
        if self.active:
            self.asked(metric, link)

    def _strikes(self, check: str, attempt: int) -> bool:
        if self.spent or self.struck.clock.now() >= self._until - TICK_S:
            return False
        return self._rate >= 1.0 or draw.uniform(*self.plan.name(check, attempt)) < self._rate

    def _switch(self, *, on: bool) -> None:
        if on == self.active:
            return
        self.active = on
        if on:
            self.on()
        else:
            self.off()


class Strike(AnyStrike):
    """One fault on one GPU."""

    def __init__(self, gpu: EmulatedGpu, fault: Fault, plan: Plan) -> None:
        super().__init__(gpu, fault, plan)
        self.gpu = gpu

    def leave(self) -> bool:
        """Act no more on the GPU's place, which it is taken from; return whether it acted."""
        acting = self.active
        self._switch(on=False)
        self.gpu.effects.remove(self)
        return acting

    def join(self, gpu: EmulatedGpu, *, acting: bool) -> None:
        """Act in another place, where its GPU has been put."""
        self.struck = self.gpu = gpu
        gpu.effects.append(self)
        self._switch(on=acting)


Kind = Callable[[EmulatedGpu, Fault, Plan], Strike]
SiteKind = Callable[[Part, Fault, Plan], AnyStrike]
