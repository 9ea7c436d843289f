"""Entries that stand over several lines: journalctl -o export and -o verbose, dmesg --json.

A chunk and the place of a line with a signature come in; the whole entry around it goes out, and
taken apart it is a Stamped as every other line gives one. chunks() parts a file between entries.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rackproof.harness.readers.stamps import Stamped, journal, parse

MOST = 1 << 16  # bytes of an entry on each side of the line that was found
HOLD = 1 << 20
_FIELD = re.compile(r"^[ \t]{0,8}(_{0,2}[A-Z][A-Z0-9_]{0,63})=(.*)$", re.MULTILINE)
_STAMP = re.compile(r"^(\w{2,4} \d{4}-\d\d-\d\d [\d:.]{5,18}(?: \S{1,8})?) \[s=", re.MULTILINE)
_TIME = re.compile(r'"time" ?: {0,8}(\d{1,10}\.\d{1,9})')
_MESSAGE = re.compile(r'"msg" ?: ?("(?:[^"\\]|\\.)*+")')


def _fields(text: str) -> Stamped:
    """Take an entry of journalctl -o export or verbose apart."""
    fields: dict[str, str] = {}
    for match in _FIELD.finditer(text):
        fields.setdefault(match[1], match[2].rstrip("\r"))
    fields.setdefault("MESSAGE", "")
    if "__REALTIME_TIMESTAMP" not in fields and (dated := _STAMP.search(text)):
        stamp = parse(f"{dated[1]} ")
        if stamp.at is not None and stamp.at >= 0:
            fields["__REALTIME_TIMESTAMP"] = str(round(stamp.at * 1e6))
    return journal(dict(fields))


def _dmesg(text: str) -> Stamped:
    """Take an object of dmesg --json apart."""
    time, message = _TIME.search(text), _MESSAGE.search(text)
    try:
        said = str(json.loads(message[1])) if message else ""
    except ValueError:
        said = ""
    at = float(time[1]) if time else None
    return Stamped(said, at, "boot" if time else "", None, "kernel", "dmesg-json")


@dataclass(frozen=True, slots=True)
class Layout:
    """How entries lie in a file: what begins one, what stands between two, how one is read.

    `lead` stands at an entry's beginning, or in its first line where `inline`; `trail` ends it.
    """

    lead: bytes
    trail: bytes
    parse: Callable[[str], Stamped]
    inline: bool = False
    said: bytes = b"MESSAGE="

    def around(self, chunk: bytes, start: int, end: int) -> bytes:
        """Return the entry that the line ``chunk[start:end]`` belongs to."""
        low, high = max(0, start - MOST), end + MOST
        first = chunk.rfind(self.lead, low, start)
        first = low if first < 0 else first
        last = chunk.find(self.trail, end, high)
        last = min(high, len(chunk)) if last < 0 else last
        if self.inline:
            first = chunk.rfind(b"\n", low, first) + 1
            last = chunk.rfind(b"\n", end, last) if last < len(chunk) else last
            last = max(last, end)
        return chunk[first:last]

    def chunks(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the same bytes, in chunks that end between two entries where entries are short."""
        rest = b""
        for chunk in chunks:
            rest += chunk
            cut = rest.rfind(self.trail)
            cut = rest.rfind(b"\n", 0, max(cut, 0)) + 1 if self.inline else cut + len(self.trail)
            if cut >= len(self.trail):
                yield rest[:cut]
                rest = rest[cut:]
            elif len(rest) > HOLD:
                yield rest
                rest = b""
        if rest:
            yield rest


_LAYOUTS = (
    (re.compile(rb"\A\s{0,80}__(?:CURSOR|REALTIME_TIMESTAMP)=\S"),
     Layout(b"\n\n", b"\n\n", _fields)),
    (re.compile(rb"\A\s{0,80}(?:-- [^\n]{0,200}\n)?\w{2,4} \d{4}-\d\d-\d\d [^\n]{8,40} \[s="
                rb"[^\n]{1,200}\n[ \t]{2,8}\w"),
     Layout(b" [s=", b" [s=", _fields, inline=True)),
    (re.compile(rb'\A\s{0,80}\{\s{0,80}"dmesg" ?: ?\[\s{0,80}\{\s{0,80}\n'),
     Layout(b"{", b"}", _dmesg, said=b'"msg"')),
)  # fmt: skip


def layout_of(head: bytes) -> Layout | None:
    """Return the layout of a file of entries over several lines, None for one of plain lines."""
    return next((layout for mark, layout in _LAYOUTS if mark.search(head)), None)
