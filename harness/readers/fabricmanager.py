"""The fabric manager's log: NVSwitches, links that do not train, partitions, and switch trays' NMX.

It comes as /var/log/fabricmanager.log, from the journal with dates in any language, from a switch
tray (NMX-C, the global fabric manager) or from IMEX, which writes in the same shape. An NVSwitch's
error is the same ``sxid.N`` event as in the kernel's log. ``Nothing to do`` is what it says on a
machine without NVSwitches, before systemd calls that a failure.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.numbered import Numbered, alternation
from rackproof.harness.readers.places import ADDRESS, pci, plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.source import Source
from rackproof.harness.readers.stamps import month_of, parse

KIND = "fabricmanager"
MOST_EVENTS = 5000
BLOCK_LINES = 24
_PATTERN = alternation(
    [b"ERROR", b"CRITICAL", b"FATAL", b"WARN", b"atal error", b"fail", b"Fail", b"FAIL", b"match",
     b"Nothing to do", b"egraded", b"DEGRADED", b"isabl", b"xclud", b"NMX_", b"IMEX", b"imex",
     b"Domain State", b"connect", b"Successfully configured", b"moduleId", b"nodeId", b"gpuGuid",
     b"portNum", b"errorCode", b"errorSubcode", b"NVSwitches", b"topology is based",
     b"physical id"]
)  # fmt: skip
_OWN = re.compile(
    r"\[([A-Z][a-z]{2}) {1,2}(\d{1,2}) (\d{4}) (\d\d):(\d\d):(\d\d)\] (?:\[([A-Z]{4,8})\] ?)"
    r"(?:\[tid \d{1,10}\] ?)?"
)
_TAG = re.compile(
    r"(?:\A|\s)(nv-fabricmanager|nvidia-fabricmanager[\w.\-]{0,24}|nvidia-imex[\w.\-]{0,16}|nv-imex)"
    r"(?:\[\d{1,10}\])?: "
)
_SERVICE = re.compile(r"systemd\[\d{1,10}\]: (nvidia-(?:fabricmanager|imex)\.service): ?")
_SWITCH = re.compile(
    r"detected NVSwitch (fatal|non-?fatal) error (\d{1,6})\b"
    r"(?:.{0,80}?\bpci(?: bus id)?[: ]{1,3}("
    + ADDRESS
    + r"))?(?:.{0,40}?\bport[: ]{1,2}(\d{1,3})\b)?",
    re.IGNORECASE,
)
_GPU_LINK = re.compile(
    r"detected (?:GPU )?(?:NVLink|NVL) (fatal|non-?fatal) error on GPU\b", re.IGNORECASE
)
_PHYSICAL = re.compile(
    r"\bGPU physical id[: ]{1,2}(\d{1,3})\b(?:(?!NVSwitch).){0,80}?\bpci(?: bus id)?[: ]{1,3}("
    + ADDRESS
    + r")",
    re.IGNORECASE,
)
_UUID = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
# What only a machine with NVSwitches says, whatever the service says later.
_HAS_SWITCHES = re.compile(
    r"topology is based on|Successfully configured|detected NVSwitch|NVSwitch physical id"
    r"|[Nn]umber of NVSwitch\w{0,4}[^\d]{1,30}[1-9]"
)
_GPU_BLOCK = re.compile(
    r"Fabric Manager detected (stale )?GPU NVL (Non[ -]?Fatal|Fatal) error", re.IGNORECASE
)
_FIELD = re.compile(r"([A-Za-z]\w{1,32}) {0,4}: {0,4}(0x[0-9A-Fa-f]{1,16}|\d{1,10})")
_GPU = re.compile(
    r"\bGPU\b(?:(?!NVSwitch).){0,90}?\b(?:pci bus id|pci|bus id)[: ]{1,3}(" + ADDRESS + r")",
    re.IGNORECASE,
)
_INDEX = re.compile(r"\bGPU (?:(?:index|physical id|id)[: ]{1,2})?(\d{1,3})\b", re.IGNORECASE)
_PORT = re.compile(
    r"\b(?:port|link)(?: (?:num|number|index|id))?[: ]{1,2}(\d{1,3})\b", re.IGNORECASE
)
_TRAINING = re.compile(
    r"\b(?:NV)?Link.{0,60}\b(?:train\w{0,4}|initializ\w{1,6}).{0,40}\bfail|"
    r"\bfail\w{0,3}.{0,40}\b(?:train|initialize)\w{0,4}.{0,40}\b(?:NV)?Link|"
    r"\b(?:NV)?Links?\b.{0,40}\b(?:are|is|was|were)? ?not trained",
    re.IGNORECASE,
)
_DEGRADED = re.compile(
    r"\bdegraded\b|\bis (?:disabled|excluded)\b"
    r"|\b(?:disabling|excluding) (?:GPU|NVSwitch|partition)"
    r"|\bNMX_\w{0,40}HEALTH_(?!HEALTHY|UNKNOWN)[A-Z_]{3,40}|Domain State: (?:DEGRADED|DOWN)",
    re.IGNORECASE,
)
_NO_DEGRADED = re.compile(
    r"\b(?:no|not|zero|without)\b.{0,30}degraded"
    r"|\b0 (?:\w{2,12}s (?:are )?)?degraded"
    r"|degraded\w{0,8} ?(?:mode)?[=:] ?(?:0|none|no)\b"
    r"|degraded.{0,40}\b(?:count|number)\w{0,4}[=: ]{1,3}0\b|failure mode|_MODE=",
    re.IGNORECASE,
)
_PLAIN: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("fm.nothing", re.compile(r"NV_WARN_NOTHING_TO_DO|Nothing to do")),
    ("fm.topology", re.compile(r"don'?t match with any supported system topology|"
                               r"No NVSwitches detected|number of NVSwitches .{0,40}mismatch")),
    ("fm.version", re.compile(r"interface version .{0,60}(?:don'?t|doesn'?t|does not|not) match|"
                              r"driver version mismatch", re.IGNORECASE)),
    ("fm.handle", re.compile(r"failed to find the GPU handle")),
    ("fm.trunk", re.compile(r"Trunk port failure detected|Detected a trunk link failure")),
    ("fm.imex", re.compile(r"\bIMEX\b.{0,80}\b(?:unavailable|disconnected|lost|failed|timed out)|"
                           r"\b(?:lost|failed to) connect\w{0,4}.{0,60}\bnode\b", re.IGNORECASE)),
)  # fmt: skip
_PLACED = frozenset(("fm.training", "fm.degraded", "fm.gpu.fatal", "fm.gpu.nonfatal"))
_LOUD = frozenset(("ERROR", "CRITICAL", "FATAL"))
_FAILED = re.compile(r"(?:Failed with result|status=\d{1,3}/FAILURE|Failed to start)|failed! Exit")
_GOOD = re.compile(r"Successfully configured all the available")


@dataclass(slots=True)
class _Told:
    """An event that may still grow."""

    subject: str
    code: str
    text: str
    line: int
    at: float | None
    clock: str
    detail: dict[str, str | int | float]
    count: int = 0
    last: float | None = None


@dataclass(slots=True)
class _Log:
    """What was read so far. `block` is the GPU error whose fields follow line by line."""

    told: dict[tuple[object, ...], _Told] = field(default_factory=dict)
    hosts: Counter[str] = field(default_factory=Counter)
    block: _Told | None = None
    block_line: int = 0
    nothing: bool = False
    failed: list[tuple[str, int]] = field(default_factory=list)
    good: bool = False
    switches: bool = False
    physical: dict[str, str] = field(default_factory=dict)
    uuids: dict[str, str] = field(default_factory=dict)
    dropped: int = 0

    def add(self, told: _Told) -> None:
        """Take an event in: the same at the same place is one with a count."""
        key = (told.subject, told.code, told.detail.get("link"), told.detail.get("guid"))
        if key not in self.told:
            if len(self.told) >= MOST_EVENTS:
                self.dropped += 1
                return
            self.told[key] = told
        kept = self.told[key]
        kept.count += 1
        kept.last = told.at


def _stamp(text: str) -> tuple[str, str, float | None, str, str | None]:
    """Return (message, level, time, clock, host) of a line of the log or of a journal."""
    if match := _OWN.match(text):
        stamp = f"{match[3]}-{month_of(match[1]) or 1:02d}-{int(match[2]):02d}"
        found = parse(f"{stamp} {match[4]}:{match[5]}:{match[6]} UTC x y: z")
        return text[match.end() :], match[7], found.at, found.clock, None
    found = parse(text)
    message = found.message
    host = found.host
    match = _TAG.search(text) or _SERVICE.search(text)
    if match is None:
        return text, "", found.at, found.clock, None
    if host is None:
        before = text[: match.start()].split()
        host = before[-1] if before and re.fullmatch(r"[\w.\-]{1,253}", before[-1]) else None
    message = text[match.end() :]
    level = "SERVICE" if match.re is _SERVICE else "SAID"
    return message, level, found.at, found.clock, host


def _switch(message: str) -> tuple[str, str, dict[str, str | int | float]] | None:
    match = _SWITCH.search(message)
    if match is None:
        return None
    subject = pci(match[3] or "") or "fabric"
    severity = "fatal" if match[1].lower() == "fatal" else "non-fatal"
    detail: dict[str, str | int | float] = {"severity": severity}
    if match[4]:
        detail["link"] = int(match[4])
    return subject, f"sxid.{match[2]}", detail


def _place(message: str, log: _Log) -> tuple[str, dict[str, str | int | float]]:
    """Return the GPU that a message names, else the host; and the port that stands after it."""
    detail: dict[str, str | int | float] = {}
    subject, at = "host", 0
    number, uuid = _INDEX.search(message), _UUID.search(message)
    if (match := _GPU.search(message)) and (address := pci(match[1])):
        subject, at = address, match.end()
    elif number:
        subject, at = log.physical.get(number[1], f"gpu{int(number[1])}"), number.end()
    elif uuid:
        subject, at = f"gpu-{uuid[0][4:12]}", uuid.end()
    if uuid and subject != "host":
        log.uuids[subject] = uuid[0]
    port = _PORT.search(message, at) or _PORT.search(message)
    if subject != "host" and port:
        detail["link"] = int(port[1])
    return subject, detail


def _code(message: str, level: str) -> str:
    """Return what a message says went wrong, or ""."""
    for code, pattern in _PLAIN:
        if pattern.search(message):
            return code
    if level == "INFO":
        return ""
    if _TRAINING.search(message):
        return "fm.training"
    if _DEGRADED.search(message) and not _NO_DEGRADED.search(message):
        return "fm.degraded"
    return "fm.error" if level in _LOUD else ""


def _block(log: _Log, text: str, number: int) -> bool:
    """Take in a field of a GPU's error; False where the line is none."""
    match = _FIELD.match(text)
    if log.block is None or match is None or number - log.block_line > BLOCK_LINES:
        log.block = None
        return False
    name, value = match[1], match[2]
    if name in ("gpuGuid", "nodeId", "moduleId", "portNum", "errorCode", "errorSubcode"):
        log.block.text += f" {name} {value}"
        if name == "gpuGuid":
            log.block.detail["guid"] = value.lower()
    return True


def _take(log: _Log, text: str, number: int) -> None:
    """Look at one line."""
    if log.block is not None and not text.startswith("[") and _block(log, text.strip(), number):
        return
    _end_block(log)
    message, level, at, clock, host = _stamp(text)
    if host:
        log.hosts[host] += 1
    log.good |= bool(_GOOD.search(message))
    log.switches |= bool(_HAS_SWITCHES.search(message))
    if (match := _PHYSICAL.search(message)) and (address := pci(match[2])):
        log.physical[match[1]] = address
    if match := _GPU_BLOCK.search(message):
        kind = "stale" if match[1] else "fatal" if match[2].lower() == "fatal" else "nonfatal"
        log.block = _Told("fabric", f"fm.gpu.{kind}", plain(message), number, at, clock, {})
        log.block_line = number
        return
    if found := _switch(message):
        log.add(_Told(found[0], found[1], plain(message), number, at, clock, found[2]))
        return
    fatal = _GPU_LINK.search(message)
    sort = "fatal" if fatal and fatal[1].lower() == "fatal" else "nonfatal"
    code = f"fm.gpu.{sort}" if fatal else _code(message, level)
    if code == "fm.nothing":
        log.nothing = True
    elif _FAILED.search(message) and level in ("SERVICE", "SAID"):
        log.failed.append((plain(message), number))
        del log.failed[1:]
    elif code:
        subject, detail = _place(message, log) if code in _PLACED else ("", {})
        subject = subject or ("fabric" if code == "fm.trunk" else "host")
        log.add(_Told(subject, code, plain(message), number, at, clock, detail))


def _end_block(log: _Log) -> None:
    block, log.block = log.block, None
    if block is not None:
        log.add(block)


def _events(log: _Log) -> Iterator[Event]:
    for told in log.told.values():
        detail = {**told.detail, "count": told.count, "line": told.line}
        if told.last is not None:
            detail["last"] = told.last
        yield Event(
            told.subject, told.code, plain(told.text), told.at, told.clock or "none", detail
        )
    # Without NVSwitches it has nothing to do; and what it said of itself is why it failed.
    idle = log.nothing and not log.switches
    if log.failed and not idle and not log.good and not log.told:
        text, line = log.failed[0]
        yield Event("host", "fm.failed", text, clock="none", detail={"line": line})


def read(source: Source) -> Reading:
    """Read a fabric manager's log whole. `records` counts its lines."""
    log, lines = _Log(), Numbered(source, _PATTERN)
    for text, number in lines:
        if text.strip():
            _take(log, text.lstrip(" \t"), number)
    _end_block(log)
    problems = list(source.problems)
    idle = log.nothing and not log.switches
    if idle:
        problems.append("no NVSwitch that it would have to manage")
    if log.dropped:
        problems.append(f"{log.dropped} further events are not kept: more than {MOST_EVENTS}")
    home = log.hosts.most_common(1)[0][0] if log.hosts else None
    return Reading(
        source.path, KIND, lines.total, tuple(problems), tuple(_events(log)),
        (Measurement(KIND, "host", "fabric.switches", 0, "switches"),) if idle else (),
        cut=source.cut, host=home, uuids=log.uuids,
    )  # fmt: skip


_MARKS = re.compile(
    rb"^[^\n]{0,160}?(?:\bnv-fabricmanager\[\d|\bnvidia-fabricmanager[\w.\-]{0,24}\[\d"
    rb"|\bsystemd\[\d{1,10}\]: nvidia-(?:fabricmanager|imex)\.service"
    rb"|\bnvidia-imex[\w.\-]{0,16}\[\d)|^\[[A-Z][a-z]{2} {1,2}\d{1,2} \d{4} \d\d:\d\d:\d\d\] "
    rb"\[[A-Z]{4,8}\] (?:\[tid \d|detected |IMEX)",
    re.MULTILINE,
)
_FENCE = re.compile(rb"^(?:```|<!DOCTYPE|<html|import \w|from \S{1,80} import |def |#include)",
                    re.MULTILINE)  # fmt: skip
LEAST_SHARE = 0.2


def likeness(head: bytes) -> float:
    """Return in 0..1 how much the head is a fabric manager's own: not a whole system's log."""
    lines = sum(1 for line in head.splitlines() if line.strip())
    marks = sum(1 for _ in _MARKS.finditer(head))
    stamped = sum(1 for line in head.splitlines()[:2000] if line[:1].isalnum() or line[:1] == b"[")
    if not marks or not lines or _FENCE.search(head):
        return 0.0
    share = marks / max(1, stamped)
    return min(0.95, 0.4 + share / 2) if share >= LEAST_SHARE else 0.0


READER = Reader(KIND, "fabricmanager.log, its journal, NMX-C and IMEX", likeness, read)
