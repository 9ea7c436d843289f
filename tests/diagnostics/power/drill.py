"""A whole record of a power drill: a training run that nothing hurt, on the scene of its rack."""

from dataclasses import replace

from rackproof.diagnostics.power.least import lacks
from rackproof.diagnostics.recovery.record import Expected, Fact
from rackproof.harness.checkpoint.anatomy import FIELDS
from rackproof.harness.training.plan import Plan
from rackproof.reports.drill_record import DrillWriter
from tests.diagnostics.power.plant import PARTS, RACK
from tests.diagnostics.power.scene import ALL, Scene
from tests.diagnostics.recovery.conftest import BEGAN, PIDS, digest, head_of, ids, uri
from tests.diagnostics.recovery.conftest import Scene as Run

OWN = "power-own"  # a drill of no name that is shipped: what it asks for is its own
MEMBERS = ("r0", "r1")
EVERY = 50
SECOND = 0.02  # of this machine, of a step


def run_of(steps, due):
    """Return a training run that nothing hurt, three times, and its replay."""
    plan = Plan(steps=steps, micro_shards=2, micro_batch=2, every=EVERY).as_json()
    expected = Expected(proof="L4", power=due)
    name = OWN if lacks("power-dim", due) else "power-dim"
    head = replace(head_of(), drill=name, steps=steps, plan=plan, expected=expected,
                   checkpoint_every=EVERY, date="2026-07-30T10:00:00+00:00")  # fmt: skip
    run = Run(head)
    for course in ("clean1", "clean2", "faulted"):
        begin(run, course)
        for step in range(1, steps + 1):
            told(run, course, step, steps)
        last = BEGAN + 1.0 + SECOND * steps
        run.say(last + 0.5, "coordinator", "ended", course=course, step=steps, digest=digest(steps))
        for who in ("coordinator", *MEMBERS):
            run.saw("died", last + 0.8, course=course, member=who, pid=PIDS[who], code=0)
        run.saw("final", last + 1.0, course=course, step=steps, digest=digest(steps), bytes=1000)
        run.ended[course] = last + 1.0
    for step in range(1, steps + 1):
        about = {"step": step, "digest": digest(step), "samples": ids(step), "loss": 4.0 / step}
        run.say(BEGAN + step, "replay", "step", course="replay", **about)
    run.ended["replay"] = BEGAN + steps + 1.0
    return run


def begin(run, course):
    for who in ("coordinator", *MEMBERS):
        run.say(BEGAN + 0.1, who, "hello", course=course, pid=PIDS[who], rank=0, world=2)
        there = {"member": who, "pid": PIDS[who], "there": True, "ours": True}
        run.saw("alive", BEGAN + 0.12, course=course, **there)
    run.say(BEGAN + 0.9, "coordinator", "epoch", course=course, epoch=1, participants=[*MEMBERS])


def told(run, course, step, steps):
    at = BEGAN + 1.0 + SECOND * step
    about = {"step": step, "digest": digest(step), "samples": ids(step), "loss": 4.0 / step}
    shards = {"participants": [*MEMBERS], "samples": ids(step), "step": step}
    run.say(at - 0.015, "coordinator", "intent", course=course, epoch=1, **shards)
    run.say(at, "coordinator", "step", course=course, participants=[*MEMBERS], **about)
    for who in MEMBERS:
        run.say(at + 0.002, who, "step", course=course, **about)
    if step % EVERY == 0:
        for phase, later in (("staged", 0.005), ("committed", 0.01)):
            run.say(at + later, "r0", "ckpt", course=course, tier="T1", phase=phase, step=step,
                    uri=uri(step), seconds=0.004)  # fmt: skip
        read = {"digest": digest(step), "fields": list(FIELDS), "verifies": True, "problem": ""}
        run.saw("checkpoint", BEGAN + 2.0 + SECOND * steps, course=course, uri=uri(step), tier="T1",
                step=step, **read)  # fmt: skip


def drill(parts=tuple(PARTS), due=ALL):
    """Return (the run, the scene of its rack); `recorded` makes one record of both."""
    scene = Scene(parts=parts, due=due)
    run = run_of(scene.steps, (*due, *parts))
    for place, part in enumerate(parts):
        at = BEGAN + 1.5 + place
        run.say(at, "drill", "injected", fault=part, subject=RACK)
        run.saw("fired", at + 0.1, fault=part, fired=1)
    return run, scene


def recorded(run, scene):
    """Return the record of a run with the facts of its rack."""
    facts = [Fact("power", body, "faulted", BEGAN + 1.0) for body in scene.bodies]
    record = run.record
    return replace(record, facts=[*record.facts, *facts])


def write(folder, record):
    """Write a record as a drill does; return its folder."""
    writer = DrillWriter(folder)
    writer.head(record.head)
    for name, course in record.courses.items():
        writer.copy(course, [fact for fact in record.facts if fact.course == name])
    writer.conclude([], "PASS", "L4")
    writer.close()
    return folder
