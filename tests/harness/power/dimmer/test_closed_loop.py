"""Control quality, closed loop against the plant of conftest.py: DD1 to DD4, DD8."""

import numpy as np
import pytest

from rackproof.harness.power.dimmer import Bridge, Settings

FEED = "rack0/power"
NEVER = 1e9
TICK = 0.01  # of the plant


def dimmed(plant, cut, *, warm=20.0, run=110.0, window=4.0):
    """Run in, lower the limit by `cut` of the measured load, run on; return limit and time."""
    plant.run(warm)
    _, mean = plant.means(window=window)
    limit, begin = mean[-1] * (1.0 - cut), plant.now
    plant.limit(FEED, limit)
    plant.run(run)
    return limit, begin


def under(plant, limit, begin, window=4.0):
    """Return the s after which the trailing mean stays under the limit."""
    at, mean = plant.means(window=window, since=begin)
    over = np.flatnonzero(mean > limit)
    return at[over[-1]] - begin if len(over) else 0.0


def turns(plant, begin):
    _, caps = plant.caps(since=begin)
    moves = np.sign(np.diff(caps)[np.abs(np.diff(caps)) > 0.5])
    return int((np.diff(moves) != 0).sum())


def quality(plant, limit, begin, window=4.0):
    """DD1 and DD3: no strain, rest in the band, undershoot, changes of direction."""
    assert plant.strain.max() <= 0.25
    at, mean = plant.means(window=3.0 * window, since=begin + 3.0 * window)
    assert mean.min() >= 0.93 * limit
    tail = mean[at > begin + 60.0]
    assert tail.min() >= 0.93 * limit
    assert tail.max() <= 0.97 * limit
    assert turns(plant, begin) <= 1


@pytest.mark.parametrize("cut", [0.2, 0.4])
@pytest.mark.parametrize("curve", [(9.22, 2.04), (18.1, 0.63)])
def test_a_lowered_limit_is_kept_and_kept_well(plant, cut, curve):
    rack = plant()
    rack.curve = curve
    limit, begin = dimmed(rack, cut)
    quality(rack, limit, begin)
    assert under(rack, limit, begin) <= 20.0
    assert [act.what for act in rack.acts].index("overload-detected") >= 0
    assert len(rack.said("settled")) == 1


def slow(plant, **more):
    """A plant whose breaker asks for no hurry, so that the pace is the test's."""
    rack = plant(settings=Settings(**more))
    rack.curve = (NEVER, 1.0)
    return rack


@pytest.mark.parametrize("cut", [0.2, 0.35])
def test_the_normal_ramp_keeps_its_rate_and_ends_in_a_minute(plant, cut):
    rack = slow(plant)
    limit, begin = dimmed(rack, cut)
    quality(rack, limit, begin)
    assert under(rack, limit, begin) <= 60.0
    _, caps = rack.caps(since=begin)
    span = int(5.0 / TICK)
    falls = (caps[:-span] - caps[span:]) / 5.0
    assert 15.0 < falls.max() <= 20.0 * 1.1 + 1e-6


def test_the_urgent_ramp_is_taken_where_the_stores_cannot_bridge_the_normal_one(plant):
    rack = slow(plant, bridges={FEED: Bridge(2.0e5, 1e6)})
    limit, begin = dimmed(rack, 0.3)
    quality(rack, limit, begin)
    assert 2.0 < under(rack, limit, begin) <= 20.0
    _, caps = rack.caps(since=begin)
    span = int(2.0 / TICK)
    assert 60.0 < ((caps[:-span] - caps[span:]) / 2.0).max() <= 100.0 * 1.3


@pytest.mark.parametrize("store", [Bridge(1e9, 1e3), Bridge(1e3, 1e9)])
def test_a_store_of_too_few_watts_or_joules_means_a_step(plant, store):
    rack = slow(plant, bridges={FEED: store})
    limit, begin = dimmed(rack, 0.3)
    quality(rack, limit, begin)
    assert under(rack, limit, begin) <= 10.0
    _, caps = rack.caps(since=begin)
    assert caps[int(0.1 / TICK)] < caps[0] - 200.0


def test_energy_over_the_limit_fits_the_store_that_was_stated(plant):
    store = Bridge(1.5e5, 1e6)
    rack = slow(plant, bridges={FEED: store})
    limit, begin = dimmed(rack, 0.3, run=60.0)
    at = np.array([t[0] for t in rack.trace])
    watts = np.array([t[1][0] for t in rack.trace])
    # Over whole iterations, since the limit is one of means.
    mean = np.convolve(watts, np.ones(200) / 200, "valid")
    since = at[199:] > begin + 2.0
    assert (np.maximum(mean[since] - limit, 0.0) * TICK).sum() <= store.energy


@pytest.mark.parametrize("how", ["ac", "strain", "trip"])
def test_in_an_emergency_the_caps_fall_at_once(plant, how):
    rack = slow(plant)
    rack.run(20.0)
    _, mean = rack.means()
    limit, begin = 0.7 * mean[-1], rack.now
    if how == "ac":
        rack.ac[:] = False
        rack.stated[:] = limit
    elif how == "strain":
        rack.strain[:] = 0.6
    else:
        rack.curve = (0.5, 1.0)
    rack.rated[:] = limit
    if how != "ac":
        rack.dimmer.limit(FEED, limit, at=rack.now, why="a test")
    rack.look()
    rack.run(1.0)
    _, caps = rack.caps(since=begin)
    asked = caps[-1]
    rack.run(60.0)
    assert asked < 900.0
    _, mean = rack.means(window=12.0, since=begin + 30.0)
    assert mean.max() <= 0.98 * limit
    assert mean.min() >= 0.93 * limit


def test_a_steady_load_under_its_limit_is_left_alone(plant):
    rack = plant()
    rack.run(20.0)
    _, mean = rack.means()
    rack.limit(FEED, mean[-1] * 1.02)
    rack.run(180.0)
    assert all(np.isnan(caps).all() for _, caps in rack.asks)


def test_what_is_lifted_is_given_back_slowly_after_three_quiet_cycles(plant):
    rack = slow(plant)
    _, begin = dimmed(rack, 0.3, run=80.0)
    lifted = rack.now
    rack.limit(FEED, None)
    rack.run(170.0)
    at, caps = rack.caps(since=lifted)
    first = at[np.flatnonzero(np.diff(caps) > 0.5)[0]] - lifted
    assert 6.0 <= first <= 9.0 + 30.0 + 3.0
    assert caps[-1] == 1200.0  # what was asked for before, and no more
    steps = np.diff(caps)
    assert steps.max() <= 20.0 + 1e-6
    assert steps.min() >= 0.0
    span = int(6.0 / TICK)
    assert (caps[span:] - caps[:-span]).max() <= 20.0 * 3 + 1e-6
    assert "raise" in {act.what for act in rack.acts}
    assert turns(rack, begin) == 1


def test_a_limit_that_is_partly_lifted_is_used_and_not_exceeded(plant):
    rack = slow(plant)
    limit, _ = dimmed(rack, 0.35, run=80.0)
    rack.limit(FEED, limit * 1.25)
    rack.run(200.0)
    _, mean = rack.means(window=12.0, since=rack.now - 40.0)
    assert 0.93 * 1.25 * limit <= mean.min()
    assert mean.max() <= 0.99 * 1.25 * limit


def test_a_second_lower_limit_in_the_middle_of_a_ramp_is_obeyed(plant):
    rack = slow(plant)
    rack.run(20.0)
    _, mean = rack.means()
    rack.limit(FEED, 0.85 * mean[-1])
    rack.run(4.0)
    limit, begin = 0.65 * mean[-1], rack.now
    rack.limit(FEED, limit)
    rack.run(110.0)
    quality(rack, limit, begin)


@pytest.mark.parametrize("seed", range(6))
def test_random_limits_loads_and_times_are_all_kept_well(plant, kit, seed):
    draw = np.random.default_rng(seed)
    period = float(draw.choice([0.3, 0.5, 1.0, 2.0, 3.0]))
    load = kit.load(period, draw.uniform(0.05, 0.4), draw.uniform(700, 1300),
                    draw.uniform(150, 600))  # fmt: skip
    rack = plant(loads=[load])
    rack.jobs[0] = type(rack.jobs[0])("train", np.arange(72), 0, 200.0, period)
    rack = plant(loads=[load], jobs=rack.jobs)
    rack.ticks = float(draw.choice([0.25, 0.5, 0.7]))
    rack.scale = draw.normal(1.0, 0.02, 72)
    window = rack.settings.span(period)
    rack.run(draw.uniform(10.0, 20.0) + window)
    _, mean = rack.means(window=window)
    floor = (45_000.0 + 72 * 200.0) * 1.05
    limit, begin = max(mean[-1] * (1.0 - draw.uniform(0.05, 0.4)), floor), rack.now
    rack.limit(FEED, limit)
    rack.run(110.0)
    quality(rack, limit, begin, window)
