"""Patterns against their formula, each other, and the closed forms of where two of them agree."""

import itertools
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


@pytest.mark.parametrize(("one", "other"), [*itertools.product(SAMPLE, SAMPLE)], ids=str)
def test_agreement_is_what_a_dense_comparison_finds(one, other):
    lo, hi = 64, 64 + 8 * 300
    same = patterns.words(one, lo, hi) == patterns.words(other, lo, hi)
    found = patterns.agreement(one, other, lo, hi)
    assert found.everywhere == bool(same.all())
    if not found.everywhere:
        assert list(found.at) == [lo + 8 * int(i) for i in np.flatnonzero(same)]


@pytest.mark.parametrize("pattern", [p for p in SAMPLE if p.kind != "constant"], ids=str)
@pytest.mark.parametrize("invert", [False, True])
def test_the_one_word_that_meets_a_constant_is_found(pattern, invert):
    address = 200 * 2**30 + 8 * 12345
    value = patterns.word(pattern, address) ^ (ALL if invert else 0)
    constant = Pattern("constant", value, invert=invert)
    whole = 0, 288 * 2**30
    assert patterns.agreement(constant, pattern, *whole) == patterns.Agreement(
        everywhere=False, at=[address]
    )
    assert patterns.agreement(pattern, constant, *whole).at == [address]
    assert patterns.agreement(pattern, constant, 0, address).at == []
    assert patterns.agreement(pattern, constant, address, address + 8).at == [address]
    assert patterns.agreement(pattern, constant, address + 8, whole[1]).at == []


def test_a_pair_without_closed_form_is_scanned_where_it_is_short():
    # A constructed agreement: seed the address pattern so that it meets random at one word.
    address, plain = 8 * 5000, Pattern("random", 9)
    met = Pattern("address", patterns.word(plain, address) ^ address)
    assert patterns.agreement(plain, met, 0, 8 * 10000).at == [address]
    assert patterns.agreement(met, plain, 0, 8 * 10000).at == [address]


@pytest.mark.parametrize(("lo", "hi"), [(4, 8), (0, 12), (16, 8), (-8, 8)])
def test_a_bad_range_is_refused(lo, hi):
    with pytest.raises(ValueError, match="no range of 8-byte words"):
        patterns.words(Pattern("constant"), lo, hi)


def test_an_unknown_kind_is_refused():
    with pytest.raises(ValueError, match="'stripes'"):
        patterns.words(Pattern("stripes"), 0, 8)
