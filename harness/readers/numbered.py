"""Lines of interest of a log of any size, with their numbers: literals in, (line, number) out.

One alternation runs over whole chunks, so Python sees only the lines that hold a literal. A line
is handed on up to LINE_LIMIT bytes, so that a file of one endless line costs no more.
"""

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.harness.readers.search import newlines
from rackproof.harness.readers.source import Source

LINE_LIMIT = 1 << 15


def alternation(literals: Sequence[bytes]) -> Any:
    """Return a pattern that finds any of `literals`: RE2's where it is installed, else re's."""
    pattern = b"|".join(re.escape(literal) for literal in literals)
    try:
        return importlib.import_module("re2").compile(pattern)
    except ImportError:
        return re.compile(pattern)


def _spans(chunk: bytes, pattern: Any) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each line that holds a literal; what follows in the line is skipped.

    In these logs most lines of interest hold many literals, so one search a line is the faster way.
    """
    at = 0
    while (match := pattern.search(chunk, at)) is not None:
        start = chunk.rfind(b"\n", at, match.start()) + 1 or at
        end = chunk.find(b"\n", match.start())
        if end < 0:
            yield start, len(chunk)
            return
        yield start, end
        at = end + 1


@dataclass(slots=True)
class Numbered:
    """The lines of `source` that hold a literal of `pattern`; `total` counts all lines read."""

    source: Source
    pattern: Any
    total: int = 0
    whole: bool = True

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """Yield (line without its end, number from 1)."""
        for chunk in self.source.chunks():
            counted = 0
            for start, end in _spans(chunk, self.pattern):
                self.total += newlines(chunk, counted, start)
                counted = start
                raw = chunk[start : min(end, start + LINE_LIMIT)]
                yield raw.decode("utf-8", "replace").rstrip("\r"), self.total + 1
            self.total += newlines(chunk, counted)
            self.whole = chunk.endswith(b"\n")
        self.total += not self.whole
