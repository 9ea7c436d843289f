"""What is asked of each GPU, and whether it was done: refused, ignored, or lowered by another hand.

In: bounds, looks, and one cap for each job. Out: the caps that change (NaN leaves a GPU alone).
A cap that somebody set out of band is respected: we never ask to be above it.
"""

import numpy as np

from rackproof.harness.power.dimmer.settings import Settings
from rackproof.harness.power.dimmer.shape import NOBODY, Shape
from rackproof.harness.power.dimmer.trust import Flags
from rackproof.harness.power.zone import Array, Bounds, Sample

NEAR_W = 1.0
"""Limits this close to each other are the same: drivers round."""
LOOKS = 2
"""So many looks in a row, before a limit that is not what was asked for is believed."""


class Asks:
    """The state of the caps of each GPU."""

    def __init__(self, shape: Shape, bounds: Bounds, settings: Settings) -> None:
        self._shape, self._settings = shape, settings
        self.low = np.nan_to_num(bounds.low)
        self.top = np.where(np.isfinite(bounds.high), bounds.high, np.nan_to_num(bounds.default))
        wanted = np.where(np.isfinite(bounds.requested), bounds.requested, bounds.default)
        self.ceiling = np.fmin(wanted, self.top)
        """What each GPU's request was before us, W: the most that it is ever asked for."""
        self.answers = np.isfinite(self.ceiling) & (shape.job_of != NOBODY)
        self.ceiling = np.nan_to_num(self.ceiling)
        self.asked = np.where(np.isfinite(bounds.requested), bounds.requested, self.ceiling)
        self._before = self.asked
        self.current = np.where(np.isfinite(bounds.current), bounds.current, self.asked)
        self.foreign = np.full(shape.gpus, np.inf)
        self.refused = np.zeros(shape.gpus, bool)
        self.ignored = np.zeros(shape.gpus, bool)
        self._late = np.zeros(shape.gpus, np.intp)
        self._under = np.zeros(shape.gpus, np.intp)
        self._fresh = True

    def follow(self, sample: Sample) -> None:
        """Take the limits that others set as ours: we only advise."""
        self.asked = np.where(np.isfinite(sample.current), sample.current, self.asked)
        self._before = self.asked

    def see(self, sample: Sample) -> tuple[Flags, Flags]:
        """Compare limits with what was asked; return who newly refuses, and whom others capped."""
        current, requested = sample.current, sample.requested
        if self._fresh:
            self.asked = np.where(np.isfinite(requested), requested, self.asked)
            self._before, self._fresh = self.asked, False
        self.current = np.where(np.isfinite(current), current, self.current)
        late = (np.fmin(requested, current) > self.asked + NEAR_W) & self.answers
        self._late = np.where(late, self._late + 1, 0)
        refuses = (self._late >= LOOKS) & ~self.refused
        self.refused = np.where(np.isfinite(current), (self.refused & late) | refuses, self.refused)
        under = (current < np.minimum(self.asked, self._before) - NEAR_W) & self.answers
        self._under = np.where(under, self._under + 1, 0)
        lower = (self._under >= LOOKS) & (current < self.foreign - NEAR_W)
        self.foreign = np.where(current > self.foreign + NEAR_W, np.inf, self.foreign)
        self.foreign = np.where(lower, current, self.foreign)
        self._before = self.asked
        return refuses, lower

    def read_back(self, caps: Array, back: Array) -> Flags:
        """Take what a zone answered to `caps`: NaN where it refused; return who newly does."""
        refuses = np.isfinite(caps) & ~np.isfinite(back)
        new = refuses & ~self.refused
        self.refused |= refuses
        self.refused &= ~np.isfinite(back)
        return np.asarray(new, bool)

    def heed(self, plateau: Array, clean: Flags) -> Flags:
        """Find GPUs that draw more than a cap that is old enough; return who newly does.

        `plateau` is what each draws for long at most, W, and NaN where that is not known.
        """
        least, most = 0.5 + 0.5 * self._settings.ignored, self._settings.ignored
        over = clean & (plateau > most * self.current) & self.answers
        new = over & ~self.ignored
        self.ignored &= ~(clean & (plateau <= least * self.current))
        self.ignored |= over
        return np.asarray(new)

    def obeys(self, gone: Flags) -> Flags:
        """Return who can be capped."""
        return np.asarray(self.answers & ~self.refused & ~self.ignored & ~gone, bool)

    def ask(self, caps: Array, gone: Flags, *, again: bool) -> Array:
        """Return what to ask for under these caps of the jobs: no more than a step of the ramp up.

        `again` is said once a cycle: only then is anything raised, and who refused asked again.
        """
        each = np.minimum(caps[self._shape.job_of], self.ceiling)
        kept = np.where(self.asked >= self.foreign, self.asked, self.foreign)
        each = np.where(each >= self.foreign, kept, each)
        # Whoever was held back by another hand, or was gone, comes back by the ramp too.
        most = self.asked + (self._settings.up if again else 0.0)
        each = np.maximum(np.minimum(each, most), self.low)
        changes = np.abs(each - self.asked) > NEAR_W / 2.0
        if again:
            changes |= self.refused | (self._late > 0)
        changes &= self.answers & ~gone
        self.asked = np.where(changes, each, self.asked)
        return np.where(changes, each, np.nan)
