"""What several drills do: wait for a checkpoint, lose all of a job, draw whom it hits."""

from dataclasses import replace

from rackproof.diagnostics.drills.base import Job, Stage
from rackproof.diagnostics.recovery.record import TIMELINE, Expected
from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening
from rackproof.harness.training.plan import Plan

SOON = 20.0
"""Seconds within which a fault must be seen and got over, on a machine that has other work too; how
fast it is on a quiet one is what benchmarks/recovery.py shows."""
PACE = 0.015
"""The least seconds of a step in drills that telemetry takes part in: it looks 20 times a second,
and an examination takes about one."""

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
    return stage.draw.randint(max(1, plan.steps // 4), max(1, plan.steps // 2))


def gate(plan: Plan) -> int:
    """Return the step at which a run waits until telemetry has had its say: near the end."""
    return plan.steps - max(2, plan.steps // 5)


def gated(plan: Plan) -> Plan:
    """Return the plan with its gate: it stands before the run begins, however slow the watch is."""
    return replace(plan, gate=gate(plan))


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
