"""What hangs on what: site, main board, row, racks; a breaker for each, and what passes them.

In: the load on each rack's bus in each tick. Out: for each feed its load and what the side above it
sees, W (ticks x feeds). The racks' capacitors and batteries stand between a rack's bus and its
breaker, the site's BESS between the main board and the utility:

    GPUs + fixed -> CBU -> shelves, BBU -> rack's breaker -> row -> main board -> BESS -> site

One row and one main board carry all racks of the house. A breaker that trips opens the whole way:
what hangs below it is dark, its batteries too.
"""

import numpy as np

from rackproof.harness.devices.emulated.house.bank import TICK_S
from rackproof.harness.devices.emulated.house.breaker import Breaker
from rackproof.harness.devices.emulated.house.parameters import Parameters
from rackproof.harness.devices.emulated.house.plan import Plan
from rackproof.harness.devices.emulated.house.stores import Store
from rackproof.harness.devices.emulated.house.supply import Happened, Inlet, Supply
from rackproof.harness.errors import SpecError, nearest
from rackproof.harness.power.zone import TOP, Array, Layout
from rackproof.harness.spec import RackSpec

SITE, MAIN, ROW, RACKS = 0, 1, 2, 3
"""Places of the feeds; the racks follow from RACKS on."""
TRIPPED, CBU_RESPONDS = "breaker-tripped", "cbu-responds"
BESS_GIVES, BESS_TAKES = "bess-discharges", "bess-charges"
RESPONDS = 0.05
"""A store whose power changes by this share of its rating is said to respond."""


def layout(spec: RackSpec, plan: Plan) -> Layout:
    """Return who hangs on what; GPUs in the order of the rack's file."""
    racks = [rack.feed for rack in plan.racks]
    return Layout(
        gpus=tuple(gpu.subject for gpu in spec.gpus),
        feeds=("site/power", "main/power", "row0/power", *racks),
        feed_of=np.array([RACKS + gpu.rack for gpu in spec.gpus], np.intp),
        parent=np.array([TOP, SITE, MAIN, *[ROW] * len(racks)], np.intp),
        fixed=np.array([0.0] * RACKS + [rack.fixed for rack in plan.racks]),
    )


class Hierarchy:
    """The feeds of a house, with breakers and stores; `happened` is what they did."""

    def __init__(self, laid: Layout, plan: Plan, parameters: Parameters) -> None:
        self.layout, self.plan = laid, plan
        inlet, each = Inlet.of(parameters), round(parameters.number("supply.each"))
        self.supplies = [
            Supply(rack, inlet, each, Store(rack.bbu, 1.0) if rack.bbu else None)
            for rack in plan.racks
        ]
        self.cbus = [Store(rack.cbu) if rack.cbu else None for rack in plan.racks]
        self.bess = Store(plan.bess) if plan.bess else None
        self.built = [plan.site, plan.main, plan.row, *(rack.rated for rack in plan.racks)]
        curves = [plan.board, plan.board, plan.branch, *(plan.branch for _ in plan.racks)]
        self.breakers = [
            Breaker(watts, curve) for watts, curve in zip(self.built, curves, strict=True)
        ]
        self.happened: list[Happened] = []
        self._fixed = laid.fixed[RACKS:]
        self._lost: set[int] = set()
        self._sags: list[tuple[int, float, float]] = []
        self._armed: dict[int, float] = {}

    def place(self, feed: str) -> int:
        """Return a feed's place. SpecError for one that there is not."""
        if feed not in self.layout.feeds:
            msg = f"no feed is called {feed!r}{nearest(feed, self.layout.feeds)}"
            raise SpecError(msg)
        return self.layout.feeds.index(feed)

    def racks_below(self, place: int) -> range:
        """Return the racks that hang on a feed, by number."""
        return range(len(self.supplies)) if place < RACKS else range(place - RACKS, place - 2)

    @property
    def stores(self) -> dict[str, Store]:
        """All stores by subject, such as ``rack0/power/bbu`` and ``site/power/bess``."""
        found = {} if self.bess is None else {"site/power/bess": self.bess}
        for rack, supply, cbu in zip(self.plan.racks, self.supplies, self.cbus, strict=True):
            found |= {} if supply.bbu is None else {f"{rack.feed}/bbu": supply.bbu}
            found |= {} if cbu is None else {f"{rack.feed}/cbu": cbu}
        return found

    # --- what is done to it ------------------------------------------------------------------

    def arm(self) -> None:
        """Something happens to the house: whichever store responds to it is said to, once."""
        self._armed = {RACKS + n: cbu.power for n, cbu in enumerate(self.cbus) if cbu}
        if self.bess is not None:
            self._armed[SITE] = self.bess.power

    def lose(self, place: int) -> None:
        """Take the mains away from a feed and all below it."""
        self._lost.add(place)
        self.arm()

    def give(self, place: int) -> None:
        """Give them back."""
        self._lost.discard(place)
        self.arm()

    def sag(self, place: int, left: float, until: float) -> None:
        """Leave a share of the voltage until a moment of the house's clock."""
        self._sags.append((place, left, until))
        self.arm()

    def close(self, place: int) -> None:
        """Close the breakers of a feed and above it, and switch the racks below it on again."""
        while place != TOP:
            self.breakers[place].close()
            place = int(self.layout.parent[place])

    def next_change(self, at: float) -> float:
        """Return when a sag ends next, s after `at`; inf where there is none."""
        return min([until - at for _, _, until in self._sags], default=float("inf"))

    def ac(self, place: int) -> bool:
        """Whether the mains reach a feed."""
        return self._share(place) > 0.0

    def _share(self, place: int) -> float:
        """Return the share of the voltage at a feed."""
        share, own = 1.0, place
        while place != TOP:
            if place in self._lost or (place != own and self.breakers[place].tripped):
                return 0.0
            share = min([share, *(left for at, left, _ in self._sags if at == place)])
            place = int(self.layout.parent[place])
        return 0.0 if self.breakers[own].tripped else share

    # --- time --------------------------------------------------------------------------------

    @property
    def calm(self) -> bool:
        """Whether nothing goes on that has to be looked at closely."""
        return all(supply.calm for supply in self.supplies)

    def settle(self, at: float) -> None:
        """Take the voltages as they are at this moment."""
        self._sags = [sag for sag in self._sags if sag[2] > at + TICK_S / 2.0]
        for rack, supply in enumerate(self.supplies):
            supply.mains = self._share(RACKS + rack)
            supply.room = self._room(RACKS + rack)

    def _room(self, place: int) -> float:
        """Return what a rack may draw by the ratings that hold now, its share of those above, W."""
        room, share = self.breakers[place].rated, self.built[place] / sum(self.built[RACKS:])
        for above in (ROW, MAIN, SITE):
            room = min(room, self.breakers[above].rated * share)
        return room

    def run(self, gpus: Array, at: float) -> tuple[Array, Array]:
        """Let ticks pass from `at` on; `gpus` is what the GPUs of each rack draw, W.

        Return each feed's load and what is seen above it (ticks x feeds).
        """
        ticks, feeds = len(gpus), len(self.layout.feeds)
        load, seen = np.zeros((ticks, feeds)), np.zeros((ticks, feeds))
        for rack, supply in enumerate(self.supplies):
            own = gpus[:, rack] + (0.0 if supply.dark else self._fixed[rack])
            load[:, RACKS + rack] = own
            cbu = self.cbus[rack]
            if cbu is not None and not supply.dark:
                bus = cbu.run(own, TICK_S)
                self._responds(RACKS + rack, cbu, own - bus, at)
                own = bus
            seen[:, RACKS + rack] = supply.run(own, at)
        total = seen[:, RACKS:].sum(axis=1)
        for place in (ROW, MAIN, SITE):
            load[:, place] = seen[:, place] = total
        if self.bess is not None and self.ac(SITE):
            seen[:, SITE] = self.bess.run(total, TICK_S)
            self._responds(SITE, self.bess, total - seen[:, SITE], at)
        self._break(seen, at + ticks * TICK_S)
        return load, seen

    def _responds(self, place: int, store: Store, given: Array, at: float) -> None:
        """Say that a feed's store responds, where it gives or takes more than before."""
        if place not in self._armed:
            return
        change = given - self._armed[place]
        moved = np.flatnonzero(np.abs(change) > RESPONDS * store.rating.power)
        if not len(moved):
            return
        del self._armed[place]
        first = int(moved[0])
        word, name = CBU_RESPONDS, "cbu"
        if place == SITE:
            word, name = (BESS_GIVES if change[first] > 0.0 else BESS_TAKES), "bess"
        subject = f"{self.layout.feeds[place]}/{name}"
        self.happened.append((at + (first + 1) * TICK_S, word, subject))

    def _break(self, seen: Array, at: float) -> None:
        """Let the breakers feel it; what hangs on one that trips is dark."""
        before = [breaker.tripped for breaker in self.breakers]
        for place, breaker in enumerate(self.breakers):
            breaker.run(seen[:, place], TICK_S)
            if breaker.tripped and not before[place]:
                self.happened.append((at, TRIPPED, self.layout.feeds[place]))
                for rack in self.racks_below(place):
                    self.supplies[rack].darken(at)
        for supply in self.supplies:
            self.happened += supply.happened
            supply.happened.clear()
