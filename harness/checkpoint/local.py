"""Checkpoints on a local file system: the commit, operation by operation.

Temporary directory → files, fsync → manifest, fsync → fsync of the directory → rename → fsync of
the root. Then LATEST, written beside and renamed. A machine that dies between any two of them has
either the old checkpoints or the old and the new; `tests/harness/checkpoint` goes through them all.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rackproof.harness.checkpoint import manifest, store
from rackproof.harness.checkpoint.files import PIECE, Files, fill, names, opened
from rackproof.harness.errors import CheckpointError
from rackproof.harness.journal import boot, started

TEMPORARY = re.compile(r"\.tmp-(\d{12})-([0-9a-f]{8})-(\d+)-(\d+)-[0-9a-f]{8}", re.ASCII)
LATEST_MOST = 64  # bytes


@dataclass(frozen=True, slots=True)
class LocalStore:
    """A directory of checkpoints; `root` is absolute and holds nothing else."""

    root: Path
    files: Files = field(default_factory=Files)

    @property
    def url(self) -> str:
        """The root's path."""
        return str(self.root)

    def foreign(self) -> bool:
        """Return whether the root holds something, and is not marked as ours."""
        try:
            found = names(self.root)
        except FileNotFoundError:
            return False
        return bool(found) and store.MARK not in found

    def names(self) -> list[str]:
        """Return the names of all directories of steps."""
        return store.steps_among(names(self.root), self.url)

    def unfinished(self) -> list[int]:
        """Return the steps of saves that were begun, and not ended."""
        steps = {int(match[1]) for name in names(self.root) if (match := TEMPORARY.fullmatch(name))}
        return sorted(steps - {0})

    def read(self, directory: str, name: str, most: int) -> bytes:
        """Return a small file of at most `most` bytes."""
        with opened(self.root / directory, name) as (descriptor, size):
            if size > most:
                msg = f"{name} has {size} bytes, over {most}"
                raise CheckpointError(msg)
            data = np.empty(size, np.uint8)
            fill(descriptor, data, name)
            return data.tobytes()

    def fetch(self, directory: str, name: str, size: int) -> NDArray[np.uint8]:
        """Return a file of exactly `size` bytes."""
        with opened(self.root / directory, name) as (descriptor, found):
            if found != size:
                msg = f"{name} has {found} bytes, and the manifest says {size}"
                raise CheckpointError(msg)
            data = np.empty(size, np.uint8)
            fill(descriptor, data, name)
            return data

    def latest(self) -> str | None:
        """Return what LATEST says, or None."""
        try:
            text = self.read(".", manifest.LATEST, LATEST_MOST)
        except FileNotFoundError:
            return None
        return text.decode("ascii", "replace").strip()

    def commit(self, bundle: store.Bundle) -> str:
        """Store a checkpoint and return its directory's name: when this returns, it is durable."""
        self._claim()
        temporary = self.root / f".tmp-{bundle.step:012d}-{_token()}"
        written = [name for name, _ in bundle.files] + [manifest.NAME]
        try:
            self._lay(temporary, bundle)
            name = self._free(bundle.step)
            self.files.rename(temporary, self.root / name)
        except BaseException:
            self._discard(temporary, written)
            raise
        self.files.fsync_dir(self.root)
        return name

    def point(self, directory: str) -> None:
        """Have LATEST name a directory."""
        beside = self.root / f".tmp-{0:012d}-{_token()}"
        try:
            self._put(beside, [memoryview(f"{directory}\n".encode())])
            self.files.rename(beside, self.root / manifest.LATEST)
        except BaseException:
            with contextlib.suppress(OSError):
                self.files.unlink(beside)
            raise
        self.files.fsync_dir(self.root)

    def remove(self, directory: str, files: Sequence[str]) -> None:
        """Take a checkpoint away in one go; one with a file that is not ours is left alone."""
        folder = self.root / directory
        if set(names(folder)) - set(files):
            return
        aside = self.root / f".tmp-{0:012d}-{_token()}"
        self.files.rename(folder, aside)
        self.files.fsync_dir(self.root)
        self._discard(aside, files)

    def sweep(self) -> None:
        """Remove what writers of this boot that are dead left unfinished."""
        for name in names(self.root) if self.root.is_dir() and not self.foreign() else []:
            match = TEMPORARY.fullmatch(name)
            if match and match[2] == boot()[:8] and started(int(match[3])) != int(match[4]):
                path = self.root / name
                if path.is_dir() and not path.is_symlink():
                    self._discard(path, [own for own in names(path) if _ours(own)])
                else:
                    with contextlib.suppress(OSError):
                        self.files.unlink(path)

    def _claim(self) -> None:
        """Make the root, and mark it as ours; a CheckpointError where it is somebody else's."""
        if self.foreign():
            msg = f"{self.root} {store.FOREIGN}"
            raise CheckpointError(msg)
        for folder in reversed([self.root, *self.root.parents]):
            if not folder.exists():
                with contextlib.suppress(FileExistsError):  # another writer made it meanwhile
                    self.files.mkdir(folder)
                self.files.fsync_dir(folder.parent)
        if store.MARK not in names(self.root):
            self._put(self.root / store.MARK, [memoryview(store.MARK_TEXT)])
            self.files.fsync_dir(self.root)

    def _lay(self, folder: Path, bundle: store.Bundle) -> None:
        """Write all files of a checkpoint into a new directory, and have them on disk."""
        self.files.mkdir(folder)
        with contextlib.ExitStack() as stack:
            written = []
            for name, pieces in bundle.files:
                descriptor = self.files.create(folder / name)
                stack.callback(self.files.close, descriptor)
                self._pour(descriptor, pieces)
                written.append(descriptor)
            for descriptor in written:
                self.files.fsync(descriptor)
        self._put(folder / manifest.NAME, [memoryview(bundle.manifest())])
        self.files.fsync_dir(folder)

    def _put(self, path: Path, pieces: Iterable[memoryview]) -> None:
        descriptor = self.files.create(path)
        try:
            self._pour(descriptor, pieces)
            self.files.fsync(descriptor)
        finally:
            self.files.close(descriptor)

    def _pour(self, descriptor: int, pieces: Iterable[memoryview]) -> None:
        for piece in pieces:
            for at in range(0, piece.nbytes, PIECE):
                self.files.write(descriptor, piece[at : at + PIECE])

    def _free(self, step: int) -> str:
        """Return a name for a step that no directory has, above all of that step."""
        return manifest.free(step, names(self.root))

    def _discard(self, folder: Path, files: Iterable[str]) -> None:
        """Remove a temporary directory and what we wrote into it, as far as that goes."""
        for name in files:
            with contextlib.suppress(OSError):
                self.files.unlink(folder / name)
        with contextlib.suppress(OSError):
            self.files.rmdir(folder)


def _ours(name: str) -> bool:
    return name == manifest.NAME or bool(manifest.FILE.fullmatch(name))


def _token() -> str:
    """Return what tells this attempt from all others, and its writer, alive, from a dead one."""
    pid = os.getpid()
    return f"{boot()[:8]}-{pid}-{started(pid) or 0}-{secrets.token_hex(4)}"
