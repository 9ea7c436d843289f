"""From events to episodes: incidents are counted, never lines.

Events with their meaning come in; an Episode is (machine, subject, family of codes) with gaps of
five seconds merged. Two episodes are near when a fault of one could have caused the other: within
thirty seconds on clocks that can be compared. Without times, all of one file is near.

An event keeps the time that its file tells; `shift` and `timeline` of its Said move it onto the one
clock of the call, where timeline.py could find one.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from rackproof.diagnostics.rules.tables import Rule
from rackproof.diagnostics.rules.xid import KINDS
from rackproof.harness.model import Event

GAP = 5.0
CASE = 30.0
Clock = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """One event with its meaning. `machine` "" is the only one; `file` the input's name.

    `shift` is added to its own times where it stands on another clock, `timeline`, than the file
    tells; `carrier` is the serial number of the GPU that stood at the place then, where known.
    `life` counts the boots of its machine, where the files tell when those were.
    """

    event: Event
    rule: Rule
    machine: str
    subject: str
    file: str = ""
    shift: float = 0.0
    timeline: Clock = ()
    carrier: str = ""
    life: int | None = None

    @property
    def at(self) -> float | None:
        """When it was said first."""
        return None if self.event.at is None else self.event.at + self.shift

    @property
    def count(self) -> int:
        """How often it was said."""
        count = self.event.detail.get("count", 1)
        return count if isinstance(count, int) else 1

    @property
    def last(self) -> float | None:
        """When it was said last."""
        last = self.event.detail.get("last", self.event.at)
        return last + self.shift if isinstance(last, float | int) else None

    @property
    def line(self) -> int:
        """The line where it was said first, 0 where unknown."""
        line = self.event.detail.get("line", 0)
        return line if isinstance(line, int) else 0

    @property
    def clock(self) -> Clock:
        """What its time may be compared with: equal clocks only."""
        if self.timeline:
            return self.timeline
        name = self.event.clock
        if name in ("epoch", "calendar"):
            return (name,)
        if name == "boot":
            boot = self.event.detail.get("boot", 0)
            return (name, self.machine, boot if isinstance(boot, int) else 0)
        return (name, self.file)

    def order(self) -> tuple[float, str, int, str]:
        """Sort key: time, then file and line."""
        at = self.at
        return (at if at is not None else 0.0, self.file, self.line, self.event.code)


@dataclass(frozen=True, slots=True)
class Episode:
    """What one place said of one family of causes in one go, in order of time.

    `lead` is the most root-like of what was said, of equals the earliest; `first` and `last` are
    when it began and ended, on its clock.
    """

    machine: str
    subject: str
    family: str
    clock: Clock
    said: tuple[Said, ...]
    lead: Said
    first: float | None
    last: float | None

    @classmethod
    def of(cls, place: tuple[str, str, str, Clock], said: Iterable[Said]) -> Self:
        """Return the episode of (machine, subject, family, clock) that `said` makes."""
        ordered = tuple(sorted(said, key=Said.order))
        return cls(
            *place,
            ordered,
            min(ordered, key=lambda s: (KINDS.index(s.rule.kind), s.order())),
            ordered[0].at,
            max((s.last for s in ordered if s.last is not None), default=None),
        )

    @property
    def kind(self) -> str:
        """The kind of its lead."""
        return self.lead.rule.kind

    @property
    def codes(self) -> frozenset[str]:
        """The codes in it."""
        return frozenset(s.event.code for s in self.said)

    def order(self) -> tuple[Clock, float, str, int, str, str, str]:
        """Sort key that does not depend on the order of the inputs."""
        at, file, line, code = self.said[0].order()
        return (tuple(map(str, self.clock)), at, file, line, code, self.machine, self.subject)


def episodes(said: Iterable[Said]) -> list[Episode]:
    """Return the episodes, in order of clock and time."""
    groups: dict[tuple[str, str, str, Clock], list[Said]] = defaultdict(list)
    for one in said:
        groups[one.machine, one.subject, one.rule.family, one.clock].append(one)
    found = []
    for place, members in groups.items():
        members.sort(key=Said.order)
        run: list[Said] = []
        end: float | None = None
        for one in members:
            at = one.at
            if run and at is not None and end is not None and at - end > GAP:
                found.append(Episode.of(place, run))
                run, end = [], None
            run.append(one)
            if one.last is not None:
                end = one.last if end is None else max(end, one.last)
        found.append(Episode.of(place, run))
    return sorted(found, key=Episode.order)


def near(a: Episode, b: Episode, seconds: float = CASE) -> bool:
    """Whether two episodes lie within `seconds` of each other; without times, in one file."""
    if a.clock != b.clock:
        return False
    if a.first is None or a.last is None or b.first is None or b.last is None:
        return True
    return a.first <= b.last + seconds and b.first <= a.last + seconds


def before(a: Episode, b: Episode) -> bool:
    """Whether `a` began no later than `b`."""
    return a.said[0].order()[:3] <= b.said[0].order()[:3]


def coarse(found: Sequence[Episode], most: int) -> tuple[list[Episode], int]:
    """Return at most about `most` episodes a machine, and how many were left out.

    Above that number, all episodes of one place and family are taken as one. Only a file made to
    have no end of places still has more than `most`; its last ones are left out, and counted.
    """
    machines: dict[str, list[Episode]] = defaultdict(list)
    for episode in found:
        machines[episode.machine].append(episode)
    kept: list[Episode] = []
    left_out = 0
    for mine in machines.values():
        fewer = mine if len(mine) <= most else _merged(mine)
        kept += fewer[:most]
        left_out += max(0, len(fewer) - most)
    return sorted(kept, key=Episode.order), left_out


def _merged(found: Sequence[Episode]) -> list[Episode]:
    groups: dict[tuple[str, str, str, Clock], list[Said]] = defaultdict(list)
    for episode in found:
        key = (episode.machine, episode.subject, episode.family, episode.clock)
        groups[key] += episode.said
    merged = [Episode.of(key, said) for key, said in groups.items()]
    return sorted(merged, key=Episode.order)


def told(said: Iterable[Said]) -> int:
    """Return how many times something happened: AER writes each error at two stages."""
    stages: dict[object, int] = defaultdict(int)
    for one in said:
        stages[one.event.detail.get("stage", "")] += one.count
    return max(stages.values(), default=0)


def lives(said: Iterable[Said]) -> set[object]:
    """Return the boots in which something was said: by the files' dates, else by number in a file.

    What stands on dates of a machine whose boots are unknown belongs to none.
    """
    said = list(said)
    known: set[object] = {one.life for one in said if one.life is not None}
    return known or {
        (one.clock, one.event.detail.get("boot", 0)) for one in said if one.event.clock == "boot"
    }


def places(found: Sequence[Episode]) -> set[tuple[str, str]]:
    """Return the (machine, subject) pairs of episodes."""
    return {(e.machine, e.subject) for e in found}
