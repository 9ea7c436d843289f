"""The memory half of a data plane that runs kernels/memory.cu, whatever runs the kernels.

In: byte ranges over a claimed memory that may lie in several chunks. Out: kernel launches, one or
more a chunk, and their findings as Verified. CupyPlane launches on a GPU and HostPlane on host
memory, so CI runs this code and these kernels without a GPU.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rackproof.harness.devices.patterns import (
    Words,
    check,
    check_copy,
    check_range,
    check_steps,
    numbers,
)
from rackproof.harness.devices.protocol import Mismatch, Pattern, Verified
from rackproof.harness.errors import DeviceError

KERNELS = Path(__file__).parent / "kernels"
KEPT = 64  # mismatches that the kernels keep, as in memory.cu
FOUND_WORDS = 2 + 3 * KEPT
THREADS = 256  # of one block
SECTOR_WORDS = 4


@dataclass(frozen=True, slots=True)
class Chunk:
    """One contiguous allocation: where it begins in the memory under test, its bytes, a pointer."""

    base: int
    size: int
    pointer: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one chunk: its first byte address in the memory under test, a pointer, words."""

    address: int
    pointer: int
    words: int


class KernelPlane(ABC):
    """`write`, `verify`, `march` and `copy` over chunks; a subclass owns the memory."""

    def __init__(self) -> None:
        self._chunks: Sequence[Chunk] = ()

    @property
    @abstractmethod
    def blocks(self) -> int:
        """Return the blocks of 256 threads that fill the device."""

    @abstractmethod
    def _launch(self, kernel: str, arguments: Sequence[int]) -> None:
        """Run one kernel over the grid; all arguments are 64-bit."""

    @abstractmethod
    def _settle(self) -> None:
        """Wait for the kernels, and see to it that what they wrote has left the caches."""

    @abstractmethod
    def _begin_finding(self) -> int:
        """Clear the buffer of findings and return its pointer."""

    @abstractmethod
    def _found(self) -> Words:
        """Return the buffer of findings, FOUND_WORDS words: count, slots taken, triples."""

    @property
    def size(self) -> int:
        """Return the bytes that are claimed."""
        return sum(chunk.size for chunk in self._chunks)

    def write(self, lo: int, hi: int, pattern: Pattern) -> None:
        """Write `pattern` to [lo, hi); ValueError for a bad range or pattern."""
        for piece in self._pieces(lo, hi, pattern):
            where = piece.pointer, piece.address, piece.words
            self._launch("fill", (*where, *numbers(pattern)))
        self._settle()

    def verify(self, lo: int, hi: int, pattern: Pattern) -> Verified:
        """Compare [lo, hi) with `pattern`; above 64 mismatches, `first` is any 64 of them."""
        pieces = list(self._pieces(lo, hi, pattern))
        found = self._begin_finding()
        for piece in pieces:
            where = piece.pointer, piece.address, piece.words
            self._launch("verify", (*where, *numbers(pattern), found))
        return self._verified(lo, hi)

    def march(self, lo: int, hi: int, up: bool, expect: Pattern, write: Pattern) -> Verified:  # noqa: FBT001 - the seam's signature
        """Read, compare and write in address order inside each thread's chunk of words."""
        check(write)
        pieces = list(self._pieces(lo, hi, expect))
        found = self._begin_finding()
        threads = self.blocks * THREADS
        for piece in pieces if up else reversed(pieces):
            share = -(-piece.words // threads)
            share += -share % SECTOR_WORDS
            where = piece.pointer, piece.address, piece.words, share, int(up)
            self._launch("march", (*where, *numbers(expect), *numbers(write), found))
        verified = self._verified(lo, hi)
        self._settle()
        return verified

    def copy(self, to: int, lo: int, hi: int) -> None:
        """Copy [lo, hi) to byte address `to`: the reference rate.

        Everything in steps of 32 bytes; ValueError for other ranges and for an overlap.
        """
        self._claimed()
        check_steps(to, lo, hi)
        check_copy(to, lo, hi, self.size)
        for source in self._spans(lo, hi):
            begin = to + source.address - lo
            pointer = source.pointer
            for target in self._spans(begin, begin + 8 * source.words):
                if (target.pointer | pointer) % (8 * SECTOR_WORDS):
                    msg = f"a copy of [{lo:#x}, {hi:#x}) to {to:#x} is not in steps of 32 bytes"
                    raise ValueError(msg)
                self._launch("copy", (target.pointer, pointer, target.words))
                pointer += 8 * target.words
        self._settle()

    def _pieces(self, lo: int, hi: int, pattern: Pattern) -> Iterator[Piece]:
        check(pattern)
        self._claimed()
        check_range(lo, hi, self.size)
        yield from self._spans(lo, hi)

    def _claimed(self) -> None:
        if not self._chunks:
            msg = "no memory is claimed"
            raise DeviceError(msg)

    def _spans(self, lo: int, hi: int) -> Iterator[Piece]:
        """Yield the parts of [lo, hi) by chunk, ascending; each is aligned for the kernels.

        The kernels want 32 bytes: what leads up to the first such boundary is a piece of its own,
        of at most 3 words, done by single words.
        """
        for chunk in self._chunks:
            begin, end = max(lo, chunk.base), min(hi, chunk.base + chunk.size)
            while begin < end:
                pointer = chunk.pointer + begin - chunk.base
                odd = -pointer % (8 * SECTOR_WORDS)
                stop = min(end, begin + 8) if odd else end
                yield Piece(begin, pointer, (stop - begin) // 8)
                begin = stop

    def _verified(self, lo: int, hi: int) -> Verified:
        found = [int(word) for word in self._found()]
        kept = [found[2 + 3 * i : 5 + 3 * i] for i in range(min(found[1], KEPT))]
        first = tuple(Mismatch(*triple) for triple in sorted(kept))
        return Verified((hi - lo) // 8, found[0], first)
