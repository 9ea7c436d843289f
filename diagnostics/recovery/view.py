"""What a record says, sorted for the judge: courses, trajectories, strikes, windows, facts.

In: a DrillRecord. Out: a View, the one thing from which all claims are made. Lines that their
speaker may not say are set aside here: only the drill says what was injected, found and decided,
and a training command says the five kinds of the contract.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rackproof.diagnostics.recovery import outside, timeline
from rackproof.diagnostics.recovery.claims import Claim, broken, unknown
from rackproof.diagnostics.recovery.ledger import Ledger, Run, ledger, works_of
from rackproof.diagnostics.recovery.record import (
    Course,
    DrillRecord,
    Expected,
    Fact,
    Head,
)
from rackproof.diagnostics.recovery.spans import usual
from rackproof.diagnostics.recovery.strikes import DRILL, Strike, idle, strikes
from rackproof.diagnostics.recovery.trajectory import Trajectory, trajectory
from rackproof.diagnostics.recovery.untold import Untold, untold
from rackproof.harness.happening import DRILL as DRILL_KINDS
from rackproof.harness.happening import TRAINER, Happening

NO_END = "the record has no end: whoever held the drill was killed, or could not write"
NOT_THERE = "the run that was to be hit is not in the record"
FELT_ALONE = frozenset(("kill", "freeze", "cut"))
"""Acts on a process, or on its way to the others, that a training run notices by itself."""
FIELDS = ("weights", "optimizer", "rng", "data", "config", "topology", "commit")
"""The seven fields of a checkpoint, as harness.checkpoint.anatomy has them."""


@dataclass(frozen=True, slots=True)
class Told:
    """A course as it is judged: what counts of it, its trajectory, and what was set aside."""

    course: Course
    path: Trajectory
    forged: tuple[str, ...] = ()

    def of(self, *kinds: str) -> Iterator[Happening]:
        """Yield the happenings of some kinds, in the order of time."""
        return (what for what in self.course.happenings if what.kind in kinds)


@dataclass(frozen=True, slots=True)
class View:
    """All that a claim is made from.

    `gaps` says why what is not there may only be unread; `unread` are those of them that are holes
    in what was said, so that what stands on both sides of one need not fit. `untold` are steps that
    were saved and not told.
    """

    record: DrillRecord
    faulted: Told
    clean: tuple[Told, ...]
    replay: Told | None
    struck: tuple[Strike, ...]
    windows: tuple[timeline.Window, ...]
    words: tuple[timeline.Moment, ...]
    gaps: tuple[str, ...]
    unread: tuple[str, ...] = ()
    untold: Mapping[int, Untold] = field(default_factory=dict)

    @property
    def head(self) -> Head:
        """The head of the record."""
        return self.record.head

    @property
    def expected(self) -> Expected:
        """What the drill says must hold."""
        return self.head.expected

    @property
    def own(self) -> bool:
        """Whether it is our own training run (layer A), which says more than the contract asks."""
        return self.head.layer == "A"

    @property
    def path(self) -> Trajectory:
        """The trajectory of the run that was hit."""
        return self.faulted.path

    @property
    def last(self) -> int:
        """The number of the last step; one lower where a trainer counts from 0."""
        return self.path.base + self.head.steps - 1

    @property
    def most(self) -> int:
        """The highest step that was ever told, or saved and not told."""
        return max((self.path.most, *self.untold))

    @property
    def late(self) -> bool:
        """Whether it was hit between its last save and the line about it: nothing was left."""
        return self.path.top == self.last - 1 and self.last in self.untold

    @property
    def idle(self) -> list[str]:
        """What was injected, or looked at, and was not seen to strike, in words."""
        counted = idle(self.faulted.course, self.record.facts)
        return [s.on for s in self.struck if not s.fired] + counted

    @property
    def fired(self) -> bool:
        """Whether there was a fault, and every injection was seen to strike."""
        return bool(self.struck) and not self.idle

    @property
    def step(self) -> float | None:
        """Seconds of a step in the fault-free runs, in the quiet of the faulted one else."""
        for told in (*self.clean, self.faulted):
            run = Run(told.path, self.last, self.head.replicas)
            found = usual(works_of(told.course, run), ())
            if found is not None:
                return found
        return None

    @property
    def restarts(self) -> int:
        """How often the whole job went back to a checkpoint: as told, or as its steps show."""
        return max(sum(1 for _ in self.faulted.of("restarted")), len(self.path.rollbacks))

    def book(self) -> Ledger | None:
        """Return the ledger of the run that was hit."""
        run = Run(self.path, self.last, self.head.replicas, self.step, self.struck, self.words)
        return ledger(self.faulted.course, run)

    def facts(self, *kinds: str, course: str = "faulted") -> list[Fact]:
        """Return the facts of some kinds of a course."""
        return [f for f in self.record.facts if f.what in kinds and f.course == course]

    @property
    def hits(self) -> list[str]:
        """What somebody else than the drill did to the run's processes, in words."""
        return outside.hits(self.facts("died", "stopped"))

    def absent(self, name: str, what: str, level: str = "") -> Claim:
        """Say that something did not happen: FAIL, or UNKNOWN where it may only be unread.

        Nor is it the run's fault where something else hit it as well.
        """
        gaps = [*self.gaps, *self.hits]
        if not gaps:
            return broken(name, what, level)
        return unknown(name, f"{what}, but {gaps[0]}", "hold the drill again", level)

    def unresumed(self, name: str, what: str, level: str = "") -> Claim:
        """Say that no step came after the fault: as `absent`, UNKNOWN where none was left to do."""
        if not self.late:
            return self.absent(name, what, level)
        said = f"step {self.last}, the last, was saved and not told: the fault came after it"
        return unknown(name, said, "hold the drill again, with more steps", level)

    @property
    def blind(self) -> str:
        """Why telemetry could not be watched, judged or passed on; an empty text where it was."""
        return next((what.text("why") or "?" for what in self.faulted.of("blind")), "")

    def unwatched(self, name: str, what: str, level: str = "") -> Claim:
        """Say that telemetry did not find something, which it could not."""
        cure = "hold the drill again"
        return unknown(name, f"{what}, but its watch was blind: {self.blind}", cure, level)

    def unseen(self, name: str, what: str, level: str = "") -> Claim:
        """Say that nobody noticed a fault: UNKNOWN where only telemetry could, and was blind."""
        felt = any(strike.fired and strike.fault in FELT_ALONE for strike in self.struck)
        lacks = self.absent if felt or not self.blind else self.unwatched
        return lacks(name, what, level)

    def unfired(self, name: str, level: str = "") -> Claim:
        """Say that there was nothing to recover from."""
        return unknown(name, "no fault struck", "see the claim fault-fired", level)

    def first(self, word: str) -> timeline.Window | None:
        """Return the first window in which a word occurs, None where it does in none."""
        return next((each for each in self.windows if each.when(word) is not None), None)


def plan_value(plan: Mapping[str, Any], *names: str) -> Any:
    """Return a value of a plan's JSON, None where it is not there."""
    found: Any = plan
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found


def _told(course: Course, layer: str) -> Told:
    kept, forged = [], []
    for what in course.happenings:
        if not math.isfinite(what.at):
            forged.append(f"{what.who}: {what.kind} at no time")
        elif what.who != DRILL and (
            what.kind in DRILL_KINDS or (layer == "C" and what.kind not in TRAINER)
        ):
            forged.append(f"{what.who} may not say {what.kind}")
        else:
            kept.append(what)
    kept.sort(key=lambda each: each.at)
    sound = replace(course, happenings=kept)
    return Told(sound, trajectory(sound), tuple(dict.fromkeys(forged)))


def no_space(record: DrillRecord) -> list[str]:
    """Return in words that no space was left for what was written, in whatever course."""
    return list({str(f.fields.get("why")): f for f in record.facts if f.what == "full"})


def _cut(record: DrillRecord, faulted: Told | None) -> list[str]:
    """Return in which way the record, or the run in it, stops before its end."""
    found = no_space(record)
    if not record.ended:
        return [*found, NO_END]
    if faulted is None:
        # What broke before is the reason, and stands among the problems of the record.
        return [*found, *([] if record.problems else [NOT_THERE])]
    course = faulted.course
    if not (math.isfinite(course.began) and math.isfinite(course.ended)):
        found.append("its begin and end are not known")
    elif course.ended <= course.began:
        found.append("it has no end")
    return found


def _unread(record: DrillRecord, hit: Told, struck: Sequence[Strike]) -> tuple[str, ...]:
    """Return the lines that could not be read, or were not their speaker's to say."""
    problems = [each for each in hit.course.problems if not _excused(each, struck)]
    return (*record.problems, *problems, *hit.forged, *hit.path.problems)


def _excused(problem: str, struck: Sequence[Strike]) -> bool:
    """Say whether a line was cut short because the drill had killed its writer."""
    name, _, rest = problem.partition(": ")
    who = name.removesuffix(".jsonl").rpartition(".")[0]
    cut = rest == "its last line was cut short"
    return cut and bool(who) and any(s.fired and s.concerns(who) for s in struck)


def view(record: DrillRecord) -> View:
    """Return the view of a record, whatever is missing in it."""
    layer = record.head.layer
    told = {name: _told(course, layer) for name, course in record.courses.items()}
    faulted = told.get("faulted")
    hit = faulted or _told(Course("faulted", 0.0, 0.0, finished=False, happenings=()), layer)
    struck = strikes(hit.course, record.facts, record.head)
    words = timeline.words(hit.course, layer, struck)
    unread = _unread(record, hit, struck)
    return View(
        record, hit, tuple(told[course.name] for course in record.clean), told.get("replay"),
        struck, timeline.windows(hit.course, layer, struck, hit.path), tuple(words),
        (*_cut(record, faulted), *unread), unread,
        untold(hit.course, hit.path, record.facts),
    )  # fmt: skip
