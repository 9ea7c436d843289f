"""Who meets whom: every pair once, nobody twice in a round, racks first within themselves."""

import itertools
from collections import Counter

import pytest

from rackproof.harness.burns.pairing import shifts, tournament


def rack(count: int, number: int = 0) -> list[str]:
    return [f"rack{number}/gpu{n}" for n in range(count)]


@pytest.mark.parametrize(
    "sizes", [(2,), (3,), (7,), (8,), (72,), (36, 36), (5, 4), (4, 0), (3, 2, 4)]
)
def test_every_pair_meets_once_and_nobody_has_two_partners(sizes):
    parts = [rack(size, n) for n, size in enumerate(sizes)]
    rounds = tournament(parts)
    met = Counter(frozenset(pair) for pairs in rounds for pair in pairs)
    everybody = list(itertools.chain(*parts))
    assert set(met) == {frozenset(pair) for pair in itertools.combinations(everybody, 2)}
    assert set(met.values()) == {1}
    for pairs in rounds:
        seats = list(itertools.chain(*pairs))
        assert len(seats) == len(set(seats))
        assert pairs


def test_72_gpus_meet_in_71_rounds_and_racks_stay_within_themselves_first():
    assert len(tournament([rack(72)])) == 71
    rounds = tournament([rack(36), rack(36, 1)])
    assert len(rounds) == 71
    across = [{a[:5] != b[:5] for a, b in pairs} for pairs in rounds]
    assert across == [{False}] * 35 + [{True}] * 36


@pytest.mark.parametrize("parts", [[], [[]], [["a"]]])
def test_alone_nobody_meets_anybody(parts):
    assert tournament(parts) == shifts(parts) == []


@pytest.mark.parametrize("sizes", [(2,), (3,), (4,), (5,), (8,), (72,), (36, 36), (5, 4)])
def test_each_shift_is_a_permutation_without_a_fixed_point(sizes):
    parts = [rack(size, n) for n, size in enumerate(sizes)]
    rounds = shifts(parts)
    pairs = [pair for pairs in rounds for pair in pairs]
    assert 1 <= len(rounds) <= 4
    assert len(pairs) == len(set(pairs))
    for each in rounds:
        senders = [a for a, _ in each]
        assert len(senders) == len(set(senders))
        assert all(a != b for a, b in each)
        if len(set(sizes)) == 1:
            assert len(each) == sum(sizes) == len({b for _, b in each})


def test_two_racks_shift_within_themselves_and_then_across():
    rounds = shifts([rack(36), rack(36, 1)])
    assert [{a[:5] != b[:5] for a, b in pairs} for pairs in rounds] == [{False}] * 2 + [{True}] * 2
