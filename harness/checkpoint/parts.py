"""Parts: how tensors lie in files. A part is a safetensors file; a tensor is never cut in two.

In: names, dtypes and shapes in the order of storing. Out: a Layout for each part, the header that
its file begins with, and, for reading, the tensors in a file's bytes, with nothing taken on trust.
The format is https://github.com/huggingface/safetensors: eight bytes (little-endian) with the
length of a JSON header, the header, and the data without holes.
"""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from rackproof.harness.checkpoint.anatomy import Tensors
from rackproof.harness.checkpoint.strict import canonical, parse, whole
from rackproof.harness.errors import CheckpointError

DTYPES: Mapping[str, str] = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "I64": "<i8", "I32": "<i4",
    "I16": "<i2", "I8": "|i1", "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "|u1",
    "BOOL": "|b1", "C64": "<c8",
}  # fmt: skip
"""Of safetensors to NumPy's. NumPy has no bfloat16: its bits are read as uint16."""
NAMES: Mapping[str, str] = {numpy: name for name, numpy in DTYPES.items() if name != "BF16"}
HEAD = 8  # bytes: the length of the header
HEADER_MOST = 100 << 20  # bytes; the limit of safetensors
DIMENSIONS_MOST = 32
MOST = 1 << 62  # bytes or elements; no file is larger
ELEMENTS_MOST = 1 << 59  # sides of 0 left out: NumPy forms no array of more, though it be empty


@dataclass(frozen=True, slots=True)
class Entry:
    """A tensor in a part: where its bytes begin and end among the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Layout:
    """One part: its tensors in order, without holes; `metadata` holds texts."""

    entries: tuple[Entry, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of data."""
        return self.entries[-1].end if self.entries else 0

    @property
    def word(self) -> int:
        """The bytes of an element, where all tensors of the part have the same; else 1."""
        sizes = {np.dtype(DTYPES[entry.dtype]).itemsize for entry in self.entries}
        return sizes.pop() if len(sizes) == 1 else 1

    def header(self) -> bytes:
        """Return what comes before the data, padded with spaces to eight bytes."""
        body: dict[str, object] = {
            entry.name: {
                "dtype": entry.dtype,
                "shape": list(entry.shape),
                "data_offsets": [entry.begin, entry.end],
            }
            for entry in self.entries
        }
        if self.metadata:
            body["__metadata__"] = dict(self.metadata)
        text = canonical(body)
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text


def layout(tensors: Tensors) -> Layout:
    """Return how tensors lie one after another; a CheckpointError for a dtype that has no name."""
    entries, at = [], 0
    for name, tensor in tensors.items():
        kind = NAMES.get(np.dtype(tensor.dtype).newbyteorder("<").str)
        if kind is None or tensor.dtype.hasobject or name == "__metadata__":
            msg = f"a tensor {name!r} of {tensor.dtype} cannot be stored"
            raise CheckpointError(msg)
        entries.append(Entry(name, kind, tuple(tensor.shape), at, at + int(tensor.nbytes)))
        at += int(tensor.nbytes)
    return Layout(tuple(entries))


def split(whole_layout: Layout, parts: int) -> list[tuple[int, Layout]]:
    """Return ``(first byte of the whole, Layout)`` of each part, of about equal sizes.

    There are fewer than `parts` where there are fewer tensors.
    """
    goal = whole_layout.nbytes / max(parts, 1)
    groups: list[list[Entry]] = [[]]
    for entry in whole_layout.entries:
        middle = (entry.begin + entry.end) / 2
        if groups[-1] and len(groups) < parts and middle > goal * len(groups):
            groups.append([])
        groups[-1].append(entry)
    return [(group[0].begin, _rebased(group)) for group in groups if group]


def read(data: NDArray[np.uint8], what: str) -> tuple[Layout, NDArray[np.uint8]]:
    """Return the Layout of a file's bytes, and its data; a CheckpointError for any other file."""
    if data.size < HEAD:
        msg = f"{what} is too short for a safetensors file"
        raise CheckpointError(msg)
    (length,) = struct.unpack("<Q", data[:HEAD].tobytes())
    if length > min(HEADER_MOST, data.size - HEAD):
        msg = f"{what} names a header of {length} bytes, longer than the file or the format allows"
        raise CheckpointError(msg)
    body = parse(data[HEAD : HEAD + length].tobytes(), f"the header of {what}")
    metadata = body.pop("__metadata__", {})
    if not _texts(metadata):
        msg = f"the metadata of {what} are no texts"
        raise CheckpointError(msg)
    entries = [_entry(name, row, what) for name, row in body.items()]
    entries.sort(key=lambda entry: (entry.begin, entry.end))
    rest = data[HEAD + length :]
    at = 0
    for entry in entries:
        if entry.begin != at:
            msg = f"tensors of {what} overlap, or leave a hole"
            raise CheckpointError(msg)
        at = entry.end
    if at != rest.size:
        msg = f"{what} holds {rest.size} bytes of data, and its header describes {at}"
        raise CheckpointError(msg)
    return Layout(tuple(entries), metadata), rest


def tensors(found: Layout, data: NDArray[np.uint8]) -> dict[str, NDArray[np.generic]]:
    """Return the tensors as views of `data`; those that are not aligned are copied."""
    views: dict[str, NDArray[np.generic]] = {}
    for entry in found.entries:
        part = data[entry.begin : entry.end]
        dtype = np.dtype(DTYPES[entry.dtype])
        if part.size and part.ctypes.data % dtype.alignment:
            part = part.copy()
        views[entry.name] = part.view(dtype).reshape(entry.shape)
    return views


def _rebased(group: Sequence[Entry]) -> Layout:
    start = group[0].begin
    return Layout(
        tuple(Entry(e.name, e.dtype, e.shape, e.begin - start, e.end - start) for e in group)
    )


def _texts(body: object) -> bool:
    return isinstance(body, dict) and all(isinstance(value, str) for value in body.values())


def _entry(name: str, row: object, what: str) -> Entry:
    """Return a tensor's row of the header, checked by itself."""
    if isinstance(row, dict) and set(row) == {"dtype", "shape", "data_offsets"}:
        dtype, shape, offsets = row["dtype"], row["shape"], row["data_offsets"]
        plain = (
            isinstance(dtype, str)
            and dtype in DTYPES
            and isinstance(shape, list)
            and len(shape) <= DIMENSIONS_MOST
            and all(whole(side, MOST) for side in shape)
            and isinstance(offsets, list)
            and len(offsets) == 2  # noqa: PLR2004 - begin and end
            and all(whole(offset, MOST) for offset in offsets)
            and math.prod(side or 1 for side in shape) <= ELEMENTS_MOST
        )
        if plain and math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize == offsets[1] - offsets[0]:
            return Entry(name, dtype, tuple(shape), *offsets)
    msg = f"{what} describes its tensor {name[:80]!r} in a way that cannot be"
    raise CheckpointError(msg)
