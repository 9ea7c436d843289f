"""Files from anywhere, opened without trust: bytes of any encoding in, whole UTF-8 lines out.

Plain or packed (also one that ends early), BOM, UTF-16 of both orders, NUL blocks and terminal
escapes. A file of any size passes through in chunks of about a mebibyte, so memory stays flat.
Only regular files are opened: a FIFO, a socket or a device would hang or have effects.
"""

import codecs
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from rackproof.harness.errors import RackproofError
from rackproof.harness.readers.unpacking import BLOCK, MAGIC_LENGTH, packing, unpacked

HEAD = 1 << 18
_NULS = re.compile(rb"\x00+")
# CSI sequences (colours), OSC sequences (titles) and two-byte escapes, all of bounded length.
_ESCAPES = re.compile(
    rb"\x1b(?:\[[0-9;:?]{0,32}[ -/]?[@-~]|\][^\x07\x1b\n]{0,128}\x07|[@-Z\\^_=>])"
)
_MOSTLY, _HARDLY = 0.4, 0.05
_TAR, _TAR_AT = b"ustar", 257  # POSIX.1-1988, the header's magic and its place


class Unreadable(RackproofError):
    """The file cannot be read at all; the message says why."""


def _open(path: Path) -> BinaryIO:
    """Open a regular file; a FIFO is not waited for."""
    try:
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"cannot be opened: {reason}"
        raise Unreadable(msg) from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        msg = "is no regular file, and is not read"
        raise Unreadable(msg)
    return os.fdopen(number, "rb", buffering=0)


def _encoding(head: bytes) -> tuple[str, int]:
    """Return the encoding that `head` shows, and the length of its byte order mark."""
    for mark, name in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if head.startswith(mark):
            return name, len(mark)
    pairs = len(head) // 2
    if pairs:
        even = head[0 : 2 * pairs : 2].count(0) / pairs
        odd = head[1 : 2 * pairs : 2].count(0) / pairs
        if odd > _MOSTLY and even < _HARDLY:
            return "utf-16-le", 0
        if even > _MOSTLY and odd < _HARDLY:
            return "utf-16-be", 0
    return "utf-8", 0


class Source:
    """One file to read. `problems` and `cut` fill while it is read.

    A reader that meets what another has to read says so in `others`.
    """

    def __init__(self, path: Path) -> None:
        """Look at the file's first bytes; Unreadable when it cannot be opened."""
        self.path = path
        self.problems: list[str] = []
        self.cut = self.others = False
        with _open(path) as file:
            self._packing, ours = packing(self._read(file, MAGIC_LENGTH))
        if not ours:
            msg = f"is packed with {self._packing}, which is not read here: unpack it first"
            raise Unreadable(msg)
        first = b""
        for block in self._unpacked():
            first += block
            if len(first) >= HEAD:
                break
        if first[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
            msg = "is a tar archive: unpack it first, and name the folder"
            raise Unreadable(msg)
        self.encoding, self._mark = _encoding(first[:HEAD])
        self.head = self._clean(self._decoded_whole(first[:HEAD]))
        self.size = len(first)

    def _read(self, file: BinaryIO, size: int) -> bytes:
        try:
            return file.read(size) or b""
        except OSError as error:
            msg = f"cannot be read: {error.strerror}"
            raise Unreadable(msg) from None

    def _note(self, problem: str) -> None:
        if problem not in self.problems:
            self.problems.append(problem)

    def _decoded_whole(self, data: bytes) -> bytes:
        data = data[self._mark :]
        return data if self.encoding == "utf-8" else data.decode(self.encoding, "replace").encode()

    def _clean(self, data: bytes) -> bytes:
        """Take out what is no text; a NUL block parts the lines on its two sides."""
        if b"\0" in data:
            self._note("NUL bytes inside, as after a power loss: what stood there is lost")
            data = _NULS.sub(b"\n", data)
        return _ESCAPES.sub(b"", data) if b"\x1b" in data else data

    def _blocks(self) -> Iterator[bytes]:
        with _open(self.path) as file:
            while block := self._read(file, BLOCK):
                yield block

    def _unpacked(self) -> Iterator[bytes]:
        if not self._packing:
            return self._blocks()
        return unpacked(self._blocks(), self._packing, self._note, self._cut_short)

    def _cut_short(self, how: str) -> None:
        self.cut = True
        self._note(f"the {self._packing} stream {how}: only what was unpacked before is read")

    def _decoded(self) -> Iterator[bytes]:
        skip = self._mark
        decoder = codecs.getincrementaldecoder(self.encoding)("replace")
        for block in self._unpacked():
            data, skip = block[skip:], max(0, skip - len(block))
            if self.encoding != "utf-8":
                data = decoder.decode(data).encode()
            yield self._clean(data)

    def chunks(self) -> Iterator[bytes]:
        """Yield the file as chunks that end with a whole line; only the last may lack its newline.

        A line longer than a block is handed on in parts, and said.
        """
        rest = b""
        for data in self._decoded():
            end = data.rfind(b"\n") + 1
            if end:
                yield b"".join((rest, memoryview(data)[:end]))  # one copy, not two
                rest = data[end:]
                continue
            rest += data
            if len(rest) > BLOCK:
                self._note("a line longer than 1 MiB is read in parts")
                yield rest
                rest = b""
        if rest:
            yield rest

    def whole(self, limit: int) -> bytes:
        """Return the whole text, at most `limit` bytes; what lies beyond is a problem and a cut."""
        parts, size = [], 0
        for chunk in self.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > limit:
                self.cut = True
                self._note(f"longer than {limit >> 20} MiB: the rest is not read")
                break
        return b"".join(parts)[:limit]


class Excerpt(Source):
    """A part of a file that was read already: what a reader asks of a Source, from memory."""

    def __init__(self, path: Path, text: bytes) -> None:
        """Hold `text`, clean UTF-8 as chunks() gives it; `path` is what its events are told of."""
        self.path = path
        self.problems = []
        self.cut = self.others = False
        self.encoding, self._mark, self._packing = "utf-8", 0, ""
        self.head = text[:HEAD]
        self.size = len(text)
        self._text = text

    def _blocks(self) -> Iterator[bytes]:
        for start in range(0, len(self._text), BLOCK):
            yield self._text[start : start + BLOCK]


def regular_files(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield every regular file below `folder` once, in sorted order, with "" or why not readable.

    Links to folders are not followed; a link to a file is read unless that file was met before.
    """
    seen: set[tuple[int, int]] = set()
    refused: list[tuple[Path, str]] = []

    def refuse(error: OSError) -> None:
        refused.append((Path(str(error.filename)), f"cannot be listed: {error.strerror}"))

    for root, folders, files in os.walk(folder, onerror=refuse):
        folders.sort()
        for name in sorted(files):
            path = Path(root, name)
            try:
                status = path.stat()
            except PermissionError as error:
                yield path, f"cannot be opened: {error.strerror}"
                continue
            except (OSError, ValueError):
                yield path, "is a link that leads nowhere"
                continue
            if not stat.S_ISREG(status.st_mode):
                yield path, "is no regular file, and is not read"
            elif (status.st_dev, status.st_ino) not in seen:
                seen.add((status.st_dev, status.st_ino))
                yield path, ""
    yield from refused
