"""rack-power-loss: all supplies of a rack fail, and with it a region of the training run.

Inject: psu-loss on every shelf and gpu-lost on every GPU of a rack, and SIGKILL of all members that
sit there, its spares too. The other region goes on with all micro-shards, and takes its own spare
in. In a rack file of several racks the first one goes dark, and telemetry chooses the spare; of a
single rack the other region is elsewhere. Oracle: the states of the fault-free run, no restart.
"""

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Job, Stage
from rackproof.diagnostics.recovery.record import TIMELINE, Expected
from rackproof.harness.outage import outage, trays_of
from rackproof.harness.spec import RackSpec
from rackproof.harness.training.plan import Plan

REGIONS = ("region0", "region1")


def lacks(spec: RackSpec) -> str:
    """Return why a rack cannot hold it."""
    return "" if spec.of_sort("shelf") else f"{spec.name} has no power shelves that could fail"


def hold(stage: Stage) -> None:
    """Hold the drill."""
    alone = stage.spec.racks < len(REGIONS)
    plan = stage.sized(
        Plan(
            steps=acts.steps(stage, 240), every=25, replicas=4, spares=2, regions=REGIONS,
            pace=acts.PACE, elsewhere=REGIONS[1:] if alone else (), auto=alone,
        )
    )  # fmt: skip
    stage.expect(
        Expected(
            timeline=TIMELINE,
            components=("power",),
            kinds=("lost", "spare-active") if alone else ("lost", "spare-active", "told"),
            detect=acts.SOON,
        )
    )
    stage.clean(plan)
    with stage.run(acts.gated(plan)) as job, stage.watch(job):
        job.reach(acts.early(stage, plan))
        stage.plant(*outage(stage.spec, trays_of(stage.spec, 0)))
        for name in dark(job):
            job.kill(name)
        stage.quiet()
        job.gate(None)
        job.finish()


def dark(job: Job) -> list[str]:
    """Return who sits in the first rack."""
    return [each.name for each in job.members() if each.subject.startswith("rack0/")]


DRILL = Drill(
    "rack-power-loss",
    "a rack loses its power, and the other region goes on with its work",
    hold,
    lacks=lacks,
    needs=acts.needs(replicas=len(REGIONS)),
)
