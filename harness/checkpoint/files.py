"""Files: the one seam through which a checkpoint reaches a file system, and safe reading.

Every operation of a Files is a point at which a machine may die, a disk may be full, or a mount may
hang; tests and drills put another Files in its place. Nothing here follows a link or overwrites:
a file is made anew, and comes into its place by rename. Reading opens plain files only.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rackproof.harness.errors import CheckpointError

PIECE = 32 << 20  # bytes handed to the kernel at once
MODE = 0o644


class Files:
    """Operations on a local file system. All raise OSError. Paths are absolute."""

    def mkdir(self, path: Path) -> None:
        """Make one directory, which must not be there."""
        path.mkdir()

    def create(self, path: Path) -> int:
        """Make a file that must not be there, and return its descriptor."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, MODE)

    def write(self, descriptor: int, data: memoryview) -> None:
        """Append all of `data`, and have the disk begin with it: the sync at the end is short."""
        size, rest = data.nbytes, data
        while rest.nbytes:
            rest = rest[os.write(descriptor, rest) :]
        begin = os.lseek(descriptor, 0, os.SEEK_CUR) - size
        # Linux writes out what is dirty and drops what is not, which of these bytes is none yet.
        os.posix_fadvise(descriptor, begin, size, os.POSIX_FADV_DONTNEED)

    def fsync(self, descriptor: int) -> None:
        """Return when what was written to the file is on disk."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a file; what it holds need not be on disk."""
        os.close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Give a file or a directory another name; a file of that name is replaced, in one go."""
        old.rename(new)

    def fsync_dir(self, path: Path) -> None:
        """Return when the names in a directory are on disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def unlink(self, path: Path) -> None:
        """Remove a file."""
        path.unlink()

    def rmdir(self, path: Path) -> None:
        """Remove a directory, which must be empty."""
        path.rmdir()

    def put(self, address: str, send: Callable[[], None]) -> None:  # noqa: ARG002 - for others
        """Have an object put into a store, or removed from it: `send` does it, in one go."""
        send()


def names(folder: Path) -> list[str]:
    """Return the names in a directory; an OSError where it is none, or a link to one."""
    with _directory(folder) as descriptor:
        return sorted(os.listdir(descriptor))  # noqa: PTH208 - of what was opened, not of a path


@contextlib.contextmanager
def opened(folder: Path, name: str) -> Iterator[tuple[int, int]]:
    """Open a plain file in a directory, neither of them a link; give descriptor and size."""
    with _directory(folder) as parent:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(name, flags, dir_fd=parent)
        except OSError as error:
            if error.errno == errno.ELOOP:
                msg = f"{name} is a link, and not a file"
                raise CheckpointError(msg) from error
            raise
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                msg = f"{name} is no plain file"
                raise CheckpointError(msg)
            yield descriptor, status.st_size
        finally:
            os.close(descriptor)


def fill(descriptor: int, into: NDArray[np.uint8], name: str) -> None:
    """Read exactly `into.size` bytes; a CheckpointError where the file ends before."""
    rest = into.data
    while rest.nbytes:
        got = os.readv(descriptor, [rest[:PIECE]])
        if not got:
            msg = f"{name} ends {rest.nbytes} bytes too early"
            raise CheckpointError(msg)
        rest = rest[got:]


@contextlib.contextmanager
def _directory(folder: Path) -> Iterator[int]:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
