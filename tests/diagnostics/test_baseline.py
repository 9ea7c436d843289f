"""The rack as its own reference: one-sided, robust, and only from eight like GPUs on."""

import math
import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.diagnostics.baseline import baseline


def rates(bed, values):
    gpus = [f"rack0/tray{n // 4:02d}/gpu{n % 4}" for n in range(len(values))]
    runs = {("gemm.fp32", g, "gemm.fp32.rate"): [v] for g, v in zip(gpus, values, strict=True)}
    trays, width = -(-len(values) // 4), min(4, len(values))
    judgement = bed(trays=trays, gpus=width, runs=runs).judge()
    return [str(c.verdict) for c in judgement.checks if c.metric == "gemm.fp32.rate"]


def test_fewer_than_eight_have_no_baseline():
    assert baseline([60.0] * 7) is None
    assert baseline([]) is None
    found = baseline([60.0] * 8)
    assert found is not None
    assert found.count == 8


def test_the_margin_is_five_percent_six_sigma_or_seven_percent():
    assert baseline([100.0] * 8).low == pytest.approx(95.0)
    # MAD 0.65: 6 x 1.4826 x 0.65 = 5.78, between the two
    spread = [100 - 0.65, 100 + 0.65] * 4 + [100.0]
    assert baseline(spread).low == pytest.approx(100 - 6 * 1.4826 * 0.65, rel=1e-9)
    assert baseline([90.0, 110.0] * 4 + [100.0]).low == pytest.approx(93.0)


def test_the_outlier_itself_does_not_move_the_bound():
    healthy = baseline([100.0 + n / 10 for n in range(72)])
    with_one = baseline([100.0 + n / 10 for n in range(71)] + [1.0])
    assert with_one.low == pytest.approx(healthy.low, rel=0.01)


@given(st.lists(st.floats(1.0, 1e6), min_size=8, max_size=80))
def test_the_bounds_enclose_the_median_and_never_differ_by_more_than_seven_percent(values):
    found = baseline(values)
    if found is None:  # the median is among the slow ones, and then it says nothing
        median = statistics.median(values)
        assert sum(v > 1.07 * median for v in values) > len(values) / 8
        assert min(values) >= 0.93 * median
        return
    assert found.low < found.median < found.high
    assert found.low >= found.median * 0.93 - 1e-9 * found.median
    assert found.low <= found.median * 0.95 + 1e-9 * found.median


def test_a_median_among_the_slow_is_no_reference():
    assert baseline([50.0] * 5 + [100.0] * 3) is None
    assert baseline([90.0] * 48 + [100.0] * 24) is None
    assert baseline([100.0] * 7 + [112.0]).median == 100.0, "one fast GPU spoils nothing"
    assert baseline([50.0] * 3 + [100.0] * 5).low == pytest.approx(95.0)


@given(st.lists(st.floats(1.0, 1e3), min_size=8, max_size=30), st.integers(1, 5))
def test_what_is_no_number_changes_nothing(values, bad):
    noise = [math.nan, math.inf, -math.inf] * bad
    assert baseline([*values, *noise]) == baseline(values)
    assert baseline([*values[:7], *noise]) is None


def test_a_median_of_zero_or_below_has_sane_bounds():
    assert baseline([0.0] * 9).low == 0.0
    below = baseline([-10.0] * 9)
    assert below.low < -10.0 < below.high


def test_low_fails_and_high_does_not(bed):
    assert rates(bed, [60.0] * 7 + [56.0]) == ["PASS"] * 7 + ["FAIL"]
    assert rates(bed, [60.0] * 7 + [57.1]) == ["PASS"] * 8
    assert rates(bed, [60.0] * 7 + [90.0]) == ["PASS"] * 8


def test_seven_gpus_are_too_few_to_say(bed):
    assert rates(bed, [60.0] * 3 + [30.0]) == ["UNKNOWN"] * 4


def test_nan_is_no_peer_and_fails_for_itself(bed):
    assert rates(bed, [math.nan] + [60.0] * 11) == ["FAIL"] + ["PASS"] * 11
    # of eight GPUs one gave no number: the seven others still have each other
    assert rates(bed, [math.nan] + [60.0] * 7) == ["FAIL"] + ["PASS"] * 7
    assert rates(bed, [math.nan] * 3 + [60.0] * 5) == ["UNKNOWN"] * 8


def test_half_the_rack_slow(bed):
    third = rates(bed, [54.0] * 8 + [60.0] * 16)
    assert third == ["FAIL"] * 8 + ["PASS"] * 16
    # with half of them at 0.8 the median lies between, and the cap of 7 % still finds them
    half = rates(bed, [48.0] * 12 + [60.0] * 12)
    assert half == ["FAIL"] * 12 + ["PASS"] * 12


def test_the_published_spread_of_healthy_gpus_passes(bed):
    draw = random.Random(4)
    values = [60.0 * (1 + draw.uniform(-0.0235, 0.0235)) for _ in range(72)]
    assert set(rates(bed, values)) == {"PASS"}


def test_the_bound_says_where_it_comes_from(bed):
    key = ("gemm.fp32", "rack0/tray00/gpu1", "gemm.fp32.rate")
    judgement = bed(runs={key: [50.0, 50.0, 50.0]}).judge()
    (check,) = [c for c in judgement.checks if c.verdict == "FAIL"]
    assert check.decided_by == "median"
    assert check.as_json()["limit"]["source"].startswith("median 60 of 8 like GPUs")
    assert check.as_json()["limit"]["low"] == pytest.approx(57.0)
    assert "high" not in check.as_json()["limit"]
