"""What the electrical house has to hold: stores (DD8), the negative control (DD12), sags (DD13).

In: a PowerRecord. Out: one Claim for each.
"""

import math

import numpy as np

from rackproof.diagnostics.power.claims import AGAIN
from rackproof.diagnostics.power.record import CONTROL, Array, PowerRecord, Series
from rackproof.diagnostics.recovery.claims import Claim, broken, holds, left_out, some, unknown

BATTERY_LEFT = 0.5
"""The charge that a BBU has to end with, at least (DD8)."""
RIDES_S = 0.020
"""A sag up to this long is a supply's own affair (DD13): the hold-up of a PSU at full load."""
TAKES_OVER_S = 0.004
"""The time that a BBU has, from the moment at which its bus is low (DD13)."""
MOVES = 0.02
"""A load that changes by more than this over a sag has moved."""
OVER = 1.0 + 1e-6


def stores(record: PowerRecord, *, due: bool) -> Claim:
    """DD8: no store gives more than it can, runs empty, or ends a battery below a half."""
    name = "DD8 stores"
    wrong, ends = [], []
    known = [(feed, s) for (run, feed), s in record.series.items() if run != CONTROL and s.charge]
    if not known:
        return _absent(name, due, "no store")
    for feed, series in known:
        for store, charge in series.charge.items():
            given = series.out.get(store, np.empty(0))
            rated = record.settings.get(f"{feed}.{store}.power", math.nan)
            if len(given) != len(charge) or not len(charge) or np.isnan(charge).any() or not rated:
                return unknown(name, f"{feed}: its {store} cannot be judged", AGAIN)
            wrong += _misused(f"{feed}: its {store}", charge, given, rated)
            ends += [(float(charge[-1]), feed)] if store == "bbu" else []
    wrong += [f"{feed}: its bbu ends at {left:.0%}" for left, feed in ends if left < BATTERY_LEFT]
    if wrong:
        return broken(name, some(wrong))
    last = f"the lowest battery ends at {min(ends)[0]:.0%}" if ends else "there is no battery"
    return holds(name, f"all stores stayed within their ratings; {last}")


def _misused(name: str, charge: Array, given: Array, rated: float) -> list[str]:
    """Return in words how a store was used beyond what it can."""
    found = []
    if not float(np.abs(given).max()) <= rated * OVER:
        found.append(f"{name} gave {np.abs(given).max() / 1e3:.1f} kW, rated {rated / 1e3:.1f}")
    if not float(charge.min()) > 0.0:
        found.append(f"{name} ran empty")
    return found


def control(record: PowerRecord, *, due: bool) -> Claim:
    """DD12: with the Dimmer off the same event trips the breaker, as its formula says."""
    name = "DD12 negative control"
    events = record.of("limit", run=CONTROL)
    if not events:
        return _absent(name, due, "no run without the Dimmer")
    event = events[0]
    series = record.feed(event.feed, CONTROL)
    if record.control_acts:
        return broken(name, "the Dimmer acted in the run that was to be without it")
    over = event.steady / event.watts
    said = f"{event.feed} at {over - 1.0:+.0%} of its limit without the Dimmer"
    tripped = [e for e in record.happened("breaker-tripped", run=CONTROL) if e.feed == event.feed]
    if series is None:
        return unknown(name, "the control's load is not in the record", AGAIN)
    wanted = _predicted(record, series, event.at, event.watts)
    if not tripped:
        return broken(name, f"{said}: no trip in {series.at[-1] - event.at:.0f} s, so that the"
                      " drill shows nothing")  # fmt: skip
    took = tripped[0].at - event.at
    if wanted is None or not 0.8 * wanted <= took <= 1.25 * wanted:
        formula = "never" if wanted is None else f"after {wanted:.0f} s"
        return broken(name, f"{said}: a trip after {took:.0f} s, by the formula {formula}")
    return holds(name, f"{said}: tripped after {took:.0f} s, by the formula {wanted:.0f} s")


def _predicted(record: PowerRecord, series: Series, begin: float, limit: float) -> float | None:
    """Return after how many seconds its load trips a breaker: sum of dt/t_trip, t = k/(r - 1)^a."""
    k, a, decay = (record.settings.get(f"breaker.{key}", math.nan) for key in ("k", "a", "decay"))
    strain = 0.0
    for at, watts in zip(series.at, series.mean, strict=True):
        if at <= begin:
            continue
        over = watts / limit - 1.0
        if over > 0.0:
            strain += series.every * over**a / k
        else:
            strain *= math.exp(-series.every / decay)
        if strain >= 1.0:
            return float(at - begin)
    mean = float(np.mean(series.mean[series.at > begin])) / limit - 1.0
    return k / mean**a if mean > 0.0 else None


def sag(record: PowerRecord, *, due: bool) -> Claim:
    """DD13: a short sag moves no load; a longer one is carried at once, and resets no GPU."""
    name = "DD13 sag"
    events = record.of("sag")
    if not events:
        return _absent(name, due, "no sag")
    wrong: list[str] = []
    right: list[str] = []
    for event in events:
        near = [
            e for e in record.electric if event.at - 1e-6 <= e.at <= event.at + event.seconds + 1
        ]
        said = f"{event.left:.0%} for {event.seconds * 1e3:.0f} ms"
        resets = [e for e in near if e.what == "gpu-reset"]
        carried = [e for e in near if e.what == "bbu-carries" and e.feed == event.feed]
        moved = _moved(record, event.feed, event.at, event.seconds)
        if resets:
            wrong.append(f"{said}: {len(resets)} GPUs were reset")
        elif moved is None or moved > MOVES:
            wrong.append(f"{said}: the load moved by {moved or math.nan:.1%}")
        elif event.seconds <= RIDES_S:
            (wrong if carried else right).append(
                f"{said}: {'the battery took it' if carried else 'the supplies rode through'}"
            )
        elif not carried:
            wrong.append(f"{said}: no battery took it")
        elif not carried[0].seconds <= TAKES_OVER_S:
            wrong.append(f"{said}: the battery took {carried[0].seconds * 1e3:.1f} ms")
        else:
            took = carried[0].seconds * 1e3
            right.append(f"{said}: the battery carried it {took:.1f} ms after its bus fell")
    if wrong:
        return broken(name, some(wrong))
    return holds(name, some(right))


def _moved(record: PowerRecord, feed: str, at: float, seconds: float) -> float | None:
    """Return by how much a load changed over a sag: whole windows of steps before and after."""
    series = record.feed(feed)
    if series is None:
        return None
    longest = max((job.period for job in record.jobs.values()), default=1.0)
    before = series.mean[(series.at > at - 2 * longest) & (series.at <= at)]
    end = at + seconds
    after = series.mean[(series.at > end) & (series.at <= end + 2 * longest)]
    if not len(before) or not len(after):
        return None
    return abs(float(np.mean(after)) / float(np.mean(before)) - 1.0)


def _absent(name: str, due: bool, what: str) -> Claim:  # noqa: FBT001 - a plain yes or no
    if due:
        return unknown(name, f"the record holds {what}", AGAIN)
    return left_out(name, "not part of this drill")
