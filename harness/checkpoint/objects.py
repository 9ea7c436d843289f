"""Checkpoints on an object store, or any other file system of fsspec: the manifest is the commit.

A store has no rename and no fsync: an object is there as a whole when its PUT returned. So the
parts and the context are put first, and the manifest last; a reader ignores what has none. The
driver of a store may raise anything at all: `_asking` makes a CheckpointError of it.
"""

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackproof.harness.checkpoint import manifest, store
from rackproof.harness.checkpoint.files import Files
from rackproof.harness.errors import CheckpointError

AT_ONCE = 64 << 20  # bytes: larger objects are put and fetched in pieces
LATEST_MOST = 64  # bytes


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """A root of checkpoints by URL; `options` go to fsspec's constructor for its protocol."""

    url: str
    options: tuple[tuple[str, Any], ...] = ()
    files: Files = field(default_factory=Files)

    def foreign(self) -> bool:
        """Return whether the root holds something, and is not marked as ours."""
        found = self._list("")
        return bool(found) and store.MARK not in found

    def names(self) -> list[str]:
        """Return the names of directories of steps that have a manifest: those were committed."""
        found = store.steps_among(self._list(""), self.url)
        committed = self._committed()
        return [name for name in found if name in committed]

    def unfinished(self) -> list[int]:
        """Return the steps of directories that have no manifest."""
        left = set(self._list("")) - self._committed()
        return sorted(place[0] for name in left if (place := manifest.place(name)))

    def read(self, directory: str, name: str, most: int) -> bytes:
        """Return a small object of at most `most` bytes; FileNotFoundError where there is none."""
        with self._asking(f"{directory}/{name}".removeprefix("./")) as (system, path):
            size = int(system.info(path)["size"])
            if size > most:
                msg = f"{name} has {size} bytes, over {most}"
                raise CheckpointError(msg)
            data: bytes = system.cat_file(path)
            return data

    def fetch(self, directory: str, name: str, size: int) -> NDArray[np.uint8]:
        """Return an object of exactly `size` bytes."""
        with self._asking(f"{directory}/{name}") as (system, path):
            found = int(system.info(path)["size"])
            if found != size:
                msg = f"{name} has {found} bytes, and the manifest says {size}"
                raise CheckpointError(msg)
            data = np.empty(size, np.uint8)
            for at in range(0, size, AT_ONCE):
                end = min(at + AT_ONCE, size)
                piece = system.cat_file(path, start=at, end=end)
                if len(piece) != end - at:
                    msg = f"{name} gave {len(piece)} bytes where {end - at} were asked for"
                    raise CheckpointError(msg)
                data[at:end] = np.frombuffer(piece, np.uint8)
            return data

    def latest(self) -> str | None:
        """Return what LATEST says, or None."""
        try:
            text = self.read(".", manifest.LATEST, LATEST_MOST)
        except FileNotFoundError:
            return None
        return text.decode("ascii", "replace").strip()

    def commit(self, bundle: store.Bundle) -> str:
        """Put all objects, the manifest last; when this returns, the checkpoint is there."""
        found = self._list("")
        if found and store.MARK not in found:
            msg = f"{self.url} {store.FOREIGN}"
            raise CheckpointError(msg)
        if not found:
            self._put(store.MARK, [memoryview(store.MARK_TEXT)])
        name = manifest.free(bundle.step, found)
        try:
            for file, pieces in bundle.files:
                self._put(f"{name}/{file}", pieces)
            self._put(f"{name}/{manifest.NAME}", [memoryview(bundle.manifest())])
        except BaseException:
            with contextlib.suppress(CheckpointError, OSError):
                self.remove(name, [file for file, _ in bundle.files])
            raise
        return name

    def point(self, directory: str) -> None:
        """Have LATEST name a directory."""
        self._put(manifest.LATEST, [memoryview(f"{directory}\n".encode())])

    def remove(self, directory: str, files: Sequence[str]) -> None:
        """Take a checkpoint away, its manifest first: without it there is no checkpoint."""
        for name in sorted(files, key=lambda name: name != manifest.NAME):
            with contextlib.suppress(FileNotFoundError), self._asking(f"{directory}/{name}") as at:
                self.files.put(f"{self.url}/{directory}/{name}", partial(at[0].rm_file, at[1]))

    def sweep(self) -> None:
        """Leave unfinished uploads: another writer may be at work on them, which nothing tells."""

    def _list(self, directory: str) -> list[str]:
        with contextlib.suppress(FileNotFoundError), self._asking(directory) as (system, path):
            system.invalidate_cache()
            rows = system.ls(path, detail=False)
            found = {str(row).rstrip("/").rpartition("/")[2] for row in rows}
            # Some stores name the directory itself, as an empty object.
            return sorted(found - {path.rstrip("/").rpartition("/")[2], ""})
        return []

    def _committed(self) -> set[str]:
        """Return the names of directories with a manifest, of one listing of the whole root."""
        with contextlib.suppress(FileNotFoundError), self._asking("") as (system, root):
            rows = [str(row).rpartition("/") for row in system.find(root)]
            return {at.rpartition("/")[2] for at, _, name in rows if name == manifest.NAME}
        return set()

    def _put(self, name: str, pieces: Sequence[memoryview]) -> None:
        with self._asking(name) as (system, path):
            self.files.put(f"{self.url}/{name}", partial(_send, system, path, pieces))

    @contextlib.contextmanager
    def _asking(self, name: str) -> Iterator[tuple[Any, str]]:
        """Give the file system and the path of a name; what its driver raises is a cause in words.

        FileNotFoundError stays what it is, where the root itself could be asked.
        """
        try:
            system, root = _connect(self.url, self.options)
            yield system, f"{root}/{name}".rstrip("/") if name else root
        except (CheckpointError, FileNotFoundError):
            raise
        except Exception as error:
            msg = f"{self.url}: {type(error).__name__}: {str(error)[:200]}"
            raise CheckpointError(msg) from error


def _send(system: Any, path: str, pieces: Sequence[memoryview]) -> None:
    """Put an object, a large one in several pieces: it is there when the last one is."""
    if sum(piece.nbytes for piece in pieces) <= AT_ONCE:
        system.pipe_file(path, b"".join(pieces))
        return
    with system.open(path, "wb", block_size=AT_ONCE) as out:
        for piece in pieces:
            for at in range(0, piece.nbytes, AT_ONCE):
                out.write(piece[at : at + AT_ONCE])


def _connect(url: str, options: Sequence[tuple[str, Any]]) -> tuple[Any, str]:
    """Return fsspec's file system of a URL, and the path of the root in it."""
    fsspec = _fsspec()
    system, root = fsspec.core.url_to_fs(url, **dict(options))
    return system, str(root).rstrip("/")


@functools.cache
def _fsspec() -> Any:
    """Import fsspec when it is needed: it costs as much as a small program's start."""
    import fsspec.core  # noqa: PLC0415

    return fsspec
