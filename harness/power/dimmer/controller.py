"""The Dimmer: looks at a zone, and says which caps to ask for so that no feed draws over its limit.

    Pm = mean over W (at least 4 s, two iterations, whole ones)
    Pn = Pm - cuts that were ordered and have not yet arrived
    each cycle:  Pn > 0.99 x limit: cut to 0.95;  Pn < 0.90 x limit for 3 cycles: raise

It never touches hardware: samples go in, orders come out, and whoever stands between reads and
writes. The same code serves one rack of 72 GPUs, a campus of 1,000,000, and an upper controller
that only gives contracts (`Settings.advises`). Time is that of the samples; a clock that jumps
moves nothing.
"""

from collections.abc import Sequence

import numpy as np

from rackproof.harness.power.dimmer import sharing
from rackproof.harness.power.dimmer.asks import Asks
from rackproof.harness.power.dimmer.bands import Bands, Limits
from rackproof.harness.power.dimmer.clockwork import Clockwork
from rackproof.harness.power.dimmer.past import Outlook, Past
from rackproof.harness.power.dimmer.ramp import NORMAL, Way, emergency, jitters, pace
from rackproof.harness.power.dimmer.settings import Settings
from rackproof.harness.power.dimmer.shape import NOBODY, shape
from rackproof.harness.power.dimmer.telling import Telling
from rackproof.harness.power.dimmer.trust import Flags, Seen, Trust
from rackproof.harness.power.dimmer.words import Job, Orders
from rackproof.harness.power.zone import Array, Bounds, Layout, Places, Sample

PACES = ("by the normal ramp", "by the urgent ramp", "at once")
NEAR_W = 0.5
SHORT = 0.005
"""Of a limit: a target that is missed by less is met."""
ROUGH = 0.1
"""Of a contract: whoever gave it reckons with a model of its own."""


class Dimmer:
    """One controller over all feeds of a layout."""

    def __init__(
        self, layout: Layout, bounds: Bounds, jobs: Sequence[Job], settings: Settings, seed: int
    ) -> None:
        """Work out who hangs on what; a ValueError where layout, bounds and jobs do not fit."""
        self.layout, self.jobs, self.settings = layout, tuple(jobs), settings
        self._names = [job.name for job in jobs]
        self._shape = shape(layout, jobs)
        self._asks = Asks(self._shape, bounds, settings)
        self._past = Past(self._shape, np.array([job.period for job in jobs]), settings)
        self._trust = Trust(self._shape, layout.fixed, self._past.windows, settings)
        feeds = self._shape.feeds
        self._bands = Bands(feeds, settings)
        self._clock = Clockwork(settings)
        nothing = np.full(feeds, np.inf)
        self._limits = Limits(nothing, nothing.copy(), nothing.copy())
        known = np.where(self._asks.answers, self._asks.ceiling, np.nan)
        self._ceiling = np.maximum(self._shape.highest(known), 0.0)
        lowest = self._shape.highest(np.where(self._asks.answers, self._asks.low, np.nan))
        self._floor = np.maximum(np.array([job.floor for job in jobs]), lowest)
        self._priority = np.array([job.priority for job in jobs], float)
        now = np.where(self._asks.answers, self._asks.current, np.nan)
        self._at = np.clip(self._shape.highest(now), 0.0, self._ceiling)
        self._goal = self._at.copy()
        self._force = self._judged = self._at.copy()
        self._ramping = np.zeros(self._shape.jobs, bool)
        self._pace = np.zeros(self._shape.jobs, np.intp)
        self._starts = np.full(self._shape.jobs, np.nan)
        self._bad = np.full(feeds, -np.inf)
        self._held = np.zeros(feeds, bool)
        self._dark = np.zeros(self._shape.feeds, bool)
        self._doubted = np.zeros(feeds, bool)
        self._ac = np.ones(feeds, bool)
        self._paces = self._told_pace = np.zeros(feeds, np.intp)
        self._idle = settings.idle * self._asks.top
        self._late = self._lateness(seed)
        self._energy, self._power = _stores(layout, settings)
        self._outlook: Outlook | None = None
        self._bands.dimmed |= self._shape.beneath(self._ceiling - self._at) > NEAR_W
        self._pending: list[tuple[str, str, str, float]] = []
        self._asked = np.full(self._shape.gpus, np.nan)

    def _lateness(self, seed: int) -> Array:
        """Return by how many s each job begins to rise late: as the first of its racks does."""
        drawn = jitters(self.layout.feeds, seed, self.settings.jitter)
        first = np.searchsorted(self._shape.cell_job, np.arange(self._shape.jobs))
        return drawn[self._shape.cell_feed[first]]

    # --- what others say -----------------------------------------------------------------------
    def limit(self, feed: str, watts: float | None, *, at: float, why: str) -> None:
        """Take a new limit of a feed, W (None: there is none); it is heeded at the next step.

        A KeyError for a feed that is none, a ValueError for a limit that can be none.
        """
        self._set(self._limits.own, feed, watts)
        said = "is lifted" if watts is None else f"is {watts:.0f} W now"
        self._pending.append(("dimmer-acts", feed, f"its limit {said}: {why}", at))

    def contract(self, feed: str, watts: float | None, *, at: float) -> None:
        """Take a contract of an upper controller, W (None: it has none); lower ones at once."""
        del at
        self._set(self._limits.contract, feed, watts)

    def obey(self, contracts: Array, paces: Places) -> None:
        """Take the contracts of all feeds, W (shape: feeds; NaN: none), and how fast to keep them.

        As `contracts` and `paces` of an upper controller give them. Lower ones are heeded at once.
        """
        self._told_pace = paces
        new = np.where(np.isnan(contracts), np.inf, contracts)
        self._clock.event |= bool((new < self._limits.contract - NEAR_W).any())
        self._limits.contract[:] = new

    def _set(self, limits: Array, feed: str, watts: float | None) -> None:
        place = self.layout.feeds.index(feed) if feed in self.layout.feeds else NOBODY
        if place == NOBODY:
            msg = f"{feed!r} is no feed of this zone"
            raise KeyError(msg)
        if watts is not None and not (np.isfinite(watts) and watts >= 0.0):
            msg = f"{feed}: a limit of {watts} W can be none"
            raise ValueError(msg)
        new = np.inf if watts is None else float(watts)
        if new != limits[place]:
            self._clock.event |= new < limits[place]
            self._bands.short[place] = False
        limits[place] = new

    def answer(self, back: Array, *, at: float) -> Orders:
        """Take what the zone answered to the last orders: NaN where it refused (shape: GPUs)."""
        told = Telling(at)
        self._tell_gpus(told, "refused", self._asks.read_back(self._asked, back),
                        "refused a cap: counted as not cappable")  # fmt: skip
        self._clock.event |= bool(told.acts)
        nothing = np.full(self._shape.gpus, np.nan)
        return Orders(nothing, tuple(told.acts), self._clock.due(at, moving=False))

    # --- one look ------------------------------------------------------------------------------
    def step(self, sample: Sample) -> Orders:
        """Take a look, and return what to ask for now."""
        told = Telling(sample.at)
        for what, feed, text, at in self._pending:
            told.plain(what, text, feed=feed, known=at)
        self._pending.clear()
        self._watch(sample, told)
        way_near = self._near(sample)
        cycle = self._clock.cycle()
        if cycle or self._clock.event or way_near.any():
            self._judge(sample, told, cycle=cycle)
        self._ramp(sample, told)
        caps = np.full(self._shape.gpus, np.nan)
        if not self.settings.advises:
            caps = self._asks.ask(self._at, self._trust.gone, again=cycle)
        self._asked = caps
        moving = bool((self._at > self._goal + NEAR_W).any()) or bool(way_near.any())
        return Orders(caps, tuple(told.acts), self._clock.due(sample.at, moving=moving))

    def _watch(self, sample: Sample, told: Telling) -> None:
        seconds, jump = self._clock.pass_to(sample)
        if jump:
            told.plain("clock-jump", jump)
            self._past.forget()
            self._bad[:] = self._past.now
        seen = self._trust.look(sample, seconds)
        if self.settings.advises:
            self._asks.follow(sample)
        refuses, lower = self._asks.see(sample)
        self._tell_gpus(told, "refused", refuses, "refused a cap: counted as not cappable")
        self._tell_gpus(told, "foreign-cap", lower, "capped by another hand, which is respected")
        self._clock.event |= bool(refuses.any())
        before = self._force
        usable = self._asks.obeys(self._trust.gone)
        read = self._shape.highest(np.where(usable, self._asks.current, np.nan))
        self._force = np.where(np.isfinite(read), np.minimum(read, self._ceiling), self._at)
        if self.settings.advises:
            self._at = self._force.copy()
        if seconds > 0.0:
            share = min(1.0, self.settings.lag / seconds)
            caps = self._force + (before - self._force) * share
            moved = np.abs(before - self._force) > NEAR_W
            self._past.changed[moved] = self._past.now + self.settings.lag
            self._past.add(seconds, seen, caps, _hurry(sample))
        stated = np.where(np.isfinite(sample.limit), sample.limit, np.inf)
        self._clock.event |= bool((stated < self._limits.stated - NEAR_W).any())
        self._clock.event |= bool((self._ac & ~sample.ac).any())
        self._ac = sample.ac.copy()
        self._limits.stated[:] = stated
        self._hold(seen, told)

    def _hold(self, seen: Seen, told: Telling) -> None:
        """Find the feeds whose telemetry is lost, or whose meter is not believed."""
        held = self._past.missing() > self.settings.missing
        names, nothing = self.layout.feeds, {"missing": self._past.missing()}
        text = "telemetry is lost: {missing:.0%} of the reads of the window are missing"
        told.feeds("hold", names, held & ~self._held,
                   f"{text}; the caps are held, and nothing is raised", nothing)  # fmt: skip
        told.feeds("alarm", names, held & ~self._held, text, nothing)
        told.feeds("resume-telemetry", names, self._held & ~held,
                   "telemetry is back: nothing is raised before a full window", {})  # fmt: skip
        rest = {"rest": self._trust.rest}
        told.feeds("alarm", names, seen.doubted & ~self._doubted,
                   "its meter is not believed: the sum of its GPUs and {rest:.0f} W is taken for"
                   " it", rest)  # fmt: skip
        self._held, self._doubted = held, seen.doubted
        self._dark = held | (seen.missing > self.settings.missing)
        self._bad[held | seen.doubted | (seen.missing > self.settings.missing)] = self._past.now

    def _near(self, sample: Sample) -> Flags:
        """Return the feeds at which nothing waits, while they draw more than they may."""
        way = self._way(sample, np.zeros(self._shape.feeds))
        limit = self._limits.lowest()
        power = sample.feed if self._outlook is None else self._outlook.mean
        return np.asarray(emergency(way, self.settings) & (power > self.settings.above * limit))

    # --- decisions -----------------------------------------------------------------------------
    def _judge(self, sample: Sample, told: Telling, *, cycle: bool) -> None:
        past, asks, bands = self._past, self._asks, self._bands
        fresh = past.learn(asks.current)
        # A look in which a cap still moved may reach into the window: it shows no disobedience.
        stood = np.append(past.clean(past.longest), False)[self._shape.job_of]
        ignores = asks.heed(past.plateau, fresh & stood)
        self._tell_gpus(told, "refused", ignores, "draw more than their cap: not cappable")
        past.build(asks.ceiling, self._idle, asks.obeys(self._trust.gone))
        outlook = self._outlook = past.outlook(self._goal)
        self._judged = self._goal
        limit = self._limits.lowest()
        near = self._near(sample)
        excess = bands.excess(outlook, limit, near | self._clock.event)
        bound = np.where(np.isfinite(limit), limit, 0.0)
        room = np.where(bands.settling, 0.0, self.settings.sliver * bound)
        excess += np.minimum(self.settings.short * excess, np.where(near, np.inf, room))
        # While a ramp is on its way the ripple of stretched steps is doubt: it starts no other cut.
        moving = self._shape.beneath((self._at - self._goal > NEAR_W).astype(float)) > 0.0
        doubt = outlook.coming - self.settings.ripple * bound <= self.settings.above * bound
        if not (self._clock.event or self.settings.advises):
            excess[moving & doubt & ~near & ~outlook.blurred] = 0.0
        # Of a window that is not full nothing is known, but that nothing waits; in the dark no
        # more is known than before, and only a limit that falls is answered.
        excess[~past.judgeable & ~near] = 0.0
        if not self._clock.event:
            excess[self._dark & ~near] = 0.0
        if (excess > 0.0).any():
            self._cut(excess, outlook, limit, told)
        bands.over &= outlook.coming > self.settings.above * limit
        if cycle:
            self._raise(outlook, limit, told)
        self._clock.judged(cycle=cycle)

    def _cut(self, excess: Array, outlook: Outlook, limit: Array, told: Telling) -> None:
        bands, names = self._bands, self.layout.feeds
        figures = {"power": outlook.coming, "limit": limit, "excess": excess}
        model = self._past.model
        if model is None:
            return
        found = sharing.cut(self._shape, model, self._goal, self._floor, excess)
        lower = found.caps < self._goal - NEAR_W
        new = (excess > 0.0) & ~bands.over
        told.feeds("overload-detected", names, new,
                   "near its limit: {power:.0f} W to come, {limit:.0f} W allowed",
                   figures)  # fmt: skip
        bands.over |= excess > 0.0
        if lower.any():
            told.feeds("dimmer-acts", names, excess > 0.0,
                       "sheds {excess:.0f} W: {power:.0f} W to come, {limit:.0f} W allowed",
                       figures)  # fmt: skip
            bands.fell(excess > 0.0, self._past.now)
            cells = np.zeros(self._shape.jobs)
            np.maximum.at(cells, self._shape.cell_job, model.highest())
            stands = self._at <= self._goal + NEAR_W
            self._at = np.where(lower, np.minimum(self._at, cells), self._at)
            self._goal = np.where(lower, found.caps, self._goal)
            self._at = np.maximum(self._at, self._goal)
            self._pace[lower & stands] = NORMAL
            self._starts[lower] = np.nan
        short = found.unmet > 1.0 + np.where(self._limits.contracted(), ROUGH, SHORT) * limit
        left = {"unmet": found.unmet, "limit": limit}
        # What is cut is cut to the target: what stays over that may still be under the limit.
        under = found.unmet <= (1.0 - self.settings.target) * limit
        for which, goal in ((under, f"to its target, {self.settings.target:.0%} of its limit"),
                            (~under, "under its limit")):  # fmt: skip
            told.feeds("alarm", names, short & ~bands.short & which,
                       f"cannot come {goal}: {{unmet:.0f}} W over the target remain with every"
                       " job at its floor", left)  # fmt: skip
        bands.short |= short

    def _raise(self, outlook: Outlook, limit: Array, told: Telling) -> None:
        bands, past, names = self._bands, self._past, self.layout.feeds
        model = past.model
        if model is None:
            return
        # What is held or doubted is bad now: after it, a full window comes first.
        may = (past.now - self._bad >= past.windows) & (past.seen >= past.windows)
        figures = {"power": outlook.coming, "limit": limit}
        starts = bands.listen(outlook, limit, may, past.now)
        told.feeds("raise", names, starts,
                   "has room: {power:.0f} W to come, {limit:.0f} W allowed", figures)  # fmt: skip
        budget = bands.budget(outlook, limit, may)
        free = sharing.least(self._shape, budget) > 0.0
        free &= self._goal < self._ceiling - NEAR_W
        if not self.settings.advises:
            free &= self._at <= self._goal + NEAR_W
        late = 0.0 if self.settings.advises else self._late
        self._starts = np.where(free, np.where(np.isnan(self._starts), past.now + late,
                                               self._starts), np.nan)  # fmt: skip
        rise = sharing.Rise(self._goal, self._ceiling, free & (past.now >= self._starts),
                            self.settings.up)  # fmt: skip
        self._goal = sharing.rise(self._shape, model, rise, self._priority, budget)
        self._at = np.maximum(self._at, self._goal)
        back = self._shape.beneath(self._ceiling - self._goal) <= NEAR_W
        told.feeds("settled", names, bands.restored(back),
                   "all of its caps are back at what was asked for before", {})  # fmt: skip
        told.feeds("settled", names, bands.settle(outlook, limit),
                   "settled at {power:.0f} W of {limit:.0f} W",
                   {**figures, "power": outlook.calm})  # fmt: skip

    # --- ramps ---------------------------------------------------------------------------------
    def _way(self, sample: Sample, over: Array, slope: Array | None = None) -> Way:
        strain = np.nan_to_num(sample.strain)
        trip = np.where(np.isnan(sample.trip_in), np.inf, sample.trip_in)
        return Way(
            over, np.zeros_like(over) if slope is None else slope, strain, self._past.hurry(), trip,
            np.asarray(sample.ac, bool), self._energy, self._power,
        )  # fmt: skip

    def _ramp(self, sample: Sample, told: Telling) -> None:
        """Move the caps of the jobs towards what was decided."""
        down = self._at > self._goal + NEAR_W
        model, outlook = self._past.model, self._outlook
        self._paces = np.zeros(self._shape.feeds, np.intp)
        if model is None or outlook is None or not down.any():
            self._ramping = np.zeros_like(down)
            return
        rest = self._past.power(self._at) - self._past.power(self._judged)
        over = outlook.coming + rest - self._limits.lowest()
        gap = self._shape.beneath(np.where(down, self._at - self._goal, 0.0))
        falls = self._past.power(self._at) - self._past.power(self._goal)
        slope = np.divide(falls, gap, out=np.zeros_like(falls), where=gap > NEAR_W)
        paces = np.maximum(pace(self._way(sample, over, slope), self.settings), self._told_pace)
        # Who joins a way down that is not over goes no slower than those who are on it.
        going = self._shape.beneath(np.where(down & self._ramping, self._pace, NORMAL))
        paces = np.where(over > 0.0, np.maximum(paces, going), paces).astype(np.intp)
        self._paces = np.where(over > 0.0, paces, NORMAL)
        if self.settings.advises:
            return
        found = np.where(down, np.maximum(self._shape.worst(paces), self._pace), 0).astype(np.intp)
        for each, said in enumerate(PACES):
            news = (found == each) & down & ((each > self._pace) | ~self._ramping)
            told.paces(self._names, news, f"dimmed {said}", each)
        rates = np.array([self.settings.down, self.settings.urgent, np.inf])
        # Who stood still until now moves for one tick, whatever the time since the last ramp was.
        passed = self._clock.ramped()
        seconds = np.where(self._ramping, passed, min(passed, self.settings.tick))
        self._pace, self._ramping = found, down
        by = rates[self._pace] * seconds
        self._at = np.where(down, np.maximum(self._at - by, self._goal), self._at)

    # --- for controllers below -----------------------------------------------------------------
    def contracts(self) -> Array:
        """Return what each feed may draw by what was decided, W (shape: feeds; NaN: as it likes).

        For `obey` of the controllers below, who keep `target` of it.
        """
        if self._outlook is None:
            return np.full(self._shape.feeds, np.nan)
        dimmed = self._shape.beneath(self._ceiling - self._goal) > NEAR_W
        moved = self._past.power(self._judged) - self._past.power(self._goal)
        return np.where(dimmed, (self._outlook.coming - moved) / self.settings.target, np.nan)

    def paces(self) -> Places:
        """Return how fast the controllers below must be (NORMAL, URGENT, STEP; shape: feeds)."""
        found = self._paces.copy()
        for level in self._shape.levels:
            inside = level.above != NOBODY
            found[inside] = np.maximum(found[inside], self._paces[level.above[inside]])
        return found

    def _tell_gpus(self, told: Telling, what: str, which: Flags, text: str) -> None:
        """Tell of GPUs, job by job."""
        if not which.any():
            return
        owned = which & (self._shape.job_of != NOBODY)
        counts = np.bincount(self._shape.job_of[owned], minlength=self._shape.jobs)
        told.jobs(what, self._names, counts, text)


def _stores(layout: Layout, settings: Settings) -> tuple[Array, Array]:
    """Return J and W of each feed's stores; inf where none are stated: they set no bound."""
    bridges = [settings.bridges.get(feed) for feed in layout.feeds]
    energy = [np.inf if bridge is None else bridge.energy for bridge in bridges]
    power = [np.inf if bridge is None else bridge.power for bridge in bridges]
    return np.array(energy), np.array(power)


def _hurry(sample: Sample) -> Array:
    """Return the strain that a second at the load of now adds to each breaker, 1/s."""
    left = np.maximum(1.0 - np.nan_to_num(sample.strain), 0.0)
    seconds = np.where(np.isnan(sample.trip_in), np.inf, np.maximum(sample.trip_in, 1e-3))
    return np.asarray(left / seconds)
