import math

import numpy as np
import pytest

from rackproof.harness.devices.emulated.house.stores import Store, StoreRating
from rackproof.harness.errors import SpecError

DT = 0.001


def rating(**other):
    sizes = {"energy": 1e6, "power": 1e6, "efficiency": 1.0, "reaction": 1e-6, "smooth": 100.0,
             "recentre": 0.0}  # fmt: skip
    return StoreRating(**{**sizes, **other})


def square(high, low, duty, period, seconds):
    phase = np.arange(round(seconds / DT)) * DT % period
    return np.where(phase < duty * period - DT / 2, high, low).astype(float)


@pytest.mark.parametrize(("swing", "duty", "period"), [(60_500.0, 0.7, 2.0), (20_000.0, 0.3, 0.5)])
def test_to_flatten_a_square_takes_the_energy_of_the_formula(swing, duty, period):
    store = Store(rating(smooth=1e4))
    store._mean = 80_000.0 + duty * swing  # it has run for long
    energies = []
    for load in square(80_000.0 + swing, 80_000.0, duty, period, period).reshape(-1, 1):
        store.run(load, DT)
        energies.append(store.energy)
    formula = swing * duty * (1.0 - duty) * period
    assert max(energies) - min(energies) == pytest.approx(formula, rel=0.01)
    if swing == 60_500.0:
        assert formula == pytest.approx(25_410.0)


def test_a_large_store_hides_a_square_and_a_small_one_saturates():
    load = square(140_000.0, 80_000.0, 0.5, 2.0, 200.0)
    large = Store(rating(energy=1e6, smooth=10.0, recentre=0.05)).run(load, DT)[-20_000:]
    small = Store(rating(energy=4_700.0, smooth=10.0, recentre=0.05)).run(load, DT)[-20_000:]
    assert np.ptp(large) < 0.15 * 60_000.0
    assert np.ptp(small) > 0.9 * 60_000.0


def test_a_step_is_answered_with_its_reaction():
    store = Store(rating(reaction=0.18, smooth=1e6))
    store.run(np.full(10, 1000.0), DT)
    seen = store.run(np.full(180, 2000.0), DT)
    assert 2000.0 - seen[-1] == pytest.approx(1000.0 * (1.0 - math.exp(-1.0)), rel=1e-3)


def test_what_upstream_sees_decays_with_the_time_it_smooths_to():
    store = Store(rating(smooth=2.0))
    store.run(np.full(10, 1000.0), DT)
    seen = store.run(np.full(2000, 2000.0), DT)
    assert seen[-1] == pytest.approx(1000.0 + 1000.0 * (1.0 - math.exp(-1.0)), rel=1e-3)


def test_it_never_gives_more_than_its_rating():
    store = Store(rating(power=500.0))
    load = square(5000.0, 1000.0, 0.5, 1.0, 10.0)
    seen = store.run(load, DT)
    assert np.abs(load - seen).max() <= 500.0 + 1e-9


def test_nothing_is_fed_back_when_the_load_goes_away():
    store = Store(rating(reaction=0.18, smooth=1.0))
    store.run(np.full(10, 1000.0), DT)
    store.run(np.full(400, 5000.0), DT)
    assert store.power > 1000.0
    assert store.run(np.full(400, 500.0), DT).min() >= 0.0


@pytest.mark.parametrize("charge", [0.0, 0.5, 1.0])
def test_its_energy_stays_within_its_size_and_is_conserved(charge):
    store = Store(rating(energy=100.0, efficiency=0.9), charge)
    load = np.random.default_rng(3).uniform(0.0, 5000.0, 5000)
    given = taken = 0.0
    before = store.energy
    for part in np.split(load, 500):
        out = part - store.run(part, DT)
        given, taken = given + out[out > 0].sum() * DT, taken - out[out < 0].sum() * DT
        assert 0.0 <= store.energy <= 100.0
    assert store.energy - before == pytest.approx(0.9 * taken - given / 0.9, abs=1e-6)


def lowest_charge(recentre):
    """Run 200 s of a square through a store with losses; return its lowest charge of a period."""
    store = Store(rating(energy=30_000.0, efficiency=0.9, smooth=10.0, recentre=recentre))
    store.run(square(100_000.0, 80_000.0, 0.5, 1.0, 200.0), DT)
    charges = []
    for part in np.split(square(100_000.0, 80_000.0, 0.5, 1.0, 1.0), 100):
        store.run(part, DT)
        charges.append(store.charge)
    return min(charges)


def test_without_recentring_its_losses_leave_it_empty():
    assert lowest_charge(0.0) == pytest.approx(0.0, abs=1e-9)
    assert lowest_charge(0.5) > 0.25


def test_recentring_has_its_rate():
    store = Store(rating(energy=1000.0, recentre=0.1), charge=1.0)
    store.run(np.full(10_000, 50.0), DT)
    assert store.energy == pytest.approx(500.0 + 500.0 * math.exp(-1.0), rel=1e-3)


def test_ticks_in_two_runs_give_what_one_run_gives():
    whole, halves = (Store(rating(energy=500.0, recentre=0.2, reaction=0.01)) for _ in range(2))
    load = np.random.default_rng(1).uniform(0.0, 4000.0, 1000)
    seen = whole.run(load, DT)
    parts = [halves.run(part, DT) for part in (load[:333], load[333:333], load[333:])]
    assert np.array_equal(np.concatenate(parts), seen)
    assert halves.energy == whole.energy


def test_a_battery_takes_a_load_over_within_its_reaction_and_rides_its_energy():
    store = Store(rating(energy=2400.0, power=100.0, reaction=0.004, efficiency=0.8), charge=1.0)
    first = [store.give(100.0, DT) for _ in range(4)]
    assert first == pytest.approx([25.0, 50.0, 75.0, 100.0])
    seconds = 0.004
    while store.give(100.0, DT) >= 99.99:
        seconds += DT
    assert seconds == pytest.approx(2400.0 * 0.8 / 100.0, rel=1e-3)
    store.give(100.0, DT)
    assert store.give(100.0, DT) == pytest.approx(0.0, abs=1e-6)


def test_it_is_charged_no_faster_than_asked_and_not_over_full():
    store = Store(rating(energy=100.0, efficiency=0.9, reaction=1e-3), charge=0.9)
    store.give(-10.0, 1.0)
    assert store.energy == pytest.approx(99.0)
    store.give(-10.0, 1.0)
    assert store.energy == pytest.approx(100.0)
    assert store.power == pytest.approx(-1.0 / 0.9)


@pytest.mark.parametrize(
    "wrong",
    [{"energy": 0.0}, {"power": -1.0}, {"efficiency": 1.2}, {"efficiency": 0.0},
     {"reaction": math.nan}, {"smooth": math.inf}, {"recentre": -0.1}],
)  # fmt: skip
def test_what_is_no_store_is_refused(wrong):
    with pytest.raises(SpecError, match=next(iter(wrong))):
        rating(**wrong)


def test_a_charge_or_a_load_that_is_none_is_refused():
    with pytest.raises(SpecError, match="charge"):
        Store(rating(), charge=1.5)
    with pytest.raises(ValueError, match="load"):
        Store(rating()).run(np.array([1.0, math.nan]), DT)
