"""Whose a fault is when GPUs were exchanged: history follows the serial number, not the slot.

Files tell which serial number (or UUID) stands at an address. Where it changed, each event is given
the GPU that stood there then; a fault that two of them had at one place is the place's.
"""

import bisect
from collections import defaultdict
from collections.abc import Mapping, Sequence
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
    """What was seen at one place: by file (and line), and by time."""

    by_file: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    by_time: list[tuple[float, str]] = field(default_factory=list)

    def names(self) -> set[str]:
        """Return all GPUs that were seen there."""
        told = {name for rows in self.by_file.values() for _, name in rows}
        return told | {name for _, name in self.by_time}

    def carrier(self, one: Said) -> str:
        """Return the GPU that stood there when `one` was said, or "" where that is not known."""
        rows = self.by_file.get(one.file)
        if rows:
            at = bisect.bisect_right(rows, (one.line, "\uffff"))
            return rows[max(0, at - 1)][1]
        when = one.at if one.clock == ("epoch",) else None
        if when is None or not self.by_time:
            return ""
        at = bisect.bisect_right(self.by_time, (when, "\uffff"))
        before = self.by_time[at - 1][1] if at else ""
        after = self.by_time[at][1] if at < len(self.by_time) else ""
        return before if before == after or not after else "" if before else after


def _sightings(readings: Sequence[Reading], known: Machines) -> Mapping[Place, _Sightings]:
    found: dict[Place, _Sightings] = defaultdict(_Sightings)
    for index, reading in enumerate(readings):
        file = str(reading.path)
        told = {known.place(index, s): name for s, name in sorted(reading.uuids.items())}
        told |= {known.place(index, s): name for s, name in sorted(reading.serials.items())}
        for place, name in told.items():
            found[place].by_file[file] = [(0, name)]
            if reading.taken is not None:
                found[place].by_time.append((reading.taken, name))
        rows: dict[Place, list[tuple[int, str]]] = defaultdict(list)
        for event in reading.events:
            name, line = event.detail.get("name"), event.detail.get("line", 0)
            if event.code == CARRIES and isinstance(name, str) and isinstance(line, int):
                rows[known.place(index, event.subject)].append((line, name))
        for place, told_there in rows.items():
            found[place].by_file[file] = sorted(told_there)
    for seen in found.values():
        seen.by_time.sort()
    return found


def with_carriers(said: Sequence[Said], readings: Sequence[Reading], known: Machines) -> list[Said]:
    """Return `said` with the GPU that each was about, at places where more than one stood."""
    changed = {p: s for p, s in _sightings(readings, known).items() if len(s.names()) > 1}
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
