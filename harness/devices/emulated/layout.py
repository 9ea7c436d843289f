"""What the healthy words of an emulated HBM hold, without holding them.

In: patterns laid over ranges, words of any content, copies of ranges. Out: the segments of a range,
each a Pattern or an array of words. The memory is a list of ranges with a pattern each, and windows
of single words where the content is no pure function. A call costs O(ranges), never O(bytes).
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rackproof.harness.devices.patterns import Words, moved, words
from rackproof.harness.devices.protocol import Pattern

WINDOW = 1 << 20  # bytes of a window

Content = Pattern | Words
Segment = tuple[int, int, Content]


@dataclass(slots=True, eq=False)
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


class Layout:
    """The content of `size` bytes, which begin as `unwritten`."""

    def __init__(self, size: int, unwritten: Pattern) -> None:
        self.size = size
        self.starts = [0]  # the range i is [starts[i], starts[i + 1]) and holds stored[i]
        self._stored = [unwritten]
        self._windows: list[Window] = []  # apart from each other, ascending

    def lay(self, lo: int, hi: int, pattern: Pattern) -> None:
        """Let [lo, hi) hold `pattern`, splitting ranges at its ends and joining equal ones."""
        if lo == hi:
            return
        if self._windows:
            self._lay_over(lo, hi, pattern)
        i = bisect_left(self.starts, lo)
        j = bisect_right(self.starts, hi)
        behind = self._stored[j - 1]  # what [hi, …) holds, and goes on holding
        starts, stored = ([], []) if i and self._stored[i - 1] == pattern else ([lo], [pattern])
        if hi < self.size and behind != pattern:
            starts, stored = [*starts, hi], [*stored, behind]
        self.starts[i:j] = starts
        self._stored[i:j] = stored

    def _lay_over(self, lo: int, hi: int, pattern: Pattern) -> None:
        """End the windows that [lo, hi) covers, and write into those that it cuts."""
        left = []
        for window in self._windows:
            if lo <= window.lo and window.hi <= hi:
                continue
            part = max(lo, window.lo), min(hi, window.hi)
            if part[0] < part[1]:
                window.part(*part)[:] = words(pattern, *part)
            left.append(window)
        self._windows = left

    def put(self, lo: int, content: Words) -> None:
        """Let the words from `lo` on hold `content`, within 1 MiB of other such content.

        The window begins at the MiB boundary below the first such words and ends when a pattern
        has covered it. ValueError when `content` does not fit in it.
        """
        hi = lo + 8 * len(content)
        if not self._windows:
            begin = lo - lo % WINDOW
            self._windows = [Window(begin, self.dense(begin, min(begin + WINDOW, self.size)))]
        for window in self._windows:
            if window.lo <= lo and hi <= window.hi:
                window.part(lo, hi)[:] = content
                return
        window = self._windows[0]
        msg = f"[{window.lo:#x}, {window.hi:#x}) is the window for data that is no pattern"
        raise ValueError(msg)

    def copy(self, to: int, lo: int, hi: int) -> None:
        """Let [to, to + hi - lo) hold what [lo, hi) holds; the two are apart."""
        by = to - lo
        segments = list(self.segments(lo, hi))
        for start, end, content in segments:
            if isinstance(content, Pattern):
                self.lay(start + by, end + by, moved(content, by))
        for start, _, content in segments:
            if not isinstance(content, Pattern):
                self._place(start + by, content.copy())

    def _place(self, lo: int, content: Words) -> None:
        """Let the words from `lo` on be a window, joined with those that it meets."""
        fresh = Window(lo, content)
        met = [w for w in self._windows if w.lo <= fresh.hi and fresh.lo <= w.hi]
        left = [w.part(w.lo, fresh.lo) for w in met if w.lo < fresh.lo]
        right = [w.part(fresh.hi, w.hi) for w in met if w.hi > fresh.hi]
        joined = Window(min([lo, *(w.lo for w in met)]), np.concatenate([*left, content, *right]))
        apart = [w for w in self._windows if w not in met]
        self._windows = sorted([*apart, joined], key=lambda window: window.lo)

    def segments(self, lo: int, hi: int) -> Iterator[Segment]:
        """Yield [lo, hi) in ascending pieces, each with its pattern, or a window's words."""
        for window in self._windows:
            if lo < window.hi and hi > window.lo:
                yield from self._ranges(lo, max(lo, window.lo))
                part = max(lo, window.lo), min(hi, window.hi)
                yield *part, window.part(*part)
                lo = part[1]
        yield from self._ranges(lo, hi)

    def _ranges(self, lo: int, hi: int) -> Iterator[tuple[int, int, Pattern]]:
        i = bisect_right(self.starts, lo) - 1
        while lo < hi:
            end = min(hi, self.starts[i + 1]) if i + 1 < len(self.starts) else hi
            yield lo, end, self._stored[i]
            lo, i = end, i + 1

    def dense(self, lo: int, hi: int) -> Words:
        """Return the words of [lo, hi)."""
        pieces = [
            words(content, start, end) if isinstance(content, Pattern) else content
            for start, end, content in self.segments(lo, hi)
        ]
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.uint64)
