"""nan-shard: a shard of the data set holds a NaN. The shard is put aside in the same step.

Inject: a shard file whose weights hold a NaN, one that the run meets. The fault is there when its
sample is: the run waits before that step until this is noted. A gradient that is not finite
is computed again on another replica: not finite there either, so it is the data. Its shard is put
in quarantine, the reserve stream gives samples instead, and the step goes on; no restart answers
it. Oracle: the replay of the run's own quarantine log, bit for bit (there is no fault-free run of
data that are broken, so L3 is the most that can be shown).
"""

from dataclasses import replace

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Least, Stage
from rackproof.diagnostics.recovery.record import Expected
from rackproof.harness.training.data import due
from rackproof.harness.training.plan import Plan, Samples

EARLIEST = 3  # the step before which no shard is met
SAMPLES = Samples(32, 32, 4)


def hold(stage: Stage) -> None:
    """Hold the drill."""
    plan = stage.sized(Plan(steps=acts.steps(stage, 80), spares=0, samples=SAMPLES))
    last = acts.latest(plan.steps)
    shard = stage.draw.choice([each for each, step in _met(plan).items() if step <= last])
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
    before = due(plan, shard) - 1
    with stage.run(acts.gated(plan, before)) as job:
        job.reach(before)
        stage.note("injected", fault="nan-shard", shard=shard)
        job.gate(acts.gate(plan))
        found = job.until(lambda what: what.kind == "quarantine")
        hit = found is not None and found.number("shard") == shard
        stage.fact("fired", fault="nan-shard", fired=int(hit))
        job.gate(None)
        job.finish()


def _met(plan: Plan) -> dict[int, int]:
    """Return the step at which each shard's poisoned sample comes up, of those not too early."""
    usual = range(plan.samples.shards - plan.samples.reserve)
    steps = {shard: due(plan, shard) for shard in usual}
    return {shard: step for shard, step in steps.items() if step >= EARLIEST}


def needs(layer: str, seed: int) -> Least:
    """Return what it needs: a shard that comes up in the first half, and another replica."""
    first = min(_met(Plan(seed=seed, samples=SAMPLES)).values())
    long = acts.needs(lambda steps: steps if acts.latest(steps) < first else first, replicas=2)
    return long(layer, seed)


DRILL = Drill(
    "nan-shard",
    "a shard of the data holds a NaN: it is put aside in that step",
    hold,
    needs=needs,
)
