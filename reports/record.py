"""Writes the record: append-only JSON lines, one writer a file, nothing held back.

``RUN/record.jsonl``, or ``record.<writer>.jsonl`` for each xdist worker. What stands in the file
survives a SIGKILL; a cut last line is dropped by the reader and said.
"""

import contextlib
import errno
import fcntl
import json
import math
import numbers
import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rackproof.diagnostics.evidence import SCHEMA, Head, Retested
from rackproof.harness.errors import RecordError, SpaceError
from rackproof.harness.model import Event, Measurement, Missing, Seen

FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG))  # no space, no quota, ulimit -f
LONGEST_LINE = 1 << 24  # bytes; the first line of a rack of thousands of GPUs is under a tenth

BEGUN, DONE = "begun", "done"
"""What a retest's two lines say of it."""


class RunLock:
    """Holds a run directory for one writer; the kernel lets it go when the process dies."""

    def __init__(self, run: Path) -> None:
        """Take RUN/lock; a RecordError when a living run holds it or the folder is unwritable."""
        self.path = run / "lock"
        try:
            run.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("a+")
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.seek(0)
            owner = self._file.read(32).strip() or "another process"
            self._file.close()
            msg = f"{run}: a run is alive in this directory (process {owner}); choose another --out"
            raise RecordError(msg) from None
        except OSError as error:
            msg = f"{run}: cannot write there ({error.strerror}); choose another --out"
            raise RecordError(msg) from error
        try:
            self._file.seek(0)
            self._file.truncate()
            self._file.write(f"{os.getpid()}\n")
            self._file.flush()
        except OSError as error:
            self.release()
            msg = f"{self.path}: cannot be written ({error.strerror}); choose another --out"
            raise RecordError(msg) from error

    def release(self) -> None:
        """Let the directory go."""
        with contextlib.suppress(OSError):  # of a text that a full disk did not take
            self._file.close()


def line(kind: str, fields: Mapping[str, Any]) -> str:
    """Return one record line: kind, at (UTC), then the fields, compact and in ASCII.

    What JSON cannot hold, NaN and the infinities, becomes a text.
    """
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    body = {"kind": kind, "at": at, **fields}
    try:
        return json.dumps(body, separators=(",", ":"), allow_nan=False, default=_other)
    except ValueError:
        plain = _plain(body)
        return json.dumps(plain, separators=(",", ":"), allow_nan=False, default=_other)


def _other(value: object) -> int | float | str:
    """Return what JSON takes for a number of NumPy, a path, and the like."""
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real) and math.isfinite(value):
        return float(value)
    return str(value)


def _plain(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


class LineFile:
    """Appends lines to one file. Any OSError (disk full) becomes a RecordError.

    Nothing is buffered: a line that was written is in the file, and a line that did not fit is cut
    there and said by the reader. Whoever writes on sets the cut line aside and begins a new one.
    """

    def __init__(self, path: Path) -> None:
        """Open the file for appending; its folder is made."""
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _set_cut_tail_aside(self.path)
            self._file = self.path.open("ab", buffering=0)
            self._whole = True
        except OSError as error:
            msg = f"{self.path}: cannot be written ({error.strerror}); choose another --out"
            raise RecordError(msg) from error

    def put(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write one line."""
        text = line(kind, fields)
        left = ("" if self._whole else "\n").encode() + text.encode("ascii") + b"\n"
        try:
            while left:
                written = self._file.write(left) or 0
                self._whole = written == len(left) or (self._whole and not written)
                left = left[written:]
        except OSError as error:
            msg = f"{self.path}: cannot be written ({error.strerror}); what stood there is kept"
            trouble = SpaceError if error.errno in FULL else RecordError
            raise trouble(msg) from error

    def close(self) -> None:
        """Close the file; the lines are already there."""
        self._file.close()

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()


class RecordWriter(LineFile):
    """Appends to one record file of a burn."""

    def __init__(self, run: Path, writer: str | None = None) -> None:
        """Open RUN/record[.writer].jsonl for appending."""
        super().__init__(run / (f"record.{writer}.jsonl" if writer else "record.jsonl"))

    def run(self, head: Head) -> None:
        """Write the first line."""
        fields = asdict(head)
        if head.retest_budget is None:  # a run without retests is recorded as ever
            del fields["retest_budget"]
        self.put("run", {"schema": SCHEMA, **fields})

    def seen(self, what: Seen, *, aside: bool = False) -> None:
        """Write a measurement, a missing value or an event; `aside`, while a retest runs.

        An event has no attempt by which to know that it is none of the plan's, so it says so.
        """
        if isinstance(what, Measurement):
            fields: dict[str, Any] = {
                "check": what.check,
                "subject": what.subject,
                "metric": what.metric,
                "value": what.value,
                "unit": what.unit,
                "attempt": what.attempt,
            }
            if what.window is not None:
                fields["window"] = [round(t, 6) for t in what.window]
            self.put("measurement", fields)
        elif isinstance(what, Missing):
            self.put("missing", {**asdict(what), "why": str(what.why)})
        elif isinstance(what, Event):
            # "when", since every line's own "at" is the wall clock of its writing
            fields = asdict(what)
            fields["when"] = fields.pop("at")
            self.put("event", {**fields, "retest": True} if aside else fields)

    def settled(self, check: str, subject: str, attempt: int, turn: int = 1) -> None:
        """Say that one attempt of one burn on one subject is complete, and of which round."""
        fields: dict[str, Any] = {"check": check, "subject": subject, "attempt": attempt}
        self.put("settled", {**fields, "round": turn} if turn > 1 else fields)

    def retest(self, what: Retested, *, done: bool) -> None:
        """Say which attempts belong to a retest, before it begins, and again when it is `done`."""
        self.put("retest", {"state": DONE if done else BEGUN, **asdict(what)})

    def conclusion(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write what was judged: kind check, diagnosis or end."""
        self.put(kind, fields)


def _set_cut_tail_aside(path: Path) -> None:
    """Move half a line, which a killed run left at the end, to a file beside: ``….jsonl.cut``.

    What it would have said was not settled, so it is measured again.
    """
    if not path.is_file():
        return
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        start = max(0, end - LONGEST_LINE)
        file.seek(start)
        tail = file.read()
        cut = tail[tail.rfind(b"\n") + 1 :]
        if cut:
            with path.with_name(path.name + ".cut").open("ab") as aside:
                aside.write(cut + b"\n")
            file.truncate(end - len(cut))
