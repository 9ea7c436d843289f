"""Reads a drill's run directory back into a DrillRecord. Its file is untrusted.

What was concluded (claim, the verdict of `end`) is never copied: the drill is judged again. A line
that cannot be read is a problem with its place, and never an exception; only a record whose first
line is no readable head is one.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import fields as fields_of
from pathlib import Path
from typing import Any

from rackproof.diagnostics.recovery.record import (
    LAYERS,
    PROOFS,
    SCHEMA,
    Course,
    DrillRecord,
    Expected,
    Fact,
    Head,
)
from rackproof.harness.errors import RecordError
from rackproof.harness.happening import KINDS, Happening
from rackproof.harness.training.plan import MODES
from rackproof.reports import fields
from rackproof.reports.drill_record import FILE
from rackproof.reports.linewise import Problems, lines

COURSES = ("clean1", "clean2", "faulted", "replay")
FACTS = (
    "died", "gone", "doubled", "stopped", "thawed", "alive", "checkpoint", "final", "left-behind",
    "fired", "outcome", "full", "power",
)  # fmt: skip
MOST = 1 << 21  # happenings and facts of one record
STEPS = 1 << 24  # more than any drill has
WIDEST = 1 << 16  # members of a job
LATEST = 1e10  # seconds that a machine can have been up; three centuries


def is_drill(path: Path) -> bool:
    """Say whether `path` is a drill's run directory, or its record file."""
    try:
        file = path / FILE if path.is_dir() else path
        return file.name == FILE and file.is_file() and not file.is_symlink()
    except OSError:  # no right to look, or a name that is too long for any file
        return False


def fingerprint(run: Path) -> str:
    """Return the sha256 (hex) of the drill's record file; a RecordError when it is unreadable."""
    digest = hashlib.sha256()
    path = run / FILE
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})"
        raise RecordError(msg) from error
    return digest.hexdigest()


def _moment(body: Mapping[str, Any], key: str) -> float:
    """Return seconds of a monotonic clock, which begins when a machine does."""
    found = fields.finite(body[key], key)
    if abs(found) > LATEST:
        raise fields.bad(key, found, "a time")
    return found


def _planted(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return one entry of the contract's list of planted faults."""
    names = {name: fields.text(body, name) for name in ("kind", "subject")}
    parameters = fields.table(body["parameters"], "parameters")
    return {**names, "parameters": parameters, "fired": fields.whole(body, "fired")}


def _flag(body: Mapping[str, Any], key: str) -> bool:
    value = body[key]
    if not isinstance(value, bool):
        raise fields.bad(key, value, "true or false")
    return value


def _proof(body: Mapping[str, Any], key: str) -> str:
    found = fields.text(body, key)
    if found not in PROOFS:
        raise fields.bad(key, found, f"one of {', '.join(PROOFS)}")
    return found


def _texts(body: Mapping[str, Any], key: str) -> tuple[str, ...]:
    return tuple(fields.texts(body[key], key))


def _some_texts(body: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    return None if body[key] is None else _texts(body, key)


def _count(body: Mapping[str, Any], key: str) -> int:
    return fields.whole(body, key, high=STEPS)


def _seconds(body: Mapping[str, Any], key: str) -> float | None:
    return None if body[key] is None else fields.finite(body[key], key)


def _number(body: Mapping[str, Any], key: str) -> float:
    return fields.finite(body[key], key)


_EXPECTED: Mapping[str, Callable[[Mapping[str, Any], str], Any]] = {
    "proof": _proof,
    "best": _proof,
    "must_restart": _flag,
    "evicted": _some_texts,
    "detect": _seconds,
    "resume": _seconds,
    "resume_steps": _number,
    **dict.fromkeys(("restarts", "lost_steps", "passed_over"), _count),
    **dict.fromkeys(("timeline", "absent", "components", "kinds", "unseen", "power"), _texts),
}


def _expected(body: Mapping[str, Any]) -> Expected:
    """Return what must hold. A field that is not there would weaken it, so it is a KeyError."""
    return Expected(**{each.name: _EXPECTED[each.name](body, each.name) for each in _OF_EXPECTED})


_OF_EXPECTED = fields_of(Expected)


def _one_of(body: Mapping[str, Any], key: str, words: tuple[str, ...]) -> str:
    found = fields.text(body, key)
    if found not in words:
        raise fields.bad(key, found, f"one of {', '.join(words)}")
    return found


def _head(body: Mapping[str, Any]) -> Head:
    if body.get("schema") != SCHEMA:
        msg = f"its schema is {str(body.get('schema'))[:40]!r}, this version reads {SCHEMA}"
        raise RecordError(msg)
    every = body["checkpoint_every"]
    return Head(
        drill=fields.text(body, "drill"),
        rack=fields.text(body, "rack"),
        source=fields.text(body, "source"),
        seed=fields.whole(body, "seed", low=-fields.MOST, high=1 << 63),
        layer=_one_of(body, "layer", LAYERS),
        steps=fields.whole(body, "steps", low=1, high=STEPS),
        plan=fields.table(body["plan"], "plan"),
        expected=_expected(fields.table(body["expected"], "expected")),
        placement=fields.words(body["placement"], "placement"),
        replicas=fields.whole(body, "replicas", low=1, high=WIDEST),
        checkpoint_every=None
        if every is None
        else fields.whole(body, "checkpoint_every", low=1, high=STEPS),
        mode=_one_of(body, "mode", MODES),
        versions=fields.words(body["versions"], "versions"),
        date=fields.text(body, "date"),
    )


def _happening(body: dict[str, Any]) -> Happening:
    said = fields.table(body["said"], "said")
    kind, who = fields.text(said, "kind"), fields.text(said, "who")
    if kind not in KINDS:
        msg = f"a happening of unknown kind {kind[:40]!r}"
        raise ValueError(msg)
    at = _moment(said, "at")
    attempt = fields.whole(said, "attempt", low=-fields.MOST)
    return Happening(at, who, kind, fields.table(said["fields"], "fields"), attempt)


@dataclass(slots=True)
class _Course:
    began: float
    happenings: list[Happening] = field(default_factory=list)
    ended: float | None = None
    finished: bool = False
    problems: tuple[str, ...] = ()

    def course(self, name: str) -> Course:
        said = sorted(self.happenings, key=lambda each: each.at)
        last = max([self.began, *(each.at for each in said)])
        ended = last if self.ended is None else self.ended
        return Course(name, self.began, ended, self.finished, said, self.problems)


@dataclass(slots=True)
class _Reading:
    head: Head | None = None
    courses: dict[str, _Course] = field(default_factory=dict)
    facts: list[Fact] = field(default_factory=list)
    planted: list[dict[str, Any]] = field(default_factory=list)
    troubles: list[str] = field(default_factory=list)
    ended: bool = False
    count: int = 0
    number: int | None = None  # of the last line; None in a record whose lines have none
    whole: bool = True

    def follows(self, body: Mapping[str, Any]) -> str:
        """Take in the number of a line; return, once, that it is not the next one."""
        number = body.get("line")
        counted = isinstance(number, int) and not isinstance(number, bool)
        if self.head is None:
            self.number = 1 if counted else None
            return "" if number in {None, 1} else self._broken("the lines before it are missing")
        if self.number is None:
            return ""
        wanted, self.number = self.number + 1, number if counted else self.number + 1
        if number == wanted and counted:
            return ""
        return self._broken(f"it is number {number}, and {wanted} should follow")

    def _broken(self, why: str) -> str:
        first, self.whole = self.whole, False
        return f"the record is not whole: {why} (missing, doubled or out of order)" if first else ""

    def take(self, body: dict[str, Any]) -> None:
        kind = body["kind"]
        if kind == "drill":
            if self.head is not None:
                msg = "a second head"
                raise ValueError(msg)
            self.head = _head(body)
        elif kind in ("happening", "fact"):
            self._count(kind, body)
        elif kind == "course":
            self._course(body)
        elif kind == "planted":
            self.planted = [_planted(row) for row in fields.rows(body["planted"], "planted")]
        elif kind == "trouble":
            self.troubles.append(fields.text(body, "why"))
        elif kind == "end":
            self.ended = True
        elif kind != "claim":
            msg = "of no known kind"
            raise ValueError(msg)

    def _count(self, kind: str, body: dict[str, Any]) -> None:
        self.count += 1
        if self.count > MOST:
            msg = f"more than {MOST} happenings and facts"
            raise ValueError(msg)
        name = _one_of(body, "course", COURSES)
        if kind == "happening":
            self._open(name).happenings.append(_happening(body))
            return
        what, when = _one_of(body, "what", FACTS), _moment(body, "when")
        self.facts.append(Fact(what, fields.table(body["fields"], "fields"), name, when))

    def _open(self, name: str) -> _Course:
        if name not in self.courses:
            msg = f"of a course that did not begin, {name}"
            raise ValueError(msg)
        return self.courses[name]

    def _course(self, body: dict[str, Any]) -> None:
        name, state = _one_of(body, "course", COURSES), _one_of(body, "state", ("begin", "end"))
        when = _moment(body, "when")
        if state == "begin":
            if name in self.courses:
                msg = f"a second {name}"
                raise ValueError(msg)
            self.courses[name] = _Course(when)
            return
        course = self._open(name)
        if course.ended is not None:
            msg = f"a second end of {name}"
            raise ValueError(msg)
        problems = tuple(fields.texts(body["problems"], "problems"))
        course.ended, course.finished, course.problems = when, _flag(body, "finished"), problems


def read_drill(run: Path) -> DrillRecord:
    """Return the record of a drill's run directory (or of its record file's directory).

    Raises RecordError when there is no record, or its first line is no readable head.
    """
    folder = run if run.is_dir() else run.parent
    path = folder / FILE
    problems, reading = Problems(path.name), _Reading()
    for number, body in lines(path, problems):
        gap = reading.follows(body)
        if gap:
            problems.add(f"line {number}: {gap}")
        try:
            reading.take(body)
        except RecordError as error:
            msg = f"{path}: {error}"
            raise RecordError(msg) from error
        except KeyError as error:
            problems.add(f"line {number}: bad {body['kind'][:20]!r} line (no {error})")
        except (TypeError, ValueError, ArithmeticError, RecursionError) as error:
            problems.add(f"line {number}: bad {body['kind'][:20]!r} line ({error})")
        if reading.head is None:
            break
    found = problems.told()
    if reading.head is None:
        why = f" ({found[0]})" if found else ""
        msg = f"{path}: its first line is no head of a drill{why}"
        raise RecordError(msg)
    courses = {name: each.course(name) for name, each in reading.courses.items()}
    return DrillRecord(
        reading.head,
        courses,
        reading.facts,
        reading.planted,
        reading.ended,
        (*found, *reading.troubles),
        reading.whole,
    )
