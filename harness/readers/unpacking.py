"""Packed files, unpacked in small pieces: gzip, bzip2 and xz by what the first bytes say.

Blocks of a packed file come in; at most a mebibyte at a time goes out, and never more than
UNPACKED_LIMIT in all, so that a small file cannot fill the memory. What the standard library
cannot unpack is refused with the advice to unpack it first.
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Protocol

BLOCK = 1 << 20
UNPACKED_LIMIT = 8 << 30
DICTIONARY_LIMIT = 1 << 28  # bytes of memory that an xz stream may ask for
MAGIC = {b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ\x00": "xz"}
REFUSED = {
    b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4", b"PK\x03\x04": "zip",
    b"7z\xbc\xaf\x27\x1c": "7z",
}  # fmt: skip
MAGIC_LENGTH = max(map(len, (*MAGIC, *REFUSED)))
DAMAGE = (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError)


class _Stream(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def feed(self, data: bytes) -> Iterator[bytes]: ...


class _Gzip:
    def __init__(self) -> None:
        self._inner = zlib.decompressobj(31)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data and not self._inner.eof:
            out = self._inner.decompress(data, BLOCK)
            data = self._inner.unconsumed_tail
            if out:
                yield out


class _Other:
    """A stream of bz2 or lzma, which keep what they were not asked for yet."""

    def __init__(self, inner: bz2.BZ2Decompressor | lzma.LZMADecompressor) -> None:
        self._inner = inner

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data.lstrip(b"\0")  # xz pads its streams

    def feed(self, data: bytes) -> Iterator[bytes]:
        while not self._inner.eof:
            if out := self._inner.decompress(data, BLOCK):
                yield out
            data = b""
            if self._inner.needs_input:
                return


def _xz() -> _Stream:
    return _Other(lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=DICTIONARY_LIMIT))


_STREAMS: dict[str, Callable[[], _Stream]] = {
    "gzip": _Gzip, "bzip2": lambda: _Other(bz2.BZ2Decompressor()), "xz": _xz,
}  # fmt: skip


def packing(first: bytes) -> tuple[str, bool]:
    """Return (how a file that begins with `first` is packed, or ""; whether we can unpack it)."""
    for known, ours in ((MAGIC, True), (REFUSED, False)):
        for magic, name in known.items():
            if first.startswith(magic):
                return name, ours
    return "", True


def unpacked(
    blocks: Iterator[bytes], name: str, note: Callable[[str], None], cut: Callable[[str], None]
) -> Iterator[bytes]:
    """Yield the content of `blocks`, packed as `name`; several streams in a row are one file.

    `cut` is told where the content ends before it should, `note` what stands behind it.
    """
    begin = next(magic for magic, known in MAGIC.items() if known == name)[:1]
    stream, total = _STREAMS[name](), 0
    for block in blocks:
        data = block
        while data:
            if stream.eof:
                if not data.startswith(begin):
                    note(f"bytes after the {name} stream are not read")
                    return
                stream = _STREAMS[name]()
            try:
                for out in stream.feed(data):
                    total += len(out)
                    if total > UNPACKED_LIMIT:
                        cut(f"unpacks to more than {UNPACKED_LIMIT >> 30} GiB")
                        return
                    yield out
            except DAMAGE:
                cut("is damaged")
                return
            data = stream.unused_data if stream.eof else b""
    if not stream.eof:
        cut("ends early")
