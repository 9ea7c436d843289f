"""Limits in layers: the user's file, what the SKU achieves, the rack's own median, the spec.

A limit carries its unit and its source. Comes in: plain tables (parsed TOML, or the `limits` of a
record's first line). Goes out: for one metric and subject, the bounds that apply, and who says so.
The user's bound replaces those of the SKU and of the spec; the median stays, since an outlier is
an outlier under any contract.
"""

import math
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import date
from fnmatch import fnmatchcase
from importlib import resources
from typing import Any

from rackproof.harness.errors import SpecError, nearest
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Value
from rackproof.harness.units import convert

LAYERS = ("user", "achieved", "platform", "spec")
SHARE_OF_ACHIEVED = 0.9  # a healthy part reaches at least this share of what its SKU achieves


@dataclass(frozen=True, slots=True)
class Limit:
    """Bounds of one metric, in the metric's own unit. `layer` says who set it (LAYERS).

    `subject` is a glob; `sku` narrows to one SKU; exactly one of low, high, equal or a pair of
    low and high is set.
    """

    metric: str
    source: str
    layer: str
    low: float | None = None
    high: float | None = None
    equal: Value | None = None
    subject: str = "*"
    sku: str | None = None

    def allows(self, value: Value) -> bool:
        """Say whether `value` (in the metric's unit) is within. NaN is not."""
        if self.equal is not None:
            return value == self.equal
        if isinstance(value, str) or math.isnan(value):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def as_json(self) -> dict[str, Any]:
        """Return the contract's JSON: the bounds that are set, the unit and the source."""
        bounds = {"low": self.low, "high": self.high, "equal": self.equal}
        kept = {key: value for key, value in bounds.items() if value is not None}
        return {**kept, "unit": metrics()[self.metric].unit, "source": self.source}


@dataclass(frozen=True, slots=True)
class Waiver:
    """A FAIL that its owner accepts until a date: it stays in the record and does not count."""

    check: str
    until: date
    owner: str
    reason: str
    subject: str | None = None
    serial: str | None = None

    def covers(self, check: str, subject: str, serial: str | None, today: date) -> bool:
        """Say whether it holds today for this check (a glob) on this subject or serial."""
        if today > self.until or not fnmatchcase(check, self.check):
            return False
        if self.serial is not None:
            return serial == self.serial
        return self.subject is not None and (
            fnmatchcase(subject, self.subject) or subject.startswith(f"{self.subject}/link")
        )


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits and waivers that are in force for a run."""

    limits: Sequence[Limit] = ()
    waivers: Sequence[Waiver] = ()

    def of(self, metric: str, subject: str, sku: str | None) -> list[Limit]:
        """Return the bounds that apply, strongest layer first.

        The user's replace the others; a bound that names the SKU or the subject is in its layer
        stronger than one that does not.
        """
        found = [
            limit
            for limit in self.limits
            if limit.metric == metric
            and (limit.sku is None or limit.sku == sku)
            and (limit.subject == "*" or fnmatchcase(subject, limit.subject))
        ]
        if any(limit.layer == "user" for limit in found):
            found = [limit for limit in found if limit.layer == "user"]
        elif any(limit.layer == "platform" for limit in found):
            found = [limit for limit in found if limit.layer != "spec"]
        return sorted(found, key=lambda limit: LAYERS.index(limit.layer))

    def as_json(self) -> dict[str, Any]:
        """Return plain tables for a record's first line."""
        return {
            "limit": [
                {k: v for k, v in asdict(limit).items() if v is not None and v != "*"}
                for limit in self.limits
            ],
            "waiver": [
                {k: str(v) for k, v in asdict(w).items() if v is not None} for w in self.waivers
            ],
        }


def from_record(table: Mapping[str, Any]) -> Limits:
    """Return the Limits that a record's first line holds.

    Raises SpecError when they make no sense; the file is untrusted.
    """
    try:
        limits = tuple(Limit(**entry) for entry in table.get("limit", ()))
        waivers = tuple(
            Waiver(**{**entry, "until": date.fromisoformat(entry["until"])})
            for entry in table.get("waiver", ())
        )
    except (TypeError, KeyError, ValueError) as error:
        msg = f"the record's limits cannot be read: {error}"
        raise SpecError(msg) from error
    for limit in limits:
        if limit.metric not in metrics() or limit.layer not in LAYERS:
            msg = f"the record's limits name an unknown metric or layer: {limit.metric}"
            raise SpecError(msg)
    return Limits(limits, waivers)


# --- the user's file ---------------------------------------------------------------------------
_KEYS = {
    "limit": {"metric", "low", "high", "unit", "source", "subject", "sku"},
    "golden": {"item", "value", "source"},
    "waiver": {"subject", "serial", "check", "until", "owner", "reason"},
}
_GOLDEN = {
    "driver": "driver.version",
    "vbios": "vbios.version",
    "sku": "gpu.name",
    "name": "gpu.name",
    "memory": "memory.total",
}


def _bad(where: str, what: str) -> SpecError:
    return SpecError(f"{where}: {what}")


def _text(entry: Mapping[str, Any], key: str, where: str) -> str:
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise _bad(where, f"{key} must be a text, and is {value!r}")
    return value


def _number(entry: Mapping[str, Any], key: str, where: str) -> float | None:
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _bad(where, f"{key} must be a number, and is {value!r}")
    if not math.isfinite(value):
        raise _bad(where, f"{key} must be finite, and is {value}")
    return float(value)


def _user_limit(entry: Mapping[str, Any], where: str) -> Limit:
    name = _text(entry, "metric", where)
    if name not in metrics():
        raise _bad(where, f"unknown metric {name!r}{nearest(name, metrics())}")
    metric = metrics()[name]
    where = f"{where} ({name})"
    low, high = _number(entry, "low", where), _number(entry, "high", where)
    if low is None and high is None:
        raise _bad(where, "give low, high or both")
    if metric.unit == "text":
        raise _bad(where, "is a text: use [[golden]] item and value")
    unit = _text(entry, "unit", where)
    try:
        low = None if low is None else convert(low, unit, metric.unit)
        high = None if high is None else convert(high, unit, metric.unit)
    except SpecError as error:
        raise _bad(where, str(error)) from error
    for key, value in (("low", low), ("high", high)):
        if value is not None and value < 0 and metric.unit != "C":
            raise _bad(where, f"{key} cannot be negative, and is {value}")
    if low is not None and high is not None and low > high:
        raise _bad(where, f"low {low} is above high {high}")
    return Limit(
        name,
        _text(entry, "source", where),
        "user",
        low=low,
        high=high,
        subject=_text(entry, "subject", where) if "subject" in entry else "*",
        sku=_text(entry, "sku", where) if "sku" in entry else None,
    )


def _golden(entry: Mapping[str, Any], where: str) -> Limit:
    item = _text(entry, "item", where)
    metric = _GOLDEN.get(item, item)
    if metric not in metrics():
        known = {*_GOLDEN, *metrics()}
        raise _bad(where, f"unknown item {item!r}{nearest(item, known)}")
    value = entry.get("value")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise _bad(where, f"value must be a text or a number, and is {value!r}")
    if (metrics()[metric].unit == "text") != isinstance(value, str):
        raise _bad(where, f"value {value!r} is of the wrong type for {metric}")
    if isinstance(value, float) and not math.isfinite(value):
        raise _bad(where, f"value must be finite, and is {value}")
    source = _text(entry, "source", where) if "source" in entry else f"golden {item}"
    return Limit(metric, source, "user", equal=value)


def _waiver(entry: Mapping[str, Any], where: str) -> Waiver:
    until = entry.get("until")
    if isinstance(until, str):
        try:
            until = date.fromisoformat(until)
        except ValueError:
            raise _bad(where, f"until must be a date like 2030-01-31, and is {until!r}") from None
    if not isinstance(until, date):
        raise _bad(where, f"until must be a date like 2030-01-31, and is {until!r}")
    if ("subject" in entry) == ("serial" in entry):
        raise _bad(where, "give either subject or serial")
    return Waiver(
        check=_text(entry, "check", where),
        until=date(until.year, until.month, until.day),
        owner=_text(entry, "owner", where),
        reason=_text(entry, "reason", where),
        subject=_text(entry, "subject", where) if "subject" in entry else None,
        serial=_text(entry, "serial", where) if "serial" in entry else None,
    )


def parse(text: str, name: str) -> Limits:
    """Return the Limits of a user's TOML text; `name` is the file's, for messages.

    Raises SpecError with the file, the table and the key, and the nearest known name.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _bad(name, f"is not TOML: {error}") from error
    limits: list[Limit] = []
    waivers: list[Waiver] = []
    for kind, entries in table.items():
        if kind not in _KEYS:
            raise _bad(name, f"unknown table {kind!r}{nearest(kind, _KEYS)}")
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            raise _bad(name, f"write [[{kind}]], with two brackets")
        for number, entry in enumerate(entries, 1):
            where = f"{name}: [[{kind}]] {number}"
            for key in entry:
                if key not in _KEYS[kind]:
                    raise _bad(where, f"unknown key {key!r}{nearest(key, _KEYS[kind])}")
            if kind == "limit":
                limits.append(_user_limit(entry, where))
            elif kind == "golden":
                limits.append(_golden(entry, where))
            else:
                waivers.append(_waiver(entry, where))
    _refuse_twice(limits, name)
    if not limits and not waivers:
        raise _bad(name, "holds no [[limit]], [[golden]] or [[waiver]]")
    return Limits(tuple(limits), tuple(waivers))


def _refuse_twice(limits: Iterable[Limit], name: str) -> None:
    seen: set[tuple[str, str, str | None]] = set()
    for limit in limits:
        key = (limit.metric, limit.subject, limit.sku)
        if key in seen:
            raise _bad(name, f"{limit.metric} on {limit.subject} is limited twice")
        seen.add(key)


# --- the packaged tables -----------------------------------------------------------------------
def shipped() -> tuple[Limit, ...]:
    """Return the packaged limits: what holds on every platform, and what SKUs achieve.

    A row of achieved.toml whose address is not known is no limit on its own and is left out.
    """
    here = resources.files("rackproof.diagnostics.limits")
    spec = tomllib.loads(here.joinpath("spec.toml").read_text("utf-8"))
    found = [
        Limit(
            row["metric"],
            row["source"],
            "spec",
            low=row.get("low"),
            high=row.get("high"),
            equal=row.get("equal"),
        )
        for row in spec["limit"]
    ]
    achieved = tomllib.loads(here.joinpath("achieved.toml").read_text("utf-8"))
    found += [
        Limit(
            row["metric"],
            f"{SHARE_OF_ACHIEVED} x {row['value']} {row['unit']}: {row['source']}",
            "achieved",
            low=SHARE_OF_ACHIEVED * row["value"],
            sku=row["sku"],
        )
        for row in achieved.get("achieved", ())
        if row.get("address_known", True)
    ]
    return tuple(found)
