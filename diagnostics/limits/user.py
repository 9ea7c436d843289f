"""The limits file of a user: TOML in, Limits out, or a SpecError with file, table and key."""

import contextlib
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from typing import Any

from rackproof.diagnostics.limits import fields
from rackproof.diagnostics.limits.layers import Limit, Limits, Waiver
from rackproof.harness.errors import SpecError, nearest
from rackproof.harness.metrics import metrics
from rackproof.harness.units import convert

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


def _converted(value: float, key: str, units: tuple[str, str], where: str) -> float:
    """Return `value` in the second of the units."""
    try:
        there = convert(value, *units)
    except SpecError as error:
        raise fields.bad(where, str(error)) from error
    return fields.finite(there, key, where)


def _user_limit(entry: Mapping[str, Any], where: str) -> Limit:
    name = fields.text(entry, "metric", where)
    if name not in metrics():
        raise fields.bad(where, f"unknown metric {name!r}{nearest(name, metrics())}")
    _refuse_noted(name, where)
    metric = metrics()[name]
    where = f"{where} {name}"
    low, high = fields.number(entry, "low", where), fields.number(entry, "high", where)
    if low is None and high is None:
        raise fields.bad(where, "give low, high or both")
    if metric.unit == "text":
        raise fields.bad(where, "is a text: use [[golden]] item and value")
    unit = fields.text(entry, "unit", where)
    low, high = (
        None if value is None else _converted(value, key, (unit, metric.unit), where)
        for key, value in (("low", low), ("high", high))
    )
    for key, value in (("low", low), ("high", high)):
        if value is not None and value < 0 and metric.unit != "C":
            raise fields.bad(where, f"{key} cannot be negative, and is {value}")
    if low is not None and high is not None and low > high:
        raise fields.bad(where, f"low {low} is above high {high}")
    return Limit(
        name,
        fields.text(entry, "source", where),
        "user",
        low=low,
        high=high,
        subject=fields.text(entry, "subject", where) if "subject" in entry else "*",
        sku=fields.text(entry, "sku", where) if "sku" in entry else None,
    )


def _refuse_noted(name: str, where: str) -> None:
    if not metrics()[name].judged:
        raise fields.bad(where, f"{name} is only noted, never judged: no limit would hold it")


def _golden(entry: Mapping[str, Any], where: str) -> Limit:
    item = fields.text(entry, "item", where)
    metric = _GOLDEN.get(item, item)
    if metric not in metrics():
        known = {*_GOLDEN, *metrics()}
        raise fields.bad(where, f"unknown item {item!r}{nearest(item, known)}")
    _refuse_noted(metric, where)
    value = fields.equal(entry, "value", metrics()[metric], where)
    source = fields.text(entry, "source", where) if "source" in entry else f"golden {item}"
    return Limit(metric, source, "user", equal=value)


def _waiver(entry: Mapping[str, Any], where: str) -> Waiver:
    until = entry.get("until")
    if isinstance(until, str):
        with contextlib.suppress(ValueError):
            until = date.fromisoformat(until)
    if not isinstance(until, date):
        raise fields.bad(where, f"until must be a date like 2030-01-31, and is {until!r}")
    if ("subject" in entry) == ("serial" in entry):
        raise fields.bad(where, "give either subject or serial")
    return Waiver(
        check=fields.text(entry, "check", where),
        until=date(until.year, until.month, until.day),
        owner=fields.text(entry, "owner", where),
        reason=fields.text(entry, "reason", where),
        subject=fields.text(entry, "subject", where) if "subject" in entry else None,
        serial=fields.text(entry, "serial", where) if "serial" in entry else None,
    )


def parse(text: str, name: str) -> Limits:
    """Return the Limits of a user's TOML text; `name` is the file's, for messages.

    Raises SpecError with the file, the table and the key, and the nearest known name.
    """
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # an overlong number is a plain ValueError
        raise fields.bad(name, f"is not TOML: {error}") from error
    limits: list[Limit] = []
    waivers: list[Waiver] = []
    for kind, number, entry in _entries(table, name):
        where = f"{name}: [[{kind}]] {number}"
        for key in entry:
            if key not in _KEYS[kind]:
                raise fields.bad(where, f"unknown key {key!r}{nearest(key, _KEYS[kind])}")
        if kind == "waiver":
            waivers.append(_waiver(entry, where))
        else:
            limits.append((_user_limit if kind == "limit" else _golden)(entry, where))
    _refuse_twice(limits, name)
    if not limits and not waivers:
        raise fields.bad(name, "holds no [[limit]], [[golden]] or [[waiver]]")
    return Limits(tuple(limits), tuple(waivers))


def _entries(table: Mapping[str, Any], name: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    for kind, entries in table.items():
        if kind not in _KEYS:
            raise fields.bad(name, f"unknown table {kind!r}{nearest(kind, _KEYS)}")
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            raise fields.bad(name, f"write [[{kind}]], with two brackets")
        for number, entry in enumerate(entries, 1):
            yield kind, number, entry


def _refuse_twice(limits: Iterable[Limit], name: str) -> None:
    seen: set[tuple[str, str, str | None]] = set()
    for limit in limits:
        key = (limit.metric, limit.subject, limit.sku)
        if key in seen:
            raise fields.bad(name, f"{limit.metric} on {limit.subject} is limited twice")
        seen.add(key)
