"""nvidia-smi --query-… --format=csv: with header or without, with units or without, in loops.

A header names the columns, and each cell becomes the field that `nvidia-smi -q` has for it, so that
both are read alike. Without a header no column can be judged: only what a cell says in so many
words (`[GPU is lost]`) counts. Rows are kept as the first and the last of each GPU.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.places import pci, plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.smi_columns import bare_name, fields, is_header
from rackproof.harness.readers.smi_fields import why_absent
from rackproof.harness.readers.smi_messages import Messages, moment
from rackproof.harness.readers.smi_samples import Samples, word
from rackproof.harness.readers.source import Source

KIND = "nvidia-smi-csv"
LINE_LIMIT, MOST_GPUS, MOST_CELLS, SAID = 1 << 16, 4096, 1024, 8
_UUID = re.compile(r"GPU-[0-9a-f]{8}-[0-9a-f-]{27}\Z")
_BUS = re.compile(r"(?:[0-9A-Fa-f]{4}){1,2}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]\Z")
_MARK = re.compile(
    r"\[(?:N/A|Not Supported|Unknown Error|GPU is lost|Insufficient Permissions|Not Found|"
    r"Function Not Found|GPU requires reset|Requested functionality has been deprecated)\]\Z"
)
_APART = 0.5  # seconds: rows of one sample are written closer together


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line[:LINE_LIMIT].split(",", MOST_CELLS)]


def likeness(head: bytes) -> float:
    """Return 0.95 with nvidia-smi's header, 0.5 for rows with its marks alone, else 0."""
    lines = [s for s in head.decode("utf-8", "replace").splitlines()[:200] if s.strip()]
    if not lines:
        return 0.0
    if any(is_header(_cells(line)) for line in lines[:5]):
        return 0.95
    rows = [_cells(line) for line in lines]
    if len(rows) > 1 and not head.endswith(b"\n"):
        rows.pop()  # the head may end inside a row
    width = len(rows[0])
    if width < 3 or any(len(row) != width or max(map(len, row)) > 80 for row in rows):  # noqa: PLR2004
        return 0.0
    cells = [cell for row in rows for cell in row]
    marks = sum(bool(_MARK.match(cell)) for cell in cells)
    named = any(_UUID.match(cell) or _BUS.match(cell) for cell in cells)
    return 0.5 if marks or (named and ", " in lines[0]) else 0.0


@dataclass(slots=True)
class _Rows:
    """The walk over the lines: the header in force, the samples, what was not understood."""

    samples: Samples = field(default_factory=lambda: Samples(KIND, MOST_GPUS, fields))
    messages: Messages = field(default_factory=Messages)
    names: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    aliases: dict[str, str] = field(default_factory=dict)
    retired: dict[str, int] = field(default_factory=dict)
    hosts: set[str] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)
    driver: str = ""
    taken: float | None = None
    headless: int = 0
    short: bool = False
    _began: float | None = None
    _place: int = -1

    def line(self, line: str) -> None:
        """Take one line."""
        if not line.strip() or self.messages.take(line):
            return
        cells = _cells(line)
        if is_header(cells):
            self.names = [bare_name(cell) for cell in cells]
        elif not self.names:
            self._headless(cells)
        elif len(cells) != len(self.names):
            self.short = True
            self._say(f"a row of {len(cells)} cells under a header of {len(self.names)}")
        else:
            self.short = False
            self._row(dict(zip(self.names, cells, strict=True)))

    def _say(self, problem: str) -> None:
        if problem not in self.problems and len(self.problems) < SAID:
            self.problems.append(problem)

    def _headless(self, cells: Sequence[str]) -> None:
        self.headless += 1
        place = next((s for cell in cells if _BUS.match(cell) and (s := pci(cell))), None)
        lost = next((cell for cell in cells if "gpu is lost" in cell.lower()), None)
        if lost and len(self.events) < MOST_GPUS:
            subject = place or "host"
            code = "smi.lost" if place else "smi.lost.somewhere"
            event = Event(subject, code, plain(lost, 80), clock="none")
            self.events += [event] if event not in self.events else []

    def _row(self, row: dict[str, str]) -> None:
        at = moment(row.get("timestamp", ""))
        self.taken = at if at is not None else self.taken
        if at is None or self._began is None or at - self._began > _APART:
            self._began = at
            self._place = self._place + 1 if at is None else 0
        else:
            self._place += 1
        address = pci(row.get("pci.bus_id", ""))
        index = row.get("index", "")
        subject = address or f"gpu{int(index) if index.isdecimal() else self._place}"
        if address and index.isdecimal() and len(self.aliases) < MOST_GPUS:
            self.aliases[f"gpu{int(index)}"] = address
        self.driver = word(row.get("driver_version", "")) or self.driver
        if (host := word(row.get("hostname", ""))) and len(self.hosts) < MOST_GPUS:
            self.hosts.add(host)
        if "retired_pages.address" in row and len(self.retired) < MOST_GPUS:
            absent = why_absent(row["retired_pages.address"]) is not None
            self.retired[subject] = self.retired.get(subject, 0) + (not absent)
        self.samples.add(subject, row, at)


def _retired(rows: _Rows) -> list[Measurement]:
    """A list of retired pages has a row for each; a row without an address stands for none."""
    return [Measurement(KIND, subject, "retired.pages", count, "pages")
            for subject, count in rows.retired.items()]  # fmt: skip


def read(source: Source) -> Reading:
    """Read all rows of a file; a header in the middle begins a new table."""
    rows = _Rows()
    for chunk in source.chunks():
        for line in chunk.decode("utf-8", "replace").splitlines():
            rows.line(line)
    problems = [*rows.messages.problems, *rows.problems]
    if rows.headless and not rows.samples.seen:
        problems.append("no header: no column can be told, and none is judged")
    found = rows.samples.reading(source, problems)
    measurements = [*found.measurements, *_retired(rows)]
    if rows.driver:
        measurements.append(Measurement(KIND, "host", "driver.version", rows.driver, "text"))
    events = (*found.events, *rows.events, *rows.messages.events)
    return replace(
        found, events=events, measurements=tuple(measurements), aliases=rows.aliases,
        records=found.records or rows.headless or len(events), cut=found.cut or rows.short,
        worked=bool(found.records or rows.headless or events), taken=rows.taken,
        host=next(iter(rows.hosts)) if len(rows.hosts) == 1 else None,
    )  # fmt: skip


READER = Reader(KIND, "nvidia-smi --query-gpu --format=csv", likeness, read)
