"""Figures of the mains stand clear of the meter's noise, or are not told."""

import math

import numpy as np
import pytest

from rackproof.harness.burns import power_noise
from rackproof.harness.errors import DeviceError
from rackproof.harness.power.spectrum import fastest, largest, lines


def test_the_noise_is_that_of_one_reading_and_a_drift_is_none():
    draw = np.random.default_rng(3)
    drift = np.linspace(0.0, 5_000.0, 400)
    found = power_noise.sigma(list(1e5 + drift + draw.normal(0.0, 300.0, 400)))
    assert found == pytest.approx(300.0, rel=0.1)
    assert power_noise.sigma([1e5, math.nan, 1e5]) == 0.0
    assert power_noise.sigma([7.0] * 5) == 0.0


def test_the_bounds_are_what_noise_alone_makes():
    draw = np.random.default_rng(5)
    amplitudes, ramps = [], []
    for _ in range(200):
        trace = [(n / 16.0, float(draw.normal(0.0, 100.0))) for n in range(16)]
        amplitudes.append(lines([trace], 1.0)[0].amplitude)
        ramps.append(fastest([trace]))
    assert np.percentile(amplitudes, 95) < power_noise.of_line(100.0, 16)
    assert np.median(amplitudes) > 0.2 * power_noise.of_line(100.0, 16)
    assert np.median(ramps) == pytest.approx(power_noise.of_ramp(100.0, 1.0 / 16.0), rel=0.3)
    assert largest(lines([[(0.0, 1.0), (1.0, 1.0)]], 1.0)) is None


@pytest.mark.parametrize(("figure", "most"), [(1000.0, 100.0), (5.0, 40.0), (0.0, 0.0)])
def test_a_figure_that_is_clear_of_it_is_told_as_it_is(figure, most):
    assert power_noise.clear("ramp", figure, 1000.0, (most, 0.2)) == figure


@pytest.mark.parametrize(("figure", "most"), [(1300.0, 300.0), (120.0, 100.0), (0.0, 1e9)])
def test_one_that_is_not_is_lost(figure, most):
    with pytest.raises(DeviceError, match="lost in the meter's noise"):
        power_noise.clear("ramp", figure, 1000.0, (most, 0.2))
