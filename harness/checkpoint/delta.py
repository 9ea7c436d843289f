"""Delta: how a part differs from the same part of a full checkpoint.

In: the bytes of both, equally laid out. Out: XOR, then the bytes of each word apart (byte-shuffle:
exponents beside exponents), then zstd at level 1, in chunks; each chunk carries the xxh3 of what it
stands for. It is stored as a safetensors file of one tensor, ``delta``, and described in its
metadata. Dense AdamW moves every float a little, and gives ratios of about 0.4 to 0.6.
"""

import json
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash
import zstandard
from numpy.typing import NDArray

from rackproof.harness.checkpoint import parts
from rackproof.harness.checkpoint.strict import whole
from rackproof.harness.errors import CheckpointError

CHUNK = 4 << 20  # bytes of data in a chunk; a multiple of every word
CHUNK_MOST = 64 << 20
LEVEL = 1
FORMAT = "xor-shuffle-zstd/1"
TENSOR = "delta"
WORDS = (1, 2, 4, 8)

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Encoded:
    """The difference of one part: compressed chunks, each with the xxh3 of its original."""

    word: int
    chunks: tuple[tuple[bytes, str], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of all chunks."""
        return sum(len(chunk) for chunk, _ in self.chunks)

    def pieces(self) -> list[memoryview]:
        """Return the part's file, as pieces."""
        metadata = {
            "format": FORMAT,
            "word": str(self.word),
            "chunk": str(CHUNK),
            "chunks": json.dumps([[len(chunk), xxh3] for chunk, xxh3 in self.chunks]),
        }
        entry = parts.Entry(TENSOR, "U8", (self.nbytes,), 0, self.nbytes)
        header = parts.Layout((entry,), metadata).header()
        return [memoryview(header), *(memoryview(chunk) for chunk, _ in self.chunks)]


def encode(new: Bytes, old: Bytes, word: int, pool: Executor) -> Encoded:
    """Return how `new` differs from `old`, having made `new` of it again.

    Raises CheckpointError where that gives other bytes.
    """
    spans = [slice(at, at + CHUNK) for at in range(0, new.size, CHUNK)]
    made = pool.map(lambda span: _chunk(new[span], old[span], word), spans)
    return Encoded(word, tuple(made))


def decode(found: parts.Layout, data: Bytes, old: Bytes, what: str) -> Bytes:
    """Return the new data of a part, from its delta file's content and the old data."""
    word, sizes = _description(found, old.size, what)
    chunk = int(found.metadata["chunk"])
    if len(sizes) != -(-old.size // chunk) or sum(size for size, _ in sizes) != data.size:
        msg = f"{what} describes chunks that do not make up its part"
        raise CheckpointError(msg)
    new, at = np.empty_like(old), 0
    for number, (size, xxh3) in enumerate(sizes):
        span = slice(number * chunk, (number + 1) * chunk)
        new[span] = _restored(data[at : at + size].tobytes(), old[span], word)
        if xxhash.xxh3_64_hexdigest(new[span].data) != xxh3:
            msg = f"chunk {number} of {what} does not give what was saved"
            raise CheckpointError(msg)
        at += size
    return new


def _chunk(new: Bytes, old: Bytes, word: int) -> tuple[bytes, str]:
    mixed = np.bitwise_xor(new, old)
    if word > 1:
        mixed = np.ascontiguousarray(mixed.reshape(-1, word).T)
    packed = zstandard.ZstdCompressor(level=LEVEL).compress(mixed.data)
    if not np.array_equal(_restored(packed, old, word), new):
        msg = "a delta does not give back what it was made of"
        raise CheckpointError(msg)
    return packed, xxhash.xxh3_64_hexdigest(new.data)


def _restored(packed: bytes, old: Bytes, word: int) -> Bytes:
    """Undo XOR, shuffle and zstd of one chunk; never more bytes than the old one has."""
    try:
        said = zstandard.frame_content_size(packed)
        plain = zstandard.ZstdDecompressor().decompress(packed) if said == old.size else b""
    except zstandard.ZstdError as error:
        msg = f"a chunk of a delta cannot be unpacked ({error})"
        raise CheckpointError(msg) from error
    if len(plain) != old.size:
        msg = f"a chunk of a delta stands for {said} bytes, and its part has {old.size}"
        raise CheckpointError(msg)
    mixed = np.frombuffer(plain, np.uint8)
    if word > 1:
        mixed = np.ascontiguousarray(mixed.reshape(word, -1).T).reshape(-1)
    restored: Bytes = np.bitwise_xor(mixed, old)
    return restored


def _description(
    found: parts.Layout, size_of_part: int, what: str
) -> tuple[int, Sequence[tuple[int, str]]]:
    """Return (word, [(bytes, xxh3) of each chunk]) of a delta's metadata, checked."""
    metadata = found.metadata
    try:
        word, chunk = int(metadata["word"]), int(metadata["chunk"])
        rows: Any = json.loads(metadata["chunks"])
        sizes = [(row[0], row[1]) for row in rows]
    except (KeyError, ValueError, TypeError, IndexError, RecursionError) as error:
        msg = f"{what} does not describe its delta ({str(error)[:80]})"
        raise CheckpointError(msg) from error
    named = [entry.name for entry in found.entries] == [TENSOR]
    plain = all(whole(size, CHUNK_MOST * 2) and isinstance(xxh3, str) for size, xxh3 in sizes)
    if metadata.get("format") != FORMAT or not named or word not in WORDS or not plain:
        msg = f"{what} is no delta of the format {FORMAT}"
        raise CheckpointError(msg)
    if not 0 < chunk <= CHUNK_MOST or chunk % word or size_of_part % word:
        msg = f"{what} has chunks of {chunk} bytes, of words of {word}, which cannot be"
        raise CheckpointError(msg)
    return word, sizes
