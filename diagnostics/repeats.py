"""Faults that come again: the application's own, or the chip's; once, now and then, or for good.

Xid 13 and 31 are the application's, unless they come again at one place: 13 at the same GPC and
TPC, 31 and copy engine errors on one GPU, from different processes, within 24 hours, and no other
GPU shares them within a minute.
"""

import bisect
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from rackproof.diagnostics.cases import Case
from rackproof.diagnostics.episodes import Clock, Episode, lives

DAY, HOUR, MINUTE = 86400.0, 3600.0, 60.0
OFTEN = 3
MOST_LOOKED_AT = 50  # incidents of one GPU, before and after, that are held against each other
Place = tuple[str, str]
_LOCAL = frozenset(("sm", "mmu", "copy"))


def _places(episode: Episode) -> set[object]:
    """Return the places inside the GPU that an episode names; the GPU itself for 31 and copies."""
    if episode.family == "sm":
        return {s.event.detail["place"] for s in episode.said if "place" in s.event.detail}
    return {episode.subject}


def _processes(episode: Episode) -> set[object]:
    return {s.event.detail["pid"] for s in episode.said if "pid" in s.event.detail}


def _again(one: Episode, other: Episode) -> bool:
    """Whether `other` is a second incident of `one`, at its place, of another process."""
    if one.clock != other.clock or one.family != other.family:
        return False
    if one.first is None or other.first is None or not 0 < other.first - one.first <= DAY:
        return False
    pids, others = _processes(one), _processes(other)
    same_place = len(_places(one) | _places(other)) == 1  # spread over units is the application's
    return same_place and not (pids & others) and bool(pids and others)


class _Crowd:
    """When application faults struck, by clock: who else was struck within a minute."""

    def __init__(self, episodes: Sequence[Episode]) -> None:
        self._when: dict[Clock, list[tuple[float, float, Place]]] = defaultdict(list)
        self._timeless: dict[Clock, set[Place]] = defaultdict(set)
        for e in episodes:
            if e.first is None or e.last is None:
                self._timeless[e.clock].add((e.machine, e.subject))
            else:
                self._when[e.clock].append((e.first, e.last, (e.machine, e.subject)))
        for row in self._when.values():
            row.sort()
        longest = {clock: max(b - a for a, b, _ in row) for clock, row in self._when.items()}
        self._longest = longest

    def others(self, e: Episode) -> bool:
        """Whether another GPU was struck within a minute; without times, in the same file."""
        place = (e.machine, e.subject)
        if self._timeless.get(e.clock, set()) - {place}:
            return True
        row = self._when.get(e.clock, [])
        if e.first is None or e.last is None:
            return any(other != place for _, _, other in row)
        start = bisect.bisect_left(row, (e.first - MINUTE - self._longest.get(e.clock, 0.0),))
        for first, last, other in itertools.islice(row, start, None):
            if first > e.last + MINUTE:
                return False
            if other != place and last >= e.first - MINUTE:
                return True
        return False


def _comes_again(case: Case, others: Sequence[Case]) -> bool:
    """Whether the nearest incidents before and after are of the same fault, of other processes."""
    return any(
        o is not case and (_again(case.root[0], o.root[0]) or _again(o.root[0], case.root[0]))
        for o in others
    )


def own_fault(found: Sequence[Case]) -> list[Case]:
    """Return the cases, with those application faults turned that come again at one place."""
    suspects = [
        c for c in found
        if c.rule.component == "app" and c.root and c.root[0].family in _LOCAL and not c.outside
    ]  # fmt: skip
    crowd = _Crowd([e for c in found if c.rule.component == "app" for e in (*c.root, *c.tied)])
    at: dict[tuple[Place, str], list[Case]] = defaultdict(list)
    for case in suspects:
        at[(case.machine, case.subject), case.root[0].family].append(case)
    for cases in at.values():
        cases.sort(key=lambda c: c.root[0].order())
        for i, case in enumerate(cases):
            near_by = cases[max(0, i - MOST_LOOKED_AT) : i + MOST_LOOKED_AT + 1]
            if not _comes_again(case, near_by) or crowd.others(case.root[0]):
                continue
            core = case.root[0].family == "sm"
            case.rule = replace(
                case.rule,
                component="sm" if core else "unknown",
                action="field-diag" if core else "retest",
                kind="watch",
            )
    return list(found)


def _boots(case: Case) -> set[object]:
    return lives(s for e in case.root for s in e.said)


def persistence(case: Case) -> str:
    """Name how lasting a case is, by what the files show of it."""
    kinds = {s.rule.kind for e in (*case.root, *case.tied) for s in e.said}
    if case.rule.kind == "terminal" or ("terminal" in kinds and not case.outside):
        return "persistent"
    if case.rule.component == "app":
        return "transient"
    if len(_boots(case)) > 1:
        return "persistent"
    times = sorted(e.first for e in case.root if e.first is not None)
    apart = 1 + sum(b - a > HOUR for a, b in pairwise(times))
    return "intermittent" if apart >= OFTEN else "undetermined"
