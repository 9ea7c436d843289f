"""The past of a zone, and what it says of the power that is to come.

In: looks that are believed, and the caps in force. Out, for each feed, the mean power of the window
(Pm) and ``Pn = Pm - cuts that were ordered and have not yet arrived in it``. What is on its way is
the model's power under the caps of each stretch of the window, less that under the caps ordered.
"""

from dataclasses import dataclass

import numpy as np

from rackproof.harness.power.dimmer.demand import Demand, Draw, demand
from rackproof.harness.power.dimmer.history import Rows
from rackproof.harness.power.dimmer.settings import Settings
from rackproof.harness.power.dimmer.shape import Shape
from rackproof.harness.power.dimmer.trust import Flags, Seen
from rackproof.harness.power.zone import Array

NEAR_W = 1.0
RESOLVED = 3.0
"""A job's high draw is seen where so many looks fall into one iteration."""
PAIR = 2.0
"""Grains that two looks last together, at least, by whose mean a GPU ignores its cap."""
ENOUGH = 0.8
"""A window of which this share was seen can be judged: as much as may be missing."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Of each feed: `mean` of the window, W; `coming` when all that is ordered has arrived, W.

    `spread` is how far the caps moved it within the window, W; `blurred` marks feeds below which a
    cap moved of a job whose iterations are too short to see how high it draws: what is coming is a
    guess until the window holds one cap. `calm` is the mean of a longer window in which no cap
    moved (NaN: one did), and `ready` says whether the window is full.
    """

    mean: Array
    coming: Array
    spread: Array
    blurred: Flags
    calm: Array
    ready: Flags


class Past:
    """Windows of all feeds, jobs and GPUs, and the model that they give."""

    def __init__(self, shape: Shape, periods: Array, settings: Settings) -> None:
        self._shape, self._settings = shape, settings
        self._periods = periods
        self.job_windows = np.array([settings.span(float(one)) for one in periods])
        found = shape.beneath(self.job_windows)
        self.windows = np.where(np.isfinite(found), found, settings.window)
        """The window of each feed, s: that of its slowest job."""
        longest = settings.calm * float(self.windows.max())
        grain = settings.grain
        self._gpu = Rows(float(self.job_windows.max()), grain)
        self._feed, self._caps = Rows(longest, grain), Rows(longest, grain)
        self._missing, self._hurry = Rows(longest, grain), Rows(longest, grain)
        self.changed = np.full(shape.jobs, -np.inf)
        self._begun: float | None = None
        self.now = 0.0
        self.high = np.full(shape.gpus, np.nan)
        self.plateau = np.full(shape.gpus, np.nan)
        self._mean = np.full(shape.gpus, np.nan)
        self._cap = np.full(shape.gpus, np.nan)
        self._last = (np.full(shape.feeds, np.nan), np.full(shape.feeds, np.nan))
        self.model: Demand | None = None

    def add(self, seconds: float, seen: Seen, caps: Array, hurry: Array) -> None:
        """Take a look that covers the last `seconds`, under these mean caps of the jobs."""
        begin, self.now = self.now, self.now + seconds
        if self._begun is None:
            self._begun = begin
        for rows, values in (
            (self._gpu, seen.gpu), (self._feed, seen.feed), (self._caps, caps),
            (self._missing, seen.missing), (self._hurry, hurry),
        ):  # fmt: skip
            rows.add(begin, self.now, values)

    def forget(self) -> None:
        """Begin the windows anew; the model and the last means stay."""
        for rows in (self._gpu, self._feed, self._caps, self._missing, self._hurry):
            rows.clear()
        self._begun = None

    @property
    def seen(self) -> float:
        """The seconds for which there has been a look without a break."""
        return 0.0 if self._begun is None else self.now - self._begun

    @property
    def judgeable(self) -> Flags:
        """Return the feeds of which there has been a full window."""
        return np.asarray(np.isfinite(self._last[0]), bool)

    @property
    def longest(self) -> float:
        """The longest look that is kept, s: one of its length may be half in a window."""
        return max((row.end - row.begin for row in self._gpu.rows), default=0.0)

    def missing(self) -> Array:
        """Return the share of reads that is missing in each feed's window."""
        found, _ = self._missing.mean(self.windows)
        return np.nan_to_num(np.broadcast_to(found, self.windows.shape))

    def hurry(self) -> Array:
        """Return the largest strain a second in each feed's window, 1/s."""
        found = np.broadcast_to(self._hurry.peak(self.windows), self.windows.shape)
        return np.nan_to_num(found)

    def clean(self, beyond: float = 0.0) -> Flags:
        """Return the jobs whose caps have stood still for their whole window, and `beyond` s."""
        stood = self.now - self.changed >= self.job_windows + beyond - 1e-6
        return np.asarray(stood & (self.seen >= self.job_windows - 1e-6))

    def learn(self, caps: Array) -> Flags:
        """Take means and highs of the GPUs whose job is clean; return who that is.

        At first, all of them. `caps` are those in force, GPU by GPU.
        """
        clean = self.clean() if self.model is not None else np.ones(self._shape.jobs, bool)
        fresh = np.append(clean, False)[self._shape.job_of]
        windows, columns = self.job_windows, None
        if np.ptp(windows) < 1e-6:  # noqa: PLR2004
            windows = windows[:1].reshape(())
        else:
            columns = np.maximum(self._shape.job_of, 0)
        mean, _ = self._gpu.mean(windows, columns)
        high = np.broadcast_to(self._gpu.peak(windows, columns), fresh.shape)
        plateau = self._gpu.plateau(windows, PAIR * self._settings.grain, columns)
        self.plateau = np.broadcast_to(plateau, fresh.shape)
        take = fresh & np.isfinite(mean) & np.isfinite(high)
        self._mean = np.where(take, mean, self._mean)
        self.high = np.where(take, high, self.high)
        self._cap = np.where(take, caps, self._cap)
        return np.asarray(take)

    def build(self, ceiling: Array, low: Array, obeys: Flags) -> Demand:
        """Return the model of what was learnt last."""
        blurred = np.append(self._blurred(), False)[self._shape.job_of]
        high = np.where(blurred & np.isfinite(self.high), self._cap, self.high)
        self.model = demand(self._shape, Draw(self._mean, high, self._cap, ceiling, low, obeys))
        return self.model

    def _blurred(self) -> Flags:
        """Return the jobs whose iterations are too short for the looks to see how high they draw.

        They are taken to draw up to their cap, so that a cut is rather too small.
        """
        return np.asarray(self._periods < RESOLVED * self.longest, bool)

    def power(self, caps: Array) -> Array:
        """Return what the jobs draw at each feed under these caps of theirs, by the model, W."""
        if self.model is None:
            return np.zeros(self._shape.feeds)
        return self._shape.cells_up(self.model.power(caps[self._shape.cell_job]))

    def outlook(self, ordered: Array) -> Outlook:
        """Return what is to come of each feed under the caps that are ordered."""
        mean, known = self._feed.mean(self.windows)
        mean = np.broadcast_to(mean, self.windows.shape)
        full = self.seen >= self.windows - 1e-6
        ready = full & (known >= ENOUGH * self.windows)
        coming = self.power(ordered)
        drawn, least, most = self._modelled(mean, coming)
        before, under = self._last  # of a window with holes: what the last full one said
        taken = ready | np.isnan(before)
        self._last = np.where(ready, mean, before), np.where(ready, drawn, under)
        mean, drawn = np.where(taken, mean, before), np.where(taken, drawn, under)
        spread = np.maximum(most, coming) - np.minimum(least, coming)
        moved = self._blurred() & ~self.clean()
        blurred = np.asarray(self._shape.beneath(moved.astype(float)) > 0.0, bool)
        return Outlook(mean, mean - (drawn - coming), spread, blurred, self._calm(), ready)

    def _modelled(self, mean: Array, coming: Array) -> tuple[Array, Array, Array]:
        """Return the model's mean, least and most of the window, W."""
        weights = self._feed.weights(self.windows)
        total, known = np.zeros_like(coming), np.zeros_like(coming)
        least, most = np.full_like(coming, np.inf), np.full_like(coming, -np.inf)
        caps, power = None, coming
        for weight, feed, row in zip(weights, self._feed.rows, self._caps.rows, strict=True):
            inside = weight > 0.0
            if not inside.any():
                continue
            if caps is None or not np.array_equal(caps, row.values):
                caps, power = row.values, self.power(row.values)
            weight = np.where(np.isfinite(feed.values), weight, 0.0)  # noqa: PLW2901
            total, known = total + power * weight, known + weight
            least = np.where(inside, np.minimum(least, power), least)
            most = np.where(inside, np.maximum(most, power), most)
        drawn = np.where(np.isfinite(mean), coming, np.nan)
        np.divide(total, known, out=drawn, where=known > 0.0)
        return drawn, np.minimum(least, coming), np.maximum(most, coming)

    def _calm(self) -> Array:
        """Return the means of the long windows in which no cap of the feed moved."""
        windows = self._settings.calm * self.windows
        mean, known = self._feed.mean(windows)
        stood = self.now - self._shape.beneath(self.changed) >= windows - 1e-6
        full = (known >= ENOUGH * windows) & (self.seen >= windows - 1e-6)
        return np.where(stood & full, np.broadcast_to(mean, windows.shape), np.nan)
