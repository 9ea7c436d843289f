"""Lines of the text exposition format, version 0.0.4: a sample with labels, value, time.

A label's value may hold blanks, commas, braces and escapes, so each line is walked once from left
to right. A line that is no sample gives None.
"""

from dataclasses import dataclass

LINE_LIMIT = 1 << 16
MOST_LABELS = 64
_ESCAPED = {"n": "\n", "\\": "\\", '"': '"'}
_BLANKS = " \t"


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample. `at` is in seconds since the epoch, where the line has a time."""

    name: str
    labels: dict[str, str]
    value: float
    at: float | None = None


def _quoted(line: str, start: int) -> tuple[str, int] | None:
    """Return (text, position behind the closing quote) of a quoted value that begins at `start`."""
    parts, at = [], start
    while True:
        end = line.find('"', at)
        if end < 0:
            return None
        slash = line.find("\\", at, end)
        if slash < 0:
            parts.append(line[at:end])
            return "".join(parts), end + 1
        parts += [line[at:slash], _ESCAPED.get(line[slash + 1 : slash + 2], "\\")]
        known = line[slash + 1 : slash + 2] in _ESCAPED
        at = slash + (2 if known else 1)


def _labels(line: str, at: int) -> tuple[dict[str, str], int] | None:
    """Return (labels, position behind the closing brace) for the text behind an opening brace."""
    found: dict[str, str] = {}
    while len(found) < MOST_LABELS:
        while at < len(line) and line[at] in " \t,":
            at += 1
        if line[at : at + 1] == "}":
            return found, at + 1
        equals = line.find("=", at)
        if equals < 0:
            return None
        name = line[at:equals].strip()
        at = equals + 1
        while at < len(line) and line[at] in _BLANKS:
            at += 1
        if line[at : at + 1] != '"' or not name.isidentifier():
            return None
        value = _quoted(line, at + 1)
        if value is None:
            return None
        found[name], at = value
    return None


def sample(line: str) -> Sample | None:
    """Return the sample of one line; None for a comment, a blank line, and what is none."""
    line = line.strip()
    if not line or line.startswith("#") or len(line) > LINE_LIMIT:
        return None
    brace = line.find("{")
    if brace >= 0:
        name, labelled = line[:brace].strip(), _labels(line, brace + 1)
        if labelled is None:
            return None
        labels, rest = labelled[0], line[labelled[1] :].split()
    else:
        words = line.split()
        name, labels, rest = words[0], {}, words[1:]
    if not name.replace(":", "_").isidentifier() or not 1 <= len(rest) <= 2:  # noqa: PLR2004
        return None
    try:
        value = float(rest[0])
        at = int(rest[1]) / 1000 if len(rest) > 1 else None
    except (ValueError, OverflowError):
        return None
    return Sample(name, labels, value, at)
