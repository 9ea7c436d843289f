"""Where two patterns agree, by closed form, is what a dense comparison finds."""

import itertools
import random

import numpy as np
import pytest

from rackproof.harness.devices import patterns
from rackproof.harness.devices.agreement import Agreement, agreement
from rackproof.harness.devices.protocol import Pattern

ALL = 2**64 - 1
SAMPLE = [
    *(Pattern("constant", seed, invert) for seed in (0, ALL, 0x5555_5555_5555_5555)
      for invert in (False, True)),
    *(Pattern("address", seed, invert, origin) for seed in (0, 24, 0x1234_5678, ALL)
      for invert in (False, True) for origin in (0, 8, 4096, -24)),
    *(Pattern("random", seed, invert) for seed in (1, 2) for invert in (False, True)),
    Pattern("random", 1, origin=64),
    *(Pattern("modulo", seed, invert, origin) for seed in (0, 7, 107) for invert in (False, True)
      for origin in (0, 56)),
    Pattern("constant", patterns.word(Pattern("modulo", 7), 56)),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), [*itertools.product(SAMPLE, SAMPLE)], ids=str)
def test_agreement_is_what_a_dense_comparison_finds(one, other):
    lo, hi = 64, 64 + 8 * 300
    same = patterns.words(one, lo, hi) == patterns.words(other, lo, hi)
    found = agreement(one, other, lo, hi)
    members = [lo + 8 * int(i) for i in np.flatnonzero(same)]
    others = [lo + 8 * int(i) for i in np.flatnonzero(~same)]
    assert found.everywhere == bool(same.all())
    assert len(found) == len(members)
    assert [a for a in range(lo - 64, hi + 64, 8) if a in found] == members
    assert list(found.outside(up=True)) == others
    assert list(found.outside(up=False)) == others[::-1]


@pytest.mark.parametrize("pattern", [p for p in SAMPLE if p.kind in ("address", "random")], ids=str)
@pytest.mark.parametrize("invert", [False, True])
def test_the_one_word_that_meets_a_constant_is_found(pattern, invert):
    address = 200 * 2**30 + 8 * 12345
    value = patterns.word(pattern, address) ^ (ALL if invert else 0)
    constant = Pattern("constant", value, invert=invert)
    whole = 0, 288 * 2**30
    assert agreement(constant, pattern, *whole) == Agreement(*whole, at=[address])
    assert agreement(pattern, constant, *whole).at == [address]
    assert agreement(pattern, constant, 0, address).at == []
    assert agreement(pattern, constant, address, address + 8).at == [address]
    assert agreement(pattern, constant, address + 8, whole[1]).at == []


def test_a_pair_without_closed_form_is_scanned_where_it_is_short():
    # A constructed agreement: seed the address pattern so that it meets random at one word.
    address, plain = 8 * 5000, Pattern("random", 9)
    met = Pattern("address", patterns.word(plain, address) ^ address)
    assert agreement(plain, met, 0, 8 * 10000).at == [address]
    assert agreement(met, plain, 0, 8 * 10000).at == [address]


def test_copies_of_addresses_agree_where_the_carries_say():
    rng = random.Random(4)
    for _ in range(300):
        one, other = (
            Pattern("address", rng.choice([0, 8, 16, 56, 1 << 9]), rng.random() < 0.3,
                    8 * rng.randrange(-300, 300))
            for _ in range(2)
        )  # fmt: skip
        lo = 8 * rng.randrange(100)
        hi = lo + 8 * rng.randrange(400)
        same = patterns.words(one, lo, hi) == patterns.words(other, lo, hi)
        found = agreement(one, other, lo, hi)
        assert len(found) == same.sum()
        assert list(found.outside(up=True)) == [lo + 8 * int(i) for i in np.flatnonzero(~same)]


def test_billions_of_agreeing_words_are_counted_and_stepped_over():
    size = 288 * 2**30
    one, other = Pattern("address"), Pattern("address", 2**36, origin=2**36)
    found = agreement(one, other, 0, size)  # a ^ (a - 2**36) is 2**36 where bit 36 is 1
    spans = [(lo, min(lo + 2**36, size)) for lo in range(2**36, size, 2**37)]
    assert len(found) == sum(hi - lo for lo, hi in spans) // 8
    assert next(found.outside(up=True)) == 0
    up = agreement(one, other, 2**36, size).outside(up=True)
    assert next(up) == 2**37
    down = agreement(one, other, 0, 2**37).outside(up=False)
    assert next(down) == 2**36 - 8
    every = agreement(Pattern("modulo", 3), Pattern("modulo", 4), 0, size)
    assert len(every) == size // 8 - sum((size // 8 - p + 19) // 20 for p in (3, 4))
