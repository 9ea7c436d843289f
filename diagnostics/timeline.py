"""One clock for all files of a call, where their stamps allow it.

Saids come in on the clocks of their files; they go out on ``epoch`` where that is known:

- a date without a year gets the one that brings it nearest to what other files of its machine,
  else of the call, say (readings that tell when they were taken included);
- seconds since boot are added to the beginning of that boot, which a line with both clocks tells
  (a syslog line that kept its uptime, the journal, the kernel setting its clock), or which two
  messages or more that stand once in both files agree on;
- a whole number of quarter hours between two files of a machine, on which their common messages
  agree, is a time zone, and taken out.

What cannot be placed keeps its own clock: boot clocks of two files are the same only where a
message in common stands at the same uptime.
"""

import bisect
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from rackproof.diagnostics.episodes import Clock, Said
from rackproof.diagnostics.machines import Machines
from rackproof.harness.readers import Reading

AGREED = 2.0  # seconds within which two clocks' differences are one
WITNESSES = 2  # fewest messages in common that may set a clock
SAME_BOOT = 90.0  # no machine boots twice in it, and daemons write the first lines down that late
QUARTER = 900.0  # time zones differ by quarters of an hour
FARTHEST_ZONE = 14 * 3600.0
_YEAR = 366 * 86400.0  # of the calendar clock: a leap year's
_LEAP = 1992
Stream = tuple[str, str, str, int]  # machine, file, clock, boot
Message = tuple[str, str, str]


def epoch_of(calendar: float, year: int) -> float | None:
    """Return the epoch time of a date without year, `year` being that of its second 0.

    None for the 29th of February of a year that has none.
    """
    later, rest = divmod(calendar, _YEAR)
    in_leap = datetime(_LEAP, 1, 1, tzinfo=UTC).timestamp() + rest
    at = datetime.fromtimestamp(in_leap // 1, UTC)
    try:
        return at.replace(year=year + int(later)).timestamp() + in_leap % 1
    except ValueError:
        return None


def _stream(one: Said) -> Stream:
    boot = one.event.detail.get("boot", 0) if one.event.clock == "boot" else 0
    return one.machine, one.file, one.event.clock, boot if isinstance(boot, int) else 0


def _messages(said: Iterable[Said]) -> dict[Message, float]:
    """Return the times of those messages that stand once in `said`."""
    often: Counter[Message] = Counter()
    when: dict[Message, float] = {}
    for one in said:
        if one.at is not None:
            key = (one.event.code, one.subject, one.event.text)
            often[key] += 1
            when[key] = one.at
    return {key: at for key, at in when.items() if often[key] == 1}


def agreed(mine: Mapping[Message, float], theirs: Mapping[Message, float]) -> float | None:
    """Return what must be added to `mine` to meet `theirs`, where most messages in common agree."""
    gaps = sorted(theirs[key] - at for key, at in mine.items() if key in theirs)
    best: list[float] = []
    start = 0
    for end, gap in enumerate(gaps):
        while gap - gaps[start] > AGREED:
            start += 1
        if end + 1 - start > len(best):
            best = gaps[start : end + 1]
    if len(best) < WITNESSES or len(best) * 2 <= len(gaps):
        return None
    return statistics.median(best)


@dataclass(slots=True)
class _Boots:
    """When boots began, by machine, file and number; `at` is on `clock`."""

    of: dict[tuple[str, str, int], tuple[str, float]]
    beside: dict[str, list[tuple[str, float, bool]]]


def _boots(readings: Sequence[Reading], known: Machines) -> _Boots:
    found = _Boots({}, defaultdict(list))
    for index, reading in enumerate(readings):
        for boot in reading.boots:
            machine = known.place(index, f"host:{boot.host}")[0] if boot.host else known.of[index]
            if boot.sure:
                key = (machine, str(reading.path), boot.number)
                found.of[key] = (boot.clock, boot.at)
            found.beside[machine].append((boot.clock, boot.at, boot.sure))
    return found


class _Line:
    """The work on one call: streams are placed one after another, the surest first."""

    def __init__(self, said: Sequence[Said], readings: Sequence[Reading], known: Machines) -> None:
        streams: dict[Stream, list[int]] = defaultdict(list)
        self.said = list(said)
        for i, one in enumerate(said):
            if one.at is not None:
                streams[_stream(one)].append(i)
        self._streams = dict(sorted(streams.items()))
        self._by_machine: dict[str, list[Stream]] = defaultdict(list)
        for key in self._streams:
            self._by_machine[key[0]].append(key)
        self._boots = _boots(readings, known)
        self._now: dict[str, float] = {}
        for index, reading in enumerate(readings):
            if reading.taken is not None:
                self._seen(known.of[index], reading.taken)
        for (machine, *_), where in self._of("epoch"):
            self._seen(machine, max(self.said[i].at or 0.0 for i in where))
        self._common: dict[str, dict[Message, float]] = {}

    def _seen(self, machine: str, at: float) -> None:
        self._now[machine] = max(at, self._now.get(machine, at))

    def _of(self, clock: str) -> list[tuple[Stream, list[int]]]:
        return [item for item in self._streams.items() if item[0][2] == clock]

    def years(self) -> None:
        """Put dates without a year onto the epoch where any file tells of a time near them."""
        everywhere = max(self._now.values(), default=None)
        for (machine, *_), where in self._of("calendar"):
            now = self._now.get(machine, everywhere)
            if now is None:
                continue
            about = datetime.fromtimestamp(max(0.0, min(now, 4e9)), UTC).year
            last = max(self.said[i].at or 0.0 for i in where)
            dated = [(abs(at - now), year) for year in range(about - 2, about + 2)
                     if (at := epoch_of(last, year)) is not None]  # fmt: skip
            for i in where if dated else ():
                self._onto_epoch(i, min(dated)[1])

    def _onto_epoch(self, i: int, year: int) -> None:
        one = self.said[i]
        at = epoch_of(one.at or 0.0, year)
        if at is not None:
            self.said[i] = replace(one, shift=at - (one.at or 0.0), timeline=("epoch",))

    def zones(self) -> None:
        """Take out whole quarters of an hour by which a file differs from its machine's first."""
        for machine, keys in self._by_machine.items():
            streams = [k for c in ("epoch", "calendar") for k in keys if k[2] == c]
            known: dict[Message, float] = {}
            for key in streams:
                clock, where = key[2], self._streams[key]
                if clock == "calendar" and self.said[where[0]].timeline != ("epoch",):
                    continue
                mine = _messages(self.said[i] for i in where)
                gap = agreed(mine, known) or 0.0
                quarters = round(gap / QUARTER) * QUARTER
                if quarters and abs(gap - quarters) <= AGREED and abs(gap) <= FARTHEST_ZONE:
                    for i in where:
                        self._move(i, quarters, ("epoch",))
                    mine = {key: at + quarters for key, at in mine.items()}
                known = mine | known
            self._common[machine] = known

    def _move(self, i: int, seconds: float, clock: Clock) -> None:
        one = self.said[i]
        self.said[i] = replace(one, shift=one.shift + seconds, timeline=clock)

    def uptimes(self) -> None:
        """Put boot clocks onto dates; those of two files together where they agree."""
        left: dict[str, list[tuple[Stream, list[int], dict[Message, float]]]] = defaultdict(list)
        for key, where in self._of("boot"):
            machine, file, _, number = key
            mine = _messages(self.said[i] for i in where)
            told = self._boots.of.get((machine, file, number)) or self._began(machine, mine)
            if told is None:
                left[machine].append((key, where, mine))
                continue
            clock, at = self._dated(machine, *told)
            for i in where:
                self._move(i, at, (clock,))
        for streams in left.values():
            self._together(streams)

    def _began(self, machine: str, mine: Mapping[Message, float]) -> tuple[str, float] | None:
        """Return when a boot began by what other files of its machine tell."""
        gap = agreed(mine, self._dates(machine))
        if gap is not None:
            return ("epoch" if self._common.get(machine) else "calendar"), gap
        beside = self._boots.beside.get(machine, [])
        sure = [(clock, at) for clock, at, certain in beside if certain]
        options = sure or [(clock, at) for clock, at, _ in beside]
        alike = options and all(
            clock == options[0][0] and abs(at - options[0][1]) <= AGREED for clock, at in options
        )
        return options[0] if alike else None

    def _dates(self, machine: str) -> dict[Message, float]:
        """Return the messages of a machine that stand once, on its dates."""
        if known := self._common.get(machine):
            return known
        keys = [key for key in self._by_machine[machine] if key[2] == "calendar"]
        return _messages(self.said[i] for key in keys for i in self._streams[key])

    def _dated(self, machine: str, clock: str, at: float) -> tuple[str, float]:
        """Return a boot's beginning on the epoch, where that is how the call's dates stand."""
        now = self._now.get(machine, max(self._now.values(), default=None))
        if clock == "epoch" or now is None:
            return clock, at
        about = datetime.fromtimestamp(max(0.0, min(now, 4e9)), UTC).year
        dated = [(abs(e - now), e) for year in range(about - 2, about + 2)
                 if (e := epoch_of(at, year)) is not None]  # fmt: skip
        return ("epoch", min(dated)[1]) if dated else (clock, at)

    def lives(self) -> None:
        """Count for each event the boots of its machine that were told of before it."""
        begins: dict[tuple[str, str], list[float]] = {}
        for machine, told in self._boots.beside.items():
            dated = sorted(self._dated(machine, clock, at) for clock, at, _ in told)
            for clock, at in dated:
                row = begins.setdefault((machine, clock), [])
                if not row or at - row[-1] > SAME_BOOT:
                    row.append(at)
        for i, one in enumerate(self.said):
            row = begins.get((one.machine, str(one.clock[0])), [])
            if row and one.at is not None and one.clock[0] in ("epoch", "calendar"):
                self.said[i] = replace(one, life=bisect.bisect_right(row, one.at + AGREED))

    def _together(self, streams: Sequence[tuple[Stream, list[int], dict[Message, float]]]) -> None:
        """Give unplaced boot clocks of one machine one name where they are one boot."""
        known: list[tuple[Clock, dict[Message, float]]] = []
        for (machine, file, _, number), where, mine in streams:
            clock: Clock = ("boot", machine, number)
            if known:
                same = (c for c, theirs in known if _same_boot(mine, theirs))
                clock = next(same, ("boot", machine, file, number))
            known.append((clock, mine))
            for i in where:
                self._move(i, 0.0, clock)


def _same_boot(mine: Mapping[Message, float], theirs: Mapping[Message, float]) -> bool:
    few, many = sorted((mine, theirs), key=len)
    return any(key in many and abs(many[key] - at) <= 1.0 for key, at in few.items())


def on_one_clock(said: Sequence[Said], readings: Sequence[Reading], known: Machines) -> list[Said]:
    """Return `said` with the shifts that bring them onto one clock where that is known."""
    line = _Line(said, readings, known)
    line.years()
    line.zones()
    line.uptimes()
    line.lives()
    return line.said
