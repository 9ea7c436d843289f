"""Lines of a record as objects: measurement, missing, event, retest. Nothing of them is believed.

In: what JSON gave for one line. Out: the object, or a KeyError, TypeError or ValueError that says
what is wrong with it.
"""

from collections.abc import Callable
from typing import Any

from rackproof.diagnostics.evidence import Retested
from rackproof.diagnostics.retest.model import Test
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event, Measurement, Missing, Seen, Value, Why
from rackproof.reports import fields


def attempt(body: dict[str, Any]) -> int:
    """Return the number of a run."""
    return fields.whole(body, "attempt", low=1)


def _window(value: object) -> tuple[float, float] | None:
    if value is None:
        return None
    if not isinstance(value, list):
        msg = "window is not a start and an end"
        raise TypeError(msg)
    start, end = value  # a ValueError where it holds more or less
    return fields.finite(start, "window"), fields.finite(end, "window")


def _measurement(body: dict[str, Any]) -> Measurement:
    metric = metrics()[fields.text(body, "metric")]
    value: Value = (
        fields.text(body, "value")
        if metric.unit == "text"
        else fields.number(body["value"], "value")
    )
    if body["unit"] != metric.unit:
        msg = f"unit is not {metric.unit}, the unit of {metric.name}"
        raise ValueError(msg)
    return Measurement(
        fields.text(body, "check"),
        fields.text(body, "subject"),
        metric.name,
        value,
        metric.unit,
        attempt(body),
        _window(body.get("window")),
    )


def _missing(body: dict[str, Any]) -> Missing:
    return Missing(
        fields.text(body, "check"),
        fields.text(body, "subject"),
        metrics()[fields.text(body, "metric")].name,
        Why(body["why"]),
        fields.text(body, "reason"),
        fields.text(body, "cure"),
        attempt(body),
    )


def _event(body: dict[str, Any]) -> Event:
    when = body.get("when")
    detail = fields.table(body.get("detail", {}), "detail")
    return Event(
        fields.text(body, "subject"),
        fields.text(body, "code"),
        fields.text(body, "text"),
        None if when is None else float(fields.number(when, "when")),
        fields.text(body, "clock"),
        {key: value for key, value in detail.items() if isinstance(value, str | int | float)},
    )


def retested(body: dict[str, Any]) -> Retested:
    """Return what a retest's line says, whichever of its two it is."""
    seconds = fields.finite(body["seconds"], "seconds")
    if seconds < 0:
        msg = f"seconds is {seconds:g}"
        raise ValueError(msg)
    return Retested(
        Test(fields.text(body, "test")).value,
        fields.text(body, "root"),
        fields.text(body, "cause"),
        fields.text(body, "burn"),
        fields.runs(body["ran"], "ran"),
        fields.runs(body["stayed"], "stayed"),
        seconds,
        fields.text(body, "other"),
        fields.text(body, "why"),
    )


SEEN: dict[str, Callable[[dict[str, Any]], Seen]] = {
    "measurement": _measurement,
    "missing": _missing,
    "event": _event,
}
