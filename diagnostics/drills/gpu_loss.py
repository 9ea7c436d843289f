"""gpu-loss: a GPU falls off the bus under a replica, and a hot spare takes its place.

Inject: gpu-lost in the emulated rack, and to the process what the GPU would do: SIGKILL, at a step
and a moment that are drawn. The others go on at once; telemetry finds the GPU, diagnostics say what
it is, sparing chooses the spare, and the run is told. Oracle: the states of the fault-free run, bit
for bit. Of anybody's command the whole job may go back to a checkpoint once, and what must be
proven is what a command can show: that it reaches its last step.
"""

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Least, Stage
from rackproof.diagnostics.recovery.record import TIMELINE, Expected
from rackproof.harness.training.plan import Plan

OWN = Expected(
    proof="L4",
    timeline=TIMELINE,
    components=("pcie", "host", "unknown"),
    kinds=("lost", "spare-active", "told"),
    detect=acts.SOON,
    resume=acts.SOON,
    resume_steps=3.0,
)


def command(steps: int) -> Expected:
    """Return what must hold of a command: it reaches its end, by itself or from a checkpoint."""
    return Expected(proof="L1", timeline=("fault", "resumed"), restarts=1, lost_steps=steps)


def hold(stage: Stage) -> None:
    """Hold the drill."""
    if stage.layer != "A":
        _hold_command(stage)
        return
    plan = stage.sized(Plan(steps=acts.steps(stage, 200), every=25, pace=acts.PACE, auto=False))
    stage.expect(OWN)
    stage.clean(plan)
    with stage.run(acts.gated(plan)) as job, stage.watch(job):
        job.reach(stage.draw.randint(1, max(1, acts.gate(plan) - 5)))
        acts.pause(stage, job)
        name = acts.victim(stage, job)
        stage.plant(f"gpu-lost@{stage.place(job, name)}")
        job.kill(name)
        stage.quiet()
        job.gate(None)
        job.finish()


def _hold_command(stage: Stage) -> None:
    torchft = stage.layer == "B"
    pace = 2 * acts.PACE if torchft else 0.0  # so that who is lost comes back in the middle
    plan = stage.sized(Plan(steps=acts.steps(stage, 200), pace=pace))
    stage.expect(acts.TORCHFT if torchft else command(plan.steps))
    step = acts.moment(stage, plan)
    stage.clean(plan)
    with stage.run(plan) as job:
        job.reach(step)
        acts.pause(stage, job)
        acts.kill(stage, job, acts.victim(stage, job))
        job.finish()


def needs(layer: str, _seed: int) -> Least:
    """Return what a layer must have at least: somebody who goes on, but for a command."""
    return acts.least_torchft(2) if layer == "B" else Least(acts.FEWEST, 1 if layer == "C" else 2)


DRILL = Drill(
    "gpu-loss",
    "a GPU is lost under a replica, a hot spare takes its place, nobody starts again",
    hold,
    command=True,
    needs=needs,
)
