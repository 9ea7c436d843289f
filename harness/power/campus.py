"""A campus under its Dimmers: what a demand-response event does to it, and what it costs.

An upper Dimmer looks at every level once in 9 s and gives the racks contracts; a leaf Dimmer keeps
each rack under its own, once in 3 s. Both are the code that serves one rack. The leaf stands for
the controllers of all racks at once: a job that spans racks keeps one cap. In: how many GPUs, an
event, a seed. Out: a frozen `Campus`, whose goodput is held against the same time undimmed.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from rackproof.harness.errors import SpecError, nearest
from rackproof.harness.power.campus_house import CampusHouse, Cycle, leaves
from rackproof.harness.power.campus_plan import LEVELS, Plan, figure, plan
from rackproof.harness.power.dimmer import Bridge, Dimmer, Settings, upper_cycle
from rackproof.harness.power.zone import TOP, Array, Layout

EVENTS = ("demand-response", "none")
LEAST_CUT, LARGEST_CUT = 0.001, 0.6
HOUR, MEGA = 3600.0, 1e6


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked: `cut` is the share of the measured load that the event takes away."""

    gpus: int = 100_000
    event: str = "demand-response"
    cut: float = 0.2
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse nonsense; a SpecError that names the option."""
        if self.event not in EVENTS:
            msg = f"--event: {self.event!r}{nearest(self.event, EVENTS)}: {', '.join(EVENTS)}"
            raise SpecError(msg)
        if not LEAST_CUT <= self.cut <= LARGEST_CUT:
            msg = f"--cut: {self.cut}: a share of the load, {LEAST_CUT} to {LARGEST_CUT}"
            raise SpecError(msg)


@dataclass(frozen=True, slots=True)
class Class:
    """One priority: its jobs and GPUs, its goodput lost and its energy not used."""

    priority: int
    jobs: int
    gpus: int
    lost: float
    megawatt_hours: float


@dataclass(frozen=True, slots=True)
class At:
    """One level: its feeds, the largest strain, the share of the limit at the highest load."""

    level: str
    feeds: int
    strain: float
    tripped: int
    peak: float
    over_seconds: float


@dataclass(frozen=True, slots=True)
class Campus:
    """What came of it. Powers in MW at the utility, energies in MWh, times in s after the event.

    `limit` is that of the event (None: there was none), `under` the time until the load itself was
    under it for good (None: never), `held` whether it was in time and no breaker tripped. `reserve`
    says whether it came to rest at the Dimmer's target or below, which is under the limit. `peak`
    is the highest load before the event, `rebound` the highest after it over that before. `lost` is
    the share of the goodput (iterations, weighted by GPUs) from the event to the end.
    """

    gpus: int
    racks: int
    jobs: int
    event: str
    cut: float
    seed: int
    levels: tuple[At, ...]
    classes: tuple[Class, ...]
    built: float
    peak: float
    limit: float | None
    under: float | None
    deadline: float
    held: bool
    reserve: bool
    rebound: float
    settled: float | None
    lost: float
    energy_not_used: float
    bess_used: float
    seconds: float
    alarms: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return it as plain numbers, strings and lists."""
        body = asdict(self)
        return {**body, "levels": list(body["levels"]), "classes": list(body["classes"]),
                "alarms": list(self.alarms)}  # fmt: skip


class Controllers:
    """The upper Dimmer and the one that stands for all racks."""

    def __init__(self, campus: Plan, house: CampusHouse, seed: int) -> None:
        layout = campus.layout
        self.racks = int((campus.level == len(LEVELS) - 1).sum())
        first = len(layout.feeds) - self.racks
        below = Layout(
            layout.gpus, layout.feeds[first:], layout.feed_of - first,
            np.full(self.racks, TOP, np.intp), layout.fixed[first:],
        )  # fmt: skip
        bounds = house.bounds()
        stores = {"utility": Bridge(house.bess_full, house.bess_power)}
        above = Settings(cycle=upper_cycle(), advises=True, up=figure("gpu", "high"),
                         bridges=stores)  # fmt: skip
        self.upper = Dimmer(layout, bounds, campus.jobs, above, seed)
        self.leaf = Dimmer(below, bounds, campus.jobs, Settings(), seed)
        self.alarms: list[str] = []

    def step(self, house: CampusHouse, at: float, seconds: float, cycle: Cycle) -> None:
        """Let both look, the upper one first, and set what the leaf asks for."""
        sample = house.sample(at, seconds, cycle)
        acts = list(self.upper.step(sample).acts)
        self.leaf.obey(self.upper.contracts()[-self.racks :], self.upper.paces()[-self.racks :])
        orders = self.leaf.step(leaves(sample, self.racks))
        house.ask(orders.caps)
        for act in (*acts, *orders.acts):
            if act.what in ("alarm", "hold", "clock-jump"):
                self.alarms.append(f"{act.at:.0f} s: {act.feed}: {act.text}")


class Ledger:
    """What is noted of each cycle."""

    def __init__(self, campus: Plan) -> None:
        self.campus = campus
        feeds = len(campus.limit)
        self.load: list[tuple[float, float]] = []
        self.strain, self.peak = np.zeros(feeds), np.zeros(feeds)
        self.over, self.longest = np.zeros(feeds), np.zeros(feeds)
        self.lost = np.zeros(len(campus.jobs))
        self.saved = np.zeros(len(campus.jobs))
        self.full: Array | None = None
        self.seconds = 0.0

    def note(self, house: CampusHouse, at: float, seconds: float, cycle: Cycle) -> None:
        """Note one cycle, from the event on in `lost` and `saved`."""
        self.load.append((at, float(cycle.feed[0])))
        self.strain = np.maximum(self.strain, house.strain)
        self.peak = np.maximum(self.peak, cycle.feed / self.campus.limit)
        self.over = np.where(cycle.net > house.limit, self.over + seconds, 0.0)
        self.longest = np.maximum(self.longest, self.over)
        if self.full is None:
            return
        self.lost += (1.0 - cycle.rate) * seconds
        self.saved += (self.full - self._by_job(cycle.gpu)) * seconds
        self.seconds += seconds

    def begin(self, gpu: Array) -> None:
        """The event begins now: `gpu` is what an undimmed campus draws."""
        self.full = self._by_job(gpu)

    def _by_job(self, gpu: Array) -> Array:
        busy = self.campus.job_of >= 0
        places = self.campus.job_of[busy]
        return np.asarray(np.bincount(places, gpu[busy], len(self.campus.jobs)), np.float64)


def simulate(wanted: Wanted, tell: Callable[[float], None] = lambda _: None) -> Campus:
    """Run a campus through its event and its recovery; `tell` hears the share that is done."""
    campus = plan(wanted.gpus, wanted.seed)
    house = CampusHouse(campus, wanted.seed)
    controllers, ledger = Controllers(campus, house, wanted.seed), Ledger(campus)
    cycle = Settings().cycle
    begin = figure("event", "before")
    end = begin + figure("event", "lasts")
    last = end + figure("event", "after")
    event = wanted.event != "none"
    limit: float | None = None
    now = 0.0
    while now < last - 1e-6:
        found = house.advance(cycle)
        now += cycle
        ledger.note(house, now, cycle, found)
        if abs(now - begin) < cycle / 2.0:
            ledger.begin(found.gpu)
            if event:
                steady = float(np.mean([watts for _, watts in ledger.load[-5:]]))
                limit = house.limit[0] = (1.0 - wanted.cut) * steady
                controllers.upper.limit("utility", limit, at=now, why="demand response")
        if event and abs(now - end) < cycle / 2.0:
            house.limit[0] = campus.limit[0]
            controllers.upper.limit("utility", None, at=now, why="the event is over")
        controllers.step(house, now, cycle, found)
        tell(now / last)
    return _result(wanted, house, controllers, ledger, limit)


def _result(
    wanted: Wanted, house: CampusHouse, controllers: Controllers, ledger: Ledger,
    limit: float | None,
) -> Campus:  # fmt: skip
    campus = house.plan
    begin = figure("event", "before")
    end = begin + figure("event", "lasts")
    load = np.array(ledger.load)
    before = float(load[load[:, 0] <= begin, 1].max())
    after = load[load[:, 0] > end, 1]
    under = None if limit is None else _under(load, limit, begin, end)
    deadline = figure("event", "deadline")
    in_time = limit is None or (under is not None and under <= deadline)
    tail = load[(load[:, 0] > end - 60.0) & (load[:, 0] <= end), 1]
    gpus = np.array([len(job.gpus) for job in campus.jobs], float)
    settled = None if limit is None else float(tail.mean()) / limit
    return Campus(
        gpus=wanted.gpus,
        racks=controllers.racks,
        jobs=len(campus.jobs),
        event=wanted.event,
        cut=wanted.cut if limit is not None else 0.0,
        seed=wanted.seed,
        levels=_levels(campus, house, ledger),
        classes=_classes(campus, ledger),
        built=float(campus.limit[0]) / MEGA,
        peak=before / MEGA,
        limit=None if limit is None else limit / MEGA,
        under=under,
        deadline=deadline,
        held=in_time and not house.tripped.any(),
        reserve=settled is None or settled <= Settings().settled_high,
        rebound=float(after.max()) / before if len(after) else 1.0,
        settled=settled,
        lost=float((gpus * ledger.lost).sum() / (gpus * ledger.seconds).sum()),
        energy_not_used=float(ledger.saved.sum()) / HOUR / MEGA,
        bess_used=(house.bess_full - house.bess_least) / HOUR / MEGA,
        seconds=ledger.seconds,
        alarms=tuple(controllers.alarms),
    )


def _under(load: Array, limit: float, begin: float, end: float) -> float | None:
    """Return the s after the event from which on the load was under the limit; None for never."""
    inside = load[(load[:, 0] > begin) & (load[:, 0] <= end)]
    over = np.flatnonzero(inside[:, 1] > limit)
    if not len(over):
        return 0.0
    return float(inside[over[-1], 0] - begin) if over[-1] + 1 < len(inside) else None


def _levels(campus: Plan, house: CampusHouse, ledger: Ledger) -> tuple[At, ...]:
    found = []
    for depth, name in enumerate(LEVELS):
        there = campus.level == depth
        found.append(
            At(name, int(there.sum()), float(ledger.strain[there].max()),
               int(house.tripped[there].sum()), float(ledger.peak[there].max()),
               float(ledger.longest[there].max()))
        )  # fmt: skip
    return tuple(found)


def _classes(campus: Plan, ledger: Ledger) -> tuple[Class, ...]:
    priority = np.array([job.priority for job in campus.jobs])
    gpus = np.array([len(job.gpus) for job in campus.jobs])
    found = []
    for rank in np.unique(priority):
        own = priority == rank
        lost = float((gpus[own] * ledger.lost[own]).sum())
        total = float(gpus[own].sum()) * ledger.seconds
        saved = float(ledger.saved[own].sum()) / HOUR / MEGA
        found.append(Class(int(rank), int(own.sum()), int(gpus[own].sum()), lost / total, saved))
    return tuple(found)
