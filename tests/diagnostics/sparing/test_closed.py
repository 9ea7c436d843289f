"""The closed forms against figures worked out by hand, and against each other."""

import math

import pytest

from rackproof.diagnostics.sparing.closed import (
    binomial_at_most,
    interval,
    poisson_at_most,
    stock_for,
    unavailability,
    usable,
    useful,
)

LLAMA = 1.973e-5  # failures per GPU-hour, arXiv:2407.21783
SHARE = 0.3  # of them last


def test_a_tray_that_fails_and_is_repaired() -> None:
    assert unavailability(1.0, 1.0) == 0.5
    assert unavailability(0.0, 72.0) == 0.0
    assert unavailability(4 * 4.2e-5, 72.0) == pytest.approx(0.01195, abs=1e-5)


@pytest.mark.parametrize(
    ("spare", "share"), [(0, 0.807), (1, 0.981), (2, 0.9988)], ids=["all-18", "17", "16"]
)
def test_a_rack_of_18_trays(spare, share) -> None:
    assert usable(18, spare, 0.0119) == pytest.approx(share, abs=1e-3)


def test_ten_racks_need_all_of_them() -> None:
    assert usable(18, 2, 0.0119) ** 10 == pytest.approx(0.988, abs=5e-4)


@pytest.mark.parametrize("n", [1, 7, 18, 200])
@pytest.mark.parametrize("p", [1e-9, 0.02, 0.5, 0.97])
def test_binomial_is_the_sum_of_exact_terms(n, p) -> None:
    terms = [math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    for k in (0, n // 2, n - 1):
        assert binomial_at_most(k, n, p) == pytest.approx(math.fsum(terms[: k + 1]), abs=1e-9)


def test_the_ends_of_the_distributions() -> None:
    assert binomial_at_most(-1, 5, 0.5) == 0.0
    assert binomial_at_most(5, 5, 0.5) == 1.0
    assert binomial_at_most(0, 5, 0.0) == 1.0
    assert binomial_at_most(4, 5, 1.0) == 0.0
    assert poisson_at_most(-1, 2.0) == 0.0
    assert poisson_at_most(0, 0.0) == 1.0
    assert poisson_at_most(3, 2.0) == pytest.approx(math.exp(-2) * (1 + 2 + 2 + 8 / 6))


@pytest.mark.parametrize(
    ("racks", "days", "trays"),
    [(1, 30, 2), (8, 30, 7), (100, 7, 14)],
    ids=["1-rack-30-d", "8-racks-30-d", "100-racks-7-d"],
)
def test_stock_without_replenishment(racks, days, trays) -> None:
    mean = LLAMA * SHARE * 72 * racks * days * 24
    assert stock_for(mean, 0.99) == trays
    assert poisson_at_most(trays, mean) >= 0.99 > poisson_at_most(trays - 1, mean)


@pytest.mark.parametrize("mean", [0.0, 1e-6, 0.3, 50.0, 20_000.0])
def test_stock_is_the_fewest_that_suffices(mean) -> None:
    stock = stock_for(mean, 0.95)
    assert poisson_at_most(stock, mean) >= 0.95
    assert stock == 0 or poisson_at_most(stock - 1, mean) < 0.95


@pytest.mark.parametrize("confidence", [0.0, 1.0, 1.5, -1.0])
def test_a_confidence_that_is_none_is_refused(confidence) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        stock_for(1.0, confidence)


def useful_small(gap, write, begin, failures) -> float:
    """Return useful time where losses are small, which is too low: w/Δt and Λ(Δt/2 + u0) add up."""
    return 1.0 - write / gap - failures * (gap / 2.0 + begin)


def test_useful_time_of_98k_gpus() -> None:
    # 18 minutes between failures (FT-HSDP, arXiv:2602.00277); 20 s and 110 s are chosen
    failures, write, begin = 60 / 18, 20 / 3600, 110 / 3600
    gap = interval(write, failures)
    assert gap * 60 == pytest.approx(3.46, abs=0.01)
    assert useful(gap, write, begin, failures) == pytest.approx(0.744, abs=5e-4)
    assert useful_small(gap, write, begin, failures) == pytest.approx(0.706, abs=5e-4)


def test_useful_time_at_its_ends() -> None:
    assert useful(1.0, 0.01, 0.1, 0.0) == pytest.approx(1 / 1.01)
    assert useful(1.0, 0.01, 0.1, 1e6) == 0.0
    few = useful(1.0, 0.01, 0.1, 1e-5), useful_small(1.0, 0.01, 0.1, 1e-5)
    assert few[0] == pytest.approx(few[1], abs=2e-4)


def test_youngs_interval_is_near_the_best() -> None:
    failures, write, begin = 0.2, 0.01, 0.05
    best = max(useful(gap / 200, write, begin, failures) for gap in range(1, 400))
    assert useful(interval(write, failures), write, begin, failures) > 0.995 * best
