"""gpu-hang: a replica stands still. For a moment it must not be evicted, for long it must.

Inject: SIGSTOP for a quarter of the time that a member may be silent, then SIGCONT; later SIGSTOP
until it is evicted. What wakes up again after that is let in no more. Oracle: the states of the
fault-free run.
"""

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Stage
from rackproof.diagnostics.recovery.record import TIMELINE, Expected
from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening
from rackproof.harness.training.plan import Plan

SHORT = 0.25  # of the silence that a member is allowed
AGAIN = 3  # steps between the two


def hold(stage: Stage) -> None:
    """Hold the drill."""
    plan = stage.sized(Plan(steps=acts.steps(stage, 120), silence=1.0))
    stage.expect(
        Expected(timeline=TIMELINE, kinds=("lost", "spare-active"), detect=plan.silence + acts.SOON)
    )
    stage.clean(plan)
    with stage.run(acts.gated(plan)) as job:
        step = acts.moment(stage, plan)
        job.reach(step)
        name = acts.victim(stage, job)
        job.freeze(name)
        early = job.until(lambda what: _lost(what, name), within=SHORT * plan.silence)
        job.thaw(name)
        if early is None:
            job.reach(step + AGAIN)
            stage.fact("fired", fault="short-stop", fired=1, survived=True)
            job.freeze(name)
            if job.until(lambda what: _lost(what, name), within=30.0) is None:
                msg = f"{name} stood still for 30 s, and nobody missed it"
                raise DrillError(msg)
            job.thaw(name)
        else:
            stage.fact("fired", fault="short-stop", fired=1, survived=False)
        job.gate(None)
        job.finish()


def _lost(what: Happening, name: str) -> bool:
    return what.kind == "lost" and what.text("member") == name


DRILL = Drill(
    "gpu-hang",
    "a replica stands still: for a moment, then for good",
    hold,
    needs=acts.needs(lambda steps: acts.latest(steps) + AGAIN, replicas=2),
)
