"""The mean is the sum in the given order, and nothing else."""

import numpy as np
import pytest

from rackproof.harness.errors import DrillError
from rackproof.harness.training.reduce import mean


def gradients(count: int = 8, size: int = 999) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    return [draw.standard_normal(size).astype(np.float32) for _ in range(count)]


def test_it_adds_up_from_first_to_last():
    given = gradients()
    total = np.zeros(999, np.float32)
    for each in given:
        total = total + each
    assert mean(given).tobytes() == (total * np.float32(1 / 8)).tobytes()


def test_the_order_is_part_of_the_result():
    given = gradients()
    assert mean(given).tobytes() != mean(given[::-1]).tobytes()
    assert np.allclose(mean(given), mean(given[::-1]), atol=1e-6)


def test_no_gradient_is_changed_and_the_place_is_used():
    given, into = gradients(), np.full(999, np.float32(np.nan))
    kept = [each.copy() for each in given]
    assert mean(given, into) is into
    assert into.tobytes() == mean(given).tobytes()
    assert all((each == before).all() for each, before in zip(given, kept, strict=True))


def test_one_gradient_is_its_own_mean():
    (only,) = gradients(1)
    assert mean([only]).tobytes() == only.tobytes()


def test_none_and_a_place_that_is_a_gradient_are_refused():
    given = gradients(2)
    with pytest.raises(DrillError):
        mean([])
    with pytest.raises(DrillError):
        mean(given, given[1])
