"""One controller for one rack: whoever holds its locks may change its limits.

In: which rack. Out: locks that the kernel lets go of with the process that holds them, whatever
ended it. An emulated rack's lies beside its state file. Real GPUs have one each, by UUID, in a
folder of this user and this boot: two controllers that share one GPU are one too many.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from rackproof.harness.devices.attached import Source
from rackproof.harness.errors import DrillError
from rackproof.harness.journal import state_folder

LONGEST = 32  # bytes of a pid, with room


def places(source: Source, uuids: Iterable[str]) -> list[Path]:
    """Return the files that stand for a rack, one or several, always in the same order.

    Raises DrillError for an emulated rack whose state is not there.
    """
    folder = state_folder().parent.with_name("controllers") / state_folder().name
    if source.state is None:
        return sorted(folder / f"{uuid}.lock" for uuid in set(uuids))
    if source.state.parts[:2] != ("/", "proc"):
        state = source.state.resolve()
        return [state.with_name(f"{state.name}.lock")]
    try:  # in memory, where nothing lies beside it: its number stands for it
        found = source.state.stat()
    except OSError as error:
        msg = f"{source.state}: the emulated rack's state cannot be found ({error.strerror})"
        raise DrillError(msg) from error
    return [folder / f"memory-{found.st_dev}-{found.st_ino}.lock"]


class RackLock:
    """The locks of one rack, held until `close`."""

    def __init__(self, files: Sequence[Path]) -> None:
        """Take all of them. Raises DrillError, naming the pid, where another process has one."""
        self._open: list[int] = []
        try:
            for file in files:
                self._open.append(_taken(file))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go; more calls do nothing."""
        while self._open:
            descriptor = self._open.pop()
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            os.close(descriptor)

    def __enter__(self) -> Self:
        """Hold them."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let go."""
        self.close()


def _taken(file: Path) -> int:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        msg = f"{file}: the rack's lock cannot be opened ({error.strerror}), so it is left alone"
        raise DrillError(msg) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
    except BlockingIOError:
        who = os.pread(descriptor, LONGEST, 0).decode("ascii", "replace").strip()
        os.close(descriptor)
        other = f"pid {who}" if who.isdecimal() else "another process"
        msg = f"a controller of this rack's power runs already ({other}): end it first ({file})"
        raise DrillError(msg) from None
    except OSError as error:
        os.close(descriptor)
        msg = f"{file}: the rack's lock cannot be taken ({error.strerror}), so it is left alone"
        raise DrillError(msg) from error
    return descriptor
