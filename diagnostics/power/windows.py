"""The time of a power drill, cut by its events, and means over whole steps of the jobs.

In: a PowerRecord. Out: a Window for each event that lowers what a feed may carry, and signals. A
load swings with the steps of its jobs, so that it is looked at as a mean over whole steps: W =
max(4 s, two periods of the slowest job), as the Dimmer does.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rackproof.diagnostics.power.record import Act, Array, Event, PowerRecord, Series

Which = npt.NDArray[np.bool_]
LOWERS = {
    "limit": ("lift",),
    "ac-lost": ("ac-back",),
    "coolant-lost": ("coolant-back",),
    "ramp": ("lift",),
}
"""What lowers a feed's limit, and what ends that."""
ALLOWED_S = {"emergency": 1.0, "step": 10.0, "urgent": 20.0, "normal": 60.0}
"""Seconds until the load is under its limit, by how fast the Dimmer may go (DD2)."""
BEHIND_S = 10.0
"""Behind a limit that falls along a ramp it may stay as long as where a step is allowed, or until
the seconds of its pace have passed since the limit began to fall."""
SETTLES_S = 20.0
"""After the time that DD2 allows it may take so long to settle: three windows to see what came of
the way down, and a trim."""
OVER = ("settled", "raise")
"""What the Dimmer says where a cut is done with."""
WINDOW_S, LONGEST_S = 4.0, 600.0
LONG = 4
"""So many windows are averaged where a load is held against a band: what a mean over a window
counts of a step that it cuts is then a third."""
BEFORE = 3
"""Windows whose mean is the load before an event."""
BRACKET = 1e-6
FITS = 1.05
"""A limit can be kept where it is this much above what cannot be capped and all floors."""


@dataclass(frozen=True, slots=True)
class Window:
    """From an event to its end: what it was, and what the Dimmer said in it.

    `before`: what it had said until then of cutting jobs, and of being done with that.
    """

    event: Event
    until: float
    acts: tuple[Act, ...]
    before: tuple[Act, ...] = ()

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
    def begin(self) -> float:
        """Return when the limit has come to its value: at once, or at the end of a ramp."""
        return self.event.at + (self.event.seconds if self.event.what == "ramp" else 0.0)

    @property
    def how(self) -> str:
        """Return by which rule its load has to be under its limit in time."""
        return "emergency" if self.emergency else self.ramp or "normal"

    @property
    def allowed(self) -> float:
        """Return the seconds from `begin` on that it gives until its load is under the limit."""
        most = ALLOWED_S[self.how]
        return max(BEHIND_S, most - self.event.seconds) if self.event.what == "ramp" else most

    def word(self, at: float, job: str) -> str:
        """Return what the Dimmer had said last, at a moment, of how fast it cuts a job.

        Nothing where it said nothing; what it said of no job in particular holds for all. What it
        said before the window holds on, until it says that the job has settled, or is raised.
        """
        own = [a for a in self.acts if a.what == "dimmer-acts" and a.job in ("", job)]
        said = [a.ramp for a in own if a.at <= at + BRACKET]
        if not said:
            before = [a for a in self.before if a.job in ("", job) and a.at <= at + BRACKET]
            before += [a for a in self.acts if a.what in OVER and a.job in ("", job) and a.at <= at]
            said = [before[-1].ramp if before[-1].what == "dimmer-acts" else ""] if before else []
        return said[-1] if said and said[-1] in ALLOWED_S else ""

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
        told = (act for act in record.acts if act.at < event.at)
        before = tuple(act for act in told if act.what in ("dimmer-acts", *OVER))
        found.append(Window(event, until, acts, before))
    return found


def span(record: PowerRecord) -> float:
    """Return W, the seconds over which a load is averaged."""
    longest = max((job.period for job in record.jobs.values() if job.period > 0.0), default=0.0)
    return max(WINDOW_S, 2.0 * min(longest, LONGEST_S))


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


def inside(at: Array, begin: float, end: float) -> Which:
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


def turns(values: Sequence[float], least: float = 1.0) -> int:
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


def long_means(record: PowerRecord, window: Window, begin: float) -> Array:
    """Return the load of a window's feed from a moment on, over long means that end in it.

    Empty where the window is too short for one, or where its load is not known in whole.
    """
    series = record.feed(window.event.feed)
    if series is None:
        return np.empty(0)
    seconds = LONG * span(record)
    at, means = forward(series, series.mean, seconds)
    found = means[inside(at, begin, window.until - seconds)]
    return np.empty(0) if np.isnan(found).any() else found


def load_before(record: PowerRecord, event: Event) -> float:
    """Return the load of an event's feed right before it, over a long mean; NaN if not known."""
    series = record.feed(event.feed, event.run)
    if series is None:
        return math.nan
    seconds = span(record)
    part = inside(series.at, event.at - BEFORE * seconds, event.at + series.every / 2.0)
    whole = part.sum() * series.every >= seconds - series.every
    return float(series.mean[part].mean()) if whole else math.nan


def seconds_under(record: PowerRecord, window: Window) -> float | None:
    """Return when the load was under its limit for good, s after it came; None if not known."""
    series = record.feed(window.event.feed)
    if series is None:
        return None
    at, means = forward(series, series.mean, span(record))
    part = inside(at, window.begin, window.until - span(record))
    if not part.any() or np.isnan(means[part]).any():
        return None
    return under_after(at[part], means[part], window.event.watts) - window.begin


def settled(window: Window, record: PowerRecord) -> tuple[float, float]:
    """Return the part of a window in which its load has to be steady; empty where too short."""
    begin = window.begin + max(window.allowed, span(record)) + SETTLES_S
    return begin, max(begin, window.until)


def brief(window: Window, record: PowerRecord) -> bool:
    """Whether a window is over before the time that its load is given to come under the limit.

    Without sensors nobody sees whether it does: for this a window ends where they are lost.
    """
    lost = (e.at for e in record.of("sensors-lost") if window.event.at <= e.at < window.until)
    return min(lost, default=window.until) - window.begin < window.allowed + span(record)
