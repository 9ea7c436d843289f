"""A drill's record to judge: a recovery as it should be, but for what a test changes in it."""

import hashlib
from dataclasses import dataclass, field, replace

import pytest

from rackproof.diagnostics.recovery.judge import judge
from rackproof.diagnostics.recovery.record import (
    TIMELINE,
    Course,
    DrillRecord,
    Expected,
    Fact,
    Head,
)
from rackproof.harness.checkpoint.anatomy import FIELDS
from rackproof.harness.happening import Happening
from rackproof.harness.training.plan import Plan

STEPS, EVERY, BATCH, BEGAN = 12, 4, 4, 100.0
KILLED, STRUCK_IN = 105.5, 5  # when, and in which step
PIDS = {"coordinator": 10, "r0": 20, "r1": 21, "s0": 30}

EXPECTED = Expected(
    proof="L4",
    timeline=TIMELINE,
    absent=(),
    kinds=("lost", "spare-active"),
    evicted=("r1",),
    detect=1.0,
    resume=0.5,
    resume_steps=3.0,
)


def digest(step):
    return hashlib.sha256(f"state {step}".encode()).hexdigest()


def ids(step):
    return list(range((step - 1) * BATCH, step * BATCH))


def uri(step):
    return f"file:///run/checkpoints/step-{step}"


@dataclass
class Scene:
    """Happenings and facts by course; `judge` judges the record that they make."""

    head: Head
    said: dict[str, list[Happening]] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    ended: dict[str, float] = field(default_factory=dict)
    unfinished: set[str] = field(default_factory=set)
    course_problems: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    has_end: bool = True
    planted: list = field(default_factory=list)

    def say(self, at, who, kind, *, course="faulted", attempt=1, **fields):
        self.said.setdefault(course, []).append(Happening(at, who, kind, fields, attempt))
        return self

    def saw(self, what, at=0.0, *, course="faulted", **fields):
        self.facts.append(Fact(what, fields, course, at))
        return self

    def expect(self, **changes):
        self.head = replace(self.head, expected=replace(self.head.expected, **changes))
        return self

    def plan(self, **changes):
        self.head = replace(self.head, plan={**self.head.plan, **changes})
        return self

    def drop(self, kind, *, course="faulted", **where):
        """Take out the happenings of a kind; `who` or fields say which."""
        self.said[course] = [h for h in self.said[course] if not matches(h, kind, where)]
        return self

    def change(self, kind, new, *, course="faulted", **where):
        """Give happenings other fields; a value of None takes the field out."""
        self.said[course] = [
            changed(h, new) if matches(h, kind, where) else h for h in self.said[course]
        ]
        return self

    def unsee(self, what, *, course="faulted", **where):
        self.facts = [f for f in self.facts if not (f.course == course and seen(f, what, where))]
        return self

    def resee(self, what, new, *, course="faulted", **where):
        self.facts = [
            replace(f, fields={**f.fields, **new})
            if f.course == course and seen(f, what, where)
            else f
            for f in self.facts
        ]
        return self

    @property
    def record(self):
        courses = {
            name: Course(
                name,
                BEGAN,
                self.ended.get(name, BEGAN + 20.0),
                name not in self.unfinished,
                sorted(said, key=lambda each: each.at),
                tuple(self.course_problems.get(name, ())),
            )
            for name, said in self.said.items()
        }
        return DrillRecord(
            self.head, courses, list(self.facts), self.planted, self.has_end, tuple(self.problems)
        )

    def judge(self):
        return judge(self.record)

    def claim(self, name):
        (found,) = [claim for claim in self.judge().claims if claim.id == name]
        return found

    def verdict(self, name):
        return str(self.claim(name).verdict)


def changed(happening, new):
    fields = {**happening.fields, **{key: value for key, value in new.items() if key != "at"}}
    kept = {key: value for key, value in fields.items() if value is not None}
    return replace(happening, fields=kept, at=new.get("at", happening.at))


def matches(happening, kind, where):
    where = dict(where)
    who = where.pop("who", happening.who)
    same = all(happening.fields.get(key) == value for key, value in where.items())
    return happening.kind == kind and happening.who == who and same


def seen(fact, what, where):
    return fact.what == what and all(fact.fields.get(k) == v for k, v in where.items())


def at_of(step, *, hit):
    """Return when a step is committed: a second each, and 1.1 s of recovery."""
    return BEGAN + 1.0 + step + (1.1 if hit and step >= STRUCK_IN else 0.0)


def begin(scene, course, members):
    for who in ("coordinator", *members):
        scene.say(BEGAN + 0.1, who, "hello", course=course, pid=PIDS[who], rank=0, world=2)
        scene.saw(
            "alive", BEGAN + 0.12, course=course, member=who, pid=PIDS[who], there=True, ours=True
        )
    scene.say(BEGAN + 1.0, "coordinator", "epoch", course=course, epoch=1, participants=members[:2])


def train(scene, course, *, hit):
    for step in range(1, STEPS + 1):
        at, members = at_of(step, hit=hit), ["r0", "r1"]
        if hit and step >= STRUCK_IN:
            members = ["r0", "s0"]
        told = {"step": step, "digest": digest(step), "samples": ids(step), "loss": 4.0 / step}
        shards = {"participants": members, "samples": ids(step), "step": step}
        scene.say(at - 0.95, "coordinator", "intent", course=course, epoch=1, **shards)
        scene.say(at, "coordinator", "step", course=course, participants=members, **told)
        for who in members:
            scene.say(at + 0.002, who, "step", course=course, **told)
        if step % EVERY == 0:
            save(scene, course, step, at)


def save(scene, course, step, at):
    for phase, later, seconds in (("staged", 0.05, 0.04), ("committed", 0.3, 0.2)):
        said = {"phase": phase, "step": step, "uri": uri(step), "seconds": seconds}
        scene.say(at + later, "r0", "ckpt", course=course, tier="T1", **said)
    read = {"digest": digest(step), "fields": list(FIELDS), "verifies": True, "problem": ""}
    scene.saw("checkpoint", 119.0, course=course, uri=uri(step), tier="T1", step=step, **read)


def end(scene, course, members):
    last = max(each.at for each in scene.said[course])
    scene.say(last + 0.5, "coordinator", "ended", course=course, step=STEPS, digest=digest(STEPS))
    for who in ("coordinator", *members):
        pid = PIDS[who]
        if not any(seen(f, "died", {"pid": pid}) and f.course == course for f in scene.facts):
            scene.saw("died", last + 0.8, course=course, member=who, pid=pid, code=0)
    stored = {"step": STEPS, "digest": digest(STEPS), "bytes": 1000}
    scene.saw("final", 119.0, course=course, **stored)


def recover(scene):
    scene.say(KILLED, "drill", "injected", fault="kill", member="r1", pid=21, subject="")
    scene.saw("died", KILLED + 0.01, member="r1", pid=21, code=-9)
    scene.say(105.7, "coordinator", "lost", member="r1", why="closed")
    scene.say(105.8, "coordinator", "isolated", member="r1", epoch=2)
    scene.say(105.9, "coordinator", "spare-active", member="s0", instead="r1", subject="")
    scene.say(106.0, "s0", "restore", step=4, uri="peer:r0", fields=["weights", "optimizer"])
    scene.say(106.1, "coordinator", "resynchronised", member="s0", step=4, digest=digest(4))


def head_of(layer="A", **changes):
    plan = Plan(steps=STEPS, micro_shards=2, micro_batch=2, every=EVERY).as_json()
    return replace(
        Head(
            "gpu-loss", "gb300-nvl72", "emulated", 7, layer, STEPS, plan, EXPECTED,
            replicas=2, checkpoint_every=EVERY,
        ),
        **changes,
    )  # fmt: skip


@pytest.fixture
def good():
    """A drill of layer A in which all is as it should be: PASS, L4."""
    scene = Scene(head_of())
    for course in ("clean1", "clean2"):
        begin(scene, course, ["r0", "r1", "s0"])
        train(scene, course, hit=False)
        end(scene, course, ["r0", "r1", "s0"])
    begin(scene, "faulted", ["r0", "r1", "s0"])
    train(scene, "faulted", hit=True)
    recover(scene)
    end(scene, "faulted", ["r0", "r1", "s0"])
    for step in range(1, STEPS + 1):
        told = {"step": step, "digest": digest(step), "samples": ids(step), "loss": 4.0 / step}
        scene.say(BEGAN + step, "replay", "step", course="replay", **told)
    return scene


def tell(scene, course, steps, begin_at, *, attempt=1, **more):
    for place, step in enumerate(steps):
        fields = {"step": step, "loss": 1.0 / (step + 1), **more}
        scene.say(begin_at + place, "c0", "step", course=course, attempt=attempt, **fields)


@pytest.fixture
def command():
    """A drill of somebody's command that says its steps alone, is killed and started again."""
    expected = Expected(proof="L1", timeline=("fault", "resumed"), restarts=1, lost_steps=STEPS)
    head = head_of("C", plan={"command": ["./train"], "steps": STEPS}, expected=expected)
    scene = Scene(replace(head, replicas=1, checkpoint_every=None))
    for course in ("clean1", "clean2"):
        tell(scene, course, range(1, STEPS + 1), 102.0)
        scene.saw("died", 115.0, course=course, member="c0", pid=50, code=0)
    tell(scene, "faulted", range(1, 6), 102.0)
    scene.say(106.5, "drill", "injected", fault="kill", member="c0", pid=50, subject="")
    scene.saw("died", 106.55, member="c0", pid=50, code=-9)
    scene.say(106.6, "drill", "exited", member="c0", pid=50, code=-9)
    scene.say(106.7, "drill", "lost", member="c0", why="ended with signal 9")
    scene.say(106.7, "drill", "isolated", member="c0")
    scene.say(106.8, "drill", "restarted", step=None, uri="", why="ended with signal 9")
    tell(scene, "faulted", range(4, STEPS + 1), 108.0, attempt=2)
    scene.saw("died", 118.0, member="c0", pid=51, code=0)
    return scene


def with_digests(scene, courses=("clean1", "clean2", "faulted")):
    """Have a command tell digests and samples, and let its last state be hashed."""
    for course in courses:
        scene.said[course] = [
            changed(h, {"digest": digest(h.fields["step"]), "samples": ids(h.fields["step"])})
            if h.kind == "step"
            else h
            for h in scene.said[course]
        ]
        read = {"digest": digest(STEPS), "fields": list(FIELDS), "verifies": True}
        scene.saw("checkpoint", 119.0, course=course, uri=uri(STEPS), step=STEPS, tier="", **read)
        scene.saw("final", 119.0, course=course, step=STEPS, digest=digest(STEPS), bytes=9)
    return scene.expect(proof="L4")


@pytest.fixture
def telling_command(command):
    """The same command, which tells digests and samples, and stores a state that we can hash."""
    return with_digests(command)


@pytest.fixture(name="head_of", scope="session")
def head_of_fixture():
    """Return what makes a head of a layer."""
    return head_of


@pytest.fixture(name="digest", scope="session")
def digest_fixture():
    """Return what makes the digest of a step."""
    return digest
