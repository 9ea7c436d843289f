"""Writes the record: append-only JSON lines, one writer a file, flushed a line.

``RUN/record.jsonl``, or ``record.<writer>.jsonl`` for each xdist worker. What stands in the file
survives a SIGKILL; a cut last line is dropped by the reader and said.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rackproof.diagnostics.evidence import SCHEMA, Head
from rackproof.harness.errors import RecordError
from rackproof.harness.model import Event, Measurement, Missing, Seen


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
        self._file.seek(0)
        self._file.truncate()
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def release(self) -> None:
        """Let the directory go."""
        self._file.close()


def line(kind: str, fields: Mapping[str, Any]) -> str:
    """Return one record line: kind, at (UTC), then the fields, compact and in ASCII."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    body = {"kind": kind, "at": at, **fields}
    return json.dumps(body, separators=(",", ":"), allow_nan=False, default=str)


class RecordWriter:
    """Appends to one record file. Any OSError (disk full) becomes a RecordError, once."""

    def __init__(self, run: Path, writer: str | None = None) -> None:
        """Open RUN/record[.writer].jsonl for appending."""
        self.path = run / (f"record.{writer}.jsonl" if writer else "record.jsonl")
        try:
            run.mkdir(parents=True, exist_ok=True)
            cut = self.path.is_file() and self.path.stat().st_size and not _ends_whole(self.path)
            self._file = self.path.open("a", encoding="utf-8")
            if cut:  # a killed run left half a line: keep it, on a line of its own
                self._file.write("\n")
        except OSError as error:
            msg = f"{self.path}: cannot be written ({error.strerror}); choose another --out"
            raise RecordError(msg) from error

    def _put(self, kind: str, fields: Mapping[str, Any]) -> None:
        try:
            self._file.write(line(kind, fields) + "\n")
            self._file.flush()
        except OSError as error:
            msg = f"{self.path}: cannot be written ({error.strerror}); what stood there is kept"
            raise RecordError(msg) from error

    def run(self, head: Head) -> None:
        """Write the first line."""
        self._put("run", {"schema": SCHEMA, **asdict(head)})

    def seen(self, what: Seen) -> None:
        """Write a measurement, a missing value or an event."""
        if isinstance(what, Measurement):
            value = what.value
            if isinstance(value, float) and not abs(value) < float("inf"):
                value = str(value)
            fields: dict[str, Any] = {
                "check": what.check,
                "subject": what.subject,
                "metric": what.metric,
                "value": value,
                "unit": what.unit,
                "attempt": what.attempt,
            }
            if what.window is not None:
                fields["window"] = [round(t, 6) for t in what.window]
            self._put("measurement", fields)
        elif isinstance(what, Missing):
            self._put("missing", {**asdict(what), "why": str(what.why)})
        elif isinstance(what, Event):
            # "when", since every line's own "at" is the wall clock of its writing
            fields = asdict(what)
            fields["when"] = fields.pop("at")
            self._put("event", fields)

    def settled(self, check: str, subject: str, attempt: int) -> None:
        """Say that one attempt of one burn on one subject is complete."""
        self._put("settled", {"check": check, "subject": subject, "attempt": attempt})

    def conclusion(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Write what was judged: kind check, diagnosis or end."""
        self._put(kind, fields)

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


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
