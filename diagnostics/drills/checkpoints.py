"""Drills of storage: the job is lost as a whole, and its checkpoints are not what they should be.

torn-checkpoint: the writer dies at a drawn file operation, and what it had not synced is gone.
bit-rot: a bit of the newest checkpoint turns, in its tensors or in its manifest. disk-full: a save
meets ENOSPC. lost-tier: the node is gone with its disk. stale-latest: LATEST names an old one.
Each then goes back to the newest checkpoint that verifies. slow-tier: a tier takes its time, and
the training run does not wait for it. Oracle of all: the states of the fault-free run.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill, Job, Least, Stage
from rackproof.diagnostics.recovery.record import Expected
from rackproof.diagnostics.recovery.telling import real
from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening
from rackproof.harness.training import harm
from rackproof.harness.training.plan import Plan

BACK = ("fault", "detected", "isolated", "restored", "resumed")
OPERATIONS = 14  # of a save of one part, about: the point at which the writer dies is one of them
EVERY, OFTEN = 10, 5  # steps from one checkpoint to the next
KEPT, MANY = 2, 4  # checkpoints that are there when one is harmed
FAR = "T3"
ON = 2  # steps that are gone on with after a save that broke
SLOW = 0.05  # s that an operation of a slow tier takes longer
FELT = 6 * SLOW  # s that a save takes at least where some of its operations are slow


@dataclass(frozen=True, slots=True)
class _Harm:
    """A fault by its name, and what does it and says what was done, and to which path if any.

    It is done when `kept` checkpoints are there.
    """

    name: str
    done: Callable[[Job], tuple[str, Path | None]]
    kept: int = KEPT


def _expected(plan: Plan, **more: Any) -> Expected:
    """Return what must hold where the whole job goes back to a checkpoint, once."""
    lost = 2 * plan.every + 1  # what was on its way when the job was lost, and what came after it
    return Expected(
        timeline=BACK, restarts=1, must_restart=True, kinds=("restarted",), lost_steps=lost, **more
    )


def _plan(stage: Stage, *, every: int = EVERY, **more: Any) -> Plan:
    return stage.sized(Plan(steps=acts.steps(stage, 80), every=every, spares=0, **more))


def _tier(job: Job, name: str = "checkpoints") -> Path:
    return job.folder / name


def _back(stage: Stage, plan: Plan, harm_: "_Harm", **more: Any) -> None:
    """Run until some checkpoints are there, do the harm, lose the job, and let it go back."""
    stage.expect(_expected(plan, **more))
    stage.clean(plan)
    with stage.run(acts.gated(plan)) as job:
        acts.stored(job, harm_.kept * plan.every)
        job.reach(harm_.kept * plan.every + stage.draw.randint(1, plan.every - 2))
        for member in acts.replicas(job):
            job.freeze(member)  # nothing is written meanwhile, so what is harmed is the newest
        what, path = harm_.done(job)
        damages = [] if path is None else [str(path)]
        stage.note("injected", fault=harm_.name, what=what, damages=damages)
        stage.fact("fired", fault=harm_.name, fired=1, done=what)
        acts.lose_all(job)
        job.gate(None)
        job.finish()


@contextmanager
def _before_a_save(stage: Stage, plan: Plan) -> Iterator[Job]:
    """Run it, and have it wait where the next step is followed by the second save.

    What is ordered now strikes at once when the gate opens.
    """
    before = 2 * plan.every - 1
    with stage.run(acts.gated(plan, before)) as job:
        acts.stored(job, plan.every)
        job.reach(before)
        yield job


def torn_checkpoint(stage: Stage) -> None:
    """Have the writer die in the middle of a save."""
    plan = _plan(stage)
    stage.expect(_expected(plan))
    stage.clean(plan)
    with _before_a_save(stage, plan) as job:
        writer = acts.replicas(job)[0]
        after = stage.draw.randrange(OPERATIONS)
        job.order(writer, "storage", breaks="torn", under=str(_tier(job)), after=after)
        job.gate(2 * plan.every + ON)
        died = job.until(lambda what: what.kind == "lost" and what.text("member") == writer)
        stage.fact("fired", fault="torn-checkpoint", fired=int(died is not None), after=after)
        acts.lose_all(job)
        job.gate(None)
        job.finish()


def bit_rot(stage: Stage) -> None:
    """Turn a bit of the newest checkpoint."""
    plan = _plan(stage)
    name = stage.draw.choice(["part-0.safetensors", "MANIFEST.json", "context.json"])

    def harmed(job: Job) -> tuple[str, Path]:
        newest = harm.newest(_tier(job))
        return harm.rot(newest, stage.draw, name), newest

    _back(stage, plan, _Harm("bit-rot", harmed), passed_over=1)


def stale_latest(stage: Stage) -> None:
    """Have LATEST name the oldest of four checkpoints: whoever follows it loses too many steps."""
    plan = _plan(stage, every=OFTEN)

    def harmed(job: Job) -> tuple[str, None]:
        return harm.point_back(_tier(job)), None

    _back(stage, plan, _Harm("stale-latest", harmed, kept=MANY))


def lost_tier(stage: Stage) -> None:
    """Lose the tier of the node; the one of its peer is left."""
    plan = _plan(stage, tiers=("T1={run}/nodes/{node}/t1", "T2={run}/nodes/{peer}/t2"))

    def harmed(job: Job) -> tuple[str, Path]:
        root = _tier(job, f"nodes/{acts.replicas(job)[0]}/t1")
        return harm.lose(root), root

    _back(stage, plan, _Harm("lost-tier", harmed))


def disk_full(stage: Stage) -> None:
    """Have a save meet a full disk; the training run goes on, and later goes back further."""
    plan = _plan(stage)
    stage.expect(_expected(plan))
    stage.clean(plan)
    with _before_a_save(stage, plan) as job:
        writer = acts.replicas(job)[0]
        job.order(writer, "storage", breaks="full", under=str(_tier(job)))
        job.gate(2 * plan.every + ON)
        failed = job.until(lambda what: what.kind == "ckpt" and what.text("phase") == "failed")
        stage.fact("fired", fault="disk-full", fired=int(failed is not None))
        if failed is None:
            msg = "no save met the full disk"
            raise DrillError(msg)
        job.reach(2 * plan.every + ON)
        acts.lose_all(job)
        job.gate(None)
        job.finish()


def slow_tier(stage: Stage) -> None:
    """Have a far tier take its time: saves are skipped there, and no step waits."""
    plan = _plan(stage, tiers=("T1={run}/checkpoints", f"{FAR}={{run}}/far"), busy="skip")
    stage.expect(
        Expected(
            timeline=("fault", "resumed"), unseen=("lost", "isolated", "restarted"), evicted=()
        )
    )
    stage.clean(plan)
    with _before_a_save(stage, plan) as job:
        writer = acts.replicas(job)[0]
        job.order(writer, "storage", breaks="slow", under=str(_tier(job, "far")), seconds=SLOW)
        job.gate(acts.gate(plan))
        job.reach(3 * plan.every)
        slow = job.until(lambda what: _slowed(what, 2 * plan.every), within=30.0)
        stage.fact("fired", fault="slow-tier", fired=int(slow is not None))
        job.order(writer, "storage", breaks="")
        job.gate(None)
        job.finish()


def _slowed(what: Happening, step: int) -> bool:
    """Say whether a save of `step` or later was skipped, or took its time on the far tier."""
    if what.kind != "ckpt" or (what.number("step") or 0) < step:
        return False
    late = what.text("tier") == FAR and (real(what.fields.get("seconds")) or 0.0) >= FELT
    return what.text("phase") == "skipped" or late


def _until(step: int, replicas: int = 1) -> Callable[[str, int], Least]:
    """Return what a drill needs that waits for `step` of a run however long."""
    return acts.needs(lambda _: step, replicas)


def _harmed(kept: int, every: int, replicas: int = 1) -> Callable[[str, int], Least]:
    """Return what a drill needs that harms the newest of `kept` checkpoints."""
    return _until((kept + 1) * every - 2, replicas)


DRILLS = (
    Drill(
        "torn-checkpoint",
        "the writer dies in the middle of a save",
        torn_checkpoint,
        needs=_until(2 * EVERY + ON),
    ),
    Drill(
        "bit-rot",
        "a bit of the newest checkpoint turns: an older one is taken",
        bit_rot,
        needs=_harmed(KEPT, EVERY),
    ),
    Drill(
        "disk-full",
        "a save meets a full disk, and the training run goes on",
        disk_full,
        needs=_until(2 * EVERY + ON),
    ),
    Drill(
        "slow-tier",
        "a checkpoint tier is slow, and no step waits for it",
        slow_tier,
        needs=_until(3 * EVERY),
    ),
    Drill(
        "lost-tier",
        "a node is gone with its checkpoints: those of its peer are taken",
        lost_tier,
        needs=_harmed(KEPT, EVERY, replicas=2),
    ),
    Drill(
        "stale-latest",
        "LATEST names an old checkpoint: the newest is taken",
        stale_latest,
        needs=_harmed(MANY, OFTEN),
    ),
)
