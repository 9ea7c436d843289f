"""What a training run may feel of dimming: DD5 to DD7, DD11. Caps change time, not arithmetic.

In: a PowerRecord, its windows, and the claims that the judge of recoveries made of the same run.
Out: one Claim for each.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from rackproof.diagnostics.power.claims import AGAIN, absent, bites
from rackproof.diagnostics.power.record import DIMMED, EVENTS, Limits, PowerRecord, Steps
from rackproof.diagnostics.power.windows import Which, Window, inside, load_before, settled
from rackproof.diagnostics.recovery.claims import Claim, broken, holds, left_out, some, unknown
from rackproof.diagnostics.verdict import Verdict

RESTS_ON = ("reached", "restarts", "lost-steps", "fault-free", "final-state")
"""Claims of the training run that DD5 is made of."""
SMALL_CUT, LOSS_SMALL, LOSS_LARGE = 0.25, 0.75, 1.0
"""A limit up to 25 % lower may cost 0.75 of the cut of GPU power, a lower one all of it (DD6)."""
SPREAD = 0.05
"""How much the spread of the ranks' times may grow (DD7)."""
MARGIN_C = 3.0
BEFORE_S = 20.0
"""What was usual is looked at in the seconds before an event."""
SAME_W = 0.5
RECOVERED = 0.97
"""Before an event a job has this much of its speed of before all events, at least."""
TOLD, TOLD_W = 1.1, 2000.0
"""A job cannot save more than all feeds lost: a share, and what a cut step adds, W."""


def training(
    record: PowerRecord, judged: list[Claim], found: list[Window], *, planned: int, due: bool
) -> Claim:
    """DD5: training never exits, and takes the steps of an undimmed run, bit for bit."""
    name = "DD5 training"
    if not due:
        return left_out(name, "not part of this drill")
    own = [claim for claim in judged if claim.id in RESTS_ON]
    bad = [c for c in own if c.verdict is Verdict.FAIL]
    bad = bad or [c for c in own if c.verdict is not Verdict.PASS]
    if bad:
        verdict = Verdict.FAIL if bad[0].verdict is Verdict.FAIL else Verdict.UNKNOWN
        return Claim(name, verdict, some([f"{c.id}: {c.message}" for c in bad]))
    steps = record.steps.get(record.training)
    if len({claim.id for claim in own}) < len(RESTS_ON) or steps is None or not _known(steps):
        return unknown(name, "the record does not hold the run, or its steps in time", AGAIN)
    wrong = _stood(record, steps)
    if wrong:
        return broken(name, wrong)
    lacks = _lacks(steps, found, planned)
    if lacks:
        return unknown(name, lacks, AGAIN)
    free = next(claim for claim in own if claim.id == "fault-free")
    return holds(name, f"{len(steps.number)} steps under caps, no restart; {free.message}")


def _known(steps: Steps) -> bool:
    """Say whether all of the steps can be read, and each took time."""
    columns = (steps.number, steps.begin, steps.end, steps.spread, steps.watts)
    whole = all(bool(np.isfinite(column).all()) for column in columns)
    return whole and len(steps.number) > 0 and bool((steps.end > steps.begin).all())


def _stood(record: PowerRecord, steps: Steps) -> str:
    """Return in words where a step came again, or none was under way: one follows the other."""
    again = np.flatnonzero(np.diff(steps.number) < 1.0)
    if len(again):
        before, after = steps.number[again[0] : again[0] + 2]
        return f"step {after:.0f} came after step {before:.0f}"
    waits = steps.begin[1:] - steps.end[:-1]
    longest = max(record.jobs[record.training].period, 1.0)
    if not len(waits) or float(waits.max()) <= longest:
        return ""
    place = int(waits.argmax())
    return f"it stood for {waits[place]:.1f} s from {steps.end[place]:.1f} s on"


def _lacks(steps: Steps, found: list[Window], planned: int) -> str:
    """Return in words what is missing of the steps: some of them, or those of an event."""
    count = len(steps.number)
    if (np.diff(steps.number) > 1.0).any() or steps.number[0] > 1.0 or steps.number[-1] != planned:
        most = max(planned, int(steps.number[-1]))
        return f"{count} of {most} steps stand in time"
    for window in found:
        if not steps.begin[0] <= window.event.at <= window.until <= steps.end[-1]:
            return f"{window.name}: its steps are not in the record"
    return ""


def throughput(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD6: what throughput is lost stays below the cut of the job's GPU power."""
    name = "DD6 throughput"
    steps = record.steps.get(record.training)
    own = [w for w in found if w.event.what == "limit" and (w.possible or bites(record, w))]
    if steps is None or not own:
        return absent(name, "no steps under a lowered limit", due=due)
    if not _known(steps):
        return unknown(name, "its steps cannot be read", AGAIN)
    free = _free(record, steps)
    said = [_cost(record, steps, window, free) for window in own]
    for verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        found_so = [words for which, words in said if which is verdict]
        if found_so:
            return Claim(name, verdict, some(found_so))
    low = [w.name for w in own if not w.possible]
    beside = f" (not as low as wanted: {', '.join(low)})" if low else ""
    return holds(name, some([words for _, words in said]) + beside)


def _cost(record: PowerRecord, steps: Steps, window: Window, free: float) -> tuple[Verdict, str]:
    """Return what is to be said of what one window cost."""
    before, under = _parts(record, steps, window)
    if not (before.any() and under.any()):
        return Verdict.UNKNOWN, f"{window.name}: too few steps; hold the drill for longer"
    seconds = steps.end - steps.begin
    rates = [part.sum() / seconds[part].sum() for part in (before, under)]
    watts = [np.average(steps.watts[part], weights=seconds[part]) for part in (before, under)]
    if not rates[0] >= free * RECOVERED or not watts[0] > 0.0:
        return Verdict.UNKNOWN, f"{window.name}: it was not at full speed before it; {AGAIN}"
    if _more_than_all(record, window, float(watts[0] - watts[1])):
        return Verdict.UNKNOWN, f"{window.name}: it is told to save more than all do; {AGAIN}"
    loss, cut = float(1.0 - rates[1] / rates[0]), float(1.0 - watts[1] / watts[0])
    asked = 1.0 - window.event.asked / window.event.steady
    most = LOSS_SMALL if asked <= SMALL_CUT else LOSS_LARGE
    said = f"{window.name}: {loss:.1%} of throughput for {cut:.1%} of the job's GPU power"
    good = loss <= most * max(cut, 0.0) + 1e-3
    return Verdict.PASS if good else Verdict.FAIL, said


def _free(record: PowerRecord, steps: Steps) -> float:
    """Return the steps a second before anything happened; 0 where there are none."""
    first = min((event.at for event in record.of(*EVENTS)), default=0.0)
    own = steps.end <= first
    return float(own.sum() / (steps.end - steps.begin)[own].sum()) if own.any() else 0.0


def _more_than_all(record: PowerRecord, window: Window, saved: float) -> bool:
    """Say whether a job is told to have saved more W of a GPU than the top feeds lost in all."""
    tops = [feed.name for feed in record.feeds.values() if feed.parent not in record.feeds]
    lost = 0.0
    for feed in tops:
        before = load_before(record, replace(window.event, feed=feed))
        after = load_before(record, replace(window.event, feed=feed, at=window.until))
        lost += before - after
    return not saved * record.jobs[record.training].gpus <= lost * TOLD + TOLD_W


def _parts(record: PowerRecord, steps: Steps, window: Window) -> tuple[Which, Which]:
    """Return which steps came right before a window, and which while it was settled."""
    begin, end = settled(window, record)
    before = inside(steps.begin, window.event.at - BEFORE_S, window.event.at)
    before &= steps.end <= window.event.at
    under = inside(steps.begin, begin, end) & (steps.end <= window.until)
    return before, under


def spread(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD7: equal caps keep the ranks of a step together."""
    name = "DD7 spread"
    steps = record.steps.get(record.training)
    own = [w for w in found if w.event.what == "limit" and (w.possible or bites(record, w))]
    if steps is None or not own:
        return absent(name, "no steps under a lowered limit", due=due)
    if not _known(steps) or (steps.spread < 0.0).any():
        return unknown(name, "its steps cannot be read", AGAIN)
    grown = []
    for window in own:
        before, under = _parts(record, steps, window)
        if not (before.any() and under.any()):
            return unknown(name, f"{window.name}: too few steps", "hold the drill for longer")
        low, high = (float(steps.spread[part].mean()) for part in (before, under))
        grown.append((high - low, f"{window.name}: {low:.2%} before, {high:.2%} under it"))
        unequal = _unequal(record, window)
        if unequal:
            return broken(name, unequal)
    most, said = max(grown)
    claim = broken if most > SPREAD else holds
    return claim(name, f"spread of the ranks' times: {said}, {SPREAD:.0%} more allowed")


def _unequal(record: PowerRecord, window: Window) -> str:
    """Return in words where GPUs of a job did not have one cap at the end of a window."""
    for job, caps in record.caps.items():
        own = [cap for cap in caps if cap.at < window.until]
        if own and own[-1].differ:
            return f"{window.name}: {own[-1].differ} GPUs of {job} had another cap than the rest"
    return ""


def put_back(record: PowerRecord, *, due: bool) -> Claim:
    """DD11: after the drill, and after the controller was killed, every setting is what it was."""
    name = "DD11 put back"
    moments = {limits.moment: limits for limits in record.limits}
    if "end" not in moments:
        return absent(name, "no settings after the drill", due=due)
    killed = record.of("controller-killed")
    odd = _unread(record, moments, killed=bool(killed))
    if odd:
        return unknown(name, odd, AGAIN)
    wrong = []
    for moment, limits in ((e.moment, e) for e in record.limits):
        if moment == "dimmed":
            continue
        apart = np.flatnonzero(~(np.abs(limits.now - limits.was) <= SAME_W))
        wrong += [
            f"{moment}: GPU {place} is asked for {limits.now[place]:g} W, it was"
            f" {limits.was[place]:g}"
            for place in apart[:5]
        ]
        wrong += [f"{moment}: {each}" for each in limits.other or ()]
    if wrong:
        return broken(name, some(wrong))
    low = [job for job, caps in record.caps.items() if caps[-1].watts < record.usual - SAME_W]
    if low:
        return unknown(name, f"it ends before the cap of {low[0]} is back", AGAIN)
    held = moments.get("dimmed")
    if killed and (held is None or not (held.now < held.was - SAME_W).any()):
        return unknown(name, "no cap was in force as the controller was killed", AGAIN)
    after = " and after the controller was killed" if killed else ""
    return holds(name, f"{len(moments['end'].was)} GPUs have their limits at the end{after}")


def _unread(record: PowerRecord, moments: Mapping[str, Limits], *, killed: bool) -> str:
    """Return in words why settings cannot be judged: not all looked at, or not told alike."""
    if killed and "after-kill" not in moments:
        return "nobody looked at the settings after the kill"
    least = max(1, sum(job.gpus for job in record.jobs.values()))
    was = moments["end"].was
    for moment, limits in ((e.moment, e) for e in record.limits):
        if len(limits.was) < least or not np.isfinite([limits.was, limits.now]).all():
            return f"{moment}: not the limit of every GPU is known"
        if not np.array_equal(limits.was, was):
            return f"{moment}: what was there before is told in two ways"
        if moment == "end" and limits.other is None:
            return f"{moment}: nobody looked at clocks and smoothing"
    return ""


def cool(record: PowerRecord, *, due: bool) -> Claim:
    """With less coolant no GPU comes near its slowdown temperature (as PS10)."""
    name = "cooling"
    lost = record.of("coolant-lost")
    if not lost:
        return absent(name, "no loss of coolant", due=due)
    hot = record.happened("slowdown")
    if hot:
        return broken(name, some([f"{e.feed} slowed down at {e.at:.1f} s" for e in hot]))
    own = [s.margin for (run, _), s in record.series.items() if run == DIMMED]
    own = [margin for margin in own if not np.isnan(margin).all()]
    told = {e.feed for e in lost if (s := record.feed(e.feed)) and not np.isnan(s.margin).all()}
    if len(told) < len({e.feed for e in lost}) or any(np.isnan(margin).any() for margin in own):
        return unknown(name, "not all of the margin is in the record", AGAIN)
    if not all(0.0 <= e.share < 1.0 for e in lost):
        return unknown(name, "it does not say how much of the coolant is gone", AGAIN)
    least = min(float(margin.min()) for margin in own)
    said = f"the hottest GPU kept {least:.1f} C to its slowdown, {MARGIN_C:g} wanted"
    return (holds if least >= MARGIN_C else broken)(name, said)
