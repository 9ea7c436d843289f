"""The record of a drill as objects: what was planned, what was said, what was looked at.

It is the seam between holding a drill and judging it: `judge` needs nothing else, so a drill can be
judged again. Reading and writing the lines is reports' business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackproof.harness.happening import Happening

SCHEMA = "rackproof.drill-record/1"
PROOFS = ("L0", "L1", "L2", "L3", "L4")
LAYERS = ("A", "B", "C")
TIMELINE = (
    "fault", "detected", "isolated", "spare-active", "restored", "resynchronised", "resumed"
)  # fmt: skip
"""The words of the contract's timeline, in the order in which a recovery runs through them."""


@dataclass(frozen=True, slots=True)
class Expected:
    """What a drill says must hold, as data.

    `proof` is the level that must be shown and `best` the highest that can apply; `restarts` is how
    often the whole job may go back to a checkpoint, `must_restart` says that it has to at least
    once. `timeline` are the words that must occur, in this order; `absent` those that must not.
    `components` are those of which a diagnosis of telemetry must be one (empty: no rack takes
    part). `kinds` are kinds of happenings that must have been seen (such as quarantine), `unseen`
    those that must not. `evicted` are the members that must be, and the only ones that may be,
    isolated (None: not asked). Budgets: `detect` and `resume` in seconds from the fault,
    `resume_steps` in clean steps on top of `resume`, `lost_steps` committed steps that may be
    repeated. `passed_over`: how many checkpoints, at least, must have been found bad and skipped.
    `power` are the criteria of a power drill (DD1, …) that it is held for; none: it is no such.
    """

    proof: str = "L4"
    best: str = "L4"
    restarts: int = 0
    must_restart: bool = False
    timeline: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    evicted: tuple[str, ...] | None = None
    detect: float | None = None
    resume: float | None = None
    resume_steps: float = 0.0
    lost_steps: int = 0
    passed_over: int = 0
    power: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Head:
    """The first line: which drill, on which rack, with what training run.

    `plan` is the Plan of layer A, or ``{"command": [...], "steps": N}`` of a command; `placement`
    maps members to subjects of the rack; `checkpoint_every` is in steps (None: not known).
    """

    drill: str
    rack: str
    source: str
    seed: int
    layer: str
    steps: int
    plan: Mapping[str, Any]
    expected: Expected
    placement: Mapping[str, str] = field(default_factory=dict)
    replicas: int = 1
    checkpoint_every: int | None = None
    mode: str = "keep-batch"
    versions: Mapping[str, str] = field(default_factory=dict)
    date: str = ""


@dataclass(frozen=True, slots=True)
class Course:
    """One training run from begin to end: `name` is faulted, clean1, clean2 or replay.

    `happenings` in the order of time; `began` and `ended` on the same clock. `finished` says that
    the run came to its end by itself, with exit code 0 where it is a command. `problems` are lines
    of its events that could not be read, in words.
    """

    name: str
    began: float
    ended: float
    finished: bool
    happenings: Sequence[Happening]
    problems: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Fact:
    """What we looked at ourselves.

    `what` is one of:
    died             member, pid, code, by?: a process is gone, seen by its parent or in /proc;
                     `by`: who of ours sent its signal (drill, order); empty: nobody of us did
    gone             member, pid: it was seen alive, and is not there any more at the end
    doubled          member, pids: several living processes said hello as one rank
    stopped, thawed  member, pid, by?
    alive            member, pid, ours: the pid that a trainer named was there and a child of ours
    checkpoint       uri, tier, step, verifies, digest, fields (list), tensors (sha256), problem
    final            step, digest, bytes: the state at the end, hashed from what was stored last
    left-behind      pids: processes of the run that were still there after its end, and were ended
    fired            fault, fired: an injection or a plant did strike (count); why it did not
    full             why: no space was left for what the run, or the drill, writes
    outcome          why: how a job that did not come to its end was given up
    power            sort, …: what was seen of the power zone (diagnostics.power.record)
    """

    what: str
    fields: Mapping[str, Any]
    course: str = "faulted"
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class DrillRecord:
    """All that is known of a drill. `planted` is the contract's list; `problems` of its lines.

    `whole` is False where lines are missing, doubled or out of their order: what it says is not
    what happened.
    """

    head: Head
    courses: Mapping[str, Course]
    facts: Sequence[Fact]
    planted: Sequence[Mapping[str, Any]] = ()
    ended: bool = True
    problems: Sequence[str] = ()
    whole: bool = True

    @property
    def faulted(self) -> Course | None:
        """The run that was hit."""
        return self.courses.get("faulted")

    @property
    def clean(self) -> list[Course]:
        """The fault-free runs, in order."""
        return [course for name, course in sorted(self.courses.items()) if name.startswith("clean")]
