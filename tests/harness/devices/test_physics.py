import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.harness.devices.emulated.governor import CAP_DEAD_S, EXCURSION, TAU_CAP_S
from rackproof.harness.devices.emulated.physics import (
    BRAKE_CLOCK,
    GAMMA,
    LOWEST_SHARE,
    SETTLE_CAP_S,
    SETTLED_C,
    TAU_HEAT_S,
    TAU_POWER_S,
    Die,
    Part,
    outlet,
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
    mean = die.advance(10.0, 1.0)
    assert die.capped
    assert die.power == pytest.approx(1200.0)
    assert die.speed == pytest.approx((1000.0 / 1200.0) ** GAMMA)
    assert die.speed < mean < 1.0  # what jumps over the limit runs free for a moment
    assert die.capped_seconds == pytest.approx(10.0 - CAP_DEAD_S)


def capped_by_euler(limits, step=1e-5):
    """Follow (seconds, limit) under full load the simple way; return power, heat and energy."""
    ceiling = heat_limit = PART.power_max
    power, energy, dead = PART.power_max, 0.0, 0.0
    heat = PART.coolant + PART.resistance * power
    for seconds, limit in limits:
        dead = CAP_DEAD_S if limit != heat_limit else dead
        heat_limit = limit
        for _ in range(round(seconds / step)):
            target = min(PART.power_max, ceiling)
            energy += power * step
            heat += (PART.coolant + PART.resistance * power - heat) / TAU_HEAT_S * step
            power += (target - power) / TAU_POWER_S * step
            if dead > step / 2:
                dead -= step
            else:
                ceiling += (limit - ceiling) / TAU_CAP_S * step
    return power, heat, energy


@pytest.mark.parametrize(
    "limits",
    [
        [(0.03, 900.0)],
        [(0.12, 900.0)],
        [(0.4, 900.0), (0.02, 1250.0)],
        [(0.4, 900.0), (0.13, 1250.0)],
        [(0.4, 900.0), (0.3, 1400.0)],
        [(0.07, 900.0), (0.2, 1100.0)],
    ],
)
def test_a_limit_acts_late_and_gradually_down_and_up(limits):
    die = Die(PART)
    die.advance(60.0, 1.0)
    before = die.energy
    for seconds, limit in limits:
        die.limit = limit
        die.advance(seconds, 1.0)
    power, heat, energy = capped_by_euler(limits)
    assert die.power == pytest.approx(power, rel=2e-3)
    assert die.temperature == pytest.approx(heat, rel=2e-3)
    assert die.energy - before == pytest.approx(energy, rel=2e-3)


def test_two_seconds_after_a_limit_it_is_kept_to_a_thousandth():
    die = Die(PART)
    die.advance(5.0, 1.0)
    for limit in (980.0, 1190.0, 700.0):
        die.limit = limit
        die.advance(2.0, 1.0)
        assert die.power == pytest.approx(limit, rel=1e-3)


def test_a_load_that_jumps_over_its_limit_is_over_it_for_a_moment():
    die = Die(PART)
    die.limit = 700.0
    die.advance(1.0, 0.0)
    seen = []
    for _ in range(400):
        die.advance(0.001, 1.0)
        seen.append(die.power)
    assert max(seen) == pytest.approx(0.9 * EXCURSION * 700.0, rel=0.05)
    assert max(seen) <= EXCURSION * 700.0
    assert sum(watts > 1.05 * 700.0 for watts in seen) < 200
    assert seen[-1] == pytest.approx(700.0, rel=0.01)


def test_without_a_lower_limit_nothing_jumps():
    die = Die(PART)
    for _ in range(5):
        die.advance(0.3, 1.0)
        die.advance(0.3, 0.0)
    assert die.capped_seconds == 0.0
    assert die.power <= PART.power_max


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.floats(1e-3, 1.0), st.floats(0.0, 1.0), st.floats(300.0, 1400.0)),
        min_size=1,
        max_size=6,
    )
)
def test_two_halves_give_what_the_whole_gives_under_limits_too(steps):
    whole, halves = Die(PART), Die(PART)
    for seconds, load, limit in steps:
        whole.limit = halves.limit = limit
        whole.advance(seconds, load)
        halves.advance(seconds / 2, load)
        halves.advance(seconds / 2, load)
    assert halves.power == pytest.approx(whole.power, rel=1e-5)
    assert halves.temperature == pytest.approx(whole.temperature, rel=1e-5)
    assert halves.energy == pytest.approx(whole.energy, rel=1e-5)
    assert halves.capped_seconds == pytest.approx(whole.capped_seconds, abs=1e-4)


def test_an_hour_under_a_limit_is_a_few_pieces(monkeypatch):
    die = Die(PART)
    die.limit = 1000.0
    steps = []
    coast = Die._coast
    monkeypatch.setattr(Die, "_coast", lambda self, *a: (steps.append(a), coast(self, *a)))
    die.advance(3600.0, 1.0)
    assert len(steps) <= 4


def test_no_limit_goes_below_what_the_clocks_can_do():
    die = Die(PART)
    die.limit = 1.0
    die.advance(20.0, 1.0)
    assert die.power == pytest.approx(200.0 + LOWEST_SHARE * 1200.0)


def test_without_flow_a_die_goes_from_60_to_90_in_8_to_20_seconds():
    part = Part(175.0, 1400.0, 25.0, 60.0, 90.0, 345.0, 2070.0)
    die = Die(part)
    die.advance(60.0, 1.0)
    assert die.temperature == pytest.approx(60.0)
    die.flowing = False
    die.advance(8.0, 1.0)
    assert not die.throttled
    die.advance(12.0, 1.0)
    assert die.throttled
    assert die.temperature == 90.0
    assert die.speed < 0.6


def test_a_rack_that_stood_without_flow_is_hot_at_rest_and_recovers_with_it():
    die = Die(PART)
    die.flowing = False
    assert 70.0 < die.temperature < PART.slowdown
    die.flowing = True
    die.advance(20.0, 0.0)
    assert die.temperature == pytest.approx(Die(PART).temperature, abs=0.01)


@pytest.mark.parametrize(("flow", "rise"), [(1.0, 15.1), (1.5, 10.1), (2.0, 7.5)])
def test_the_coolant_takes_its_heat_away(flow, rise):
    assert outlet(25.0, 1000.0, flow) - 25.0 == pytest.approx(rise, rel=0.02)


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
