"""The sparse HBM against a dense memory with the same faults, written naively.

Every word is stored as a list of 72 bits. The code is built from its parity-check matrix and
decoded by trying each single flip, so nothing is shared with harness/devices/emulated but the
descriptions of faults.
"""

import itertools
import random

import pytest

from rackproof.harness.devices.emulated import cells, secded
from rackproof.harness.devices.emulated.hbm import UNWRITTEN, Hbm
from rackproof.harness.devices.patterns import KINDS as KINDS_OF
from rackproof.harness.devices.patterns import word
from rackproof.harness.devices.protocol import Pattern, Verified

KINDS = [
    *(Pattern("constant", seed, invert) for seed in (0, 1, 0x55 * 0x0101_0101_0101_0101)
      for invert in (False, True)),
    *(Pattern("address", seed, invert) for seed in (0, 24) for invert in (False, True)),
    *(Pattern("random", seed, invert) for seed in (1, 2) for invert in (False, True)),
    *(Pattern("modulo", seed, invert) for seed in (3, 44) for invert in (False, True)),
    *(Pattern(kind, 1, origin=origin) for kind in KINDS_OF for origin in (16, -8)),
    UNWRITTEN,
]  # fmt: skip


def _check_columns():
    columns = [[int(b) for b in f"{v:08b}"[::-1]] for v in range(256)]
    threes = [c for c in columns if sum(c) == 3]
    fives = [c for c in columns if sum(c) == 5]
    unit = [[int(i == r) for i in range(8)] for r in range(8)]
    return threes + fives[:8] + unit


H = _check_columns()


def _syndrome(bits):
    total = [0] * 8
    for bit, column in zip(bits, H, strict=True):
        if bit:
            total = [(t + c) % 2 for t, c in zip(total, column, strict=True)]
    return total


def _to_bits(value, n):
    return [value >> i & 1 for i in range(n)]


def _to_int(bits):
    return sum(bit << i for i, bit in enumerate(bits))


def encode(data):
    bits = _to_bits(data, 64)
    return bits + _syndrome(bits + [0] * 8)


def decode(bits):
    """Return (data, "clean" | "corrected" | "uncorrected")."""
    if not any(_syndrome(bits)):
        return _to_int(bits[:64]), "clean"
    for i in range(72):
        flipped = [b ^ (i == k) for k, b in enumerate(bits)]
        if not any(_syndrome(flipped)):
            return _to_int(flipped[:64]), "corrected"
    return _to_int(bits[:64]), "uncorrected"


class DenseMemory:
    """`n` words, with faults as a plain list."""

    def __init__(self, n, first, *, ecc):
        self.n, self.ecc = n, ecc
        self.store_bits = [encode(word(first, 8 * i)) for i in range(n)]
        self.faults = []
        self.aliases = {}
        self.spent = set()
        self.rested = [0.0] * n
        self.corrected = self.uncorrected = 0
        self.incidents = []

    def plant(self, fault):
        self.faults.append(fault)
        if isinstance(fault, cells.AddressAlias):
            self.aliases[fault.b] = 8 * self.cell(fault.a)

    def cell(self, address):
        return self.aliases.get(address, address) // 8

    def force(self, i):
        for fault in self.faults:
            if isinstance(fault, cells.Bridge) and fault.address == 8 * i:
                joined = [b for b in range(72 if self.ecc else 64) if fault.mask >> b & 1]
                if not all(self.store_bits[i][b] for b in joined):
                    for b in joined:
                        self.store_bits[i][b] = 0
            if isinstance(fault, (cells.StuckBits, cells.Uncorrectable)) and fault.address == 8 * i:
                for b in range(72):
                    if fault.mask >> b & 1:
                        self.store_bits[i][b] = fault.value >> b & 1

    def hold_back(self, i, wanted):
        before = self.store_bits[i]
        for fault in self.faults:
            if isinstance(fault, cells.Transition) and fault.address == 8 * i:
                for b in range(72):
                    if fault.mask >> b & 1 and before[b] != wanted[b]:
                        rises = wanted[b] == 1
                        if rises == fault.rising:
                            wanted[b] = before[b]
        return wanted

    def strike(self, i):
        for k, fault in enumerate(self.faults):
            is_flip = isinstance(fault, cells.FlipOnce) and fault.address == 8 * i
            if is_flip and k not in self.spent:
                self.spent.add(k)
                for b in range(72):
                    self.store_bits[i][b] ^= fault.mask >> b & 1
                self.force(i)

    def couple(self, i, before, after):
        width = 72 if self.ecc else 64  # without ECC there are no check bits to change
        for fault in self.faults:
            if not isinstance(fault, cells.Coupling) or fault.aggressor != 8 * i:
                continue
            moved = any(before[b] != after[b] for b in range(width) if fault.edge >> b & 1)
            if fault.edge and not moved:
                continue
            victim = self.store_bits[fault.victim // 8]
            for b in range(72):
                if fault.mask >> b & 1:
                    victim[b] = victim[b] ^ 1 if fault.force is None else fault.force >> b & 1
            self.force(fault.victim // 8)

    def rest(self, seconds):
        leaks = [fault for fault in self.faults if isinstance(fault, cells.Leak)]
        for i in {fault.address // 8 for fault in leaks}:  # before it leaked it did not rest
            self.rested[i] += seconds
        for fault in leaks:
            i = fault.address // 8
            if self.rested[i] >= fault.seconds:
                for b in range(72):
                    if fault.mask >> b & 1:
                        self.store_bits[i][b] = fault.value >> b & 1
                self.force(i)

    def copy(self, to, lo, hi):
        for offset in range(0, hi - lo, 8):
            self.set_word(to + offset, self.get_word(lo + offset))

    def set_word(self, address, data):
        i = self.cell(address)
        self.rested[i] = 0.0
        before = self.store_bits[i]
        self.store_bits[i] = self.hold_back(i, encode(data))
        self.force(i)
        self.strike(i)
        self.couple(i, before, list(self.store_bits[i]))

    def get_word(self, address):
        i = self.cell(address)
        self.rested[i] = 0.0
        self.force(i)
        bits = self.store_bits[i]
        if not self.ecc:
            return _to_int(bits[:64])
        data, outcome = decode(bits)
        if outcome == "corrected":
            self.corrected += 1
        if outcome == "uncorrected":
            self.uncorrected += 1
            self.incidents.append(address)
        return data

    def write(self, lo, hi, pattern):
        for address in range(lo, hi, 8):
            self.set_word(address, word(pattern, address))

    def verify(self, lo, hi, pattern):
        wrong = []
        for address in range(lo, hi, 8):
            actual = self.get_word(address)
            if actual != word(pattern, address):
                wrong.append((address, word(pattern, address), actual))
        return wrong

    def march(self, lo, hi, up, expect, write):
        wrong = []
        order = range(lo, hi, 8)
        for address in order if up else reversed(order):
            actual = self.get_word(address)
            if actual != word(expect, address):
                wrong.append((address, word(expect, address), actual))
            self.set_word(address, word(write, address))
        return wrong

    def poke(self, address, content):
        for k in range(0, len(content), 8):
            self.set_word(address + k, int.from_bytes(content[k : k + 8], "little"))

    def peek(self, address, n):
        return b"".join(
            self.get_word(a).to_bytes(8, "little") for a in range(address, address + n, 8)
        )


def draw_fault(rng, words, hot):
    """Draw a fault, most often on a few hot words so that faults meet each other."""

    def address():
        return 8 * (rng.choice(hot) if rng.random() < 0.7 else rng.randrange(words))

    def mask(least=1):
        return sum(1 << b for b in rng.sample(range(72), rng.randint(least, 4)))

    a, b = rng.sample(hot, 2)
    ends = rng.choice([0, 2**72 - 1])
    drawn = rng.randrange(8)
    return (
        lambda: cells.StuckBits(address(), mask(), rng.getrandbits(72)),
        lambda: cells.Uncorrectable(address(), mask(2), rng.choice([ends, rng.getrandbits(72)])),
        lambda: cells.Transition(address(), mask(), rng.random() < 0.5),
        lambda: cells.Coupling(
            8 * a, 8 * b, mask(), rng.choice([None, ends]), rng.choice([0, 1 << rng.randrange(72)])
        ),
        lambda: cells.AddressAlias(8 * a, 8 * b),
        lambda: cells.FlipOnce(address(), mask()),
        lambda: cells.Bridge(address(), mask(2)),
        lambda: cells.Leak(address(), mask(), rng.choice([1.0, 5.0]), ends),
    )[drawn]()


def plain(verified):
    return [(m.address, m.expected, m.actual) for m in verified.first]


KINDS_OF_STEP = "write write verify march march again poke peek copy copy rest".split()


def draw_copy(rng, words):
    """Draw two ranges that are apart, the first one anywhere."""
    length = rng.randrange(words // 2 + 1)
    one = rng.randrange(words - 2 * length + 1)
    other = rng.randrange(one + length, words - length + 1)
    to, lo = rng.choice([(one, other), (other, one)])
    return 8 * to, 8 * lo, 8 * (lo + length)


def step(rng, sparse, dense, words):
    """Do one random operation on both; return what each saw."""
    lo, hi = sorted(8 * rng.randrange(words + 1) for _ in range(2))
    kind = rng.choice(KINDS_OF_STEP)
    one, two = rng.choice(KINDS), rng.choice(KINDS)
    match kind:
        case "copy":
            work = "copy", draw_copy(rng, words)
        case "rest":
            work = "rest", (rng.choice([0.5, 1.0, 5.0]),)
        case "poke":
            work = "poke", (lo, rng.randbytes(hi - lo))
        case "peek":
            work = "peek", (lo, hi - lo)
        case "march":
            work = "march", (lo, hi, rng.random() < 0.5, one, two)
        case "again":  # what the burns do: verify what was just written
            sparse.write(lo, hi, one)
            dense.write(lo, hi, one)
            work = "verify", (lo, hi, one)
        case _:
            work = kind, (lo, hi, one)
    name, arguments = work
    return getattr(sparse, name)(*arguments), getattr(dense, name)(*arguments)


@pytest.mark.parametrize("seed", range(250))
def test_agrees_with_a_dense_memory(seed):
    rng = random.Random(seed)
    words, ecc = rng.choice([5, 40, 90]), rng.random() < 0.7
    sparse, dense = Hbm(8 * words, ecc=ecc), DenseMemory(words, UNWRITTEN, ecc=ecc)
    hot = rng.sample(range(words), min(4, words))
    for _ in range(rng.randint(5, 20)):
        if rng.random() < 0.25:
            fault = draw_fault(rng, words, hot)
            sparse.plant(fault)
            dense.plant(fault)
        got, expected = step(rng, sparse, dense, words)
        if isinstance(got, Verified):
            assert got.miscompares == len(expected)
            assert plain(got) == expected[:64]
        else:
            assert got == expected
        assert (sparse.corrected, sparse.uncorrected) == (dense.corrected, dense.uncorrected)
        assert [i.address for i in sparse.incidents] == dense.incidents


def test_secded_agrees_with_the_matrix_on_every_single_and_double_error_and_random_more():
    rng = random.Random(5)
    data = rng.getrandbits(64)
    code = secded.encode(data)
    assert code == _to_int(encode(data))
    assert secded.decode(code) == (data, secded.Outcome.CLEAN)
    for bit in range(72):
        assert secded.decode(code ^ 1 << bit) == (data, secded.Outcome.CORRECTED)
    for one, two in itertools.combinations(range(72), 2):
        wrong = code ^ 1 << one ^ 1 << two
        assert secded.decode(wrong) == (wrong & (2**64 - 1), secded.Outcome.UNCORRECTED)
    for _ in range(300):
        wrong = code
        for bit in rng.sample(range(72), rng.randint(3, 6)):
            wrong ^= 1 << bit
        got, outcome = secded.decode(wrong)
        assert (got, outcome.value) == decode(_to_bits(wrong, 72))
