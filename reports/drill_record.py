"""Writes the record of a drill: ``RUN/drill.jsonl``, a line for each thing as it happens.

Kinds: `drill`, the first, with schema and head · `course`, once as it begins and once as it ends ·
`happening` and `fact`, each of a course · `planted` · `trouble`, why the drill could not be held to
its end · then what was concluded, `claim` and `end`, which nobody copies. Each has its number,
`line`, from 1 on: a copy that lacks one, or has one twice, is known. A kill loses no line that was
written; without `end` the drill was cut short. Several threads may write.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rackproof.diagnostics.recovery.record import SCHEMA, Course, Fact, Head
from rackproof.harness.happening import Happening
from rackproof.reports.record import LineFile

FILE = "drill.jsonl"


class DrillWriter:
    """Appends to the record of one drill. Raises RecordError where a line cannot be written."""

    def __init__(self, run: Path) -> None:
        """Write to RUN/drill.jsonl, which the first line makes."""
        self._path = run / FILE
        self._file: LineFile | None = None
        self._count = 0
        self._lock = threading.Lock()

    def _put(self, kind: str, fields: Mapping[str, Any]) -> None:
        with self._lock:
            if self._file is None:
                self._file = LineFile(self._path)
            self._count += 1
            self._file.put(kind, {"line": self._count, **fields})

    def head(self, head: Head) -> None:
        """Write the first line."""
        self._put("drill", {"schema": SCHEMA, **asdict(head)})

    def begin(self, course: str, at: float) -> None:
        """Say that a course begins."""
        self._put("course", {"course": course, "state": "begin", "when": round(at, 6)})

    def finish(self, course: str, at: float, problems: Sequence[str], *, finished: bool) -> None:
        """Say that a course is over; `finished` is that of Course."""
        fields = {"course": course, "state": "end", "when": round(at, 6)}
        self._put("course", {**fields, "finished": finished, "problems": list(problems)})

    def happening(self, course: str, what: Happening) -> None:
        """Write what was said, or done, during a course."""
        head = {"kind": what.kind, "at": round(what.at, 6), "who": what.who}
        said = {**head, "attempt": what.attempt, "fields": dict(what.fields)}
        self._put("happening", {"course": course, "said": said})

    def fact(self, fact: Fact) -> None:
        """Write what was looked at. Its `at` is of the monotonic clock, like that of happenings."""
        fields = {"course": fact.course, "what": fact.what, "when": round(fact.at, 6)}
        self._put("fact", {**fields, "fields": dict(fact.fields)})

    def copy(self, course: Course, facts: Sequence[Fact]) -> None:
        """Write a whole course that was run before, by the same process, for another drill."""
        self.begin(course.name, course.began)
        for what in course.happenings:
            self.happening(course.name, what)
        for fact in facts:
            self.fact(fact)
        self.finish(course.name, course.ended, course.problems, finished=course.finished)

    def planted(self, planted: Sequence[Mapping[str, Any]]) -> None:
        """Write the contract's list of planted faults; the last line of them holds."""
        self._put("planted", {"planted": [dict(each) for each in planted]})

    def trouble(self, why: str) -> None:
        """Say why the drill was not held to its end: such a record is UNKNOWN at best."""
        self._put("trouble", {"why": why})

    def conclude(self, claims: Sequence[Mapping[str, Any]], verdict: str, proof: str) -> None:
        """Write what was concluded, and the end."""
        for claim in claims:
            self._put("claim", claim)
        self._put("end", {"verdict": verdict, "proof": proof})

    def close(self) -> None:
        """Close the file; the lines are already there."""
        with self._lock:
            if self._file is not None:
                self._file.close()
