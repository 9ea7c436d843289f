"""Strikes: the injections of a drill, and whether each of them did what it was to do.

In: what the drill says it injected, and what was looked at. Out: strikes with their evidence. An
injection for which nothing was seen to happen did not fire; the word of the injector is not enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rackproof.diagnostics.recovery.record import Course, Fact
from rackproof.diagnostics.recovery.telling import real, whole
from rackproof.harness.happening import Happening

DRILL = "drill"  # who speaks for the drill itself; no trainer does
SLACK = 0.05  # s; an act and the line about it are not one moment
KILLED = 128  # a shell's exit code for a child that a signal ended is above it
SIGNS = {"died": "it died", "stopped": "it was stopped"}


@dataclass(frozen=True, slots=True)
class Strike:
    """One injection: when, what, on whom. `evidence` is empty where it was not seen to fire."""

    at: float
    fault: str
    member: str = ""
    subject: str = ""
    pid: int | None = None
    evidence: str = ""
    damages: tuple[str, ...] = field(default=())

    @property
    def fired(self) -> bool:
        """Whether it was seen to strike."""
        return bool(self.evidence)

    @property
    def on(self) -> str:
        """In words: what, on whom."""
        where = self.member or self.subject
        return f"{self.fault or 'a fault'}{f' of {where}' if where else ''}"

    def concerns(self, member: str) -> bool:
        """Say whether a member is the one that was struck, or a process of it."""
        return bool(self.member) and (
            member == self.member
            or member.startswith(f"{self.member}.")
            or self.member.startswith(f"{member}.")
        )


def last_commit(course: Course) -> float:
    """Return when the last step was told, the course's begin where none was."""
    return max((h.at for h in course.happenings if h.kind == "step"), default=course.began)


def strikes(course: Course, facts: Sequence[Fact]) -> tuple[Strike, ...]:
    """Return the injections of a course in the order of time, with their evidence."""
    own = [fact for fact in facts if fact.course == course.name]
    said = [h for h in course.happenings if h.kind == "injected" and h.who == DRILL]
    return tuple(_strike(what, course, own) for what in said)


def _strike(what: Happening, course: Course, facts: Sequence[Fact]) -> Strike:
    named = what.fields.get("damages")
    damages = [named] if isinstance(named, str) else named if isinstance(named, list) else []
    return Strike(
        what.at, what.text("fault"), what.text("member"), what.text("subject"),
        what.number("pid"), _evidence(what, course, facts),
        tuple(str(each).rstrip("/") for each in damages if str(each)),
    )  # fmt: skip


def _evidence(what: Happening, course: Course, facts: Sequence[Fact]) -> str:
    fault, member, pid = what.text("fault"), what.text("member"), what.number("pid")
    for fact in facts:
        if fact.what == "fired" and str(fact.fields.get("fault", "")) == fault:
            count = real(fact.fields.get("fired")) or 0.0
            if count > 0:
                return f"it struck {count:g} times"
        if fact.what not in SIGNS or fact.at < what.at - SLACK:
            continue
        found = whole(fact.fields.get("pid"))
        same = found == pid if None not in (found, pid) else fact.fields.get("member") == member
        if same and (fact.what == "stopped" or _by_force(fact, course)):
            return SIGNS[fact.what] + (f" (process {found})" if found is not None else "")
    return ""


def _by_force(fact: Fact, course: Course) -> bool:
    """Say whether a death is none of old age: by a signal, or while others still had to work."""
    code = fact.fields.get("code")
    if isinstance(code, int) and not isinstance(code, bool):
        return code < 0 or code > KILLED
    return fact.at < last_commit(course) or not course.finished
