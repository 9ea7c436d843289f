"""gemm.*: products are checked by an oracle of their own, and what was seen stays seen."""

import numpy as np
import pytest

from rackproof.harness.burns.base import Settings
from rackproof.harness.burns.gemm import PRECISIONS, SECONDS, SHAPES, trains
from rackproof.harness.errors import Lost, TimedOut
from rackproof.harness.model import Why


def element(value):
    """Change one element of the first product."""

    def spoil(number, c):
        if number == 0:
            c = c.copy()
            c[3, 5] = value(c[3, 5])
        return c

    return spoil


def test_healthy_products_are_right_and_their_rate_is_the_devices(bench):
    bench.device.telemetry.readings |= {"throttle.thermal": 0, "throttle.power_brake": 0,
                                        "thermal.margin": 30.0}  # fmt: skip
    outcome = bench.burn("gemm.fp32")
    assert outcome.gaps == {}
    assert outcome.values["gemm.fp32.wrong"] == 0
    assert outcome.values["gemm.fp32.checked"] == trains("quick")
    assert outcome.values["gemm.fp32.residual"] < 1.0
    assert 0 < outcome.values["gemm.fp32.detectable"] < 1.0
    rate = 2.0 * 96**3 * 1000 / SECONDS["quick"] / 1e12
    assert outcome.values["gemm.fp32.rate"] == pytest.approx(rate)


@pytest.mark.parametrize(
    "value",
    [lambda _: np.nan, lambda _: np.inf, lambda v: v + 2 * abs(v) + 1e20, lambda _: 1e30],
    ids=["nan", "inf", "large", "huge"],
)
def test_one_wrong_element_is_one_wrong_product(bench, value):
    bench.device.plane.spoil = element(value)
    assert bench.burn("gemm.fp32").values["gemm.fp32.wrong"] == 1


def test_a_product_of_zeros_is_wrong(bench):
    bench.device.plane.spoil = lambda _n, c: np.zeros_like(c)
    assert bench.burn("gemm.fp32").values["gemm.fp32.wrong"] == trains("quick")


def test_repeats_that_differ_are_wrong(bench):
    bench.device.plane.repeats_differ = 1
    assert bench.burn("gemm.fp32").values["gemm.fp32.wrong"] == trains("quick")


def test_data_is_fresh_in_each_round_and_attempt(bench):
    seen = []
    true = bench.device.plane.multiply

    def keep(a, b, precision, seconds, watch):
        seen.append(np.asarray(a).tobytes())
        return true(a, b, precision, seconds, watch)

    bench.device.plane.multiply = keep
    bench.burn("gemm.fp32", attempt=1)
    bench.burn("gemm.fp32", attempt=2)
    assert len(set(seen)) == 2 * trains("quick") - 1  # the first is for the comparison of GPUs
    bench.burn("gemm.fp32", attempt=2)
    assert len(set(seen)) == 2 * trains("quick") - 1


def test_what_was_seen_before_an_error_stays_seen(bench):
    bench.device.plane.spoil = element(lambda _: np.nan)
    for error, word in ((TimedOut("slow"), Why.TIMED_OUT), (ValueError(), Why.CRASHED)):
        bench.device.plane.log.clear()
        bench.device.plane.at = {1: error}
        outcome = bench.burn("gemm.fp32")
        assert outcome.values["gemm.fp32.wrong"] == 1
        assert outcome.gaps["gemm.fp32.rate"].why is word
    bench.device.plane.log.clear()
    bench.device.plane.spoil = lambda _n, c: c
    assert "gemm.fp32.wrong" not in bench.burn("gemm.fp32").values


def test_a_gpu_lost_under_load_is_lost(bench):
    bench.device.plane.at = {2: Lost("gone")}
    outcome = bench.burn("gemm.fp32")
    assert outcome.values["gpu.present"] == 0
    assert outcome.gaps["gemm.fp32.checked"].why is Why.LOST


def test_products_that_took_no_time_have_no_rate(bench):
    bench.device.plane.seconds = 0.0
    outcome = bench.burn("gemm.fp32")
    assert "gemm.fp32.rate" not in outcome.values
    assert "no time" in outcome.gaps["gemm.fp32.rate"].reason
    assert outcome.values["gemm.fp32.wrong"] == 0


def test_what_is_owed_and_not_supported_is_missing_and_what_is_noted_is_not(bench):
    outcome = bench.burn("gemm.fp32")
    assert outcome.gaps["throttle.thermal"].why is Why.NOT_SUPPORTED
    assert "power.average" not in outcome.gaps


def test_the_element_is_named(bench):
    bench.device.plane.spoil = element(lambda v: -2 * v)
    named = bench.burn("gemm.fp32").values["gemm.fp32.element"]
    assert named.startswith("row 3 column 5: ")
    assert len(named.split(";")) == 1


def test_the_digest_is_the_same_in_every_attempt_and_another_for_a_wrong_product(bench):
    first = bench.burn("gemm.fp32").values["gemm.fp32.digest"]
    assert bench.burn("gemm.fp32", attempt=2).values["gemm.fp32.digest"] == first
    bench.device.plane.log.clear()
    bench.device.plane.spoil = element(lambda v: np.nextafter(v, np.float32(np.inf)))
    outcome = bench.burn("gemm.fp32")
    assert outcome.values["gemm.fp32.wrong"] == 0  # too small for the oracle
    assert outcome.values["gemm.fp32.digest"] != first


def test_what_shows_under_load_alone_is_read_under_load_and_the_worst_is_kept(bench):
    """A flag that is down again when the products end, and a margin that was short on the way."""
    readings = bench.device.telemetry.readings
    readings |= {"throttle.thermal": 0, "throttle.power_brake": 0, "thermal.margin": 30.0}
    during = iter([(1, 2.0), (0, 30.0), (0, 30.0)])

    def hold(watch):
        readings["throttle.thermal"], readings["thermal.margin"] = next(during)
        watch()
        readings["throttle.thermal"], readings["thermal.margin"] = 0, 30.0

    bench.device.plane.while_loaded = hold
    values = bench.burn("gemm.fp32").values
    assert values["throttle.thermal"] == 1
    assert values["thermal.margin"] == 2.0


@pytest.mark.parametrize("precision", PRECISIONS)
def test_acceptance_multiplies_every_shape_and_the_rate_is_that_of_the_first(bench, precision):
    shapes = []
    true = bench.device.plane.multiply

    def keep(a, b, name, seconds, watch):
        shapes.append((*a.shape, b.shape[1]))
        assert name == precision
        found = true(a, b, name, seconds, watch)
        slower = 1 if len(set(shapes)) == 1 else 3
        return type(found)(found.c, found.seconds * slower, found.flops, found.repeats_differ)

    bench.device.plane.multiply = keep
    outcome = bench.burn(f"gemm.{precision}", settings=Settings("acceptance", 3))
    order = bench.device.plane.order(precision)
    assert set(shapes) == {tuple(round(order * f) for f in shape) for shape in SHAPES}
    assert outcome.values[f"gemm.{precision}.checked"] == trains("acceptance") == len(shapes)
    assert outcome.values[f"gemm.{precision}.wrong"] == 0
    rate = 2.0 * 96**3 * 1000 / SECONDS["acceptance"] / 1e12
    assert outcome.values[f"gemm.{precision}.rate"] == pytest.approx(rate)
