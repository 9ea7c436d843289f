"""Power, heat and clocks of one emulated GPU, in closed form.

In goes a load (utilisation) that holds for some seconds of the GPU's own time; out come power,
energy, temperature, clock, and the speed that the load ran at. Every step is the exact solution
for a constant load, so an advance of an hour costs what an advance of a millisecond does, and
two halves give what the whole gives.

    power        P_ss = P_idle + (P_max - P_idle) x share,  dP/dt = (P_ss - P) / tau_p
    limit        P_ss <= a ceiling that follows the power limit (governor.py)
    heat         R C dT/dt = T_coolant + R P - T            (one node: the die)
    smoothing    a floor and ramps in front of the limit, where they are on (smoothing.py)
    slowdown     at T_slowdown the clocks are regulated so that the die stays there
    speed        (share / asked share) ^ gamma
    no coolant   the node takes in the coolant that stands in its plate: more C, and a high R

Marks: [s] read in a public source, [c] computed in a prototype, [a] our assumption. What stands
between the GPUs and the mains is rack_power.py's. Not modelled: leakage that grows with heat, and
the shutdown of a die that cannot be held at its slowdown temperature.
"""

import math
from collections import deque
from dataclasses import dataclass, replace

from rackproof.harness.devices.emulated.governor import TAU_CAP_S, TAU_POWER_S, Governor, Piece
from rackproof.harness.devices.emulated.smoothing import Profile, Smoother
from rackproof.harness.devices.emulated.trail import Trail

TAU_HEAT_S = 1.0
"""R C of a healthy die against its cold plate or heat sink [a]."""
GAMMA = 0.24
"""Speed against the dynamic share of power: 1200 to 1000 W costs 5 % [s], the exponent is a fit."""
BRAKE_CLOCK = 0.5
"""What the external power brake leaves of the SM clock [a]."""
BRAKE_POWER = BRAKE_CLOCK**2
"""What it leaves of the dynamic power: voltage falls less than frequency does [a]."""
LOWEST_SHARE = 0.02
"""The clocks cannot be regulated below this share of the dynamic power [a]."""
STAGNANT_K_PER_S = 2.5
"""Rise of a die at full load whose coolant stands still: 60 to 90 C in 8 to 20 s [c]."""
STAGNANT_IDLE = 0.85
"""How far an idle die goes from the coolant's to the slowdown temperature without flow [a]."""
COOLANT_HEAT = 3.96e6
"""Heat that a m3 of PG25 takes up per K, J: 10.1 K at 1.5 L/min for each kW [c]."""
AVERAGE_S = 1.0
"""Window of the averaging power sensor, NVML field 185 [s]."""
SENSOR_STEP_S = 0.001
"""The averaging sensor resolves no load shorter than this [a]."""
RULED_S = 0.005
"""How often a smoothed load looks again while the power limit rules it: the ramp's grain then."""
SETTLED_C = 1.0
"""A die this close to its idle temperature counts as settled."""
_SAME = 1e-12
SETTLE_CAP_S = 60.0
"""The longest wait for it."""


@dataclass(frozen=True, slots=True)
class Part:
    """What the equations need of a SKU: W, C and MHz.

    full_load is the die's steady temperature at power_max in a healthy rack.
    """

    power_idle: float
    power_max: float
    coolant: float
    full_load: float
    slowdown: float
    clock_idle: float
    clock_max: float

    @property
    def resistance(self) -> float:
        """Heat resistance from die to coolant or air, K/W."""
        return (self.full_load - self.coolant) / self.power_max


def outlet(supply: float, watts: float, flow: float) -> float:
    """Return the temperature of coolant, C, that took up `watts` at `flow` L/min; flow above 0."""
    return supply + watts / (COOLANT_HEAT * flow / 60_000.0)


class Die:
    """One GPU's electrical and thermal state; it begins idle and settled.

    `cooling` multiplies the heat resistance (1 is healthy), `flowing` says whether coolant moves,
    `brake` is the external power brake, `limit` the power limit in W. All may change between
    advances; what is set before the first one has been so for long.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self.brake = False
        self._governor = Governor(part.power_max)
        self._cooling = 1.0
        self._flowing = True
        self._resistance, self._tau = part.resistance, TAU_HEAT_S
        self.seconds = 0.0
        self.power = part.power_idle
        self.energy = 0.0
        self.utilisation = 0.0
        self.throttled = False
        self.throttled_seconds = 0.0
        self.braked_seconds = 0.0
        self.capped = False
        self.capped_seconds = 0.0
        self.speed = 1.0
        self.temperature = self.idle_temperature
        self._past: deque[tuple[float, float]] = deque([(0.0, 0.0)])
        self.trail: Trail | None = None
        self._smoother: Smoother | None = None

    def follow(self) -> Trail:
        """Keep every piece of power from now on, until `trail` is None again; return them."""
        self.trail = Trail(self.seconds, self.power)
        return self.trail

    def smooth(self, profile: Profile | None) -> None:
        """Smooth the power by a profile from now on; None: no more."""
        if profile is None:
            self._smoother = None
        elif self._smoother is None:
            self._smoother = Smoother(profile, self.power)
        else:
            self._smoother.profile = profile

    @property
    def limit(self) -> float:
        """The power limit, W; it acts as governor.py says."""
        return self._governor.limit

    @limit.setter
    def limit(self, watts: float) -> None:
        lowest = self._watts(LOWEST_SHARE)
        self._governor.set(max(watts, lowest), at_once=self.seconds == 0.0)

    @property
    def cooling(self) -> float:
        """How many times the healthy heat resistance there is between die and coolant."""
        return self._cooling

    @cooling.setter
    def cooling(self, factor: float) -> None:
        self._cooling = factor
        self._carry_heat()

    @property
    def flowing(self) -> bool:
        """Whether the coolant moves."""
        return self._flowing

    @flowing.setter
    def flowing(self, flowing: bool) -> None:
        self._flowing = flowing
        self._carry_heat()

    def _carry_heat(self) -> None:
        """Work out resistance and time constant anew."""
        part = self.part
        self._resistance = part.resistance * self._cooling
        self._tau = TAU_HEAT_S * self._cooling
        if not self._flowing:
            stands = STAGNANT_IDLE * (part.slowdown - part.coolant) / part.power_idle
            self._resistance = max(self._resistance, stands)
            self._tau = self._resistance * part.power_max / STAGNANT_K_PER_S
        if self.seconds == 0.0:
            self.temperature = self.idle_temperature

    @property
    def idle_temperature(self) -> float:
        """The temperature that the die comes to with no load, C."""
        return self._steady(self.part.power_idle)

    @property
    def clock(self) -> float:
        """SM clock right now, MHz."""
        busy = self.part.clock_max * self.speed
        return busy if self.utilisation > 0 else min(self.part.clock_idle, busy)

    @property
    def average(self) -> float:
        """Mean power over the last second of this GPU's time, W (idle before its start)."""
        start = self.seconds - AVERAGE_S
        begin, energy = self._past[0]
        if start <= begin:
            return (self.energy - energy + (begin - start) * self.part.power_idle) / AVERAGE_S
        end, at_end = self._past[1] if len(self._past) > 1 else (self.seconds, self.energy)
        energy += (at_end - energy) * (start - begin) / (end - begin)
        return (self.energy - energy) / AVERAGE_S

    def advance(self, seconds: float, utilisation: float) -> float:
        """Let `seconds` pass under `utilisation` (0..1); return the mean speed (1 is full clocks).

        Where the die reaches its slowdown temperature on the way, the rest of the time is spent
        there, with clocks as low as that takes.
        """
        self.utilisation = utilisation
        asked = utilisation * (BRAKE_POWER if self.brake else 1.0)
        full = BRAKE_CLOCK if self.brake else 1.0
        self.braked_seconds += seconds if self.brake else 0.0
        self.throttled = False
        self._meet(self._watts(asked))
        left, done, last = seconds, 0.0, 1.0
        smoother = self._smoother
        while True:
            piece = self._governor.piece() if smoother is None else self._smoothed(smoother)
            self.capped = piece.capped
            step = min(piece.seconds, left)
            if step > 0.0:
                mean, last = self._pass(step, asked, piece)
                done += mean * step
                self.capped_seconds += step if piece.capped else 0.0
                self._governor.advance(step)
                if smoother is not None:
                    smoother.advance(step)
                left -= step
            if left <= 0.0:
                break
        if seconds <= 0.0:
            last = _relative(self._share(piece.level), asked)
        self.speed = full * last
        return full * done / seconds if seconds > 0.0 else self.speed

    def _meet(self, demand: float) -> None:
        """Take what a load demands, W: a smoothed one comes to the limit by its ramps."""
        if self._smoother is None:
            self._governor.meet(demand)
        else:
            self._smoother.meet(demand, self.limit)

    def _smoothed(self, smoother: Smoother) -> Piece:
        """Return what the load is driven to from now on where its power is smoothed."""
        until, watts, slope = smoother.piece()
        self._governor.meet(watts)
        piece = self._governor.piece()
        if piece.capped or piece.decay:  # the limit rules, and is looked at again a little later
            return replace(piece, seconds=min(piece.seconds, until, RULED_S))
        return replace(piece, seconds=min(piece.seconds, until), slope=slope)

    def _pass(self, seconds: float, asked: float, piece: Piece) -> tuple[float, float]:
        """Let one piece pass; return the mean speed and the last, over that at full clocks.

        In a piece in which the ceiling moves the speed is that of the mean power.
        """
        share = self._share(piece.level)
        hot = self.temperature >= self.part.slowdown
        moving = piece.decay or piece.slope
        if moving and not (hot and self._steady(piece.level) > self.part.slowdown):
            before = self.energy
            self._coast(seconds, piece.level, piece.decay, piece.slope)
            mean = self._share((self.energy - before) / seconds)
            self.throttled = False
            return _relative(mean, asked), _relative(self._share(self.power), asked)
        free = min(seconds, self._until_slowdown(share))
        self._coast(free, piece.level)
        speed = _relative(share, asked)
        self.throttled = free < seconds
        if not self.throttled:
            return speed, speed
        held, slow = self._held(share), seconds - free
        self.throttled_seconds += slow
        self._coast(slow, self._watts(held))
        if self._steady(self._watts(held)) <= self.part.slowdown + 1e-9:
            self.temperature = self.part.slowdown
        slowed = _relative(held, asked)
        return (speed * free + slowed * slow) / seconds, slowed

    def settle_seconds(self) -> float:
        """Return how long the die must idle to be settled, at most SETTLE_CAP_S.

        At least as long as the averaging power sensor remembers.
        """
        above = abs(self.temperature - self.idle_temperature)
        tau = self._tau
        # Power lags behind the load, so the heat begins to fall that much later.
        wait = tau * math.log(max(above, SETTLED_C) / SETTLED_C) + 2.0 * TAU_POWER_S
        return min(SETTLE_CAP_S, max(AVERAGE_S, wait))

    def rest(self) -> None:
        """Take away what is left of heat and power where the die is settled to a degree.

        So the next load begins where every load begins, whatever was run before.
        """
        if abs(self.temperature - self.idle_temperature) > SETTLED_C * (1.0 + 1e-9):
            return
        self.temperature, self.power = self.idle_temperature, self.part.power_idle
        if self._smoother is not None:
            self._smoother = Smoother(self._smoother.profile, self.power)
        before = self.energy - self.power * AVERAGE_S
        self._past = deque([(self.seconds - AVERAGE_S, before), (self.seconds, self.energy)])

    def _watts(self, share: float) -> float:
        return self.part.power_idle + (self.part.power_max - self.part.power_idle) * share

    def _share(self, watts: float) -> float:
        return (watts - self.part.power_idle) / (self.part.power_max - self.part.power_idle)

    def _steady(self, watts: float) -> float:
        return self.part.coolant + self._resistance * watts

    def _held(self, share: float) -> float:
        """Return the share at which the die stays at its slowdown temperature."""
        watts = (self.part.slowdown - self.part.coolant) / self._resistance
        return min(share, max(self._share(watts), LOWEST_SHARE))

    def _until_slowdown(self, share: float) -> float:
        """Return the seconds to the slowdown temperature, power's lag neglected; inf for never."""
        steady = self._steady(self._watts(share))
        if steady <= self.part.slowdown or share <= LOWEST_SHARE:
            return math.inf
        if self.temperature >= self.part.slowdown:
            return 0.0
        ratio = (steady - self.temperature) / (steady - self.part.slowdown)
        return self._tau * math.log(ratio)

    def _coast(self, seconds: float, level: float, decay: float = 0.0, slope: float = 0.0) -> None:
        """Integrate power, energy and heat exactly.

        The drive is level + slope x t + decay x exp(-t / tau_cap).
        """
        if seconds <= 0.0:
            return
        # Power is level + slope x t + lag x exp(-t / tau_p) + moving x exp(-t / tau_cap), and the
        # die answers each term by itself; the heat node is never as fast as either lag.
        tau, part = self._tau, self.part
        level -= slope * TAU_POWER_S  # a ramp is followed that much later
        moving = decay * TAU_CAP_S / (TAU_CAP_S - TAU_POWER_S) if decay else 0.0
        lag = self.power - level - moving
        if self.trail is not None:
            self.trail.add((self.seconds, seconds, level, slope, lag, moving))
        electrical, thermal = math.exp(-seconds / TAU_POWER_S), math.exp(-seconds / tau)
        answer = self._resistance * lag * TAU_POWER_S / (TAU_POWER_S - tau)
        begin = part.coolant + self._resistance * (level - slope * tau)
        rest = self.temperature - begin - answer
        temperature = begin + self._resistance * slope * seconds + answer * electrical
        energy = level * seconds + lag * TAU_POWER_S * (1.0 - electrical)
        energy += slope * seconds * seconds / 2.0
        self.power = level + slope * seconds + lag * electrical
        if moving:
            capping = math.exp(-seconds / TAU_CAP_S)
            follows = self._resistance * moving * TAU_CAP_S / (TAU_CAP_S - tau)
            rest -= follows
            temperature += follows * capping
            energy += moving * TAU_CAP_S * (1.0 - capping)
            self.power += moving * capping
        self.temperature = temperature + rest * thermal
        self.energy += energy
        self.seconds += seconds
        self._remember()

    def _remember(self) -> None:
        """Keep the energy at the ends of the last second's loads, a millisecond apart or more."""
        past = self._past
        if len(past) > 1 and past[-1][0] - past[-2][0] < SENSOR_STEP_S:
            past.pop()
        past.append((self.seconds, self.energy))
        while len(past) > 1 and past[1][0] <= self.seconds - AVERAGE_S:
            past.popleft()


def _relative(share: float, asked: float) -> float:
    """Return the speed at `share` of the dynamic power, over that at the share that is asked."""
    if asked <= 0.0 or share >= asked - _SAME:
        return 1.0
    return float((max(share, 0.0) / asked) ** GAMMA)
