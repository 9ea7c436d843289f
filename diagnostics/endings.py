"""Faults that can have ended a job, ready to be asked: which of them fits what somebody says.

Cases come in; for what a machine, or all machines of a job, said within some time, those go out
that lie in it, and the only one where no clock is common to both.
"""

import bisect
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.cases import Case
from rackproof.diagnostics.episodes import CASE, Clock, Episode
from rackproof.diagnostics.jobs import Jobs
from rackproof.diagnostics.nearby import SKEW

SOON = CASE + SKEW
# PyTorch's process groups waited 30 minutes by default, then 10: a rank whose GPU is gone may hang
# that long before its peers lose it.
LONG = 1800.0
MOST = 64  # faults of one window that are looked at
# Zones of nearly everybody differ from UTC by 1 to 14 hours, in steps of half an hour.
HALF_HOUR = 1800.0
NEAREST_ZONE, FARTHEST_ZONE = 3600.0, 14 * 3600.0
STEPS_APART = 1
Key = tuple[Hashable, ...]
_EPOCH: Clock = ("epoch",)


def episodes_of(case: Case) -> Sequence[Episode]:
    """Return the episodes that a case rests on: those of its root, where it is in them."""
    return case.root or case.tied


def codes(case: Case) -> frozenset[str]:
    """Return the codes of a case's root."""
    return frozenset(code for e in episodes_of(case) for code in e.codes)


def machines_of(case: Case) -> set[str]:
    """Return the machines that a case's root is on, or is felt on."""
    return {case.machine} | {e.machine for e in case.tied if case.outside}


@dataclass(frozen=True, slots=True)
class Window:
    """When something was said, from `low` to `high` on `clock`; clock None: nobody knows.

    `local`: by a clock whose zone is not known.
    """

    clock: Clock | None = None
    low: float = 0.0
    high: float = 0.0
    local: bool = False

    def wider(self, seconds: float) -> "Window":
        """Return it with so many seconds more before it."""
        return Window(self.clock, self.low - seconds, self.high, self.local)


def _number(episode: Episode, name: str) -> list[float]:
    found = (s.event.detail.get(name) for s in episode.said)
    return [float(value) for value in found if isinstance(value, int | float)]


def window(case: Case) -> Window:
    """Return when what a case tells of may have begun: less what was waited for before it."""
    (episode, *_) = episodes_of(case)
    waited = max(_number(episode, "waited"), default=0.0)
    if episode.first is not None and episode.last is not None:
        local = bool(_number(episode, "local"))
        return Window(episode.clock, episode.first - waited, episode.last, local)
    after, until = _number(episode, "after"), _number(episode, "until")
    if not after and not until:
        return Window()
    low = min(after) if after else min(until) - LONG
    high = max(until) if until else max(after) + LONG
    return Window(_EPOCH, low - waited, high, local=True)


def _span(case: Case) -> tuple[Clock, float, float] | None:
    told = [e for e in episodes_of(case) if e.first is not None and e.last is not None]
    if not told:
        return None
    clock = told[0].clock
    same = [e for e in told if e.clock == clock]
    return clock, min(e.first or 0.0 for e in same), max(e.last or 0.0 for e in same)


def _went_on(case: Case, said: Case) -> bool:
    """Whether one log has steps between the two: the job survived the first."""
    for one in episodes_of(case):
        for other in episodes_of(said):
            if one.said[0].file != other.said[0].file:
                continue
            steps, others = _number(one, "step"), _number(other, "step")
            if steps and others and abs(min(others) - max(steps)) > STEPS_APART:
                return True
    return False


class Endings:
    """The cases that `ends` says can have ended a job, by machine, by job, and all of them."""

    def __init__(self, found: Iterable[Case], jobs: Jobs, ends: Callable[[Case], bool]) -> None:
        self._timed: dict[tuple[Key, Clock], list[tuple[float, float, int, Case]]] = {}
        self._at: dict[Key, dict[Clock, dict[tuple[str, str], Case]]] = {}
        self._longest: dict[tuple[Key, Clock], float] = defaultdict(float)
        of: dict[str, list[int]] = defaultdict(list)
        for number, names in jobs.machines.items():
            for name in names:
                of[name].append(number)
        for order, case in enumerate(found):
            if not ends(case):
                continue
            keys: set[Key] = {("all",)}
            for machine in machines_of(case):
                keys |= {("machine", machine), *(("job", number) for number in of[machine])}
            for key in keys:
                self._add(key, case, order)
        for row in self._timed.values():
            row.sort(key=lambda one: one[:3])

    def _add(self, key: Key, case: Case, order: int) -> None:
        span = _span(case)
        clock = span[0] if span else ()
        places = self._at.setdefault(key, {}).setdefault(clock, {})
        if len(places) < 2:  # noqa: PLR2004 - more than one is too many to choose from
            places.setdefault((case.machine, case.subject), case)
        if span is not None:
            self._timed.setdefault((key, clock), []).append((span[1], span[2], order, case))
            self._longest[key, clock] = max(self._longest[key, clock], span[2] - span[1])

    def within(self, key: Key, said: Case, when: Window) -> list[Case]:
        """Return the cases under `key` that lie in a window, the earliest first."""
        if when.clock is None:
            return []
        row = self._timed.get((key, when.clock), [])
        low = when.low - SOON
        start = bisect.bisect_left(row, (low - self._longest[key, when.clock],))
        found: list[Case] = []
        for at in range(start, min(len(row), start + 16 * MOST)):
            first, last, _, case = row[at]
            if first > when.high + SOON or len(found) == MOST:
                break
            if last >= low and case is not said and not _went_on(case, said):
                found.append(case)
        return found

    def only(self, key: Key, said: Case, when: Window) -> Case | None:
        """Return the case under `key` whose clock is not that of `said`, if it is at one place."""
        places: dict[tuple[str, str], Case] = {}
        for clock, found in self._at.get(key, {}).items():
            if clock and clock == when.clock:
                continue
            places |= found
            if len(places) > 1:
                return None
        case = next(iter(places.values()), None)
        return None if case is None or case is said or _went_on(case, said) else case

    def in_a_zone(self, said: Case, when: Window) -> Case | None:
        """Return the only case of all if it lies whole half hours away.

        So it is where one of the two is in local time, and does not say of which zone.
        """
        at = self._at.get(("all",), {})
        if not when.local or len({place for found in at.values() for place in found}) != 1:
            return None
        for first, _, _, case in self._timed.get((("all",), when.clock or ()), []):
            gap = (when.low + when.high) / 2 - first
            spread = SOON + (when.high - when.low) / 2
            zone = round(gap / HALF_HOUR) * HALF_HOUR
            apart = NEAREST_ZONE <= abs(zone) <= FARTHEST_ZONE
            if apart and abs(gap - zone) <= spread and case is not said:
                return case
        return None
