"""What two files of one machine tell of the same thing is counted once.

Rotated logs overlap, a bug report holds dmesg beside the syslog, and a copy lies next to its
original. Two events of different files are one where machine, place, code and what was told in
detail are equal and their times, on one clock, meet within a second and a half; without times,
where their words are equal too. A whole file that was read before, to the fraction of a second, is
a copy of it, whatever folder it lies in.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from rackproof.diagnostics.episodes import Said
from rackproof.harness.readers import Reading

MEET = 1.5  # seconds: the syslog's whole ones, and what an uptime is off by
_OF_PLACE = ("cause", "action", "unit", "severity", "register", "status", "link", "place", "mig",
             "stage", "device")  # fmt: skip
_Key = tuple[object, ...]


def _key(one: Said) -> _Key:
    detail = one.event.detail
    timeless = one.at is None
    clock = ("timeless",) if timeless else one.clock
    boot = detail.get("boot") if one.clock[0] == "boot" else None
    told = tuple(detail.get(name) for name in _OF_PLACE)
    # A reading is a state and no incident: each snapshot is kept.
    words = (one.event.text, one.line or one.file) if timeless else ()
    return (one.machine, one.subject, one.event.code, clock, boot, told, words)


def _start(one: Said) -> float:
    return one.at or 0.0


def _end(one: Said) -> float:
    return one.last if one.last is not None else _start(one)


def _as_one(cluster: Sequence[Said]) -> Said:
    """Return the event of a cluster: as its first file tells it, as long and often as any does."""
    by_file: dict[str, int] = defaultdict(int)
    for one in cluster:
        by_file[one.file] += one.count
    first = min(cluster, key=Said.order)
    if len(by_file) == 1 or len(cluster) == 1:
        return first
    detail = dict(first.event.detail) | {"count": max(by_file.values())}
    if first.last is not None:
        detail["last"] = max(map(_end, cluster)) - first.shift
    return replace(first, event=replace(first.event, detail=detail))


def _clusters(group: list[Said]) -> list[list[Said]]:
    """Part a group, in order of time, into what meets; one file never meets itself."""
    group.sort(key=Said.order)
    found: list[list[Said]] = []
    end: dict[str, float] = {}
    for one in group:
        others = [at for file, at in end.items() if file != one.file]
        if others and _start(one) <= max(others) + MEET:
            found[-1].append(one)
        else:
            found.append([one])
            end = {}
        end[one.file] = max(_end(one), end.get(one.file, _end(one)))
    return found


def _content(reading: Reading) -> tuple[object, ...] | None:
    """Return what two copies of a file have in common; None where two machines may have it, too."""
    moments = [event.at for event in reading.events if event.at is not None]
    if not moments or all(at == int(at) for at in moments):
        return None
    told = ((e.subject, e.code, e.text, e.at, e.clock) for e in reading.events)
    return (reading.kind, reading.host, reading.records, reading.cut, *told)


def distinct(readings: Sequence[Reading]) -> list[Reading]:
    """Return `readings` in their order, each copy of a file left out, but for its first path."""
    first: dict[tuple[object, ...], int] = {}
    copies: set[int] = set()
    for index in sorted(range(len(readings)), key=lambda i: str(readings[i].path)):
        content = _content(readings[index])
        if content is None:
            continue
        one = readings[first.setdefault(content, index)]
        if one is not readings[index] and (one.events, one.measurements) == (
            readings[index].events, readings[index].measurements
        ):  # fmt: skip
            copies.add(index)
    return [reading for index, reading in enumerate(readings) if index not in copies]


def once(said: Sequence[Said]) -> list[Said]:
    """Return `said` with what several files of a machine tell alike counted once."""
    groups: dict[_Key, list[Said]] = defaultdict(list)
    for one in said:
        groups[_key(one)].append(one)
    found: list[Said] = []
    for group in groups.values():
        if len({one.file for one in group}) < 2:  # noqa: PLR2004
            found += group
        else:
            found += [_as_one(cluster) for cluster in _clusters(group)]
    return found
