"""JSON as tools leave it: after a banner, one object after the other, or broken off in the middle.

Text comes in; every object that begins at the outermost level goes out, and whether the last one
was cut. What stands before a cut is kept: its open brackets are closed for it.
"""

import json
from dataclasses import dataclass, field
from typing import Any

MOST_OBJECTS = 100_000
REPAIRED = 4 << 20  # of a broken object so many characters are looked at, one by one
_CLOSERS = {"{": "}", "[": "]"}


@dataclass(frozen=True, slots=True)
class Objects:
    """The values found; `cut` is True where one was broken off or there were too many."""

    values: list[Any] = field(default_factory=list)
    cut: bool = False


@dataclass(slots=True)
class _Scan:
    """A walk over a broken value: what is open, and the last place where a value was whole."""

    open: list[str] = field(default_factory=list)
    safe: int = 0
    closers: str = ""

    def mark(self, at: int) -> None:
        """Remember that the text up to `at`, closed, is whole."""
        self.safe = at
        self.closers = "".join(_CLOSERS[c] for c in reversed(self.open))


def _string_end(text: str, at: int) -> int:
    """Return the place after the string that begins at `at`, or -1."""
    at += 1
    while (quote := text.find('"', at)) >= 0:
        backslash = text.find("\\", at, quote)
        if backslash < 0:
            return quote + 1
        at = backslash + 2
    return -1


def _repaired(text: str, deepest: int = 200) -> tuple[Any, bool]:
    """Return the broken value that `text` begins with, closed, and whether there is one."""
    scan, at = _Scan(), 0
    while at < len(text) and len(scan.open) <= deepest:
        c = text[at]
        if c == '"':
            at = _string_end(text, at)
            if at < 0:
                break
            continue
        if c in "{[":
            scan.open.append(c)
            scan.mark(at + 1)
        elif c == "," and scan.open:
            scan.mark(at)
        elif c in "}]":
            if not scan.open or _CLOSERS[scan.open.pop()] != c:
                break
            scan.mark(at + 1)
        at += 1
    try:
        return json.loads(text[: scan.safe] + scan.closers), True
    except (ValueError, RecursionError):
        return None, False


def _decoded(text: str, at: int) -> tuple[Any, int] | None:
    try:
        return json.JSONDecoder().raw_decode(text, at)
    except (ValueError, RecursionError):
        return None


def objects(text: str) -> Objects:
    """Return every object of `text`, in order; what stands between them is passed over.

    A broken one is left out where another begins on a line of its own and is whole, as in a log of
    one object a line; else it is the last, and what stands of it is kept.
    """
    values: list[Any] = []
    cut, at = False, text.find("{")
    while at >= 0 and len(values) < MOST_OBJECTS:
        found = _decoded(text, at)
        if found is None:
            cut = True
            following = text.find("\n{", at) + 1
            found = _decoded(text, following) if following else None
        if found is None:
            value, kept = _repaired(text[at : at + REPAIRED])
            return Objects([*values, value] if kept else values, cut=True)
        values.append(found[0])
        at = text.find("{", found[1])
    return Objects(values, cut=cut or at >= 0)
