"""What several drills do: wait for a checkpoint, lose all of a job, draw whom and when it hits."""

from collections.abc import Callable
from dataclasses import replace

from rackproof.diagnostics.drills.base import Job, Least, Stage
from rackproof.diagnostics.recovery.record import TIMELINE, Expected
from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening
from rackproof.harness.training.plan import Plan

SOON = 20.0
"""Seconds within which a fault must be seen and got over, on a machine that has other work too; how
fast it is on a quiet one is what benchmarks/recovery.py shows."""
LONG = 4096
"""Steps of a run that is long enough for whatever a drill waits for."""
PACE = 0.015
"""The least seconds of a step in drills that telemetry takes part in: it looks 20 times a second,
and an examination takes about one."""

FEWEST = 4
"""Steps that a run must have, to be hit in its middle."""

TORCHFT = Expected(
    proof="L3",
    best="L3",
    timeline=TIMELINE,
    kinds=("lost", "spare-active"),
    unseen=("restarted",),
    detect=5.0,
)
"""What must hold of torchft when replicas are lost: nobody goes back, and each is healed by a peer.
It drops the batch of who is missing, so the states are those of a replay, not of a fault-free run.
A lost replica is missed when its heartbeat is two seconds old; the rest is for a busy machine."""


def steps(stage: Stage, usual: int) -> int:
    """Return how many steps a drill has: about half where it is to be short."""
    return max(20, usual // 2) if stage.small else usual


def moment(stage: Stage, plan: Plan) -> int:
    """Draw the step after which the fault strikes: in the second quarter of the run."""
    return stage.draw.randint(max(1, plan.steps // 4), latest(plan.steps))


def latest(steps: int) -> int:
    """Return the latest that `moment` can be, in a run of so many steps."""
    return max(1, steps // 2)


def early(stage: Stage, plan: Plan) -> int:
    """Draw an earlier step, which leaves telemetry its time; training has begun by then."""
    return max(1, moment(stage, plan) // 2)


def gate(plan: Plan) -> int:
    """Return the step at which a run waits until telemetry has had its say: near the end."""
    return gate_of(plan.steps)


def gate_of(steps: int) -> int:
    """Return the gate of a run of so many steps."""
    return steps - max(2, steps // 5)


def gated(plan: Plan, at: int | None = None) -> Plan:
    """Return the plan with its gate: it stands before the run begins, however slow the watch is.

    `at` is another step to wait at first; the drill opens that gate itself.
    """
    return replace(plan, gate=gate(plan) if at is None else at)


def needs(last: Callable[[int], int] = latest, replicas: int = 1) -> Callable[[str, int], Least]:
    """Return what a drill of our own run needs, whatever the seed (Drill.needs).

    `last` returns the last step that the drill waits for in a run of so many steps. It has to come
    before the gate, beyond which nothing goes on.
    """
    short = [steps for steps in range(1, LONG) if last(steps) > gate_of(steps)]
    least = Least(max(FEWEST, max(short, default=0) + 1), replicas)
    return lambda _layer, _seed: least


def least_torchft(replicas: int) -> Least:
    """Return what a drill needs of torchft: a checkpoint before its end, and one after it."""
    return Least(2 * Plan().every, replicas)


def replicas(job: Job) -> list[str]:
    """Return who takes part, in order."""
    return sorted(each.name for each in job.members() if each.role == "replica")


def victim(stage: Stage, job: Job) -> str:
    """Draw one of the replicas that take part; a DrillError where there is none."""
    names = replicas(job)
    if not names:
        msg = "the training run has no replica left that could be hit"
        raise DrillError(msg)
    return stage.draw.choice(names)


def kill(stage: Stage, job: Job, name: str, which: str = "the kill") -> bool:
    """Kill a member of a command; one that was gone by then is recorded, and was not hit."""
    try:
        job.kill(name)
    except DrillError as error:
        missed(stage, which, str(error))
        return False
    return True


def missed(stage: Stage, which: str, why: str) -> None:
    """Record that a fault could not be placed: the drill shows nothing, and the run goes on."""
    stage.fact("fired", fault=which, fired=0, why=why)


def pause(stage: Stage, job: Job) -> None:
    """Let a drawn moment pass, so that the fault does not always strike at the same one."""
    job.until(lambda _: False, within=stage.draw.uniform(0.0, 0.02))


def stored(job: Job, step: int, within: float = 60.0) -> Happening:
    """Wait for a committed checkpoint of `step` or later; a DrillError where none comes."""

    def one(what: Happening) -> bool:
        there = what.kind == "ckpt" and what.text("phase") == "committed"
        return there and (what.number("step") or 0) >= step

    found = job.until(one, within)
    if found is None:
        msg = f"no checkpoint of step {step} or later was committed"
        raise DrillError(msg)
    return found


def lose_all(job: Job) -> None:
    """Kill every replica and every spare that waits, and start them again."""
    for member in job.members():
        if member.role != "coordinator":
            job.kill(member.name)
    job.start(resume=True)
