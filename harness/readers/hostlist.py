"""Slurm's lists of hosts, such as ``gpu[001-003,7],login1``: written out, within bounds.

A list may name more hosts than fit into memory: past a bound the rest is counted, never made.
"""

import re

_PART = re.compile(r"([A-Za-z][\w.\-]{0,63})(?:\[([0-9,\-]{1,2000})\]([\w.\-]{0,32}))?\Z", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?\Z", re.ASCII)
MOST = 2048


def _split(text: str) -> list[str]:
    """Split at commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text):
        depth += (char == "[") - (char == "]")
        if char == "," and depth <= 0:
            parts.append(text[start:i])
            start = i + 1
    return [*parts, text[start:]]


def hosts(text: str) -> tuple[list[str], int]:
    """Return the first MOST hosts of a list, and how many more it names; no list gives ([], 0)."""
    found: list[str] = []
    more = 0
    for part in _split(text.strip()[:20_000]):
        match = _PART.match(part)
        if match is None:
            return [], 0
        if match[2] is None:
            found.append(match[1])
            continue
        for piece in match[2].split(","):
            span = _RANGE.match(piece)
            if span is None:
                return [], 0
            first, last = int(span[1]), int(span[2] or span[1])
            take = max(0, min(last - first + 1, MOST - len(found)))
            more += max(0, last - first + 1 - take)
            width = len(span[1])
            tail = match[3] or ""
            found += [f"{match[1]}{n:0{width}d}{tail}" for n in range(first, first + take)]
    return found[:MOST], more + max(0, len(found) - MOST)
