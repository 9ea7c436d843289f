"""Reads a run directory back into a Record. Files of a run are untrusted: nothing is believed.

Lines that conclude (check, diagnosis, end's verdict) are never copied: the run is judged again. A
line that cannot be read is a problem with its place, and never an exception; only a record without
a readable first line is one.
"""

import hashlib
import json
import os
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from rackproof.diagnostics.evidence import (
    SCHEMA,
    SORTS,
    Head,
    Planned,
    Record,
    Retested,
    Settled,
)
from rackproof.harness.errors import RecordError, SpecError
from rackproof.harness.metrics import declare, from_table, metrics
from rackproof.harness.model import Event, Seen
from rackproof.reports import fields
from rackproof.reports.lines import SEEN, attempt, fitting, retested
from rackproof.reports.linewise import Problems, lines
from rackproof.reports.record import BEGUN, DONE
from rackproof.reports.words import visible

LINKS = 1 << 10  # more NVLinks than any GPU has
ROUNDS = 1 << 20  # more than any soak has
CHECKS = 1 << 22  # more than any plan owes; the product of a forged line's lists is bounded by it


def record_files(run: Path) -> list[Path]:
    """Return the record files of a run: the controller's first, then its workers' by name.

    None in a folder that this user may not list or enter.
    """
    main = run / "record.jsonl"
    try:
        found = sorted(p for p in run.glob("record.*.jsonl") if p.is_file() and not p.is_symlink())
        return ([main] if main.is_file() else []) + found
    except PermissionError:
        return []


def is_run(path: Path) -> bool:
    """Say whether `path` is a run directory, or its record file."""
    try:
        if path.is_dir():
            return bool(record_files(path))
        return path.name.startswith("record.") and path.suffix == ".jsonl" and path.is_file()
    except OSError:  # no right to look, or a name that is too long for any file
        return False


def fingerprint(run: Path) -> str:
    """Return the sha256 (hex) over the run's record files, name and content, in order.

    Raises RecordError when one of them cannot be read.
    """
    digest = hashlib.sha256()
    for path in record_files(run):
        digest.update(os.fsencode(path.name) + b"\0")
        try:
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
        except OSError as error:
            msg = f"{path}: cannot be read ({error.strerror})"
            raise RecordError(msg) from error
    return digest.hexdigest()


def span(run: Path) -> tuple[str, str] | None:
    """Return when a run's first and last record lines were written (ISO, UTC), if readable."""
    stamps = [text for path in record_files(run) for text in _ends(path)]
    return (min(stamps), max(stamps)) if stamps else None


def _ends(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            first = file.readline(1 << 20)
            file.seek(max(path.stat().st_size - (1 << 16), 0))
            lines = file.read(1 << 16).splitlines()
    except OSError:
        return []
    found = []
    for line in (first, *lines[-2:]):
        try:
            at = json.loads(line)["at"]
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
        if isinstance(at, str):
            found.append(visible(at, 40))
    return found


def _planned(body: dict[str, Any]) -> Planned:
    owes = {
        sort: fields.texts(names, sort)
        for sort, names in fields.table(body["owes"], "owes").items()
    }
    for sort, names in owes.items():
        if sort not in SORTS:
            msg = f"owes of unknown sort {sort!r}"
            raise ValueError(msg)
        unknown = [name for name in names if name not in metrics()]
        if unknown:
            msg = f"owes unknown metric {unknown[0]!r}"
            raise ValueError(msg)
    seconds = fields.finite(body["seconds"], "seconds")
    return Planned(fields.text(body, "burn"), owes, seconds, body.get("wide", False) is True)


def _around(body: dict[str, Any]) -> dict[str, list[str]]:
    found = fields.table(body.get("around", {}), "around")
    unknown = next((sort for sort in found if sort not in SORTS), None)
    if unknown is not None:
        msg = f"around of unknown sort {unknown!r}"
        raise ValueError(msg)
    return {sort: fields.texts(subjects, sort) for sort, subjects in found.items()}


def _head(body: dict[str, Any]) -> Head:
    if body.get("schema") != SCHEMA:
        msg = f"its schema is {body.get('schema')!r}, this version reads {SCHEMA}"
        raise RecordError(msg)
    date.fromisoformat(fields.text(body, "today"))
    own = fields.rows(body.get("metrics", []), "metrics")
    for table in own:
        declare(from_table(table))
    head = Head(
        rack=fields.text(body, "rack"),
        source=fields.text(body, "source"),
        seed=fields.whole(body, "seed", low=-fields.MOST, high=fields.SEED),
        level=fields.text(body, "level"),
        verb=fields.text(body, "verb"),
        gpus=fields.words(body["gpus"], "gpus"),
        hosts=fields.texts(body["hosts"], "hosts"),
        links=_count(body, "links", LINKS),
        plan=[_planned(planned) for planned in fields.rows(body["plan"], "plan")],
        limits=fields.table(body["limits"], "limits"),
        today=fields.text(body, "today"),
        versions=fields.words(body.get("versions", {}), "versions"),
        absent=fields.texts(body.get("absent", []), "absent"),
        domain=_count(body, "domain", fields.MOST),
        switches=_count(body, "switches", LINKS),
        around=_around(body),
        skipped=fields.words(body.get("skipped", {}), "skipped"),
        metrics=tuple(own),
        rounds=fields.whole({"rounds": 1, **body}, "rounds", low=1, high=ROUNDS),
        lasting=_seconds(body, "lasting"),
        budget=_seconds(body, "budget"),
        left_out=fields.words(body.get("left_out", {}), "left_out"),
        allowed=tuple(fields.texts(body.get("allowed", []), "allowed")),
        retest_budget=_seconds(body, "retest_budget"),
    )
    _bound(head)
    return head


def _count(body: dict[str, Any], key: str, high: int) -> int | None:
    return None if body.get(key) is None else fields.whole(body, key, high=high)


def _seconds(body: dict[str, Any], key: str) -> float | None:
    return None if body.get(key) is None else fields.finite(body[key], key)


def _bound(head: Head) -> None:
    """Refuse a plan that owes more checks than any rack can have."""
    counts = {sort: len(head.subjects(sort)) for sort in SORTS if sort != "link"}
    counts["link"] = counts["gpu"] * (head.links or 0)
    owed = sum(
        counts[sort] * len(names) for planned in head.plan for sort, names in planned.owes.items()
    )
    if owed > CHECKS:
        msg = f"its plan owes {owed} checks, more than {CHECKS}"
        raise ValueError(msg)


CONCLUDED = frozenset({"check", "diagnosis"})  # never copied


@dataclass(slots=True)
class _Reading:
    """What was read so far of a run's files."""

    head: Head | None = None
    seen: list[Seen] = field(default_factory=list)
    settled: set[Settled] = field(default_factory=set)
    turns: dict[Settled, int] = field(default_factory=dict)
    ended: bool = False
    aside: list[Event] = field(default_factory=list)
    begun: dict[frozenset[Settled], Retested] = field(default_factory=dict)
    done: list[Retested] = field(default_factory=list)

    def take(self, body: dict[str, Any]) -> None:
        """Take one line; raises what the fields raise, and RecordError for another schema."""
        kind = body["kind"]
        if kind == "run":
            head = _head(body)
            if self.head is not None and self.head != head:
                msg = "a second run line, with another plan"
                raise ValueError(msg)
            self.head = head
        elif kind in SEEN:
            self._see(SEEN[kind](body), aside=body.get("retest") is True)
        elif kind == "settled":
            key = (fields.text(body, "check"), fields.text(body, "subject"), attempt(body))
            turn = fields.whole({"round": 1, **body}, "round", low=1, high=ROUNDS)
            self.settled.add(key)
            if turn > 1:
                self.turns[key] = turn
        elif kind == "retest":
            self._retest(retested(body), body.get("state"))
        elif kind == "end":
            self.ended = True
        elif kind not in CONCLUDED:
            msg = "of no known kind"
            raise ValueError(msg)

    def _see(self, what: Seen, *, aside: bool) -> None:
        if aside and isinstance(what, Event):
            self.aside.append(what)
        else:
            self.seen.append(what)

    def _retest(self, what: Retested, state: object) -> None:
        """Take a retest's line: the first before its runs, or the second, by which it counts."""
        if state == DONE and what.attempts in self.begun:
            del self.begun[what.attempts]
            self.done.append(what)
        elif state == BEGUN and not what.attempts & self.settled:
            self.begun[what.attempts] = what
        else:
            msg = "names runs that were before it" if state == BEGUN else "never begun"
            raise ValueError(msg)


def read_run(run: Path) -> Record:
    """Return the record of a run directory (or of its record file's directory).

    Raises RecordError when there is no record or no readable first line.
    """
    folder = run if run.is_dir() else run.parent
    found: list[str] = []
    reading = _Reading()
    for path in record_files(folder):
        problems = Problems(path.name)
        for number, body in lines(path, problems):
            try:
                reading.take(body)
            except RecordError as error:
                msg = f"{path}: {error}"
                raise RecordError(msg) from error
            except KeyError as error:
                problems.add(f"line {number}: bad {body['kind'][:20]!r} line (no {error})")
            except (TypeError, ValueError, ArithmeticError, RecursionError, SpecError) as error:
                problems.add(f"line {number}: bad {body['kind'][:20]!r} line ({error})")
        found += problems.told()
    if reading.head is None:
        why = f" ({found[0]})" if found else ""
        msg = f"{folder}: no readable run line in its record{why}"
        raise RecordError(msg)
    settled = frozenset(reading.settled)
    told = [*reading.done, *reading.begun.values()]
    kept, wrong = fitting(reading.head, settled, told)
    return Record(
        reading.head,
        reading.seen,
        settled,
        reading.ended,
        (*found, *wrong),
        reading.turns,
        tuple(one for one in reading.done if one in kept),
        tuple(one for one in reading.begun.values() if one in kept),
        tuple(reading.aside),
    )
