"""A store of energy between a load and what feeds it: capacitors (CBU), a battery (BBU), a BESS.

In: the load of each tick, W. Out: what the side upstream sees of it, W. Two ways to work: `run`
smooths a load, `give` follows what is asked of it (a battery whose mains are gone).

    smoothing    P_want = P_load - EMA(P_load, tau_s) - k_p (E_max / 2 - E)
    lag          dP_out/dt = (P_want - P_out) / tau, |P_out| <= P_rate, 0 <= E <= E_max
    energy       dE/dt = -P_out / eta where it gives, -P_out eta where it takes
    taking over  P_out goes to what is asked by no more than P_rate in each `reaction`

A store never gives more than the load takes: nothing is fed back to the side upstream. Without
the recentring term k_p the losses pull a store down to empty, where it stays. To flatten a square
swing dP of period T and duty d takes the energy dP d (1 - d) T.
"""

import math
from dataclasses import dataclass

import numpy as np

from rackproof.harness.errors import SpecError
from rackproof.harness.power.zone import Array

HALF = 0.5
"""The charge that a smoothing store is drawn back to: room both ways."""


@dataclass(frozen=True, slots=True)
class StoreRating:
    """What a store can do.

    `energy` in J, `power` in W both ways, `efficiency` (0..1] each way, `reaction` in s, `smooth`
    the time constant of the mean that it smooths to in s, `recentre` the pull to half charge in
    1/s (0: none). A SpecError where one is out of its range.
    """

    energy: float
    power: float
    efficiency: float
    reaction: float
    smooth: float
    recentre: float

    def __post_init__(self) -> None:
        """Refuse what no store is."""
        for name in ("energy", "power", "reaction", "smooth"):
            value = getattr(self, name)
            if not (value > 0.0 and math.isfinite(value)):
                msg = f"a store's {name} is above 0, not {value!r}"
                raise SpecError(msg)
        if not 0.0 < self.efficiency <= 1.0:
            msg = f"a store's efficiency is above 0 and at most 1, not {self.efficiency!r}"
            raise SpecError(msg)
        if not (self.recentre >= 0.0 and math.isfinite(self.recentre)):
            msg = f"a store's recentre is 0 or more, not {self.recentre!r}"
            raise SpecError(msg)


class Store:
    """One store: `energy` (J), `power` (W that it gives now; below 0 it takes).

    `delivered` is what it has given in all, J, what it took subtracted.
    """

    def __init__(self, rating: StoreRating, charge: float = HALF) -> None:
        """Begin with that charge, 0..1."""
        if not 0.0 <= charge <= 1.0:
            msg = f"a store's charge is 0 to 1, not {charge!r}"
            raise SpecError(msg)
        self.rating = rating
        self.energy = charge * rating.energy
        self.power = 0.0
        self.delivered = 0.0
        self._mean: float | None = None

    @property
    def charge(self) -> float:
        """How full it is, 0..1."""
        return self.energy / self.rating.energy

    def run(self, load: Array, dt: float) -> Array:
        """Smooth `load` (W, one for each tick of `dt` s); return what the side upstream sees, W.

        The first load that it ever meets has been there for long. ValueError where a load is no
        number.
        """
        if not np.isfinite(load).all():
            msg = "a load that is no finite number"
            raise ValueError(msg)
        watts: list[float] = load.tolist()
        if not watts:
            return load.copy()
        rating = self.rating
        most, pull, middle = rating.power, rating.recentre, HALF * rating.energy
        towards, lag = -math.expm1(-dt / rating.smooth), -math.expm1(-dt / rating.reaction)
        out_of, into = dt / rating.efficiency, dt * rating.efficiency
        full, energy, power = rating.energy, self.energy, self.power
        mean = watts[0] if self._mean is None else self._mean
        for tick, watt in enumerate(watts):
            mean += towards * (watt - mean)
            want = watt - mean - pull * (middle - energy)
            if want > most:
                want = most
            elif want < -most:
                want = -most
            power += lag * (want - power)
            if power > 0.0:
                power = min(power, watt)
                if power * out_of > energy:
                    power = energy / out_of
                energy -= power * out_of
            else:
                if energy - power * into > full:
                    power = (energy - full) / into
                energy -= power * into
            watts[tick] = watt - power
        self.energy, self.power, self._mean = min(max(energy, 0.0), full), power, mean
        seen = np.array(watts)
        self.delivered += float((load - seen).sum()) * dt
        return seen

    def give(self, want: float, dt: float) -> float:
        """Follow `want` W (below 0: take) for `dt` s; return the W that it gives.

        The whole rating is reached within `reaction` seconds, so a load is taken over within it.
        """
        rating = self.rating
        step = rating.power * dt / rating.reaction
        want = min(max(want, -rating.power), rating.power)
        power = min(max(want, self.power - step), self.power + step)
        if power > 0.0:
            power = min(power, self.energy * rating.efficiency / dt)
            self.energy -= power * dt / rating.efficiency
        else:
            power = max(power, (self.energy - rating.energy) / (dt * rating.efficiency))
            self.energy -= power * dt * rating.efficiency
        self.energy = min(max(self.energy, 0.0), rating.energy)
        self.power = power
        self.delivered += power * dt
        return power
