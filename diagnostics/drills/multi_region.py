"""multi-region: four regions, 46 nodes, and one of them is lost while all train. No restart.

Each node is a process with a micro-shard or two of its own. Inject: SIGKILL of one of them. A hot
spare of the run takes its place. Oracle: the states of the fault-free run, and no restart at all.
"""

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Stage
from rackproof.diagnostics.recovery.record import TIMELINE, Expected
from rackproof.harness.spec import RackSpec
from rackproof.harness.training.plan import Plan, Shape

REGIONS = ("region0", "region1", "region2", "region3")
NODES, SPARES = 46, 2
HERE = -(-NODES // len(REGIONS)) + 1
"""GPUs that the rack of the first region has to have: those of its nodes, and of its spare."""
SMALL = Shape(layers=1, width=16, heads=2, context=8, vocabulary=32)


def lacks(spec: RackSpec) -> str:
    """Return why a rack cannot hold it."""
    count = len(spec.gpus)
    return "" if count >= HERE else f"it has {count} GPUs, and a region of this run takes {HERE}"


def hold(stage: Stage) -> None:
    """Hold the drill."""
    plan = stage.sized(
        Plan(
            steps=20 if stage.small else 60, replicas=NODES, spares=SPARES, micro_shards=64,
            micro_batch=1, shape=SMALL, regions=REGIONS, elsewhere=REGIONS[1:], silence=5.0,
        )
    )  # fmt: skip
    stage.expect(
        Expected(
            timeline=TIMELINE,
            kinds=("lost", "isolated", "spare-active"),
            unseen=("restarted",),
        )
    )
    stage.clean(plan)
    with stage.run(acts.gated(plan)) as job:
        job.reach(acts.moment(stage, plan))
        job.kill(acts.victim(stage, job))
        job.gate(None)
        job.finish()


DRILL = Drill(
    "multi-region",
    "4 regions, 46 nodes, one is lost, and nobody starts again",
    hold,
    lacks=lacks,
    needs=acts.needs(replicas=len(REGIONS)),
)
