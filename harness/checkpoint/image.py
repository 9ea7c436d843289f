"""Image: a snapshot as it lies in one of our buffers, and the files that are made of it.

In: a Snapshot, whose tensors are copied: that copy is all that training waits for. Out: the files
of a full checkpoint as views of the buffer, no byte copied again, each with its sha256, which
threads work out while the file is being written.
"""

import hashlib
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackproof.harness.checkpoint import anatomy, context, manifest, parts
from rackproof.harness.checkpoint.manifest import Manifest, Parent, Stored
from rackproof.harness.errors import CheckpointError

PART = 256 << 20  # bytes of a part, where the number of parts is not said
PARTS_MOST = 8  # then, at most
PAGE = 4096


@dataclass(frozen=True, slots=True)
class Output:
    """A file to be written: its pieces in memory, and the sha256 that a thread works out."""

    name: str
    pieces: tuple[memoryview, ...]
    sha256: Future[str]

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(piece.nbytes for piece in self.pieces)

    @classmethod
    def of(cls, name: str, pieces: Sequence[memoryview], pool: Executor) -> "Output":
        """Return the file, its sha256 begun."""
        return cls(name, tuple(pieces), pool.submit(_sha, tuple(pieces)))


@dataclass(frozen=True, slots=True)
class Made:
    """All files of a checkpoint but the manifest."""

    outputs: tuple[Output, ...]
    ratio: float = 1.0

    def manifest(self, step: int, parent: Parent | None) -> bytes:
        """Return the manifest's bytes, once every sha256 is known."""
        files = {out.name: Stored(out.size, out.sha256.result()) for out in self.outputs}
        return Manifest(step, files, parent, self.ratio).encode()


@dataclass(frozen=True, slots=True)
class Image:
    """A snapshot laid out: `data` are the bytes of all tensors, `parts` say which file has which.

    `context` are the bytes of its file. Images of the same `layouts` can be a delta's two sides.
    """

    step: int
    data: NDArray[np.uint8]
    parts: tuple[tuple[int, parts.Layout], ...]
    context: bytes

    def part(self, number: int) -> NDArray[np.uint8]:
        """Return the data of a part, as a view."""
        begin, found = self.parts[number]
        return self.data[begin : begin + found.nbytes]

    def full(self, pool: Executor) -> Made:
        """Return the files of a full checkpoint."""
        outputs = [
            Output.of(
                f"part-{number}.safetensors",
                [memoryview(found.header()), self.part(number).data],
                pool,
            )
            for number, (_, found) in enumerate(self.parts)
        ]
        return Made((*outputs, self.context_file(pool)))

    def context_file(self, pool: Executor) -> Output:
        """Return the context's file."""
        return Output.of(manifest.CONTEXT_NAME, [memoryview(self.context)], pool)


@dataclass(slots=True)
class Buffer:
    """Memory for one snapshot, which is touched when it is made and used again and again."""

    data: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))

    def reserve(self, nbytes: int) -> None:
        """Have room for `nbytes`, every page of it touched."""
        if self.data.size < nbytes:
            self.data = np.empty(nbytes, np.uint8)
            self.data[::PAGE] = 0

    def take(self, snapshot: anatomy.Snapshot, cut: "Cut") -> Image:
        """Copy a snapshot into the buffer and return it as an Image.

        Raises CheckpointError where a field is missing, or cannot be stored.
        """
        tensors = cut.check(snapshot)
        whole = parts.layout(tensors)
        order = list(tensors)
        text = context.encode(snapshot, order, cut.leave_out)
        self.reserve(whole.nbytes)
        data = self.data[: whole.nbytes]
        for entry in whole.entries:
            _copy(tensors[entry.name], data[entry.begin : entry.end], entry)
        count = cut.parts or min(max(1, -(-whole.nbytes // PART)), PARTS_MOST)
        return Image(snapshot.step, data, tuple(parts.split(whole, count)), text)


@dataclass(frozen=True, slots=True)
class Cut:
    """How a snapshot is cut: `parts` files (0: by size); `leave_out` a field, for drills only."""

    parts: int = 0
    leave_out: str = ""

    def check(self, snapshot: anatomy.Snapshot) -> dict[str, NDArray[Any]]:
        """Return the tensors to store; a CheckpointError unless all seven fields are there."""
        if not 0 <= snapshot.step <= manifest.STEP_MOST:
            msg = f"a checkpoint of step {snapshot.step} cannot be"
            raise CheckpointError(msg)
        have = anatomy.present(snapshot)
        lacking = [name for name in anatomy.FIELDS if name not in have and name != self.leave_out]
        named = {name: getattr(snapshot.context, name) for name in anatomy.CONTEXT if name in have}
        wrong = [f"{name} is missing" for name in lacking] + context.faults(named)
        wrong += [f"{name!r} among weights" for name in snapshot.weights if not _weight(name)]
        wrong += [f"{name!r} among the optimizer's" for name in snapshot.optimizer if _weight(name)]
        if wrong:
            msg = f"the snapshot of step {snapshot.step} is not complete: {', '.join(wrong)}"
            raise CheckpointError(msg)
        groups = {"weights": snapshot.weights, "optimizer": snapshot.optimizer}
        out = groups.get(self.leave_out, {})
        return {name: value for name, value in snapshot.tensors.items() if name not in out}


def _weight(name: str) -> bool:
    return name.startswith(anatomy.WEIGHTS)


def _copy(tensor: Any, into: NDArray[np.uint8], entry: parts.Entry) -> None:
    """Copy a tensor of NumPy or CuPy into bytes, little-endian and in C order."""
    view = into.view(parts.DTYPES[entry.dtype]).reshape(entry.shape)
    if isinstance(tensor, np.ndarray):
        np.copyto(view, tensor)
    else:
        tensor.get(out=view)


def _sha(pieces: Sequence[memoryview]) -> str:
    total = hashlib.sha256()
    for piece in pieces:
        total.update(piece)
    return total.hexdigest()
