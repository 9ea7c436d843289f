"""The state of each feed between its three bands: what is over, what is quiet, what rises.

In: the outlook of a cycle and the limits. Out: how much each feed must shed, and how much it may
be given. Limits are the lowest of a feed's own, its contract, and what its equipment states.
"""

from dataclasses import dataclass

import numpy as np

from rackproof.harness.power.dimmer.past import Outlook
from rackproof.harness.power.dimmer.settings import Settings
from rackproof.harness.power.dimmer.trust import Flags
from rackproof.harness.power.zone import Array

FALLS, RISES = -1, 1


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the feeds, W; inf where there is none."""

    own: Array
    contract: Array
    stated: Array

    def lowest(self) -> Array:
        """Return what holds."""
        return np.minimum(np.minimum(self.own, self.contract), self.stated)

    def contracted(self) -> Flags:
        """Return where it is a contract that holds."""
        return np.asarray(self.contract < np.minimum(self.own, self.stated), bool)


class Bands:
    """What the cycles so far made of each feed."""

    def __init__(self, feeds: int, settings: Settings) -> None:
        self._settings = settings
        self.over = np.zeros(feeds, bool)
        self.short = np.zeros(feeds, bool)
        """Feeds that cannot come under their limit."""
        self.dimmed = np.zeros(feeds, bool)
        """Feeds for which a cut was made that is not all given back."""
        self.settling = np.zeros(feeds, bool)
        self.rising = np.zeros(feeds, bool)
        self._quiet = np.zeros(feeds, np.intp)
        self._turned = np.full(feeds, -np.inf)
        self._way = np.zeros(feeds, np.intp)
        self._said = np.zeros(feeds, bool)
        target = settings.target
        self._inner = 0.5 * (settings.settled_low + target), 0.5 * (target + settings.settled_high)

    def excess(self, outlook: Outlook, limit: Array, hurried: Flags) -> Array:
        """Return the W that each feed must shed; 0 where it is not over its upper band.

        What is not sure of the outlook starts no cut, or little of it where a feed is `hurried`.
        Once the iterations of a dimmed job are stretched, a window no longer holds whole ones and
        ripples: what a longer one does not bear out within the ripple is none, and a cut after a
        cut goes less far. A feed that has calmed down beside its target is trimmed.
        """
        settings = self._settings
        bound = np.isfinite(limit)
        finite = np.where(bound, limit, 0.0)
        calm, coming = outlook.calm, outlook.coming
        unsure = np.where(outlook.blurred & ~hurried, np.inf, settings.unsure * outlook.spread)
        sure = coming - unsure
        over = bound & (sure > settings.above * finite)
        ripples = self.dimmed & (np.abs(coming - calm) <= settings.ripple * finite)
        over &= ~ripples
        trim = bound & ((self.settling & ~over) | ripples) & (calm > self._inner[1] * finite)
        goal = np.where(self.settling & over, self._inner[1], settings.target) * finite
        excess = np.where(over, coming, calm) - goal
        return np.where(over | trim, np.maximum(excess, 0.0), 0.0)

    def fell(self, which: Flags, now: float) -> None:
        """A cut was ordered for these feeds."""
        self._quiet[which] = 0
        self._turned[which & (self._way == RISES)] = now
        self._way[which] = FALLS
        self.dimmed |= which
        self.settling |= which
        self._said[which] = False
        self.rising &= ~which

    def listen(self, outlook: Outlook, limit: Array, may: Flags, now: float) -> Flags:
        """Count the quiet cycles; return the feeds that begin to rise with this one."""
        settings = self._settings
        low = np.where(self.settling & np.isfinite(outlook.calm), self._inner[0], settings.below)
        top = np.fmax(outlook.coming, outlook.calm)
        top = np.where(outlook.blurred, np.inf, top + settings.unsure * outlook.spread)
        quiet = may & self.dimmed & (np.isinf(limit) | (top < low * limit))
        self._quiet = np.where(quiet, self._quiet + 1, 0)
        full = ~(outlook.coming < settings.target * limit - 1e-6)
        self.rising &= may & ~full
        starts = (self._quiet >= settings.quiet) & ~self.rising
        starts &= now - self._turned >= settings.reversal
        self._turned[starts & (self._way == FALLS)] = now
        self._way[starts] = RISES
        self.rising |= starts
        return starts

    def budget(self, outlook: Outlook, limit: Array, may: Flags) -> Array:
        """Return the W that may be given below each feed; less than 0: nothing.

        A feed that was never cut for is in nobody's way until it nears its upper band.
        """
        settings = self._settings
        goal = np.where(self.dimmed, settings.target, settings.settled_high) * limit
        free = np.where(np.isinf(limit), np.inf, goal - outlook.coming)
        # A feed of which nothing is known gives nothing.
        free = np.where(np.isnan(free), -1.0, free)
        return np.where(may & (self.rising | ~self.dimmed), free, -1.0)

    def settle(self, outlook: Outlook, limit: Array) -> Flags:
        """Return the feeds that have come to rest beside their target."""
        settings = self._settings
        share = np.divide(outlook.calm, limit, out=np.full_like(limit, np.nan), where=limit > 0.0)
        there = (share >= settings.settled_low) & (share <= settings.settled_high)
        found = self.settling & there & ~self._said
        self._said |= found
        low, high = self._inner
        self.settling &= ~((share >= low) & (share <= high))
        return np.asarray(found)

    def restored(self, given: Flags) -> Flags:
        """Take who has all of its caps back; return those that had been dimmed."""
        found = self.dimmed & given
        self.dimmed &= ~given
        self.settling &= ~given
        self.rising &= ~given
        return np.asarray(found)
