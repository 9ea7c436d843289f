"""Kernel logs of every shape: dmesg, syslog, journalctl, /dev/kmsg, ftrace; plain or packed.

The bytes pass once through one search over whole chunks; only lines that hold a signature are
looked at. Repeats of one sign at one place within five seconds are one event with a count, so that
neither 87,000 equal lines nor a file of many gigabytes fills the memory.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from rackproof.harness.model import Event
from rackproof.harness.readers.apei import Blocks
from rackproof.harness.readers.entries import Layout, layout_of
from rackproof.harness.readers.kernel_shapes import LINE_LIMIT, hosts_of, likeness, says, speaks
from rackproof.harness.readers.marks import SPARSELY, kind_at
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Boot, Reader, Reading
from rackproof.harness.readers.search import (
    ALTERNATION,
    compiled,
    holds_literal,
    line_spans,
    newlines,
)
from rackproof.harness.readers.signatures import HOST, Sign, sign_of
from rackproof.harness.readers.source import Source
from rackproof.harness.readers.stamps import MINUTE, RELATIVE, YEAR, Stamped, month_of, parse

KIND = "kernel-log"
GAP = 5.0
BACKWARDS = 60.0  # more than processors' clocks can disagree: the machine was booted anew
NEW_YEAR = 31 * 86400.0
NEAR_LINES = 4
MOST_EVENTS, MOST_PER_KEY = 20_000, 500
_SHOWN = ("cause", "action", "unit", "severity", "register", "status", "link", "place", "mig",
          "stage", "device")  # fmt: skip
_STEP = re.compile(
    rb"^\[(?: {0,8}\+ {0,8}(\d{1,9}\.\d{3,9})|([A-Z][a-z]{2}) ?(\d{1,2}) (\d\d):(\d\d))\]",
    re.MULTILINE,
)


@dataclass(slots=True)
class _Open:
    """An event that may still grow."""

    sign: Sign
    host: str | None
    text: str
    clock: str
    boot: int
    first: float | None
    last: float | None
    line: int
    last_line: int
    count: int = 0


@dataclass(slots=True)
class _Log:
    """What was read so far."""

    events: list[_Open] = field(default_factory=list)
    open: dict[tuple[object, ...], _Open] = field(default_factory=dict)
    per_key: Counter[tuple[object, ...]] = field(default_factory=Counter)
    hosts: set[str] = field(default_factory=set)
    aliases: dict[str, str] = field(default_factory=dict)
    serials: dict[str, str] = field(default_factory=dict)
    uuids: dict[str, str] = field(default_factory=dict)
    ports: dict[tuple[str | None, str], _Open] = field(default_factory=dict)
    near: tuple[str, int] = ("", -NEAR_LINES)
    ident: str = ""
    boot: int = 0
    newest: float | None = None
    years: float = 0.0
    relative: float = 0.0
    minute: float | None = None
    dropped: int = 0
    blocks: Blocks = field(default_factory=Blocks)
    pending: tuple[Stamped, str, int] | None = None
    boots: dict[tuple[str, int], Boot] = field(default_factory=dict)
    carried: list[Event] = field(default_factory=list)
    spoken: bool = False

    def booted(self, found: Stamped, sign: Sign) -> None:
        """Note what a line tells of when its boot began: it has both clocks, or sets one."""
        at, clock, sure = found.at, found.clock, True
        epoch = sign.detail.get("epoch")
        if sign.code == "kernel.clock" and isinstance(epoch, int):
            if clock == "boot" and at is not None:
                at, clock = epoch - at, "epoch"
            else:
                return
        elif at is None or clock not in ("epoch", "calendar"):
            return
        elif found.uptime is not None:
            at -= found.uptime
        elif sign.code == "kernel.boot":
            sure = False
        else:
            return
        at += self.years if clock == "calendar" else 0.0
        key = (found.host or "", self.boot)
        known = self.boots.get(key)
        # A daemon writes early lines down late: the earliest beginning is the truest.
        if known is None or (sure, -at) > (known.sure, -known.at):
            self.boots[key] = Boot(*key, clock, at, sure)

    def clocked(self, found: Stamped) -> float | None:
        """Return the stamp's time, a year or a boot further where it jumped back."""
        at = found.at
        if found.shape == "relative":
            return self.relative
        if at is None:
            return None
        if found.clock == "calendar":
            at += self.years
            if self.newest is not None and at < self.newest - NEW_YEAR:
                self.years += YEAR
                at += YEAR
        elif found.clock == "boot" and self.newest is not None and at < self.newest - BACKWARDS:
            self.boot += 1
        self.newest = at
        return at

    def add(self, sign: Sign, found: Stamped, text: str, line: int) -> None:
        """Take a sign in: into an event that is going on, or as a new one."""
        at = self.clocked(found)
        if found.host:
            self.hosts.add(found.host)
        shown = tuple(sign.detail.get(k) for k in _SHOWN)
        key = (sign.code, sign.subject, found.host, self.boot, found.clock, *shown)
        going = self.open.get(key)
        near = going and (at is None or going.last is None or abs(at - going.last) <= GAP)
        if not (going and (near or self.per_key[key] >= MOST_PER_KEY)):
            if len(self.events) >= MOST_EVENTS:
                self.dropped += 1
                return
            clock = "relative" if found.shape == "relative" else found.clock
            going = _Open(sign, found.host, text, clock, self.boot, at, at, line, line)
            self.events.append(going)
            self.open[key] = going
            self.per_key[key] += 1
        count = sign.detail.get("count", 1)
        going.count += count if isinstance(count, int) else 1
        going.last, going.last_line = at, line
        if sign.code == "nic.down":
            self.ports[found.host, sign.subject] = going
        elif sign.code == "nic.up":
            self.ports.pop((found.host, sign.subject), None)

    def restart(self, found: Stamped, *, begins: bool) -> None:
        """Note that the machine stops or begins anew: ports that went down with it are no sign."""
        for going in self.ports.values():
            if going.count == 1:
                going.sign = replace(going.sign, code="nic.halted")
        self.ports.clear()
        self.open.clear()
        if begins:
            self.boot += self.newest is not None
            self.newest = None if found.clock == "boot" else self.newest

    def take(self, found: Stamped, line: int) -> None:
        """Look at one line of the kernel."""
        message = found.message.lstrip(" \t")
        sign = sign_of(message, traced=found.shape == "ftrace")
        if sign is None:
            self._block(found, message, line)
        if sign is None or not sign.code:
            return
        if sign.code in ("kernel.boot", "kernel.halt"):
            self.restart(found, begins=sign.code == "kernel.boot")
            self.clocked(found)
        self.booted(found, sign)
        if sign.code in ("kernel.boot", "kernel.halt", "kernel.clock"):
            return
        if sign.code == "nvrm.ident":
            self.ident = sign.subject
            self._carries("uuid", self.uuids, sign.uuid, line)
        elif sign.code == "nvrm.serial":
            if self.ident:
                self._carries("serial", self.serials, sign.serial, line)
        elif sign.code == "nvrm.named":
            self.near = (sign.subject, line)
        else:
            self._add_placed(sign, found, plain(message), line)

    def _carries(self, what: str, known: dict[str, str], name: str, line: int) -> None:
        """Note which GPU stands at an address from a line on, where another one stood before."""
        before = known.get(self.ident)
        known[self.ident] = name
        if before is None or before == name or len(self.carried) >= MOST_PER_KEY:
            return
        for number, carrier in ((0, before), (line, name)):
            detail: dict[str, str | int | float] = {what: carrier, "line": number}
            text = f"{what} {carrier}"
            self.carried.append(Event(self.ident, "nvrm.carries", text, None, "none", detail))

    def _block(self, found: Stamped, message: str, line: int) -> None:
        """Look at a line that may belong to one of the firmware's reports."""
        belongs, done = self.blocks.take(message)
        if done:
            self._finish(done)
        if belongs and self.pending is None:
            self.pending = (found, message, line)

    def _add_placed(self, sign: Sign, found: Stamped, text: str, line: int) -> None:
        """Add a sign; one without a place belongs to the device that was named just before."""
        if not sign.subject:
            subject = self.near[0] if line - self.near[1] <= NEAR_LINES else ""
            sign = Sign(sign.code, subject or HOST, sign.detail, sign.alias)
        if sign.alias:
            self.aliases[sign.alias] = sign.subject
        self.add(sign, found, text, line)

    def _finish(self, sign: Sign) -> None:
        if self.pending:
            found, text, line = self.pending
            self.add(sign, found, plain(f"{text} [{sign.code}]"), line)
        self.pending = None

    def end(self) -> None:
        """Close the block that the file ended in."""
        if done := self.blocks.finish():
            self._finish(done)


def _event(going: _Open, *, several: bool) -> Event:
    subject = going.sign.subject
    if subject == HOST:
        subject = f"host:{going.host}" if several and going.host else "host"
    elif several and going.host:
        subject = f"host:{going.host}/{subject}"
    detail = dict(going.sign.detail) | {"count": going.count, "line": going.line}
    if going.last_line != going.line:
        detail["last_line"] = going.last_line
    if going.last is not None:
        detail["last"] = going.last
    if going.boot:
        detail["boot"] = going.boot
    clock = going.clock or "none"
    return Event(subject, going.sign.code, going.text, going.first, clock, detail)


def _relative(log: _Log, chunk: bytes, start: int, end: int) -> None:
    """Move the clock of a log that writes only differences over `chunk[start:end]`."""
    for match in _STEP.finditer(chunk, start, end):
        if match[1]:
            log.relative += float(match[1])
            continue
        month = month_of(match[2].decode()) or 1
        at = ((month * 31 + int(match[3])) * 24 + int(match[4])) * 3600.0 + int(match[5]) * 60
        if log.minute is None:
            log.minute = at - log.relative
        log.relative = max(log.relative, at - log.minute)


def _lines(
    source: Source, log: _Log, layout: Layout | None, *, relative: bool
) -> Iterator[tuple[bytes, int]]:
    """Yield (line, its number) for each line with a signature; at the end (b"", lines in all)."""
    before, whole = 0, True
    chunks = layout.chunks(source.chunks()) if layout else source.chunks()
    for chunk in chunks:
        counted = moved = 0
        log.spoken = log.spoken or says(chunk)
        for start, end in line_spans(chunk, _SOUGHT):
            before += newlines(chunk, counted, start)
            counted = start
            if relative:
                _relative(log, chunk, moved, end)
                moved = end
            if layout is None:
                yield chunk[start : min(end, start + LINE_LIMIT)], before + 1
            elif layout.said in chunk[start:end]:
                yield layout.around(chunk, start, end), before + 1
        before += newlines(chunk, counted)
        if relative:
            _relative(log, chunk, moved, len(chunk))
        whole = chunk.endswith(b"\n")
    yield b"", before + (not whole)


def _take(source: Source, log: _Log, head: str) -> int:
    """Look at every line with a signature; return how many lines there are in all."""
    relative = bool(re.search(f"^(?:{RELATIVE.pattern}|{MINUTE.pattern})", head, re.MULTILINE))
    layout, lines = layout_of(source.head), 0
    taken = layout.parse if layout else parse
    for raw, number in _lines(source, log, layout, relative=relative):
        lines = number
        if raw and not layout and not holds_literal(raw):
            source.others = source.others or bool(kind_at(raw))
        elif raw:
            found = taken(raw.decode("utf-8", "replace").rstrip("\r\n"))
            if found.kernel:
                log.take(found, number)
    log.end()
    return lines


def read(source: Source) -> Reading:
    """Read a kernel log whole. Lines that are no text become replacement characters.

    A system's log in which the kernel says nothing tells nothing of hardware: it is unrecognised.
    """
    log = _Log(spoken=speaks(source.head))
    head = source.head.lstrip()[: 1 << 12].decode("utf-8", "replace")
    lines = _take(source, log, head)
    problems = list(source.problems)
    if not log.spoken and not log.events:
        problems.insert(0, "lines of a system's log, and none of them is the kernel's")
        return Reading(source.path, problems=tuple(problems), cut=source.cut, worked=False)
    if log.dropped:
        problems.append(f"{log.dropped} further events are not kept: more than {MOST_EVENTS}")
    several = len(log.hosts) > 1
    hosts = log.hosts or hosts_of(head)
    return Reading(
        source.path, KIND, lines, tuple(problems),
        (*(_event(e, several=several) for e in log.events), *log.carried),
        cut=source.cut, aliases=log.aliases, serials=log.serials, uuids=log.uuids,
        host=next(iter(hosts)) if len(hosts) == 1 else None,
        boots=tuple(log.boots.values()),
    )  # fmt: skip


_SOUGHT = compiled(ALTERNATION + b"|" + SPARSELY)
READER = Reader(KIND, "dmesg, kern.log, journalctl -k, /dev/kmsg, ftrace", likeness, read)
