"""Whose a fault is when GPUs were exchanged: history follows the serial number, not the slot.

Files tell which serial number (or UUID) stands at an address. Where it changed, each event is given
the GPU that stood there then; a fault that two of them had at one place is the place's.
"""

import bisect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rackproof.diagnostics.cases import Case
from rackproof.diagnostics.episodes import Said
from rackproof.diagnostics.machines import Machines, Place
from rackproof.harness.readers import Reading

CARRIES = "nvrm.carries"  # a kernel log's word for the GPU that stands at an address from here on
_OWN = frozenset(("app", "driver", "host", "fabric", "nvswitch", "nic", "storage", "power"))
_LINKED = frozenset(("nvlink", "pcie"))


@dataclass(slots=True)
class _Sightings:
    """What was seen at one place: by file (and line), and by time. A name is a serial or a UUID."""

    by_file: dict[str, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    by_time: list[tuple[float, str]] = field(default_factory=list)

    def add(self, file: str, line: int, name: str, taken: float | None) -> None:
        """Note that `name` was seen from `line` of `file` on, or at a time."""
        self.by_file[file].append((line, name))
        if taken is not None:
            self.by_time.append((taken, name))

    def sort(self) -> None:
        """Put everything in order."""
        self.by_time.sort()
        for rows in self.by_file.values():
            rows.sort()

    def changed(self) -> bool:
        """Whether more than one GPU was seen there."""
        return len({name for rows in self.by_file.values() for _, name in rows}) > 1

    def carrier(self, one: Said) -> str:
        """Return the GPU that stood there when `one` was said, or "" where that is not known."""
        if rows := self.by_file.get(one.file):
            at = bisect.bisect_right(rows, (one.line, "\uffff"))
            return rows[max(0, at - 1)][1]
        when = one.at if one.clock == ("epoch",) else None
        if when is None or not self.by_time:
            return ""
        at = bisect.bisect_right(self.by_time, (when, "\uffff"))
        before = self.by_time[at - 1][1] if at else ""
        after = self.by_time[at][1] if at < len(self.by_time) else ""
        if not before or not after:
            return before or after
        return before if before == after else ""


def _sightings(readings: Sequence[Reading], known: Machines) -> dict[Place, _Sightings]:
    """Return what was seen where more than one GPU was: by serial numbers, else by UUIDs.

    The two are never mixed: one GPU has both, and not every file tells both.
    """
    found: dict[Place, _Sightings] = {}
    for kind in ("uuid", "serial"):
        seen: dict[Place, _Sightings] = defaultdict(_Sightings)
        for index, reading in enumerate(readings):
            file = str(reading.path)
            told = reading.serials if kind == "serial" else reading.uuids
            moved = [e for e in reading.events if e.code == CARRIES and kind in e.detail]
            inside = {event.subject for event in moved}
            for subject, name in sorted(told.items()):
                if subject not in inside:
                    seen[known.place(index, subject)].add(file, 0, name, reading.taken)
            for event in moved:
                line, carrier = event.detail.get("line"), event.detail[kind]
                if isinstance(line, int) and isinstance(carrier, str):
                    seen[known.place(index, event.subject)].add(file, line, carrier, None)
        found |= {place: one for place, one in seen.items() if one.changed()}
    for one in found.values():
        one.sort()
    return found


def with_carriers(said: Sequence[Said], readings: Sequence[Reading], known: Machines) -> list[Said]:
    """Return `said` with the GPU that each was about, at places where more than one stood."""
    changed = _sightings(readings, known)
    if not changed:
        return list(said)
    return [
        replace(one, carrier=seen.carrier(one)) if (seen := changed.get(_place(one))) else one
        for one in said
    ]


def _place(one: Said) -> Place:
    return one.machine, one.subject.partition("/")[0]


def carriers(case: Case) -> list[str]:
    """Return the GPUs that a case's root was seen with, in order of name."""
    return sorted({s.carrier for e in case.root for s in e.said if s.carrier})


def stays(case: Case) -> None:
    """Turn a case that two GPUs had at one place into the place's: the slot's, or the link's."""
    if case.outside or case.rule.component in _OWN or len(carriers(case)) < 2:  # noqa: PLR2004
        return
    case.slot = True
    component = case.rule.component if case.rule.component in _LINKED else "host"
    action = "check-cabling" if component in _LINKED else "field-diag"
    kind = "hardware" if case.rule.kind == "terminal" else case.rule.kind
    case.rule = replace(case.rule, component=component, action=action, kind=kind)
