"""Writes one process's events file: a line for each happening, in one write, nothing held back."""

import json
import os
import time
from pathlib import Path
from typing import Any

from rackproof.harness.happening import KINDS

FOLDER = "events"


class Diary:
    """``folder/events/<who>.<attempt>.jsonl``, appended to."""

    def __init__(self, folder: Path, who: str, attempt: int) -> None:
        """Open the file; raises OSError."""
        self.who, self.attempt = who, attempt
        (folder / FOLDER).mkdir(parents=True, exist_ok=True)
        path = folder / FOLDER / f"{who}.{attempt}.jsonl"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def note(self, kind: str, **fields: Any) -> None:
        """Write one happening, now; raises OSError, and KeyError for an unknown kind."""
        if kind not in KINDS:
            raise KeyError(kind)
        head = {"kind": kind, "at": round(time.monotonic(), 6), "who": self.who}
        body = {**head, "attempt": self.attempt, **fields}
        os.write(self._file, json.dumps(body, separators=(",", ":")).encode() + b"\n")

    def close(self) -> None:
        """Close it."""
        os.close(self._file)
