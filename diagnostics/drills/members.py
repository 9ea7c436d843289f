"""Drills in which members fail while others recover, and one in which the coordinator does.

coordinator-loss: SIGKILL of the coordinator; another goes on from what the replicas hold.
double-fault: the spare that takes over is killed as well. bad-spare: the spare's state has a wrong
bit, so it is refused and the next one taken. Oracle of all: the states of the fault-free run.
"""

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Stage
from rackproof.diagnostics.recovery.record import TIMELINE, Expected
from rackproof.harness.training.plan import Plan


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
        job.kill(acts.victim(stage, job))
        if own:
            spare = job.until(lambda what: what.kind == "spare-active", within=30.0)
            if spare is not None:
                job.kill(spare.text("member"))
        else:
            job.reach(min(step + 2, plan.steps - 1))
            job.kill(acts.victim(stage, job))
        job.gate(None)
        job.finish()


def bad_spare(stage: Stage) -> None:
    """Kill a replica whose spare takes over a wrong state."""
    plan = stage.sized(Plan(steps=acts.steps(stage, 160), spares=2))
    stage.expect(
        Expected(timeline=TIMELINE, kinds=("refused", "spare-active"), unseen=("restarted",))
    )
    stage.clean(plan)
    with stage.run(acts.gated(plan)) as job:
        job.order("s0", "wrong-state")
        job.reach(acts.moment(stage, plan))
        job.kill(acts.victim(stage, job))
        found = job.until(lambda what: what.kind == "refused", within=30.0)
        hit = found is not None and found.text("member") == "s0"
        stage.fact("fired", fault="wrong-state", fired=int(hit))
        job.gate(None)
        job.finish()


DRILLS = (
    Drill("coordinator-loss", "the coordinator is killed, and another goes on", coordinator_loss),
    Drill(
        "double-fault",
        "a replica is lost, and then who takes its place",
        double_fault,
        command=True,
    ),
    Drill("bad-spare", "a spare has a wrong state: it is refused, the next one taken", bad_spare),
)
