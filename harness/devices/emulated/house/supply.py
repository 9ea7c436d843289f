"""The shelves of one rack: from the mains to the bus, with hold-up, and a battery behind it.

In: the load on the bus in each tick and the share of the mains' voltage that is there. Out: what is
drawn from the mains. Every supply that is left takes its part of the load.

    hold-up      E_h = rating x 20 ms; the bus is at 50 V when it is full and at 46 V when it is
                 empty, and falls in a straight line between: then GPUs reset
    battery      takes over when the bus is under 48.5 V, within its reaction (stores.py)
    a sag        an input out of its range is limited in current, to that share of the rating, and
                 shuts down after 20 ms; back in range, it takes the load up in a ramp
    overload     beyond what is left of the supplies the hold-up pays, then the battery

The hold-up counts as for a rack at its rating, though shelves have supplies to spare. Losses of
conversion are not modelled.
"""

from dataclasses import dataclass

import numpy as np

from rackproof.harness.devices.emulated.house.bank import TICK_S
from rackproof.harness.devices.emulated.house.parameters import Parameters
from rackproof.harness.devices.emulated.house.plan import RackPlan
from rackproof.harness.devices.emulated.house.stores import Store
from rackproof.harness.power.zone import Array

BUS_LOW, BATTERY_CARRIES, BATTERY_RESTS = "bus-low", "bbu-carries", "bbu-rests"
RIDES_THROUGH, GPU_RESET = "psu-rides-through", "gpu-reset"
RESERVE_S, SAFE = 0.5, 0.5
"""A battery with less than so many seconds at the rating, or a hold-up with less than such a share
of itself left, is watched closely."""
SPARED = 0.98
"""Share of what a feed may draw up to which a battery is charged: assumed."""
_NEAR = 1e-6

Happened = tuple[float, str, str]
"""When (s of virtual time), what, and to whom."""


@dataclass(frozen=True, slots=True)
class Inlet:
    """What supplies are made as: see ``[supply]`` of parameters.toml."""

    bus: float
    takeover: float
    lowest: float
    input: float
    ride: float
    walk_in: float
    refill: float
    hold_up: float
    recharge: float

    @classmethod
    def of(cls, parameters: Parameters) -> "Inlet":
        """Return the parameters' inlet."""
        names = ("bus", "takeover", "lowest", "input", "ride", "walk_in", "refill", "hold_up")
        sizes = {name: parameters.number(f"supply.{name}") for name in names}
        return cls(**sizes, recharge=parameters.number("bbu.recharge"))


class Supply:
    """The supplies of a rack. `mains` is the share of the nominal voltage that is there.

    `room` is what the feed may draw now, W: a battery is charged out of what is left of it.
    """

    def __init__(self, rack: RackPlan, inlet: Inlet, each: int, bbu: Store | None) -> None:
        """Begin in peace; `each` is the number of supplies in a shelf."""
        self.rack, self.inlet, self.bbu = rack, inlet, bbu
        self.mains = 1.0
        self.room = rack.rated
        self.dark = False
        self.happened: list[Happened] = []
        self._each = each
        self._bad = [0] * rack.shelves
        self._full = self._hold = inlet.hold_up * rack.rated
        self._engaged = self._carried = self._shut = False
        self._troubled = self._helped = False
        self._low = 0.0
        self._walked = 1.0

    @property
    def capacity(self) -> float:
        """What the supplies that are left give, W."""
        if not self.rack.shelves:
            return max(self.rack.rated, self.rack.greatest)
        good = self.rack.shelves * self._each - sum(self._bad)
        return self.rack.shelf / self._each * good

    @property
    def volts(self) -> float:
        """The voltage of the bus."""
        return self.inlet.lowest + (self.inlet.bus - self.inlet.lowest) * self._hold / self._full

    @property
    def ac(self) -> bool:
        """Whether the mains are there."""
        return self.mains > 0.0

    @property
    def on_battery(self) -> bool:
        """Whether the battery has been asked."""
        return self._engaged

    @property
    def calm(self) -> bool:
        """Whether nothing is going on that has to be looked at closely."""
        if self.dark or self._at_peace():
            return True
        if not self._engaged and self.mains >= self.inlet.input and self._hold >= self._full:
            return True
        if self.bbu is None or not self._carried or self._hold < SAFE * self._full:
            return False
        return self.bbu.energy > RESERVE_S * self.rack.rated

    def lose(self, shelf: int) -> None:
        """Lose one supply of a shelf for good."""
        self._bad[shelf] = min(self._bad[shelf] + 1, self._each)

    def darken(self, at: float, why: str = GPU_RESET) -> None:
        """Lose the bus: everything behind it is without power."""
        if not self.dark:
            self.dark = True
            self.happened.append((at, why, self.rack.feed))
        self._hold, self._engaged, self._carried = 0.0, False, False
        if self.bbu is not None:
            self.bbu.power = 0.0

    def restart(self) -> None:
        """Switch it on again."""
        self.dark, self._hold, self._walked, self._low = False, self._full, 1.0, 0.0
        self._troubled = self._helped = self._shut = False

    def run(self, load: Array, at: float) -> Array:
        """Carry `load` (W on the bus, one for each tick from `at` on); return what is drawn, W."""
        if self.dark:
            return np.zeros(len(load))
        if self._at_peace() and float(load.max()) <= self.capacity:
            return load + self._recharge(float(load.max()), len(load) * TICK_S)
        drawn: list[float] = load.tolist()
        for tick, need in enumerate(drawn):
            drawn[tick] = self._tick(need, at + (tick + 1) * TICK_S)
        return np.array(drawn)

    def _at_peace(self) -> bool:
        whole = self._hold >= self._full and self._walked >= 1.0 and self.mains >= 1.0
        return whole and not (self._engaged or self._troubled or self._shut)

    def _recharge(self, load: float, seconds: float) -> float:
        """Charge the battery at its bounded rate beside a load; return the W that it takes."""
        bbu = self.bbu
        if bbu is None or bbu.charge >= 1.0:
            return 0.0
        rate = min(self.inlet.recharge * self.rack.rated, SPARED * self.room - load)
        return max(0.0, -bbu.give(-max(0.0, rate), seconds))

    def _tick(self, need: float, at: float) -> float:
        """Let one tick pass; return what is drawn from the mains, W."""
        if self.dark:
            return 0.0
        gives = self._gives()
        refill = min((self._full - self._hold) / TICK_S, self.inlet.refill * self.rack.rated)
        wanted = need + refill
        drawn = min(wanted, gives)
        given = 0.0
        if self._engaged and self.bbu is not None:
            given = self.bbu.give(wanted - drawn, TICK_S)
            drawn = min(drawn, max(0.0, wanted - given))
        self._hold = min(self._full, self._hold + (drawn + given - need) * TICK_S)
        if self._hold <= 0.0:
            self.darken(at)
            return drawn
        self._watch(need - min(need, gives), given, at)
        return drawn

    def _gives(self) -> float:
        """Return what the supplies can give in this tick, W."""
        inlet = self.inlet
        if self.mains < 1.0:
            self._troubled = True
        if self.mains >= inlet.input:
            self._low = 0.0
            if self._shut:  # a ramp, where a battery carries what it leaves out
                self._shut, self._walked = False, 0.0 if self._engaged else 1.0
            self._walked = min(1.0, self._walked + TICK_S / inlet.walk_in)
            return self.capacity * self._walked
        self._low += TICK_S
        if self.mains <= 0.0 or self._low > inlet.ride + _NEAR:
            self._shut, self._walked = True, 0.0
        return 0.0 if self._shut else self.mains * min(self.capacity, self.rack.rated)

    def _watch(self, short: float, given: float, at: float) -> None:
        """Note what happens on the bus; `short` W are missing, `given` come from the battery."""
        feed = self.rack.feed
        if not self._engaged and self.bbu is not None and self.volts < self.inlet.takeover:
            self._engaged = self._helped = True
            self.happened.append((at, BUS_LOW, feed))
        elif self._engaged and not self._carried and given >= short * (1.0 - _NEAR):
            self._carried = True
            self.happened.append((at, BATTERY_CARRIES, feed))
        if short > 0.0:
            self._troubled = True
            return
        whole = self._hold >= self._full * (1.0 - _NEAR) and given <= _NEAR
        if not (self._troubled and whole and self.mains >= 1.0 and self._walked >= 1.0):
            return
        self.happened.append((at, BATTERY_RESTS if self._helped else RIDES_THROUGH, feed))
        self._hold = self._full
        self._troubled = self._helped = self._engaged = self._carried = False
