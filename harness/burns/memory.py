"""memory.*: write all free memory, read it back, and see whether a bit or a counter moved.

With ECC on, a single stuck bit never miscompares: only the corrected counter moves. So a run
reports both the words that differed and the growth of the ECC counters in its own window. What each
test does, in what order, is a function over Passes; tests/harness/burns/test_memory_faults.py says
which fault models each of them sees.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from rackproof.harness.burns.base import LEVELS, Burn, Run
from rackproof.harness.burns.ecc import EccWindow
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.patterns import COPY_STEP, PERIOD
from rackproof.harness.devices.protocol import DataPlane, Device, Pattern, Verified
from rackproof.harness.errors import DeviceError

OWES = {
    "gpu": (
        "memory.miscompares",
        "memory.coverage",
        "ecc.corrected.delta",
        "ecc.uncorrected.delta",
        "xid.count",
    )
}
ZERO = Pattern("constant", 0)
ONES = Pattern("constant", 0, invert=True)
MIB = 2.0**20
WORD_BITS, BYTE_BITS = 64, 8
EACH_BYTE = 0x0101_0101_0101_0101
BLOCKS = 8  # that memory.block copies within each half of the memory


class Passes:
    """Passes over [0, size) of a plane; sums what differed and what was verified.

    `wait` lets the time pass that bits are given to fade in, and returns its seconds.
    """

    def __init__(self, plane: DataPlane, size: int, wait: Callable[[], float]) -> None:
        self._plane, self.size, self._wait = plane, size, wait
        self.rested = 0.0  # seconds
        self.miscompares = 0
        self.verified = 0  # bytes, over all passes
        self.moved = 0  # bytes written or read

    def _count(self, outcome: Verified) -> None:
        self.miscompares += outcome.miscompares
        self.verified += outcome.words * 8
        self.moved += outcome.words * 8

    def write(self, pattern: Pattern, lo: int = 0, hi: int | None = None) -> None:
        """Write a pattern to everything, or to [lo, hi)."""
        hi = self.size if hi is None else hi
        self._plane.write(lo, hi, pattern)
        self.moved += hi - lo

    def verify(self, pattern: Pattern, lo: int = 0, hi: int | None = None) -> None:
        """Compare everything, or [lo, hi), with a pattern."""
        self._count(self._plane.verify(lo, self.size if hi is None else hi, pattern))

    def march(self, expect: Pattern, write: Pattern, *, up: bool) -> None:
        """Read, compare and write everything, word by word."""
        self._count(self._plane.march(0, self.size, up, expect, write))
        self.moved += self.size

    def copy(self, to: int, lo: int, hi: int) -> None:
        """Copy [lo, hi) to `to`."""
        self._plane.copy(to, lo, hi)
        self.moved += 2 * (hi - lo)

    def rest(self) -> None:
        """Let data rest."""
        self.rested += self._wait()

    @property
    def passes(self) -> float:
        """How often the whole size was verified."""
        return self.verified / self.size if self.size else 0.0


def inverse(pattern: Pattern) -> Pattern:
    """Return the pattern of which every bit is flipped."""
    return Pattern(pattern.kind, pattern.seed, not pattern.invert, pattern.origin)


def address(passes: Passes, seed: int) -> None:
    """Each word holds its own address, then the inverse: finds lines that answer for others."""
    for invert in (False, True):
        pattern = Pattern("address", seed, invert)
        passes.write(pattern)
        passes.verify(pattern)


def inversions(passes: Passes, _seed: int) -> None:
    """Moving inversions with zeros and ones, up and then down."""
    passes.write(ZERO)
    passes.march(ZERO, ONES, up=True)
    passes.march(ONES, ZERO, up=False)
    passes.verify(ZERO)
    passes.write(ONES)
    passes.march(ONES, ZERO, up=True)
    passes.march(ZERO, ONES, up=False)
    passes.verify(ONES)


def _chain(passes: Passes, patterns: list[Pattern]) -> None:
    """Write the first pattern; turn each into its inverse going up, and into the next going down.

    Source: the moving inversions of memtest86, with the last step of one pattern as the first of
    the next, which saves two passes in five.
    """
    passes.write(patterns[0])
    for one, following in zip(patterns, [*patterns[1:], patterns[0]], strict=True):
        passes.march(one, inverse(one), up=True)
        passes.march(inverse(one), following, up=False)
    passes.verify(patterns[0])


def inversions8(passes: Passes, _seed: int) -> None:
    """Moving inversions with one bit set in each byte, at each of its eight places."""
    _chain(passes, [Pattern("constant", EACH_BYTE << bit) for bit in range(BYTE_BITS)])


def march(passes: Passes, _seed: int) -> None:
    """March C-: any(w0) up(r0,w1) up(r1,w0) down(r0,w1) down(r1,w0) any(r0).

    Source: A. J. van de Goor, Testing Semiconductor Memories, 1991.
    """
    passes.write(ZERO)
    passes.march(ZERO, ONES, up=True)
    passes.march(ONES, ZERO, up=True)
    passes.march(ZERO, ONES, up=False)
    passes.march(ONES, ZERO, up=False)
    passes.verify(ZERO)


def random(passes: Passes, seed: int) -> None:
    """Random words by seed, then their inverse."""
    for invert in (False, True):
        pattern = Pattern("random", seed, invert)
        passes.write(pattern)
        passes.verify(pattern)


def walking(passes: Passes, _seed: int) -> None:
    """A one walks through zeros over all 64 bits of a word going up, a zero through ones down."""
    ones = [Pattern("constant", 1 << bit) for bit in range(WORD_BITS)]
    passes.write(ones[0])
    for one, following in itertools.pairwise(ones):
        passes.march(one, following, up=True)
    passes.march(ones[-1], inverse(ones[0]), up=False)
    for one, following in itertools.pairwise(ones):
        passes.march(inverse(one), inverse(following), up=False)
    passes.verify(inverse(ones[-1]))


def modulo20(passes: Passes, seed: int) -> None:
    """A random word in every 20th place and its inverse between, then the reverse; each place.

    Source: the modulo-20 test of memtest86: neither caches nor bursts have that period.
    """
    _chain(passes, [Pattern("modulo", PERIOD * seed + place) for place in range(PERIOD)])


def fade(passes: Passes, seed: int) -> None:
    """Fill with random words, wait, verify, then their inverse: finds bits that fade at rest."""
    for invert in (False, True):
        pattern = Pattern("random", seed, invert)
        passes.write(pattern)
        passes.rest()
        passes.verify(pattern)


def block(passes: Passes, seed: int) -> None:
    """Copy a half to the other in eight blocks out of order, verify both; then its inverse back.

    So each word holds a random word and its inverse, one of them brought by a copy.
    """
    size = passes.size // 2 // (COPY_STEP * BLOCKS) * COPY_STEP
    half, pattern = size * BLOCKS, Pattern("random", seed)
    moves = [(n * size, half + n * 3 % BLOCKS * size) for n in range(BLOCKS)]
    there = [Pattern("random", seed, origin=to - lo) for lo, to in moves]
    passes.write(pattern, 0, half)
    for lo, to in moves:
        passes.copy(to, lo, lo + size)
    _both_halves(passes, pattern, list(zip(moves, there, strict=True)))
    back = [inverse(moved) for moved in there]
    for (_, to), moved in zip(moves, back, strict=True):
        passes.write(moved, to, to + size)
    for lo, to in moves:
        passes.copy(lo, to, to + size)
    _both_halves(passes, inverse(pattern), list(zip(moves, back, strict=True)))


def _both_halves(
    passes: Passes, pattern: Pattern, blocks: list[tuple[tuple[int, int], Pattern]]
) -> None:
    """Verify the half that begins at 0, and each block of the other."""
    size = passes.size // 2 // (COPY_STEP * BLOCKS) * COPY_STEP
    passes.verify(pattern, 0, size * BLOCKS)
    for (_, to), moved in blocks:
        passes.verify(moved, to, to + size)


@dataclass(frozen=True, slots=True)
class MemoryTest:
    """One test: how often it verifies everything, and its planned seconds by level."""

    work: Callable[[Passes, int], None]
    whole: int
    seconds: Mapping[str, float]


FADE = {"acceptance": 30.0, "soak": 300.0}  # seconds of rest; memtest86 rests for 300


def _later(seconds: float) -> Mapping[str, float]:
    """Return the planned seconds of a test that a quick level leaves out."""
    return dict.fromkeys(LEVELS[1:], seconds)


TESTS: Mapping[str, MemoryTest] = {
    "address": MemoryTest(address, 2, dict.fromkeys(LEVELS, 1.0)),
    "inversions": MemoryTest(inversions, 6, dict.fromkeys(LEVELS, 4.0)),
    "march": MemoryTest(march, 5, dict.fromkeys(LEVELS, 3.0)),
    "random": MemoryTest(random, 2, dict.fromkeys(LEVELS, 1.0)),
    "inversions8": MemoryTest(inversions8, 2 * BYTE_BITS + 1, _later(4.0)),
    "walking": MemoryTest(walking, 2 * WORD_BITS, _later(15.0)),
    "modulo20": MemoryTest(modulo20, 2 * PERIOD + 1, _later(8.0)),
    "fade": MemoryTest(fade, 2, {level: 2 * wait + 1.0 for level, wait in FADE.items()}),
    "block": MemoryTest(block, 2, _later(1.0)),
}


def _wait(device: Device, seconds: float) -> float:
    """Let `seconds` pass without load; return how many passed on the device's clock."""
    before = device.clock.now()
    device.wait(seconds)
    return device.clock.now() - before


def burn(name: str) -> Callable[[Device, Bench, Run], None]:
    """Return the run function of memory test `name` (a key of TESTS)."""
    test = TESTS[name]

    def run(device: Device, _bench: Bench, notes: Run) -> None:
        plane = device.plane
        free = float(device.telemetry.read("memory.free")) * MIB
        window = EccWindow(device, notes)
        size = plane.claim()
        try:
            if not (free > 0 and size > 0):
                msg = f"no memory could be claimed, of {free:.0f} bytes that are free"
                raise DeviceError(msg)
            passes = Passes(plane, size, lambda: _wait(device, FADE[notes.settings.level]))
            start = device.clock.now()
            try:
                test.work(passes, notes.settings.seed + notes.settings.attempt)
            finally:
                if passes.miscompares:  # what was seen stays seen, whatever comes after it
                    notes.note("memory.miscompares", passes.miscompares)
            took = device.clock.now() - start - passes.rested
        finally:
            plane.release()
        window.close()
        if not passes.miscompares:
            notes.note("memory.miscompares", 0)
        notes.note("memory.coverage", passes.passes / test.whole * size / free)
        if took > 0:
            notes.note("memory.rate", passes.moved / took / 1e9)

    run.__doc__ = test.work.__doc__
    return run


def _burn(name: str) -> Burn:
    test = TESTS[name]
    summary = (test.work.__doc__ or "").splitlines()[0]
    return Burn(f"memory.{name}", summary, OWES, test.seconds, burn(name))


BURNS = tuple(_burn(name) for name in TESTS)
