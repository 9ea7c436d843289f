"""What the Dimmer has to hold: DD1 to DD4, DD9, DD10. Limits are those of the design's criteria.

In: a PowerRecord and its windows. Out: one Claim for each. What a rack cannot do, since it cannot
go so low, is SKIP and says so.
"""

import itertools
import math
from collections.abc import Mapping

import numpy as np

from rackproof.diagnostics.power.record import Caps, JobHead, PowerRecord
from rackproof.diagnostics.power.windows import (
    Window,
    forward,
    inside,
    settled,
    span,
    turns,
    under_after,
)
from rackproof.diagnostics.recovery.claims import Claim, broken, holds, left_out, some, unknown

STRAIN = 0.25
"""The most of the trip integral that may be used (DD1)."""
ALLOWED_S = {"emergency": 1.0, "step": 10.0, "urgent": 20.0, "normal": 60.0}
"""Seconds until the load is under its limit, by how fast the Dimmer may go (DD2)."""
LOW, HIGH = 0.93, 0.97
"""Where a load settles, over its limit (DD3)."""
TURNS_A_MINUTE = 1.0
OVER_RAMP = 1.1
"""How much faster than configured a cap may move (DD4)."""
GRAIN_W = 1.0
"""Moves of a cap that are smaller than this are none."""
AGAIN = "hold the drill again"


def _none(name: str, due: bool, what: str) -> Claim:  # noqa: FBT001 - a plain yes or no
    if due:
        return unknown(name, f"the record holds {what}", AGAIN)
    return left_out(name, "not part of this drill")


def no_trip(record: PowerRecord, *, due: bool) -> Claim:
    """DD1: no breaker trips, and none comes near it, at every level."""
    name = "DD1 no trip"
    tripped = record.happened("breaker-tripped")
    if tripped:
        return broken(name, some([f"{e.feed} tripped at {e.at:.1f} s" for e in tripped]))
    worst, where = -math.inf, ""
    for feed in record.feeds:
        series = record.feed(feed)
        if series is None or not len(series.strain) or np.isnan(series.strain).any():
            return _none(name, due, f"no trip integral of {feed}")
        most = float(series.strain.max())
        worst, where = (most, feed) if most > worst else (worst, where)
    if not record.feeds:
        return _none(name, due, "no feed")
    said = f"the trip integral came to {worst:.3f} ({where}), {STRAIN} allowed"
    return (broken if worst > STRAIN else holds)(name, said)


def allowed(window: Window) -> float:
    """Return the seconds that a window gives until its load is under the limit."""
    return ALLOWED_S["emergency" if window.emergency else window.ramp or "normal"]


def seconds_under(record: PowerRecord, window: Window) -> float | None:
    """Return when the load was under its limit for good, s after the event; None without one."""
    series = record.feed(window.event.feed)
    if series is None:
        return None
    at, means = forward(series, series.mean, span(record))
    part = inside(at, window.event.at, window.until - span(record))
    if not part.any() or np.isnan(means[part]).any():
        return None
    return under_after(at[part], means[part], window.event.watts) - window.event.at


def in_time(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD2: the load is under its limit in time. It counts as a mean over the steps that follow."""
    name = "DD2 in time"
    wrong: list[str] = []
    right: list[str] = []
    own = [w for w in found if w.event.what != "ramp"]
    for window in own:
        took, most = seconds_under(record, window), allowed(window)
        if took is None:
            return unknown(name, f"{window.name}: the load is not in the record", AGAIN)
        how = "emergency" if window.emergency else window.ramp or "no ramp"
        said = f"{window.name}: under {window.event.watts / 1e3:.1f} kW after {took:.1f} s"
        (right if took <= most else wrong).append(f"{said}, {most:g} s allowed ({how})")
    return _of_each(name, wrong, right, _floors(own), due=due)


def _floors(found: list[Window]) -> list[str]:
    """Return in words which windows asked for more than the rack can give."""
    return [
        f"{w.name}: {w.event.asked / 1e3:.1f} kW was wanted, and what cannot be capped with all"
        f" floors leaves {w.event.watts / 1e3:.1f} kW"
        for w in found
        if not w.possible
    ]


def _of_each(name: str, wrong: list[str], right: list[str], low: list[str], *, due: bool) -> Claim:
    """Return one claim of many windows; those that could not go so low are named beside it."""
    beside = f" (not as low as wanted: {some(low)})" if low else ""
    if wrong:
        return broken(name, some(wrong) + beside)
    if right:
        return holds(name, some(right) + beside)
    return left_out(name, some(low)) if low else _none(name, due, "no event that lowers a limit")


def settles(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD3: the load settles in 0.93 to 0.97 of its limit, without hunting or undershoot."""
    name = "DD3 settles"
    wrong: list[str] = []
    right: list[str] = []
    short: list[str] = []
    own = [w for w in found if w.event.what == "limit"]
    for window in own:
        series = record.feed(window.event.feed)
        begin, end = settled(window, record, allowed(window))
        at, means = forward(series, series.mean, span(record)) if series else (np.empty(0),) * 2
        part = inside(at, begin, end)
        if not part.any() or np.isnan(means[part]).any():
            short.append(f"{window.name}: no settled part of its load is in the record")
            continue
        shares = means[part] / window.event.watts
        low, high = float(shares.min()), float(shares.max())
        flips = _flips(record, window)
        said = f"{window.name}: {low:.3f} to {high:.3f} of the limit, {flips} turns"
        most = max(1.0, TURNS_A_MINUTE * (window.until - window.event.at) / 60.0)
        good = low >= LOW and high <= HIGH and flips <= most
        (right if good else wrong).append(said)
    if short and not wrong:
        return unknown(name, some(short), "hold the drill for longer")
    return _of_each(name, wrong, right, _floors(own), due=due)


def _flips(record: PowerRecord, window: Window) -> int:
    """Return the most changes of direction of a job's cap in a window."""
    begin, end = window.event.at, window.until
    return max(
        (
            turns([c.watts for c in caps if begin <= c.at < end], GRAIN_W)
            for caps in record.caps.values()
        ),
        default=0,
    )


def ramps(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD4: no cap moves faster than configured, up or down, but where a step is allowed."""
    name = "DD4 ramps"
    rates = [record.settings.get(key, math.nan) for key in ("ramp.down", "ramp.urgent", "ramp.up")]
    if not record.caps or any(math.isnan(rate) for rate in rates):
        return _none(name, due, "no caps, or no ramps that were configured")
    normal, urgent, up = rates
    fastest = {"up": 0.0, "down": 0.0}
    wrong = []
    for job, caps in record.caps.items():
        for begin, rate in _moves(caps, record.settings):
            way = "up" if rate > 0.0 else "down"
            most = up if rate > 0.0 else _allowed_down(found, begin, normal, urgent)
            fastest[way] = max(fastest[way], abs(rate) if most < math.inf else 0.0)
            if abs(rate) > most * OVER_RAMP:
                wrong.append(f"{job}: {rate:+.1f} W/s at {begin:.1f} s, {most:g} configured")
    if wrong:
        return broken(name, some(wrong))
    said = f"at most {fastest['down']:.1f} W/s of a GPU down and {fastest['up']:.1f} up"
    return holds(name, f"{said}; configured {normal:g} ({urgent:g} where urgent) and {up:.2f}")


def _moves(caps: tuple[Caps, ...], settings: Mapping[str, float]) -> list[tuple[float, float]]:
    """Return (when, W/s) of every change of a cap, over the time since the change before it.

    A cap that stood still moves down for one tick of the controller, and up for one cycle.
    """
    found = []
    for before, after in itertools.pairwise(caps):
        still = settings.get("cycle" if after.watts > before.watts else "tick", math.inf)
        seconds = min(after.at - before.at, still)
        if seconds > 0.0 and after.watts != before.watts:
            found.append((after.at, (after.watts - before.watts) / seconds))
    return found


def _allowed_down(found: list[Window], at: float, normal: float, urgent: float) -> float:
    """Return the rate that a cut at a moment may have, by what the Dimmer said that it does."""
    ways = {"normal": normal, "urgent": urgent, "step": math.inf, "": normal}
    own = [w for w in found if w.event.at <= at < w.until]
    return max((math.inf if w.emergency else ways[w.ramp] for w in own), default=normal)


def lost_telemetry(record: PowerRecord, *, due: bool) -> Claim:
    """DD9: while telemetry is lost no cap is raised, and the alarm is."""
    name = "DD9 lost telemetry"
    lost = record.of("sensors-lost")
    if not lost:
        return _none(name, due, "no loss of telemetry")
    for event in lost:
        back = [e.at for e in record.of("sensors-back") if e.at > event.at]
        until = min(back, default=record.end)
        alarms = [
            a for a in record.acts if a.what in ("alarm", "hold") and event.at <= a.at < until
        ]
        if not alarms:
            return broken(name, f"no alarm between {event.at:.1f} and {until:.1f} s")
        raised = [
            f"{job}: raised by {after.watts - before.watts:.0f} W at {after.at:.1f} s"
            for job, caps in record.caps.items()
            for before, after in itertools.pairwise(caps)
            if alarms[0].at < after.at < until and after.watts > before.watts + GRAIN_W
        ]
        if raised:
            return broken(name, some(raised))
    took = alarms[0].at - event.at
    return holds(name, f"the alarm came after {took:.1f} s, and no cap was raised meanwhile")


def priority(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD10: a job is cut only where all jobs of lower priority are at their floors."""
    name = "DD10 priority"
    jobs = sorted(record.jobs.values(), key=lambda job: job.priority)
    if len({job.priority for job in jobs}) < 2:  # noqa: PLR2004 - an order wants two
        return _none(name, due, "no two jobs of different priority")
    wrong, seen = [], []
    for window in (w for w in found if w.event.what != "ramp"):
        at = window.until - 1e-3
        now = {job.name: _cap(record, job, at) for job in jobs}
        before = {job.name: _cap(record, job, window.event.at) for job in jobs}
        cut = [j for j in jobs if now[j.name] < before[j.name] - GRAIN_W]
        seen += [f"{window.name}: {', '.join(j.name for j in cut) or 'nobody'} cut"]
        for job in cut:
            spared = [j for j in jobs if j.priority < job.priority and now[j.name] > j.floor + 1.0]
            wrong += [
                f"{window.name}: {job.name} was cut while {j.name} still had {now[j.name]:.0f} W"
                f" of a GPU, floor {j.floor:.0f}"
                for j in spared
            ]
    if wrong:
        return broken(name, some(wrong))
    return holds(name, some(seen)) if seen else _none(name, due, "no cut")


def _cap(record: PowerRecord, job: JobHead, at: float) -> float:
    """Return a job's cap at a moment, inf before it had one."""
    own = [cap.watts for cap in record.caps.get(job.name, ()) if cap.at <= at]
    return own[-1] if own else math.inf
