"""A power zone: GPUs behind feeds, what a controller may see of it, and what it may do to it.

The Dimmer is written against `Zone`, whatever stands behind: an emulated rack, or a real one by
NVML in band and Redfish out of band. All powers are W, all times seconds of the zone's own clock,
all arrays float64 in the order of `Layout.gpus` or `Layout.feeds`. A value that cannot be read is
NaN, never 0.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from rackproof.harness.clock import Clock

Array = npt.NDArray[np.float64]
Places = npt.NDArray[np.intp]
TOP = -1
"""The parent of a feed that has none."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Who hangs on what. Feeds stand parents first: ``main/power``, ``row0/power``.

    `feed_of` is the place in `feeds` of each GPU's own feed (shape: GPUs), `parent` the place of
    each feed's parent or TOP (shape: feeds); `fixed` is what each feed carries itself, its children
    apart, that no cap lowers (W, shape: feeds).
    """

    gpus: tuple[str, ...]
    feeds: tuple[str, ...]
    feed_of: Places
    parent: Places
    fixed: Array


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits that each GPU can be given, W: `low` to `high`; its own `default`.

    `requested` is what was asked for when they were read; `current` what was in force, lower by a
    cap out of band.
    """

    low: Array
    high: Array
    default: Array
    requested: Array
    current: Array


@dataclass(frozen=True, slots=True)
class Meters:
    """What the feeds say at one look: the half of a Sample that no GPU tells (shapes: feeds).

    See Sample for each of them. A feed that nobody meters has NaN throughout, and `ac` true: a
    controller that took silence for an outage would dim for nothing.
    """

    feed: Array
    strain: Array
    trip_in: Array
    ac: npt.NDArray[np.bool_]
    limit: Array


class Meter(Protocol):
    """What reads the feeds of a zone."""

    def read(self, seconds: float) -> Meters:
        """Return the feeds' state now; `feed` is the mean over the last `seconds`. Never raises."""
        ...


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the zone at the moment `at`; means are over the `seconds` since the last look.

    `gpu` and `feed` are mean powers, W. `strain` is the trip integral of each feed's breaker (it
    trips at 1), `trip_in` the seconds until it trips under the load of now (inf: never). `ac` says
    of each feed whether the mains are there; where not, a battery carries it. `current` and
    `requested` are the GPUs' limits as read now, W. `limit` is the limit of each feed as its own
    equipment states it now, W (NaN: it states none): of the mains or, without them, of its battery;
    of its cooling, where that carries less.
    """

    at: float
    seconds: float
    gpu: Array
    feed: Array
    strain: Array
    trip_in: Array
    ac: npt.NDArray[np.bool_]
    current: Array
    requested: Array
    limit: Array


class Zone(Protocol):
    """What a controller is given."""

    layout: Layout
    clock: Clock

    def bounds(self) -> Bounds:
        """Return the limits that the GPUs can be given; NaN for a GPU that does not answer."""
        ...

    def sample(self) -> Sample:
        """Look at all of it now."""
        ...

    def ask(self, caps: Array) -> Array:
        """Ask for a power limit of each GPU, W; NaN leaves one alone.

        Return what is in force then, read back: NaN where it was refused or cannot be read, and for
        those that were left alone.
        """
        ...
