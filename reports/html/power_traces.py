"""The traces of a power-step burn, read out of a record. They are untrusted: nothing is believed.

In: measurements whose text holds a trace as JSON. Out: plain numbers in their units, or nothing at
all where a text is no trace; a number that was not read is None.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rackproof.harness.model import Measurement, Seen

RACK, SENSORS, SMOOTHED = "power.step.trace", "power.step.sensors", "power.smoothing.trace"
TRACES = frozenset({RACK, SENSORS, SMOOTHED})
"""Metrics whose value is a trace."""
LONGEST = 1 << 18  # characters; a trace of ours has a tenth of it
MOST = 2000  # points of one series
LARGEST = 1e12  # W, Hz or s; nothing here has more

Numbers = tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Series:
    """Values of several names at the same moments: `t` in s."""

    t: tuple[float, ...]
    values: Mapping[str, Numbers]


@dataclass(frozen=True, slots=True)
class Wave:
    """A square wave of `frequency` Hz as it was sampled; its points are not in order of phase."""

    frequency: float
    series: Series


@dataclass(frozen=True, slots=True)
class RackTrace:
    """One rack: an edge, waves and lines (Hz, W) in `raw` and `mains`, charge and strain."""

    edge: Series
    waves: tuple[Wave, ...]
    lines: Mapping[str, tuple[tuple[float, float], ...]]
    looks: Series


@dataclass(frozen=True, slots=True)
class GpuTrace:
    """Waves of one GPU, W; `floor` is that of its smoothing profile, where there is one."""

    waves: tuple[Wave, ...]
    floor: float | None = None


def racks(seen: Iterable[Seen]) -> dict[str, RackTrace]:
    """Return the trace of each rack's power, by subject."""
    return {s: found for s, body in _bodies(seen, RACK).items() if (found := _rack(body))}


def gpus(seen: Iterable[Seen], metric: str) -> dict[str, GpuTrace]:
    """Return the traces of GPUs, by subject: SENSORS or SMOOTHED."""
    names = ("instant", "average") if metric == SENSORS else ("off", "on")
    found = {}
    for subject, body in _bodies(seen, metric).items():
        try:
            floor = _number(body["floor"]) if metric == SMOOTHED else None
            found[subject] = GpuTrace(_waves(body["waves"], names), floor)
        except (KeyError, TypeError, ValueError):
            continue
    return found


def _bodies(seen: Iterable[Seen], metric: str) -> dict[str, Any]:
    """Return the last text of each subject as JSON, of those that are objects."""
    found: dict[str, Any] = {}
    for what in seen:
        if not isinstance(what, Measurement) or what.metric != metric:
            continue
        text = str(what.value)
        try:
            body = json.loads(text) if len(text) <= LONGEST else None
        except (ValueError, RecursionError):
            continue
        if isinstance(body, dict):
            found[what.subject] = body
    return found


def _rack(body: dict[str, Any]) -> RackTrace | None:
    try:
        lines = body["lines"]
        return RackTrace(
            _series(body["edge"], ("raw", "mains")),
            _waves(body["waves"], ("raw", "mains")),
            {name: _lines(lines[name]) for name in ("raw", "mains")},
            _series(body["looks"], ("charge", "strain")),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = "no number"
        raise TypeError(msg)
    if not math.isfinite(value) or abs(value) > LARGEST:
        msg = "no number of a power trace"
        raise ValueError(msg)
    return float(value)


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        msg = "no list"
        raise TypeError(msg)
    if len(value) > MOST:
        msg = "too many points"
        raise ValueError(msg)
    return value


def _lines(value: object) -> tuple[tuple[float, float], ...]:
    found = []
    for pair in _list(value):
        hertz, watts = (_number(each) for each in _list(pair))
        if hertz > 0.0:
            found.append((hertz, watts))
    return tuple(found)


def _series(body: Any, names: tuple[str, ...]) -> Series:
    """Return a series; a name without any values, or with another number of them, is left out."""
    t = tuple(_number(each) for each in _list(body["t"]))
    values: dict[str, Numbers] = {}
    for name in names:
        own = tuple(None if each is None else _number(each) for each in _list(body[name]))
        if len(own) == len(t) and any(each is not None for each in own):
            values[name] = own
    return Series(t, values)


def _waves(value: object, names: tuple[str, ...]) -> tuple[Wave, ...]:
    found = []
    for body in _list(value):
        frequency = _number(body["f"])
        if frequency <= 0.0:
            msg = "a wave without a frequency"
            raise ValueError(msg)
        found.append(Wave(frequency, _series(body, names)))
    return tuple(found)
