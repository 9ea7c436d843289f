"""A small, honest plant: GPUs behind feeds, first-order lags, jobs that alternate, breakers."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from rackproof.harness.power.dimmer import Dimmer, Job, Settings
from rackproof.harness.power.zone import TOP, Bounds, Layout, Sample

IDLE, TOP_W, LOW_W = 145.0, 1200.0, 200.0
DEAD, TAU_CAP, TAU_POWER, TICK = 0.05, 0.05, 0.025, 0.01
GAMMA = 0.24


@dataclass
class Load:
    """A job's phases: `period` at full speed, of which `talk` is communication; draws in W."""

    period: float = 2.0
    talk: float = 0.3
    high: float = 1200.0
    low: float = 400.0
    phase: float = 0.0


@dataclass
class Feeds:
    """Feed names with parents by name, fixed W, and how many GPUs hang on each."""

    names: tuple = ("rack0/power",)
    parents: tuple = (None,)
    fixed: tuple = (45_000.0,)
    gpus: tuple = (72,)


class Plant:
    """Runs a Dimmer in closed loop; keeps what happened at every tick."""

    def __init__(self, feeds=None, jobs=None, loads=None, settings=None, seed=1):
        feeds = feeds or Feeds()
        count = sum(feeds.gpus)
        places = {name: n for n, name in enumerate(feeds.names)}
        self.layout = Layout(
            tuple(f"gpu{n}" for n in range(count)), feeds.names,
            np.repeat(np.arange(len(feeds.names)), feeds.gpus),
            np.array([TOP if p is None else places[p] for p in feeds.parents]),
            np.array(feeds.fixed, float),
        )  # fmt: skip
        self.jobs = jobs or [Job("train", np.arange(count), 0, LOW_W, 2.0)]
        self.loads = loads or [Load() for _ in self.jobs]
        full = np.full(count, TOP_W)
        self.bounds = Bounds(np.full(count, LOW_W), full, full, full, full)
        self.settings = settings or Settings()
        self.dimmer = Dimmer(self.layout, self.bounds, self.jobs, self.settings, seed)
        self.asked, self.foreign = full.copy(), np.full(count, np.inf)
        self.deaf, self.refuses = np.zeros(count, bool), np.zeros(count, bool)
        self.ceiling, self.power = full.copy(), np.full(count, IDLE)
        self.scale = np.ones(count)
        self.queue: list = []
        self.now, self.done = 0.0, np.zeros(len(self.jobs))
        self.rated = np.full(len(feeds.names), np.inf)
        self.strain = np.zeros(len(feeds.names))
        self.ac = np.ones(len(feeds.names), bool)
        self.stated = np.full(len(feeds.names), np.nan)
        self.curve = (9.22, 2.04)
        self.spoil = lambda sample: sample  # what the sensors make of the truth
        self.due, self.last = 0.0, 0.0
        self.gpu_sum, self.feed_sum = np.zeros(count), np.zeros(len(feeds.names))
        self.trace: list = []  # (at, feeds' W, first GPU's cap of each job)
        self.acts: list = []
        self.asks: list = []  # (at, caps)
        self.ticks = 0.5

    def limit(self, feed, watts, *, known=True):
        """Lower (or lift) the limit of a feed and of its breaker."""
        self.rated[self.layout.feeds.index(feed)] = np.inf if watts is None else watts
        if known:
            self.dimmer.limit(feed, watts, at=self.now, why="a test")
            self.look()

    def up(self, leaves):
        total = np.array(leaves, float)
        for feed in range(len(total) - 1, -1, -1):
            if self.layout.parent[feed] != TOP:
                total[self.layout.parent[feed]] += total[feed]
        return total

    def feed_power(self):
        own = np.bincount(self.layout.feed_of, self.power, len(self.layout.feeds))
        return self.up(own + self.layout.fixed)

    def tick(self):
        while self.queue and self.queue[0][0] <= self.now:
            _, caps = self.queue.pop(0)
            self.asked = np.where(np.isfinite(caps), caps, self.asked)
        limit = np.minimum(np.where(self.deaf, TOP_W, self.asked), self.foreign)
        self.ceiling += (limit - self.ceiling) * (1 - np.exp(-TICK / TAU_CAP))
        wanted = np.full(len(self.power), IDLE)
        for number, (job, load) in enumerate(zip(self.jobs, self.loads, strict=True)):
            compute = load.period * (1 - load.talk)
            at = (self.done[number] + load.phase) % load.period
            busy = at < compute
            wanted[job.gpus] = (load.high if busy else load.low) * self.scale[job.gpus]
            cap = float(self.ceiling[job.gpus].min())
            slow = min(1.0, max((cap - IDLE) / (load.high - IDLE), 0.01)) ** GAMMA
            self.done[number] += TICK * (slow if busy else 1.0)
        wanted = np.minimum(wanted, self.ceiling)
        self.power += (wanted - self.power) * (1 - np.exp(-TICK / TAU_POWER))
        feeds = self.feed_power()
        k, a = self.curve
        over = np.maximum(feeds / self.rated - 1.0, 0.0)
        self.strain += np.where(over > 0, TICK * over**a / k, -self.strain * TICK / 120.0)
        self.gpu_sum += self.power * TICK
        self.feed_sum += feeds * TICK
        self.now += TICK
        self.trace.append((self.now, feeds, [self.asked[job.gpus[0]] for job in self.jobs]))

    def sample(self):
        seconds = self.now - self.last
        feeds = self.feed_power()
        gpu = self.gpu_sum / seconds if seconds > 0 else self.power
        feed = self.feed_sum / seconds if seconds > 0 else feeds
        k, a = self.curve
        over = np.maximum(feeds / self.rated - 1.0, 1e-12)
        trip = np.where(feeds > self.rated, (1 - self.strain) * k / over**a, np.inf)
        requested = self.queue[-1][1] if self.queue else self.asked
        requested = np.where(np.isfinite(requested), requested, self.asked)
        return Sample(self.now, seconds, gpu.copy(), feed.copy(), self.strain.copy(), trip,
                      self.ac.copy(), np.minimum(requested, self.foreign), requested,
                      self.stated.copy())  # fmt: skip

    def look(self):
        orders = self.dimmer.step(self.spoil(self.sample()))
        if self.now > self.last:
            self.gpu_sum[:], self.feed_sum[:], self.last = 0.0, 0.0, self.now
        self.due = orders.due
        self.acts += orders.acts
        self.asks.append((self.now, orders.caps))
        caps = np.where(self.refuses, np.nan, orders.caps)
        self.queue.append((self.now + DEAD, caps))
        self.asked_for = caps
        return orders

    def run(self, seconds):
        end = self.now + seconds
        while self.now < end - 1e-9:
            self.tick()
            if self.now >= min(self.due, self.last + self.ticks) - 1e-9:
                self.look()
        return self

    # --- what happened
    def means(self, feed=0, window=4.0, since=0.0):
        """Sliding means of a feed over `window`, at 0.1 s grain: times, W."""
        at = np.array([t[0] for t in self.trace])
        watts = np.array([t[1][feed] for t in self.trace])
        total = np.concatenate([[0.0], np.cumsum(watts)])
        n = round(window / TICK)
        mean = (total[n:] - total[:-n]) / n
        ends = at[n - 1 :]
        take = ends >= since
        return ends[take][::10], mean[take][::10]

    def caps(self, job=0, since=0.0):
        pairs = [(t[0], t[2][job]) for t in self.trace if t[0] >= since]
        return np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])

    def said(self, what):
        return [act for act in self.acts if act.what == what]


@pytest.fixture
def plant():
    """Make a plant; the default is one rack of 72 under one job."""
    return Plant


@pytest.fixture
def kit():
    """The sorts that plants are made of."""
    return Kit()


@dataclass
class Kit:
    feeds: type = field(default=Feeds)
    load: type = field(default=Load)
