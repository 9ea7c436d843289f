"""The power facts of a drill's record as objects: layout, events, traces, caps, steps, limits.

In: facts of the kind ``power``, each with a `sort`; they are untrusted. Out: a PowerRecord, and in
words what could not be read of them. `run` is ``dimmed`` (training under the Dimmer) or ``control``
(the same event with the Dimmer off). Times are virtual seconds since that run began, powers W.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from rackproof.diagnostics.power.values import (
    Array,
    as_array,
    as_moment,
    as_number,
    as_table,
    as_text,
)
from rackproof.diagnostics.recovery.record import Fact

__all__ = [
    "CONTROL", "DIMMED", "Act", "Array", "Caps", "Event", "Feed", "JobHead", "Limits",
    "PowerRecord", "Series", "Steps", "present", "read",
]  # fmt: skip

DIMMED, CONTROL = "dimmed", "control"
RUNS = (DIMMED, CONTROL)
COURSE = "faulted"
"""The course of a drill that power facts are of; `run` says which part of it."""
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
    """What was requested of each GPU before the drill, and at `moment`: W, in order of GPUs.

    `other`: settings beside the limits that are not what they were; None where nobody looked.
    """

    moment: str
    was: Array
    now: Array
    other: Sequence[str] | None = None


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
    def usual(self) -> float:
        """What is asked of a GPU while nothing is dimmed, W; inf where nobody looked."""
        found = [float(each.was.max()) for each in self.limits if len(each.was)]
        return max((watts for watts in found if math.isfinite(watts)), default=math.inf)

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
        if fact.course != COURSE:
            reading.problems.append(f"power fact {number + 1} is of {fact.course[:20]}, no drill")
            continue
        try:
            reading.take(fact.fields)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            sort = str(fact.fields.get("sort"))[:40]
            reading.problems.append(f"power fact {number + 1} ({sort}) cannot be read: {error!s}")
    return reading.record()


Told = TypeVar("Told", Event, Caps)


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
        if self.feeds:
            msg = "there is one before it"
            raise ValueError(msg)
        for row in body["feeds"]:
            numbers = [as_number(row[key]) for key in ("rated", "fixed", "floors")]
            self.feeds[as_text(row["name"])] = Feed(row["name"], as_text(row["parent"]), *numbers)
        for row in body["jobs"]:
            self.jobs[as_text(row["name"])] = JobHead(
                row["name"], int(as_number(row["gpus"])), int(as_number(row["priority"])),
                as_number(row["floor"]), as_number(row["period"]), row["training"] is True,
            )  # fmt: skip
        self.settings.update(
            {as_text(k): as_number(v) for k, v in as_table(body["settings"]).items()}
        )

    def _act(self, body: Mapping[str, Any]) -> None:
        texts = [as_text(body.get(key, "")) for key in ("feed", "job", "text", "ramp")]
        self.acts.append((_run(body), Act(as_moment(body["at"]), as_text(body["what"]), *texts)))

    def _cap(self, body: Mapping[str, Any]) -> None:
        differ = int(as_number(body.get("differ", 0)))
        cap = Caps(as_moment(body["at"]), as_text(body["job"]), as_moment(body["watts"]), differ)
        self.caps.setdefault(cap.job, []).append(cap)

    def _trace(self, body: Mapping[str, Any]) -> None:
        every, begin = as_moment(body["every"]), as_moment(body["from"])
        mean = as_array(body["mean"])
        if every <= 0.0 or not len(mean):
            msg = "its parts take no time"
            raise ValueError(msg)
        names = ("peak", "seen", "strain", "margin")
        peak, seen, strain, margin = (as_array(body[name], len(mean)) for name in names)
        at = begin + every * np.arange(1.0, len(mean) + 1.0)
        charge, out = (
            {
                as_text(name): as_array(values, len(mean))
                for name, values in as_table(body[key]).items()
            }
            for key in ("charge", "out")
        )
        part = Series(at, every, mean, peak, seen, strain, margin, charge, out)
        self.parts.setdefault((_run(body), as_text(body["feed"])), []).append(part)

    def _steps(self, body: Mapping[str, Any]) -> None:
        number = as_array(body["number"])
        more = [as_array(body[k], len(number)) for k in ("begin", "end", "spread", "watts")]
        self.steps.setdefault(as_text(body["job"]), []).append(Steps(number, *more))

    def _limit(self, body: Mapping[str, Any]) -> None:
        was = as_array(body["was"])
        more = body.get("other")
        other = None if more is None else [as_text(each) for each in more]
        self.limits.append(
            Limits(as_text(body["moment"]), was, as_array(body["now"], len(was)), other)
        )

    def record(self) -> PowerRecord:
        acts = [act for run, act in self.acts if run == DIMMED]
        return PowerRecord(
            feeds=self.feeds,
            jobs=self.jobs,
            settings=self.settings,
            events=self._once("event", self.events),
            series={key: self._joined(key, parts) for key, parts in sorted(self.parts.items())},
            acts=tuple(sorted(acts, key=_order)),
            caps={job: self._once(f"cap of {job}", c) for job, c in sorted(self.caps.items())},
            electric=tuple(sorted(self.electric, key=_order)),
            steps={job: self._steps_of(job, parts) for job, parts in sorted(self.steps.items())},
            limits=tuple(self.limits),
            control_acts=sum(1 for run, _ in self.acts if run == CONTROL),
            problems=tuple(self.problems),
        )

    def _once(self, sort: str, told: Sequence[Told]) -> tuple[Told, ...]:
        """Return them in the order of time; the same one twice is a problem."""
        ordered = sorted(told, key=_order)
        twice = [b for a, b in itertools.pairwise(ordered) if repr(a) == repr(b)]
        self.problems += [f"the {sort} at {each.at:.2f} s stands twice" for each in twice[:5]]
        return tuple(ordered)

    def _steps_of(self, job: str, parts: Sequence[Steps]) -> Steps:
        """Join the parts of a job's steps by time; a part twice, or a missing one, is a problem."""
        ordered = sorted(parts, key=lambda part: (part.begin.tolist(), part.number.tolist()))
        for before, after in itertools.pairwise(ordered):
            if len(after.begin) and np.array_equal(before.begin, after.begin):
                self.problems.append(f"steps of {job} from {after.begin[0]:.1f} s on stand twice")
        names = ("number", "begin", "end", "spread", "watts")
        joined = Steps(*(np.concatenate([getattr(p, name) for p in ordered]) for name in names))
        stands = joined.begin[1:] - joined.end[:-1] > (joined.end - joined.begin)[1:] / 2.0
        missing = np.flatnonzero((np.diff(joined.number) > 1.0) & stands)
        if len(missing):
            after = joined.number[missing[0]]
            self.problems.append(f"a step of {job} after step {after:.0f} is not told")
        return joined

    def _joined(self, key: tuple[str, str], parts: Sequence[Series]) -> Series:
        """Join the parts of one series; a gap or an overlap between them is a problem."""
        ordered = sorted(parts, key=lambda part: (part.at[0], part.at[-1]))
        ends = [(a.at[-1], b.at[0] - b.every) for a, b in itertools.pairwise(ordered)]
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


def _order(told: Event | Act | Caps) -> tuple[float, str]:
    """By time; what is told of one moment has one order, however it was written."""
    return told.at, repr(told)


def _run(body: Mapping[str, Any]) -> str:
    run = body.get("run", DIMMED)
    if run not in RUNS:
        msg = f"of an unknown run {str(run)[:40]!r}"
        raise ValueError(msg)
    return str(run)


def _event(body: Mapping[str, Any]) -> Event:
    names = ("watts", "asked", "steady", "seconds", "left", "share")
    name, what, feed = (as_text(body.get(key, "")) for key in ("id", "what", "feed"))
    numbers = {each: as_number(body.get(each)) for each in names}
    return Event(as_moment(body["at"]), name, what, feed, run=_run(body), **numbers)
