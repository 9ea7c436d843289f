"""stdout that may go away: a closed pipe or a full disk changes no verdict and stops no burn.

In: the stream that Python gave us, or None where it was closed. Out: a stream that takes whatever
is written, and remembers why it could not be delivered.
"""

import os
from typing import TextIO


class Outlet:
    """A text stream that never raises for want of a reader. `trouble` says what was wrong."""

    def __init__(self, stream: TextIO | None) -> None:
        """Write to `stream`, or nowhere."""
        self._stream = stream
        self.trouble: str | None = "stdout is closed" if stream is None else None
        self.encoding = getattr(stream, "encoding", None) or "utf-8"
        self.errors = getattr(stream, "errors", None) or "strict"

    def write(self, text: str) -> int:
        """Write and flush; nothing more once it failed."""
        if self._stream is not None and self.trouble is None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except OSError as error:
                self._lose(error)
        return len(text)

    def flush(self) -> None:
        """Do nothing: every write is flushed."""

    def isatty(self) -> bool:
        """Say whether a terminal reads it."""
        return self._stream is not None and self._stream.isatty()

    def fileno(self) -> int:
        """Return the descriptor; OSError where there is none."""
        if self._stream is None:
            msg = "stdout is closed"
            raise OSError(msg)
        return self._stream.fileno()

    def _lose(self, error: OSError) -> None:
        """Remember why; what the stream still buffers goes nowhere, so that exiting is silent."""
        self.trouble = "" if isinstance(error, BrokenPipeError) else f"stdout: {error.strerror}"
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
