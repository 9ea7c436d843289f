import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.harness.devices.emulated.physics import (
    BRAKE_CLOCK,
    GAMMA,
    SETTLE_CAP_S,
    SETTLED_C,
    TAU_HEAT_S,
    TAU_POWER_S,
    Die,
    Part,
)

PART = Part(
    power_idle=200.0,
    power_max=1400.0,
    coolant=25.0,
    full_load=65.0,
    slowdown=89.0,
    clock_idle=345.0,
    clock_max=2070.0,
)
DEGRADED = 7.0


def euler(load, seconds, cooling=1.0, step=1e-5):
    """Integrate the module's equations the simple way: an independent reference."""
    power, heat, energy = PART.power_idle, PART.coolant, 0.0
    resistance = PART.resistance * cooling
    heat = PART.coolant + resistance * power
    target = PART.power_idle + (PART.power_max - PART.power_idle) * load
    for _ in range(round(seconds / step)):
        energy += power * step
        heat += (PART.coolant + resistance * power - heat) / (TAU_HEAT_S * cooling) * step
        power += (target - power) / TAU_POWER_S * step
    return power, heat, energy


def test_a_new_die_is_idle_and_settled():
    die = Die(PART)
    assert die.power == die.average == PART.power_idle
    assert die.temperature == pytest.approx(25.0 + 40.0 / 1400.0 * 200.0)
    assert die.clock == 345.0


@pytest.mark.parametrize(("load", "seconds"), [(1.0, 0.02), (1.0, 0.5), (0.4, 2.0)])
def test_it_solves_the_equations(load, seconds):
    die = Die(PART)
    assert die.advance(seconds, load) == 1.0
    power, heat, energy = euler(load, seconds)
    assert die.power == pytest.approx(power, rel=1e-3)
    assert die.temperature == pytest.approx(heat, rel=1e-3)
    assert die.energy == pytest.approx(energy, rel=1e-3)


def test_at_full_load_it_reaches_its_steady_state():
    die = Die(PART)
    die.advance(60.0, 1.0)
    assert die.power == pytest.approx(1400.0)
    assert die.temperature == pytest.approx(65.0)
    assert die.clock == 2070.0
    assert not die.throttled


@settings(max_examples=50)
@given(st.lists(st.tuples(st.floats(1e-4, 3.0), st.floats(0.0, 1.0)), min_size=1, max_size=6))
def test_two_halves_give_what_the_whole_gives(steps):
    whole, halves = Die(PART), Die(PART)
    for seconds, load in steps:
        whole.advance(seconds, load)
        halves.advance(seconds / 2, load)
        halves.advance(seconds / 2, load)
    assert halves.power == pytest.approx(whole.power)
    assert halves.temperature == pytest.approx(whole.temperature)
    assert halves.energy == pytest.approx(whole.energy)


def test_the_energy_counter_is_the_integral_of_power():
    die = Die(PART)
    die.advance(10.0, 1.0)
    before = die.energy
    die.advance(5.0, 1.0)
    assert die.energy - before == pytest.approx(5.0 * 1400.0)


def test_the_average_is_over_one_second_and_blind_to_a_1_hz_square():
    die = Die(PART)
    seen = []
    for _ in range(20):
        die.advance(0.5, 1.0)
        die.advance(0.5, 0.0)
        seen.append(die.average)
    assert seen[-1] == pytest.approx(800.0, rel=0.01)
    assert die.power == pytest.approx(200.0)
    die.advance(0.25, 1.0)
    assert die.average == pytest.approx(800.0, rel=0.06)


def test_the_averages_memory_stays_small():
    die = Die(PART)
    for _ in range(20_000):
        die.advance(1e-5, 1.0)
    assert len(die._past) <= 1100


def test_lost_cooling_holds_the_die_at_its_slowdown_temperature():
    die = Die(PART)
    die.cooling = DEGRADED
    assert die.temperature > Die(PART).temperature
    mean = die.advance(30.0, 1.0)
    assert die.throttled
    assert die.temperature == PART.slowdown
    watts = (89.0 - 25.0) / (PART.resistance * DEGRADED)
    assert die.power == pytest.approx(watts)
    share = (watts - 200.0) / 1200.0
    assert die.speed == pytest.approx(share**GAMMA)
    assert die.speed < mean < 1.0
    assert die.clock == pytest.approx(2070.0 * die.speed)
    assert 0.0 < die.throttled_seconds < 30.0


def test_the_time_to_slow_down_is_that_of_the_equations():
    die = Die(PART)
    die.cooling = DEGRADED
    die.advance(30.0, 1.0)
    free = 30.0 - die.throttled_seconds
    _, heat, _ = euler(1.0, free, DEGRADED, step=1e-4)
    assert heat == pytest.approx(89.0, abs=2.0)


def test_a_throttled_die_recovers_without_load():
    die = Die(PART)
    die.cooling = DEGRADED
    die.advance(30.0, 1.0)
    die.advance(0.1, 0.0)
    assert not die.throttled
    assert die.temperature < 89.0


def test_the_brake_halves_the_clock_and_quarters_the_dynamic_power():
    die = Die(PART)
    die.brake = True
    assert die.advance(10.0, 1.0) == BRAKE_CLOCK
    assert die.power == pytest.approx(200.0 + 1200.0 / 4)
    assert die.braked_seconds == 10.0


def test_a_power_limit_costs_speed_by_the_law():
    die = Die(PART)
    die.limit = 1200.0
    speed = die.advance(10.0, 1.0)
    assert die.capped
    assert die.power == pytest.approx(1200.0)
    assert speed == pytest.approx((1000.0 / 1200.0) ** GAMMA)


@pytest.mark.parametrize("cooling", [1.0, DEGRADED])
def test_it_settles_within_a_degree_and_then_to_the_bit(cooling):
    die, fresh = Die(PART), Die(PART)
    die.cooling = fresh.cooling = cooling
    die.advance(20.0, 1.0)
    wait = die.settle_seconds()
    assert 1.0 <= wait <= SETTLE_CAP_S
    die.advance(wait, 0.0)
    assert abs(die.temperature - die.idle_temperature) <= SETTLED_C * 1.001
    die.rest()
    assert (die.temperature, die.power) == (fresh.temperature, fresh.power)
    assert die.average == pytest.approx(fresh.average)
    assert die.advance(3.0, 1.0) == fresh.advance(3.0, 1.0)
    assert die.temperature == fresh.temperature


def test_the_wait_is_capped():
    die = Die(PART)
    die.cooling = 100.0
    die.temperature = 5000.0
    assert die.settle_seconds() == SETTLE_CAP_S
    die.advance(SETTLE_CAP_S, 0.0)
    hot = die.temperature
    die.rest()
    assert die.temperature == hot


def test_no_time_changes_nothing():
    die = Die(PART)
    die.advance(1.0, 1.0)
    state = (die.power, die.temperature, die.energy)
    die.advance(0.0, 1.0)
    assert (die.power, die.temperature, die.energy) == state
    assert math.isfinite(die.average)
