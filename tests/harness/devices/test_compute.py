"""Products are NumPy's, inputs are rounded to their format, and a planted error is counted."""

import numpy as np
import pytest

from rackproof.harness.devices.emulated.compute import LANES, OutputFault, multiply
from rackproof.harness.devices.precisions import PRECISIONS, rounded
from rackproof.harness.errors import Unsupported


@pytest.fixture
def pair():
    rng = np.random.default_rng(2)
    return tuple(rng.normal(size=(64, 64)).astype(np.float32) for _ in range(2))


def test_a_healthy_product_is_numpys(pair):
    outcome = multiply(*pair, "fp32")
    assert np.array_equal(outcome.c, pair[0] @ pair[1])
    assert (outcome.c.dtype, outcome.applied, outcome.repeats_differ) == (np.float32, 0, 0)


@pytest.mark.parametrize("relative", [0.1, 0.06, 2.0**-8, -0.5, 1.0])
@pytest.mark.parametrize("key", range(5))
def test_one_element_is_off_by_the_share_that_was_planted(pair, relative, key):
    right = multiply(*pair, "fp32").c
    outcome = multiply(*pair, "fp32", OutputFault(relative), key)
    at = np.argwhere(outcome.c != right)
    assert (len(at), outcome.applied, outcome.repeats_differ) == (1, 1, 1)
    ratio = outcome.c[tuple(at[0])] / right[tuple(at[0])]
    assert ratio == pytest.approx(1 + relative, rel=1e-6)
    again = multiply(*pair, "fp32", OutputFault(relative), key).c
    assert np.array_equal(again, outcome.c)


def test_the_key_draws_the_element_and_a_lane_keeps_it(pair):
    right = multiply(*pair, "fp32").c
    found = set()
    for key in range(20):
        c = multiply(*pair, "fp32", OutputFault(lane=5), key).c
        found.add(tuple(int(i) for i in np.argwhere(c != right)[0]))
    assert len(found) > 10
    assert {column % LANES for _, column in found} == {5}


@pytest.mark.parametrize(("name", "test"), [("nan", np.isnan), ("inf", np.isinf)])
def test_nan_and_inf(pair, name, test):
    outcome = multiply(*pair, "fp32", OutputFault(nonfinite=name), 1)
    assert (test(outcome.c).sum(), outcome.applied) == (1, 1)


def test_a_steady_fault_is_not_seen_by_comparing_repeats(pair):
    outcome = multiply(*pair, "fp32", OutputFault(steady=True), 1)
    assert (outcome.applied, outcome.repeats_differ) == (1, 0)


def test_an_error_that_nothing_shows_is_not_counted(pair):
    zeros = np.zeros_like(pair[0])
    outcome = multiply(zeros, zeros, "fp32", OutputFault(0.1), 1)
    assert (outcome.applied, outcome.repeats_differ) == (0, 0)
    assert multiply(*pair, "fp32", OutputFault(2.0**-30), 1).applied == 0


def test_the_error_moves_to_an_element_that_shows_it():
    a = np.zeros((8, 8), dtype=np.float32)
    a[3, 0] = 1
    b = np.zeros((8, 8), dtype=np.float32)
    b[0, 5] = 2
    outcome = multiply(a, b, "fp32", OutputFault(0.5, lane=5), 9)
    assert (outcome.applied, outcome.c[3, 5]) == (1, 3.0)


def test_fp16_rounding_is_numpys_within_its_range():
    rng = np.random.default_rng(4)
    x = np.concatenate(
        [rng.normal(size=2000) * 2.0 ** rng.integers(-26, 15, 2000), [0.0, -0.0, 65504.0, 2e-8]]
    ).astype(np.float32)
    assert np.array_equal(rounded(np, x, "fp16"), x.astype(np.float16).astype(np.float32))


def test_bf16_rounding_is_to_nearest_even_on_the_upper_half():
    bits = np.random.default_rng(5).integers(0x00800000, 0x7F000000, 3000, dtype=np.uint32)
    upper = (bits + 0x7FFF + (bits >> 16 & 1)) & np.uint32(0xFFFF0000)
    got = rounded(np, bits.view(np.float32), "bf16")
    assert np.array_equal(got.view(np.uint32), upper)


def test_every_number_of_e4m3_stays_and_the_rest_becomes_one():
    codes = np.arange(127)  # without the sign and the one NaN
    exponent, fraction = codes >> 3, codes & 7
    normal = (1 + fraction / 8) * 2.0 ** (exponent - 7)
    every = np.where(exponent == 0, fraction / 8 * 2.0**-6, normal).astype(np.float32)
    assert np.array_equal(rounded(np, every, "fp8"), every)
    x = np.random.default_rng(6).uniform(-500, 500, 2000).astype(np.float32)
    got = rounded(np, x, "fp8")
    assert set(np.abs(got)) <= set(every)
    nearest = np.abs(np.abs(x)[:, None] - every[None, :]).min(axis=1)
    assert np.array_equal(np.abs(x - got), nearest.astype(np.float32))


@pytest.mark.parametrize("name", PRECISIONS)
def test_rounding_twice_changes_nothing_and_nan_stays(name):
    x = (np.random.default_rng(7).normal(size=500) * 3).astype(np.float32)
    once = rounded(np, x, name)
    assert np.array_equal(rounded(np, once, name), once)
    assert np.isnan(rounded(np, np.array([np.nan, 1.0], dtype=np.float32), name)).tolist() == [
        True,
        False,
    ]
    assert rounded(np, x[:0], name).size == 0


def test_an_unknown_precision_is_unsupported(pair):
    with pytest.raises(Unsupported, match="'fp12'"):
        multiply(*pair, "fp12")


def test_a_fault_that_no_lane_can_have_is_refused():
    with pytest.raises(ValueError, match="nonfinite"):
        OutputFault(nonfinite="zero")
    with pytest.raises(ValueError, match="lane"):
        OutputFault(lane=32)
