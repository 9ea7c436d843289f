"""The power facts of a drill's record as objects: layout, events, traces, caps, steps, limits.

In: facts of the kind ``power``, each with a `sort`; they are untrusted. Out: a PowerRecord, and in
words what could not be read of them. `run` is ``dimmed`` (training under the Dimmer) or ``control``
(the same event with the Dimmer off). Times are virtual seconds since that run began, powers W.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rackproof.diagnostics.recovery.record import Fact

Array = npt.NDArray[np.float64]
DIMMED, CONTROL = "dimmed", "control"
RUNS = (DIMMED, CONTROL)
MOST = 1 << 20  # values of one list
EVENTS = (
    "limit", "lift", "ac-lost", "ac-back", "sag", "ramp", "sensors-lost", "sensors-back",
    "coolant-lost", "coolant-back", "controller-killed", "controller-back",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Feed:
    """A feed: what it is rated for, what no cap lowers, and the sum of the floors below it, W."""

    name: str
    parent: str
    rated: float
    fixed: float
    floors: float


@dataclass(frozen=True, slots=True)
class JobHead:
    """A job: GPUs, priority (higher goes first), floor in W of a GPU, period of a step in s."""

    name: str
    gpus: int
    priority: int
    floor: float
    period: float
    training: bool


@dataclass(frozen=True, slots=True)
class Event:
    """What the drill did. `id` names the sub-drill that it belongs to; events of one share it.

    `watts` is the new limit of `feed`; `asked` the one that was wanted, lower where the feed cannot
    go so low; `steady` the load measured before. `seconds` and `left` are those of a sag; `share`
    of sensors or coolant that is left.
    """

    at: float
    id: str
    what: str
    feed: str = ""
    watts: float = math.nan
    asked: float = math.nan
    steady: float = math.nan
    seconds: float = math.nan
    left: float = math.nan
    share: float = math.nan
    run: str = DIMMED


@dataclass(frozen=True, slots=True)
class Series:
    """A feed over time: `at` is the end of each part of `every` seconds.

    `mean` and `peak` of its load, `seen` of what the side above it sees, `strain` of its breaker,
    `charge` of each store (0..1) and `out` of it (W given), `margin` of the hottest GPU (C).
    """

    at: Array
    every: float
    mean: Array
    peak: Array
    seen: Array
    strain: Array
    margin: Array
    charge: Mapping[str, Array] = field(default_factory=dict)
    out: Mapping[str, Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Act:
    """What the Dimmer said: overload-detected, dimmer-acts, alarm, …; `ramp` where it has one."""

    at: float
    what: str
    feed: str = ""
    job: str = ""
    text: str = ""
    ramp: str = ""


@dataclass(frozen=True, slots=True)
class Caps:
    """A job's cap as it was asked for, W of each GPU; `differ` GPUs read another one back."""

    at: float
    job: str
    watts: float
    differ: int = 0


@dataclass(frozen=True, slots=True)
class Steps:
    """A job's steps: number, begin, end, spread of the ranks, mean W of its GPUs."""

    number: Array
    begin: Array
    end: Array
    spread: Array
    watts: Array


@dataclass(frozen=True, slots=True)
class Limits:
    """What was requested of each GPU before the drill, and at `moment`: W, in order of GPUs."""

    moment: str
    was: Array
    now: Array
    other: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class PowerRecord:
    """All that is known of a power drill."""

    feeds: Mapping[str, Feed]
    jobs: Mapping[str, JobHead]
    settings: Mapping[str, float]
    events: tuple[Event, ...]
    series: Mapping[tuple[str, str], Series]
    acts: tuple[Act, ...]
    caps: Mapping[str, tuple[Caps, ...]]
    electric: tuple[Event, ...]
    steps: Mapping[str, Steps]
    limits: tuple[Limits, ...]
    control_acts: int = 0
    problems: tuple[str, ...] = ()

    def of(self, *whats: str, run: str = DIMMED) -> list[Event]:
        """Return the events of some kinds, in the order of time."""
        return [e for e in self.events if e.what in whats and e.run == run]

    def happened(self, *whats: str, run: str = DIMMED) -> list[Event]:
        """Return what the electrical equipment did, of some kinds."""
        return [e for e in self.electric if e.what in whats and e.run == run]

    def feed(self, name: str, run: str = DIMMED) -> Series | None:
        """Return a feed's series, None where there is none."""
        return self.series.get((run, name))

    @property
    def training(self) -> str:
        """The name of the job that is trained in truth."""
        return next((job.name for job in self.jobs.values() if job.training), "")

    @property
    def end(self) -> float:
        """When the dimmed run ended, as far as its series go."""
        found = [s.at[-1] for (run, _), s in self.series.items() if run == DIMMED and len(s.at)]
        return float(max(found, default=0.0))


def present(facts: Iterable[Fact]) -> bool:
    """Say whether a record holds anything of power."""
    return any(fact.what == "power" for fact in facts)


def read(facts: Iterable[Fact]) -> PowerRecord:
    """Return what the power facts say; what of them cannot be read is among `problems`."""
    reading = _Reading()
    for number, fact in enumerate(fact for fact in facts if fact.what == "power"):
        try:
            reading.take(fact.fields)
        except (KeyError, TypeError, ValueError) as error:
            sort = str(fact.fields.get("sort"))[:40]
            reading.problems.append(f"power fact {number + 1} ({sort}) cannot be read: {error!s}")
    return reading.record()


class _Reading:
    """Takes facts in, and puts the parts of each series together."""

    def __init__(self) -> None:
        self.feeds: dict[str, Feed] = {}
        self.jobs: dict[str, JobHead] = {}
        self.settings: dict[str, float] = {}
        self.events: list[Event] = []
        self.electric: list[Event] = []
        self.acts: list[tuple[str, Act]] = []
        self.caps: dict[str, list[Caps]] = {}
        self.parts: dict[tuple[str, str], list[Series]] = {}
        self.steps: dict[str, list[Steps]] = {}
        self.limits: list[Limits] = []
        self.problems: list[str] = []
        self._takes: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
            "layout": self._layout,
            "event": lambda body: self.events.append(_event(body)),
            "electric": lambda body: self.electric.append(_event(body)),
            "act": self._act,
            "caps": self._cap,
            "trace": self._trace,
            "steps": self._steps,
            "limits": self._limit,
        }

    def take(self, body: Mapping[str, Any]) -> None:
        sort = body["sort"]
        if sort not in self._takes:
            msg = "of no known sort"
            raise ValueError(msg)
        self._takes[sort](body)

    def _layout(self, body: Mapping[str, Any]) -> None:
        for row in body["feeds"]:
            numbers = [_number(row[key]) for key in ("rated", "fixed", "floors")]
            self.feeds[_text(row["name"])] = Feed(row["name"], _text(row["parent"]), *numbers)
        for row in body["jobs"]:
            self.jobs[_text(row["name"])] = JobHead(
                row["name"], int(_number(row["gpus"])), int(_number(row["priority"])),
                _number(row["floor"]), _number(row["period"]), row["training"] is True,
            )  # fmt: skip
        self.settings.update({_text(k): _number(v) for k, v in body["settings"].items()})

    def _act(self, body: Mapping[str, Any]) -> None:
        texts = [_text(body.get(key, "")) for key in ("feed", "job", "text", "ramp")]
        self.acts.append((_run(body), Act(_number(body["at"]), _text(body["what"]), *texts)))

    def _cap(self, body: Mapping[str, Any]) -> None:
        cap = Caps(_number(body["at"]), _text(body["job"]), _number(body["watts"]))
        differ = int(_number(body.get("differ", 0)))
        self.caps.setdefault(cap.job, []).append(Caps(cap.at, cap.job, cap.watts, differ))

    def _trace(self, body: Mapping[str, Any]) -> None:
        every, begin = _number(body["every"]), _number(body["from"])
        mean = _array(body["mean"])
        if every <= 0.0:
            msg = "its parts take no time"
            raise ValueError(msg)
        names = ("peak", "seen", "strain", "margin")
        peak, seen, strain, margin = (_array(body[name], len(mean)) for name in names)
        at = np.array([begin + every * (number + 1.0) for number in range(len(mean))])
        charge, out = (
            {_text(name): _array(values, len(mean)) for name, values in body[key].items()}
            for key in ("charge", "out")
        )
        part = Series(at, every, mean, peak, seen, strain, margin, charge, out)
        self.parts.setdefault((_run(body), _text(body["feed"])), []).append(part)

    def _steps(self, body: Mapping[str, Any]) -> None:
        number = _array(body["number"])
        more = [_array(body[k], len(number)) for k in ("begin", "end", "spread", "watts")]
        self.steps.setdefault(_text(body["job"]), []).append(Steps(number, *more))

    def _limit(self, body: Mapping[str, Any]) -> None:
        was = _array(body["was"])
        other = [_text(each) for each in body.get("other", ())]
        self.limits.append(Limits(_text(body["moment"]), was, _array(body["now"], len(was)), other))

    def record(self) -> PowerRecord:
        return PowerRecord(
            feeds=self.feeds,
            jobs=self.jobs,
            settings=self.settings,
            events=tuple(sorted(self.events, key=lambda each: each.at)),
            series={key: self._joined(key, parts) for key, parts in self.parts.items()},
            acts=tuple(act for run, act in self.acts if run == DIMMED),
            caps={job: tuple(each) for job, each in self.caps.items()},
            electric=tuple(sorted(self.electric, key=lambda each: each.at)),
            steps={job: _joined_steps(parts) for job, parts in self.steps.items()},
            limits=tuple(self.limits),
            control_acts=sum(1 for run, _ in self.acts if run == CONTROL),
            problems=tuple(self.problems),
        )

    def _joined(self, key: tuple[str, str], parts: Sequence[Series]) -> Series:
        """Join the parts of one series; a gap or an overlap between them is a problem."""
        ordered = sorted(parts, key=lambda part: part.at[0] if len(part.at) else 0.0)
        ends = [(a.at[-1], b.at[0] - b.every) for a, b in itertools.pairwise(ordered)
                if len(a.at) and len(b.at)]  # fmt: skip
        gap = next((end for end, begin in ends if abs(end - begin) > ordered[0].every / 2), None)
        if gap is not None:
            self.problems.append(f"the trace of {key[1]} ({key[0]}) has a gap at {gap:.1f} s")
        names = ("at", "mean", "peak", "seen", "strain", "margin")
        at, mean, peak, seen, strain, margin = (
            np.concatenate([getattr(part, name) for part in ordered]) for name in names
        )
        charge, out = (_stores(ordered, which) for which in ("charge", "out"))
        return Series(at, ordered[0].every, mean, peak, seen, strain, margin, charge, out)


def _stores(parts: Sequence[Series], which: str) -> dict[str, Array]:
    """Return the values of each store over all parts; NaN where a part has none."""
    known = sorted({name for part in parts for name in getattr(part, which)})
    return {
        name: np.concatenate(
            [getattr(part, which).get(name, np.full(len(part.at), np.nan)) for part in parts]
        )
        for name in known
    }


def _joined_steps(parts: Sequence[Steps]) -> Steps:
    names = ("number", "begin", "end", "spread", "watts")
    return Steps(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def _run(body: Mapping[str, Any]) -> str:
    run = body.get("run", DIMMED)
    if run not in RUNS:
        msg = f"of an unknown run {str(run)[:40]!r}"
        raise ValueError(msg)
    return str(run)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        msg = f"{str(value)[:40]!r} is no text"
        raise TypeError(msg)
    return value


def _number(value: Any) -> float:
    """Return a number; null is NaN, since JSON has none."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"{str(value)[:40]!r} is no number"
        raise TypeError(msg)
    return float(value)


def _array(value: Any, length: int | None = None) -> Array:
    if not isinstance(value, list | tuple) or len(value) > MOST:
        msg = "a list of numbers is due"
        raise TypeError(msg)
    if length is not None and len(value) != length:
        msg = f"{len(value)} values, and {length} are due"
        raise ValueError(msg)
    return np.array([_number(each) for each in value], dtype=np.float64)


def _event(body: Mapping[str, Any]) -> Event:
    names = ("watts", "asked", "steady", "seconds", "left", "share")
    name, what, feed = (_text(body.get(key, "")) for key in ("id", "what", "feed"))
    numbers = {each: _number(body.get(each)) for each in names}
    return Event(_number(body["at"]), name, what, feed, run=_run(body), **numbers)
