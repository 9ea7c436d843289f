"""sdc: one bit of one gradient is wrong, silently. Recomputation on another GPU catches it.

Inject: sm-sdc in the emulated rack, and to the process what it would do: one bit of the next
gradient turns. Every micro-shard is computed twice; where two differ a third decides, and whoever
was wrong is left out before the step is committed. Its GPU is then burnt, and a spare takes over.
Oracle: the states of the fault-free run.
"""

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Stage
from rackproof.diagnostics.recovery.record import TIMELINE, Expected
from rackproof.harness.training.plan import Plan

VOICES = 3  # two that differ, and who decides
HEARD = 4  # steps within which an order is heard


def hold(stage: Stage) -> None:
    """Hold the drill."""
    plan = stage.sized(
        Plan(
            steps=acts.steps(stage, 160), every=25, replicas=VOICES, audit="all", pace=acts.PACE,
            auto=False,
        )
    )  # fmt: skip
    stage.expect(
        Expected(
            timeline=TIMELINE,
            components=("sm",),
            kinds=("suspect", "isolated", "told"),
            unseen=("restarted",),
        )
    )
    stage.clean(plan)
    step = acts.early(stage, plan)
    with stage.run(acts.gated(plan, step)) as job, stage.watch(job):
        job.reach(step)
        name = acts.victim(stage, job)
        stage.plant(f"sm-sdc@{stage.place(job, name)}")
        job.order(name, "flip-bit")
        job.gate(acts.gate(plan))  # the next steps meet it, however slow the planting was
        found = job.until(lambda what: what.kind == "suspect")
        hit = found is not None and found.text("member") == name
        stage.fact("fired", fault="flip-bit", fired=int(hit))
        if hit:
            stage.suspect(name, "another GPU has another gradient")
        stage.quiet()
        job.gate(None)
        job.finish()


DRILL = Drill(
    "sdc",
    "one wrong bit of a gradient is caught by another GPU, before a commit",
    hold,
    needs=acts.needs(lambda steps: acts.latest(steps) // 2 + HEARD, replicas=VOICES),
)
