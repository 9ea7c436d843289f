import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.harness.devices.emulated.house.bank import TICK_S, Bank, Makeup
from rackproof.harness.devices.emulated.physics import GAMMA, LOWEST_SHARE, Die, Part

PART = Part(200.0, 1400.0, 25.0, 65.0, 89.0, 345.0, 2070.0)
LEAKY = Part(150.0, 1200.0, 30.0, 70.0, 74.0, 345.0, 1980.0)
SMALL = Part(70.0, 700.0, 24.0, 60.0, 89.0, 345.0, 1980.0)
PARTS = (PART, LEAKY, SMALL, PART)
RACKS = np.array([0, 0, 1, 1])


def bank(parts=PARTS, racks=RACKS, spread=1.0):
    return Bank(Makeup(parts, racks, np.full(len(parts), spread), GAMMA))


def lone(part=PART):
    return bank((part,), np.array([0]))


steps = st.lists(
    st.tuples(
        st.integers(1, 700),
        st.lists(st.floats(0.0, 1.0), min_size=4, max_size=4),
        st.lists(st.floats(200.0, 1400.0), min_size=4, max_size=4),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=100, deadline=None)
@given(steps)
def test_each_gpu_does_what_a_die_alone_does(blocks):
    gpus, dies = bank(), [Die(part) for part in PARTS]
    work = np.zeros(4)
    for ticks, loads, asked in blocks:
        limits = np.minimum(asked, gpus.most)  # as the driver states them
        watts = gpus.advance(ticks, np.array(loads), limits)
        assert watts.shape == (ticks, 2)
        for n, die in enumerate(dies):
            die.limit = float(limits[n])
            before = die.energy
            speed = die.advance(ticks * TICK_S, loads[n])
            work[n] += speed * ticks * TICK_S if loads[n] > 0.0 else 0.0
            dies[n].spent = die.energy - before
        # Not to the bit: a sum of pieces is added up in another order. No more than that.
        near = {"rel": 1e-9, "abs": 1e-9}
        assert gpus.power == pytest.approx([die.power for die in dies], **near)
        assert gpus.energy == pytest.approx([die.energy for die in dies], **near)
        assert gpus.temperature == pytest.approx([die.temperature for die in dies], **near)
        assert gpus.speed == pytest.approx([die.speed for die in dies], **near)
        assert gpus.clock == pytest.approx([die.clock for die in dies], **near)
        assert gpus.throttled.tolist() == [die.throttled for die in dies]
        assert gpus.capped.tolist() == [die.capped for die in dies]
        assert gpus.capped_seconds == pytest.approx([die.capped_seconds for die in dies], **near)
        seconds = [die.throttled_seconds for die in dies]
        assert gpus.throttled_seconds == pytest.approx(seconds, **near)
        assert gpus.work == pytest.approx(work, **near)
        spent = watts.sum(axis=0) * TICK_S
        told = [dies[0].spent + dies[1].spent, dies[2].spent + dies[3].spent]
        assert spent == pytest.approx(told, rel=1e-9, abs=1e-6)


def test_the_ticks_are_the_exact_solution():
    gpus = bank()
    load = np.array([1.0, 0.8, 0.9, 0.3])
    limit = np.array([900.0, 1200.0, 400.0, 1400.0])
    for _ in range(10):
        gpus.advance(100, load, np.array([1400.0, 1200.0, 700.0, 1400.0]))
    watts = gpus.advance(400, load, limit)
    dies = [Die(part) for part in PARTS]
    for n, die in enumerate(dies):
        die.advance(1.0, load[n])
        die.limit = limit[n]
    for tick in range(400):
        before = [die.energy for die in dies]
        for n, die in enumerate(dies):
            die.advance(TICK_S, load[n])
        means = [(die.energy - energy) / TICK_S for die, energy in zip(dies, before, strict=True)]
        assert watts[tick] == pytest.approx([means[0] + means[1], means[2] + means[3]], rel=1e-6)


def test_a_block_in_parts_is_the_block():
    whole, parts = bank(), bank()
    load, limit = np.array([1.0, 0.7, 1.0, 0.0]), np.array([800.0, 900.0, 650.0, 1400.0])
    together = whole.advance(300, load, limit)
    apart = [parts.advance(ticks, load, limit) for ticks in (1, 49, 51, 99, 100)]
    assert np.concatenate(apart) == pytest.approx(together, rel=1e-9)
    assert parts.temperature == pytest.approx(whole.temperature, rel=1e-9)


def test_the_average_is_that_of_the_last_second():
    gpus, full = lone(), np.array([1.0])
    for _ in range(5):
        gpus.advance(100, full, np.array([1400.0]))
    assert gpus.average[0] == pytest.approx(700.0 + 100.0 - 1200.0 * 0.025, rel=1e-3)
    for _ in range(20):
        gpus.advance(100, full, np.array([1400.0]))
    assert gpus.average[0] == pytest.approx(1400.0, rel=1e-6)


def test_who_keeps_no_limit_draws_what_the_load_asks():
    gpus = bank()
    gpus.keeps_limit[3] = False
    gpus.advance(1000, np.ones(4), np.full(4, 500.0))
    assert gpus.power == pytest.approx([500.0, 500.0, 500.0, 1400.0], abs=0.1)


def test_no_limit_goes_below_what_the_clocks_can_do():
    gpus = lone()
    gpus.advance(1000, np.ones(1), np.ones(1))
    assert gpus.power[0] == pytest.approx(200.0 + LOWEST_SHARE * 1200.0)


def test_a_faster_die_does_more_work_at_the_same_power():
    gpus = bank(spread=1.02)
    gpus.advance(1000, np.array([1.0, 1.0, 1.0, 0.0]), np.full(4, 1400.0))
    assert gpus.work == pytest.approx([1.02, gpus.work[1], 1.02, 0.0])
    assert gpus.speed[0] == pytest.approx(1.02)
    assert gpus.clock[0] == pytest.approx(2070.0)


def test_a_dark_gpu_draws_nothing_and_comes_back_idle():
    gpus = bank()
    gpus.advance(500, np.ones(4), np.full(4, 1400.0))
    gpus.darken(RACKS == 1)
    watts = gpus.advance(100, np.ones(4), np.full(4, 1400.0))
    assert watts[:, 1] == pytest.approx(0.0, abs=1e-9)
    assert watts[:, 0] == pytest.approx(2600.0, rel=0.1)
    work = gpus.work.copy()
    gpus.light(RACKS == 1)
    gpus.advance(500, np.zeros(4), np.full(4, 1400.0))
    assert gpus.power[2:] == pytest.approx([70.0, 200.0], rel=1e-3)
    assert gpus.work == pytest.approx(work)


def test_without_flow_it_heats_as_a_die_and_with_less_flow_in_between():
    part = Part(175.0, 1400.0, 25.0, 60.0, 90.0, 345.0, 2070.0)
    gpus, die = lone(part), Die(part)
    for _ in range(100):
        gpus.advance(100, np.ones(1), np.array([1400.0]))
    die.advance(10.0, 1.0)
    gpus.cool(np.array([25.0]), np.zeros(1))
    die.flowing = False
    seconds = 0.0
    while not gpus.throttled[0]:
        gpus.advance(100, np.ones(1), np.array([1400.0]))
        die.advance(0.1, 1.0)
        seconds += 0.1
        assert gpus.temperature[0] == pytest.approx(die.temperature, rel=1e-9)
    assert 8.0 < seconds < 20.0
    half = lone(part)
    half.cool(np.array([25.0]), np.array([0.5]))
    for _ in range(600):
        half.advance(300, np.ones(1), np.array([1400.0]))
    assert half.temperature[0] == pytest.approx(60.0 + 10.1, rel=1e-6)


@pytest.mark.parametrize("flow", [1.0, 0.9, 0.5, 0.2, 0.05, 0.01, 0.0])
def test_less_flow_is_never_cooler(flow):
    gpus, less = lone(), lone()
    gpus.cool(np.array([25.0]), np.array([flow]))
    less.cool(np.array([25.0]), np.array([flow * 0.8]))
    assert less.resistance[0] >= gpus.resistance[0] >= gpus.healthy[0]
