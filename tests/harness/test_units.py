"""Units are converted within a dimension and refused across dimensions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.harness.errors import SpecError
from rackproof.harness.metrics import metrics
from rackproof.harness.units import ABSOLUTE_ZERO, MOST, SIGNED, UNITS, convert, possible


@pytest.mark.parametrize(
    ("value", "unit", "to", "expected"),
    [
        (1, "GB/s", "MB/s", 1000),
        (1, "GiB/s", "GB/s", 1.073741824),
        (53125, "MB/s", "GB/s", 53.125),
        (700_000, "mW", "W", 700),
        (5, "%", "ratio", 0.05),
        (1, "GiB", "MiB", 1024),
        (1980, "MHz", "GHz", 1.98),
        (-8, "C", "C", -8),
    ],
)
def test_a_value_is_converted_within_its_dimension(
    value: float, unit: str, to: str, expected: float
) -> None:
    assert convert(value, unit, to) == pytest.approx(expected)


def test_bits_are_not_bytes() -> None:
    with pytest.raises(SpecError, match="cannot be compared"):
        convert(400, "Gb/s", "GB/s")


def test_counts_of_different_things_are_not_compared() -> None:
    with pytest.raises(SpecError, match="cannot be compared"):
        convert(1, "rows", "pages")


def test_an_unknown_unit_names_the_nearest() -> None:
    with pytest.raises(SpecError, match="GB/s"):
        convert(1, "GBs", "GB/s")
    with pytest.raises(SpecError, match="unknown unit"):
        convert(1, "GB/s", "parsec")


@given(
    st.floats(allow_nan=False, allow_infinity=False, width=32),
    st.sampled_from(sorted(UNITS)),
    st.sampled_from(sorted(UNITS)),
)
def test_there_and_back_is_the_same_value(value: float, unit: str, to: str) -> None:
    if UNITS[unit][0] != UNITS[to][0]:
        with pytest.raises(SpecError):
            convert(value, unit, to)
    else:
        assert convert(convert(value, unit, to), to, unit) == pytest.approx(value, rel=1e-12)


def test_every_metric_has_a_unit_that_is_known() -> None:
    assert {m.unit for m in metrics().values()} <= UNITS.keys()


@pytest.mark.parametrize("unit", sorted(UNITS))
def test_what_a_reading_can_be(unit: str) -> None:
    dimension, factor = UNITS[unit]
    least = ABSOLUTE_ZERO / factor if dimension == "temperature" else 0.0
    most = MOST.get(dimension, 1e15) / factor
    assert all(possible(value, unit) for value in (least, least + 1e-3, 0.99 * most, "a text"))
    assert possible(1.01 * most, unit) == (dimension not in MOST)
    assert not any(possible(float(word), unit) for word in ("nan", "inf", "-inf"))
    assert possible(least - 1.0, unit) == (dimension in SIGNED)
