"""gemm.*: products are checked by an oracle of their own, and what was seen stays seen."""

import numpy as np
import pytest

from rackproof.harness.burns.gemm import ROUNDS, SECONDS
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
    assert outcome.values["gemm.fp32.checked"] == ROUNDS["quick"]
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
    assert bench.burn("gemm.fp32").values["gemm.fp32.wrong"] == ROUNDS["quick"]


def test_repeats_that_differ_are_wrong(bench):
    bench.device.plane.repeats_differ = 1
    assert bench.burn("gemm.fp32").values["gemm.fp32.wrong"] == ROUNDS["quick"]


def test_data_is_fresh_in_each_round_and_attempt(bench):
    seen = []
    true = bench.device.plane.multiply

    def keep(a, b, precision, seconds):
        seen.append(np.asarray(a).tobytes())
        return true(a, b, precision, seconds)

    bench.device.plane.multiply = keep
    bench.burn("gemm.fp32", attempt=1)
    bench.burn("gemm.fp32", attempt=2)
    assert len(set(seen)) == 2 * ROUNDS["quick"]
    bench.burn("gemm.fp32", attempt=2)
    assert len(set(seen)) == 2 * ROUNDS["quick"]


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
