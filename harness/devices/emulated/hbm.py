"""HBM that is sparse and exact: 288 GiB cost as much as the faults in them.

In: writes, verifies, marches and copies of patterns over byte ranges, time that passes, and planted
faults. Out: what a dense memory of the same size and faults would answer, word for word and count
for count.

A Pattern is a pure function of address, so the memory is a list of (range, pattern) and windows for
data that is no pure function (layout.py), and the cells that faults touch (cells.py). A call costs
O(ranges + cells), never O(bytes); agreement.py says where two different patterns hold the same
word, and the one case in which that is taken rather than computed. A copy of a faulty word carries
what was read of it: its goal becomes a cell of its own until a pattern is written over it.

Before the first write the memory holds a random pattern of its own: a burn that verifies what it
never wrote finds it wrong everywhere. ECC covers 64 + 8 bits (secded.py) and is on the read path.
Writes and copies go up. Not modelled: refresh and row hammer, parts of a word (every access is of
whole words), and scrubbing.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import merge

import numpy as np

from rackproof.harness.devices.agreement import agreement
from rackproof.harness.devices.emulated.cells import (
    Cells,
    Counters,
    Fault,
    Incident,
    Planted,
    addresses,
    check,
)
from rackproof.harness.devices.emulated.layout import WINDOW, Layout
from rackproof.harness.devices.patterns import Words, check_copy, check_range, moved, word, words
from rackproof.harness.devices.patterns import check as check_pattern
from rackproof.harness.devices.protocol import Mismatch, Pattern, Verified

KEPT = 64  # mismatches that a Verified lists, as on a GPU
UNWRITTEN = Pattern("random", seed=0x5EED_0000_0000_0000)


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
        self._layout = Layout(size, UNWRITTEN)

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
                self._take(address, int(self._layout.dense(address, address + 8)[0]))
        return self._cells.plant(fault)

    def lift(self, planted: Planted) -> None:
        """Take a fault away again; ValueError when it is not in place."""
        self._cells.lift(planted)

    def write(self, lo: int, hi: int, pattern: Pattern) -> None:
        """Write `pattern` to [lo, hi), ascending; ValueError for a bad range or pattern."""
        pattern = self._check(lo, hi, pattern)
        self._layout.lay(lo, hi, pattern)
        for address in self._specials(lo, hi):
            self._store(address, word(pattern, address))

    def verify(self, lo: int, hi: int, pattern: Pattern) -> Verified:
        """Read [lo, hi) and compare it with `pattern`; ValueError for a bad range or pattern."""
        pattern = self._check(lo, hi, pattern)
        special = self._specials(lo, hi)
        tally = self._compare(lo, hi, pattern, up=True)
        wrong = [m for a in special if (m := self._differs(a, word(pattern, a)))]
        return _verified(lo, hi, tally, wrong, up=True)

    def march(self, lo: int, hi: int, up: bool, expect: Pattern, write: Pattern) -> Verified:  # noqa: FBT001 - the seam's signature
        """Read, compare and write word by word, `up` or down; `first` is in the order visited."""
        expect, write = self._check(lo, hi, expect), self._check(lo, hi, write)
        special = self._specials(lo, hi)
        tally = self._compare(lo, hi, expect, up=up)
        self._layout.lay(lo, hi, write)
        wrong = []
        for address in special if up else reversed(special):
            mismatch = self._differs(address, word(expect, address))
            if mismatch:
                wrong.append(mismatch)
            self._store(address, word(write, address))
        return _verified(lo, hi, tally, wrong, up=up)

    def copy(self, to: int, lo: int, hi: int) -> None:
        """Read [lo, hi) and write it to `to`, word by word, ascending.

        ValueError for a bad range, or one that overlaps its copy.
        """
        check_copy(to, lo, hi, self.size)
        by = to - lo
        sources = self._specials(lo, hi)
        goals = [address - by for address in self._specials(to, to + hi - lo)]
        # What the words between cells carry is read before anything is written over.
        plain = {a: int(self._layout.dense(a, a + 8)[0]) for a in {*sources, *goals}}
        self._layout.copy(to, lo, hi)
        for address in sorted(plain):
            loaded = self._cells.load(address) if address in self._cells.cells else plain[address]
            if address + by in self._cells.cells:
                self._store(address + by, loaded, laid=loaded == plain[address])
            elif loaded != plain[address]:
                self._take(address + by, loaded)

    def rest(self, seconds: float) -> None:
        """Let time pass without an access."""
        self._cells.rest(seconds)

    def poke(self, address: int, content: bytes) -> None:
        """Write whole words of any content at `address`, within 1 MiB of other such content.

        The window begins at the MiB boundary below the first such write and ends when a pattern
        has covered it. ValueError when `content` does not fit in it.
        """
        check_range(address, address + len(content), self.size)
        if not content:
            return
        data = np.frombuffer(content, dtype="<u8")
        self._layout.put(address, data)
        for special in self._specials(address, address + len(content)):
            self._store(special, int(data[(special - address) // 8]))

    def peek(self, address: int, n: int) -> bytes:
        """Read `n` bytes (whole words, at most 1 MiB) at `address`, through ECC."""
        check_range(address, address + n, self.size)
        if n > WINDOW:
            msg = f"{n} bytes are more than the {WINDOW} that one look may read"
            raise ValueError(msg)
        data = self._layout.dense(address, address + n)
        for special in self._specials(address, address + n):
            data[(special - address) // 8] = self._cells.load(special)
        return data.astype("<u8").tobytes()

    def _check(self, lo: int, hi: int, pattern: Pattern) -> Pattern:
        """Return the pattern in its plain form."""
        check_range(lo, hi, self.size)
        check_pattern(pattern)
        return moved(pattern, 0) if pattern.origin else pattern

    def _specials(self, lo: int, hi: int) -> list[int]:
        return self._special[bisect_left(self._special, lo) : bisect_left(self._special, hi)]

    def _take(self, address: int, data: int) -> None:
        self._cells.take(address, data)
        insort(self._special, address)

    def _store(self, address: int, data: int, *, laid: bool = True) -> None:
        """Write a word of the cells; `laid` says that the layout holds it there as well.

        A cell that is healthy is one no longer then.
        """
        if laid and self._cells.healthy(address):
            self._cells.drop(address)
            del self._special[bisect_left(self._special, address)]
        else:
            self._cells.store(address, data)

    def _differs(self, address: int, expected: int) -> Mismatch | None:
        actual = self._cells.load(address)
        return Mismatch(address, expected, actual) if actual != expected else None

    def _compare(self, lo: int, hi: int, expect: Pattern, *, up: bool) -> Tally:
        """Compare the healthy words of [lo, hi) with `expect`."""
        tally = Tally()
        segments = list(self._layout.segments(lo, hi))
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
    tally.count += (end - start) // 8 - len(same) - sum(a not in same for a in skip)
    if len(tally.first) == KEPT:
        return
    for address in same.outside(up=up):
        if address not in skip:
            pair = word(expect, address), word(content, address)
            tally.first.append(Mismatch(address, *pair))
            if len(tally.first) == KEPT:
                return


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
