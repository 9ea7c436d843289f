"""Freivalds' check: no alarm on healthy products, errors of known size found, NaN and Inf counted.

A smaller run of the measurement whose figures stand in the oracle's docstring.
"""

import numpy as np
import pytest

from rackproof.harness.burns.oracle import detectable, digest, freivalds, locate, operands
from rackproof.harness.devices.precisions import PRECISIONS, precision, rounded

N = 128


def product(key, name="fp32", n=N):
    given = operands(np, n, key, name)
    return given, given.a @ given.b


def share_found(relative, keys):
    found = 0
    for key in keys:
        given, c = product(key)
        i, j = np.random.default_rng(key).integers(N, size=2)
        c[i, j] *= np.float32(1 + relative)
        found += freivalds(np, given, c, key).wrong
    return found / len(keys)


@pytest.mark.parametrize("name", PRECISIONS)
def test_healthy_products_raise_no_alarm(name):
    worst = 0.0
    for key in range(100):
        given, c = product(key, name)
        residual = freivalds(np, given, c, key)
        assert not residual.wrong
        worst = max(worst, residual.ratio)
    assert worst < 0.5
    # and the check is no tautology: in fp32 rounding is seen
    assert worst > 0.05 or name != "fp32"


def test_a_healthy_product_of_no_round_shape_raises_none():
    full = operands(np, 70, 1)
    given = type(full)(full.a[:33], full.b[:, :7].copy(), "fp32")
    residual = freivalds(np, given, given.a @ given.b, 2)
    assert 0 < residual.ratio < 0.5
    with pytest.raises(ValueError, match="no shape"):
        freivalds(np, given, full.a, 2)


def test_more_rows_than_one_block():
    full = operands(np, 1300, 1)
    given = type(full)(full.a, full.b[:, :40].copy(), "fp32")
    c = given.a @ given.b
    assert not freivalds(np, given, c, 1).wrong
    c[1234, 5] *= 2
    residual = freivalds(np, given, c, 1)
    assert (residual.wrong, residual.row, residual.rows_wrong) == (True, 1234, 1)


@pytest.mark.parametrize(("relative", "least"), [(0.1, 0.99), (0.06, 0.99), (2.0**-8, 0.97)])
def test_single_element_errors_are_found(relative, least):
    assert share_found(relative, range(300)) >= least


def test_an_error_below_the_bound_is_not_found():
    assert share_found(2.0**-20, range(40)) == 0


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_nan_and_inf_are_counted(value):
    given, c = product(1)
    c[3, 4] = c[5, 6] = value
    residual = freivalds(np, given, c, 1)
    assert residual.nonfinite == 2
    assert residual.wrong


def test_all_zero_is_right_for_zeros_only():
    given, c = product(1)
    assert freivalds(np, given, np.zeros_like(c), 1).rows_wrong == N
    nothing = type(given)(np.zeros_like(given.a), given.b, "fp32")
    assert freivalds(np, nothing, np.zeros_like(c), 1).ratio == 0
    assert freivalds(np, nothing, c, 1).rows_wrong == N


def test_swapped_elements_and_another_products_c_are_wrong():
    given, c = product(1)
    swapped = c.copy()
    swapped[[4, 5]] = swapped[[5, 4]]
    assert freivalds(np, given, swapped, 1).rows_wrong == 2
    assert freivalds(np, given, product(2)[1], 1).rows_wrong == N


def test_locate_names_the_element_and_what_it_should_be():
    given, c = product(1)
    assert locate(np, given, c, 1) == []
    right = float(c[17, 93])
    c[17, 93] *= np.float32(1.1)
    c[17, 12] = np.nan
    nan, wrong = locate(np, given, c, 1)
    assert (nan.row, nan.column) == (17, 12)
    assert (wrong.row, wrong.column) == (17, 93)
    assert wrong.actual == pytest.approx(1.1 * right)
    assert wrong.expected == pytest.approx(right, rel=1e-3)


@pytest.mark.parametrize("name", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", [(64, 256, 128), (256, 64, 128), (128, 128, 128)])
def test_a_single_element_is_located_in_any_row_and_shape(shape, name):
    """Rows differ by 2^30 in size; the columns' check sees the small ones all the same."""
    found = 0
    for key in range(40):
        given = operands(np, shape, key, name)
        c = given.a @ given.b
        row, column = (int(np.random.default_rng(key).integers(n)) for n in c.shape)
        c[row, column] *= np.float32(-2)
        places = [(e.row, e.column) for e in locate(np, given, c, key)]
        assert places in ([], [(row, column)])  # an element that is small in its row can hide
        found += bool(places)
    assert found >= 38


def test_wrong_elements_beyond_the_crossings_are_cut_and_the_worst_come_first():
    given, c = product(2)
    c[:, 7] = np.inf
    c[3] *= np.float32(1.5)
    found = locate(np, given, c, 2)
    assert 0 < len(found) <= 64
    assert found[0].column == 7


def test_equal_products_have_one_digest_and_a_changed_bit_another():
    given, c = product(3)
    same = digest(np, given.a @ given.b)
    assert digest(np, c) == same
    assert len(same) == 16
    moved = c.copy()
    moved[[4, 5]] = moved[[5, 4]]
    flipped = c.copy()
    flipped.view(np.uint32)[100, 100] ^= 1
    assert len({same, digest(np, moved), digest(np, flipped), digest(np, c.T)}) == 4


def test_operands_of_a_shape_have_it_and_their_product_raises_no_alarm():
    given = operands(np, (40, 300, 70), 9)
    assert (given.a.shape, given.b.shape) == ((40, 300), (300, 70))
    assert not freivalds(np, given, given.a @ given.b, 9).wrong


def test_what_is_called_detectable_is_detected():
    """On the elements that are at least the row's median: their error of that size is seen."""
    for key in range(40):
        given, c = product(key)
        size = detectable(np, given, c)
        i = key % N
        j = int(np.argsort(np.abs(c[i]))[N // 2 + 8])
        c[i, j] += np.copysign(3 * size * np.median(np.abs(c[i])), c[i, j])
        assert freivalds(np, given, c, key).wrong
    assert 0 < size < 2.0**-8


@pytest.mark.parametrize("name", PRECISIONS)
def test_operands_fill_their_format_and_nothing_else(name):
    given = operands(np, 256, 5, name)
    form = precision(name)
    for x in (given.a, given.b):
        assert x.dtype == np.float32
        assert np.array_equal(rounded(np, x, name), x)
        exponents = np.frexp(x)[1] - 1
        assert exponents.min() >= form.least_exponent
        assert exponents.max() <= form.greatest_exponent
        assert np.ptp(exponents) >= 5
        assert 0.45 < (x < 0).mean() < 0.55
        last_bit = x.view(np.uint32) >> np.uint32(24 - form.significand) & np.uint32(1)
        assert 0.4 < last_bit.mean() < 0.6


def test_operands_are_fresh_for_each_key_and_the_same_for_the_same():
    one, again, other = operands(np, 64, 5), operands(np, 64, 5), operands(np, 64, 6)
    assert np.array_equal(one.a, again.a)
    assert np.array_equal(one.b, again.b)
    assert not np.array_equal(one.a, other.a)
    assert not np.array_equal(one.a, one.b)
