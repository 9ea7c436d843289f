"""Power smoothing: a floor once loaded, ramps at the profile's rates, and the heat that follows."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.harness.devices.emulated.governor import TAU_POWER_S
from rackproof.harness.devices.emulated.physics import Die, Part
from rackproof.harness.devices.emulated.smoothing import Profile, Smoother

PART = Part(
    power_idle=200.0,
    power_max=1400.0,
    coolant=25.0,
    full_load=65.0,
    slowdown=89.0,
    clock_idle=345.0,
    clock_max=2070.0,
)
FLOOR = 1120.0
PROFILE = Profile(FLOOR, 2000.0, 1000.0, 0.5)


def smoothed(profile=PROFILE):
    die = Die(PART)
    die.follow()
    die.advance(0.01, 0.0)
    die.smooth(profile)
    return die


def powers(die, seconds, load, step=0.01):
    found = []
    for _ in range(round(seconds / step)):
        die.advance(step, load)
        found.append(die.power)
    return np.array(found)


def test_it_rises_at_the_rate_of_its_profile():
    die = smoothed()
    watts = powers(die, 0.5, 1.0)
    assert np.diff(watts)[20:].max() == pytest.approx(2000.0 * 0.01, rel=1e-3)
    assert die.power == pytest.approx(200.0 + 2000.0 * (0.5 - TAU_POWER_S), rel=1e-3)
    powers(die, 0.5, 1.0)
    assert die.power == pytest.approx(1400.0, rel=1e-3)


def test_it_holds_the_floor_until_the_hysteresis_is_over_and_falls_at_its_rate():
    die = smoothed()
    die.advance(2.0, 1.0)
    held = powers(die, 0.5, 0.0)
    assert held.min() >= FLOOR - 1e-6
    assert held[-1] == pytest.approx(FLOOR, abs=1.0)
    falls = powers(die, 0.5, 0.0)
    assert np.diff(falls)[20:].min() == pytest.approx(-1000.0 * 0.01, rel=1e-3)
    die.advance(2.0, 0.0)
    assert die.power == pytest.approx(PART.power_idle, rel=1e-3)


def test_a_gpu_that_never_was_loaded_stays_idle():
    die = smoothed()
    die.advance(5.0, 0.0)
    assert die.power == pytest.approx(PART.power_idle)


def test_a_wave_shorter_than_the_hysteresis_never_falls_below_the_floor():
    die = smoothed()
    die.advance(2.0, 1.0)
    for _ in range(6):
        assert powers(die, 0.25, 0.0).min() >= FLOOR - 1e-6
        die.advance(0.25, 1.0)


def test_no_hysteresis_is_no_floor_and_no_rates_is_at_once():
    die = smoothed(Profile(FLOOR, 0.0, 0.0, 0.0))
    die.advance(0.5, 1.0)
    assert die.power == pytest.approx(1400.0, rel=1e-6)
    die.advance(0.5, 0.0)
    assert die.power == pytest.approx(PART.power_idle, rel=1e-6)


def test_a_ramp_that_reaches_the_limit_goes_no_further():
    die = smoothed()
    die.limit = 900.0
    die.advance(5.0, 1.0)
    assert die.power == pytest.approx(900.0, rel=1e-3)
    die.limit = 1400.0
    die.advance(0.2, 1.0)
    assert die.power < 1400.0
    die.advance(5.0, 1.0)
    assert die.power == pytest.approx(1400.0, rel=1e-3)


def test_work_waits_for_the_ramp_and_not_for_the_floor():
    die = smoothed()
    assert die.advance(0.3, 1.0) < 0.9
    die.advance(2.0, 1.0)
    assert die.advance(0.3, 1.0) == pytest.approx(1.0)
    assert die.advance(0.3, 0.0) == 1.0


def test_power_energy_and_heat_solve_the_equations():
    die = smoothed()
    power, heat, energy, step = die.power, die.temperature, die.energy, 1e-4
    drive = Smoother(PROFILE, power)
    for load, seconds in ((1.0, 0.9), (0.0, 1.1)):
        die.advance(seconds, load)
        drive.meet(200.0 + 1200.0 * load)
        for _ in range(round(seconds / step)):
            watts = drive.piece()[1]
            energy += power * step
            heat += (PART.coolant + PART.resistance * power - heat) * step
            power += (watts - power) / TAU_POWER_S * step
            drive.advance(step)
    assert die.power == pytest.approx(power, rel=2e-3)
    assert die.energy == pytest.approx(energy, rel=1e-3)
    assert die.temperature == pytest.approx(heat, rel=1e-3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.floats(0.001, 0.8), st.sampled_from([0.0, 0.3, 1.0])), max_size=6))
def test_two_halves_give_what_the_whole_gives(loads):
    whole, halves = smoothed(), smoothed()
    for seconds, load in loads:
        whole.advance(seconds, load)
        halves.advance(seconds / 2.0, load)
        halves.advance(seconds / 2.0, load)
    assert halves.power == pytest.approx(whole.power, rel=1e-6)
    assert halves.energy == pytest.approx(whole.energy, rel=1e-6)
    assert halves.temperature == pytest.approx(whole.temperature, rel=1e-6)


# --- the trail ------------------------------------------------------------------------------------
@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.sampled_from([0.0, 0.5, 1.0])), max_size=6),
    st.booleans(),
    st.sampled_from([None, 700.0]),
)
def test_the_trail_gives_the_power_of_every_moment(loads, smooth, limit):
    die, other = smoothed(), smoothed()
    for each in (die, other):
        each.smooth(PROFILE if smooth else None)
    begun, seen = die.seconds, []
    for number, (ticks, load) in enumerate(loads):
        for each in (die, other):
            if limit and number == 1:
                each.limit = limit
        die.advance(ticks * 0.01, load)
        for _ in range(ticks):
            other.advance(0.01, load)
            seen.append(other.power)
    assert other.trail is not None
    for trail in (die.trail, other.trail):
        watts = trail.watts(begun, 0.01, len(seen))
        near = 0.01 if trail is other.trail or not (smooth and limit) else 2.0
        assert watts == pytest.approx(np.array(seen), abs=near)


def test_looking_on_the_way_makes_the_trail_no_longer():
    die = smoothed(None)
    die.advance(0.5, 1.0)
    pieces = len(die.trail._segments)
    for _ in range(50):
        die.advance(0.01, 1.0)
    assert len(die.trail._segments) == pieces


def test_what_is_forgotten_is_gone_and_the_rest_stays():
    die = smoothed(None)
    for load in (1.0, 0.0) * 20:
        die.advance(0.1, load)
    after = die.trail.watts(3.0, 0.001, 900)
    die.trail.forget(3.0)
    assert len(die.trail._segments) < 15
    assert die.trail.watts(3.0, 0.001, 900) == pytest.approx(after)


def test_before_the_first_piece_and_after_the_last_the_power_stays():
    die = smoothed(None)
    die.advance(5.0, 1.0)
    watts = die.trail.watts(-1.0, 1.0, 20)
    assert watts[0] == 200.0
    assert watts[-1] == pytest.approx(1400.0, rel=1e-9)
    assert all(math.isfinite(each) for each in watts)
