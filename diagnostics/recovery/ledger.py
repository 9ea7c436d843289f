"""The ledger of a run: wall time in eight shares that add up to 1, and what is reckoned beside it.

Wall is the time of training: from the first sign that a step is being worked on (an epoch, an
intent, else the last hello before the first step) to the last commit, or to the course's end where
the last step was not reached. The start of the processes before it and their end after it are told
in seconds, and are no share. The shares, of which each moment has exactly one:

- productive: work of steps that count, × n/N where n of N members took part;
- degraded: that work × (1 - n/N);
- recompute: work of steps that had been committed before, and of attempts that were thrown away;
- detect, isolate, restore: waiting after a fault, see `spans`;
- checkpoint: productive or repeated work that stood still while a checkpoint was being staged;
- dimmed: what power held back, in a power drill; its ledger is diagnostics.power's.
"""

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.diagnostics.recovery.record import Course
from rackproof.diagnostics.recovery.spans import (
    PRODUCTIVE,
    RECOMPUTE,
    UNDOES,
    Mark,
    Span,
    Work,
    spans,
    usual,
)
from rackproof.diagnostics.recovery.strikes import Strike
from rackproof.diagnostics.recovery.telling import members_of, real
from rackproof.diagnostics.recovery.timeline import Moment
from rackproof.diagnostics.recovery.trajectory import Trajectory

SHARES = tuple("productive detect isolate restore recompute checkpoint degraded dimmed".split())
GRAIN = 1 << 20  # shares are multiples of 1/GRAIN: sums of them are exact in binary


@dataclass(frozen=True, slots=True)
class Ledger:
    """Seconds of each share. `start` and `end` are seconds outside of them."""

    seconds: Mapping[str, float]
    wall: float
    start: float = 0.0
    end: float = 0.0
    step: float | None = None

    @property
    def shares(self) -> dict[str, float]:
        """The shares of the wall time; in whatever order they are added, their sum is 1.0."""
        return rounded({name: self.seconds.get(name, 0.0) for name in SHARES})

    def as_json(self) -> dict[str, Any]:
        """Return the contract's object."""
        return self.shares

    def times(self) -> dict[str, Any]:
        """Return the seconds: of the wall, before and after it, of a step, and of each share."""
        parts = {name: round(self.seconds.get(name, 0.0), 6) for name in SHARES}
        step = None if self.step is None else round(self.step, 6)
        return {
            "seconds": round(self.wall, 6), "start": round(self.start, 6),
            "end": round(self.end, 6), "step": step, "shares": parts,
        }  # fmt: skip


def rounded(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return shares of the sum, in multiples of 1/GRAIN, which add up to exactly 1.

    What rounding down left over goes to the largest remainders (Hamilton's method).
    """
    total = math.fsum(seconds.values())
    exact = {name: value / total * GRAIN for name, value in seconds.items()}
    whole = {name: math.floor(value) for name, value in exact.items()}
    left = GRAIN - sum(whole.values())
    order = sorted(exact, key=lambda name: (whole[name] - exact[name], SHARES.index(name)))
    for name in order[: max(left, 0)]:
        whole[name] += 1
    return {name: value / GRAIN for name, value in whole.items()}


@dataclass(frozen=True, slots=True)
class Run:
    """What the ledger has to know of a run beside its course.

    `last` is the number of the last step, `members` is N, `step` the seconds that a step takes in
    the fault-free runs, where it is known; `struck` the strikes, `words` the timeline's moments.
    """

    path: Trajectory
    last: int
    members: int
    step: float | None = None
    struck: Sequence[Strike] = ()
    words: Sequence[Moment] = ()


@dataclass(frozen=True, slots=True)
class Stall:
    """An interval in which training stood still."""

    begin: float
    end: float


def stalls(course: Course) -> list[Stall]:
    """Return when training stood still for a checkpoint: as told, joined, and in order."""
    found = []
    for what in course.happenings:
        seconds = real(what.fields.get("seconds"))
        if what.kind != "ckpt" or what.text("phase") != "staged" or seconds is None:
            continue
        if math.isfinite(seconds) and seconds > 0:
            found.append(Stall(what.at - seconds, what.at))
    return _joined(found)


def _joined(found: Sequence[Stall]) -> list[Stall]:
    joined: list[Stall] = []
    for each in sorted(found, key=lambda rate: rate.begin):
        if joined and each.begin <= joined[-1].end:
            joined[-1] = Stall(joined[-1].begin, max(joined[-1].end, each.end))
        else:
            joined.append(each)
    return joined


class _Line:
    """Intervals side by side, in order; cuts others at their edges."""

    def __init__(self, rates: Sequence[Stall]) -> None:
        self._rates, self._begins = rates, [each.begin for each in rates]

    def cut(self, begin: float, end: float) -> Iterator[tuple[float, float, Stall | None]]:
        """Yield the pieces of [begin, end], each with the interval in which it lies."""
        place, at = max(0, bisect.bisect_right(self._begins, begin) - 1), begin
        while place < len(self._rates) and self._begins[place] < end:
            each = self._rates[place]
            low, high = max(each.begin, at), min(each.end, end)
            if high > low:
                yield at, low, None
                yield low, high, each
                at = high
            place += 1
        yield at, end, None


class _Book:
    """Adds up spans, cut at the edges of stalls."""

    def __init__(self, held: Sequence[Stall]) -> None:
        self.parts: dict[str, list[float]] = {name: [] for name in SHARES}
        self._held = _Line(held)

    def add(self, span: Span) -> None:
        if span.share not in {PRODUCTIVE, RECOMPUTE}:
            self._put(span.share, span.seconds)
            return
        for begin, end, held in self._held.cut(span.begin, span.end):
            if held is not None:
                self._put("checkpoint", end - begin)
            elif span.share == RECOMPUTE:
                self._put(RECOMPUTE, end - begin)
            else:
                part = (end - begin) * span.part
                self._put("degraded", (end - begin) - part)
                self._put(PRODUCTIVE, part)

    def _put(self, share: str, seconds: float) -> None:
        if seconds > 0:
            self.parts[share].append(seconds)


def marks_of(course: Course, run: Run) -> list[Mark]:
    """Return the faults, the words after them, and every step that was thrown away, in order."""
    found = [Mark(each.at, "fault") for each in run.struck if each.fired]
    found += [Mark(each.at, each.what) for each in run.words]
    found += [Mark(what.at, what.kind) for what in course.happenings if what.kind in UNDOES]
    return sorted(found, key=lambda mark: (mark.at, mark.what != "fault"))


def works_of(course: Course, run: Run) -> list[Work]:
    """Return the commits in order, with the part of all members that worked on each."""
    told = [
        (what.at, found)
        for what in course.happenings
        if what.kind in {"epoch", "intent"}
        and (found := members_of(what.fields.get("participants"))) is not None
    ]
    times = [at for at, _ in told]
    works = []
    for commit in run.path.commits:
        place = bisect.bisect_right(times, commit.at) - 1
        count = commit.members or (told[place][1] if place >= 0 else run.members)
        works.append(Work(commit.at, commit.again, min(count, run.members) / max(run.members, 1)))
    return works


def begin_of(course: Course, path: Trajectory) -> float:
    """Return when training began: the first sign of work on a step."""
    first = path.commits[0].at if path.commits else course.ended
    signs = [h.at for h in course.happenings if h.kind in {"epoch", "intent"} and h.at <= first]
    hellos = [h.at for h in course.happenings if h.kind == "hello" and h.at <= first]
    return min(signs) if signs else max(hellos, default=course.began)


def ledger(course: Course, run: Run) -> Ledger | None:
    """Return the ledger of a course; None where no time passed."""
    path = run.path
    begin = max(course.began, min(begin_of(course, path), course.ended))
    done = path.commits and path.top >= run.last
    end = min(max(path.commits[-1].at, begin), course.ended) if done else course.ended
    if not (math.isfinite(begin) and math.isfinite(end) and end > begin):
        return None
    works, marks = works_of(course, run), marks_of(course, run)
    step = usual(works, marks) or run.step
    book = _Book(stalls(course))
    for span in spans(begin, end, works, marks, step):
        book.add(span)
    seconds = {name: math.fsum(parts) for name, parts in book.parts.items()}
    outside = (begin - course.began, max(0.0, course.ended - end))
    return Ledger(seconds, end - begin, *outside, step)
