"""Re-slotting: the slow get less, the bits do not care, and noise moves nothing."""

import pytest

from rackproof.harness.training.shares import PATIENCE, Shares, blocks, even


def learned(paces, steps=PATIENCE, shards=12):
    """Return shares that saw each member (compute, link) for some steps, and what moved."""
    shares, names, moved, slow = Shares(shards), list(paces), [], []
    for _ in range(steps):
        shares.of(names)
        for name, (compute, link) in paces.items():
            shares.learn(name, compute, link)
        slow += shares.slow(names)
        moved.append(shares.improve(names))
    return shares, moved, slow


def test_shares_are_even_and_blocks_are_in_order():
    assert even(["a", "b", "c"], 8) == {"a": 3, "b": 3, "c": 2}
    assert blocks({"a": 1, "b": 2}, ["b", "a"]) == {"b": [0, 1], "a": [2]}


def test_a_slow_member_gets_fewer_and_is_told_once():
    shares, moved, slow = learned({"a": (0.01, 0.0), "b": (0.01, 0.0), "c": (0.08, 0.0)}, 9)
    counts = shares.of(["a", "b", "c"])
    assert sum(counts.values()) == 12
    assert counts["c"] < counts["a"]
    assert counts["c"] >= 1
    assert moved.count(True) == 1
    assert [(name, why) for name, why, _ in slow] == [("c", "compute")]


def test_a_slow_link_is_not_a_slow_gpu():
    _, _, slow = learned({"a": (0.01, 0.0), "b": (0.01, 0.0), "c": (0.01, 0.3)})
    assert [(name, why) for name, why, _ in slow] == [("c", "link")]


@pytest.mark.parametrize("factor", [1.0, 1.3, 0.8])
def test_what_is_about_equal_stays(factor):
    _, moved, slow = learned({"a": (0.01, 0.0), "b": (0.01 * factor, 0.0)}, 20)
    assert not any(moved)
    assert not slow


def test_one_slow_step_is_noise():
    shares, names = Shares(8), ["a", "b"]
    for step in range(20):
        shares.of(names)
        shares.learn("a", 0.01, 0.0)
        shares.learn("b", 0.2 if step == 9 else 0.01, 0.0)
        assert not shares.improve(names) or step != 9
    assert shares.of(names) == {"a": 4, "b": 4}


def test_whoever_comes_new_is_not_prejudged():
    shares, *_ = learned({"a": (0.01, 0.0), "b": (0.2, 0.0)}, 9)
    shares.forget("b")
    assert shares.of(["a", "c"]) == {"a": 6, "c": 6}
