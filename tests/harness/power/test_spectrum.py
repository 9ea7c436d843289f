import math

import pytest

from rackproof.harness.power.spectrum import Line, by_rack, fastest, largest, lines


def sine(hertz, amplitude, samples=16, phase=0.0, mean=1000.0):
    """Samples of one period of a sine."""
    times = [(n + 0.5) / samples / hertz for n in range(samples)]
    return [(t, mean + amplitude * math.cos(2 * math.pi * (hertz * t + phase))) for t in times]


def square(hertz, swing, duty=0.5, samples=16):
    times = [(n + 0.5) / samples / hertz for n in range(samples)]
    return [(t, 200.0 + (swing if t * hertz % 1.0 < duty else 0.0)) for t in times]


@pytest.mark.parametrize("hertz", [0.1, 1.0, 5.0, 20.0])
def test_a_sine_is_one_line_of_its_amplitude(hertz):
    found = lines([sine(hertz, 300.0)], hertz)
    assert found[0].frequency == hertz
    assert found[0].amplitude == pytest.approx(300.0)
    assert all(line.amplitude < 1e-6 for line in found[1:])


def test_gpus_in_phase_add_up_and_gpus_against_each_other_cancel():
    both = lines([sine(1.0, 300.0)] * 2, 1.0)
    assert both[0].amplitude == pytest.approx(600.0)
    against = lines([sine(1.0, 300.0), sine(1.0, 300.0, phase=0.5)], 1.0)
    assert against[0].amplitude == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize(("samples", "share"), [(16, 0.07), (8, 0.15)])
def test_a_square_is_two_over_pi_of_its_swing_but_for_what_falls_onto_it(samples, share):
    found = largest(lines([square(0.1, 1000.0, samples=samples)], 0.1))
    assert found.frequency == 0.1
    assert found.amplitude == pytest.approx(1000.0 * 2 / math.pi, rel=share)


def test_lines_outside_the_band_are_none():
    assert lines([sine(0.01, 300.0)], 0.01) == []
    assert lines([sine(0.05, 300.0)], 0.05)[0].frequency == pytest.approx(0.1)
    assert lines([sine(25.0, 300.0)], 25.0) == []
    assert max(line.frequency for line in lines([square(10.0, 1.0)], 10.0)) <= 20.0
    assert lines([], 1.0) == []


def test_the_largest_line_is_the_lowest_of_equals():
    assert largest([Line(1.0, 5.0), Line(2.0, 5.0), Line(3.0, 4.0)]) == Line(1.0, 5.0)
    assert largest([Line(1.0, 4.95), Line(2.0, 5.0)]) == Line(1.0, 4.95)
    assert largest([Line(1.0, 4.8), Line(2.0, 5.0)]) == Line(2.0, 5.0)
    assert largest([]) is None


def test_the_fastest_change_of_the_sum():
    ramp = [(0.0, 100.0), (0.1, 100.0), (0.2, 300.0), (0.3, 350.0)]
    assert fastest([ramp]) == pytest.approx(2000.0)
    assert fastest([ramp, ramp]) == pytest.approx(4000.0)
    down = [(t, -w) for t, w in ramp]
    assert fastest([down]) == pytest.approx(2000.0)
    assert fastest([ramp, down]) == pytest.approx(0.0)


def test_two_samples_of_one_time_are_no_infinite_change():
    assert fastest([[(0.0, 1.0), (0.0, 900.0), (1.0, 901.0)]]) == pytest.approx(1.0)
    assert fastest([[(0.0, 1.0), (0.0, 2.0)]]) == 0.0
    assert fastest([[(0.0, 1.0)]]) == fastest([]) == 0.0


def test_traces_of_one_rack():
    traces = {"rack0/tray00/gpu0": [(0.0, 1.0)], "rack1/tray00/gpu0": [(0.0, 2.0)]}
    assert by_rack(traces, "rack1") == [[(0.0, 2.0)]]
