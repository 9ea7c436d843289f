"""What a training run may feel of dimming: DD5 to DD7, DD11. Caps change time, not arithmetic.

In: a PowerRecord, its windows, and the claims that the judge of recoveries made of the same run.
Out: one Claim for each.
"""

import numpy as np

from rackproof.diagnostics.power.claims import AGAIN, allowed
from rackproof.diagnostics.power.record import PowerRecord, Steps
from rackproof.diagnostics.power.windows import Window, inside, settled
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
SAME_W = 1.0


def training(record: PowerRecord, judged: list[Claim], *, due: bool) -> Claim:
    """DD5: training never exits, and takes the steps of an undimmed run, bit for bit."""
    name = "DD5 training"
    if not due:
        return left_out(name, "not part of this drill")
    own = [claim for claim in judged if claim.id in RESTS_ON]
    bad = [c for c in own if c.verdict is Verdict.FAIL]
    bad = bad or [c for c in own if c.verdict is Verdict.UNKNOWN]
    if bad:
        return Claim(name, bad[0].verdict, some([f"{c.id}: {c.message}" for c in bad]))
    steps = record.steps.get(record.training)
    if len(own) < len(RESTS_ON) or steps is None or not len(steps.number):
        return unknown(name, "the record does not hold the run, or its steps in time", AGAIN)
    wanted = np.arange(steps.number[0], steps.number[0] + len(steps.number))
    if not np.array_equal(steps.number, wanted):
        return broken(name, "its steps in time are not one after the other")
    free = next(claim for claim in own if claim.id == "fault-free")
    return holds(name, f"{len(steps.number)} steps under caps, no restart; {free.message}")


def throughput(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD6: what throughput is lost stays below the cut of the job's GPU power."""
    name = "DD6 throughput"
    steps = record.steps.get(record.training)
    own = [w for w in found if w.event.what == "limit"]
    if steps is None or not own:
        return _absent(name, due, "no steps under a lowered limit")
    wrong: list[str] = []
    right: list[str] = []
    low = []
    for window in own:
        before, under = _parts(record, steps, window)
        if not (before.any() and under.any()):
            return unknown(name, f"{window.name}: too few steps", "hold the drill for longer")
        seconds = steps.end - steps.begin
        rates = [part.sum() / seconds[part].sum() for part in (before, under)]
        watts = [np.average(steps.watts[part], weights=seconds[part]) for part in (before, under)]
        loss, cut = 1.0 - rates[1] / rates[0], 1.0 - watts[1] / watts[0]
        asked = 1.0 - window.event.asked / window.event.steady
        most = LOSS_SMALL if asked <= SMALL_CUT else LOSS_LARGE
        said = f"{window.name}: {loss:.1%} of throughput for {cut:.1%} of the job's GPU power"
        if not window.possible:
            low.append(window.name)
        (right if loss <= most * max(cut, 0.0) + 1e-3 else wrong).append(said)
    if wrong:
        return broken(name, some(wrong))
    beside = f" (not as low as wanted: {', '.join(low)})" if low else ""
    return holds(name, some(right) + beside)


def _parts(record: PowerRecord, steps: Steps, window: Window) -> tuple[np.ndarray, np.ndarray]:
    """Return which steps came right before a window, and which while it was settled."""
    begin, end = settled(window, record, allowed(window))
    before = inside(steps.begin, window.event.at - BEFORE_S, window.event.at)
    before &= steps.end <= window.event.at
    under = inside(steps.begin, begin, end) & (steps.end <= window.until)
    return before, under


def spread(record: PowerRecord, found: list[Window], *, due: bool) -> Claim:
    """DD7: equal caps keep the ranks of a step together."""
    name = "DD7 spread"
    steps = record.steps.get(record.training)
    if steps is None:
        return _absent(name, due, "no steps")
    own = [w for w in found if w.event.what == "limit"]
    grown = []
    for window in own:
        before, under = _parts(record, steps, window)
        if not (before.any() and under.any()):
            return unknown(name, f"{window.name}: too few steps", "hold the drill for longer")
        low, high = (float(np.median(steps.spread[part])) for part in (before, under))
        grown.append((high - low, f"{window.name}: {low:.2%} before, {high:.2%} under it"))
    if not grown:
        return _absent(name, due, "no steps under a lowered limit")
    most, said = max(grown)
    claim = broken if most > SPREAD else holds
    return claim(name, f"spread of the ranks' times: {said}, {SPREAD:.0%} more allowed")


def put_back(record: PowerRecord, *, due: bool) -> Claim:
    """DD11: after the drill, and after the controller was killed, every setting is what it was."""
    name = "DD11 put back"
    moments = {limits.moment: limits for limits in record.limits}
    if "end" not in moments:
        return _absent(name, due, "no settings after the drill")
    killed = record.of("controller-killed")
    if killed and "after-kill" not in moments:
        return unknown(name, "nobody looked at the settings after the kill", AGAIN)
    wrong = []
    for moment, limits in moments.items():
        if moment == "dimmed":
            continue
        apart = np.flatnonzero(~(np.abs(limits.now - limits.was) <= SAME_W))
        wrong += [
            f"{moment}: GPU {place} is asked for {limits.now[place]:g} W, it was"
            f" {limits.was[place]:g}"
            for place in apart[:5]
        ]
        wrong += [f"{moment}: {each}" for each in limits.other]
    if wrong:
        return broken(name, some(wrong))
    held = moments.get("dimmed")
    if killed and (held is None or not (held.now < held.was - SAME_W).any()):
        return unknown(name, "no cap was in force as the controller was killed", AGAIN)
    after = " and after the controller was killed" if killed else ""
    return holds(name, f"{len(moments['end'].was)} GPUs have their limits at the end{after}")


def cool(record: PowerRecord, *, due: bool) -> Claim:
    """With less coolant no GPU comes near its slowdown temperature (as PS10)."""
    name = "cooling"
    if not record.of("coolant-lost"):
        return _absent(name, due, "no loss of coolant")
    margins = [s.margin[~np.isnan(s.margin)] for (_, f), s in record.series.items() if f]
    least = min((float(m.min()) for m in margins if len(m)), default=float("nan"))
    hot = record.happened("slowdown")
    if hot:
        return broken(name, some([f"{e.feed} slowed down at {e.at:.1f} s" for e in hot]))
    if least != least:  # noqa: PLR0124 - NaN
        return unknown(name, "no margin is in the record", AGAIN)
    said = f"the hottest GPU kept {least:.1f} C to its slowdown, {MARGIN_C:g} wanted"
    return (holds if least >= MARGIN_C else broken)(name, said)


def _absent(name: str, due: bool, what: str) -> Claim:  # noqa: FBT001 - a plain yes or no
    if due:
        return unknown(name, f"the record holds {what}", AGAIN)
    return left_out(name, "not part of this drill")
