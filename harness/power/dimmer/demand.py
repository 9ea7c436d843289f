"""What a cap does to the load: power of cells, pairs and feeds as a function of the jobs' caps.

A GPU alternates between a high and a low draw. With its mean x, its high h and a low l that no
phase is under, it is high for d = (x - l) / (h - l) of the time, and a cap c under h takes away
``d x (h - c)``. l is set low (idle), so d is rather too large, and a cut rather too small: what is
left is cut when the window shows it. The GPUs of a cell are gathered into classes of like h,
since a rank that idles, or draws less than the others, does not feel the cap. In: mean and high of
each GPU, W. Out: a model whose every question costs the same for 72 GPUs as for 1,000,000.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rackproof.harness.power.dimmer.shape import Level, Shape, sums
from rackproof.harness.power.zone import Array, Places

CLASSES = 8
"""Classes of GPUs in a cell, evenly spread from nothing to the highest limit."""
ROUNDS = 5
"""Newton steps; the power is concave in the cap and straight where all GPUs of a cell feel it."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Of each cell and class: mean power, W; sum of d; the high draw, W (shape: cells, classes)."""

    mean: Array
    share: Array
    high: Array

    def power(self, caps: Array) -> Array:
        """Return the power of each cell under these caps (shape: cells), W."""
        over = np.maximum(self.high - caps[:, None], 0.0)
        return np.asarray((self.mean - self.share * over).sum(axis=1))

    def slope(self, caps: Array) -> Array:
        """Return W of each cell for one W of its cap."""
        return np.asarray((self.share * (self.high > caps[:, None])).sum(axis=1))

    def highest(self) -> Array:
        """Return the highest draw of each cell, W; 0 where no GPU of it can be capped."""
        return np.asarray(np.where(self.mean > 0.0, self.high, 0.0).max(axis=1))


@dataclass(frozen=True, slots=True)
class Draw:
    """Of each GPU, W: mean and high draw, the cap in force, the highest cap it may ever be given.

    `low` is the least that a phase can draw; `obeys` says who takes a cap at all.
    """

    mean: Array
    high: Array
    cap: Array
    ceiling: Array
    low: Array
    obeys: npt.NDArray[np.bool_]


BOUND = 0.97
"""A GPU whose high draw is this share of its cap is held by it: it may want more."""


def demand(shape: Shape, draw: Draw) -> Demand:
    """Return the model of the GPUs that obey; the others are no part of it.

    What a GPU that its cap holds would draw without it is not known: up to its ceiling it is taken
    to want more, so that a raise is never thought to be free.
    """
    high = np.nan_to_num(draw.high)
    mean = np.minimum(np.nan_to_num(draw.mean), high)
    span = high - draw.low
    share = np.ones(shape.gpus)
    np.divide(mean - draw.low, span, out=share, where=span > 1.0)
    np.clip(share, 0.0, 1.0, out=share)
    bound = high >= BOUND * draw.cap
    wanted = np.where(bound, np.maximum(draw.ceiling, draw.cap), high)
    mean = np.where(bound, mean + share * (wanted - draw.cap), mean)
    cells = len(shape.cell_job)
    scale = (CLASSES - 1) / max(float(wanted.max(initial=0.0)), 1.0)
    obeys = draw.obeys & np.isfinite(draw.high)
    place = np.where(obeys, shape.cell_of, cells) * CLASSES + (wanted * scale).astype(np.intp)
    size = (cells + 1) * CLASSES

    def summed(values: Array) -> Array:
        return sums(place, values, size)[:-CLASSES].reshape(cells, CLASSES)

    shares = summed(share)
    highs = summed(share * wanted)
    np.divide(highs, shares, out=highs, where=shares > 0.0)
    return Demand(summed(mean), shares, highs)


def solve(model: Demand, level: Level, wanted: Array, between: tuple[Array, Array]) -> Array:
    """Return the cap of each pair under which it draws `wanted` W, between two caps of each.

    Newton from the lower one: the power is concave in the cap, so it is met from below.
    """
    low, top = between
    caps = low.copy()
    for _ in range(ROUNDS):
        cells = _spread(level.pair_of, caps)
        slope = level.gather(model.slope(cells))
        missing = wanted - level.gather(model.power(cells))
        step = np.divide(missing, slope, out=np.zeros_like(caps), where=slope > 0.0)
        caps = np.clip(caps + step, low, top)
    return caps


def _spread(pair_of: Places, pairs: Array) -> Array:
    """Return the value of its pair for each cell; inf where it has none at this level."""
    return np.append(pairs, np.inf)[pair_of]
