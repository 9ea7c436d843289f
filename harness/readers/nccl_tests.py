"""nccl-tests: tables of sizes, times and bus bandwidths, with how many elements came out wrong.

Columns are counted from the right, for `redop` may be empty and `root` absent. ``N/A`` under
``#wrong`` or ``error`` is not checked, and 0 is. A table that ends without its summary is cut, or a
run that somebody quoted in part; so is one whose rows do not give the mean that it states.
"""

import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.job_places import Places
from rackproof.harness.readers.job_signs import sign_of
from rackproof.harness.readers.places import ADDRESS, pci, plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.source import Source

KIND = "nccl-tests"
LIMIT, MIB = 64 << 20, 1 << 20
MOST_EVENTS, MOST_TABLES, MOST_SAID = 200, 1000, 8
MEAN_WITHIN = 0.01
SIDE = 4  # columns of one side: time, algbw, busbw, wrong
_OLD, _NEW = "error", "#wrong"
_RANK = re.compile(
    r"# {1,8}Rank {1,8}(\d{1,6}) (?:Group {1,8}\d{1,4} )?Pid {1,10}(\d{1,10}) on {1,8}"
    r"([\w.\-]{1,253}) device {1,6}(\d{1,4}) \[(0x[0-9a-fA-F]{1,4}|" + ADDRESS + r")\] (.{1,80})"
)
_SUMMARY = re.compile(r"# Avg bus bandwidth {1,8}: (\S{1,20})")
_BOUNDS = re.compile(r"# Out of bounds values {1,8}: (\d{1,20}) (OK|FAILED)")
_NAME = re.compile(r"# Collective test (starting|concluded): (\w{1,64})")
_BINARY = re.compile(r"\b(all_reduce|all_gather|reduce_scatter|alltoall|broadcast|reduce|sendrecv|"
                     r"scatter|gather|hypercube)_perf\b")  # fmt: skip
# What the tests themselves, or a shell around them, say of a failure.
_UNREAD = re.compile(r"(?:ERROR|Error|FAILED|FAIL|FATAL)\b|Test [\w ]{1,40} (?:failure|error)\b")
_REDUCED = re.compile(r"all_?reduce", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?\Z")


@dataclass(frozen=True, slots=True)
class Row:
    """One size in bytes: bus bandwidth and wrong elements, out of place and in place.

    None stands for ``N/A``: nothing was measured, or nothing was checked.
    """

    size: int
    bus: tuple[float | None, float | None]
    wrong: tuple[float | None, float | None]


@dataclass(slots=True)
class Table:
    """One run of one test. `mean` is the stated mean of its bus bandwidths."""

    name: str = ""
    label: str = _NEW
    rows: list[Row] = field(default_factory=list)
    mean: float | None = None
    ended: bool = False
    bounds: int = 0
    broken: bool = False
    sums: bool = True  # each row names an operation, and no root

    def elided(self) -> bool:
        """Whether the rows do not give the stated mean: some of them are not there."""
        values = [bus for row in self.rows for bus in row.bus if bus is not None]
        if self.mean is None or not values or self.mean <= 0:
            return False
        return abs(statistics.fmean(values) - self.mean) > MEAN_WITHIN * max(self.mean, 1.0)


@dataclass(slots=True)
class _Report:
    """What was read so far."""

    tables: list[Table] = field(default_factory=list)
    places: Places = field(default_factory=Places)
    ranks: int = 0
    gpus: dict[str, str] = field(default_factory=dict)
    events: dict[tuple[str, str], Event] = field(default_factory=dict)
    name: str = ""
    unread: list[str] = field(default_factory=list)

    def table(self) -> Table:
        """Return the table that is going on."""
        if not self.tables or self.tables[-1].ended:
            self.tables.append(Table(self.name))
        return self.tables[-1]

    def home(self) -> str:
        """Return whom a result of all ranks is about: the host, or the fabric between hosts."""
        return "fabric" if len(self.places.hosts) > 1 else "host"

    def say(self, subject: str, code: str, text: str, detail: dict[str, str | int | float]) -> None:
        """Note what was said went wrong; the first of its kind is kept."""
        if len(self.events) < MOST_EVENTS:
            event = Event(subject, code, plain(text), clock="none", detail=detail)
            self.events.setdefault((subject, code), event)


def _value(word: str) -> float | None:
    return float(word) if _NUMBER.match(word) else None


def _is_row(words: list[str]) -> bool:
    return (
        len(words) > 2  # noqa: PLR2004
        and words[0].isdecimal() and words[1].isdecimal() and len(words[0]) < 20  # noqa: PLR2004
        and words[2][:1].isalpha() and words[2].isalnum()
    )  # fmt: skip


def _row(words: list[str], table: Table) -> None:
    """Take in one size; a row with too few cells, or one that is no number, breaks the table."""
    cells = words[-2 * SIDE :]
    if len(words) < 3 + 2 * SIDE or not all(_NUMBER.match(c) or c == "N/A" for c in cells):
        table.broken = True
        return
    table.sums &= words[-2 * SIDE - 2 : -2 * SIDE][0] == "sum" and words[-2 * SIDE - 1] == "-1"
    out, inside = [_value(c) for c in cells[:SIDE]], [_value(c) for c in cells[SIDE:]]
    table.rows.append(Row(int(words[0]), (out[2], inside[2]), (out[3], inside[3])))


def _rank(report: _Report, match: re.Match[str]) -> None:
    rank, host, device = int(match[1]), match[3], f"gpu{match[4]}"
    report.ranks += 1
    report.places.hosts.add(host)
    report.places.host_of[rank] = host
    report.places.rank_of[host, match[2]] = rank
    address = None if match[5].startswith("0x") else pci(match[5])
    if address:
        report.places.aliases[f"{host}/{device}"] = address
    report.places.gpu_of[rank] = address or device
    report.gpus[f"{host}/{address or device}"] = match[6].strip()


def _comment(report: _Report, line: str) -> None:
    """Take in a line that the tool itself begins with ``#``."""
    if match := _RANK.match(line):
        _rank(report, match)
    elif match := _SUMMARY.match(line):
        table = report.table()
        table.mean, table.ended = _value(match[1]), True
    elif match := _BOUNDS.match(line):
        report.table().bounds = int(match[1]) if match[2] == "FAILED" or int(match[1]) else 0
    elif match := _NAME.match(line):
        report.name = match[2]
    elif "busbw" in line and "algbw" in line:
        report.table().label = _NEW if _NEW in line else _OLD


def _line(report: _Report, raw: str, number: int) -> None:
    said = report.places.spoken(raw)
    if report.ranks:  # the table of ranks says all hosts; a library's lines may name one otherwise
        report.places.hosts = set(report.places.host_of.values())
    line = said.text.strip()
    if line.startswith("#"):
        _comment(report, line)
        return
    if not report.name and (match := _BINARY.search(line)):
        report.name = match[0]
    words = line.split()
    if _is_row(words):
        _row(words, report.table())
    elif line in ("...", "…"):
        report.table().broken = True
    elif (sign := sign_of(line)) is not None:
        report.places.learn(said)
        subject = report.places.subject(said, str(sign.detail.get("nic", "")))
        report.say(subject, sign.code, line, {**sign.detail, "line": number})
    elif _UNREAD.match(line) and len(report.unread) < MOST_SAID:
        report.unread.append(f"line {number} is not understood: {plain(line, 160)}")


def _wrong(report: _Report) -> None:
    """Note the elements that came out wrong; a digit of the old column is an error bound."""
    for table in report.tables:
        counts = [
            (row.size, wrong) for row in table.rows for wrong in row.wrong
            if wrong and table.label == _NEW
        ]  # fmt: skip
        name = table.name or "a collective"
        if counts:
            size, most = max(counts, key=lambda pair: pair[1])
            text = (
                f"{name}: {most:.0f} wrong elements at {size} bytes, wrong in {len(counts)} results"
            )
            report.say(report.home(), "nccl-tests.wrong", text, {"wrong": most})
        elif table.bounds:
            text = f"{name}: {table.bounds} values out of bounds"
            report.say(report.home(), "nccl-tests.wrong", text, {"wrong": table.bounds})


def _checked(table: Table) -> bool:
    return any(wrong is not None for row in table.rows for wrong in row.wrong)


def _idle(table: Table) -> bool:
    """Whether nothing went over any bus: one rank alone, or nothing that was large enough."""
    return not any(bus for row in table.rows for bus in row.bus)


def _measured(report: _Report) -> Iterator[Measurement]:
    ranks = max(report.ranks, report.places.world or 0)
    for name, model in sorted(report.gpus.items()):
        host, _, gpu = name.partition("/")
        subject = f"host:{host}/{gpu}" if len(report.places.hosts) > 1 else gpu
        yield Measurement(KIND, subject, "gpu.name", model, "text")
    if ranks:
        yield Measurement(KIND, "fabric", "link.collective.ranks", ranks, "gpus")
    for attempt, table in enumerate(report.tables[:MOST_TABLES], start=1):
        reached = [(bus, row.size) for row in table.rows for bus in row.bus if bus is not None]
        if not reached:
            continue
        check = f"{KIND}.{table.name or 'unnamed'}"
        best, size = max(reached)
        yield Measurement(check, report.home(), "link.collective.rate", best, "GB/s", attempt)
        if _REDUCED.match(table.name) or (table.sums and not table.name):
            yield Measurement(check, report.home(), "link.collective.size", size / MIB, "MiB",
                              attempt)  # fmt: skip


def _problems(report: _Report) -> tuple[list[str], bool, bool]:
    """Return the problems, whether the file is cut, and whether it says anything of the machine."""
    problems, cut, worked = [], False, False
    tables = [table for table in report.tables if table.rows or table.broken]
    for table in tables:
        name = table.name or "the table"
        if table.broken or not table.ended:
            cut = True
            problems.append(f"{name}: rows or the summary are missing")
        elif table.elided():
            cut = True
            problems.append(f"{name}: its rows do not give the mean that it states")
        if _idle(table):
            problems.append(f"{name}: bus bandwidth 0, nothing was sent from rank to rank")
        elif not _checked(table):
            problems.append(f"{name}: the data was not checked (validation off)")
        else:
            worked = True
    if not tables:
        problems.append("no result: the test did not start")
    return [*problems, *report.unread], cut, worked and not report.unread


def read(source: Source) -> Reading:
    """Read the output of any of the tests. `records` counts sizes that were measured."""
    report = _Report()
    text = source.whole(LIMIT).decode("utf-8", "replace")
    for number, raw in enumerate(text.splitlines(), start=1):
        if raw.strip() and len(report.tables) <= MOST_TABLES:
            _line(report, raw.rstrip(), number)
    _wrong(report)
    problems, cut, worked = _problems(report)
    hosts = report.places.hosts
    home = next(iter(hosts)) if len(hosts) == 1 else None
    aliases = {
        name.partition("/")[2]: address for name, address in report.places.aliases.items() if home
    }  # fmt: skip
    return Reading(
        source.path, KIND, sum(len(table.rows) for table in report.tables),
        (*source.problems, *problems), tuple(report.events.values()), tuple(_measured(report)),
        cut=cut or source.cut, worked=worked, aliases=aliases, host=home,
    )  # fmt: skip


_HEAD = re.compile(
    rb"^[^\n#]{0,80}# {1,12}size {1,16}count {1,12}type\b[^\n]{0,80}time {1,6}algbw", re.MULTILINE
)
_START = re.compile(
    rb"^[^\n#]{0,80}# nThread \d{1,6} nGpus \d{1,6} minBytes \d{1,20} maxBytes ", re.MULTILINE
)
_FENCE = re.compile(
    rb"^(?:```|#{1,4} [A-Z][a-z]+ [a-z]|<!DOCTYPE|<html|import |def )", re.MULTILINE
)
_OWN = re.compile(rb"^# (?:Using devices|Out of bounds|Avg bus|Collective test)", re.MULTILINE)


def likeness(head: bytes) -> float:
    """Return in 0..1 how much the head looks like the output of nccl-tests."""
    if not (_HEAD.search(head) or _START.search(head)):
        return 0.0
    foreign = len(_FENCE.findall(head)) - len(_OWN.findall(head))
    return 0.0 if foreign > 0 else 0.9


READER = Reader(KIND, "nccl-tests: all_reduce_perf and the others", likeness, read)
