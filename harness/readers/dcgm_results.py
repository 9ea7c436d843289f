"""What `dcgmi diag` found, however it was printed: results by test and GPU in, a Reading out.

A result's word (Pass, Fail, Warn, Skip) is a measurement; the reasons that DCGM gives are events by
their error code, ``dcgm.fr.N``. A Fail without a reason that we know is an event of its own, since
a memory test also fails where no CUDA context could be made.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.dcgm_words import code_of
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reading
from rackproof.harness.readers.source import Source

MOST_EVENTS, MOST_RESULTS, HIGHEST_GPU = 2000, 20_000, 4095
STATUSES = {"pass": "pass", "passed": "pass", "fail": "fail", "failed": "fail", "error": "fail",
            "warn": "warn", "warning": "warn", "skip": "skip", "skipped": "skip",
            "not run": "skip", "notrun": "skip"}  # fmt: skip
SOFTWARE = frozenset(("deployment", "software"))
_GPU = re.compile(r"\bGPU ?(\d{1,4})\b", re.IGNORECASE)
_XID = re.compile(r"\bS?XID (\d{1,5})\b", re.IGNORECASE)
_LINK = re.compile(r"\bNvLink (?:link )?(\d{1,2})\b", re.IGNORECASE)
_XID_CODE, _UNCONTAINED, _SXID_CODE, _ALLOCATION, _DENYLIST = 101, 81, 109, 56, 23
# Rows of the level 1 table whose failure is about the hardware, though no reason follows.
_HARDWARE_ROWS = {"page retirement/row remap": "dcgm.retirement", "inforom": "dcgm.fr.9"}


@dataclass(frozen=True, slots=True)
class Reason:
    """What DCGM says of a result; `code`, `severity` and `category` as in dcgm_errors.h, or 0."""

    text: str
    code: int = 0
    severity: int = 0
    category: int = 0


@dataclass(slots=True)
class Result:
    """One word about one test: for `gpus`, or for the whole host where that is empty."""

    category: str
    test: str
    status: str
    gpus: tuple[int, ...] = ()
    reasons: list[Reason] = field(default_factory=list)

    @property
    def hardware(self) -> bool:
        """Whether the test is about more than the installation."""
        return self.category.lower() not in SOFTWARE and self.test.lower() not in SOFTWARE


@dataclass(slots=True)
class Diagnostic:
    """All that was read: results, the GPUs' serial numbers and UUIDs, and the driver's version."""

    results: list[Result] = field(default_factory=list)
    serials: dict[str, str] = field(default_factory=dict)
    uuids: dict[str, str] = field(default_factory=dict)
    driver: str = ""
    problems: list[str] = field(default_factory=list)
    cut: bool = False

    def note(self, problem: str) -> None:
        """Add a problem once."""
        if problem not in self.problems:
            self.problems.append(problem)


def status_of(word: object) -> str:
    """Return pass, fail, warn or skip; a word that we do not know is no pass, and is a skip."""
    return STATUSES.get(" ".join(str(word).lower().split()), "skip")


def _subjects(result: Result, text: str = "") -> list[str]:
    """Return the subjects of a result; a reason that names one GPU is about that one."""
    named = {int(n) for n in _GPU.findall(text)}
    gpus = [n for n in result.gpus if n in named] if named & set(result.gpus) else result.gpus
    if not result.gpus:
        gpus = sorted(n for n in named if n <= HIGHEST_GPU)
    return [f"gpu{n}" for n in gpus] or ["host"]


def _code(reason: Reason, number: int) -> str:
    said = _XID.search(reason.text)
    if number == _UNCONTAINED:
        return "xid.95"
    if number in (_XID_CODE, _SXID_CODE) and said:
        return f"{'xid' if number == _XID_CODE else 'sxid'}.{int(said[1])}"
    return f"dcgm.fr.{number}"


def _explained(result: Result) -> Iterator[Event]:
    """Yield an event for each reason that has a code."""
    for reason in result.reasons:
        number = reason.code or code_of(reason.text) or 0
        told_pass = result.status == "pass" and number != _ALLOCATION
        if not number or told_pass or (result.status == "skip" and not reason.code):
            continue
        detail: dict[str, str | int | float] = {"test": plain(result.test, 40)}
        link = _LINK.search(reason.text)
        detail |= {"link": int(link[1])} if link else {}
        detail |= {"severity": reason.severity} if reason.severity else {}
        detail |= {"category": reason.category} if reason.category else {}
        text = plain(f"{result.test}: {reason.text}")
        for subject in _subjects(result, reason.text):
            yield Event(subject, _code(reason, number), text, clock="none", detail=detail)


def _unexplained(result: Result, *, cut: bool) -> Iterator[Event]:
    """Yield an event for a Fail or Warn that nothing explains."""
    if result.status not in ("fail", "warn"):
        return
    text = "; ".join(reason.text for reason in result.reasons) or "no reason follows"
    code = "dcgm.warn"
    if result.status == "fail":
        code = "dcgm.fail" if result.hardware else "dcgm.software"
        code = _HARDWARE_ROWS.get(result.test.lower(), code)
        if result.test.lower() in ("blacklist", "denylist"):
            code = f"dcgm.fr.{_DENYLIST}"
        code = "dcgm.cut" if cut and code == "dcgm.fail" else code
    for subject in _subjects(result):
        word = f"{result.test}: {result.status.capitalize()}"
        yield Event(subject, code, plain(f"{word}: {text}"), clock="none",
                    detail={"test": plain(result.test, 40)})  # fmt: skip


def _events(results: Iterable[Result], *, cut: bool) -> list[Event]:
    found: dict[tuple[str, str], Event] = {}
    for result in results:
        explained = list(_explained(result))
        for event in explained or _unexplained(result, cut=cut):
            if len(found) < MOST_EVENTS:
                found.setdefault((event.subject, event.code), event)
    return list(found.values())


def _left_out(results: Sequence[Result]) -> Iterator[Event]:
    """Yield a GPU whose hardware tests were all skipped beside others whose were run."""
    ran: dict[str, bool] = {}
    for result in results:
        if result.hardware:
            for subject in _subjects(result):
                ran[subject] = ran.get(subject, False) or result.status != "skip"
    if not any(ran.values()):
        return
    for subject, any_run in sorted(ran.items()):
        if not any_run and subject != "host":
            yield Event(subject, "dcgm.skipped", "every hardware test of it was skipped",
                        clock="none")  # fmt: skip


def _worked(results: Sequence[Result], found: Diagnostic) -> bool:
    """Whether a test was run at all; where hardware was to be tested, whether any of it was."""
    hardware = [result for result in results if result.hardware]
    ran = [result for result in hardware or results if result.status != "skip"]
    if not results:
        found.note("no result of a test in it")
    elif not ran:
        what = "hardware test" if hardware else "test"
        found.note(f"every {what} was skipped: nothing was tested")
    elif not hardware:
        found.note("only the installation was tested: no result about the hardware")
    skipped = sorted({result.test for result in hardware if result.status == "skip"})
    if ran and skipped:
        found.note(plain("skipped for some or all GPUs: " + ", ".join(skipped)))
    return bool(ran)


def reading(kind: str, source: Source, found: Diagnostic) -> Reading:
    """Return the Reading of all results."""
    results = found.results[:MOST_RESULTS]
    measurements = [
        Measurement(plain(result.test, 40), subject, "dcgm.diag.result", result.status, "text")
        for result in results for subject in _subjects(result)
    ]  # fmt: skip
    if found.driver:
        driver = plain(found.driver, 40)
        measurements.append(Measurement(kind, "host", "driver.version", driver, "text"))
    worked = _worked(results, found)
    cut = found.cut or source.cut or len(found.results) > MOST_RESULTS
    events = [*_events(results, cut=cut), *_left_out(results)]
    return Reading(
        source.path, kind, len(measurements) - bool(found.driver),
        (*source.problems, *found.problems), tuple(events), tuple(measurements),
        cut=cut, worked=worked, serials=found.serials, uuids=found.uuids,
    )  # fmt: skip
