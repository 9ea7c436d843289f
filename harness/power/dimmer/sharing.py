"""Who gives how much: the excess of each feed over the jobs below it, and what is left to raise.

In: a model of the load, caps and floors of the jobs, and the W that each feed is over. Out: new
caps. A cut takes from the lowest priority first; jobs of equal priority give the same share of
what they can; a job is cut for its neediest feed, and all its GPUs with it. A raise goes to the
highest priority first, and what that job may still need is kept for it.
"""

from dataclasses import dataclass

import numpy as np

from rackproof.harness.power.dimmer.demand import Demand, solve
from rackproof.harness.power.dimmer.shape import Shape
from rackproof.harness.power.zone import Array

_NEAR = 1e-6


@dataclass(frozen=True, slots=True)
class Cut:
    """New caps of the jobs, W, and what no cut could take away of each feed's excess, W."""

    caps: Array
    unmet: Array


def cut(shape: Shape, model: Demand, caps: Array, floors: Array, excess: Array) -> Cut:
    """Lower `caps` until each feed draws `excess` W less (shape: feeds; 0 or less: not over)."""
    before = shape.cells_up(model.power(caps[shape.cell_job]))
    bottom = model.power(np.minimum(floors, caps)[shape.cell_job])
    unmet = np.zeros(shape.feeds)
    caps = caps.copy()
    for level in shape.levels:
        now = model.power(caps[shape.cell_job])
        left = excess - (before - shape.cells_up(now))
        if not len(level.job) or not (left[level.feed] > _NEAR).any():
            continue
        power = level.gather(now)
        room = np.maximum(power - level.gather(bottom), 0.0)
        group_room = np.bincount(level.group, room, len(level.group_feed))
        done = np.cumsum(group_room) - group_room
        earlier = done - done[level.first]
        give = np.clip(left[level.group_feed] - earlier, 0.0, group_room)
        share = np.divide(give, group_room, out=np.zeros_like(give), where=group_room > 0.0)
        taken = np.bincount(level.group_feed, give, shape.feeds)
        there = np.bincount(level.group_feed, minlength=shape.feeds) > 0
        unmet = np.where(there, np.maximum(left - taken, 0.0), unmet)
        held = np.minimum(floors, caps)[level.job]
        found = solve(model, level, power - share[level.group] * room, (held, caps[level.job]))
        touched = share[level.group] > 0.0
        np.minimum.at(caps, level.job[touched], found[touched])
    bare = np.ones(shape.feeds, bool)
    for level in shape.levels:
        bare[level.group_feed] = False
    return Cut(caps, np.where(bare, np.maximum(excess, 0.0), unmet))


@dataclass(frozen=True, slots=True)
class Rise:
    """Where the jobs stand, W, how high they may go, W, and who may rise by how much at once, W."""

    caps: Array
    ceilings: Array
    may: np.ndarray
    step: float


def rise(shape: Shape, model: Demand, rise: Rise, priority: Array, budget: Array) -> Array:
    """Return higher caps that add no more than `budget` W to any feed (shape: feeds)."""
    caps, left = rise.caps.copy(), budget.copy()
    base = model.power(caps[shape.cell_job])
    for rank in np.unique(priority)[::-1]:
        wants = rise.may & (priority == rank) & (caps < rise.ceilings - _NEAR)
        if not wants.any():
            continue
        step = np.where(wants, np.minimum(rise.step, rise.ceilings - caps), 0.0)
        costs = shape.cells_up(model.power((caps + step)[shape.cell_job]) - base)
        full = np.where(wants, rise.ceilings, caps)
        needs = shape.cells_up(model.power(full[shape.cell_job]) - base)
        fits = np.clip(
            np.divide(left, costs, out=np.ones(shape.feeds), where=costs > _NEAR), 0.0, 1.0
        )
        fits = np.where((left <= 0.0) & (costs <= _NEAR) & np.isfinite(left), 0.0, fits)
        caps += step * least(shape, fits)
        left = left - needs
    return caps


def least(shape: Shape, feeds: Array) -> Array:
    """Return for each job the smallest of `feeds` over all feeds above its GPUs."""
    return -shape.worst(-feeds)
