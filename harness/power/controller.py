"""The controller's own side: requests in, what was decided and done out. It ends as it began.

In: one JSON object a request. Out: one an answer, with the request's number. A request that makes
no sense is answered with a ``problem`` and changes nothing. The Dimmer decides and never touches
hardware; here what it orders is asked of the zone, and what came of it is told.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np

from rackproof.harness.clock import Clock, MachineClock
from rackproof.harness.devices.attached import Attached, attach
from rackproof.harness.devices.real import put_back
from rackproof.harness.errors import RackproofError
from rackproof.harness.journal import Journal, state_folder
from rackproof.harness.power.assignment import Assignment
from rackproof.harness.power.dimmer.words import Act, Orders
from rackproof.harness.power.lines import Object, packed, parsed, unpacked
from rackproof.harness.power.lock import RackLock, places
from rackproof.harness.power.meter import ToldMeter, unmetered
from rackproof.harness.power.nvml_zone import NvmlZone
from rackproof.harness.power.zone import TOP, Array, Bounds, Layout, Meters, Sample

SHOWN = 16  # GPUs, or reasons, that an answer names one by one
WORDS = 400  # characters of a reason
CLOSE_W = 1.0
"""A limit that reads back within this is the one that was asked for."""
NONSENSE = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError, RackproofError)


class Decider(Protocol):
    """What decides; see harness.power.dimmer.Dimmer."""

    def step(self, sample: Sample) -> Orders:
        """Decide by one look."""
        ...

    def answer(self, back: Array, *, at: float) -> Orders:
        """Hear what the zone answered to the last orders."""
        ...

    def limit(self, feed: str, watts: float | None, *, at: float, why: str) -> None:
        """Hear of a feed's limit, W; None: as its equipment says."""
        ...

    def contract(self, feed: str, watts: float | None, *, at: float) -> None:
        """Hear what an upper controller grants a feed, W; None: no contract."""
        ...


Make = Callable[[Assignment, Bounds], Decider]


class ToldClock:
    """A clock that stands where it was told, and may be told nonsense: the Dimmer sees jumps."""

    def __init__(self, at: float) -> None:
        """Stand at `at` seconds."""
        self.at = at

    def now(self) -> float:
        """Return where it stands."""
        return self.at


class Controller:
    """Answers requests, for one rack at a time."""

    def __init__(self, make: Make) -> None:
        """Control nothing yet; `make` makes the decider of an assignment."""
        self._make = make
        self._rack: _Rack | None = None

    def answer(self, line: bytes) -> Object:
        """Answer one request. Never raises for what a request says."""
        number: object = None
        try:
            request = parsed(line)
            number = request.get("number")
            return {"number": number, **self._done(request)}
        except NONSENSE as error:
            text = str(error) if isinstance(error, ValueError | RackproofError) else repr(error)
            return {"number": number, "problem": text[:WORDS]}

    def _done(self, request: Object) -> Object:
        match request.get("do"):
            case "begin":
                return self._begin(Assignment.from_json(request["assignment"]))
            case "status":
                return {"pid": os.getpid(), **(self._rack.status() if self._rack else {})}
            case "stop":
                return self.end()
            case "tick":
                return self._running().tick(request)
            case "limit" | "contract":
                return self._running().told(request)
        msg = f"{str(request.get('do'))[:40]!r} is no request"
        raise ValueError(msg)

    def _begin(self, assignment: Assignment) -> Object:
        if self._rack is not None:
            msg = "this controller has a rack already"
            raise ValueError(msg)
        self._rack = _Rack(assignment, self._make)
        return {"said": self._rack.said, **self._rack.status()}

    def _running(self) -> "_Rack":
        if self._rack is None:
            msg = "this controller has no rack: begin"
            raise ValueError(msg)
        return self._rack

    def end(self) -> Object:
        """Put back all that was changed, and let the rack go; more calls do nothing."""
        rack, self._rack = self._rack, None
        return {"restored": 0} if rack is None else rack.end()


class _Rack:
    """One rack under control."""

    def __init__(self, assignment: Assignment, make: Make) -> None:
        self._given = assignment
        self._told = ToldClock(assignment.at)
        self.said: list[str] = []
        self._unread: dict[str, str] = {}
        self._refused: dict[str, str] = {}
        self._ticks = 0
        known = [uuid for uuid in assignment.uuids.values() if uuid]
        self._lock = RackLock(places(assignment.source, known))
        try:
            clock: Clock = self._told if assignment.told else MachineClock()
            self._gpus = attach(assignment.source, assignment.uuids, clock)
        except BaseException:
            self._lock.close()
            raise
        try:
            self._take(self._gpus, make)
        except BaseException:
            self._let_go()
            raise

    def _take(self, gpus: Attached, make: Make) -> None:
        """See to what killed controllers left, look at the rack, and get somebody who decides."""
        given = self._given
        journal = Journal(given.folder or state_folder(), put_back, listens=False)
        if given.adopt:
            self.said += journal.adopt(set(gpus.uuids.values()))
        self.said += journal.recover()
        self._meter = ToldMeter(len(given.layout.feeds))
        self._zone = NvmlZone(gpus, given.layout, self._meter, journal)
        self._dimmer = make(given, self._zone.bounds())

    def _let_go(self) -> None:
        self._gpus.close()
        self._lock.close()

    def status(self) -> Object:
        """Return how many limits are changed, and what was seen of this controller."""
        own = self._zone
        return {"changed": own.changed, "ticks": self._ticks, "at": own.clock.now()}

    def end(self) -> Object:
        """Put everything back, and let go of the rack in any case."""
        try:
            changed = self._zone.changed
            problem = self._zone.restore()
            restored = {"restored": changed - self._zone.changed}
            return {**restored, "problem": problem[:WORDS]} if problem else restored
        finally:
            self._let_go()

    # --- requests -------------------------------------------------------------------------------
    def told(self, request: Object) -> Object:
        """Pass a limit or a contract of a feed on."""
        feed, watts = str(request["feed"]), request["watts"]
        if feed not in self._given.layout.feeds:
            msg = f"{feed[:40]!r} is no feed of this rack"
            raise ValueError(msg)
        watts = None if watts is None else _finite(watts, "watts")
        at = self._moment(request)
        if request["do"] == "limit":
            self._dimmer.limit(feed, watts, at=at, why=str(request.get("why", ""))[:WORDS])
        else:
            self._dimmer.contract(feed, watts, at=at)
        return {}

    def tick(self, request: Object) -> Object:
        """Look, decide, and do it; `seconds` are what the decision alone took."""
        meters = _meters(request.get("meters"), len(self._given.layout.feeds))
        self._moment(request)
        self._meter.tell(meters)
        self._ticks += 1
        sample = self._zone.sample()
        if self._given.reckon:
            sample = reckoned(self._given.layout, sample)
        news = _news(self._zone.problems, self._unread)
        began = time.perf_counter()
        orders = self._dimmer.step(sample)
        seconds = time.perf_counter() - began
        got = self._zone.ask(orders.caps)
        heard = self._dimmer.answer(got, at=sample.at)
        for gpu in np.flatnonzero(~np.isnan(got)):
            self._refused.pop(self._given.layout.gpus[gpu], None)
        refused = _news(self._zone.problems, self._refused, forget=False)
        return {
            "at": sample.at,
            "due": due if np.isfinite(due := min(orders.due, heard.due)) else None,
            "seconds": seconds,
            "load": packed(sample.feed),
            "orders": self._orders(orders.caps, got),
            "acts": [_act(act) for act in (*orders.acts, *heard.acts)],
            "differ": self._differ(orders.caps, got),
            "unread": news,
            "refused": refused,
        }

    def _moment(self, request: Object) -> float:
        if self._given.told:
            self._told.at = _finite(request["at"], "at")
        return self._zone.clock.now()

    def _orders(self, caps: Array, got: Array) -> list[Object]:
        """Return by job what was asked of how many GPUs, and how many have it."""
        found = []
        left = ~np.isnan(caps)
        for job in self._given.jobs:
            own = job.gpus[left[job.gpus]]
            found.append((job.name, own))
            left[own] = False
        found.append(("", np.flatnonzero(left)))
        return [
            {
                "job": name,
                "low": float(caps[own].min()),
                "high": float(caps[own].max()),
                "gpus": len(own),
                "held": int(np.count_nonzero(abs(got[own] - caps[own]) <= CLOSE_W)),
            }
            for name, own in found
            if len(own)
        ]

    def _differ(self, caps: Array, got: Array) -> list[Object]:
        """Return the first GPUs that read another limit than was asked for."""
        gpus = self._given.layout.gpus
        odd = np.flatnonzero(abs(got - caps) > CLOSE_W)[:SHOWN]
        return [{"gpu": gpus[n], "asked": float(caps[n]), "got": float(got[n])} for n in odd]


def reckoned(layout: Layout, sample: Sample) -> Sample:
    """Return a sample in which feeds that nobody meters carry what hangs on them, W.

    Their fixed load, and what their GPUs draw; NaN still where one of those cannot be read.
    """
    feed = layout.fixed.copy()
    np.add.at(feed, layout.feed_of, sample.gpu)
    for place in range(len(feed) - 1, -1, -1):  # children stand after their parents
        if not np.isnan(sample.feed[place]):
            feed[place] = sample.feed[place]
        if layout.parent[place] != TOP:
            feed[layout.parent[place]] += feed[place]
    return replace(sample, feed=feed)


def _meters(body: object, feeds: int) -> Meters:
    if body is None:
        return unmetered(feeds)
    if not isinstance(body, Mapping):
        msg = "meters: an object, or null, is needed"
        raise ValueError(msg)  # noqa: TRY004 - a value of the line
    feed, strain, trip_in, limit = (
        unpacked(body[name], feeds) for name in ("feed", "strain", "trip_in", "limit")
    )
    ac = body["ac"]
    if not isinstance(ac, list) or len(ac) != feeds or any(type(each) is not bool for each in ac):
        msg = f"meters.ac: a list of {feeds} truths is needed"
        raise ValueError(msg)
    return Meters(feed, strain, trip_in, np.array(ac, dtype=bool), limit)


def _news(
    problems: Mapping[str, str], said: dict[str, str], *, forget: bool = True
) -> list[Object]:
    """Return what is new among problems by subject, equal ones together; `said` keeps account."""
    fresh = {subject: text for subject, text in problems.items() if subject not in said}
    if forget:
        for subject in said.keys() - problems.keys():
            del said[subject]
    said.update(fresh)
    groups: dict[str, list[str]] = {}
    for subject, text in fresh.items():
        groups.setdefault(text.replace(f"{subject}: ", "")[:WORDS], []).append(subject)
    return [
        {"why": why, "gpus": len(subjects), "first": subjects[0]}
        for why, subjects in list(groups.items())[:SHOWN]
    ]


def _act(act: Act) -> Object:
    fields = {name: float(v) if np.isfinite(v) else None for name, v in act.fields.items()}
    return {
        "at": act.at,
        "what": act.what,
        "feed": act.feed,
        "job": act.job,
        "text": act.text,
        "fields": fields,
    }


def _finite(value: object, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not np.isfinite(value):
        msg = f"{what}: a number is needed, not {str(value)[:40]!r}"
        raise ValueError(msg)
    return float(value)
