"""Does a power record hold together, and hold all of its drill? What does not makes UNKNOWN.

In: a PowerRecord, and the names of the sub-drills that have to be in it. Out: doubts in words. A
record of which parts are missing, or that contradicts itself, must never let a claim look shown.
"""

import math
from collections.abc import Collection, Iterator

import numpy as np

from rackproof.diagnostics.power.least import EVENTS_OF
from rackproof.diagnostics.power.record import DIMMED, EVENTS, Array, Event, PowerRecord
from rackproof.diagnostics.power.sound import drawn
from rackproof.diagnostics.power.windows import FITS, LOWERS, load_before

NEAR = 0.05
"""How far the load that an event names may lie from the one that the trace shows."""
ENDS = {
    **LOWERS, "sensors-lost": ("sensors-back",), "controller-killed": ("controller-back",),
}  # fmt: skip
"""What has to be ended, and by what."""
SAME = 1e-3
APART_S = 2.0
"""How far apart the traces of two feeds may begin or end."""


def doubts(record: PowerRecord, parts: Collection[str] = ()) -> list[str]:
    """Return in words what is missing of a record, or cannot be."""
    if not record.series or not record.feeds or not record.jobs:
        return ["it holds no traces, no feeds or no jobs"]
    found = [*gaps(record, parts), *_roots(record)]
    if found and not record.events:
        return found
    for look in (_traces, _tree, _events, _limits, _loads, _jobs, drawn):
        found += look(record)
    return found


def gaps(record: PowerRecord, parts: Collection[str]) -> list[str]:
    """Return in words what happened, or came to its end, and is not in a record."""
    unended = [
        f"nothing ends the {event.what} at {event.at:.1f} s"
        for event in record.of(*ENDS)
        if not _ends(record, event)
    ]
    silent = [] if record.acts else ["nothing that the Dimmer said is in it"]
    felt = record.of("ac-lost", "sag") and not record.electric
    dark = ["nothing that the equipment did is in it"] if felt else []
    return [*_parts(record, parts), *unended, *silent, *dark]


def _parts(record: PowerRecord, parts: Collection[str]) -> Iterator[str]:
    """Each part that has to be in it was held, whole: all of its events are there."""
    held = {event.id for event in record.events if event.what in EVENTS}
    for part in sorted(parts):
        if part not in held:
            yield f"nothing of {part} is in it"
            continue
        told = {event.what for event in record.events if event.id == part}
        missing = [what for what in EVENTS_OF.get(part, ()) if what not in told]
        if missing:
            yield f"{part} is in it without its {missing[0]}"
    looks = sorted({"dimmed", "after-kill"} & {limits.moment for limits in record.limits})
    if looks and not (record.of("controller-killed") and record.of("controller-back")):
        yield f"settings were looked at ({looks[0]}), and no controller was killed and came back"


def _roots(record: PowerRecord) -> Iterator[str]:
    """All feeds hang on one, over other feeds; none hangs on itself."""
    roots = [feed.name for feed in record.feeds.values() if not feed.parent]
    if len(roots) != 1:
        yield f"{len(roots)} of its feeds hang on none, one is due"
    for feed in record.feeds.values():
        above, seen = feed, {feed.name}
        while above.parent and above.parent not in seen and above.parent in record.feeds:
            above = record.feeds[above.parent]
            seen.add(above.name)
        if above.parent:
            known = "hangs on itself" if above.parent in record.feeds else "is no feed"
            yield f"{above.parent}, above {feed.name}, {known}"


def _traces(record: PowerRecord) -> Iterator[str]:
    """A trace of each feed, all over the same time, with every load in it."""
    for run, feed in record.series:
        if feed not in record.feeds:
            yield f"there is a trace of {feed} ({run}), which is no feed"
    told = [each.at for each in record.acts]
    told += [caps[-1].at for caps in record.caps.values() if caps]
    told += [float(steps.end[-1]) for steps in record.steps.values() if len(steps.end)]
    if max(told, default=0.0) > record.end + APART_S:
        yield f"its traces end at {record.end:.0f} s, and it tells of {max(told):.0f} s"
    for feed in record.feeds:
        series = record.feed(feed)
        if series is None:
            yield f"there is no trace of {feed}"
            continue
        begin, end = float(series.at[0] - series.every), float(series.at[-1])
        if abs(begin) > APART_S or record.end - end > APART_S:
            yield f"the trace of {feed} goes from {begin:.0f} to {end:.0f} s of {record.end:.0f}"
        if np.isnan(series.mean).any() or np.isnan(series.seen).any():
            yield f"the trace of {feed} has holes"


def _tree(record: PowerRecord) -> Iterator[str]:
    """What a feed carries is not less than what the feeds below it take."""
    for feed in record.feeds:
        series = record.feed(feed)
        below = [record.feed(f.name) for f in record.feeds.values() if f.parent == feed]
        taken = [float(np.nanmean(s.seen)) for s in below if s is not None and not _blank(s.seen)]
        if series is None or not taken or _blank(series.mean):
            continue
        if math.fsum(taken) > float(np.nanmean(series.mean)) * (1.0 + NEAR):
            yield f"{feed} carries less than the feeds below it take"


def _blank(values: Array) -> bool:
    return bool(np.isnan(values).all())


def _events(record: PowerRecord) -> Iterator[str]:
    """Each event is of a known kind and feed, and in the time of the run."""
    for event in record.events:
        name = f"{event.what} at {event.at:.1f} s"
        if event.what not in EVENTS or event.feed not in record.feeds:
            yield f"{name} is of no known kind or feed"
        if event.run == DIMMED and not -SAME <= event.at <= record.end + SAME:
            yield f"{name} lies outside of the run"


def _ends(record: PowerRecord, event: Event) -> bool:
    over = record.of(*ENDS[event.what])
    return any(e.at > event.at and e.id == event.id and e.feed == event.feed for e in over)


def _limits(record: PowerRecord) -> Iterator[str]:
    """A limit is the one that was asked for, or else the lowest that the feed can keep."""
    gpus = sum(job.gpus for job in record.jobs.values())
    lowest = max((job.floor for job in record.jobs.values()), default=math.nan)
    least = math.fsum(job.gpus * job.floor for job in record.jobs.values())
    spare = max((len(each.was) for each in record.limits), default=gpus) - gpus
    for feed in record.feeds.values():
        if not 0.0 < feed.rated < math.inf:
            yield f"what {feed.name} is rated for is not told"
        if not feed.floors <= (least + max(spare, 0) * lowest) * (1.0 + SAME):
            yield f"the floors of {feed.name} are above those of all jobs"
    for event in record.events:
        if event.what not in LOWERS or event.feed not in record.feeds:
            continue
        numbers = [event.watts, event.asked, event.steady]
        numbers += [event.seconds] if event.what == "ramp" else []
        if not all(0.0 < number < math.inf for number in numbers):
            yield f"{event.what} at {event.at:.1f} s does not say its limit"
            continue
        feed = record.feeds[event.feed]
        low = FITS * (feed.fixed + feed.floors)
        wanted = max(min(event.asked, event.steady), low)
        if event.watts > wanted * (1.0 + SAME) or not low > 0.0:
            yield (f"{event.what} at {event.at:.1f} s: {event.watts / 1e3:.1f} kW were set, though"
                   f" {wanted / 1e3:.1f} kW were asked for and can be kept")  # fmt: skip


def _loads(record: PowerRecord) -> Iterator[str]:
    """The load that an event names is the one that the trace of its feed shows."""
    for event in record.events:
        if event.what not in LOWERS or event.feed not in record.feeds:
            continue
        load = load_before(record, event)
        if not abs(load - event.steady) <= NEAR * load:
            yield (f"{event.what} at {event.at:.1f} s names a load of {event.steady / 1e3:.1f} kW,"
                   f" the trace of {event.feed} shows {load / 1e3:.1f}")  # fmt: skip


def _jobs(record: PowerRecord) -> Iterator[str]:
    """One job is the training run; of each job all caps are told, from before the first event."""
    if sum(job.training for job in record.jobs.values()) != 1:
        yield "not one of its jobs is the training run"
    first = min((event.at for event in record.events if event.run == DIMMED), default=math.inf)
    for name, job in record.jobs.items():
        if not (job.gpus > 0 and job.floor > 0.0 and job.period > 0.0):
            yield f"job {name} has no GPUs, floor or period"
        if any(cap.watts < job.floor * (1.0 - SAME) for cap in record.caps.get(name, ())):
            yield f"a cap of {name} lies under its floor"
        caps = record.caps.get(name)
        if not caps or caps[0].at >= first:
            yield f"the caps of {name} are not told from the beginning"
        if name not in record.steps:
            yield f"no step of {name} is told"
    for name in {*record.caps, *record.steps} - {*record.jobs}:
        yield f"{name} is no job of it"
