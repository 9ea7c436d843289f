"""Fields of a table that somebody else wrote: the value, or a SpecError with what and where."""

import math
from collections.abc import Mapping
from typing import Any

from rackproof.harness.errors import SpecError
from rackproof.harness.metrics import Metric
from rackproof.harness.model import Value


def bad(where: str, what: str) -> SpecError:
    """Return the error that says what is wrong, and where."""
    return SpecError(f"{where}: {what}")


def text(entry: Mapping[str, Any], key: str, where: str) -> str:
    """Return a text that is not blank."""
    value = entry.get(key)
    if not isinstance(value, str) or not value.strip():
        raise bad(where, f"{key} must be a text, and is {value!r}")
    return value


def number(entry: Mapping[str, Any], key: str, where: str) -> float | None:
    """Return a finite number, or None where there is none."""
    value = entry.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad(where, f"{key} must be a number, and is {value!r}")
    return finite(value, key, where)


def finite(value: float, key: str, where: str) -> float:
    """Return `value` as a float, which it must fit in."""
    try:
        exact = float(value)
    except OverflowError:
        exact = math.inf
    if not math.isfinite(exact):
        raise bad(where, f"{key} must be finite, and is {exact}")
    return exact


def equal(entry: Mapping[str, Any], key: str, metric: Metric, where: str) -> Value:
    """Return the value that `metric` must have: a text for a text, else a finite number."""
    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise bad(where, f"{key} must be a text or a number, and is {value!r}")
    if (metric.unit == "text") != isinstance(value, str):
        raise bad(where, f"{key} {value!r} is of the wrong type for {metric.name}")
    if not isinstance(value, str):
        finite(value, key, where)
    return value
