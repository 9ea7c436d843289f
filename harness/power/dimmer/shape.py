"""Who hangs on what, worked out once: cells, levels, and the order in which jobs are cut.

A cell is what one job has on one leaf feed. A level is all feeds of one depth, with the cells below
each of them gathered into pairs (feed, job), sorted by feed and then by priority, lowest first; the
pairs of one feed and one priority are a group, and are cut together. In: a layout and jobs. Out:
index arrays, so that a decision has no loop over feeds, jobs or GPUs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackproof.harness.power.dimmer.words import Job
from rackproof.harness.power.zone import TOP, Array, Layout, Places

NOBODY = -1


def sums(places: Places, values: Array, size: int) -> Array:
    """Return for each of `size` places the sum of the values there."""
    return np.asarray(np.bincount(places, values, size), np.float64)


@dataclass(frozen=True, slots=True)
class Level:
    """One depth. `above` is each feed's ancestor there (shape: feeds; NOBODY where it has none)."""

    above: Places
    pair_of: Places  # cell -> pair; the number of pairs where it hangs elsewhere
    job: Places  # of each pair
    feed: Places  # of each pair
    group: Places  # of each pair
    group_feed: Places  # of each group
    first: Places  # the first group of each group's feed

    def gather(self, cells: Array) -> Array:
        """Return the sums of cells in each pair."""
        return sums(self.pair_of, cells, len(self.job) + 1)[:-1]


@dataclass(frozen=True, slots=True)
class Shape:
    """Index arrays of a zone and its jobs.

    `job_of` (shape: GPUs) is NOBODY where no job has a GPU; `cell_of` is then the number of cells.
    """

    gpus: int
    feeds: int
    jobs: int
    feed_of: Places
    job_of: Places
    cell_of: Places
    cell_job: Places
    cell_feed: Places
    levels: tuple[Level, ...]  # deepest first
    order: Places  # GPUs of jobs, by job
    starts: Places  # where each job begins in `order`

    def per_feed(self, gpus: Array) -> Array:
        """Return the sum over all GPUs below each feed (shape: feeds)."""
        return self.up(sums(self.feed_of, gpus, self.feeds))

    def up(self, leaves: Array) -> Array:
        """Return, for each feed, the sum of `leaves` (shape: feeds) over itself and all below."""
        total = np.zeros(self.feeds)
        for level in self.levels:
            inside = level.above != NOBODY
            total += sums(level.above[inside], leaves[inside], self.feeds)
        return total

    def cells_up(self, cells: Array) -> Array:
        """Return the sum over all cells below each feed."""
        return self.up(sums(self.cell_feed, cells, self.feeds))

    def worst(self, feeds: Array) -> Array:
        """Return for each job the largest of `feeds` over all feeds above its GPUs."""
        cells = np.full(len(self.cell_feed), -np.inf)
        for level in self.levels:
            above = level.above[self.cell_feed]
            cells = np.maximum(cells, np.where(above == NOBODY, -np.inf, feeds[above]))
        found = np.full(self.jobs, -np.inf)
        np.maximum.at(found, self.cell_job, cells)
        return found

    def beneath(self, jobs: Array) -> Array:
        """Return for each feed the largest of `jobs` over the jobs below it; -inf for none."""
        found = np.full(self.feeds, -np.inf)
        for level in self.levels:
            np.maximum.at(found, level.feed, jobs[level.job])
        return found

    def highest(self, gpus: Array) -> Array:
        """Return the largest of `gpus` in each job; NaN is passed over, -inf where all are NaN."""
        known = np.where(np.isnan(gpus), -np.inf, gpus)
        return np.asarray(np.maximum.reduceat(known[self.order], self.starts))


def _depths(layout: Layout) -> Places:
    depth = np.zeros(len(layout.feeds), np.intp)
    for feed, parent in enumerate(layout.parent):
        if parent != TOP:
            if not 0 <= parent < feed:
                msg = f"feed {layout.feeds[feed]!r} stands before its parent"
                raise ValueError(msg)
            depth[feed] = depth[parent] + 1
    return depth


def _places(layout: Layout, jobs: Sequence[Job]) -> Places:
    """Return the job of each GPU; a ValueError where one has two, or is none of the layout's."""
    count = len(layout.gpus)
    job_of = np.full(count, NOBODY, np.intp)
    names = [job.name for job in jobs]
    if len(set(names)) < len(names):
        msg = "two jobs have the same name"
        raise ValueError(msg)
    for number, job in enumerate(jobs):
        places = np.asarray(job.gpus, np.intp)
        if places.min() < 0 or places.max() >= count:
            msg = f"job {job.name!r} has a GPU at place {places.max()}, of {count}"
            raise ValueError(msg)
        if (job_of[places] != NOBODY).any() or len(np.unique(places)) < len(places):
            msg = f"job {job.name!r} has a GPU that a job has already"
            raise ValueError(msg)
        job_of[places] = number
    return job_of


def _level(above: Places, cell_job: Places, cell_feed: Places, priority: Places) -> Level:
    feed = above[cell_feed]
    jobs = len(priority)
    inside = feed != NOBODY
    keys, index = np.unique(feed[inside] * jobs + cell_job[inside], return_inverse=True)
    pair_feed, pair_job = keys // jobs, keys % jobs
    order = np.lexsort((pair_job, priority[pair_job], pair_feed))
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    pair_of = np.full(len(cell_job), len(keys), np.intp)
    pair_of[inside] = place[index]
    pair_feed, pair_job = pair_feed[order], pair_job[order]
    rank = priority[pair_job]
    new = np.ones(len(keys), bool)
    new[1:] = (pair_feed[1:] != pair_feed[:-1]) | (rank[1:] != rank[:-1])
    group = np.cumsum(new) - 1
    group_feed = pair_feed[new]
    first = np.searchsorted(group_feed, group_feed)
    return Level(above, pair_of, pair_job, pair_feed, group, group_feed, first)


def shape(layout: Layout, jobs: Sequence[Job]) -> Shape:
    """Return the index arrays; a ValueError where layout and jobs do not fit each other."""
    if not jobs:
        msg = "a Dimmer needs a job: without one nothing may be capped"
        raise ValueError(msg)
    job_of = _places(layout, jobs)
    depth = _depths(layout)
    feed_of = np.asarray(layout.feed_of, np.intp)
    owned = np.flatnonzero(job_of != NOBODY)
    keys, index = np.unique(job_of[owned] * len(layout.feeds) + feed_of[owned], return_inverse=True)
    cell_job, cell_feed = keys // len(layout.feeds), keys % len(layout.feeds)
    cell_of = np.full(len(layout.gpus), len(keys), np.intp)
    cell_of[owned] = index
    priority = np.array([job.priority for job in jobs], np.intp)
    levels = []
    above = np.arange(len(layout.feeds), dtype=np.intp)
    for deep in range(int(depth.max()), -1, -1):
        there = np.where(depth >= deep, above, NOBODY)
        levels.append(_level(there, cell_job, cell_feed, priority))
        rises = depth >= deep
        above = np.where(rises, np.asarray(layout.parent, np.intp)[above], above)
    order = owned[np.argsort(job_of[owned], kind="stable")]
    starts = np.searchsorted(job_of[order], np.arange(len(jobs)))
    return Shape(
        len(layout.gpus), len(layout.feeds), len(jobs), feed_of, job_of, cell_of, cell_job,
        cell_feed, tuple(levels), order, starts,
    )  # fmt: skip
