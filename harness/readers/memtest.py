"""Memory tests of others: cuda_memtest, and memtestG80 with memtestCL.

A count near 2^32 is a small negative one printed without its sign, and a test that took 0 ms tested
nothing: both tools fail in that way where the memory is larger than they were written for, and
neither is an error of the memory. What was not allocated was not tested, so the share is measured.
A value that was read back wrong is an error with or without the line that counts the errors, and an
ERROR line that is not understood leaves the run without a result.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.job_signs import of_device
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.source import Source

KIND = "memtest"
LINE_LIMIT, MOST_GPUS, MOST_SAID = 4096, 256, 8
MIB = 1 << 20
GARBAGE = (1 << 31) - 1  # %d and %u of the same counter: above this it is a negative number
# github.com/ihaque/memtestG80/issues/7: above 16400 MiB "Random blocks" alone fails on good cards.
RANDOM_BLOCKS, RANDOM_LIMIT = "Random blocks", 16400
_PREFIX = re.compile(r"\[(\d\d/\d\d/\d{4} \d\d:\d\d:\d\d)\]\[([\w.\-]{1,64})\]\[(\d{1,3})\]: ?")
_MARK = re.compile(
    rb"^\[\d\d/\d\d/\d{4} \d\d:\d\d:\d\d\]\[[\w.\-]{1,64}\]\[\d{1,3}\]: ?"
    rb"(?:Running cuda memtest|Device name=|Attached to device|Allocated \d|Test\d{1,2} |ERROR: )"
    rb"|^Running \d{1,9} iterations of tests over \d{1,9} MB of (?:GPU )?memory on "
    rb"|^Test iteration \d{1,9} (?:\(GPU \d|on \d)"
    rb"|^\s{0,8}Moving Inversions \([\w &]{1,30}\): \d{1,20} errors \(\d{1,9} ms\)",
    re.MULTILINE,
)
_DEVICE = re.compile(r"Device name=.{1,80}, global memory size=(\d{1,20})(?:, serial=(\S{1,40}))?")
_ALLOCATED = re.compile(r"Allocated (-?\d{1,12}) MB")
_STARTED = re.compile(r"Test(\d{1,2}) \[")
_FINISHED = re.compile(r"Test(\d{1,2}) finished in ")
_FOUND = re.compile(r"ERROR: \(([^)]{1,80})\)? ?(-?\d{1,20}) errors found in block (\d{1,12})")
_ADDRESSES = re.compile(r"error addresses are:\s{0,8}(0x[0-9a-fA-F]{1,16})")
_VALUE = re.compile(
    r"expected value=(0x[0-9a-f]{1,16}), current value=(0x[0-9a-f]{1,16}), diff=(0x[0-9a-f]{1,16})"
    r"(?: \(second_read=(0x[0-9a-f]{1,16}))?"
)
_TROUBLE = re.compile(
    r"(?:CUDA error|CUDA Runtime API error|CUERR|cannot allocate any memory"
    r"|Some GPU threads are not progressing|no GPUs found)",
    re.IGNORECASE,
)
# What an ERROR line says beside the errors: whose memory it is, and how often it was read again.
_BESIDE = re.compile(r"ERROR: (?:The unit serial number|reading \d{1,9}(?:st|nd|rd|th) time)",
                     re.IGNORECASE)  # fmt: skip
_USAGE = re.compile(r"(?:ERROR: Invalid option|Usage: ?\S{0,40} ?\[options\])")
_RUNNING = re.compile(
    r"Running (\d{1,9}) iterations of tests over (\d{1,9}) MB of (?:GPU )?memory on "
    r"(?:card|device) (\d{1,3})"
)
_ITERATION = re.compile(r"Test iteration (\d{1,9}) \(GPU (\d{1,3}), (\d{1,9}) MiB\)")
_COUNTED = re.compile(r"\s{0,16}([A-Z][\w ,()\-&']{2,60}): (-?\d{1,20}) errors \((\d{1,12}) ms\)")
_FINAL = re.compile(r"Final error count(?: after \d{1,9} iterations)?[^:]{0,80}: (-?\d{1,20})")


def likeness(head: bytes) -> float:
    """Return 0.9 where a line stands that only these tools write."""
    return 0.9 if _MARK.search(head) else 0.0


@dataclass(slots=True)
class _Tested:
    """One GPU: its memory in bytes, what was allocated in MiB, tests and errors."""

    total: int = 0
    allocated: int = 0
    serial: str = ""
    open: str = ""
    finished: set[str] = field(default_factory=set)
    tests: int = 0
    errors: int = 0
    wrong: int = 0  # values told of that were read back wrong
    doubtful: bool = False  # a count of its errors means nothing
    failing: set[str] = field(default_factory=set)
    first: str = ""
    address: str = ""
    pattern: str = ""
    garbage: bool = False
    trouble: str = ""
    code: str = ""
    lines: dict[str, int] = field(default_factory=dict)  # where errors and trouble begin


@dataclass(slots=True)
class _Run:
    """All that the file told."""

    gpus: dict[int, _Tested] = field(default_factory=dict)
    host: str = ""
    usage: bool = False
    exits: bool = False
    iterations: int = 0
    g80: bool = False
    final: bool = False
    now: int = 0
    number: int = 0  # of the line
    unread: bool = False
    problems: list[str] = field(default_factory=list)

    def gpu(self, number: int) -> _Tested:
        """Return what is known of a GPU."""
        if number not in self.gpus and len(self.gpus) >= MOST_GPUS:
            number = next(iter(self.gpus))
        return self.gpus.setdefault(number, _Tested())

    def note(self, problem: str) -> None:
        """Add a problem once, MOST_SAID at most."""
        if problem not in self.problems and len(self.problems) < MOST_SAID:
            self.problems.append(problem)

    def line(self, line: str) -> None:
        """Take one line of either tool."""
        if prefix := _PREFIX.match(line):
            self.host, self.now = prefix[2], int(prefix[3])
            self._cuda(line[prefix.end() :])
        elif _USAGE.match(line):
            self.usage = True
            self.note("a wrong option, and the help text: nothing was tested")
        elif found := _RUNNING.match(line):
            self.g80, self.iterations, self.now = True, int(found[1]), int(found[3])
            self.gpu(self.now).allocated = int(found[2])
        elif found := _ITERATION.match(line):
            self.g80, self.now = True, int(found[2])
            self.gpu(self.now).allocated = int(found[3])
        elif found := _COUNTED.match(line):
            self.g80 = True
            self._counted(found[1], int(found[2]), int(found[3]))
        elif _FINAL.match(line):
            self.g80 = self.final = True
        elif line.startswith("main thread: Program exits"):
            self.exits = True
        else:
            self._cuda(line)

    def _counted(self, test: str, count: int, milliseconds: int) -> None:
        """Take one test of memtestG80."""
        gpu = self.gpu(self.now)
        if not 0 <= count <= GARBAGE or (count and not milliseconds):
            gpu.garbage = True
            return
        gpu.tests += milliseconds > 0  # no time, no work that can be told from none
        gpu.finished.add(test)
        if count:
            gpu.errors += count
            gpu.failing.add(test)
            gpu.first = gpu.first or f"{test}: {count} errors"

    def _cuda(self, line: str) -> None:
        """Take one line of cuda_memtest."""
        if line.startswith("ERROR"):
            self._error(line)
        elif found := _FINISHED.match(line):
            gpu = self.gpu(self.now)
            gpu.open = ""
            gpu.tests += 1
            gpu.finished.add(found[1])
        elif found := _STARTED.match(line):
            self.gpu(self.now).open = found[1]
        elif found := _DEVICE.match(line):
            gpu = self.gpu(self.now)
            gpu.total, gpu.serial = int(found[1]), found[2] or ""
        elif found := _ALLOCATED.match(line):
            self.gpu(self.now).allocated = int(found[1])
        elif "ERROR" in line or "error" in line:  # of CUDA, in words of its own
            self._error(line)

    def _error(self, line: str) -> None:
        gpu = self.gpu(self.now)
        if found := _FOUND.search(line):
            self._found(gpu, found)
        elif found := _ADDRESSES.search(line):
            gpu.address = gpu.address or found[1]
            gpu.lines.setdefault("errors", self.number)
        elif found := _VALUE.search(line):
            again = "" if not found[4] else f", read again as {found[4]}"
            told = f"expected {found[1]}, read {found[2]}, bits {found[3]} differ{again}"
            gpu.pattern = gpu.pattern or told
            gpu.wrong += int(found[3], 16) != 0
            gpu.lines.setdefault("errors", self.number)
        elif _TROUBLE.search(line) or of_device(line):
            gpu.code = of_device(line) or gpu.code
            gpu.trouble = gpu.trouble or plain(line, 160)
            gpu.lines.setdefault("trouble", self.number)
        elif line.startswith("ERROR") and not _BESIDE.match(line):
            self.unread = True
            self.note(f"line {self.number} is not understood: {plain(line, 160)}")

    def _found(self, gpu: _Tested, found: re.Match[str]) -> None:
        """Take the count of one test's errors."""
        count = int(found[2])
        if not 0 < count <= GARBAGE:
            gpu.doubtful = True
            self.note(f"gpu{self.now}: a count of {count} errors means nothing")
            return
        gpu.errors += count
        gpu.failing.add(plain(found[1], 40))
        gpu.first = gpu.first or f"{plain(found[1], 40)}: {count} errors in block {found[3]}"
        gpu.lines.setdefault("errors", self.number)


def _text(gpu: _Tested) -> str:
    """Return what is told of a GPU's errors."""
    counted = f"{gpu.errors} errors in all; {gpu.first}" if gpu.errors else ""
    wrong = gpu.wrong and not counted and f"{gpu.wrong} values read back wrong, and no count"
    parts = (counted or wrong, gpu.address and f"first at {gpu.address}", gpu.pattern)
    return plain(", ".join(part for part in parts if part))


def _said(number: int, gpu: _Tested) -> Iterator[Event]:
    subject = f"gpu{number}"
    if gpu.garbage:
        return
    places = {name: {"line": line} for name, line in gpu.lines.items()}
    own = gpu.failing == {RANDOM_BLOCKS} and gpu.allocated > RANDOM_LIMIT
    if gpu.errors or gpu.wrong:
        code = "memtest.random-blocks" if own else "memtest.errors"
        yield Event(subject, code, _text(gpu), clock="none", detail=places.get("errors", {}))
    if gpu.trouble:
        yield Event(subject, gpu.code or "memtest.trouble", gpu.trouble, clock="none",
                    detail=places["trouble"])  # fmt: skip


def _measured(number: int, gpu: _Tested) -> Iterator[Measurement]:
    subject = f"gpu{number}"
    yield Measurement(KIND, subject, "memtest.tests", gpu.tests, "events")
    if gpu.total and gpu.allocated > 0:
        share = round(min(1.0, gpu.allocated * MIB / gpu.total), 4)
        yield Measurement(KIND, subject, "memtest.coverage", share, "ratio")


def _cut(run: _Run) -> bool:
    """Whether tests are missing that were to follow.

    cuda_memtest goes on for ever unless told otherwise, and is then ended from outside: one whole
    pass is enough, which shows in a test that was finished twice.
    """
    if run.g80:
        if not run.final:
            run.note("the final count is missing")
        return not run.final
    cut = False
    for number, gpu in sorted(run.gpus.items()):
        again = gpu.tests > len(gpu.finished)
        if not (run.exits or again or gpu.errors or gpu.wrong):
            where = f"in test {gpu.open}" if gpu.open else f"after {gpu.tests} tests"
            run.note(f"gpu{number}: breaks off {where}")
            cut = True
    return cut


def read(source: Source) -> Reading:
    """Read the output of one of the tools, in chunks."""
    run = _Run()
    for chunk in source.chunks():
        for row in chunk.split(b"\n")[: None if not chunk.endswith(b"\n") else -1]:
            run.number += 1
            for line in row.split(b"\r"):
                if line:
                    run.line(line[:LINE_LIMIT].decode("utf-8", "replace"))
    gpus = sorted(run.gpus.items())
    for number, gpu in gpus:
        if gpu.garbage:
            run.note(f"gpu{number}: counts that are negative numbers, or tests of 0 ms: the tool "
                     "failed, and its counts mean nothing")  # fmt: skip
    tests = sum(gpu.tests for _, gpu in gpus if not gpu.garbage)
    erring = sum(1 for _, gpu in gpus if (gpu.errors or gpu.wrong) and not gpu.garbage)
    worked = bool(tests or erring)
    records = tests or erring
    idle = any(gpu.garbage or gpu.doubtful or not (gpu.tests or gpu.errors or gpu.wrong)
               for _, gpu in gpus)  # fmt: skip
    for number, gpu in gpus:
        if gpu.address and not (gpu.errors or gpu.wrong or gpu.garbage):
            run.unread = True
            run.note(f"gpu{number}: addresses of errors are told, and no error")
    if not worked and not run.problems:
        run.note("no test was finished: nothing was tested")
    cut = _cut(run)
    return Reading(
        source.path, KIND, records, (*source.problems, *run.problems),
        tuple(event for number, gpu in gpus for event in _said(number, gpu)),
        tuple(one for number, gpu in gpus for one in _measured(number, gpu)),
        cut=source.cut or cut, worked=worked and not (idle or run.usage or run.unread),
        serials={f"gpu{n}": gpu.serial for n, gpu in gpus if gpu.serial.isdecimal()},
        host=run.host or None,
    )  # fmt: skip


READER = Reader(KIND, "cuda_memtest, memtestG80 and memtestCL", likeness, read)
