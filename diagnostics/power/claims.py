"""What the Dimmer has to hold: DD1 to DD4, DD9, DD10. Limits are those of the design's criteria.

In: a PowerRecord and its windows. Out: one Claim for each. What a rack cannot do, since it cannot
go so low, is SKIP and says so.
"""

import itertools
import math

import numpy as np

from rackproof.diagnostics.power.record import Caps, PowerRecord
from rackproof.diagnostics.power.sound import strains
from rackproof.diagnostics.power.windows import (
    Window,
    brief,
    load_before,
    long_means,
    seconds_under,
    settled,
    turns,
    windows,
)
from rackproof.diagnostics.recovery.claims import Claim, broken, holds, left_out, some, unknown

STRAIN = 0.25
"""The most of the trip integral that may be used (DD1)."""
LONGER = "hold the drill for longer"
SILENT_S = 30.0
"""The longest that lost telemetry may go without an alarm (DD9)."""
NOTICED_S = 3.0
"""One cycle: from then on no cap may rise while telemetry is lost."""
LOW, HIGH = 0.93, 0.97
"""Where a load settles, over its limit (DD3); it never falls below it: an undershoot of 2 %."""
TURNS_A_MINUTE = 1.0
OVER_RAMP = 1.1
"""How much faster than configured a cap may move (DD4)."""
GRAIN = 0.02
"""Of a tick: looks come that much early or late."""
GRAIN_W = 1.0
"""Moves of a cap that are smaller than this are none."""
AGAIN = "hold the drill again"


def absent(name: str, what: str, *, due: bool) -> Claim:
    """Return what is said where a record lacks what a claim is made of."""
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
            return absent(name, f"no trip integral of {feed}", due=due)
        most = float(series.strain.max())
        worst, where = (most, feed) if most > worst else (worst, where)
    if not record.feeds:
        return absent(name, "no feed", due=due)
    said = f"the trip integral came to {worst:.3f} ({where}), {STRAIN} allowed"
    if worst > STRAIN:
        return broken(name, said)
    untrue = [*strains(record)]
    if untrue:
        return unknown(name, some(untrue), AGAIN)
    return holds(name, f"no trip{_levels(record)}; {said}")


def _levels(record: PowerRecord) -> str:
    """Return in words how far limits fell below the load, as they were set in truth."""
    cuts = {round(100.0 * (1.0 - w.event.watts / w.event.steady)) for w in windows(record)
            if w.event.steady > 0.0 and w.event.watts > 0.0}  # fmt: skip
    return f" at {', '.join(f'-{cut} %' for cut in sorted(cuts))}" if cuts else ""


def bites(record: PowerRecord, window: Window) -> bool:
    """Whether a limit was below the load that it met: else nothing had to be cut."""
    return load_before(record, window.event) > window.event.watts


def in_time(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD2: the load is under its limit in time. It counts as a mean over the steps that follow."""
    name = "DD2 in time"
    wrong: list[str] = []
    right: list[str] = []
    doubts: list[Claim] = []
    for window in found:
        most, of = window.allowed, window.name
        if not bites(record, window):
            if window.possible:
                doubts.append(unknown(name, f"{of}: its limit was not below the load", AGAIN))
            continue
        took = seconds_under(record, window)
        said = f"{of}: under {window.event.watts / 1e3:.1f} kW"
        if took is None:
            doubts.append(unknown(name, f"{of}: the load is not in the record", AGAIN))
        elif took > most and brief(window, record):
            doubts.append(unknown(name, f"{of}: not so for {most:g} s that can be judged", LONGER))
        else:
            when = "at no time" if math.isinf(took) else f"after {took:.1f} s"
            told = f"{said} {when}, {most:g} s allowed ({window.how})"
            (right if took <= most else wrong).append(told)
    if doubts and not wrong:
        return doubts[0]
    return _of_each(name, wrong, right, _floors(found), due=due)


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
    return left_out(name, some(low)) if low else absent(name, "no limit that fell", due=due)


def settles(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD3: the load settles in 0.93 to 0.97 of its limit, without hunting or undershoot."""
    name = "DD3 settles"
    wrong: list[str] = []
    right: list[str] = []
    own = [w for w in found if w.event.what == "limit"]
    for window in (w for w in own if w.possible or bites(record, w)):
        all_of_it = long_means(record, window, window.event.at)
        means = long_means(record, window, settled(window, record)[0])
        if not len(means) or not len(all_of_it):
            return unknown(name, f"{window.name}: no settled part of its load is in the record",
                           LONGER)  # fmt: skip
        low = float(all_of_it.min()) / window.event.watts
        high = float(means.max()) / window.event.watts
        flips = _flips(record, window)
        most = max(1.0, TURNS_A_MINUTE * (window.until - window.event.at) / 60.0)
        good = low >= LOW and high <= HIGH and flips <= most
        turned = f"{flips} turn{'' if flips == 1 else 's'} of a cap"
        said = f"{window.name}: {low:.3f} to {high:.3f} of the limit, {turned}"
        (right if good else wrong).append(said)
    return _of_each(name, wrong, right, _floors(own), due=due)


def _flips(record: PowerRecord, window: Window) -> int:
    """Return the most changes of direction of a job's cap in a window."""
    begin, end = window.event.at, window.until
    return max(
        (
            turns([_cap(record, job, begin), *(c.watts for c in caps if begin <= c.at < end)])
            for job, caps in record.caps.items()
        ),
        default=0,
    )


def ramps(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD4: no cap moves faster than configured, up or down, but where a step is allowed."""
    name = "DD4 ramps"
    keys = ("ramp.down", "ramp.urgent", "ramp.up", "tick", "cycle")
    rates = [record.settings.get(key, math.nan) for key in keys]
    if not record.caps or not all(0.0 < rate < math.inf for rate in rates):
        return absent(name, "no caps, or not what was configured", due=due)
    normal, urgent, up = rates[:3]
    fastest = {"up": 0.0, "down": 0.0}
    wrong = []
    for job, caps in record.caps.items():
        for begin, rate in _moves(caps, record):
            way = "up" if rate > 0.0 else "down"
            own = (_way(caps, begin, rates[3]), begin, job)
            most = up if rate > 0.0 else _allowed_down(found, own, rates)
            fastest[way] = max(fastest[way], abs(rate) if most < math.inf else 0.0)
            if abs(rate) > most * OVER_RAMP:
                how = (
                    f"{most:.3g} configured" if most else "and the Dimmer did not say that it acts"
                )
                wrong.append(f"{job}: {rate:+.1f} W/s at {begin:.1f} s, {how}")
    if wrong:
        return broken(name, some(wrong))
    if not any(fastest.values()):
        return absent(name, "no cap that moved", due=due)
    said = f"at most {fastest['down']:.1f} W/s of a GPU down and {fastest['up']:.1f} up"
    return holds(name, f"{said}; configured {normal:g} ({urgent:g} where urgent) and {up:.2f}")


def _moves(caps: tuple[Caps, ...], record: PowerRecord) -> list[tuple[float, float]]:
    """Return (when, W/s) of every change of a cap, over a tick of moving down or a cycle up.

    A cap that stood still has moved for one tick, or for one cycle upwards, at its first move.
    Before the first one that is told, a GPU has what is usual.
    """
    found = []
    usual = caps[0].watts if math.isinf(record.usual) else record.usual
    told = [Caps(-math.inf, "", usual), *caps]
    tick, cycle = record.settings["tick"], record.settings["cycle"]
    for place in range(1, len(told)):
        up = told[place].watts > told[place - 1].watts
        least, still = (cycle, cycle) if up else (tick, tick)
        moving, begin = 0.0, place
        while begin > 0 and moving < least * (1.0 - GRAIN):
            gap = told[begin].at - told[begin - 1].at
            moving += gap if gap <= 2.0 * still and not up else min(gap, still)
            begin -= 1
        change = told[place].watts - told[begin].watts
        if change and (change > 0.0) == up:
            found.append((told[place].at, change / moving))
    return found


def _way(caps: tuple[Caps, ...], at: float, tick: float) -> float:
    """Return when the way down began on which a cap is at a moment, without a rest."""
    place = max(n for n, cap in enumerate(caps) if cap.at <= at)
    while (
        place > 1
        and caps[place - 1].watts < caps[place - 2].watts
        and caps[place].at - caps[place - 1].at <= 2.0 * tick
    ):
        place -= 1
    return caps[place].at


def _allowed_down(found: list[Window], cut: tuple[float, float, str], rates: list[float]) -> float:
    """Return the rate that a cut may have, by what the Dimmer said that it does.

    The cut is (when the way down began, when it is, of which job); what was said in a window holds
    for the ways that began in it, though a limit is lifted meanwhile. One of which it said nothing,
    now or as the way began, may have none; if the word comes within a tick, the normal one.
    """
    (begun, at, job), (normal, urgent, _, tick, _) = cut, rates
    ways = {"normal": normal, "urgent": urgent, "step": math.inf}
    own = [w for w in found if w.event.at <= at and begun < w.until]

    def most(window: Window) -> float:
        late = normal if window.word(at + tick, job) else 0.0
        said = window.word(at, job) or window.word(begun, job)
        return math.inf if window.emergency else ways.get(said, late)

    return max((most(window) for window in own), default=normal)


def lost_telemetry(record: PowerRecord, *, due: bool) -> Claim:
    """DD9: while telemetry is lost no cap is raised, and the alarm is."""
    name = "DD9 lost telemetry"
    lost = record.of("sensors-lost")
    if not lost or not record.caps:
        return absent(name, "no loss of telemetry, or no caps", due=due)
    took = []
    for event in lost:
        if not 0.0 < event.share <= 1.0:
            return unknown(name, "how many sensors were lost is not told", AGAIN)
        back = [e.at for e in record.of("sensors-back") if e.at > event.at]
        until = min(back, default=record.end)
        if not any(_cap(record, j, event.at) < record.usual - GRAIN_W for j in record.jobs):
            return unknown(name, "no cap was in force that could have been raised", AGAIN)
        alarms = [a for a in record.acts if a.what == "alarm" and event.at <= a.at < until]
        alarm = alarms[0].at - event.at if alarms else math.inf
        if alarm > SILENT_S:
            return broken(name, f"no alarm in {min(until - event.at, SILENT_S):.0f} s")
        took.append(alarm)
        raised = [
            f"{job}: raised by {after.watts - before.watts:.0f} W at {after.at:.1f} s"
            for job, caps in record.caps.items()
            for before, after in itertools.pairwise(caps)
            if event.at + min(alarm, NOTICED_S) < after.at < until
            and after.watts > before.watts + GRAIN_W
        ]
        if raised:
            return broken(name, some(raised))
    return holds(name, f"the alarm came after {max(took):.1f} s, and no cap was raised meanwhile")


def priority(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD10: a job is cut only where all jobs of lower priority are at their floors."""
    name = "DD10 priority"
    unequal = _unequal(record)
    if unequal:
        return broken(name, some(unequal))
    jobs = sorted(record.jobs.values(), key=lambda job: job.priority)
    if len({job.priority for job in jobs}) < 2:  # noqa: PLR2004 - an order wants two
        return absent(name, "no two jobs of different priority", due=due)
    if any(job.name not in record.caps for job in jobs):
        return absent(name, "not the caps of every job", due=due)
    wrong, seen = [], []
    for window in (w for w in found if not brief(w, record)):  # in a brief one all are on their way
        at = window.until - 1e-3
        now = {job.name: _cap(record, job.name, at) for job in jobs}
        cut = [j for j in jobs if now[j.name] < record.usual - GRAIN_W]
        seen += [f"{window.name}: {', '.join(j.name for j in cut)} cut"] if cut else []
        for job in cut:
            spared = [j for j in jobs if j.priority < job.priority and now[j.name] > j.floor + 1.0]
            wrong += [
                f"{window.name}: {job.name} was cut while {j.name} still had {now[j.name]:.0f} W"
                f" of a GPU, floor {j.floor:.0f}"
                for j in spared
            ]
    if wrong:
        return broken(name, some(wrong))
    return holds(name, some(seen)) if seen else absent(name, "no cut", due=due)


def _unequal(record: PowerRecord) -> list[str]:
    """Return in words where GPUs of one job had several caps, and nobody said that it was refused.

    Who is asked for less, or more, than the rest of its job is cut by no priority at all.
    """
    apart = [cap for caps in record.caps.values() for cap in caps if cap.differ]
    late = record.settings.get("cycle", 0.0)
    told = [act for act in record.acts if act.what in ("refused", "foreign-cap")]
    return [
        f"{cap.differ} GPUs of {cap.job} had another cap than the rest at {cap.at:.1f} s"
        for cap in apart
        if not any(act.job == cap.job and act.at <= cap.at + late for act in told)
    ]


def _cap(record: PowerRecord, job: str, at: float) -> float:
    """Return a job's cap at a moment, what is usual before it had one."""
    own = [cap.watts for cap in record.caps.get(job, ()) if cap.at <= at]
    return own[-1] if own else record.usual
