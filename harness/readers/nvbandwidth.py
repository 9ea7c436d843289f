"""nvbandwidth's report, as text of every version or as --json: matrices of bandwidths, by GPU.

Each test gives one matrix: a row for the host or for each GPU, a column for each GPU. A matrix that
ends before its last cell, or a test with no result and no word why, cuts the file. Words about data
that arrived wrong are an event: nvbandwidth stops there, and does not tell which end it was.
"""

import re
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.job_signs import sign_of
from rackproof.harness.readers.objects import objects
from rackproof.harness.readers.places import ADDRESS, pci, plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.source import Source

KIND = "nvbandwidth"
LIMIT = 16 << 20
MOST_GPUS, MOST_TESTS, MOST_EVENTS = 1024, 2000, 200
_RUNNING = re.compile(r"Running (?:benchmark )?([a-z][\w.]{2,80}?)\.?\Z")
_HEADER = re.compile(r"(?:memcpy|memory latency)\b.{0,120}\((?:GB/s|ns)\)\Z")
_SUM = re.compile(r"(SUM|MIN|MAX|AVG|AVERAGE) ([a-z]\w{2,80}) (\S{1,32})\Z")
_NUMBER = re.compile(r"-?\d{1,9}(?:\.\d{1,9})?(?:e[+-]?\d{1,3})?\Z")
_DEVICE = re.compile(r"(?:Device )?(\d{1,4}): (.{1,80}?)(?: \((" + ADDRESS + r")\))?:?\Z")
_PROCESS = re.compile(
    r"Process {1,6}(\d{1,5}) \(([\w.\-]{1,253})\): device {1,6}(\d{1,4}): (.{1,80}?) "
    r"\((" + ADDRESS + r")\)"
)
_HOST = re.compile(r"[A-Za-z0-9][\w.\-]{0,252}\Z")
_WRONG = ("Invalid value when checking the pattern", "h_errorFlag == 0")
_FAILED = ("ASSERT in expression", "ERROR:", "Error:", "[CUDA_ERROR", "CUDA_ERROR_")
_LEFT_OUT = ("waived", "waiving", "not found", "not supported")
_WAIVED = re.compile(r"[Ww]aiv(?:ing|ed):? ([a-z]\w{2,80})\.?\Z")


@dataclass(slots=True)
class Matrix:
    """One test: `columns` GPUs by index, `rows` of cells by index; None stands for N/A."""

    name: str
    about: str = ""
    columns: list[int] = field(default_factory=list)
    rows: dict[int, list[float | None]] = field(default_factory=dict)
    summed: bool = False
    settled: bool = False  # waived, or ended by an error
    broken: bool = False

    def complete(self) -> bool:
        """Whether every row that the columns promise is there, each with all of its cells."""
        if self.broken or not self.columns or not self.rows:
            return False
        whole = all(len(cells) == len(self.columns) for cells in self.rows.values())
        single = len(self.rows) == 1 and "GPU(row)" not in self.about
        return whole and (single or set(self.rows) == set(self.columns))

    def sort(self) -> str:
        """Return the metric of its cells; "" for latencies and what is not known."""
        about, name = self.about, self.name
        if not about.endswith("(GB/s)"):
            return ""
        if "local" in about or "local" in name:
            return "copy.local.rate"
        if "GPU(row)" in about:
            return "link.pair.one"
        if "CPU" not in about:
            return "link.all.rate"
        crowded = "_all_" in name or name.startswith("all_") or "bidirectional" in name
        if crowded or "<->" in about:
            return "copy.shared.rate"
        return "copy.d2h.rate" if "<-" in about else "copy.h2d.rate"


@dataclass(slots=True)
class _Report:
    """What was read so far."""

    tests: list[Matrix] = field(default_factory=list)
    places: dict[int, str] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    host: str | None = None
    hosts: set[str] = field(default_factory=set)
    cut: bool = False
    failed: bool = False

    def say(self, code: str, text: str, line: int) -> None:
        """Note what the tool said went wrong."""
        test = self.tests[-1].name if self.tests else ""
        words = f"{test}: {text}" if test and test not in text else text
        told = any(e.code == code and e.text.startswith(test) for e in self.events)
        if len(self.events) < MOST_EVENTS and not told:
            self.events.append(Event("host", code, plain(words), clock="none",
                                     detail={"line": line}))  # fmt: skip

    def subject(self, index: int) -> str:
        """Return the subject of a row or column."""
        return self.places.get(index, f"gpu{index}")


def _cells(words: Sequence[str], matrix: Matrix) -> list[float | None]:
    cells: list[float | None] = []
    for word in words:
        if _NUMBER.match(word):
            cells.append(float(word))
        elif word == "N/A":
            cells.append(None)
        else:
            matrix.broken = True
    return cells


def _said(report: _Report, line: str, number: int) -> bool:
    """Take in a line that says what went wrong; False where it says nothing of that kind."""
    if any(word in line for word in _WRONG):
        report.say("nvbandwidth.wrong", line, number)
    elif any(word in line for word in _FAILED):
        sign = sign_of(line)
        report.say(sign.code if sign else "nvbandwidth.failed", line, number)
        report.failed = True
    elif not line.lower().startswith(_LEFT_OUT):
        return False
    elif (match := _WAIVED.match(line)) and len(report.problems) < MOST_EVENTS:
        report.problems.append(f"{match[1]}: waived, and not run")
        if report.tests and report.tests[-1].name != match[1]:
            return True  # of a test that was not begun
    if report.tests and not report.tests[-1].summed:
        report.tests[-1].settled = True
    return True


def _device(report: _Report, line: str) -> bool:
    if match := _PROCESS.match(line):
        report.hosts.add(match[2])
        place = pci(match[5]) or f"gpu{match[3]}"
        report.places[int(match[1])] = f"host:{match[2]}/{place}"
        report.names[int(match[1])] = match[4]
        return True
    if line.startswith("Device ") and (match := _DEVICE.match(line)):
        report.names[int(match[1])] = match[2]
        if match[3] and (address := pci(match[3])):
            report.places[int(match[1])] = address
        return True
    return False


def _row(report: _Report, tokens: list[str]) -> bool:
    """Take in a line of columns or of cells."""
    test = report.tests[-1] if report.tests else None
    if test is None or not test.about or test.summed or not tokens[0].isdecimal():
        return False
    if not test.columns:
        if all(token.isdecimal() and len(token) < 6 for token in tokens):  # noqa: PLR2004
            test.columns = [int(token) for token in tokens[:MOST_GPUS]]
        return True
    cells = _cells(tokens[1:], test)
    if len(tokens[0]) < 6 and int(tokens[0]) not in test.rows:  # noqa: PLR2004
        test.rows[int(tokens[0])] = cells
    return True


def _line(report: _Report, line: str, number: int) -> None:
    """Look at one line of the text."""
    if match := _RUNNING.match(line):
        report.tests.append(Matrix(match[1]))
    elif _HEADER.match(line):
        if not report.tests or report.tests[-1].about:
            report.tests.append(Matrix(""))
        report.tests[-1].about = line
    elif match := _SUM.match(line):
        if report.tests:
            report.tests[-1].name = report.tests[-1].name or match[2]
            report.tests[-1].summed = True
    elif not (_said(report, line, number) or _device(report, line)):
        _row(report, line.split())


def _text(source: Source) -> _Report:
    report, alone = _Report(), ""
    text = source.whole(LIMIT).decode("utf-8", "replace")
    lines = text.splitlines()
    for number, raw in enumerate(lines, start=1):
        line = raw.strip()
        if not line:
            continue
        if line.startswith("Device 0:") and alone:
            report.host = alone
        alone = line if _HOST.match(line) and not line.isdecimal() else ""
        if len(report.tests) <= MOST_TESTS:
            _line(report, line, number)
    _ends(report, text)
    return report


def _ends(report: _Report, text: str) -> None:
    """Find tests that ended before they should have."""
    sums = any(test.summed for test in report.tests)
    last = report.tests[-1] if report.tests else None
    for test in report.tests:
        if test.settled:
            continue
        if not test.complete():
            report.cut = True
            report.problems.append(f"{test.name or 'a test'}: ends before its result is complete")
        elif test is last and not test.summed and (sums or not text.endswith("\n")):
            report.cut = True
            test.broken = not text.endswith("\n")  # the last number may be cut in half
            report.problems.append(f"{test.name or 'a test'}: ends before its sum")


def _loaded(source: Source, report: _Report) -> dict[str, Any]:
    """Return the object below ``nvbandwidth``; of one that is cut, what stands before the cut."""
    found = objects(source.whole(LIMIT).decode("utf-8", "replace"))
    if found.cut:
        report.cut = True
        report.problems.append("the JSON ends early: only what stands before is read")
    for value in found.values:
        inner = value.get(KIND) if isinstance(value, dict) else None
        if isinstance(inner, dict):
            return inner
    return {}


def _case(case: dict[str, Any]) -> Matrix:
    test = Matrix(plain(str(case.get("name", ""))), plain(str(case.get("bandwidth_description"))))
    rows = case.get("bandwidth_matrix")
    if not isinstance(rows, list):
        return test
    for index, row in enumerate(rows[:MOST_GPUS]):
        if isinstance(row, list):
            test.rows[index] = _cells([str(cell) for cell in row[:MOST_GPUS]], test)
    test.columns = list(range(max((len(cells) for cells in test.rows.values()), default=0)))
    test.summed = True
    test.broken |= "status" not in case  # the last key that is written: without it, a cut
    return test


def _json(source: Source) -> _Report:
    report = _Report()
    found = _loaded(source, report)
    for value in found.values():
        for word in value if isinstance(value, list) else ():
            if isinstance(word, str):
                _device(report, word if word.startswith("Device ") else f"Device {word}")
    cases = found.get("testcases")
    for case in cases[:MOST_TESTS] if isinstance(cases, list) else ():
        if not isinstance(case, dict):
            continue
        report.tests.append(_case(case))
        status = str(case.get("status", "")).lower()
        if status == "error" or "error" in case:
            _said(report, f"ERROR: {case.get('error', 'the test case failed')}", 0)
        report.tests[-1].settled |= status.startswith(_LEFT_OUT)
    if "error" in found:
        _said(report, f"ERROR: {found['error']}", 0)
    _ends(report, "\n")
    return report


def _measured(report: _Report) -> Iterator[Measurement]:
    """Yield what each GPU reached, and each pair; `attempt` counts a test that ran again."""
    ran: Counter[str] = Counter()
    for index in sorted(report.names)[:MOST_GPUS]:
        yield Measurement(KIND, report.subject(index), "gpu.name", report.names[index], "text")
    for test in report.tests:
        if not test.complete() or not (metric := test.sort()):
            continue
        ran[test.name] += 1
        check = f"{KIND}.{test.name or 'unnamed'}"
        for row, cells in test.rows.items():
            subject = report.subject(row)
            for column, value in zip(test.columns, cells, strict=True):
                place = report.subject(column)
                if value is not None and metric == "link.pair.one":
                    yield Measurement(f"{check} to {place}", subject, metric, value, "GB/s",
                                      ran[test.name])  # fmt: skip
                elif value is not None:
                    yield Measurement(check, place, metric, value, "GB/s", ran[test.name])
            reached = [value for value in cells if value is not None]
            if metric == "link.pair.one" and reached and "bidirectional" not in test.name:
                median = statistics.median(reached)
                yield Measurement(check, subject, "link.pair.rate", median, "GB/s", ran[test.name])


def read(source: Source) -> Reading:
    """Read a report. `records` counts the tests that came to a result."""
    head = source.head.lstrip()
    report = _json(source) if b'"nvbandwidth"' in head[: 1 << 16] else _text(source)
    done = [test for test in report.tests if test.complete()]
    left = sum(test.settled and not test.complete() for test in report.tests)
    if left:
        report.problems.append(f"{left} of {len(report.tests)} tests gave no result")
    address = {f"gpu{i}": place for i, place in report.places.items() if place.startswith("pci:")}
    wrong = any(event.code == "nvbandwidth.wrong" for event in report.events)
    if not (done or wrong or report.problems):
        report.problems.append("no test came to a result")
    return Reading(
        source.path, KIND, len(done) or int(wrong), (*source.problems, *report.problems),
        tuple(report.events), tuple(_measured(report)), cut=report.cut or source.cut,
        worked=wrong or (bool(done) and not report.failed), aliases=address,
        host=report.host or (next(iter(report.hosts)) if len(report.hosts) == 1 else None),
    )  # fmt: skip


_MARKS = re.compile(
    rb"^(?:nvbandwidth Version: v|Running (?:benchmark )?(?:host|device|all|one|multinode)_[a-z_]+"
    rb"(?:_ce|_sm|_copy)\.?\s*$|memcpy (?:CE|SM|local)\b[^\n]{0,120}bandwidth \(GB/s\)\s*$"
    rb"|SUM (?:host|device|all|one|multinode)_\w{2,60} \d| ?Invalid value when checking the pattern"
    rb"|Built from Git version: )",
    re.MULTILINE,
)
_FENCE = re.compile(rb"^(?:```|<!DOCTYPE|<html|import \w|from \S{1,80} import |def |#include)",
                    re.MULTILINE)  # fmt: skip
_JSON = re.compile(rb'\{\s{0,64}"nvbandwidth"\s{0,8}:')


def likeness(head: bytes) -> float:
    """Return in 0..1 how much the head looks like nvbandwidth's report."""
    if _FENCE.search(head[: 1 << 16]):
        return 0.0  # a manual, or a program
    if _JSON.search(head[: 1 << 12]):
        return 0.95
    found = {match[0].split()[0] for match in _MARKS.finditer(head[: 1 << 16])}
    return 0.9 if len(found) > 1 else 0.0


READER = Reader(KIND, "nvbandwidth, as text or --json", likeness, read)
