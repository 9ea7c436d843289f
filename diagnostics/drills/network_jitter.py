"""network-jitter: the way between two regions gets slow for a while. Nobody is evicted.

Inject: a proxy of ours holds every block from and to the members of one region back. The run waits
for them (backpressure), gives them fewer micro-shards, and goes on at full speed when it is over.
Oracle: the states of the fault-free run, no restart, nobody isolated.
"""

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Stage
from rackproof.diagnostics.recovery.record import Expected
from rackproof.harness.training.plan import Plan

REGIONS = ("region0", "region1")
DELAY = 0.1  # s each way
SPIKE = 12  # steps


def hold(stage: Stage) -> None:
    """Hold the drill."""
    plan = stage.sized(
        Plan(
            steps=acts.steps(stage, 120), replicas=4, spares=0, micro_shards=12, regions=REGIONS,
            proxied=True, elsewhere=REGIONS[1:],
        )
    )  # fmt: skip
    stage.expect(
        Expected(
            timeline=("fault", "detected", "resumed"),
            absent=("isolated", "spare-active", "restored"),
            kinds=("slow", "reslot"),
            unseen=("lost", "isolated", "restarted"),
            evicted=(),
        )
    )
    stage.clean(plan)
    step = acts.moment(stage, plan)
    with stage.run(acts.gated(plan, step)) as job:
        job.reach(step)
        far = [each.name for each in job.members() if each.region == REGIONS[1]]
        for name in far:
            job.link(name, delay=DELAY)
        job.gate(acts.gate(plan))
        job.reach(step + SPIKE)
        for name in far:
            job.link(name, delay=0.0)
        job.gate(None)
        job.finish()


DRILL = Drill(
    "network-jitter",
    "the way to a region gets slow: less work goes there, nobody is evicted",
    hold,
    needs=acts.needs(lambda steps: acts.latest(steps) + SPIKE, replicas=len(REGIONS)),
)
