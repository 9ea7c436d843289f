"""The timeline: fault, detected, isolated, spare-active, restored, resynchronised, resumed.

In: the strikes and happenings of a course. Out: moments, none of which is invented: a word stands
there because a happening of that kind was seen after a fault. Each fault opens a window, and faults
with nothing between them are one. A window has each word once: the first time after the word that
goes before it. `resumed` is the first step that was committed after all other words of its window.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.diagnostics.recovery.record import TIMELINE, Course
from rackproof.diagnostics.recovery.strikes import DRILL, SLACK, Strike, last_commit
from rackproof.diagnostics.recovery.trajectory import Trajectory
from rackproof.harness.happening import Happening

COORDINATOR = "coordinator"  # of layer A: none but its parent can see that it is gone
FAULT, DETECTED, RESUMED = "fault", "detected", "resumed"
WORDS = {
    "lost": DETECTED, "suspect": DETECTED, "slow": DETECTED, "detected": DETECTED,
    "quarantine": DETECTED,
    "isolated": "isolated", "spare-active": "spare-active", "restore": "restored",
    "resynchronised": "resynchronised",
}  # fmt: skip
"""Which word of the timeline a kind of happening is."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A word of the timeline; `at` is of the machine's clock, `step` where the word has one."""

    at: float
    what: str
    step: int | None = None
    who: str = ""

    def as_json(self, began: float) -> dict[str, Any]:
        """Return the contract's object, with seconds since the course began."""
        body: dict[str, Any] = {"at": round(max(0.0, self.at - began), 6), "what": self.what}
        if self.step is not None:
            body["step"] = self.step
        if self.who:
            body["member"] = self.who
        return body


@dataclass(frozen=True, slots=True)
class Window:
    """From one fault to the next: its strikes, and its moments in the order of time."""

    strikes: tuple[Strike, ...]
    moments: tuple[Moment, ...]

    @property
    def at(self) -> float:
        """When the fault struck."""
        return self.strikes[0].at

    def when(self, word: str) -> float | None:
        """Return the time of a word, None where it did not occur."""
        return next((each.at for each in self.moments if each.what == word), None)

    @property
    def found(self) -> float | None:
        """Seconds from the fault to its detection."""
        at = self.when(DETECTED)
        return None if at is None else at - self.at


def word(what: Happening, course: Course, struck: Sequence[Strike]) -> str:
    """Return the word that a happening is, an empty text for none.

    Of a command, the end of a process is a detection, unless it is the end of all.
    """
    if what.kind != "exited":
        return WORDS.get(what.kind, "")
    code = what.fields.get("code")
    forced = code != 0 if code is not None else what.number("pid") in {s.pid for s in struck}
    early = what.at < last_commit(course) or not course.finished
    return DETECTED if what.who == DRILL and forced and early else ""


def concerned(what: Happening) -> str:
    """Return the member that a happening is about."""
    return what.text("member") or (what.who if what.kind == "restore" else "")


def _since(strike: Strike, what: Happening) -> bool:
    """Say whether a happening came after a strike, as far as two clocks' readings can tell."""
    return what.at >= strike.at - (SLACK if strike.concerns(concerned(what)) else 0.0)


def words(course: Course, layer: str, struck: Sequence[Strike]) -> list[Moment]:
    """Return every word between fault and resumed, each time it occurs after the first fault."""
    fired = [each for each in struck if each.fired]
    return _words(course, layer, fired) if fired else []


def _words(course: Course, layer: str, struck: Sequence[Strike]) -> list[Moment]:
    found = []
    for what in course.happenings:
        said = word(what, course, struck)
        parent = layer != "A" or what.text("member") == COORDINATOR
        if not said or (what.kind == "exited" and not parent) or not _since(struck[0], what):
            continue
        step = what.number("step") if said in {"restored", "resynchronised"} else None
        found.append(Moment(max(what.at, struck[0].at), said, step, concerned(what)))
    return sorted(found, key=lambda each: (each.at, TIMELINE.index(each.what)))


def windows(
    course: Course, layer: str, struck: Sequence[Strike], path: Trajectory
) -> tuple[Window, ...]:
    """Return a window for each fault that fired, in the order of time."""
    fired = sorted((each for each in struck if each.fired), key=lambda each: each.at)
    if not fired:
        return ()
    said = _words(course, layer, fired)
    groups: list[list[Strike]] = []
    for strike in fired:
        if groups and _one(groups[-1], strike, said):
            groups[-1].append(strike)
        else:
            groups.append([strike])
    ends = [group[0].at for group in groups[1:]] + [math.inf]
    return tuple(_window(group, end, said, path) for group, end in zip(groups, ends, strict=True))


def _one(group: Sequence[Strike], strike: Strike, said: Sequence[Moment]) -> bool:
    """Say whether a strike belongs to a fault: nothing came between, or it is its other half."""
    between = any(group[0].at <= each.at < strike.at for each in said)
    over = any(each.until is not None and each.until < strike.at for each in group)
    return any(each.like(strike) for each in group) or not (between or over)


def _window(
    group: Sequence[Strike], end: float, words_of: Sequence[Moment], path: Trajectory
) -> Window:
    begin, named = group[0].at, group[0].member or group[0].subject
    own = [each for each in words_of if begin <= each.at < end]
    moments, before = [Moment(begin, FAULT, who=named)], begin
    for said in TIMELINE[1:-1]:
        found = [each for each in own if each.what == said]
        after = [each for each in found if each.at >= before]
        if found:
            moments.append((after or found)[0])
            before = moments[-1].at
    moments.sort(key=lambda each: (each.at, TIMELINE.index(each.what)))
    last = max(each.at for each in moments)
    resumed = next((c for c in path.commits if last < c.at < end), None)
    if resumed is not None:
        moments.append(Moment(resumed.at, RESUMED, resumed.step))
    return Window(tuple(group), tuple(moments))


def flat(found: Sequence[Window]) -> list[Moment]:
    """Return the moments of all windows."""
    return [moment for window in found for moment in window.moments]


def follows(moments: Sequence[Moment], wanted: Sequence[str]) -> str:
    """Return the first word that does not come in its place, an empty text where all do."""
    rest = iter(moments)
    for word_of in wanted:
        if not any(each.what == word_of for each in rest):
            return word_of
    return ""


def recoveries(found: Sequence[Window]) -> list[tuple[float, float | None]]:
    """Return (fault, resumed) of each recovery; a fault during one prolongs it."""
    spans: list[tuple[float, float | None]] = []
    for window in found:
        resumed = window.when(RESUMED)
        if spans and spans[-1][1] is None:
            spans[-1] = (spans[-1][0], resumed)
        else:
            spans.append((window.at, resumed))
    return spans
