"""Strikes: the injections of a drill, and whether each of them did what it was to do.

In: what the drill says it injected, and what was looked at. Out: strikes with their evidence. An
injection for which nothing was seen to happen did not fire; the word of the injector is not enough.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from rackproof.diagnostics.recovery.outside import foreign
from rackproof.diagnostics.recovery.record import Course, Fact, Head
from rackproof.diagnostics.recovery.telling import real, whole
from rackproof.harness.happening import Happening

DRILL = "drill"  # who speaks for the drill itself; no trainer does
SLACK = 0.05  # s; an act and the line about it are not one moment
KILLED = 128  # a shell's exit code for a child that a signal ended is above it
ACTS = frozenset(("kill", "freeze"))  # what shows is the process, not a count
FELT = frozenset(("lost", "slow", "suspect", "refused"))
SIGNS = {"died": "it died", "stopped": "it was stopped"}


def place(text: object) -> str:
    """Return the URI of a checkpoint or a tier as it is compared."""
    return text.removeprefix("file://").rstrip("/") if isinstance(text, str) else ""


@dataclass(frozen=True, slots=True)
class Strike:
    """One injection: when, what, on whom. `evidence` is empty where it was not seen to fire.

    `damages` are checkpoints and tiers that it spoilt, `until` when a stopped process went on.
    """

    at: float
    fault: str
    member: str = ""
    subject: str = ""
    pid: int | None = None
    evidence: str = ""
    damages: tuple[str, ...] = field(default=())
    until: float | None = None

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
        one, other = f"{self.member}.", f"{member}."
        return bool(self.member and member) and (one.startswith(other) or other.startswith(one))

    def like(self, other: "Strike") -> bool:
        """Say whether both are one fault: on one member or subject, and still the same process."""
        target = self.concerns(other.member) or bool(
            self.subject and other.subject and akin(self.subject, other.subject)
        )
        again = None not in (self.pid, other.pid) and self.pid != other.pid
        return target and not again and self.until is None


def akin(one: str, other: str) -> bool:
    """Say whether two subjects are one, or one is a part of the other."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")


def last_commit(course: Course) -> float:
    """Return when the last step was told, the course's begin where none was."""
    return max((h.at for h in course.happenings if h.kind == "step"), default=course.began)


def strikes(course: Course, facts: Sequence[Fact], head: Head) -> tuple[Strike, ...]:
    """Return the injections of a course in the order of time, with their evidence."""
    own = [fact for fact in facts if fact.course == course.name]
    said = [h for h in course.happenings if h.kind == "injected" and h.who == DRILL]
    search = _Search(course, own, head, frozenset(what.text("fault") for what in said))
    return tuple(search.strike(what) for what in said)


def idle(course: Course, facts: Sequence[Fact]) -> list[str]:
    """Return the faults that were looked at and did not strike even once."""
    counts: dict[str, float] = {}
    for fact in facts:
        if fact.what == "fired" and fact.course == course.name:
            name = str(fact.fields.get("fault", ""))
            counts[name] = counts.get(name, 0.0) + max(real(fact.fields.get("fired")) or 0.0, 0.0)
    return [name for name, count in counts.items() if not count > 0]


class _Search:
    """Looks for evidence, the best first: a count, a process, what others felt."""

    def __init__(
        self, course: Course, facts: Sequence[Fact], head: Head, named: frozenset[str]
    ) -> None:
        self._course, self._facts, self._head, self._named = course, facts, head, named
        self._last = last_commit(course)
        told = [h.number("step") for h in course.happenings if h.kind == "step"]
        steps = [step for step in told if step is not None]
        self._short = max(steps, default=0) < min((1, *steps)) + head.steps - 1

    def strike(self, what: Happening) -> Strike:
        named = what.fields.get("damages")
        damages = [named] if isinstance(named, str) else named if isinstance(named, list) else []
        member, subject, pid = what.text("member"), what.text("subject"), what.number("pid")
        if subject and not member:
            seats = self._head.placement.items()
            member = next((name for name, seat in seats if seat and akin(seat, subject)), "")
        return Strike(
            what.at, what.text("fault"), member, subject or self._head.placement.get(member, ""),
            pid, self._evidence(what), tuple(place(each) for each in damages if place(each)),
            self._until(what.at, member),
        )  # fmt: skip

    def _until(self, at: float, member: str) -> float | None:
        """Return when a member that was stopped went on."""
        thawed = [f for f in self._facts if f.what == "thawed" and f.fields.get("member") == member]
        return min((fact.at for fact in thawed if fact.at > at), default=None)

    def _evidence(self, what: Happening) -> str:
        return (
            self._counted(what.text("fault"))
            or ("" if what.text("fault") in ACTS else self._counted(self._head.drill, drill=True))
            or self._seen(what)
            or self._felt(what)
        )

    def _counted(self, fault: str, *, drill: bool = False) -> str:
        """Return the count of a fact `fired`; the drill's name stands for what has none."""
        if drill and fault in self._named:
            return ""
        for fact in self._facts:
            if fact.what == "fired" and fact.fields.get("fault") == fault:
                count = real(fact.fields.get("fired")) or 0.0
                if count > 0:
                    return f"it struck {count:g} times"
        return ""

    def _seen(self, what: Happening) -> str:
        """Return what was seen of the process that was hit."""
        pid, member = what.number("pid"), what.text("member")
        for fact in self._facts:
            if fact.what not in SIGNS or fact.at < what.at - SLACK or foreign(fact):
                continue
            found = whole(fact.fields.get("pid"))
            same = found == pid if None not in (found, pid) else fact.fields.get("member") == member
            if same and (fact.what == "stopped" or self._by_force(fact)):
                return SIGNS[fact.what] + (f" (process {found})" if found is not None else "")
        return ""

    def _by_force(self, fact: Fact) -> bool:
        """Say whether a death is none of old age: by a signal, or with work still to be done.

        Of a child of somebody's launcher nobody tells us the code, and the launcher may end well.
        """
        code = fact.fields.get("code")
        if isinstance(code, int) and not isinstance(code, bool):
            return code < 0 or code > KILLED
        return fact.at < self._last or self._short or not self._course.finished

    def _felt(self, what: Happening) -> str:
        """Return what our own coordinator felt of it (layer A), or what telemetry saw."""
        fault, member, subject = what.text("fault"), what.text("member"), what.text("subject")
        for other in self._course.happenings:
            if other.at < what.at - SLACK:
                continue
            named = other.text("member")
            if other.kind in FELT and self._head.layer == "A" and named and named == member:
                return f"the coordinator felt it ({other.kind} {member})"
            seen = other.kind == "detected" and other.who == DRILL and "@" in fault
            if seen and other.text("subject") and akin(other.text("subject"), subject):
                return f"telemetry saw it ({other.text('subject')})"
        return ""
