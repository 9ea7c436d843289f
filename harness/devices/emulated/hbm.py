"""HBM that is sparse and exact: 288 GiB cost as much as the faults in them.

In: writes, verifies and marches of patterns over byte ranges, and planted faults. Out: what a
dense memory of the same size and faults would answer, word for word and count for count.

A Pattern is a pure function of address, so the memory is a list of (range, pattern), the cells
that faults touch (cells.py), and one window of 1 MiB for data that is no pure function. A call
costs O(ranges + cells), never O(bytes); `agreement` in patterns.py says where two different
patterns hold the same word, and the one case in which that is taken rather than computed.

Before the first write the memory holds a random pattern of its own: a burn that verifies what it
never wrote finds it wrong everywhere. ECC covers 64 + 8 bits (secded.py) and is on the read path.
Write order is ascending. Not modelled: refresh, retention and row hammer, parts of a word
(every access is of whole words), and scrubbing.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import merge

import numpy as np

from rackproof.harness.devices.emulated.cells import (
    Cells,
    Counters,
    Fault,
    Incident,
    Planted,
    addresses,
    check,
)
from rackproof.harness.devices.patterns import Words, agreement, check_range, word, words
from rackproof.harness.devices.patterns import check as check_pattern
from rackproof.harness.devices.protocol import Mismatch, Pattern, Verified

KEPT = 64  # mismatches that a Verified lists, as on a GPU
WINDOW = 1 << 20  # bytes of the dense window
UNWRITTEN = Pattern("random", seed=0x5EED_0000_0000_0000)


@dataclass(slots=True)
class Window:
    """Words that are no pure function, from byte address `lo` on."""

    lo: int
    content: Words

    @property
    def hi(self) -> int:
        """Return the byte address behind the last word."""
        return self.lo + 8 * len(self.content)

    def part(self, lo: int, hi: int) -> Words:
        """Return a view of the words of [lo, hi), which lies within."""
        return self.content[(lo - self.lo) // 8 : (hi - self.lo) // 8]


@dataclass(slots=True)
class Tally:
    """Mismatches of one pass as they are met: all counted, the first 64 kept."""

    count: int = 0
    first: list[Mismatch] = field(default_factory=list)


class Hbm:
    """One GPU's memory of `size` bytes, a multiple of 8."""

    def __init__(self, size: int, *, ecc: bool = True) -> None:
        """Begin unwritten and healthy."""
        check_range(0, size, size)
        self.size = size
        self._counters = Counters()
        self._cells = Cells(self._counters, ecc=ecc)
        self._special: list[int] = []  # addresses of the cells, ascending
        self._starts = [0]  # the range i is [starts[i], starts[i + 1]) and holds stored[i]
        self._stored = [UNWRITTEN]
        self._window: Window | None = None

    @property
    def corrected(self) -> int:
        """Return how many reads ECC corrected so far."""
        return self._counters.corrected

    @property
    def uncorrected(self) -> int:
        """Return how many reads ECC could not correct so far."""
        return self._counters.uncorrected

    @property
    def incidents(self) -> Sequence[Incident]:
        """Return the uncorrected reads in the order they happened, one entry a read."""
        return self._counters.incidents

    @property
    def planted(self) -> Sequence[Planted]:
        """Return the faults in place, in the order they were planted."""
        return self._cells.planted

    def plant(self, fault: Fault) -> Planted:
        """Put a fault in place; ValueError when it makes no sense in this memory."""
        check(fault)
        for address in addresses(fault):
            check_range(address, address + 8, self.size)
            if address not in self._cells.cells:
                self._cells.take(address, self._healthy(address))
                insort(self._special, address)
        return self._cells.plant(fault)

    def lift(self, planted: Planted) -> None:
        """Take a fault away again; ValueError when it is not in place."""
        self._cells.lift(planted)

    def write(self, lo: int, hi: int, pattern: Pattern) -> None:
        """Write `pattern` to [lo, hi), ascending; ValueError for a bad range or pattern."""
        self._check(lo, hi, pattern)
        self._lay(lo, hi, pattern)
        for address in self._specials(lo, hi):
            self._cells.store(address, word(pattern, address))

    def verify(self, lo: int, hi: int, pattern: Pattern) -> Verified:
        """Read [lo, hi) and compare it with `pattern`; ValueError for a bad range or pattern."""
        self._check(lo, hi, pattern)
        special = self._specials(lo, hi)
        tally = self._compare(lo, hi, pattern, up=True)
        wrong = [m for a in special if (m := self._differs(a, word(pattern, a)))]
        return _verified(lo, hi, tally, wrong, up=True)

    def march(self, lo: int, hi: int, up: bool, expect: Pattern, write: Pattern) -> Verified:  # noqa: FBT001 - the seam's signature
        """Read, compare and write word by word, `up` or down; `first` is in the order visited."""
        self._check(lo, hi, expect)
        self._check(lo, hi, write)
        special = self._specials(lo, hi)
        tally = self._compare(lo, hi, expect, up=up)
        self._lay(lo, hi, write)
        wrong = []
        for address in special if up else reversed(special):
            mismatch = self._differs(address, word(expect, address))
            if mismatch:
                wrong.append(mismatch)
            self._cells.store(address, word(write, address))
        return _verified(lo, hi, tally, wrong, up=up)

    def poke(self, address: int, content: bytes) -> None:
        """Write whole words of any content at `address`, within 1 MiB of other such content.

        The window begins at the MiB boundary below the first such write and ends when a pattern
        has covered it. ValueError when `content` does not fit in it.
        """
        check_range(address, address + len(content), self.size)
        if not content:
            return
        if self._window is None:
            lo = address - address % WINDOW
            self._window = Window(lo, self._dense(lo, min(lo + WINDOW, self.size)))
        window = self._window
        if address < window.lo or address + len(content) > window.hi:
            msg = f"[{window.lo:#x}, {window.hi:#x}) is the window for data that is no pattern"
            raise ValueError(msg)
        data = np.frombuffer(content, dtype="<u8")
        window.part(address, address + len(content))[:] = data
        for special in self._specials(address, address + len(content)):
            self._cells.store(special, int(data[(special - address) // 8]))

    def peek(self, address: int, n: int) -> bytes:
        """Read `n` bytes (whole words, at most 1 MiB) at `address`, through ECC."""
        check_range(address, address + n, self.size)
        if n > WINDOW:
            msg = f"{n} bytes are more than the {WINDOW} that one look may read"
            raise ValueError(msg)
        data = self._dense(address, address + n)
        for special in self._specials(address, address + n):
            data[(special - address) // 8] = self._cells.load(special)
        return data.astype("<u8").tobytes()

    def _check(self, lo: int, hi: int, pattern: Pattern) -> None:
        check_range(lo, hi, self.size)
        check_pattern(pattern)

    def _specials(self, lo: int, hi: int) -> list[int]:
        return self._special[bisect_left(self._special, lo) : bisect_left(self._special, hi)]

    def _differs(self, address: int, expected: int) -> Mismatch | None:
        actual = self._cells.load(address)
        return Mismatch(address, expected, actual) if actual != expected else None

    def _lay(self, lo: int, hi: int, pattern: Pattern) -> None:
        """Let [lo, hi) hold `pattern`, splitting ranges at its ends and joining equal ones."""
        if lo == hi:
            return
        window = self._window
        if window and lo < window.hi and hi > window.lo:
            if lo <= window.lo and hi >= window.hi:
                self._window = None
            else:
                part = max(lo, window.lo), min(hi, window.hi)
                window.part(*part)[:] = words(pattern, *part)
        i = bisect_left(self._starts, lo)
        j = bisect_right(self._starts, hi)
        behind = self._stored[j - 1]  # what [hi, …) holds, and goes on holding
        starts, stored = ([], []) if i and self._stored[i - 1] == pattern else ([lo], [pattern])
        if hi < self.size and behind != pattern:
            starts, stored = [*starts, hi], [*stored, behind]
        self._starts[i:j] = starts
        self._stored[i:j] = stored

    def _segments(self, lo: int, hi: int) -> Iterator[tuple[int, int, Pattern | Words]]:
        """Yield [lo, hi) in ascending pieces, each with its pattern, or the window's words."""
        window = self._window
        if window and lo < window.hi and hi > window.lo:
            yield from self._ranges(lo, max(lo, window.lo))
            part = max(lo, window.lo), min(hi, window.hi)
            yield *part, window.part(*part)
            lo = part[1]
        yield from self._ranges(lo, hi)

    def _ranges(self, lo: int, hi: int) -> Iterator[tuple[int, int, Pattern]]:
        i = bisect_right(self._starts, lo) - 1
        while lo < hi:
            end = min(hi, self._starts[i + 1]) if i + 1 < len(self._starts) else hi
            yield lo, end, self._stored[i]
            lo, i = end, i + 1

    def _healthy(self, address: int) -> int:
        """Return the word that a healthy cell at `address` would hold."""
        return int(self._dense(address, address + 8)[0])

    def _dense(self, lo: int, hi: int) -> Words:
        pieces = [
            words(content, start, end) if isinstance(content, Pattern) else content
            for start, end, content in self._segments(lo, hi)
        ]
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.uint64)

    def _compare(self, lo: int, hi: int, expect: Pattern, *, up: bool) -> Tally:
        """Compare the healthy words of [lo, hi) with `expect`."""
        tally = Tally()
        segments = list(self._segments(lo, hi))
        for start, end, content in segments if up else reversed(segments):
            if content is expect or (isinstance(content, Pattern) and content == expect):
                continue
            skip = set(self._specials(start, end))
            if isinstance(content, Pattern):
                _patterns_differ(tally, (start, end, content), (expect, skip), up=up)
            else:
                _words_differ(tally, (start, end, content), (expect, skip), up=up)
        return tally


def _patterns_differ(
    tally: Tally,
    stored: tuple[int, int, Pattern],
    wanted: tuple[Pattern, set[int]],
    *,
    up: bool,
) -> None:
    """Count a range's words that differ from the wanted pattern, but for the skipped ones."""
    start, end, content = stored
    expect, skip = wanted
    same = agreement(content, expect, start, end)
    if same.everywhere:
        return
    equal = skip | set(same.at)
    tally.count += (end - start) // 8 - len(equal)
    walk = range(start, end, 8) if up else range(end - 8, start - 8, -8)
    for address in walk:
        if len(tally.first) == KEPT:
            break
        if address not in equal:
            pair = word(expect, address), word(content, address)
            tally.first.append(Mismatch(address, *pair))


def _words_differ(
    tally: Tally, stored: tuple[int, int, Words], wanted: tuple[Pattern, set[int]], *, up: bool
) -> None:
    """Count a dense part's words that differ from the wanted pattern, but for the skipped ones."""
    start, end, content = stored
    expect, skip = wanted
    expected = words(expect, start, end)
    wrong = content != expected
    wrong[[(address - start) // 8 for address in skip]] = False
    at = np.flatnonzero(wrong)
    tally.count += len(at)
    for i in (at if up else at[::-1])[: KEPT - len(tally.first)]:
        tally.first.append(Mismatch(start + 8 * int(i), int(expected[i]), int(content[i])))


def _verified(lo: int, hi: int, tally: Tally, wrong: list[Mismatch], *, up: bool) -> Verified:
    """Join what healthy words and cells showed, both in the order visited."""
    first = list(merge(tally.first, wrong, key=lambda m: m.address, reverse=not up))[:KEPT]
    return Verified((hi - lo) // 8, tally.count + len(wrong), tuple(first))
