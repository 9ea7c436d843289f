"""How far a look can be trusted: missing reads, meters that stand, GPUs that are gone.

In: samples. Out: the power of each feed as it is taken to be (its meter, or the sum of its GPUs and
what no cap lowers, where the meter is missing, stands still while the GPUs moved, or reads less
than its GPUs alone), how many reads are missing below each feed, and which feeds are in doubt.

A meter above capacitors sees the GPUs through them: for a moment it may read less than they draw.
So it reads too little where its mean over a window does, against the lowest of that window and the
two before it: a store evens out what was, and never shows less than all of that.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rackproof.harness.power.dimmer.history import Rows
from rackproof.harness.power.dimmer.settings import Settings
from rackproof.harness.power.dimmer.shape import Shape
from rackproof.harness.power.zone import Array, Sample

Flags = npt.NDArray[np.bool_]
FOLLOW = 0.2
"""How much of a new difference between meter and GPUs is believed at one look."""
LESS = 0.98
"""A meter that reads less than this share of its own GPUs is wrong."""
EARLY = 0.75
"""The same, while there have not yet been as many windows as it takes."""
SOME = 0.8
"""Of a window that has to be known for its mean to count."""
BACK = 3
"""Windows of its GPUs that a meter is held against: the last one, and those before."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A look, as it is believed: W of GPUs and feeds (NaN: not known).

    `missing` is the share of the reads below each feed that are not there; `doubted` marks feeds
    whose meter is not believed, `standing` those whose meter stands.
    """

    gpu: Array
    feed: Array
    missing: Array
    doubted: Flags
    standing: Flags


def _plain(values: Array) -> Array:
    """Return the readings that can be powers; the rest is NaN."""
    return np.where(np.isfinite(values) & (values >= 0.0), values, np.nan)


class Trust:
    """What the looks so far say of the sensors."""

    def __init__(self, shape: Shape, fixed: Array, windows: Array, settings: Settings) -> None:
        """Begin; `windows` are those of the feeds, s."""
        self._shape, self._settings = shape, settings
        self._windows, self._now = windows, 0.0
        self._looks = Rows(BACK * float(windows.max()), settings.grain)
        self.rest = shape.up(fixed)
        """What each feed carries beside its GPUs, W."""
        self.gone = np.zeros(shape.gpus, bool)
        """GPUs that have not answered for long while the others did: they are nobody's."""
        self._silent = np.zeros(shape.gpus)
        self._last = np.zeros(shape.gpus)
        self._metered = np.zeros(shape.feeds, bool)
        self._meter = np.full(shape.feeds, np.nan)
        self._same = np.zeros(shape.feeds, np.intp)
        self._least = np.zeros(shape.feeds)
        self._most = np.zeros(shape.feeds)
        self._count = np.maximum(shape.per_feed(np.ones(shape.gpus)), 1.0)

    def look(self, sample: Sample, seconds: float) -> Seen:
        """Return what is believed of a sample `seconds` after the one before."""
        gpu, meter = _plain(sample.gpu), _plain(sample.feed)
        dumb = np.isnan(gpu)
        missing = self._missing(gpu, sample, seconds)
        self._last = np.where(self.gone, 0.0, np.where(dumb, self._last, gpu))
        total = self._shape.per_feed(self._last)
        standing = self._standing(meter, total)
        self._metered |= np.isfinite(meter)
        # What a battery carries below a feed does not pass its meter.
        dark = (~np.asarray(sample.ac, bool)).astype(float)
        partial = self._shape.up(dark) > dark
        less = self._less(meter, np.where(partial | (missing > 0.0), np.nan, total), seconds)
        wrong = standing | less | (self._metered & np.isnan(meter))
        settled = np.isfinite(meter) & ~wrong & (missing == 0.0) & (self._same == 0)
        settled &= ~partial
        self.rest = np.where(settled, self.rest + FOLLOW * (meter - total - self.rest), self.rest)
        summed = np.where(missing > self._settings.missing, np.nan, total + self.rest)
        feed = np.where(wrong | np.isnan(meter), summed, meter)
        return Seen(gpu, feed, missing, wrong, standing)

    def _less(self, meter: Array, total: Array, seconds: float) -> Flags:
        """Return whose meter's mean is less than its GPUs draw; NaN is not looked at."""
        self._now += seconds
        both = np.stack([meter, total])
        both[:, np.isnan(both).any(axis=0)] = np.nan
        if seconds > 0.0:
            self._looks.add(self._now - seconds, self._now, both)
        joules, known = np.zeros_like(both), np.zeros_like(both)
        lowest, read = np.full_like(meter, np.inf), np.full_like(meter, np.nan)
        for back in range(1, BACK + 1):
            mean, looked = self._looks.mean(back * self._windows)
            if not self._looks.rows:
                break
            told, span = np.nan_to_num(mean) * looked, looked - known
            each = np.full_like(both, np.nan)
            np.divide(told - joules, span, out=each, where=span > SOME * self._windows)
            read = each[0] if back == 1 else read
            lowest = np.fmin(lowest, each[1])
            joules, known = told, looked
        share = np.where(known[0] > (BACK - 1.0 + SOME) * self._windows, LESS, EARLY)
        return np.asarray(read < share * lowest, bool)

    def _missing(self, gpu: Array, sample: Sample, seconds: float) -> Array:
        """Return the share of missing reads below each feed; finds GPUs that are gone."""
        dumb = np.isnan(gpu)
        if not dumb.any():
            self._silent[:] = 0.0
            self.gone[:] = False
            return np.zeros(self._shape.feeds)
        away = dumb & np.isnan(sample.current)
        self._silent = np.where(away, self._silent + seconds, 0.0)
        self.gone &= away
        share = self._shape.per_feed((dumb & ~self.gone).astype(float)) / self._count
        few = share[self._shape.feed_of] <= self._settings.missing
        self.gone |= (self._silent > self._settings.silence) & few
        return share

    def _standing(self, meter: Array, total: Array) -> Flags:
        """Return whose meter said exactly the same for long while its GPUs moved."""
        same = (meter == self._meter) & (meter > 0.0)
        self._same = np.where(same, self._same + 1, 0)
        self._least = np.where(same, np.minimum(self._least, total), total)
        self._most = np.where(same, np.maximum(self._most, total), total)
        self._meter = meter
        moved = self._most - self._least > self._settings.moved * meter
        return np.asarray((self._same + 1 >= self._settings.stuck) & moved)
