"""Drills in which members fail while others recover, and one in which the coordinator does.

coordinator-loss: SIGKILL of the coordinator; another goes on from what the replicas hold.
double-fault: the spare that takes over is killed as well; of a command, it is killed again when it
has come back and gone on. bad-spare: the spare's state has a wrong
bit, so it is refused and the next one taken. Oracle of all: the states of the fault-free run.
"""

import math
import time
from collections.abc import Callable

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Job, Least, Stage
from rackproof.diagnostics.recovery.record import TIMELINE, Expected
from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening
from rackproof.harness.training.plan import Plan

BACK = 60.0  # s in which a command must have come back
SOME = 3  # further steps after which a command has come back, though nothing was started again
LATE = 0.05  # s in which a line that was written before may be read
RENEWED = frozenset(("hello", "restore", "spare-active"))
SECOND = "the second kill"


def coordinator_loss(stage: Stage) -> None:
    """Kill the coordinator."""
    plan = stage.sized(Plan(steps=acts.steps(stage, 120)))
    stage.expect(
        Expected(
            timeline=("fault", "detected", "resumed"), unseen=("isolated", "restarted"), evicted=()
        )
    )
    stage.clean(plan)
    with stage.run(acts.gated(plan)) as job:
        job.reach(acts.moment(stage, plan))
        acts.pause(stage, job)
        job.kill("coordinator")
        job.gate(None)
        job.finish()


def double_fault(stage: Stage) -> None:
    """Kill a replica, and the spare while it takes over; of a command, the same once more."""
    own = stage.layer == "A"
    plan = stage.sized(Plan(steps=acts.steps(stage, 160), replicas=3, spares=2))
    wanted = Expected(timeline=TIMELINE, kinds=("lost", "spare-active"), detect=acts.SOON)
    both = Expected(proof="L1", timeline=("fault", "resumed"), restarts=2, lost_steps=plan.steps)
    stage.expect(wanted if own else acts.TORCHFT if stage.layer == "B" else both)
    stage.clean(plan)
    with stage.run(acts.gated(plan) if own else plan) as job:
        step = acts.moment(stage, plan)
        job.reach(step)
        name = acts.victim(stage, job)
        if stage.layer == "C":
            _twice(stage, job, name)
        else:
            job.kill(name)
        if own:
            spare = job.until(lambda what: what.kind == "spare-active", within=30.0)
            if spare is not None:
                job.kill(spare.text("member"))
        elif stage.layer == "B":
            job.reach(min(step + 2, plan.steps - 1))
            job.kill(acts.victim(stage, job))
        job.gate(None)
        job.finish()


def _twice(stage: Stage, job: Job, name: str) -> None:
    """Kill a member of a command, and one of the same command when that has come back.

    Where it does not, or is gone by then, the second kill is recorded as missed: nothing is shown.
    """
    since = time.monotonic()
    acts.kill(stage, job, name)
    if job.until(_back(name.partition(".")[0], since), within=BACK) is None:
        acts.missed(stage, SECOND, f"{name} was killed, and its command did not come back")
        return
    try:
        second = acts.victim(stage, job)
    except DrillError as error:
        acts.missed(stage, SECOND, str(error))
    else:
        acts.kill(stage, job, second, SECOND)


def _back(copy: str, since: float) -> Callable[[Happening], bool]:
    """Return what says of a happening whether a copy that was hit at `since` has come back.

    That is a step, whichever rank tells it, after something was started again or restored; or
    several further steps, where those who were not hit simply go on.
    """
    renewed, told = math.inf, set[int]()

    def stepped(what: Happening) -> bool:
        nonlocal renewed
        theirs = (what.text("member") or what.who).partition(".")[0] == copy
        if not theirs or what.at <= since:
            return False
        if what.kind in RENEWED:
            renewed = min(renewed, what.at)
        elif what.kind == "step" and what.at > since + LATE:
            told.add(what.number("step") or 0)
        return what.kind == "step" and (what.at > renewed or len(told) >= SOME)

    return stepped


def bad_spare(stage: Stage) -> None:
    """Kill a replica whose spare takes over a wrong state."""
    plan = stage.sized(Plan(steps=acts.steps(stage, 160), spares=2))
    stage.expect(
        Expected(timeline=TIMELINE, kinds=("refused", "spare-active"), unseen=("restarted",))
    )
    stage.clean(plan)
    with stage.run(acts.gated(plan)) as job:
        job.reach(acts.moment(stage, plan))
        name = acts.victim(stage, job)
        job.order("s0", "wrong-state")
        job.kill(name)
        found = job.until(lambda what: what.kind == "refused", within=30.0)
        hit = found is not None and found.text("member") == "s0"
        stage.fact("fired", fault="wrong-state", fired=int(hit))
        job.gate(None)
        job.finish()


def _double(layer: str, _seed: int) -> Least:
    """Return what a double fault needs: somebody who goes on, but for a command."""
    return acts.least_torchft(3) if layer == "B" else Least(acts.FEWEST, 1 if layer == "C" else 2)


DRILLS = (
    Drill(
        "coordinator-loss",
        "the coordinator is killed, and another goes on",
        coordinator_loss,
        needs=acts.needs(),
    ),
    Drill(
        "double-fault",
        "a replica is lost, and then who takes its place",
        double_fault,
        command=True,
        needs=_double,
    ),
    Drill(
        "bad-spare",
        "a spare has a wrong state: it is refused, the next one taken",
        bad_spare,
        needs=acts.needs(replicas=2),
    ),
)
