"""Philox as the paper has it, whatever numpy makes of it; and places that share nothing."""

import pytest

from rackproof.harness.training import chance

M0, M1 = 0xD2E7470EE14C6C93, 0xCA5A826395121157
W0, W1 = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
ONES = (1 << 64) - 1


def block(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x64-10 of the paper (doi:10.1145/2063384.2063405), in plain integers."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        low, high = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (high >> 64) ^ c1 ^ k0, high & ONES, (low >> 64) ^ c3 ^ k1, low & ONES
        k0, k1 = (k0 + W0) & ONES, (k1 + W1) & ONES
    return [c0, c1, c2, c3]


def test_the_yardstick_gives_the_published_answer():
    # kat_vectors of Random123: philox4x64 10 rounds, counter and key all zero
    assert block([0] * 4, [0] * 2) == [
        0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B,
    ]  # fmt: skip


@pytest.mark.parametrize("seed", [0, 7, -1, (1 << 63) + 5])
def test_words_are_those_of_the_paper(seed):
    drawn = chance.words(chance.DROPOUT, seed, (3, 5, 1 << 40), 10)
    key = [seed % (1 << 64), chance.DROPOUT]
    blocks = [block([number, 3, 5, 1 << 40], key) for number in (1, 2, 3)]  # numpy counts up first
    assert [int(word) for word in drawn] == [word for one in blocks for word in one][:10]


def test_no_two_places_purposes_or_seeds_share_a_word():
    places = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)]
    drawn = [
        int(word)
        for purpose in chance.PURPOSES.values()
        for seed in (0, 1, 2)
        for place in places
        for word in chance.words(purpose, seed, place, 100)
    ]
    assert len(set(drawn)) == len(drawn) == 4 * 3 * 5 * 100


def test_halves_are_the_words_cut_in_four_the_lowest_first():
    place = (1, 2, 3)
    (word,) = chance.words(chance.ORDER, 9, place, 1)
    cut = [int(word) >> shift & 0xFFFF for shift in (0, 16, 32, 48)]
    assert chance.halves(chance.ORDER, 9, place, 4).tolist() == cut
    assert chance.halves(chance.ORDER, 9, place, 3).tolist() == cut[:3]


def test_fractions_lie_in_the_unit_interval():
    drawn = chance.fractions(chance.WEIGHTS, 3, (0, 0, 0), 10_000)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.02
