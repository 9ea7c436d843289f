"""What a Pattern holds at an address: the reference for every plane.

In: a Pattern and addresses. Out: the 64-bit little-endian words that belong there, and the pattern
in the form that `kernels/memory.cu` computes. Where two patterns agree is in agreement.py.

The word at byte address a (a multiple of 8), with b = a - origin, before `invert` flips all bits:
  constant   seed
  address    b xor seed
  random     mix(b / 8 + golden * (seed + 1)), all modulo 2**64: the first output of splitmix64
             whose state is b / 8 + golden * seed (Steele, Lea, Flood: Fast splittable
             pseudorandom number generators, OOPSLA 2014; mix is Stafford's variant 13)
  modulo     mix(golden * (seed // 20 + 1)) where b / 8 modulo 20 is seed % 20, its inverse
             elsewhere (the modulo-20 test of memtest86: no cache line and no burst has that period)
`mix` is a bijection and golden is odd, so two random patterns of different seeds differ in every
word, and a constant is met by a random pattern in at most one word of the 2**64-word sequence.
"""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rackproof.harness.devices.protocol import Pattern

Words = npt.NDArray[np.uint64]

ALL = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15  # 2**64 / golden ratio, odd
BACK = pow(GOLDEN, -1, 1 << 64)  # GOLDEN * BACK is 1 modulo 2**64
MIX_1 = 0xBF58476D1CE4E5B9
MIX_2 = 0x94D049BB133111EB
KINDS = ("constant", "address", "random", "modulo")  # by the number that memory.cu knows them by
PERIOD = 20  # words
COPY_STEP = 32  # bytes: a sector


def check(pattern: Pattern) -> None:
    """Raise ValueError when `pattern` is of no known kind, or begins within a word."""
    if pattern.kind not in KINDS:
        msg = f"a pattern is one of {', '.join(KINDS)}, not {pattern.kind!r}"
        raise ValueError(msg)
    if pattern.origin % 8:
        msg = f"a pattern begins at a word, not at byte {pattern.origin:#x}"
        raise ValueError(msg)


def check_range(lo: int, hi: int, size: int) -> None:
    """Raise ValueError unless [lo, hi) is a range of whole words within `size` bytes."""
    if lo % 8 or hi % 8 or not 0 <= lo <= hi <= size:
        msg = f"[{lo:#x}, {hi:#x}) is no range of 8-byte words within {size:#x} bytes"
        raise ValueError(msg)


def check_copy(to: int, lo: int, hi: int, size: int) -> None:
    """Raise ValueError unless [lo, hi) and its copy at `to` are apart and within `size` bytes."""
    check_range(lo, hi, size)
    check_range(to, to + hi - lo, size)
    if lo < to + hi - lo and to < hi:
        msg = f"[{lo:#x}, {hi:#x}) and its copy at {to:#x} overlap"
        raise ValueError(msg)


def check_steps(to: int, lo: int, hi: int) -> None:
    """Raise ValueError unless a copy of [lo, hi) to `to` is in steps of 32 bytes."""
    if (to | lo | hi) % COPY_STEP:
        msg = f"a copy of [{lo:#x}, {hi:#x}) to {to:#x} is not in steps of {COPY_STEP} bytes"
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


def numbers(pattern: Pattern) -> tuple[int, int, int]:
    """Return a pattern as memory.cu takes it: its kind's place in KINDS, and two 64-bit words.

    constant: the word, 0 · address: what is xored in, the origin · random: what is added to the
    word's index, what is xored in last · modulo: the place among 20 words, the word there.
    """
    flip = ALL if pattern.invert else 0
    seed, origin = pattern.seed, pattern.origin
    match pattern.kind:
        case "constant":
            two = (seed & ALL) ^ flip, 0
        case "address":
            two = (seed & ALL) ^ flip, origin & ALL
        case "random":
            two = (GOLDEN * (seed + 1) - origin // 8) & ALL, flip
        case _:
            key, place = divmod(seed, PERIOD)
            two = (place + origin // 8) % PERIOD, mix((GOLDEN * (key + 1)) & ALL) ^ flip
    return KINDS.index(pattern.kind), *two


def word(pattern: Pattern, address: int) -> int:
    """Return the 64-bit word that `pattern` holds at byte `address`."""
    _, one, two = numbers(pattern)
    match pattern.kind:
        case "constant":
            return one
        case "address":
            return ((address - two) & ALL) ^ one
        case "random":
            return mix((address // 8 + one) & ALL) ^ two
        case _:
            return two if address // 8 % PERIOD == one else two ^ ALL


def words(pattern: Pattern, lo: int, hi: int) -> Words:
    """Return the words of [lo, hi), shape ((hi - lo) / 8,); ValueError for a bad range."""
    check(pattern)
    check_range(lo, hi, max(hi, 0))
    _, one, two = (np.uint64(number) for number in numbers(pattern))
    if pattern.kind == "constant":
        return np.full((hi - lo) // 8, one)
    if pattern.kind == "address":
        return (np.arange(lo, hi, 8, dtype=np.uint64) - two) ^ one
    z = np.arange(lo // 8, hi // 8, dtype=np.uint64)
    if pattern.kind == "modulo":
        return np.where(z % np.uint64(PERIOD) == one, two, ~two)
    z += one
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX_2)
    return z ^ (z >> np.uint64(31)) ^ two


def moved(pattern: Pattern, by: int) -> Pattern:
    """Return what a copy of `pattern` holds that lies `by` bytes further on.

    But for addresses it is a pattern from the origin 0 again, of another seed: a random sequence
    that is shifted is the sequence of another state, and golden has an inverse.
    """
    check(pattern)
    origin = pattern.origin + by
    match pattern.kind:
        case "constant":
            return replace(pattern, origin=0)
        case "random":
            return replace(pattern, seed=(pattern.seed - origin // 8 * BACK) & ALL, origin=0)
        case "modulo":
            key, place = divmod(pattern.seed, PERIOD)
            return replace(pattern, seed=PERIOD * key + (place + origin // 8) % PERIOD, origin=0)
        case _:
            return replace(pattern, origin=origin)
