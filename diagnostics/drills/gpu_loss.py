"""gpu-loss: a replica is killed in the middle of a step, and a hot spare takes its place.

Inject: SIGKILL of one replica, drawn, at a step and a moment within it, drawn. Oracle: the states
of the fault-free run, bit for bit. Of anybody's command the whole job may go back to a checkpoint
once, and what must be proven is what a command can show: that it reaches its last step.
"""

from rackproof.diagnostics.drills.base import Drill, Job, Stage
from rackproof.diagnostics.recovery.record import TIMELINE, Expected
from rackproof.harness.errors import DrillError
from rackproof.harness.training.plan import Plan

OWN = Expected(
    proof="L4",
    timeline=TIMELINE,
    kinds=("lost", "spare-active"),
    detect=1.0,
    resume=0.5,
    resume_steps=3.0,
)


def hold(stage: Stage) -> None:
    """Hold the drill."""
    plan = stage.sized(Plan(steps=40 if stage.small else 200, replicas=2, spares=1))
    own = stage.layer == "A"
    stage.expect(
        OWN
        if own
        else Expected(proof="L1", timeline=("fault", "resumed"), restarts=1, lost_steps=plan.steps)
    )
    step = stage.draw.randint(max(1, plan.steps // 4), max(1, plan.steps // 2))
    stage.clean(plan)
    with stage.run(plan) as job:
        job.reach(step)
        job.until(lambda _: False, within=stage.draw.uniform(0.0, 0.02))
        job.kill(victim(stage, job))
        job.finish()


def victim(stage: Stage, job: Job) -> str:
    """Draw one of the replicas that take part."""
    names = sorted(each.name for each in job.members() if each.role == "replica")
    if not names:
        msg = "the training run has no replica left that could be killed"
        raise DrillError(msg)
    return stage.draw.choice(names)


DRILL = Drill(
    "gpu-loss",
    "a replica is killed, a hot spare takes its place, nobody starts again",
    hold,
    command=True,
)
