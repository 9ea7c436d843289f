"""Power, heat and clocks of one emulated GPU, in closed form.

In goes a load (utilisation) that holds for some seconds of the GPU's own time; out come power,
energy, temperature, clock, and the speed that the load ran at. Every step is the exact solution
for a constant load, so an advance of an hour costs what an advance of a millisecond does, and
two halves give what the whole gives.

    power        P_ss = P_idle + (P_max - P_idle) x share,  dP/dt = (P_ss - P) / tau_p
    heat         R C dT/dt = T_coolant + R P - T            (one node: the die)
    slowdown     at T_slowdown the clocks are regulated so that the die stays there
    speed        (share / asked share) ^ gamma

Marks: [s] read in a public source, [a] our assumption. Caps that lag, steps and stores are not
modelled here; a power limit acts at once.
"""

import math
from collections import deque
from dataclasses import dataclass

TAU_POWER_S = 0.025
"""Lag of electrical power behind the load [a]."""
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
AVERAGE_S = 1.0
"""Window of the averaging power sensor, NVML field 185 [s]."""
SENSOR_STEP_S = 0.001
"""The averaging sensor resolves no load shorter than this [a]."""
SETTLED_C = 1.0
"""A die this close to its idle temperature counts as settled."""
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


class Die:
    """One GPU's electrical and thermal state; it begins idle and settled.

    `cooling` multiplies the heat resistance (1 is healthy), `brake` is the external power brake,
    `limit` the enforced power limit in W. All three may change between advances.
    """

    def __init__(self, part: Part) -> None:
        self.part = part
        self.brake = False
        self.limit = part.power_max
        self._cooling = 1.0
        self.seconds = 0.0
        self.power = part.power_idle
        self.energy = 0.0
        self.utilisation = 0.0
        self.throttled = False
        self.throttled_seconds = 0.0
        self.braked_seconds = 0.0
        self.capped = False
        self.speed = 1.0
        self.temperature = self.idle_temperature
        self._past: deque[tuple[float, float]] = deque([(0.0, 0.0)])

    @property
    def cooling(self) -> float:
        """How many times the healthy heat resistance there is between die and coolant."""
        return self._cooling

    @cooling.setter
    def cooling(self, factor: float) -> None:
        was_idle = self.seconds == 0.0
        self._cooling = factor
        if was_idle:
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
        share, speed = self._ask(utilisation)
        self.braked_seconds += seconds if self.brake else 0.0
        free = min(seconds, self._until_slowdown(share))
        self._coast(free, share)
        self.throttled = free < seconds
        self.speed = speed
        if not self.throttled:
            return speed
        held, slow = self._held(share), seconds - free
        self.throttled_seconds += slow
        self._coast(slow, held)
        if self._steady(self._watts(held)) <= self.part.slowdown + 1e-9:
            self.temperature = self.part.slowdown
        self.speed = speed * (held / share) ** GAMMA
        return (speed * free + self.speed * slow) / seconds

    def settle_seconds(self) -> float:
        """Return how long the die must idle to be settled, at most SETTLE_CAP_S.

        At least as long as the averaging power sensor remembers.
        """
        above = abs(self.temperature - self.idle_temperature)
        tau = TAU_HEAT_S * self._cooling
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
        before = self.energy - self.power * AVERAGE_S
        self._past = deque([(self.seconds - AVERAGE_S, before), (self.seconds, self.energy)])

    def _watts(self, share: float) -> float:
        return self.part.power_idle + (self.part.power_max - self.part.power_idle) * share

    def _steady(self, watts: float) -> float:
        return self.part.coolant + self.part.resistance * self._cooling * watts

    def _ask(self, utilisation: float) -> tuple[float, float]:
        """Return the share of dynamic power and the speed, before heat has its say."""
        asked = utilisation * (BRAKE_POWER if self.brake else 1.0)
        speed = BRAKE_CLOCK if self.brake else 1.0
        dynamic = self.part.power_max - self.part.power_idle
        allowed = max((self.limit - self.part.power_idle) / dynamic, LOWEST_SHARE)
        self.capped = asked > allowed
        if not self.capped:
            return asked, speed
        return allowed, speed * (allowed / asked) ** GAMMA

    def _held(self, share: float) -> float:
        """Return the share at which the die stays at its slowdown temperature."""
        watts = (self.part.slowdown - self.part.coolant) / (self.part.resistance * self._cooling)
        dynamic = self.part.power_max - self.part.power_idle
        return min(share, max((watts - self.part.power_idle) / dynamic, LOWEST_SHARE))

    def _until_slowdown(self, share: float) -> float:
        """Return the seconds to the slowdown temperature, power's lag neglected; inf for never."""
        steady = self._steady(self._watts(share))
        if steady <= self.part.slowdown or share <= LOWEST_SHARE:
            return math.inf
        if self.temperature >= self.part.slowdown:
            return 0.0
        ratio = (steady - self.temperature) / (steady - self.part.slowdown)
        return TAU_HEAT_S * self._cooling * math.log(ratio)

    def _coast(self, seconds: float, share: float) -> None:
        """Integrate power, energy and heat exactly over a constant share."""
        if seconds <= 0.0:
            return
        steady, tau = self._watts(share), TAU_HEAT_S * self._cooling
        lag = self.power - steady
        electrical, thermal = math.exp(-seconds / TAU_POWER_S), math.exp(-seconds / tau)
        # The die's answer to the power's own decay; the heat node is never as fast as the lag.
        answer = self._cooling * self.part.resistance * lag * TAU_POWER_S / (TAU_POWER_S - tau)
        end = self._steady(steady)
        rest = self.temperature - end - answer
        self.temperature = end + rest * thermal + answer * electrical
        self.energy += steady * seconds + lag * TAU_POWER_S * (1.0 - electrical)
        self.power = steady + lag * electrical
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
