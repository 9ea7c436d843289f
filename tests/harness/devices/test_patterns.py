"""Patterns against their formula, and what copies make of them."""

import random

import numpy as np
import pytest

from rackproof.harness.devices import patterns
from rackproof.harness.devices.protocol import Pattern

ALL = 2**64 - 1
SAMPLE = [
    Pattern("constant", 0),
    Pattern("constant", 0, invert=True),
    Pattern("constant", ALL),
    Pattern("constant", 0x5555_5555_5555_5555),
    Pattern("address"),
    Pattern("address", invert=True),
    Pattern("address", 0x1234_5678),
    Pattern("address", ALL),
    Pattern("random", 1),
    Pattern("random", 2),
    Pattern("random", 2, invert=True),
    Pattern("random", ALL),
    *(Pattern("modulo", seed, invert) for seed in (0, 7, 20 * 5 + 7) for invert in (False, True)),
    *(Pattern(kind, 33, False, 8 * 1003) for kind in patterns.KINDS),  # noqa: FBT003
    Pattern("address", 8, True, -4096),  # noqa: FBT003
]


def test_random_is_the_published_splitmix64():
    # The first outputs of the reference implementation for the state 1234567.
    state, expected = 1234567, [6457827717110365317, 3203168211198807973, 9817491932198370423]
    outputs = [patterns.mix((state + (i + 1) * patterns.GOLDEN) & ALL) for i in range(3)]
    assert outputs == expected
    assert patterns.word(Pattern("random", 0), 8 * state) == expected[0]


def test_unmix_undoes_mix():
    for z in [0, 1, ALL, 1 << 63, *(random.Random(1).getrandbits(64) for _ in range(200))]:
        assert patterns.unmix(patterns.mix(z)) == z
        assert patterns.mix(patterns.unmix(z)) == z


@pytest.mark.parametrize("pattern", SAMPLE, ids=str)
@pytest.mark.parametrize("lo", [0, 8, 2**32 - 64, 288 * 2**30])
def test_words_equal_word_by_word(pattern, lo):
    dense = patterns.words(pattern, lo, lo + 512)
    assert dense.dtype == np.uint64
    assert [int(w) for w in dense] == [patterns.word(pattern, a) for a in range(lo, lo + 512, 8)]


def test_invert_flips_every_bit():
    for kind in patterns.KINDS:
        plain = patterns.words(Pattern(kind, 77), 0, 800)
        assert np.all(plain ^ patterns.words(Pattern(kind, 77, invert=True), 0, 800) == ALL)


@pytest.mark.parametrize(("lo", "hi"), [(4, 8), (0, 12), (16, 8), (-8, 8)])
def test_a_bad_range_is_refused(lo, hi):
    with pytest.raises(ValueError, match="no range of 8-byte words"):
        patterns.words(Pattern("constant"), lo, hi)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'stripes'"):
        patterns.words(Pattern("stripes"), 0, 8)


def test_a_pattern_that_begins_within_a_word_is_refused():
    with pytest.raises(ValueError, match="begins at a word"):
        patterns.check(Pattern("random", origin=4))


def test_every_20th_word_is_the_others_inverse():
    for seed in (3, 20 * 77 + 19):
        dense = patterns.words(Pattern("modulo", seed), 0, 8 * 100)
        every = np.arange(100) % 20 == seed % 20
        assert len(set(dense[every].tolist())) == len(set(dense[~every].tolist())) == 1
        assert int(dense[every][0]) ^ int(dense[~every][0]) == ALL
    keys = {patterns.word(Pattern("modulo", 20 * key), 0) for key in range(50)}
    assert len(keys) == 50


@pytest.mark.parametrize("pattern", SAMPLE, ids=str)
@pytest.mark.parametrize("by", [0, 8, 24 * 8, 2**37, -8 * 77])
def test_a_copy_holds_what_was_copied(pattern, by):
    lo = 8 * 1000
    copied = patterns.moved(pattern, by)
    same = patterns.words(pattern, lo, lo + 800)
    assert np.array_equal(patterns.words(copied, lo + by, lo + by + 800), same)
    assert pattern.kind == "address" or copied.origin == 0
    assert patterns.moved(copied, -by) == patterns.moved(pattern, 0)


@pytest.mark.parametrize("pattern", SAMPLE, ids=str)
def test_an_origin_is_a_shift(pattern):
    shifted = Pattern(pattern.kind, pattern.seed, pattern.invert, pattern.origin + 4096)
    assert np.array_equal(
        patterns.words(shifted, 8192, 9000), patterns.words(pattern, 4096, 9000 - 4096)
    )


@pytest.mark.parametrize(
    ("to", "lo", "hi"), [(8, 0, 16), (0, 8, 24), (16, 0, 4), (88, 0, 16), (4, 16, 24)]
)
def test_a_copy_that_is_none_is_refused(to, lo, hi):
    with pytest.raises(ValueError, match=r"overlap|no range"):
        patterns.check_copy(to, lo, hi, 96)
