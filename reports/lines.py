"""Lines of a record as objects: measurement, missing, event, retest. Nothing of them is believed.

In: what JSON gave for one line. Out: the object, or a KeyError, TypeError or ValueError that says
what is wrong with it.
"""

from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

from rackproof.diagnostics.evidence import RUNS, SORTS, Head, Retested, Settled
from rackproof.diagnostics.retest.model import Test
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event, Measurement, Missing, Seen, Value, Why, sort_of
from rackproof.reports import fields
from rackproof.reports.words import visible

CLAIMS = "claims runs that are the plan's"


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


def fitting(
    head: Head, settled: AbstractSet[Settled], found: Sequence[Retested]
) -> tuple[list[Retested], list[str]]:
    """Return the retests that can be true, and what is wrong with the others.

    A retest is of a burn, an item and a subject of the plan, and its runs come after all of the
    plan's own of that item: else a line could take away the runs in which something failed.
    """
    items = {planned.burn: set(head.items(planned)) for planned in head.plan}
    wrong = {id(one): _unfit(head, items.get(one.burn), one) for one in found}
    claimed = frozenset(key for one in found if not wrong[id(one)] for key in one.attempts)
    own: dict[tuple[str, str], int] = {}
    for burn, item, number in settled - claimed:
        own[burn, item] = max(number, own.get((burn, item), 0))
    for one in found:
        late = all(number > own.get((burn, item), number) for burn, item, number in one.attempts)
        wrong[id(one)] = wrong[id(one)] or ("" if late else CLAIMS)
    problems = [
        f"bad retest of {visible(o.root, 60)}: {wrong[id(o)]}" for o in found if wrong[id(o)]
    ]
    return [one for one in found if not wrong[id(one)]], problems


def _unfit(head: Head, items: AbstractSet[str] | None, one: Retested) -> str:
    if items is None:
        return f"{visible(one.burn, 60)} is no burn of the plan"
    if not _stands(head, one.root):
        return "the rack has no such part"
    home = head.item_of(one.burn, one.root)
    for burn, item, number in one.attempts:
        if item not in items:
            return f"{burn} is not run on {visible(item, 60)}"
        if number <= (RUNS if item == home else 1):
            return CLAIMS
    return ""


def _stands(head: Head, subject: str) -> bool:
    """Say whether a subject is one of the run's: planned, or a switch or a rack's own part."""
    if any(subject in head.subjects(sort) for sort in SORTS):
        return True
    return sort_of(subject) in ("switch", "rack") and subject.startswith("rack")


SEEN: dict[str, Callable[[dict[str, Any]], Seen]] = {
    "measurement": _measurement,
    "missing": _missing,
    "event": _event,
}
