"""What the electrical house has to hold: stores (DD8), the negative control (DD12), sags (DD13).

In: a PowerRecord. Out: one Claim for each.
"""

import math

import numpy as np

from rackproof.diagnostics.power.breaker import curve, strain
from rackproof.diagnostics.power.claims import AGAIN, absent
from rackproof.diagnostics.power.record import CONTROL, Array, Event, PowerRecord, Series
from rackproof.diagnostics.power.sound import energies
from rackproof.diagnostics.power.windows import span
from rackproof.diagnostics.recovery.claims import Claim, broken, holds, some, unknown
from rackproof.diagnostics.verdict import Verdict

BATTERY_LEFT = 0.5
"""The charge that a BBU has to end with, at least (DD8)."""
RIDES_S, RIDDEN = 0.020, 0.7
"""A sag up to so many s that leaves so much of the voltage is a supply's own affair (DD13): the
hold-up of a PSU at full load. A deeper one may be the battery's."""
TAKES_OVER_S = 0.004 + 1e-6
"""The time that a BBU has, from the moment at which its bus is low (DD13)."""
TWICE_S = 0.001
"""How far two tellings of a time may lie apart: a tick of the house."""
MOVES = 0.02
"""A load that changes by more than this over a sag has moved."""
OVER = 1.0 + 1e-6
NEAR = 0.01
CARRIES = 0.5
"""A battery that carries a feed gives at least this share of its load."""
EARLY, LATE = 0.8, 1.25
"""How far a trip may lie from the formula, as a share of its time (DD12)."""
SAME_EVENT = 0.02
"""How far the level of the control's limit may lie from that under the Dimmer."""
BARELY = 1e-6
DEEP = 0.75
"""A sag that leaves more than this share of the voltage is none (DD13 asks for 70 %)."""


def stores(record: PowerRecord, *, due: bool) -> Claim:
    """DD8: no store gives more than it can, runs empty, or ends a battery below a half."""
    name = "DD8 stores"
    wrong = misused(record)
    known = _stores(record)
    if not known and not wrong:
        return absent(name, "no store", due=due)
    ends = [(float(s.charge[store][-1]), feed) for feed, store, s in known if store == "bbu"]
    wrong += [f"{feed}: its bbu ends at {left:.0%}" for left, feed in ends if left < BATTERY_LEFT]
    if wrong:
        return broken(name, some(wrong))
    odd = [
        f"{feed}: its {store} cannot be judged"
        for feed, store, series in known
        if not _known(record, feed, store, series)
    ]
    odd = odd or [f"nothing of {each} is in the record" for each in _untold(record, known)]
    odd = odd or ([*energies(record)] if ends else ["no battery is in the record"])
    idle = [e.feed for e in record.of("ac-lost") if not _carried(record, e)]
    odd = odd or [f"the mains of {feed} went, and no battery carries it" for feed in idle]
    if odd:
        return unknown(name, some(odd), AGAIN)
    last = f"the lowest battery ends at {min(ends)[0]:.0%}"
    return holds(name, f"all stores stayed within their ratings; {last}")


def misused(record: PowerRecord) -> list[str]:
    """Return in words how stores were used beyond what they can, as it was seen or told."""
    empty = record.happened("bbu-empty")
    wrong = [f"{event.feed}: its bbu ran empty at {event.at:.1f} s" for event in empty]
    for feed, store, series in _stores(record):
        if _known(record, feed, store, series):
            rated = record.settings[f"{feed}.{store}.power"]
            name = f"{feed}: its {store}"
            wrong += _misused(name, series.charge[store], series.out[store], rated)
    return wrong


def _stores(record: PowerRecord) -> list[tuple[str, str, Series]]:
    """Return (feed, store, series) of each store of the dimmed run."""
    own = [(feed, s) for (run, feed), s in record.series.items() if run != CONTROL]
    return [(feed, store, series) for feed, series in own for store in series.charge]


def _untold(record: PowerRecord, known: list[tuple[str, str, Series]]) -> list[str]:
    """Return the stores, ``feed.store``, that are rated in the layout and have no trace."""
    told = {f"{feed}.{store}" for feed, store, _ in known}
    rated = {key.removesuffix(".power") for key in record.settings if key.endswith(".power")}
    return sorted(rated - told)


def _known(record: PowerRecord, feed: str, store: str, series: Series) -> bool:
    """Say whether a store can be judged: charge and power over time, and what it is rated for."""
    charge, given = series.charge[store], series.out.get(store, np.empty(0))
    rated = record.settings.get(f"{feed}.{store}.power", math.nan)
    told = len(given) == len(charge) > 0 and bool(np.isfinite([charge, given]).all())
    return told and 0.0 < rated < math.inf and bool(np.abs(charge - 0.5).max() <= 0.5 + NEAR)


def _carried(record: PowerRecord, event: Event) -> bool:
    """Say whether a battery gave about the load of its feed while the mains were gone."""
    series = record.feed(event.feed)
    given = None if series is None else series.out.get("bbu")
    if series is None or given is None:
        return False
    back = [e.at for e in record.of("ac-back") if e.at > event.at and e.feed == event.feed]
    part = (series.at > event.at + 1.0) & (series.at <= min(back, default=record.end))
    return bool(part.any() and given[part].mean() >= CARRIES * series.mean[part].mean())


def _misused(name: str, charge: Array, given: Array, rated: float) -> list[str]:
    """Return in words how a store was used beyond what it can."""
    found = []
    if not float(np.abs(given).max()) <= rated * OVER:
        found.append(f"{name} gave {np.abs(given).max() / 1e3:.1f} kW, rated {rated / 1e3:.1f}")
    if not name.endswith("cbu") and not float(charge.min()) > 0.0:  # capacitors may: they do so
        found.append(f"{name} ran empty")
    return found


def control(record: PowerRecord, *, due: bool) -> Claim:
    """DD12: with the Dimmer off the same event trips the breaker, as its formula says."""
    name = "DD12 negative control"
    events = record.of("limit", run=CONTROL)
    if not events:
        return absent(name, "no run without the Dimmer", due=due)
    event = events[0]
    series = record.feed(event.feed, CONTROL)
    if record.control_acts:
        return broken(name, "the Dimmer acted in the run that was to be without it")
    odd = _other(record, event, series)
    if odd or series is None:
        return unknown(name, odd, AGAIN)
    said = (
        f"{event.feed} at {event.steady / event.watts - 1.0:+.0%} of its limit without the Dimmer"
    )
    tripped = [e for e in record.happened("breaker-tripped", run=CONTROL) if e.feed == event.feed]
    if not tripped:
        return broken(name, f"{said}: no trip in {series.at[-1] - event.at:.0f} s, so that the"
                      " drill shows nothing")  # fmt: skip
    took = tripped[0].at - event.at
    made = [_predicted(record, series, each, event) for each in (series.mean, series.seen)]
    wanted = min(made, key=lambda seconds: abs(seconds - took))
    if not EARLY * wanted <= took <= LATE * wanted:
        formula = "never" if math.isinf(wanted) else f"after {wanted:.0f} s"
        return broken(name, f"{said}: a trip after {took:.0f} s, by the formula {formula}")
    return holds(name, f"{said}: tripped after {took:.0f} s, by the formula {wanted:.0f} s")


def _other(record: PowerRecord, event: Event, series: Series | None) -> str:
    """Return in words why a control shows nothing: another event, or a load that is not known."""
    if not 0.0 < event.watts < event.steady:
        return "the limit of the control was not below its load"
    own = [e for e in record.of("limit") if e.feed == event.feed and e.steady > 0.0]
    level = event.watts / event.steady
    if not any(abs(e.watts / e.steady - level) <= SAME_EVENT for e in own):
        return f"under the Dimmer {event.feed} had no limit {1.0 - level:.0%} below its load"
    if (
        series is None
        or not np.isfinite([series.mean, series.seen]).all()
        or not (series.at > event.at).any()
    ):
        return "the control's load is not in the record"
    return "" if curve(record.settings).known else "the breaker's curve is not in the record"


def _predicted(record: PowerRecord, series: Series, watts: Array, event: Event) -> float:
    """Return after how many seconds a load trips a breaker; where it ends before, if it stays.

    The breaker carries what the side above sees: the load, less what capacitors smooth of it.
    """
    after, of = series.at > event.at, curve(record.settings)
    over = np.flatnonzero(strain(watts[after], series.every, event.watts, of) >= 1.0)
    if len(over):
        return float(series.at[after][over[0]] - event.at)
    more = float(watts[after].mean()) / event.watts - 1.0
    return float(of.k / more**of.a) if more > BARELY else math.inf


def sag(record: PowerRecord, *, due: bool) -> Claim:
    """DD13: a short sag moves no load; a longer one is carried at once. Nothing resets a GPU."""
    name = "DD13 sag"
    resets = record.happened("gpu-reset")
    if resets:
        return broken(name, f"{len(resets)} times GPUs were reset, first at {resets[0].at:.1f} s")
    events = record.of("sag")
    if not events:
        return absent(name, "no sag", due=due)
    if not all(0.0 < e.left <= DEEP and 0.0 < e.seconds < math.inf for e in events):
        return unknown(name, f"a sag is not told, or leaves more than {DEEP:.0%}", AGAIN)
    said = [_sagged(record, event) for event in events]
    for verdict in (Verdict.FAIL, Verdict.UNKNOWN):
        found = [words for which, words in said if which is verdict]
        if found:
            return Claim(name, verdict, some(found))
    if len({event.seconds <= RIDES_S for event in events}) < 2:  # noqa: PLR2004 - short and long
        return unknown(name, "there was no short sag, or no long one", AGAIN)
    return holds(name, some([words for _, words in said]))


def _sagged(record: PowerRecord, event: Event) -> tuple[Verdict, str]:
    """Return what is to be said of one sag."""
    end = event.at + event.seconds + 1.0
    near = [e for e in record.happened("bbu-carries") if event.at - 1e-6 <= e.at <= end]
    name = f"{event.left:.0%} for {event.seconds * 1e3:.0f} ms"
    carried = [_after(record, e) for e in near if e.feed == event.feed]
    moved = _moved(record, event.feed, event.at, event.seconds)
    if not math.isfinite(moved):
        return Verdict.UNKNOWN, f"{name}: the load around it is not in the record"
    if moved > MOVES:
        return Verdict.FAIL, f"{name}: the load moved by {moved:.1%}"
    if event.seconds <= RIDES_S and not carried:
        return Verdict.PASS, f"{name}: the supplies rode through"
    if event.seconds <= RIDES_S and event.left >= RIDDEN:
        return Verdict.FAIL, f"{name}: the battery took it"
    return _taken(name, carried)


def _after(record: PowerRecord, event: Event) -> float:
    """Return how long after its bus fell a battery carried it, s; NaN where it is told in two ways.

    By the moments of both, and as it is told.
    """
    low = [e.at for e in record.happened("bus-low") if e.feed == event.feed and e.at <= event.at]
    if not low or abs((event.at - low[-1]) - event.seconds) > TWICE_S:
        return math.nan
    return event.seconds


def _taken(name: str, carried: list[float]) -> tuple[Verdict, str]:
    """Return what is to be said of a long sag, by the seconds after which a battery took it."""
    if not carried:
        return Verdict.FAIL, f"{name}: no battery took it"
    if not math.isfinite(carried[0]):
        return Verdict.UNKNOWN, f"{name}: how fast the battery took it is not told"
    late = carried[0] > TAKES_OVER_S
    how = f"the battery carried it {carried[0] * 1e3:.1f} ms after its bus fell"
    return Verdict.FAIL if late else Verdict.PASS, f"{name}: {how}"


def _moved(record: PowerRecord, feed: str, at: float, seconds: float) -> float:
    """Return by how much a load changed over a sag: whole windows of steps before and after."""
    series = record.feed(feed)
    if series is None:
        return math.nan
    wide = span(record)
    before = series.mean[(series.at > at - wide) & (series.at <= at)]
    end = at + seconds
    after = series.mean[(series.at > end) & (series.at <= end + wide)]
    if min(len(before), len(after)) * series.every < wide - 2.0 * series.every:
        return math.nan
    return abs(float(np.mean(after)) / max(float(np.mean(before)), 1.0) - 1.0)
