"""What a Pattern holds at an address: the reference for every plane.

In: a Pattern and addresses. Out: the 64-bit little-endian words that belong there, and the
addresses at which two patterns agree. `kernels/memory.cu` computes the same function.

The word at byte address a (a multiple of 8), before `invert` flips all 64 bits:
  constant   seed
  address    a xor seed
  random     mix(a / 8 + golden * (seed + 1)), all modulo 2**64: the first output of splitmix64
             whose state is a / 8 + golden * seed (Steele, Lea, Flood: Fast splittable
             pseudorandom number generators, OOPSLA 2014; mix is Stafford's variant 13)
`mix` is a bijection and golden is odd, so two random patterns of different seeds differ in every
word, and a constant is met by a random pattern in at most one word of the 2**64-word sequence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rackproof.harness.devices.protocol import Pattern

Words = npt.NDArray[np.uint64]

ALL = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
KINDS = ("constant", "address", "random")
SCAN_WORDS = 1 << 20  # up to here, patterns without a closed form are compared word by word


def check(pattern: Pattern) -> None:
    """Raise ValueError when `pattern` is of no known kind."""
    if pattern.kind not in KINDS:
        msg = f"a pattern is one of {', '.join(KINDS)}, not {pattern.kind!r}"
        raise ValueError(msg)


def check_range(lo: int, hi: int, size: int) -> None:
    """Raise ValueError unless [lo, hi) is a range of whole words within `size` bytes."""
    if lo % 8 or hi % 8 or not 0 <= lo <= hi <= size:
        msg = f"[{lo:#x}, {hi:#x}) is no range of 8-byte words within {size:#x} bytes"
        raise ValueError(msg)


def mix(z: int) -> int:
    """Return splitmix64's output function of a 64-bit state that was already stepped."""
    z = ((z ^ (z >> 30)) * MIX_1) & ALL
    z = ((z ^ (z >> 27)) * MIX_2) & ALL
    return z ^ (z >> 31)


def unmix(z: int) -> int:
    """Return the inverse of `mix`: xor-shifts undone by repeating them, products by inverses."""
    z = z ^ (z >> 31) ^ (z >> 62)
    z = (z * pow(MIX_2, -1, 1 << 64)) & ALL
    z = z ^ (z >> 27) ^ (z >> 54)
    z = (z * pow(MIX_1, -1, 1 << 64)) & ALL
    return z ^ (z >> 30) ^ (z >> 60)


def word(pattern: Pattern, address: int) -> int:
    """Return the 64-bit word that `pattern` holds at byte `address`."""
    flip = ALL if pattern.invert else 0
    if pattern.kind == "constant":
        plain = pattern.seed
    elif pattern.kind == "address":
        plain = address ^ pattern.seed
    else:
        plain = mix((address // 8 + GOLDEN * (pattern.seed + 1)) & ALL)
    return (plain ^ flip) & ALL


def words(pattern: Pattern, lo: int, hi: int) -> Words:
    """Return the words of [lo, hi), shape ((hi - lo) / 8,); ValueError for a bad range."""
    check(pattern)
    check_range(lo, hi, max(hi, 0))
    flip = np.uint64(ALL if pattern.invert else 0)
    if pattern.kind == "constant":
        return np.full((hi - lo) // 8, np.uint64(pattern.seed & ALL) ^ flip)
    if pattern.kind == "address":
        return np.arange(lo, hi, 8, dtype=np.uint64) ^ np.uint64(pattern.seed & ALL) ^ flip
    z = np.arange(lo // 8, hi // 8, dtype=np.uint64)
    z += np.uint64((GOLDEN * (pattern.seed + 1)) & ALL)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
    return z ^ (z >> np.uint64(31)) ^ flip


@dataclass(frozen=True, slots=True)
class Agreement:
    """Where two patterns hold the same word: everywhere, or at a few byte addresses."""

    everywhere: bool
    at: Sequence[int] = ()


def agreement(one: Pattern, other: Pattern, lo: int, hi: int) -> Agreement:
    """Return where in [lo, hi) two patterns hold the same word, without walking the range.

    Exact in closed form for equal kinds of equal inversion, and for every pair with a constant.
    The rest (random against address, and random against another seed's inverse) has no closed
    form: up to 2**20 words it is compared word by word, beyond that it is taken to differ
    everywhere, wrong with a chance below words * 2**-64, which is 2**-28 for 512 GiB.
    """
    if one == other:
        return Agreement(everywhere=True)
    if one.kind != "constant" and other.kind == "constant":
        one, other = other, one
    if one.kind == other.kind and (one.kind != "random" or one.invert == other.invert):
        # A difference of key (constant, address) or of state under a bijection (random).
        flips = one.kind != "random" and one.invert != other.invert
        key = (one.seed ^ other.seed ^ (ALL if flips else 0)) & ALL
        return Agreement(everywhere=key == 0)
    if one.kind == other.kind and (one.seed - other.seed) & ALL == 0:
        return Agreement(everywhere=False)  # random against its own inverse
    if one.kind == "constant":
        return Agreement(everywhere=False, at=_met(word(one, 0), other, lo, hi))
    if hi - lo > SCAN_WORDS * 8:
        return Agreement(everywhere=False)
    same = np.flatnonzero(words(one, lo, hi) == words(other, lo, hi))
    return Agreement(everywhere=False, at=[lo + 8 * int(i) for i in same])


def _met(value: int, pattern: Pattern, lo: int, hi: int) -> list[int]:
    """Return the one address in [lo, hi), if any, at which `pattern` (no constant) is `value`."""
    plain = value ^ (ALL if pattern.invert else 0)
    if pattern.kind == "address":
        address = (plain ^ pattern.seed) & ALL
    else:
        address = 8 * ((unmix(plain) - GOLDEN * (pattern.seed + 1)) & ALL)
    return [address] if lo <= address < hi and address % 8 == 0 else []
