"""The electrical and thermal house of an emulated rack, in virtual time, tied to its driver.

In: loads of the GPUs, power limits from the driver's rows (whoever set them through NVML), and
what a drill does: a lowered limit, lost mains, a sag, a lost supply, lost pumps. Out: work done,
readings in the rows, meters, records, and what the equipment did by itself. The electrical tick is
1 ms; time passes in blocks of up to 0.1 s, for all GPUs at once, and of 2 ms while a bus is in
trouble. A GPU's limit is taken at the beginning of a block.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices.emulated.gpu import part_of
from rackproof.harness.devices.emulated.house import parameters as shipped_parameters
from rackproof.harness.devices.emulated.house.bank import TICK_S, Bank, Makeup
from rackproof.harness.devices.emulated.house.ceilings import Flags
from rackproof.harness.devices.emulated.house.cooling import Design, cooling
from rackproof.harness.devices.emulated.house.hierarchy import RACKS, Hierarchy, layout
from rackproof.harness.devices.emulated.house.ledger import Ledger, Record, State
from rackproof.harness.devices.emulated.house.parameters import Parameters
from rackproof.harness.devices.emulated.house.plan import plan, refuse_hot_or_dead
from rackproof.harness.devices.emulated.house.sheet import Sheet
from rackproof.harness.devices.emulated.house.stores import StoreRating
from rackproof.harness.devices.emulated.identity import birth
from rackproof.harness.errors import SpecError, nearest
from rackproof.harness.power.zone import Array, Meters
from rackproof.harness.spec import RackSpec

CLOSE = 2
"""Ticks of a block while a bus is in trouble."""
SLOWDOWN = "slowdown"
COOL_S = 10.0
"""A GPU that was not slowed down for so long, and then is, is said to be slowed down again."""
_NEAR = 1e-6


class PowerHouse:
    """A rack's house. Set `load` (0..1 of each GPU) between advances; read `speed` and `work`."""

    def __init__(
        self,
        spec: RackSpec,
        rows: npt.NDArray[Any],
        seed: int,
        parameters: Parameters | None = None,
    ) -> None:
        """Build it over the driver's rows, one for each GPU of `spec`, in its order.

        Raises SpecError where the rack's file leaves open what the house must know.
        """
        given = shipped_parameters.shipped() if parameters is None else parameters
        if len(rows) != len(spec.gpus):
            msg = f"{spec.name} has {len(spec.gpus)} GPUs, and the driver {len(rows)}"
            raise SpecError(msg)
        self.plan = plan(spec, given)
        self.layout = layout(spec, self.plan)
        self.clock = VirtualClock()
        self.feeds = Hierarchy(self.layout, self.plan, given)
        self.stores = tuple(self.feeds.stores)
        parts = tuple(part_of(spec, row) for row in rows)
        refuse_hot_or_dead(spec, parts)
        self._racks = self.layout.feed_of - RACKS
        spread = np.array([birth(spec, gpu).spread for gpu in spec.gpus])
        gamma = given.number("speed.gamma")
        self.bank = Bank(Makeup(parts, self._racks, spread, gamma))
        self.load = np.zeros(len(rows))
        self.happened: list[tuple[float, str, str]] = []
        self._margin = given.number("cooling.margin")
        self._build_cooling(parts[0].coolant, given)
        self._sheet = Sheet(rows, seed, given.number("speed.noise"))
        self._hottest = self._sheet.hottest
        self._ledger = Ledger(len(self.layout.feeds), len(self.stores), TICK_S)
        self._ticks, self._owed = 0, 0.0
        self._slowed = np.full(len(rows), -math.inf)
        self._sheet.write(self.bank, 0)

    def _build_cooling(self, supply: float, given: Parameters) -> None:
        self.cooling = [
            cooling(
                rack.cooling, Design(f"rack{rack.number}/cooling", rack.greatest, supply), given
            )
            for rack in self.plan.racks
        ]
        self._cooled = [(part.supply, part.flow) for part in self.cooling]

    # --- what a job sees ---------------------------------------------------------------------

    @property
    def speed(self) -> Array:
        """The speed of each GPU now, over that of its SKU at full clocks."""
        return self.bank.speed

    @property
    def work(self) -> Array:
        """Seconds of full-speed work that each GPU has done under load."""
        return self.bank.work

    @property
    def keeps_limit(self) -> Flags:
        """Which GPUs obey their power limit; may be changed."""
        return self.bank.keeps_limit

    @property
    def dark(self) -> Flags:
        """Which GPUs have no power. What ran on them is lost."""
        return self.bank.dark

    # --- what a drill does -------------------------------------------------------------------

    def limit(self, feed: str, watts: float | None) -> None:
        """Rate a feed's breaker for so many W; None: as it was built."""
        place = self.feeds.place(feed)
        self.feeds.breakers[place].rated = self.feeds.built[place] if watts is None else watts
        self.feeds.arm()

    def lose_ac(self, feed: str) -> None:
        """Take the mains away from a feed and all below it."""
        self.feeds.lose(self.feeds.place(feed))

    def return_ac(self, feed: str) -> None:
        """Give them back."""
        self.feeds.give(self.feeds.place(feed))

    def sag(self, feed: str, left: float, seconds: float) -> None:
        """Leave a share of the voltage (0..1) for so long, from now on."""
        if not (0.0 <= left <= 1.0 and 0.0 < seconds < math.inf):
            msg = f"a sag leaves 0 to 1 of the voltage for some seconds, not {left!r} for {seconds}"
            raise SpecError(msg)
        self.feeds.sag(self.feeds.place(feed), left, self.clock.now() + seconds)

    def lose_supply(self, shelf: str) -> None:
        """Lose one supply of a shelf (``rack0/power/shelf2``) for good."""
        known = {
            f"{rack.feed}/shelf{number}": (rack.number, number)
            for rack in self.plan.racks
            for number in range(rack.shelves)
        }
        if shelf not in known:
            msg = f"no shelf is called {shelf!r}{nearest(shelf, known)}"
            raise SpecError(msg)
        rack, number = known[shelf]
        self.feeds.supplies[rack].lose(number)
        self.feeds.arm()

    def pumps(self, rack: str, share: float) -> None:
        """Leave this share (0..1) of the coolant's flow in a rack (``rack0``)."""
        known = [f"rack{each.number}" for each in self.plan.racks]
        name = rack.partition("/")[0]
        if name not in known:
            msg = f"no rack is called {rack!r}{nearest(rack, known)}"
            raise SpecError(msg)
        self.cooling[known.index(name)].pumps(share)
        self._cool()
        self.feeds.arm()

    def restart(self, feed: str) -> None:
        """Close the breakers of a feed and above it, and switch on what is dark below it."""
        place = self.feeds.place(feed)
        self.feeds.close(place)
        for rack in self.feeds.racks_below(place):
            self.feeds.supplies[rack].restart()
            self.bank.light(self._racks == rack)

    # --- time --------------------------------------------------------------------------------

    def advance(self, seconds: float) -> None:
        """Let time pass, in whole ticks: what is left of one is owed to the next call.

        A negative number is a ValueError, and so is a load that is not 0 to 1.
        """
        if self.load.shape != self.bank.power.shape or not _in_range(self.load):
            msg = "loads are 0 to 1, one for each GPU"
            raise ValueError(msg)
        if not 0.0 <= seconds < math.inf:
            msg = f"time cannot pass by {seconds} s"
            raise ValueError(msg)
        self._owed += seconds
        ticks = math.floor(self._owed / TICK_S + _NEAR)
        self._owed = max(0.0, self._owed - ticks * TICK_S)
        while ticks > 0:
            ticks -= self._block(ticks)
        self._sheet.write(self.bank, self._ticks)

    def _block(self, most: int) -> int:
        """Let one block pass, of at most so many ticks; return its ticks."""
        begin, feeds = self._ticks * TICK_S, self.feeds
        feeds.settle(begin)
        ticks = min(most, self._ledger.left)
        if not feeds.calm:
            ticks = min(ticks, CLOSE)
        change = feeds.next_change(begin)
        if change < ticks * TICK_S:
            ticks = max(1, min(ticks, math.ceil(change / TICK_S - _NEAR)))
        load, seen = feeds.run(self.bank.advance(ticks, self.load, self._sheet.limits()), begin)
        self._ticks += ticks
        end = self._ticks * TICK_S
        self.clock.advance(max(0.0, end - self.clock.now()))
        self._heat(load, ticks * TICK_S)
        self._note(end)
        self._ledger.add(load, seen)
        self._ledger.close(end, self._state)
        return ticks

    def _heat(self, load: Array, seconds: float) -> None:
        for rack, part in enumerate(self.cooling):
            part.advance(float(load[:, RACKS + rack].mean()), seconds)
        self._cool()

    def _cool(self) -> None:
        """Have the coolant come to the GPUs as it now is."""
        now = [(part.supply, part.flow) for part in self.cooling]
        if now != self._cooled:
            self._cooled = now
            supply, flow = np.array(now).T
            self.bank.cool(supply[self._racks], flow[self._racks])

    def _note(self, at: float) -> None:
        """Take down what has happened, and what it means for the GPUs."""
        feeds = self.feeds
        if feeds.happened:
            self.happened += sorted(feeds.happened)
            feeds.happened.clear()
        for rack, supply in enumerate(feeds.supplies):
            mine = self._racks == rack
            if supply.dark and not self.bank.dark[mine].all():
                self.bank.darken(mine)
        hot = self.bank.throttled
        if hot.any():
            for gpu in np.flatnonzero(hot & (at - self._slowed > COOL_S)):
                self.happened.append((at, SLOWDOWN, self.layout.gpus[gpu]))
            self._slowed = np.where(hot, at, self._slowed)

    def _state(self) -> State:
        margins = self._hottest - self.bank.temperature
        stores = self.feeds.stores.values()
        own = [float(margins[self._racks == rack].min()) for rack in range(len(self.plan.racks))]
        return State(
            strain=np.array([breaker.strain for breaker in self.feeds.breakers]),
            charge=np.array([store.charge for store in stores]),
            delivered=np.array([store.delivered for store in stores]),
            margin=np.array([min(own)] * RACKS + own),
        )

    # --- what is seen of it ------------------------------------------------------------------

    @property
    def tripped(self) -> list[str]:
        """The feeds whose breakers have tripped."""
        pairs = zip(self.layout.feeds, self.feeds.breakers, strict=True)
        return [feed for feed, breaker in pairs if breaker.tripped]

    @property
    def ratings(self) -> dict[str, StoreRating]:
        """What each store can do, by its subject, in the order of `stores`."""
        return {name: store.rating for name, store in self.feeds.stores.items()}

    def take(self) -> list[Record]:
        """Return the records since the last take, one for each full 0.1 s."""
        return self._ledger.take()

    def meter(self) -> Meters:
        """Look at the feeds: means since the last call, and how things stand now."""
        load, seen = self._ledger.means()
        breakers = self.feeds.breakers
        return Meters(
            feed=load,
            strain=np.array([breaker.strain for breaker in breakers]),
            trip_in=np.array([b.trip_in(float(w)) for b, w in zip(breakers, seen, strict=True)]),
            ac=np.array([self.feeds.ac(place) for place in range(len(breakers))]),
            limit=np.array([self._carries(place) for place in range(len(breakers))]),
        )

    def carries(self, feed: str) -> float:
        """Return what a feed states that it carries now, W, as `meter` does."""
        return self._carries(self.feeds.place(feed))

    def _carries(self, place: int) -> float:
        """Return what a feed states that it carries now, W.

        Its breaker's rating; in a rack also its supplies or, without mains, its battery, and its
        cooling. Where no coolant flows the GPUs' plates are all that is left to carry heat.
        """
        rated = self.feeds.breakers[place].rated
        if place < RACKS:
            return rated
        rack = place - RACKS
        supply, part = self.feeds.supplies[rack], self.cooling[rack]
        source = supply.capacity if self.feeds.ac(place) else self.plan.racks[rack].rated
        away = part.capacity if part.flow > 0.0 else math.inf
        return min(rated, source, away, self._held_cool(rack))

    def _held_cool(self, rack: int) -> float:
        """Return the load of a rack under which its dies stay below their slowdown, W.

        Infinite where they do under any load.
        """
        bank, mine = self.bank, self._racks == rack
        below = ((bank.slowdown - self._margin - bank.coolant) / bank.resistance)[mine]
        most = bank.most[mine]
        if (below >= most).all():
            return math.inf
        return self.plan.racks[rack].fixed + float(np.minimum(below, most).sum())


def _in_range(loads: Array) -> bool:
    return bool(loads.min() >= 0.0 and loads.max() <= 1.0)
