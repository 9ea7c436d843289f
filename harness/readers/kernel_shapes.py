"""How much the first lines of a file look like a kernel's log, and whether the kernel speaks in it.

By shape, tag and signature. A log of the whole system has its lines' shape alone (date host tag:):
it is a kernel's where the kernel says anything in it, be that after a thousand other lines.
"""

import re
from collections.abc import Iterator
from itertools import islice

from rackproof.harness.readers.entries import layout_of
from rackproof.harness.readers.search import holds_literal
from rackproof.harness.readers.signatures import sign_of
from rackproof.harness.readers.stamps import Stamped, parse

LINE_LIMIT = 1 << 16
HEAD_LINES, FEW_LINES, LIKE_LINES = 20, 40, 400
WEAK, SOME, STRONG, MOSTLY = 0.06, 0.1, 0.3, 0.5
_MICROSECONDS = re.compile(rb"[^\[]{0,300}\[ {0,12}\+?\d{1,9}\.\d{6}\W")  # six digits: no Xorg log
_TAG = re.compile(rb"^[^\n]{8,300}? kernel(?:\[\d{1,10}\])?: [^\n]{0,200}", re.MULTILINE)
_HOSTED = frozenset(("iso", "syslog", "unix", "journal-json"))  # after an uptime stands no host
_SHAPES = frozenset(("kmsg", "human", "journal-json", "ftrace", "dmesg-json"))
_OWN = frozenset(("uptime", "relative", "human", "kmsg", "ftrace"))  # dmesg's own stamps
_SAYS = (b" kernel: ", b" kernel[", b'"kernel"', b"=kernel\n", b" kernel - ")


def _parsed(raw: bytes) -> Stamped:
    return parse(raw[:LINE_LIMIT].decode("utf-8", "replace"))


def hosts_of(head: str) -> set[str]:
    """Return the hosts that the first lines name: a quiet log is some machine's, too."""
    found = (parse(line) for line in head.splitlines()[:HEAD_LINES])
    return {line.host for line in found if line.host and line.shape in _HOSTED}


def speaks(head: bytes) -> bool:
    """Whether the kernel itself says something in the first lines."""
    if layout_of(head) is not None:
        return says(head)
    found = (_parsed(line) for line in head.splitlines()[:FEW_LINES])
    return any(line.tag == "kernel" or line.shape in _OWN or (line.shape and not line.tag)
               for line in found)  # fmt: skip


def _around(chunk: bytes, word: bytes) -> Iterator[bytes]:
    at = chunk.find(word)
    while at >= 0:
        end = chunk.find(b"\n", at)
        yield chunk[chunk.rfind(b"\n", 0, at) + 1 : len(chunk) if end < 0 else end]
        at = chunk.find(word, len(chunk) if end < 0 else end)


def says(chunk: bytes) -> bool:
    """Whether one of the first lines of `chunk` that look so is the kernel's by its tag."""
    lines = (line for word in _SAYS for line in islice(_around(chunk, word), LIKE_LINES))
    return any(b"=kernel" in line or _parsed(line).tag == "kernel" for line in lines)


def _kernel_within(head: bytes) -> bool:
    """Whether a log of the whole system, in which the kernel speaks now and then, begins so."""
    found = (_parsed(match[0]) for match in _TAG.finditer(head[: 1 << 17]))
    return any(line.tag == "kernel" and line.host and line.shape for line in found)


def likeness(head: bytes) -> float:
    """Return in 0..1 how much the first lines look like a kernel's: by shape, tag and signature."""
    if layout_of(head) is not None:
        return 0.9 if b"=kernel" in head or b'"dmesg"' in head[:99] else WEAK
    lines = [line for line in head.splitlines()[:LIKE_LINES] if line.strip()]
    votes, system, strong = 0, 0, False
    for raw in lines:
        found = _parsed(raw)
        said = (
            found.kernel and holds_literal(raw)
            and sign_of(found.message, traced=found.shape == "ftrace") is not None
        )  # fmt: skip
        uptime = found.shape in ("uptime", "relative") and bool(_MICROSECONDS.match(raw[:340]))
        votes += said or found.tag == "kernel" or found.shape in _SHAPES or uptime
        system += bool(found.shape in _HOSTED and found.host and found.tag)
        strong |= said
    share = votes / max(1, len(lines))
    if share >= STRONG:
        return share
    if strong or _kernel_within(head):
        return max(share, STRONG if strong else SOME)
    return max(share, WEAK if system >= MOSTLY * max(1, len(lines)) else 0.0)
