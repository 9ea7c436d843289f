"""The log-tail adapter: by a regular expression, lines of output become step happenings.

A process of its own reads the log as it grows and appends to the command's events file. Python's
`re` can run for ages on a line that somebody wrote on purpose or by accident, and only a signal in
a main thread interrupts it: so the expression is run there, with a time limit for each line. Lines
are cut at 4 KiB. It ends when the drill does: it holds a pipe to it.

Named groups: step (a whole number, required), loss, samples, digest, ckpt (a checkpoint's path or
URL, which makes a ``ckpt`` happening beside).
"""

import contextlib
import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType

from rackproof.harness.errors import DrillError

GROUPS = ("step", "loss", "samples", "digest", "ckpt")
LONGEST = 4096  # bytes of a line that are looked at
SHOWN = 200  # characters of an expression in a message
DIGITS = 18  # of a step's number
BLOCK = 1 << 18
EVERY = 0.02  # s between two looks at the log
LIMIT = 0.1  # s that one line may cost
PATIENCE = 10  # lines that may cost more, before we stop trying
CLOSE = 30.0  # s in which the rest of a log must have been read


def check(pattern: str) -> re.Pattern[str]:
    """Return the compiled expression; DrillError where it is none, or has no group ``step``."""
    shown = f"--log-regex '{pattern[:SHOWN]}'"
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        msg = f"{shown}: {error}"
        raise DrillError(msg) from error
    known = ", ".join(GROUPS)
    if "step" not in compiled.groupindex:
        msg = f"{shown}: it needs a group (?P<step>…); groups: {known}"
        raise DrillError(msg)
    for name in compiled.groupindex:
        if name not in GROUPS:
            msg = f"{shown}: group {name!r} is none of {known}"
            raise DrillError(msg)
    return compiled


def happenings(groups: Mapping[str, str | None]) -> Iterator[dict[str, object]]:
    """Yield what one match says: a step, and a committed checkpoint where it names one."""
    try:
        step = int((groups["step"] or "")[:DIGITS])
    except ValueError:
        return
    said: dict[str, object] = {"kind": "step", "at": round(time.monotonic(), 6), "step": step}
    loss, samples, digest = (groups.get(name) for name in ("loss", "samples", "digest"))
    with contextlib.suppress(ValueError):
        value = float(loss or "")
        said["loss"] = value if math.isfinite(value) else str(value)
    with contextlib.suppress(ValueError):
        said["samples"] = int(samples or "")
    if digest:
        said["digest"] = digest
    yield said
    if groups.get("ckpt"):
        yield {**said, "kind": "ckpt", "phase": "committed", "uri": groups["ckpt"]}


class _TooLong(Exception):
    """One line cost more than LIMIT."""


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise _TooLong


class Reading:
    """The child's work: a log in, an events file out, and a count of both."""

    def __init__(self, pattern: re.Pattern[str], log: int, events: int) -> None:
        """Read from descriptor `log`, append to descriptor `events`."""
        self.pattern, self.log, self.events = pattern, log, events
        self.lines = self.matched = self.slow = 0
        self.rest = b""
        self.skipping = False

    def grown(self) -> bool:
        """Take in what was written since; return whether there was anything."""
        block = os.read(self.log, BLOCK)
        lines = (self.rest + block).split(b"\n")
        self.rest = lines.pop()
        for line in lines:
            self._line(line)
        if len(self.rest) > LONGEST:  # its head is looked at, and the rest of the line is not
            self._line(self.rest)
            self.rest, self.skipping = b"", True
        return bool(block)

    def _line(self, line: bytes) -> None:
        if self.skipping:
            self.skipping = False
            return
        self.lines += 1
        if self.slow >= PATIENCE:
            return
        try:
            signal.setitimer(signal.ITIMER_REAL, LIMIT)
            try:
                found = self.pattern.search(line[:LONGEST].decode("utf-8", "replace"))
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except _TooLong:
            self.slow += 1
            return
        if found is None:
            return
        self.matched += 1
        said = [json.dumps(each).encode() + b"\n" for each in happenings(found.groupdict())]
        if said:
            os.write(self.events, b"".join(said))

    def end(self) -> dict[str, int]:
        """Read on to the end of the log, a last half line included; return the counts."""
        deadline = time.monotonic() + CLOSE
        while self.grown() and time.monotonic() < deadline:
            pass
        if self.rest:
            self._line(self.rest)
        return {"lines": self.lines, "matched": self.matched, "slow": self.slow}


def main(words: Sequence[str]) -> int:
    """Adapt until standard input is closed: ``PATTERN LOG EVENTS``."""
    signal.signal(signal.SIGALRM, _interrupt)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the drill's end is ours, and it is the pipe's
    log = os.open(words[1], os.O_RDONLY)
    events = os.open(words[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK, 0o644)
    reading = Reading(check(words[0]), log, events)
    while not select.select([0], [], [], EVERY)[0]:
        while reading.grown():
            pass
    sys.stdout.write(json.dumps(reading.end()))
    return 0


class Adapter:
    """The adapter as the drill sees it."""

    def __init__(self, pattern: str, log: Path, events: Path) -> None:
        """Start it; DrillError where the expression will not do, or it cannot be started."""
        check(pattern)
        words = [sys.executable, "-P", "-m", __name__, pattern, str(log), str(events)]
        try:
            self._child = subprocess.Popen(  # noqa: S603 - our own module
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            msg = f"the log adapter cannot be started: {error.strerror or error}"
            raise DrillError(msg) from error

    def close(self) -> list[str]:
        """Let it read to the end of the log; return what the user should know, in words."""
        try:
            said, _ = self._child.communicate(timeout=2 * CLOSE)
            counts = json.loads(said)
            lines, matched, slow = (int(counts[name]) for name in ("lines", "matched", "slow"))
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.communicate()
            return ["the log adapter did not come to an end"]
        except (ValueError, KeyError, TypeError):
            return ["the log adapter broke"]
        found = []
        if slow:
            found.append(f"--log-regex took more than {LIMIT} s on {slow} lines, which count for 0")
        if not matched:
            found.append(f"--log-regex matched none of {lines} lines")
        return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
