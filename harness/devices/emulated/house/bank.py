"""All GPUs of a house as arrays: power, heat, clocks and speed in blocks of ticks.

In: loads (0..1) and power limits (W) that hold for a block. Out: the power of each rack in each
tick, and the state of each GPU at the block's end. The equations are physics.py's, solved as
exactly, for all GPUs at once; what differs is that coolant may flow in part:

    R(f) = R + rise (1/f - 1) / P_max      the coolant of less flow gets hotter on its way
    C(f) = C f + C_stands (1 - f)          the node takes in what stands in the plate

with `rise` of 10.1 K at full load and flow; f = 1 and f = 0 are physics.py's two cases. Not here:
the power brake and power smoothing, which no drill of the house plants.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rackproof.harness.devices.emulated.governor import TAU_CAP_S, TAU_POWER_S
from rackproof.harness.devices.emulated.house.ceilings import Ceilings, Flags, Pieces
from rackproof.harness.devices.emulated.house.trace import Trace
from rackproof.harness.devices.emulated.physics import (
    AVERAGE_S,
    LOWEST_SHARE,
    STAGNANT_IDLE,
    STAGNANT_K_PER_S,
    TAU_HEAT_S,
    Part,
)
from rackproof.harness.power.zone import Array, Places

RISE_K = 10.1
"""Rise of the coolant at full load: PG25 at 1.5 L/min for each kW [c]."""
TICK_S = 0.001
"""The electrical tick."""
_SAME = 1e-12


@dataclass(frozen=True, slots=True)
class Makeup:
    """What the GPUs are: their parts, the place of each one's rack, speed over the SKU's, gamma."""

    parts: tuple[Part, ...]
    racks: Places
    spread: Array
    gamma: float


class Bank:
    """The GPUs. They begin idle and settled; arrays have the shape of the GPUs.

    `keeps_limit` says which obey their power limit. `dark` GPUs have no power at all.
    """

    def __init__(self, makeup: Makeup) -> None:
        parts = makeup.parts
        self.makeup = makeup
        self.idle = _of(parts, "power_idle")
        self.most = _of(parts, "power_max")
        self.slowdown = _of(parts, "slowdown")
        self.coolant = _of(parts, "coolant")
        self.healthy = _of(parts, "resistance")
        self._clock_idle, self._clock_max = _of(parts, "clock_idle"), _of(parts, "clock_max")
        self._span = self.most - self.idle
        self._ceilings = Ceilings(self.most)
        self.seconds = 0.0
        self.resistance, self._tau = self.healthy.copy(), np.full(len(parts), TAU_HEAT_S)
        self.power, self.energy = self.idle.copy(), np.zeros(len(parts))
        self.temperature = self._steady(self.power)
        self.load, self.speed = np.zeros(len(parts)), np.ones(len(parts))
        self.work = np.zeros(len(parts))
        self.capped = self.throttled = np.zeros(len(parts), bool)
        self.capped_seconds, self.throttled_seconds = np.zeros(len(parts)), np.zeros(len(parts))
        self.keeps_limit = np.ones(len(parts), bool)
        self.dark = np.zeros(len(parts), bool)
        self._past: deque[tuple[float, Array]] = deque([(0.0, self.energy)])

    # --- what is set between blocks ----------------------------------------------------------

    def cool(self, coolant: Array, flow: Array) -> None:
        """Have the coolant come at `coolant` C and in `flow` (0..1) of what is due, each GPU's."""
        less = np.maximum(flow, _SAME)
        warm = self.healthy + RISE_K * (1.0 / less - 1.0) / self.most
        stands = STAGNANT_IDLE * (self.slowdown - coolant) / self.idle
        self.resistance = np.where(
            flow >= 1.0, self.healthy, np.minimum(warm, np.maximum(stands, self.healthy))
        )
        capacity = flow * TAU_HEAT_S / self.healthy + (1.0 - flow) * self.most / STAGNANT_K_PER_S
        self._tau = self.resistance * capacity
        self.coolant = coolant
        if self.seconds == 0.0:
            self.temperature = self._steady(self.power)

    def darken(self, gpus: Flags) -> None:
        """Take the power of these GPUs away at once."""
        self.dark = self.dark | gpus
        self.power = np.where(self.dark, 0.0, self.power)

    def light(self, gpus: Flags) -> None:
        """Give them power again: they idle."""
        self.dark = self.dark & ~gpus

    # --- time --------------------------------------------------------------------------------

    def advance(self, ticks: int, load: Array, limit: Array) -> Array:
        """Let a block pass; return the power of each rack in each tick, W (ticks x racks)."""
        seconds = ticks * TICK_S
        trace = Trace(self.makeup.racks, ticks, TICK_S)
        self._take(load, limit)
        left = np.full(len(load), seconds)
        done, last = np.zeros(len(load)), np.ones(len(load))
        throttled = np.zeros(len(load), bool)
        capped = self.capped
        while True:
            pieces, active = self._pieces(), left > 0.0
            capped = np.where(active, pieces.capped, capped)
            step = np.minimum(pieces.seconds, left)
            mean, end, slow = self._pass(step, pieces, (seconds - left, trace))
            throttled = np.where(active, slow, throttled)
            done += mean * step
            last = np.where(active, end, last)
            self.capped_seconds += np.where(pieces.capped, step, 0.0)
            self._ceilings.advance(step)
            left = left - step
            if not (left > 0.0).any():
                break
        self.capped, self.throttled = capped, throttled
        self.speed = np.where(self.dark, 0.0, last * self.makeup.spread)
        self.work = self.work + np.where(self.load > 0.0, done * self.makeup.spread, 0.0)
        self.seconds += seconds
        self._remember()
        return trace.watts()

    def _take(self, load: Array, limit: Array) -> None:
        """Begin a block: the loads, and the limits of those that keep theirs."""
        lowest = self.idle + LOWEST_SHARE * self._span
        kept = np.where(self.keeps_limit, np.maximum(limit, lowest), self.most)
        self._ceilings.set(kept, at_once=self.seconds == 0.0)
        self.load = np.where(self.dark, 0.0, load)
        self._ceilings.meet(self.idle + self._span * self.load)

    def _pieces(self) -> Pieces:
        pieces = self._ceilings.pieces()
        if not self.dark.any():
            return pieces
        level, decay = (np.where(self.dark, 0.0, v) for v in (pieces.level, pieces.decay))
        return Pieces(pieces.seconds, level, decay, pieces.capped & ~self.dark, pieces.moving)

    def _pass(
        self, seconds: Array, pieces: Pieces, where: tuple[Array, Trace]
    ) -> tuple[Array, Array, Flags]:
        """Let one piece pass; return mean speed, last speed, and who is held at its slowdown.

        As physics.Die: a die that reaches its slowdown temperature stays there with lower clocks.
        `where` is the place of the piece in the block, and the trace of the block.
        """
        level, share = pieces.level, self._share(pieces.level)
        speed = self._relative(share)
        hot = self._steady(level) > self.slowdown
        if not pieces.moving and not hot.any():
            self._coast(seconds, (level, pieces.decay), where)
            return speed, speed, hot
        rides = (pieces.decay != 0.0) & ~(hot & (self.temperature >= self.slowdown))
        free = np.where(rides, seconds, np.minimum(seconds, self._until_slowdown(level, share)))
        before = self.energy
        self._coast(free, (level, np.where(rides, pieces.decay, 0.0)), where)
        used = (self.energy - before) / np.where(seconds > 0.0, seconds, 1.0)
        mean = np.where(rides, self._relative(self._share(used)), speed)
        last = np.where(rides, self._relative(self._share(self.power)), speed)
        slow = seconds - free
        held = slow > 0.0
        if held.any():
            slowed = self._hold(slow, share, (where[0] + free, where[1]))
            mean = np.where(held, (speed * free + slowed * slow) / np.where(held, seconds, 1), mean)
            last = np.where(held, slowed, last)
        return mean, last, held

    def _hold(self, slow: Array, share: Array, where: tuple[Array, Trace]) -> Array:
        """Hold dies at their slowdown temperature for `slow` s each; return their speeds."""
        watts = (self.slowdown - self.coolant) / self.resistance
        share = np.minimum(share, np.maximum(self._share(watts), LOWEST_SHARE))
        level = self.idle + self._span * share
        still = np.zeros_like(level)
        self._coast(slow, (level, still), where)
        self.throttled_seconds += slow
        stays = (slow > 0.0) & (self._steady(level) <= self.slowdown + 1e-9)
        self.temperature = np.where(stays, self.slowdown, self.temperature)
        return self._relative(share)

    def _until_slowdown(self, level: Array, share: Array) -> Array:
        """Return the seconds to the slowdown temperature, power's lag neglected; inf for never."""
        steady = self._steady(level)
        comes = (steady > self.slowdown) & (share > LOWEST_SHARE)
        cold = comes & (self.temperature < self.slowdown)
        above = np.where(cold, steady - self.slowdown, 1.0)
        ratio = np.where(cold, steady - self.temperature, 1.0) / above
        return np.where(comes, self._tau * np.log(np.maximum(ratio, 1.0)), np.inf)

    def _coast(
        self, seconds: Array, drive: tuple[Array, Array], where: tuple[Array, Trace]
    ) -> None:
        """Integrate power, energy and heat exactly: to level + decay x exp(-t / tau_cap)."""
        level, decay = drive
        tau, resistance = self._tau, self.resistance
        moving = decay * (TAU_CAP_S / (TAU_CAP_S - TAU_POWER_S))
        lag = self.power - level - moving
        where[1].add(where[0], seconds, (level, lag, moving))
        electrical = np.exp(seconds / -TAU_POWER_S)
        answer = resistance * lag * (TAU_POWER_S / (TAU_POWER_S - tau))
        end = self._steady(level)
        rest = self.temperature - end - answer
        temperature = end + answer * electrical
        energy = level * seconds + lag * TAU_POWER_S * (1.0 - electrical)
        power = level + lag * electrical
        if moving.any():
            capping = np.exp(seconds / -TAU_CAP_S)
            follows = resistance * moving * (TAU_CAP_S / (TAU_CAP_S - tau))
            rest = rest - follows
            temperature = temperature + follows * capping
            energy = energy + moving * TAU_CAP_S * (1.0 - capping)
            power = power + moving * capping
        self.power = power
        self.temperature = temperature + rest * np.exp(-seconds / tau)
        self.energy = self.energy + energy

    # --- readings ----------------------------------------------------------------------------

    @property
    def average(self) -> Array:
        """Mean power over the last second, W (idle before the start)."""
        start = self.seconds - AVERAGE_S
        begin, energy = self._past[0]
        if start <= begin:
            return (self.energy - energy + (begin - start) * self.idle) / AVERAGE_S
        end, later = self._past[1] if len(self._past) > 1 else (self.seconds, self.energy)
        energy = energy + (later - energy) * ((start - begin) / (end - begin))
        return (self.energy - energy) / AVERAGE_S

    @property
    def clock(self) -> Array:
        """SM clock now, MHz; 0 without power."""
        busy = self._clock_max * self.speed / self.makeup.spread
        clock = np.where(self.load > 0.0, busy, np.minimum(self._clock_idle, busy))
        return np.where(self.dark, 0.0, clock)

    def _remember(self) -> None:
        self._past.append((self.seconds, self.energy))
        while len(self._past) > 1 and self._past[1][0] <= self.seconds - AVERAGE_S:
            self._past.popleft()

    def _steady(self, watts: Array) -> Array:
        return self.coolant + self.resistance * watts

    def _share(self, watts: Array) -> Array:
        return (watts - self.idle) / self._span

    def _relative(self, share: Array) -> Array:
        """Return the speed at these shares of the dynamic power, over that at what is asked."""
        full = (share >= self.load - _SAME) | (self.load <= 0.0)
        if full.all():
            return np.ones_like(share)
        ratio = np.maximum(share, 0.0) / np.where(full, 1.0, self.load)
        return np.where(full, 1.0, ratio**self.makeup.gamma)


def _of(parts: Sequence[Part], name: str) -> Array:
    return np.array([getattr(part, name) for part in parts], float)
