"""The electricity of a campus, one control cycle at a time: draws, caps, breakers, batteries.

In: caps and limits. Out: the mean power of the cycle of each GPU and feed, the speed of each job,
the strain of each breaker. A GPU's draw is that of its steady state (`P = d' min(high, cap) + (1 -
d') low`), for a cycle is a hundred times its lag; d' is the share of an iteration that it computes
once the cap has stretched that part by the speed law.
"""

from dataclasses import dataclass

import numpy as np

from rackproof.harness.power.campus_plan import LEVELS, Plan, figure
from rackproof.harness.power.dimmer.shape import sums
from rackproof.harness.power.zone import Array, Bounds, Sample

TRIPS = 1.0


def speed(caps: Array, high: Array, idle: float, gamma: float) -> Array:
    """Return the clock of a GPU that wants `high` W under a cap, 1 is full: by the speed law.

    ``s = ((cap - idle) / (high - idle)) ** gamma``, and 1 above `high`.
    """
    share = (np.minimum(caps, high) - idle) / np.maximum(high - idle, 1.0)
    return np.asarray(np.clip(share, 1e-3, 1.0) ** gamma)


@dataclass(frozen=True, slots=True)
class Cycle:
    """What a cycle was: W of GPUs and feeds, W that each feed takes net of its batteries, speeds.

    `rate` is the iterations of each job over those undimmed.
    """

    gpu: Array
    feed: Array
    net: Array
    rate: Array


class CampusHouse:
    """State from cycle to cycle."""

    def __init__(self, plan: Plan, seed: int) -> None:
        self.plan = plan
        self._noise = np.random.default_rng([seed, 1])
        gpus = len(plan.layout.gpus)
        self.caps = np.full(gpus, figure("gpu", "high"))
        self.limit = plan.limit.copy()
        self.strain = np.zeros(len(plan.limit))
        self.tripped = np.zeros(len(plan.limit), bool)
        large = plan.level < LEVELS.index("row")
        self._k = np.where(large, figure("breaker", "large_k"), figure("breaker", "small_k"))
        self._a = np.where(large, figure("breaker", "large_a"), figure("breaker", "small_a"))
        substations = plan.limit[plan.level == LEVELS.index("substation")].sum()
        self.bess_power = figure("bess", "power") * float(substations)
        self.bess_full = self.bess_power * figure("bess", "seconds")
        self.bess = self.bess_least = self.bess_full
        self._tree = self._levels()

    def bounds(self) -> Bounds:
        """Return the limits that the GPUs can be given."""
        count = len(self.plan.layout.gpus)
        high, low = np.full(count, figure("gpu", "high")), np.full(count, figure("gpu", "low"))
        return Bounds(low, high, high.copy(), high.copy(), high.copy())

    def _levels(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Return (feeds, their parents) of each level below the first, deepest first."""
        parent, level = self.plan.layout.parent, self.plan.level
        found = []
        for depth in range(len(LEVELS) - 1, 0, -1):
            feeds = np.flatnonzero(level == depth)
            found.append((feeds, parent[feeds]))
        return found

    def up(self, gpu: Array) -> Array:
        """Return the W of each feed under these of the GPUs."""
        layout = self.plan.layout
        total = sums(layout.feed_of, gpu, len(layout.feeds)) + layout.fixed
        for feeds, parents in self._tree:
            total += sums(parents, total[feeds], len(total))
        return total

    def advance(self, seconds: float) -> Cycle:
        """Let one cycle pass."""
        plan, draws = self.plan, self.plan.draws
        idle, gamma = figure("gpu", "idle"), figure("gpu", "gamma")
        busy = plan.job_of >= 0
        job = np.maximum(plan.job_of, 0)
        # The caps of a job are one; a GPU that keeps another one is the slowest rank of it.
        slowest = np.full(len(plan.jobs), np.inf)
        np.minimum.at(slowest, job[busy], self.caps[busy])
        clock = speed(slowest, draws.high, idle, gamma)
        step = draws.compute / clock + 1.0 - draws.compute
        share = draws.compute / clock / step
        wander = self._noise.normal(1.0, figure("job", "noise"), len(plan.jobs))
        high = np.minimum(draws.high[job] * plan.scale, self.caps)
        drawn = share[job] * high + (1.0 - share[job]) * draws.low[job] * plan.scale
        gpu = np.where(busy, drawn * wander[job], idle)
        feed = self.up(gpu)
        net = self._batteries(feed, seconds)
        self._strain(net, seconds)
        return Cycle(gpu, feed, net, 1.0 / step)

    def _batteries(self, feed: Array, seconds: float) -> Array:
        """Return what the feeds take net of the batteries, which give what the utility lacks."""
        net = feed.copy()
        lack = min(max(float(feed[0] - self.limit[0]), 0.0), self.bess_power, self.bess / seconds)
        spare = min(max(float(self.limit[0] - feed[0]), 0.0), 0.1 * self.bess_power)
        taken = min(spare, (self.bess_full - self.bess) / seconds) if lack == 0.0 else 0.0
        self.bess += (taken - lack) * seconds
        self.bess_least = min(self.bess_least, self.bess)
        net[0] += taken - lack
        return net

    def _trip_in(self, net: Array) -> Array:
        over = np.maximum(net / self.limit - 1.0, 0.0)
        left = self._k * np.maximum(1.0 - self.strain, 0.0)
        found = np.full_like(over, np.inf)
        np.divide(left, over**self._a, out=found, where=over > 0.0)
        return found

    def _strain(self, net: Array, seconds: float) -> None:
        """Integrate ``dt / t_trip`` above the limit; below, let it decay."""
        over = np.maximum(net / self.limit - 1.0, 0.0)
        cooled = self.strain * np.exp(-seconds / figure("breaker", "decay"))
        strained = np.minimum(self.strain + seconds * over**self._a / self._k, TRIPS)
        self.strain = np.where(over > 0.0, strained, cooled)
        self.tripped |= self.strain >= TRIPS

    def sample(self, at: float, seconds: float, cycle: Cycle) -> Sample:
        """Return what a controller sees of a cycle."""
        return Sample(
            at, seconds, cycle.gpu, cycle.feed, self.strain.copy(), self._trip_in(cycle.net),
            np.ones(len(self.limit), bool), self.caps.copy(), self.caps.copy(),
            self.plan.limit.copy(),
        )  # fmt: skip

    def ask(self, caps: Array) -> None:
        """Set the caps that are no NaN."""
        self.caps = np.where(np.isnan(caps), self.caps, caps)


def leaves(sample: Sample, racks: int) -> Sample:
    """Return what the controllers of the racks see of it: the last `racks` feeds."""
    return Sample(
        sample.at, sample.seconds, sample.gpu, sample.feed[-racks:], sample.strain[-racks:],
        sample.trip_in[-racks:], sample.ac[-racks:], sample.current, sample.requested,
        sample.limit[-racks:],
    )  # fmt: skip
