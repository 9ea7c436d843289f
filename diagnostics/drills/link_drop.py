"""link-drop: a GPU's NVLinks are down and the others cannot reach it any more. No restart.

Inject: nvlink-down on a link of the victim in the emulated HGX node, and to the process what a dead
link does: its connection is cut and none is let through again. Oracle: the states of the fault-free
run, with nobody else evicted.
"""

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Stage
from rackproof.diagnostics.recovery.record import TIMELINE, Expected
from rackproof.harness.spec import RackSpec
from rackproof.harness.training.plan import Plan


def lacks(spec: RackSpec) -> str:
    """Return why a rack cannot hold it."""
    return "" if spec.links else f"{spec.name} has no NVLinks that could be down"


def hold(stage: Stage) -> None:
    """Hold the drill."""
    plan = stage.sized(
        Plan(
            steps=acts.steps(stage, 200), every=25, replicas=3, pace=acts.PACE, proxied=True,
            auto=False,
        )
    )  # fmt: skip
    stage.expect(
        Expected(
            timeline=TIMELINE,
            components=("nvlink", "nvswitch"),
            kinds=("lost", "told"),
            detect=acts.SOON,
        )
    )
    stage.clean(plan)
    with stage.run(acts.gated(plan)) as job, stage.watch(job):
        job.reach(acts.early(stage, plan))
        name = acts.victim(stage, job)
        stage.plant(f"nvlink-down@{stage.place(job, name)}/link{stage.draw.randrange(4):02d}")
        job.link(name, cut=True)
        stage.quiet()
        job.gate(None)
        job.finish()


DRILL = Drill(
    "link-drop",
    "a GPU's link is down: it is left out, and nobody starts again",
    hold,
    lacks=lacks,
    rack="hgx-h100",
    needs=acts.needs(replicas=2),
)
