import itertools

import pytest

from rackproof.harness.power.wave import (
    DUTIES,
    FREQUENCIES,
    HIGH,
    LOW,
    SAMPLE,
    SENSOR_S,
    Wave,
    coincides,
    sweep,
)


def test_the_sweep_covers_a_tenth_to_twenty_hertz_and_three_duties():
    assert (min(FREQUENCIES), max(FREQUENCIES)) == (0.1, 20.0)
    assert (min(DUTIES), max(DUTIES)) == (0.3, 0.7)
    assert {(w.frequency, w.duty) for w in sweep()} == {(f, d) for f in FREQUENCIES for d in DUTIES}


@pytest.mark.parametrize("wave", sweep(), ids=str)
def test_no_two_samples_are_nearer_than_the_sensors_period_nor_beat_with_it(wave):
    times = [at for at, what in wave.steps() if what == SAMPLE]
    gaps = [b - a for a, b in itertools.pairwise(times)]
    assert min(gaps) >= SENSOR_S
    assert not any(coincides(gap) for gap in gaps)


@pytest.mark.parametrize("wave", sweep(), ids=str)
def test_the_samples_are_spread_evenly_over_the_period(wave):
    phases = sorted((at / wave.period) % 1.0 for at, what in wave.steps() if what == SAMPLE)
    assert phases == pytest.approx([(n + 0.5) / wave.samples for n in range(wave.samples)])


@pytest.mark.parametrize("wave", sweep(), ids=str)
def test_edges_alternate_and_the_load_lasts_its_duty(wave):
    edges = [(at, what) for at, what in wave.steps() if what != SAMPLE]
    assert [what for _, what in edges] == [HIGH, LOW] * (len(edges) // 2)
    highs = [low - high for (high, _), (low, _) in zip(edges[::2], edges[1::2], strict=True)]
    assert highs == pytest.approx([wave.duty * wave.period] * len(highs))
    assert edges[-1][0] <= wave.seconds
    assert wave.seconds == pytest.approx(len(highs) * wave.period)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.1, True), (0.1019, True), (0.1021, False), (0.5, True), (0.73, False)]
)
def test_a_distance_near_a_multiple_of_the_period_coincides(seconds, said):
    assert coincides(seconds) is said


def test_a_distance_far_below_the_period_does_not():
    assert not coincides(0.03)


def test_a_wave_of_any_frequency_can_be_planned():
    for hertz in (0.13, 0.37, 3.3, 9.9, 13.0):
        wave = Wave(hertz, 0.5)
        assert wave.spacing >= SENSOR_S
        assert sum(what == SAMPLE for _, what in wave.steps()) == wave.samples
