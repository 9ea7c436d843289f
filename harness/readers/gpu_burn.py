"""gpu-burn: progress that overwrites itself, so that a file may be one line of a gigabyte.

The file passes once through in chunks; carriage returns and line feeds both end a line, and a new
progress record begins one. "OK" counts only for a GPU that has computed something: the tool prints
it also after 0 Gflop/s. Beside "(DIED!)" the count of errors is whatever was in the memory.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.job_signs import of_device
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.source import Source

KIND = "gpu-burn"
LINE_LIMIT, MOST_GPUS, MOST_SAID = 1 << 15, 256, 8
WHOLE = 99.95  # percent, as far as one decimal tells
_PROGRESS = re.compile(rb"\d{1,3}\.\d%\s{1,4}proc'd: ")
_MARK = re.compile(
    rb"\d{1,3}\.\d%\s{1,4}proc'd: -?\d{1,12} \(\d{1,9} Gflop/s\)"
    rb"|^\s{0,8}Couldn't init a GPU test: Error"
    rb"|^Initialized device \d{1,3} with \d{1,9} MB of memory \(\d{1,9} MB available, using",
    re.MULTILINE,
)
_TESTED = re.compile(rb"^Tested (\d{1,4}) GPUs:", re.MULTILINE)
_RESULT = re.compile(rb"\s{0,16}GPU (\d{1,4}): (OK|FAULTY)\s{0,8}\Z")
_RESULTS = re.compile(rb"^\s{0,16}GPU \d{1,4}: (?:OK|FAULTY)\s{0,8}$", re.MULTILINE)
_LISTED = re.compile(rb"GPU (\d{1,4}): .{1,120}\(UUID: (GPU-[0-9a-fA-F-]{8,64})")
_DEVICE = re.compile(rb"Initialized device (\d{1,4}) with \d")
_RATE = re.compile(rb"(-?\d{1,20}) \((\d{1,12}) Gflop/s\)")
_ERRORS = re.compile(rb"(-?\d{1,20})\s{0,3}(?:\((DIED|WARNING)!\))?")
_DEGREES = re.compile(rb"(\d{1,4}) C|--")
_TROUBLE = (b"Couldn't init a GPU test", b"Failure during compute", b"No clients are alive",
            b"No CUDA devices", b"Low mem for result", b"CUDA error")  # fmt: skip
_ECC = (b"ECC_UNCORRECTABLE", b"uncorrectable ECC")
_UNKNOWN = re.compile(rb"\b(?:ERROR|Error|error:|FAIL(?:ED|URE)?|Failed|failed|Traceback)\b")
_INT32 = 1 << 31


def likeness(head: bytes) -> float:
    """Return 0.9 where a record, or a device's line, stands; or the list of results at the end."""
    if _MARK.search(head):
        return 0.9
    return 0.8 if _TESTED.search(head) and _RESULTS.search(head) else 0.0


@dataclass(slots=True)
class _Column:
    """One GPU as its column told of it.

    `errors` is the largest count while it was alive and had worked, `overflow` says that a count
    did not fit, `died` and `at` whether and at how many percent its test ended.
    """

    done: int = 0
    rate: int = 0
    errors: int = 0
    overflow: bool = False
    died: bool = False
    at: float = 0.0
    degrees: int = 0

    @property
    def worked(self) -> bool:
        """Whether it has computed anything."""
        return self.rate > 0 or self.done > 0


@dataclass(slots=True)
class _Run:
    """All that the file told."""

    columns: list[_Column] = field(default_factory=list)
    listed: dict[int, str] = field(default_factory=dict)
    devices: list[int] = field(default_factory=list)
    results: dict[int, str] = field(default_factory=dict)
    tested: int = 0
    records: int = 0
    percent: float = 0.0
    torn: bool = False
    ended: bool = False
    unread: bool = False
    told: dict[str, str] = field(default_factory=dict)  # what CUDA says of the device, by code
    trouble: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def progress(self, line: bytes, at: int) -> None:
        """Take one record: percent, then work, errors and temperatures by column."""
        self.records += 1
        head, _, rest = line[at:].partition(b"errors: ")
        errors, _, temps = rest.partition(b"temps: ")
        self.percent, self.torn = float(head.partition(b"%")[0]), not temps
        work = _RATE.findall(head)[:MOST_GPUS]
        while len(self.columns) < len(work):
            self.columns.append(_Column())
        counts, degrees = _ERRORS.findall(errors), _DEGREES.findall(temps)
        for i, (done, rate) in enumerate(work):
            column = self.columns[i]
            count, word = counts[i] if i < len(counts) else (b"0", b"")
            self._column(column, (int(done), int(rate)), int(count), word)
            if i < len(degrees) and degrees[i]:
                column.degrees = max(column.degrees, int(degrees[i]))

    def _column(self, column: _Column, work: tuple[int, int], count: int, word: bytes) -> None:
        done, rate = work
        if word == b"DIED" or done < 0:
            if not column.died:
                column.died, column.at = True, self.percent
            return
        column.done, column.rate = max(column.done, done), max(column.rate, rate)
        if count and column.worked and not column.died:
            column.overflow |= not 0 < count < _INT32
            column.errors = max(column.errors, count)

    def line(self, line: bytes) -> None:
        """Take a line that is no record."""
        if found := _RESULT.match(line):
            self.results[int(found[1])] = found[2].decode()
        elif found := _TESTED.match(line):
            self.tested, self.ended = int(found[1]), True
        elif found := _LISTED.match(line):
            if len(self.listed) < MOST_GPUS:
                self.listed[int(found[1])] = found[2].decode()
        elif found := _DEVICE.match(line):
            if int(found[1]) not in self.devices and len(self.devices) < MOST_GPUS:
                self.devices.append(int(found[1]))
        else:
            self._words(line)

    def _words(self, line: bytes) -> None:
        """Take a line in words: an error of CUDA's, of the tool's, or one that nobody knows."""
        said = plain(line.decode("utf-8", "replace"), 160)
        code = of_device(said)
        if any(words in line for words in _ECC):
            code = "gpu-burn.ecc"
        if code:
            self.told.setdefault(code, said)
        if code or any(words in line for words in _TROUBLE):
            if said not in self.trouble and len(self.trouble) < MOST_SAID:
                self.trouble.append(said)
        elif _UNKNOWN.search(line) and len(self.problems) < MOST_SAID:
            self.unread = True
            self.problems.append(f"a line is not understood: {said}")

    def subjects(self) -> list[str]:
        """Return the subject of each column; ``host`` where the device's number is not told.

        With -i or CUDA_VISIBLE_DEVICES the columns are fewer than the GPUs of the machine, and the
        first column is not GPU 0; then the lines of the devices tell, if there are as many.
        """
        count = len(self.columns) or self.tested or len(self.results)
        if self.listed and count < len(self.listed):
            if len(self.devices) == count:
                return [f"gpu{n}" for n in sorted(self.devices)]
            return ["host"] * count
        return [f"gpu{n}" for n in range(count)]


def _lines(source: Source) -> Iterator[bytes]:
    """Yield the file's lines, with a record first in its line; a line without end is cut up."""
    rest = b""
    for chunk in source.chunks():
        data = _PROGRESS.sub(rb"\n\g<0>", (rest + chunk).replace(b"\r", b"\n"))
        lines = data.split(b"\n")
        rest = lines.pop()
        yield from lines
        if len(rest) > LINE_LIMIT:
            yield rest
            rest = b""
    yield rest


def _said(run: _Run) -> Iterator[tuple[str, str, str]]:
    """Yield (subject, code, text) for all that was said."""
    subjects = run.subjects()
    died = [s for s, c in zip(subjects, run.columns, strict=False) if c.died]
    for i, subject in enumerate(subjects):
        column = run.columns[i] if i < len(run.columns) else None
        word = run.results.get(i, "")
        if column is None:
            if word == "FAULTY":
                yield subject, "gpu-burn.faulty", f"GPU {i}: FAULTY, and no record of its work"
        elif column.errors or column.overflow:
            count = "more than 2^31" if column.overflow else str(column.errors)
            text = f"{count} wrong results in a report, at up to {column.rate} Gflop/s"
            yield subject, "gpu-burn.errors", text
        elif column.died:
            work = "after it had worked" if column.worked else "before any work"
            yield subject, "gpu-burn.died", f"its test died at {column.at} %, {work}"
        elif word == "FAULTY" and column.worked:
            yield subject, "gpu-burn.errors", f"GPU {i}: FAULTY after it had worked"
        elif not column.worked and any(c.worked for c in run.columns):
            yield subject, "gpu-burn.idle", "0 Gflop/s while others worked"
    if run.told:
        where = died[0] if len(died) == 1 else "host"
        yield from ((where, code, said) for code, said in run.told.items())
    elif run.trouble and not (died and len(died) == len(run.columns)):
        yield died[0] if len(died) == 1 else "host", "gpu-burn.trouble", "; ".join(run.trouble[:2])


def _measured(run: _Run) -> Iterator[Measurement]:
    for subject, column in zip(run.subjects(), run.columns, strict=False):
        if subject != "host":
            yield Measurement(KIND, subject, "gpuburn.rate", float(column.rate), "GFLOP/s")
            if column.degrees:
                yield Measurement(KIND, subject, "gpuburn.temperature",
                                  float(column.degrees), "C")  # fmt: skip


def _state(run: _Run) -> tuple[bool, bool]:
    """Return (worked, cut), and note why."""
    worked = any(column.worked for column in run.columns)
    if not run.records:
        run.problems.append("no line of progress: nothing was compared")
    elif not worked:
        run.problems.append("0 Gflop/s throughout: nothing was computed")
    dead = bool(run.columns) and all(column.died for column in run.columns)
    if run.ended and len(run.results) < run.tested:
        run.problems.append(f"{run.tested} GPUs were tested, results of {len(run.results)} follow")
        return worked, True
    short = not run.ended and not dead and (run.torn or run.percent < WHOLE)
    if short and run.records:
        run.problems.append(f"breaks off at {run.percent} %")
    return worked, short


def read(source: Source) -> Reading:
    """Read the output of one run, in chunks."""
    run = _Run()
    for line in _lines(source):
        at = _PROGRESS.search(line) if b"proc'd: " in line else None
        if at:
            run.progress(line[:LINE_LIMIT], at.start())
        elif line:
            run.line(line[:512])
    worked, cut = _state(run)
    events = tuple(
        Event(subject, code, plain(text), clock="none") for subject, code, text in _said(run)
    )
    problems = (*source.problems, *run.problems, *(plain(said) for said in run.trouble))
    measurements = tuple(_measured(run))
    return Reading(
        source.path, KIND, len(run.columns), problems, events, measurements,
        cut=cut or source.cut, worked=worked and not run.unread,
        uuids={f"gpu{n}": uuid for n, uuid in run.listed.items() if "x" not in uuid.lower()},
    )  # fmt: skip


READER = Reader(KIND, "gpu-burn's output", likeness, read)
