"""Writes the happenings of one replica: a line each into RP_EVENTS, in one write."""

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackproof.harness.errors import DrillError
from rackproof.harness.happening import KINDS


@dataclass(frozen=True, slots=True)
class Events:
    """`file` is open for appending; None where nobody wants to know."""

    who: str
    attempt: int
    file: int | None
    pid: int

    @classmethod
    def of(cls, environment: Mapping[str, str], who: str, attempt: int) -> "Events":
        """Open RP_EVENTS; DrillError where it cannot be."""
        path = environment.get("RP_EVENTS")
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
            file = os.open(path, flags, 0o644) if path else None
        except OSError as error:
            msg = f"RP_EVENTS: {path} cannot be written ({error.strerror})"
            raise DrillError(msg) from error
        return cls(who, attempt, file, os.getpid())

    def __call__(self, kind: str, **fields: Any) -> None:
        """Write one; KeyError for an unknown kind."""
        if kind not in KINDS:
            raise KeyError(kind)
        head = {"kind": kind, "at": round(time.monotonic(), 6), "who": self.who}
        line = json.dumps({**head, "attempt": self.attempt, **fields}, separators=(",", ":"))
        if self.file is not None:
            os.write(self.file, line.encode() + b"\n")
