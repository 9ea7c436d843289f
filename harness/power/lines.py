"""Lines of JSON between two processes, bounded in time, size and memory.

In: two descriptors. Out: one object a line. JSON has no NaN and no infinity: they travel as null
and as "inf".
"""

import json
import math
import os
import select
import time
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np

from rackproof.harness.errors import DrillError
from rackproof.harness.power.zone import Array

LONGEST = 16 << 20
"""Bytes of one line: a thousand GPUs and feeds take a tenth of it."""
BLOCK = 1 << 16
INF = "inf"

Object = dict[str, Any]


class EndedError(DrillError):
    """The other end is gone."""


def packed(values: Array) -> list[float | str | None]:
    """Return numbers as JSON has them."""
    return [INF if v == math.inf else v if math.isfinite(v) else None for v in values.tolist()]


def unpacked(values: object, count: int) -> Array:
    """Return `count` numbers of a JSON list; ValueError for anything else."""
    if not isinstance(values, list) or len(values) != count:
        msg = f"a list of {count} numbers is needed"
        raise ValueError(msg)
    return np.array([_number(value) for value in values], dtype=np.float64)


def _number(value: object) -> float:
    if value is None:
        return math.nan
    if value == INF:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"{str(value)[:40]!r} is no number"
        raise ValueError(msg)  # noqa: TRY004 - a value of the line, not of the program
    return float(value)


def parsed(line: bytes) -> Object:
    """Return the JSON object in a line; ValueError where there is none."""
    try:
        found = json.loads(line, parse_constant=_refused)
    except RecursionError:
        found = None
    if not isinstance(found, dict):
        msg = "the line is no JSON object"
        raise ValueError(msg)  # noqa: TRY004 - as above
    return found


def _refused(text: str) -> NoReturn:
    msg = f"{text} is no JSON"
    raise ValueError(msg)


class Channel:
    """A way to another process. `woken` is a descriptor that ends a wait early."""

    def __init__(self, reads: int, writes: int, woken: int | None = None) -> None:
        """Take over both descriptors, which become non-blocking."""
        self._reads, self._writes, self._woken = reads, writes, woken
        self._buffer = bytearray()
        self._skips = False
        for descriptor in (reads, writes):
            os.set_blocking(descriptor, False)

    def receive(self, within: float) -> bytes | None:
        """Return the next line, or None where none came within so many seconds.

        A line that is too long is dropped and comes as an empty one. Raises EndedError.
        """
        deadline = time.monotonic() + within
        while (line := self._line()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            watched = [self._reads, *([] if self._woken is None else [self._woken])]
            ready, _, _ = select.select(watched, [], [], left)
            if self._woken in ready:
                os.read(self._woken, BLOCK)
                return None
            if self._reads in ready:
                self._take()
        return line

    def _take(self) -> None:
        try:
            block = os.read(self._reads, BLOCK)
        except BlockingIOError:
            return
        except OSError:
            block = b""
        if not block:
            msg = "the other process has closed its end"
            raise EndedError(msg)
        self._buffer += block

    def _line(self) -> bytes | None:
        """Return the first whole line of what came so far."""
        end = self._buffer.find(b"\n")
        if end < 0:
            if len(self._buffer) > LONGEST:
                self._buffer.clear()
                self._skips = True
            return None
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        if self._skips or len(line) > LONGEST:
            self._skips = False
            return b""
        return line

    def send(self, body: Mapping[str, Any], within: float) -> None:
        """Send one object. Raises EndedError, also where it is not taken within so many seconds."""
        left = memoryview(json.dumps(body, allow_nan=False).encode() + b"\n")
        deadline = time.monotonic() + within
        while left:
            try:
                left = left[os.write(self._writes, left[:BLOCK]) :]
            except BlockingIOError:
                wait = deadline - time.monotonic()
                if wait <= 0:
                    msg = f"the other process takes nothing for {within:g} s"
                    raise EndedError(msg) from None
                select.select([], [self._writes], [], wait)
            except OSError as error:
                msg = f"the other process is gone ({error.strerror})"
                raise EndedError(msg) from error
