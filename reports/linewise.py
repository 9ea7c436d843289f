"""Reads a file of JSON lines that nobody vouches for. In: a path. Out: objects with their `kind`.

A line that is cut, too long, no JSON or no object is a problem with its number, and never an
exception.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LINE = 1 << 24  # bytes; the longest line that is read, a run line of a very large rack included
SHOWN = 20  # problems of one file that are told one by one


@dataclass(slots=True)
class Problems:
    """What was wrong with one file, the first of it in words and the rest counted."""

    name: str
    found: list[str] = field(default_factory=list)
    more: int = 0

    def add(self, what: str) -> None:
        """Add one, as in ``line 3: cut short``."""
        if len(self.found) < SHOWN:
            self.found.append(f"{self.name} {what}" if what[0] == "l" else f"{self.name}: {what}")
        else:
            self.more += 1

    def told(self) -> list[str]:
        """Return them in words."""
        rest = [f"{self.name}: and {self.more} more lines"] if self.more else []
        return [*self.found, *rest]


def _whole_lines(path: Path, problems: Problems) -> Iterator[tuple[int, bytes]]:
    """Yield (number, line) of a file; a line beyond LINE bytes is skipped and said."""
    try:
        with path.open("rb") as file:
            number = 0
            while raw := file.readline(LINE):
                number += 1
                if len(raw) < LINE or raw.endswith(b"\n"):
                    yield number, raw
                    continue
                problems.add(f"line {number}: longer than {LINE} bytes")
                while raw and not raw.endswith(b"\n"):
                    raw = file.readline(LINE)
    except OSError as error:
        problems.add(f"cannot be read ({error.strerror})")


def lines(path: Path, problems: Problems) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and object of each line that is a record line; the others are problems."""
    for number, raw in _whole_lines(path, problems):
        if raw.isspace():
            continue
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            cut = "cut short" if not raw.endswith(b"\n") else "unreadable"
            problems.add(f"line {number}: {cut}")
            continue
        if isinstance(body, dict) and isinstance(body.get("kind"), str):
            yield number, body
        else:
            problems.add(f"line {number}: not a record line")
