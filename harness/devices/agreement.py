"""Where two patterns hold the same word, without walking the range.

In: two Patterns and a range of byte addresses. Out: an Agreement, a set of words that can be
counted, asked and stepped over in constant time, though it may hold billions of them.

The set is one of three: words by their place among 20 (patterns of period 20), words by some bits
of their address (two address patterns of different origin), or a few single addresses.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rackproof.harness.devices.patterns import ALL, PERIOD, numbers, unmix, word, words
from rackproof.harness.devices.protocol import Pattern

SCAN_WORDS = 1 << 20  # up to here, patterns without a closed form are compared word by word
EVERY_PLACE = frozenset(range(PERIOD))


@dataclass(frozen=True, slots=True)
class Agreement:
    """A set of words of [lo, hi), by byte address.

    A word at a belongs to it when a / 8 modulo 20 is one of `places`, or the bits of `mask` in
    a - `origin` are those of `value` (mask 0: no word), or a is one of `at`, which ascends and
    names no word twice. At most one of the three is used.
    """

    lo: int
    hi: int
    places: frozenset[int] = frozenset()
    origin: int = 0
    mask: int = 0
    value: int = 0
    at: Sequence[int] = ()

    @property
    def everywhere(self) -> bool:
        """Whether the set is the whole range."""
        return len(self) == (self.hi - self.lo) // 8

    def __contains__(self, address: int) -> bool:
        """Whether the word at byte `address` is in the set."""
        if not self.lo <= address < self.hi:
            return False
        if address // 8 % PERIOD in self.places or address in self.at:
            return True
        return bool(self.mask) and ((address - self.origin) & self.mask) == self.value

    def __len__(self) -> int:
        """Return how many words are in the set."""
        if self.places:
            first, last = self.lo // 8, self.hi // 8
            return sum(_until(last, p) - _until(first, p) for p in self.places)
        if self.mask:
            lo, hi = (self.lo - self.origin) & ALL, (self.hi - self.origin) & ALL
            if self.lo == self.hi:
                return 0
            if lo >= hi > 0:  # the range wraps around 2**64
                return self._below(ALL + 1) - self._below(lo) + self._below(hi)
            return self._below(hi or ALL + 1) - self._below(lo)
        return len(self.at)

    def outside(self, *, up: bool) -> Iterator[int]:
        """Yield the byte addresses of the range that are not in the set, up or down."""
        step = 8 if up else -8
        address = self.lo if up else self.hi - 8
        while self.lo <= address < self.hi:
            if address not in self:
                yield address
                address += step
            else:
                address = self._leap(address, step)

    def _leap(self, address: int, step: int) -> int:
        """Return where to look next from a member: behind the run that the lowest bit leaves."""
        if not self.mask:
            return address + step
        run = self.mask & -self.mask  # a run of members is `run` bytes, aligned to it
        inside = (address - self.origin) & (run - 1)
        return address + (run - inside if step > 0 else -inside - 8)

    def _below(self, bound: int) -> int:
        """Return how many multiples of 8 below `bound`, a multiple of 8, have the bits."""
        count, free = 0, ~(self.mask | 7) & ALL
        for bit in range(64, 2, -1):
            if not bound >> bit & 1:
                continue
            # Numbers that share the bound's bits above this one, and have a 0 here.
            top = (bound >> (bit + 1)) << (bit + 1)
            above = self.mask >> bit << bit & ALL
            if (top & above) == (self.value & above):
                count += 1 << (free & ((1 << bit) - 1)).bit_count()
        return count


def _until(index: int, place: int) -> int:
    """Return how many of the word indexes below `index` have this place among 20."""
    return (index - place + PERIOD - 1) // PERIOD


def agreement(one: Pattern, other: Pattern, lo: int, hi: int) -> Agreement:
    """Return where in [lo, hi) two patterns hold the same word, without walking the range.

    Exact in closed form, but for random against address, and random against another seed's
    inverse: up to 2**20 words these are compared word by word, beyond that they are taken to
    differ everywhere, wrong with a chance below words * 2**-64, which is 2**-28 for 512 GiB.
    """
    kinds = {one.kind, other.kind}
    if kinds <= {"constant", "modulo"}:
        places = frozenset(p for p in EVERY_PLACE if word(one, 8 * p) == word(other, 8 * p))
        return Agreement(lo, hi, places)
    if kinds & {"constant", "modulo"}:
        if one.kind not in ("constant", "modulo"):
            one, other = other, one
        values = {word(one, 8 * place) for place in EVERY_PLACE}
        at = {address for value in values for address in _met(value, other, lo, hi)}
        return Agreement(lo, hi, at=sorted(a for a in at if word(one, a) == word(other, a)))
    if kinds == {"address"}:
        return _addresses(one, other, lo, hi)
    if kinds == {"random"}:
        same = numbers(one)[1] == numbers(other)[1]  # of state, under a bijection
        if same or one.invert == other.invert:
            return Agreement(lo, hi, EVERY_PLACE if numbers(one) == numbers(other) else frozenset())
    return Agreement(lo, hi, at=_scanned(one, other, lo, hi))


def _scanned(one: Pattern, other: Pattern, lo: int, hi: int) -> list[int]:
    """Return where two patterns without a closed form agree; nowhere in a long range."""
    if hi - lo > SCAN_WORDS * 8:
        return []
    same = np.flatnonzero(words(one, lo, hi) == words(other, lo, hi))
    return [lo + 8 * int(i) for i in same]


def _met(value: int, pattern: Pattern, lo: int, hi: int) -> list[int]:
    """Return the one address in [lo, hi), if any, at which an address or random one is `value`."""
    _, key, last = numbers(pattern)
    if pattern.kind == "address":
        address = ((value ^ key) + last) & ALL
    else:
        address = 8 * ((unmix(value ^ last) - key) & ALL)
    return [address] if lo <= address < hi and address % 8 == 0 else []


def _addresses(one: Pattern, other: Pattern, lo: int, hi: int) -> Agreement:
    """Return where two address patterns agree: with b = a - origin, where b ^ (b + e) is k.

    Bit by bit from the lowest, that is where the carry into the bit is e ^ k there. So the carries
    are known before b is; each asks for one bit of b, for none, or for what cannot be.
    """
    _, key, origin = numbers(one)
    _, other_key, other_origin = numbers(other)
    k, e = key ^ other_key, (origin - other_origin) & ALL
    carries = e ^ k
    mask = value = 0
    if carries & 1:
        return Agreement(lo, hi)
    for bit in range(63):
        carry, added, out = (carries >> bit & 1), (e >> bit & 1), carries >> bit + 1 & 1
        if carry != added:  # the carry out is b's own bit
            mask |= 1 << bit
            value |= out << bit
        elif out != added:
            return Agreement(lo, hi)
    if value & 7:  # addresses are multiples of 8, and so is b
        return Agreement(lo, hi)
    if mask & ~7:
        return Agreement(lo, hi, frozenset(), origin, mask & ~7, value)
    return Agreement(lo, hi, EVERY_PLACE)
