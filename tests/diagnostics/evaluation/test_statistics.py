"""Intervals and calibration against published and hand-worked values."""

import numpy as np
import pytest

from rackproof.diagnostics.evaluation.statistics import brier, paired, reliability, wilson


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [  # R. G. Newcombe, Stat. Med. 17 (1998) 857, table I, method 3
        pytest.param(81, 263, 0.2553, 0.3662, id="81-of-263"),
        pytest.param(15, 148, 0.0624, 0.1605, id="15-of-148"),
        pytest.param(0, 20, 0.0, 0.1611, id="0-of-20"),
        pytest.param(1, 29, 0.0061, 0.1718, id="1-of-29"),
        pytest.param(29, 29, 0.8830, 1.0, id="all-of-29"),
        pytest.param(0, 0, 0.0, 1.0, id="nothing"),
    ],
)
def test_wilson_gives_the_published_interval(hits, of, low, high):
    assert wilson(hits, of) == pytest.approx((low, high), abs=6e-5)


@pytest.mark.parametrize(("hits", "of"), [(-1, 3), (4, 3), (1, 0)])
def test_wilson_refuses_what_is_no_share(hits, of):
    with pytest.raises(ValueError, match="no share"):
        wilson(hits, of)


def test_wilson_covers_as_often_as_it_says():
    rng = np.random.default_rng(5)
    inside = [low <= 0.1 <= high for low, high in
              (wilson(int(n), 60) for n in rng.binomial(60, 0.1, size=2000))]  # fmt: skip
    assert 0.93 < np.mean(inside) < 0.98


def test_paired_agrees_with_the_normal_interval_where_there_are_many():
    rng = np.random.default_rng(6)
    noise = rng.normal(0.0, 30.0, size=3000)  # common to both: what pairing takes out
    first, second = noise + rng.normal(1.0, 2.0, 3000), noise + rng.normal(1.5, 2.0, 3000)
    found = paired(first, second, seed=1)
    half = 1.96 * (first - second).std(ddof=1) / np.sqrt(3000)
    assert found.mean == pytest.approx((first - second).mean())
    assert (found.low, found.high) == pytest.approx(
        (found.mean - half, found.mean + half), abs=0.1 * half
    )
    assert found.excludes_tie
    assert paired(first, second, seed=1) == found


@pytest.mark.parametrize(
    ("first", "second", "excluded"),
    [
        ([1.0, 1.0, 1.0], [2.0, 2.0, 2.0], True),
        ([1.0, 3.0, 1.0, 3.0], [2.0, 2.0, 2.0, 2.0], False),
        ([2.0, 2.0], [2.0, 2.0], False),
    ],
    ids=["always-less", "as-often-more", "equal"],
)
def test_a_tie_is_excluded_only_where_one_is_surely_better(first, second, excluded):
    assert paired(np.array(first), np.array(second), seed=3).excludes_tie is excluded


@pytest.mark.parametrize("pair", [([], []), ([1.0], [1.0, 2.0])], ids=["none", "unequal"])
def test_paired_refuses_what_is_no_pair(pair):
    with pytest.raises(ValueError, match="one length"):
        paired(np.array(pair[0]), np.array(pair[1]), seed=1)


@pytest.mark.parametrize(
    ("beliefs", "score"),
    [
        ([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]], 0.0),
        ([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], 2.0),
        ([[1 / 3, 1 / 3, 1 / 3]] * 2, 2 / 3),
        ([[0.8, 0.2, 0.0], [0.0, 0.5, 0.5]], (0.08 + 0.5) / 2),
    ],
    ids=["sure-and-right", "sure-and-wrong", "uniform", "by-hand"],
)
def test_brier(beliefs, score):
    assert brier(np.array(beliefs), np.array([0, 2])) == pytest.approx(score)


def test_reliability_bins_hold_everything_once():
    sure = np.array([0.05, 0.95, 1.0, 0.91, 0.5])
    right = np.array([False, True, True, False, True])
    found = reliability(sure, right)
    assert [(b.low, b.count) for b in found] == [(0.0, 1), (0.5, 1), (0.9, 3)]
    assert found[-1].hits == 2
    assert found[-1].sure == pytest.approx((0.95 + 1.0 + 0.91) / 3)
