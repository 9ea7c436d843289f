"""nan-shard: a shard of the data set holds a NaN. The shard is put aside in the same step.

Inject: a shard file whose weights hold a NaN, one that the run meets. A gradient that is not finite
is computed again on another replica: not finite there either, so it is the data. Its shard is put
in quarantine, the reserve stream gives samples instead, and the step goes on; no restart answers
it. Oracle: the replay of the run's own quarantine log, bit for bit (there is no fault-free run of
data that are broken, so L3 is the most that can be shown).
"""

from dataclasses import replace

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Stage
from rackproof.diagnostics.recovery.record import Expected
from rackproof.harness.errors import DrillError
from rackproof.harness.training.data import due
from rackproof.harness.training.plan import Plan, Samples

EARLIEST = 3  # the step before which no shard is met


def hold(stage: Stage) -> None:
    """Hold the drill."""
    plan = stage.sized(Plan(steps=acts.steps(stage, 80), spares=0, samples=Samples(32, 32, 4)))
    shard = _met(stage, plan)
    plan = replace(plan, samples=replace(plan.samples, poisoned=(shard,)))
    stage.expect(
        Expected(
            proof="L3",
            best="L3",
            timeline=("fault", "detected", "resumed"),
            kinds=("quarantine",),
            unseen=("lost", "isolated", "restarted"),
            evicted=(),
        )
    )
    stage.clean(plan)
    with stage.run(acts.gated(plan)) as job:
        stage.note("injected", fault="nan-shard", shard=shard)
        found = job.until(lambda what: what.kind == "quarantine")
        hit = found is not None and found.number("shard") == shard
        stage.fact("fired", fault="nan-shard", fired=int(hit))
        job.gate(None)
        job.finish()


def _met(stage: Stage, plan: Plan) -> int:
    """Draw a shard whose poisoned sample comes up in the middle of the run."""
    usual = range(plan.samples.shards - plan.samples.reserve)
    met = [shard for shard in usual if EARLIEST <= due(plan, shard) <= plan.steps // 2]
    if not met:
        msg = f"in {plan.steps} steps no shard comes up that could be poisoned: take more steps"
        raise DrillError(msg)
    return stage.draw.choice(met)


DRILL = Drill("nan-shard", "a shard of the data holds a NaN: it is put aside in that step", hold)
