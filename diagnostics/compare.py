"""compare(old, new): what got worse between two runs of one rack, by part and metric. Pure.

In: two records. Out: a Comparison: what is worse, better, or changed alike everywhere; which parts
are in one run alone, and what was read of a part in one run alone. Parts are matched by serial
number (parts.py), changes are held against the noise of both runs (change.py). What the new run
did not burn, did not read, or read as no number is a reason why nothing can be said of it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackproof.diagnostics.change import (
    change_of,
    compared,
    finite,
    noise,
    poisson,
    value_of,
    width_of,
)
from rackproof.diagnostics.evidence import Record, gpu_of
from rackproof.diagnostics.limits import from_record
from rackproof.diagnostics.parts import Part, Parts, parts_of
from rackproof.diagnostics.peers import Scale, gather
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.metrics import Metric, metrics
from rackproof.harness.model import Value, sort_of

Key = tuple[str, Part, str]  # burn, part, metric
PRESENT = "gpu.present"  # what is known of a GPU that is not there
NAMED = 3  # GPUs or readings that a reason names


@dataclass(frozen=True, slots=True)
class Change:
    """One metric of one part in both runs. `change` and `limit` are relative where `ratio` says.

    `limit` is how large a change may be before it counts; None where the value is no number.
    """

    subject: str
    serial: str | None
    check: str
    metric: str
    old: Value
    new: Value
    change: float | None
    limit: float | None

    def as_json(self) -> dict[str, Any]:
        """Return the contract's JSON object, with the burn and the units."""
        metric = metrics()[self.metric]
        width = width_of(metric)
        unit = "ratio" if width is not None and width.relative else metric.unit
        return {
            "subject": self.subject,
            "serial": self.serial,
            "check": self.check,
            "metric": self.metric,
            "unit": metric.unit,
            "old": _plain(self.old),
            "new": _plain(self.new),
            "change": _plain(self.change),
            "limit": self.limit,
            "change_unit": "decades" if self.metric.endswith(".ber") else unit,
        }


def _plain(value: Value | None) -> Value | None:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two runs differ in. `reasons` say why more could not be compared."""

    verdict: Verdict
    worse: Sequence[Change] = ()
    better: Sequence[Change] = ()
    only_old: Sequence[Mapping[str, Any]] = ()
    only_new: Sequence[Mapping[str, Any]] = ()
    changed: Sequence[Mapping[str, Any]] = ()
    reasons: Sequence[str] = ()
    count: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return the contract's JSON object."""
        return {
            "schema": "rackproof.compare/1",
            "verdict": str(self.verdict),
            "worse": [change.as_json() for change in self.worse],
            "better": [change.as_json() for change in self.better],
            "only_old": list(self.only_old),
            "only_new": list(self.only_new),
            "changed": list(self.changed),
            "compared": self.count,
            "reasons": list(self.reasons),
        }


@dataclass(frozen=True, slots=True)
class _Side:
    """One run: its parts, its values by (burn, part, metric), and what they are held against."""

    record: Record
    parts: Parts
    scale: Scale
    values: Mapping[Key, Value]
    places: Mapping[Part, str]
    odd: frozenset[Key]  # what was read as NaN or as an infinity, which is no reading

    @classmethod
    def of(cls, record: Record, parts: Parts) -> "_Side":
        """Gather the values of a record that are compared."""
        table = metrics()
        scale = Scale.of(record.head, from_record(record.head.limits), {})
        values: dict[Key, Value] = {}
        odd: set[Key] = set()
        places: dict[Part, str] = {parts.of(gpu): gpu for gpu in record.head.gpus}
        for (burn, subject, name), runs in gather(record).items():
            if runs.values and name in table and compared(table[name]):
                read = [value for attempt in sorted(runs.values) for value in runs.values[attempt]]
                part = parts.of(subject)
                places[part] = subject
                if not all(map(finite, read)):
                    odd.add((burn, part, name))
                    continue
                layers = scale.layers((burn, subject, name))
                broken = [v for v in read if not all(limit.allows(v) for limit in layers)]
                state = table[name].better == "equal"
                told = broken if state and broken else read  # a state that was wrong once is told
                values[burn, part, name] = value_of(table[name], told)
        return cls(record, parts, scale, values, places, frozenset(odd))

    def has(self, key: Key) -> bool:
        """Say whether something was read, if it is no number."""
        return key in self.values or key in self.odd

    def untold(self) -> list[str]:
        """Name the GPUs that were read and that neither serial number nor UUID tells."""
        read = {gpu_of(self.places[part]) for _, part, name in self.values if name != PRESENT}
        return sorted(self.parts.untold & read)

    def within(self, key: Key) -> bool | None:
        """Say whether a value keeps the limits that it has by itself; None where it has none."""
        burn, part, name = key
        layers = self.scale.layers((burn, self.places[part], name))
        return all(limit.allows(self.values[key]) for limit in layers) if layers else None

    def like(self, part: Part) -> str:
        """Name the parts that a part is like: GPUs and links of one SKU, or others of its sort."""
        place = self.places[part]
        return f"{sort_of(place)} {self.record.head.gpus.get(gpu_of(place), '')}"


@dataclass(slots=True)
class _Found:
    """What was found so far."""

    worse: list[Change] = field(default_factory=list)
    better: list[Change] = field(default_factory=list)
    changed: Counter[tuple[str, Value, Value]] = field(default_factory=Counter)

    def add(self, direction: int, change: Change) -> None:
        """Add a change for the worse (-1) or the better (1)."""
        if direction:
            (self.worse if direction < 0 else self.better).append(change)


class _Pair:
    """Both runs, and the search for what they differ in."""

    def __init__(self, old: Record, new: Record) -> None:
        first, second = parts_of(old, new)
        self.old, self.new = _Side.of(old, first), _Side.of(new, second)
        self.keys = [key for key in self.new.values if key in self.old.values]
        self.found = _Found()

    def search(self) -> _Found:
        """Compare every value that both runs have, beside those of the parts like it."""
        groups: dict[tuple[str, str, str], list[Key]] = defaultdict(list)
        for key in self.keys:
            groups[key[0], key[2], self.new.like(key[1])].append(key)
        for (_, name, _), keys in groups.items():
            metric = metrics()[name]
            if metric.unit == "text" or metric.better == "equal":
                self._states(metric, keys)
            elif width_of(metric):
                self._quantities(metric, keys)
            else:
                self._counts(metric, keys)
        return self.found

    def _change(self, key: Key, change: float | None, limit: float | None) -> Change:
        burn, part, name = key
        place = self.new.places[part]
        serial = self.new.parts.serial(place)
        return Change(
            place, serial, burn, name, self.old.values[key], self.new.values[key], change, limit
        )

    def _numbers(self, key: Key) -> tuple[float, float]:
        return float(self.old.values[key]), float(self.new.values[key])

    def _quantities(self, metric: Metric, keys: Sequence[Key]) -> None:
        changes = {key: change_of(metric, *self._numbers(key)) for key in keys}
        width = noise(metric, list(changes.values()))
        good = 1 if metric.better == "high" else -1
        for key, change in changes.items():
            direction = good * int(math.copysign(1, change)) if abs(change) > width else 0
            self.found.add(direction, self._change(key, change, width))

    def _counts(self, metric: Metric, keys: Sequence[Key]) -> None:
        for key in keys:
            old, new = self._numbers(key)
            low = metric.better == "low"
            width = poisson(min(old, new)) if low else 0.0
            if abs(new - old) <= width:
                continue
            if low and self.old.within(key) and self.new.within(key):
                continue  # both are as good as they have to be
            direction = -1 if (new > old) == low else 1
            self.found.add(direction, self._change(key, new - old, width))

    def _states(self, metric: Metric, keys: Sequence[Key]) -> None:
        common = [
            Counter(side.values[key] for key in keys).most_common(1)[0][0]
            for side in (self.old, self.new)
        ]
        for key in keys:
            values = self.old.values[key], self.new.values[key]
            right = [side.within(key) for side in (self.old, self.new)]
            was, now = (
                value == usual if known is None else known
                for value, usual, known in zip(values, common, right, strict=True)
            )
            if was == now:
                if values[0] != values[1] and not metric.optional:
                    self.found.changed[metric.name, *values] += 1
                continue
            if values[0] == values[1] and None in right:
                continue  # the others changed
            numbers = None if metric.unit == "text" else float(values[1]) - float(values[0])
            self.found.add(-1 if was else 1, self._change(key, numbers, None))


def _alone(one: _Side, other: _Side) -> Iterator[dict[str, Any]]:
    """Yield the GPUs that only `one` has, then what was read of the others there alone."""
    here = {one.parts.of(gpu): gpu for gpu in one.record.head.gpus}
    there = {other.parts.of(gpu) for gpu in other.record.head.gpus}
    for part, gpu in here.items():
        if part not in there:
            yield {"subject": gpu, "serial": one.parts.serial(gpu)}
    burns = {planned.burn for planned in other.record.head.plan}
    gaps: dict[tuple[str, str], list[str]] = defaultdict(list)
    for key in one.values:
        burn, part, name = key
        place = one.places[part]
        owner = one.parts.of(gpu_of(place))
        if not other.has(key) and burn in burns and (owner not in here or owner in there):
            gaps[place, burn].append(name)
    for (place, burn), names in gaps.items():
        serial = one.parts.serial(place)
        yield {"subject": place, "serial": serial, "check": burn, "metrics": names}


def _apart(old: Record, new: Record) -> str:
    """Return why two records cannot be compared at all; an empty text where they can."""
    if old.head.source != new.head.source:
        return f"one run is of {old.head.source} hardware, the other of {new.head.source}"
    if old.head.rack != new.head.rack:
        return f"two racks: {old.head.rack} and {new.head.rack}"
    return ""


def _unburnt(old: Record, new: Record) -> Iterator[str]:
    """Say which burns of the old plan the new run did not plan, and of which it settled nothing."""
    burns = [planned.burn for planned in old.head.plan if old.head.items(planned)]
    planned = {planned.burn for planned in new.head.plan}
    settled = {burn for burn, _, _ in new.settled}
    lacking = [burn for burn in burns if burn not in planned]
    undone = [burn for burn in burns if burn in planned - settled]
    for what, names in (("did not plan", lacking), ("settled nothing of", undone)):
        if names:
            yield f"the new run {what} {', '.join(names)} (compare runs of one plan)"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _odd(pair: _Pair) -> Iterator[str]:
    """Say what was read as no number in either run, of what the old run read."""
    for word, side in (("old", pair.old), ("new", pair.new)):
        what = sorted(
            f"{side.places[part]} {name} in {burn}"
            for burn, part, name in side.odd
            if pair.old.has((burn, part, name))
        )
        if what:
            yield f"not a finite number in the {word} run: {_some(what)} (burn it again)"


def _reasons(pair: _Pair, only_old: Sequence[Mapping[str, Any]]) -> list[str]:
    found = list(_unburnt(pair.old.record, pair.new.record))
    for word, side in (("old", pair.old), ("new", pair.new)):
        if not side.record.ended or side.record.problems:
            found.append(f"the {word} run is not whole")
        if untold := side.untold():
            why = f"the {word} run lacks the serial number that tells a part: {_some(untold)}"
            found.append(f"{why} (burn inventory too)")
    found += _odd(pair)
    unread = sum(len(entry["metrics"]) for entry in only_old if "metrics" in entry)
    if unread:
        found.append(f"{unread} readings of the old run are missing in the new one")
    return found


def compare(old: Record, new: Record) -> Comparison:
    """Return what got worse from `old` to `new`.

    FAIL when something is worse; UNKNOWN when the runs are of different racks, have no GPU or no
    reading in common, or when nothing is worse and one is cut short, the new one lacks burns or
    readings of the old one, a reading is not finite, or a GPU cannot be told by serial number or
    UUID. Raises SpecError when the limits of a record make no sense.
    """
    why = _apart(old, new)
    if why:
        return Comparison(Verdict.UNKNOWN, reasons=[why])
    pair = _Pair(old, new)
    only_old, only_new = list(_alone(pair.old, pair.new)), list(_alone(pair.new, pair.old))
    reasons = _reasons(pair, only_old)
    shared = set(pair.old.parts.by_gpu.values()) & set(pair.new.parts.by_gpu.values())
    if not shared or not pair.keys:
        why = "no reading in common" if shared else "no GPU in common"
        reasons = [why, *reasons]
        return Comparison(Verdict.UNKNOWN, (), (), only_old, only_new, reasons=reasons)
    found = pair.search()
    verdict = Verdict.UNKNOWN if reasons else Verdict.PASS
    return Comparison(
        Verdict.FAIL if found.worse else verdict,
        sorted(found.worse, key=_order),
        sorted(found.better, key=_order),
        only_old,
        only_new,
        [
            {"metric": name, "old": _plain(was), "new": _plain(now), "parts": count}
            for (name, was, now), count in sorted(found.changed.items(), key=str)
        ],
        reasons,
        len(pair.keys),
    )


def _order(change: Change) -> tuple[str, str, str]:
    return change.subject, change.check, change.metric
