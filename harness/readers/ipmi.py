"""ipmitool's and FreeIPMI's event logs and sensors: what the management controller recorded.

Three dialects of an event log (``|`` columns of ipmitool and FreeIPMI, and a vendor's fixed
columns), ``sdr``, ``sdr elist`` and ``sensor``. One event in two dialects counts once; what was
asserted and then deasserted is over; a clock before 2000 is a controller's that was never set.
"""

import re
from dataclasses import dataclass

from rackproof.harness.model import Event, Missing, Why
from rackproof.harness.readers import ipmi_sensors
from rackproof.harness.readers.bmc import cleared, code_of
from rackproof.harness.readers.clues import moment
from rackproof.harness.readers.ipmi_verbose import Blocks, with_bars
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.source import Source

KIND = "ipmi"
LIMIT = 32 << 20
LINE_LIMIT, MOST = 1024, 5000
_ID = r"\s{0,8}([0-9A-Fa-f]{1,5})"
_DATE = (
    r"(\d{1,2}/\d{1,2}/\d{2,4}|\d{1,2}\.\d{1,2}\.\d{2,4}|[A-Z][a-z]{2}-\d{1,2}-\d{4}"
    r"|\d{4}-\d\d-\d\d)"
)
_BAR = r" {0,4}\| {0,4}"
_COLUMNS = re.compile(
    _ID
    + _BAR
    + _DATE
    + _BAR
    + r"([\d:]{0,10}(?: [AaPp][Mm])?)(?: ([A-Z]{2,5}|[+-]\d\d:?\d\d))?"
    + _BAR
    + r"(.{1,400})\Z",
    re.ASCII,
)
_UNSET = re.compile(_ID + _BAR + r"Pre-Init[^|]{0,20}" + _BAR + r"(.{1,400})\Z", re.ASCII)
_FIXED = re.compile(
    r"\s{0,4}([0-9A-Fa-f]{4}) {1,4}(\d{1,2}/\d{1,2}/\d{2,4}) {1,4}(\d{1,2}:\d\d:\d\d) {1,4}"
    r"([A-Z]{2,4}) {1,4}(\w{2,8}) {1,4}(.{1,400})\Z",
    re.ASCII,
)
_EMPTY = re.compile(r"SEL has no entries|\s{0,4}Entries {1,20}: 0\b")
_REFUSED = re.compile(
    r"(?:Error|Could not open device|Unable to establish|Get SEL Info command failed"
    r"|Unable to open SDR|ipmi_\w{3,20}: )"
)
_NOTES = {"asserted": "asserted", "assertion event": "asserted",
          "deasserted": "deasserted", "deassertion event": "deasserted"}  # fmt: skip
_OFFSETS = {"CET": 1, "CEST": 2, "EET": 2, "EEST": 3, "BST": 1, "EST": -5, "EDT": -4, "CST": -6,
            "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7, "JST": 9, "KST": 9}  # fmt: skip
_ROW = re.compile(r"\s{0,8}[0-9A-Fa-f]{1,5} {0,4}\|[^|]{1,60}\|[^|]{1,60}\|")
_RAW = re.compile(r"\s(?:[0-9a-f]{2} )?\[[0-9a-f ]{2,30}\]\s*\Z")
_NAME = re.compile(r"[^#|]{1,60}")
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()


Detail = dict[str, str | int | float]


@dataclass(frozen=True, slots=True)
class _Record:
    """One record of an event log. `sort` is the sensor's type, `sensor` with its name or number."""

    number: int
    at: float | None
    stamp: str
    sensor: str
    sort: str
    text: str
    direction: str
    line: int


def _time(date: str, clock: str, zone: str | None) -> tuple[float | None, str]:
    """Return (seconds since the epoch, the stamp as digits).

    A date is month/day/year, day.month.year, Mon-dd-yyyy or ISO 8601, as the locale has it.
    """
    clock = _of_24_hours(clock)
    if match := re.fullmatch(r"(\d{1,2})/(\d{1,2})/(\d{2}|\d{4})", date, re.ASCII):
        month, day, year = int(match[1]), int(match[2]), int(match[3])
    elif match := re.fullmatch(r"(\d{1,2})\.(\d{1,2})\.(\d{2}|\d{4})", date, re.ASCII):
        month, day, year = int(match[2]), int(match[1]), int(match[3])
    elif match := re.fullmatch(r"([A-Z][a-z]{2})-(\d{1,2})-(\d{4})", date, re.ASCII):
        month = _MONTHS.index(match[1].lower()) + 1 if match[1].lower() in _MONTHS else 0
        day, year = int(match[2]), int(match[3])
    else:
        return _shifted(moment(f"{date}T{clock}"), zone), f"{date}T{clock}"
    year += 2000 if year < 70 else 1900 if year < 100 else 0  # noqa: PLR2004 - as C's strptime does
    stamp = f"{year:04d}-{month:02d}-{day:02d}T{clock}"
    return _shifted(moment(stamp), zone), stamp


def _of_24_hours(clock: str) -> str:
    """Return a time of day without AM or PM."""
    time, _, half = clock.partition(" ")
    hour, colon, rest = time.partition(":")
    if not half or not hour.isdecimal():
        return time
    return f"{int(hour) % 12 + 12 * (half.upper() == 'PM'):02d}{colon}{rest}"


def _shifted(at: float | None, zone: str | None) -> float | None:
    """Return a time of `zone`, a word or an offset such as +02:00, as UTC."""
    if at is None or not zone:
        return at
    if zone[0] in "+-":
        hours = int(zone[1:3]) + int(zone[-2:]) / 60
        return at - 3600.0 * (hours if zone[0] == "+" else -hours)
    return at - 3600.0 * _OFFSETS.get(zone, 0)


def _name(text: str) -> str:
    """Return a sensor's type and name, which stand before its number."""
    found = _NAME.match(text)
    return found[0].strip() if found else ""


def _record(line: str, number: int) -> _Record | None:
    """Return the record of one line of an event log, in any of the dialects."""
    if match := _FIXED.match(line):
        at, stamp = _time(match[2], match[3], None)
        text = _RAW.sub("", match[6]).strip()
        name = _name(text)
        return _Record(int(match[1], 16), at, stamp, name, name.partition(" ")[0].lower(), text,
                       "asserted", number)  # fmt: skip
    if match := _UNSET.match(line):
        at, stamp, rest = None, "", match[2]
    elif match := _COLUMNS.match(line):
        (at, stamp), rest = _time(match[2], match[3], match[4]), match[5]
    else:
        return None
    parts = [part.strip() for part in rest.split("|")]
    direction = next((_NOTES[p.lower()] for p in parts if p.lower() in _NOTES), "asserted")
    parts = [p for p in parts if p and p.lower() not in _NOTES]
    if not parts:
        return None
    sort = _name(parts[0]).partition(" ")[0].lower()
    return _Record(int(match[1], 16), at, stamp, parts[0], sort, " | ".join(parts), direction,
                   number)  # fmt: skip


_GONE = re.compile(r"presence detected|fully redundant", re.IGNORECASE)


def _code(record: _Record) -> str:
    """Return the code of a record; a good state that is taken away is a sign, too."""
    if record.direction == "deasserted" and _GONE.search(record.text):
        if "edundant" in record.text:
            fan = "fan" in record.text.lower()
            return "bmc.thermal.fan" if fan else "bmc.power.redundancy"
        return "bmc.power.removed" if record.sort in ("power", "psu") else ""
    return code_of(record.text)


class _Log:
    """An event log: one record in two dialects counts once; what is over is told from the rest."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str, str]] = set()
        self._open: dict[tuple[str, str], list[int]] = {}
        self._found: list[tuple[_Record, str, bool]] = []
        self.records = self.dropped = 0

    def take(self, record: _Record) -> None:
        """Take one record in."""
        key = (record.number, record.stamp, record.sort)
        if record.stamp and key in self._seen:
            return
        self._seen.add(key)
        self.records += 1
        code = _code(record)
        back = record.direction == "deasserted" and not _GONE.search(record.text)
        good = record.direction == "asserted" and _GONE.search(record.text)
        if back or good:
            self._close(record, code)
        elif code and len(self._found) < MOST:
            self._open.setdefault((record.sensor, code), []).append(len(self._found))
            self._found.append((record, code, False))
        elif code:
            self.dropped += 1

    def _close(self, record: _Record, code: str) -> None:
        """Close what this record takes back: its own sign, or by a good state all of its sensor."""
        for key in [k for k in self._open if k[0] == record.sensor and (not code or k[1] == code)]:
            for index in self._open.pop(key):
                self._found[index] = (*self._found[index][:2], True)

    def events(self) -> list[Event]:
        """Return the signs that stand, and those that are over under a code that says so."""
        found = []
        for record, open_code, over in self._found:
            code = cleared(open_code) if over else open_code
            if code:
                clock = "epoch" if record.at is not None else "none"
                detail: Detail = {"line": record.line, "device": plain(record.sensor, 60)}
                found.append(Event("host", code, plain(record.text), record.at, clock, detail))
        return found


class _Lines:
    """A walk over a file's lines: `said` is what the tool could not do, `unread` what was not read.

    `unread` counts lines that begin as an event does, and are in no form that is known.
    """

    def __init__(self) -> None:
        self.log, self.sensors = _Log(), ipmi_sensors.Sensors()
        self.empty = self.unread = 0
        self.said: list[str] = []
        self._first = ""
        self._blocks = Blocks()

    def take(self, line: str, number: int) -> None:
        """Look at one line."""
        line = with_bars(line)
        inside, ended = self._blocks.take(line)
        self._block(ended, number - 1)
        if inside:
            return
        if record := _record(line, number):
            self.log.take(record)
        elif self.sensors.take(line, number):
            return
        elif _EMPTY.match(line):
            self.empty = 1
        elif _ROW.match(line):
            self.unread += 1
            self._first = self._first or f"line {number}: {line}"
        elif _REFUSED.match(line) and len(self.said) < 5:  # noqa: PLR2004
            self.said.append(f"line {number}: {line}")

    def end(self, number: int) -> None:
        """Close what is open after the last line."""
        self._block(self._blocks.end(), number)

    def _block(self, ended: str, number: int) -> None:
        if ended and (record := _record(ended, number)):
            self.log.take(record)

    def problems(self) -> list[str]:
        """Return what a person ought to know of the file."""
        found = list(self.said)
        if self.unread:
            found.append(f"{self.unread} lines look like events, and are in no form that is known; "
                         f"the first is {self._first}")  # fmt: skip
        if self.log.dropped:
            found.append(f"{self.log.dropped} further events are not kept: more than {MOST}")
        return found


def read(source: Source) -> Reading:
    """Read event logs and sensor tables; lines of neither are passed over."""
    lines, number = _Lines(), 0
    text = source.whole(LIMIT).decode("utf-8", "replace")
    for number, whole in enumerate(text.splitlines(), start=1):
        lines.take(whole[:LINE_LIMIT].rstrip(), number)
    lines.end(number)
    log, sensors = lines.log, lines.sensors
    missing = [
        Missing(KIND, "host", "bmc.sensor", Why.NO_READING, f"{name} gives no reading")
        for name in sensors.silent
    ]
    records = log.records + sensors.records + lines.empty
    told = log.records or lines.empty or sensors.records > len(sensors.silent)
    problems = [*source.problems, *lines.problems()]
    if not records and not problems:
        problems.append("no line in it is an event or a sensor")
    return Reading(
        source.path, KIND, records, tuple(map(plain, problems)),
        (*log.events(), *sensors.events), tuple(sensors.measured), tuple(missing),
        source.cut or bool(lines.unread), worked=bool(records and told),
    )  # fmt: skip


_EVENTS = re.compile(
    rb"^\s{0,8}[0-9A-Fa-f]{1,5} {0,4}\| {0,4}"
    rb"(?:\d{1,2}/\d{1,2}/\d{2,4}|\d{1,2}\.\d{1,2}\.\d{2,4}|\d{4}-\d\d-\d\d|Pre-?Init"
    rb"|[A-Z][a-z]{2}-\d{1,2}-\d{4})"
    rb"[^|\n]{0,20}\|[^|\n]{1,80}\|[^|\n]{0,80}\|?"
    rb"|^\s{0,8}[0-9A-Fa-f]{1,5},(?:\d{1,4}[/.\-]\d{1,2}[/.\-]\d{2,4}|Pre-?Init[^,\n]{0,20}),"
    rb"[^,\n]{0,24},[^\n]{3,300},(?:Dea|A)sserted\b"
    rb"|^SEL Record ID {1,20}: [0-9a-f]{4}\s*$",
    re.MULTILINE,
)
_VENDOR = re.compile(
    rb"^\s{0,4}[0-9A-Fa-f]{4} {1,4}\d\d/\d\d/\d{2,4} {1,4}\d\d:\d\d:\d\d {1,4}[A-Z]{2,4} {1,4}"
    rb"(?:EFI|BIOS|BMC|iRMC|SMI|OS|CPLD|ME) {1,4}\S",
    re.MULTILINE,
)
_STATE = rb"(?:ok|ns|cr|nc|nr|lnc|lcr|unc|ucr)"
_SENSORS = re.compile(
    rb"^[^|\n]{2,32}\| {0,4}(?:[0-9A-Fa-f]{2}h {0,4}\| " + _STATE + rb" {0,4}\|[^|\n]{3,8}\|"
    rb"|[^|\n]{1,24}\| " + _STATE + rb"\s*$"
    rb"|[^|\n]{2,12}\|[^|\n]{2,24}\| {0,4}(?:0x[0-9a-fA-F]{2,6}|na|ok|[lu]?(?:cr|nc|nr))\s*\|"
    rb"[^|\n]{3,12}\|[^|\n]{2,12}\|)",
    re.MULTILINE,
)
_SAID = re.compile(
    rb"^(?:SEL has no entries|SEL Information\s*$|Get SEL Info command failed"
    rb"|Could not open device at /dev/ipmi)",
    re.MULTILINE,
)


def likeness(head: bytes) -> float:
    """Return 0.8 for rows of an event log or of sensors, else 0."""
    head = head[: 1 << 16]
    rows = len(_EVENTS.findall(head[:8192])) + len(_VENDOR.findall(head[:8192]))
    if rows or _SAID.search(head[:8192]):
        return 0.8
    return 0.8 if len(_SENSORS.findall(head)) >= 2 else 0.0  # noqa: PLR2004


READER = Reader(KIND, "ipmitool sel, sdr and sensor; FreeIPMI's ipmi-sel", likeness, read)
