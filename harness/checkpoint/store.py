"""What a place for checkpoints can do, whatever it is: two of them are in `local` and `objects`.

A Bundle goes in, and is either committed as a whole or not there; directories of steps come out,
each as it lies, unverified: `load` looks into them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rackproof.harness.checkpoint import manifest

MARK = ".rackproof-checkpoints"
MARK_TEXT = b'{"schema":"rackproof.checkpoint/1"}\n'
FOREIGN = "holds files that are not ours, and nothing is written there; name an empty directory"


def steps_among(found: Sequence[str], url: str) -> list[str]:
    """Return the names of directories of steps among those of a root.

    FileNotFoundError where the root is empty and not marked: it is gone, or was never used.
    """
    steps = [name for name in found if manifest.place(name)]
    if not steps and MARK not in found:
        msg = f"{url} holds no checkpoints: the place is gone, or was never used"
        raise FileNotFoundError(msg)
    return steps


@dataclass(frozen=True, slots=True)
class Bundle:
    """A checkpoint to be committed: its files, each as pieces of memory in order.

    `manifest` is asked last, when the other files are stored, and returns the manifest's bytes.
    """

    step: int
    files: Sequence[tuple[str, Sequence[memoryview]]]
    manifest: Callable[[], bytes]


class Store(Protocol):
    """A root for directories of steps. Raises CheckpointError, and OSError from a file system."""

    @property
    def url(self) -> str:
        """The root's address, without a slash at its end."""
        ...

    def foreign(self) -> bool:
        """Return whether the root holds something, and is not marked as ours."""
        ...

    def names(self) -> list[str]:
        """Return the names of directories of steps that were committed, unverified.

        FileNotFoundError where the place is gone, or was never used.
        """
        ...

    def unfinished(self) -> list[int]:
        """Return the steps of saves that were begun, and not committed: readers ignore them."""
        ...

    def read(self, directory: str, name: str, most: int) -> bytes:
        """Return a small file of at most `most` bytes; FileNotFoundError where there is none."""
        ...

    def fetch(self, directory: str, name: str, size: int) -> NDArray[np.uint8]:
        """Return a file of exactly `size` bytes."""
        ...

    def latest(self) -> str | None:
        """Return what LATEST says, or None where there is none. It is a hint, and no more."""
        ...

    def commit(self, bundle: Bundle) -> str:
        """Store a checkpoint and return its directory's name: when this returns, it is durable."""
        ...

    def point(self, directory: str) -> None:
        """Have LATEST name a directory."""
        ...

    def remove(self, directory: str, files: Sequence[str]) -> None:
        """Take a checkpoint away, of which `files` are all that we wrote; others are kept."""
        ...

    def sweep(self) -> None:
        """Remove what writers that are dead left unfinished."""
        ...
