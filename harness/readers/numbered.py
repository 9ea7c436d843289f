"""Lines of interest of a log of any size, with their numbers: literals in, (line, number) out.

One alternation runs over whole chunks, so Python sees only the lines that hold a literal. An
endless line is handed on in parts of LINE_LIMIT bytes around the literals in it.
"""

import importlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.harness.readers.search import newlines
from rackproof.harness.readers.source import Source

LINE_LIMIT, BEFORE = 1 << 14, 1 << 9


def alternation(literals: Sequence[bytes]) -> Any:
    """Return a pattern that finds any of `literals`: RE2's where it is installed, else re's."""
    pattern = b"|".join(re.escape(literal) for literal in literals)
    try:
        return importlib.import_module("re2").compile(pattern)
    except ImportError:
        return re.compile(pattern)


def _spans(chunk: bytes, pattern: Any) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each line, or part of an endless one, that holds a literal.

    A carriage return ends a line as well: progress bars write nothing else. What follows a literal
    in its line is not searched again, unless it lies beyond LINE_LIMIT.
    """
    at = 0
    while (match := pattern.search(chunk, at)) is not None:
        found = match.start()
        start = max(chunk.rfind(b"\n", at, found), chunk.rfind(b"\r", at, found)) + 1 or at
        if found - start > LINE_LIMIT - BEFORE:
            start = found - BEFORE
        end = chunk.find(b"\n", found, start + LINE_LIMIT)
        end = min(start + LINE_LIMIT, len(chunk)) if end < 0 else end
        turned = chunk.find(b"\r", found, end)
        end = end if turned < 0 else turned
        yield start, end
        at = max(end, match.end())


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
                yield chunk[start:end].decode("utf-8", "replace"), self.total + 1
            self.total += newlines(chunk, counted)
            self.whole = chunk.endswith(b"\n")
        self.total += not self.whole
