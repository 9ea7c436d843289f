"""How fast a cut is made: normal, urgent, or at once.

In: what each feed draws over its limit now, how its draw falls with the ramp, its breaker and its
stores. Out: a pace for each feed. The slowest is taken that comes down soon enough, whose way down
the stores can bridge, and that does not use up the breaker.
"""

import zlib
from dataclasses import dataclass

import numpy as np

from rackproof.harness.power.dimmer.settings import Settings
from rackproof.harness.power.dimmer.trust import Flags
from rackproof.harness.power.zone import Array

NORMAL, URGENT, STEP = 0, 1, 2
LASTS = 0.7
"""Strain of a way down in a straight line, over that of a load which stays: by the exponents of the
breakers 0.33 (2.04) to 0.61 (0.63), rounded up."""

NOTHING = 0.01
"""Of strain: a way down that adds less is no reason to hurry."""


@dataclass(frozen=True, slots=True)
class Way:
    """What a ramp meets at each feed: W over the limit now, W/s for each W/s of the caps.

    `strain` of 1 trips; `hurry` is the strain that a second at the load of the window adds, 1/s;
    `trip_in` in s, as the equipment says it; `energy` and `power` of the stores, J and W.
    """

    over: Array
    slope: Array
    strain: Array
    hurry: Array
    trip_in: Array
    ac: Flags
    energy: Array
    power: Array


def pace(way: Way, settings: Settings) -> Array:
    """Return NORMAL, URGENT or STEP for each feed."""
    excess = np.maximum(way.over, 0.0)
    over = excess > 0.0
    found = np.full(over.shape, STEP)
    ramps = ((URGENT, settings.urgent, np.inf), (NORMAL, settings.down, settings.longest))
    for speed, rate, longest in ramps:
        falls = np.maximum(way.slope * rate, 1e-9)
        seconds = excess / falls
        bridged = (excess <= way.power) & (0.5 * excess * seconds <= way.energy)
        strained = way.strain + LASTS * way.hurry * seconds <= settings.strain_ramp
        # A breaker that is strained already cannot be spared by a ramp that adds nothing.
        strained |= LASTS * way.hurry * seconds < NOTHING
        found = np.where(~over | (bridged & strained & (seconds <= longest)), speed, found)
    return np.where(over & emergency(way, settings), STEP, found)


def emergency(way: Way, settings: Settings) -> Flags:
    """Return the feeds at which nothing waits: strained, about to trip, or without mains."""
    near = (way.strain > settings.strain_step) | (way.trip_in < settings.trip_step)
    return np.asarray(near | ~way.ac)


def jitters(feeds: tuple[str, ...], seed: int, longest: float) -> Array:
    """Return for each feed the s by which its rise begins late, U(0, longest).

    Drawn from seed and name, so that controllers of two racks with one seed do not rise together.
    """
    drawn = [zlib.crc32(f"{seed}/{feed}".encode()) / 2.0**32 for feed in feeds]
    return longest * np.array(drawn)
