"""The stage of a drill, the training job on it, and what a Drill is.

A drill is handed a Stage by fixtures, under the command line as under pytest. It asks the stage for
a job, waits for a step, injects, and lets the job end. The stage keeps the record.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Protocol

from rackproof.diagnostics.recovery.record import Expected
from rackproof.harness.happening import Happening
from rackproof.harness.launch.member import Member
from rackproof.harness.spec import RackSpec
from rackproof.harness.training.plan import Plan

__all__ = ["Drill", "Job", "Least", "Member", "PowerZone", "Stage"]


class Job(Protocol):
    """A training run under way, of whatever layer. All times are seconds."""

    layer: str
    folder: Path

    def members(self) -> Sequence[Member]:
        """Return who takes part now."""
        ...

    def committed(self) -> int:
        """Return the newest committed step, 0 before the first."""
        ...

    def reach(self, step: int, within: float = 60.0) -> None:
        """Wait until `step` is committed; DrillError where the run ends or stands still before."""
        ...

    def until(self, what: Callable[[Happening], bool], within: float = 60.0) -> Happening | None:
        """Wait for a happening, those that were included; None when it does not come in time."""
        ...

    def kill(self, member: str) -> None:
        """SIGKILL a member's process; both are recorded (injected, and the fact that it died)."""
        ...

    def freeze(self, member: str) -> None:
        """SIGSTOP it."""
        ...

    def thaw(self, member: str) -> None:
        """SIGCONT it."""
        ...

    def order(self, member: str, what: str, **how: Any) -> None:
        """Layer A: have a member do what broken hardware would (see training.replica.ORDERS)."""
        ...

    def link(self, member: str, *, delay: float = 0.0, cut: bool = False) -> None:
        """Layer A: make the way between a member and the others slow, or cut it."""
        ...

    def gate(self, step: int | None) -> None:
        """Layer A: begin no step after `step`, until told None: what is watched needs its time."""
        ...

    def replace(self, member: str, subject: str) -> None:
        """Tell the run to go on with the spare at `subject` instead of a member."""
        ...

    def start(self, *, resume: bool) -> None:
        """Start the job again after all of it was lost, from the newest checkpoint or afresh."""
        ...

    def finish(self, within: float = 120.0) -> bool:
        """Wait for the end; False where it did not come, or came with an error."""
        ...


class PowerZone(Protocol):
    """The rack's power zone under the Dimmer, with the training run on it; seconds are virtual.

    A `name` is that of the sub-drill in the record. Cuts are shares of the load measured before;
    each is of one feed that the stage draws. Raises DrillError where training, or the controller,
    does not go on.
    """

    def run(self, seconds: float) -> None:
        """Let time pass."""
        ...

    def ready(self, within: float) -> None:
        """Run until every rack draws so much that a limit can be lowered, or time is over."""
        ...

    def limit(self, name: str, cut: float) -> None:
        """Lower a feed's limit; never under what it cannot go below."""
        ...

    def ramp(self, name: str, cut: float, seconds: float) -> None:
        """Lower it along a ramp, which is over when this returns."""
        ...

    def lift(self) -> None:
        """Give the feed its limit back."""
        ...

    def lose_ac(self, name: str, cut: float) -> None:
        """Take the mains from a rack; on its battery it is to draw that much less."""
        ...

    def return_ac(self) -> None:
        """Give them back."""
        ...

    def sag(self, name: str, left: float, seconds: float) -> None:
        """Let the mains' voltage fall to a share of itself for a while."""
        ...

    def lose_sensors(self, share: float) -> None:
        """Lose a share of the GPUs' power readings, and the feed's meter."""
        ...

    def return_sensors(self) -> None:
        """Have them back."""
        ...

    def lose_coolant(self, name: str, left: float) -> None:
        """Leave a rack a share of its flow of coolant."""
        ...

    def return_coolant(self) -> None:
        """Have all of it flow again."""
        ...

    def kill_controller(self) -> None:
        """SIGKILL the Dimmer's process."""
        ...

    def start_controller(self) -> None:
        """Start another one, which takes over what the first left."""
        ...

    def recover(self) -> None:
        """Run until every cap is back where it was, and a little longer."""
        ...

    def control(self, cut: float) -> None:
        """Repeat a lowered limit with the Dimmer off, on a rack of its own."""
        ...

    def finish(self) -> None:
        """Run until the last step, and stop the controller."""
        ...


class Stage(Protocol):
    """Where a drill is held: the rack, the record, the size, and chance (`draw`)."""

    draw: Random

    @property
    def spec(self) -> RackSpec:
        """The rack."""
        ...

    @property
    def seed(self) -> int:
        """The seed of all that is drawn."""
        ...

    @property
    def small(self) -> bool:
        """Whether the drill should be as short as it can."""
        ...

    @property
    def layer(self) -> str:
        """A (our own run), B (torchft) or C (a command)."""
        ...

    def sized(self, plan: Plan) -> Plan:
        """Return the plan with the stage's seed, and the steps and replicas that were asked for."""
        ...

    def expect(self, expected: Expected) -> None:
        """Say what must hold, before anything is started."""
        ...

    def clean(self, plan: Plan) -> None:
        """Run it without a fault, twice, or take runs of the same plan that were made before."""
        ...

    def run(self, plan: Plan) -> AbstractContextManager[Job]:
        """Run it as the faulted course; at the end of the block its checkpoints are read again."""
        ...

    def place(self, job: Job, member: str) -> str:
        """Return the subject of the GPU on which a member was placed."""
        ...

    def plant(self, *faults: str) -> None:
        """Plant each ``KIND@SUBJECT[:key=value]`` into the emulated rack, all at once, now.

        Within the block of `watch`; each is noted as injected.
        """
        ...

    def watch(self, job: Job) -> AbstractContextManager[None]:
        """Watch telemetry while the block lasts: find, classify, choose a spare, tell the job."""
        ...

    def power(self, job: Job) -> AbstractContextManager[PowerZone]:
        """Put the run on the emulated rack's power zone, under the Dimmer."""
        ...

    def suspect(self, member: str, why: str) -> None:
        """Tell the watch that a member's results are wrong, so that its GPU is burnt."""
        ...

    def quiet(self, within: float = 30.0) -> bool:
        """Wait until the watch has dealt with all that was planted or suspected; False if not."""
        ...

    def fact(self, what: str, **fields: Any) -> None:
        """Record what the drill itself looked at."""
        ...

    def note(self, kind: str, **fields: Any) -> None:
        """Record a happening of the drill (injected, ...), at this moment."""
        ...


@dataclass(frozen=True, slots=True)
class Least:
    """The fewest steps and replicas of a training run that a drill can be held on."""

    steps: int = 1
    replicas: int = 1


@dataclass(frozen=True, slots=True)
class Drill:
    """One drill. `command` says that it can be held on anybody's training command (layers B, C).

    `lacks` returns why a rack cannot hold it, or an empty text; `rack` is the rack by default.
    `needs` returns what a layer (A, B, C) must have at least, with a seed.
    """

    name: str
    summary: str
    hold: Callable[[Stage], None]
    command: bool = False
    lacks: Callable[[RackSpec], str] = lambda _: ""
    rack: str = "gb300-nvl72"
    needs: Callable[[str, int], Least] = lambda _layer, _seed: Least()
