"""What is written down of a house: a Record for each 0.1 s, and the means since the last look.

In: the load of each feed and what is seen above it, tick by tick. Out: Records for whoever keeps
them, and means for the meters. Shapes: feeds, unless stated.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rackproof.harness.power.zone import Array

GRAIN = 100
"""Ticks of a record: 0.1 s."""


@dataclass(frozen=True, slots=True)
class State:
    """What is read at the end of a grain: strain, charge (0..1) of the stores, margin in C.

    `delivered` is what each store has given in all, J.
    """

    strain: Array
    charge: Array
    delivered: Array
    margin: Array


@dataclass(frozen=True, slots=True)
class Record:
    """What happened in the 0.1 s that ended `at`.

    `mean` and `peak` of each feed's load, `seen` and `seen_peak` of what the side above it sees, W;
    `strain` of each breaker; `charge` (0..1) and `out` (mean W given) of each store, in the order
    of the house's `stores`; `margin` of the hottest GPU below each feed, C; `ramp`, how fast what
    the utility sees has changed since the record before, W/s.
    """

    at: float
    mean: Array
    peak: Array
    seen: Array
    seen_peak: Array
    strain: Array
    charge: Array
    out: Array
    margin: Array
    ramp: float


class Ledger:
    """Gathers ticks into records and means."""

    def __init__(self, feeds: int, stores: int, tick: float) -> None:
        self._tick = tick
        self._records: list[Record] = []
        self._before: float | None = None
        self._delivered = np.zeros(stores)
        self._feeds = feeds
        self._since = np.zeros((2, feeds))
        self._ticks = 0
        self._last = np.zeros((2, feeds))
        self._begin()

    def _begin(self) -> None:
        self._sums = np.zeros((2, self._feeds))
        self._peaks = np.full((2, self._feeds), -np.inf)
        self._held = 0

    @property
    def left(self) -> int:
        """How many ticks are left of this grain."""
        return GRAIN - self._held

    def add(self, load: Array, seen: Array) -> None:
        """Add ticks (ticks x feeds)."""
        ticks = len(load)
        sums = np.array([load.sum(axis=0), seen.sum(axis=0)])
        self._sums += sums
        self._since += sums
        self._last = sums / ticks
        self._ticks += ticks
        np.maximum(self._peaks, (load.max(axis=0), seen.max(axis=0)), out=self._peaks)
        self._held += ticks

    def close(self, at: float, state: Callable[[], State]) -> None:
        """Make a record where a grain is full."""
        if self._held < GRAIN:
            return
        now, held = state(), self._held
        mean, seen = self._sums / held
        utility = float(seen[0])
        before = utility if self._before is None else self._before
        self._before = utility
        out = (now.delivered - self._delivered) / (held * self._tick)
        self._delivered = now.delivered
        self._records.append(
            Record(
                at=at,
                mean=mean,
                peak=self._peaks[0],
                seen=seen,
                seen_peak=self._peaks[1],
                strain=now.strain,
                charge=now.charge,
                out=out,
                margin=now.margin,
                ramp=(utility - before) / (held * self._tick),
            )
        )
        self._begin()

    def take(self) -> list[Record]:
        """Return the records since the last take."""
        taken, self._records = self._records, []
        return taken

    def means(self) -> tuple[Array, Array]:
        """Return the mean load and the mean that is seen above, W, since the last call."""
        load, seen = self._since / self._ticks if self._ticks else self._last
        self._since, self._ticks = np.zeros((2, self._feeds)), 0
        return load, seen
