"""The time of a power drill, cut by its events, and means over whole steps of the jobs.

In: a PowerRecord. Out: a Window for each event that lowers what a feed may carry, and signals. A
load swings with the steps of its jobs, so that it is looked at as a mean over whole steps: W =
max(4 s, two periods of the slowest job), as the Dimmer does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackproof.diagnostics.power.record import Act, Array, Event, PowerRecord, Series

LOWERS = {
    "limit": ("lift",),
    "ac-lost": ("ac-back",),
    "coolant-lost": ("coolant-back",),
    "ramp": ("lift",),
}
"""What lowers a feed's limit, and what ends that."""
WINDOW_S = 4.0
BRACKET = 1e-6
FITS = 1.05
"""A limit can be kept where it is this much above what cannot be capped and all floors."""


@dataclass(frozen=True, slots=True)
class Window:
    """From an event to its end: what it was, and what the Dimmer said in it."""

    event: Event
    until: float
    acts: tuple[Act, ...]

    @property
    def name(self) -> str:
        """Return the sub-drill in words."""
        return self.event.id or self.event.what

    @property
    def emergency(self) -> bool:
        """Whether every second counts: the mains are gone."""
        return self.event.what == "ac-lost"

    @property
    def possible(self) -> bool:
        """Whether the feed could go as low as was wanted."""
        return not self.event.asked < self.event.watts * (1.0 - BRACKET)

    @property
    def ramp(self) -> str:
        """Return how fast the Dimmer said that it would go: normal, urgent, step; or nothing."""
        order = ("normal", "urgent", "step")
        said = [act.ramp for act in self.acts if act.what == "dimmer-acts" and act.ramp in order]
        return max(said, key=order.index, default="")

    def first(self, what: str) -> Act | None:
        """Return the first act of a kind in it."""
        return next((act for act in self.acts if act.what == what), None)


def windows(record: PowerRecord) -> list[Window]:
    """Return the windows in the order of time."""
    found = []
    for event in record.of(*LOWERS):
        over = [
            e.at for e in record.of(*LOWERS[event.what]) if e.at > event.at and e.id == event.id
        ]
        until = min(over, default=record.end)
        acts = tuple(act for act in record.acts if event.at <= act.at < until)
        found.append(Window(event, until, acts))
    return found


def span(record: PowerRecord) -> float:
    """Return W, the seconds over which a load is averaged."""
    longest = max((job.period for job in record.jobs.values() if job.period > 0.0), default=0.0)
    return max(WINDOW_S, 2.0 * longest)


def forward(series: Series, values: Array, seconds: float) -> tuple[Array, Array]:
    """Return (begin, mean of `values` over the `seconds` from there on), for each part of a series.

    The last parts, after which no whole span is left, are left out.
    """
    count = max(1, round(seconds / series.every))
    if len(values) < count:
        return np.empty(0), np.empty(0)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    means = (sums[count:] - sums[:-count]) / count
    return series.at[: len(means)] - series.every, means


def inside(at: Array, begin: float, end: float) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which moments lie in [begin, end)."""
    return (at >= begin - BRACKET) & (at < end - BRACKET)


def under_after(at: Array, means: Array, limit: float) -> float:
    """Return the first moment from which on no mean is over the limit; inf where there is none."""
    over = np.flatnonzero(~(means <= limit))
    if not len(at):
        return math.inf
    if not len(over):
        return float(at[0])
    return float(at[over[-1] + 1]) if over[-1] + 1 < len(at) else math.inf


def turns(values: Sequence[float], least: float) -> int:
    """Return how often a sequence changes its direction; moves below `least` are none."""
    count, way, mark = 0, 0, values[0] if len(values) else 0.0
    for value in values:
        move = value - mark
        if abs(move) < least:
            continue
        sign = 1 if move > 0 else -1
        count += way not in (0, sign)
        way, mark = sign, value
    return count


def settled(window: Window, record: PowerRecord, allowed: float) -> tuple[float, float]:
    """Return the part of a window in which its load has to be steady; empty where too short."""
    begin = window.event.at + allowed + span(record)
    return begin, max(begin, window.until - span(record))
