import math

import numpy as np
import pytest

from rackproof.harness.devices.emulated.house.breaker import Breaker, Curve
from rackproof.harness.errors import SpecError

RACK, MAIN = Curve(9.22, 2.04, 120.0), Curve(18.1, 0.63, 120.0)
DT = 0.001


def trip_time(breaker, watts, dt=0.01, most=2000.0):
    block, seconds = np.full(10, watts), 0.0
    while not breaker.tripped and seconds < most:
        breaker.run(block, dt)
        seconds += 10 * dt
    return seconds


@pytest.mark.parametrize(
    ("curve", "over", "seconds"),
    [(RACK, 0.17, 342.0), (RACK, 0.10, 1011.0), (RACK, 0.40, 59.8), (MAIN, 0.40, 32.2)],
)
def test_it_trips_when_the_formula_says(curve, over, seconds):
    assert curve.seconds(1.0 + over) == pytest.approx(seconds, rel=2e-3)
    breaker = Breaker(1000.0, curve)
    assert breaker.trip_in(1000.0 * (1.0 + over)) == pytest.approx(seconds, rel=2e-3)
    assert trip_time(breaker, 1000.0 * (1.0 + over)) == pytest.approx(seconds, rel=2e-3, abs=0.2)


def test_at_its_rating_it_holds_for_ever():
    breaker = Breaker(1000.0, RACK)
    assert breaker.trip_in(1000.0) == math.inf
    breaker.run(np.full(100_000, 1000.0), 1.0)
    assert breaker.strain == 0.0
    assert not breaker.tripped


def test_its_strain_decays_with_its_time_constant():
    breaker = Breaker(1000.0, RACK)
    breaker.strain = 0.8
    breaker.run(np.full(60_000, 900.0), DT)
    assert breaker.strain == pytest.approx(0.8 * math.exp(-0.5))
    mixed = Breaker(1000.0, RACK)
    mixed.strain = 0.8
    mixed.run(np.append(np.full(60_000, 900.0), 1000.1), DT)  # by the other way through the code
    assert mixed.strain == pytest.approx(0.8 * math.exp(-0.5))


def test_the_closed_form_is_the_recursion():
    watts = np.random.default_rng(5).uniform(800.0, 1300.0, 20_000)
    strain = 0.0
    for watt in watts:
        over = watt / 1000.0 - 1.0
        strain = strain + DT * over**2.04 / 9.22 if over > 0 else strain * math.exp(-DT / 120.0)
    breaker = Breaker(1000.0, RACK)
    for part in np.split(watts, 40):
        breaker.run(part, DT)
    assert breaker.strain == pytest.approx(strain, rel=1e-9)


def test_a_very_long_run_keeps_its_numbers():
    breaker = Breaker(1000.0, Curve(9.22, 2.04, 0.01))
    watts = np.full(100_000, 500.0)
    watts[::1000] = 1100.0
    breaker.run(watts, DT)
    assert 0.0 <= breaker.strain < 1e-3


def test_it_trips_inside_a_run_and_stays_tripped():
    breaker = Breaker(1000.0, RACK)
    watts = np.concatenate([np.full(70_000, 1400.0), np.zeros(600_000)])
    breaker.run(watts, DT)
    assert (breaker.tripped, breaker.strain, breaker.trip_in(1.0)) == (True, 1.0, 0.0)
    breaker.run(np.zeros(1000), DT)
    assert breaker.tripped
    breaker.close()
    assert (breaker.tripped, breaker.strain) == (False, 0.0)


def test_its_memory_shortens_the_next_overload():
    breaker = Breaker(1000.0, RACK)
    fresh = breaker.trip_in(1400.0)
    breaker.strain = 0.75
    assert breaker.trip_in(1400.0) == pytest.approx(fresh / 4.0)


def test_a_lower_rating_makes_a_load_an_overload():
    breaker = Breaker(1000.0, RACK)
    assert breaker.trip_in(900.0) == math.inf
    breaker.rated = 900.0 / 1.17
    assert breaker.trip_in(900.0) == pytest.approx(342.0, rel=2e-3)


@pytest.mark.parametrize("watts", [0.0, -1.0, math.nan, math.inf])
def test_a_rating_that_is_none_is_refused(watts):
    with pytest.raises(SpecError, match="rated"):
        Breaker(watts, RACK)
    breaker = Breaker(1.0, RACK)
    with pytest.raises(SpecError, match="rated"):
        breaker.rated = watts


@pytest.mark.parametrize("wrong", [(0.0, 2.0, 120.0), (9.0, -1.0, 120.0), (9.0, 2.0, math.nan)])
def test_a_curve_that_is_none_is_refused(wrong):
    with pytest.raises(SpecError, match="curve"):
        Curve(*wrong)


def test_a_power_that_is_no_number_is_refused():
    with pytest.raises(ValueError, match="number"):
        Breaker(1.0, RACK).run(np.array([0.5, math.nan]), DT)
