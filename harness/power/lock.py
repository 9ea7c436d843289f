"""One controller for one rack: whoever holds its locks may change its limits.

In: which rack. Out: locks that the kernel lets go of with the process that holds them, whatever
ended it. An emulated rack's lies beside its state file; of one in memory the state itself is
locked, and nothing written. Real GPUs have one each, by UUID, in a folder of this user and this
boot: two controllers that share one GPU are one too many.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Self

from rackproof.harness.devices.attached import Source
from rackproof.harness.errors import DrillError
from rackproof.harness.journal import state_folder

LONGEST = 32  # bytes of a pid, with room
TRIES = 10  # times that a file may be taken away by who lets go of it, while we open it
PROC = Path("/proc")
HELD = "FLOCK"  # of a line of proc_locks(5)


def places(source: Source, uuids: Iterable[str]) -> list[Path]:
    """Return the files that stand for a rack, one or several, always in the same order."""
    if source.state is None:
        folder = state_folder().parent.with_name("controllers") / state_folder().name
        return sorted(folder / f"{uuid}.lock" for uuid in set(uuids))
    if _in_memory(source.state):
        return [source.state]
    state = source.state.resolve()
    return [state.with_name(f"{state.name}.lock")]


def _in_memory(file: Path) -> bool:
    return file.is_relative_to(PROC)


class RackLock:
    """The locks of one rack, held until `close`."""

    def __init__(self, files: Sequence[Path]) -> None:
        """Take all of them. Raises DrillError, naming the pid, where another process has one."""
        self._open: list[tuple[int, Path]] = []
        try:
            for file in files:
                self._open.append((_taken(file), file))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let go, and take our files away; more calls do nothing."""
        while self._open:
            descriptor, file = self._open.pop()
            if not _in_memory(file):
                with contextlib.suppress(OSError):
                    file.unlink()
            os.close(descriptor)

    def __enter__(self) -> Self:
        """Hold them."""
        return self

    def __exit__(self, *_: object) -> None:
        """Let go."""
        self.close()


def _taken(file: Path) -> int:
    for _ in range(TRIES):
        descriptor = _opened(file)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _in_memory(file):
                return descriptor
            if _is(descriptor, file):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, str(os.getpid()).encode())
                return descriptor
        except BlockingIOError:
            who = _holder(descriptor, file)
            os.close(descriptor)
            other = f"pid {who}" if who else "another process"
            msg = f"a controller of this rack's power runs already ({other}): end it first ({file})"
            raise DrillError(msg) from None
        except OSError as error:
            os.close(descriptor)
            raise _untouched(file, error) from error
        os.close(descriptor)  # its holder took it away between our opening and our locking it
    msg = f"{file}: the rack's lock changes hands too fast, so the rack is left alone"
    raise DrillError(msg)


def _opened(file: Path) -> int:
    try:
        if _in_memory(file):
            return os.open(file, os.O_RDWR | os.O_CLOEXEC)
        file.parent.mkdir(parents=True, exist_ok=True)
        return os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise _untouched(file, error) from error


def _untouched(file: Path, error: OSError) -> DrillError:
    return DrillError(f"{file}: the rack's lock cannot be taken ({error.strerror}): left alone")


def _is(descriptor: int, file: Path) -> bool:
    """Return whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False


def _holder(descriptor: int, file: Path) -> int | None:
    """Return the pid of who has the lock: as the file says, or else as the kernel does."""
    if not _in_memory(file):
        said = os.pread(descriptor, LONGEST, 0).decode("ascii", "replace").strip()
        return int(said) if said.isdecimal() else None
    found = os.fstat(descriptor)
    place = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    with contextlib.suppress(OSError):
        for line in (PROC / "locks").read_text("ascii", "replace").splitlines():
            words = line.split()
            if HELD in words and place in words:
                pid = words[words.index(place) - 1]
                return int(pid) if pid.isdecimal() else None
    return None
