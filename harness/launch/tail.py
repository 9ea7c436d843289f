"""Reads the events files of a training run as they grow, whoever writes them.

In: a folder of ``<who>.<attempt>.jsonl``. Out: happenings, each once, in the order in which lines
were found; ones that cannot be read are counted and told in words. A half line waits for its end.
What is no regular file is not opened: a fifo would hang us. Bounded in files, lines and bytes.

`strict` is for anybody's command: who speaks and in which attempt is then what the file's name
says, a rank beside it, and a time that this machine's clock cannot have shown gives way to the one
of reading.
"""

import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from rackproof.harness.happening import LONGEST, Happening, parse

BLOCK = 1 << 20  # bytes of one file in one poll, so that a trainer without end starves nobody
SHOWN = 20  # problems that are told one by one
MOST = 1 << 20  # happenings that are kept of one run
BYTES = 1 << 28  # of all lines that are kept of one run
FILES = 4096  # files that are read; further ones are told
EARLY, LATE = 5.0, 0.05  # s: how much a clock may be before our first look, and after the last
FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
RANK = re.compile(r"rank[0-9]{1,6}")


@dataclass(slots=True)
class _File:
    who: str
    attempt: int
    offset: int = 0
    line: int = 0
    rest: bytes = b""
    skipping: bool = False
    inode: int = 0
    told: bool = False


@dataclass(slots=True)
class Tail:
    """All events files of a folder. `problems` are the first lines that were none, in words."""

    folder: Path
    problems: list[str] = field(default_factory=list)
    more: int = 0
    count: int = 0
    strict: bool = False
    size: int = 0
    since: float = field(default_factory=time.monotonic)
    _files: dict[str, _File] = field(default_factory=dict)
    _crowded: bool = False
    _untimely: bool = False

    @property
    def full(self) -> bool:
        """Whether nothing more is kept, because the run has said too much."""
        return self.count >= MOST or self.size >= BYTES

    def poll(self) -> list[Happening]:
        """Return what was written since the last call; nothing where the folder is not there."""
        found: list[Happening] = []
        try:
            with os.scandir(self.folder) as there:
                entries = sorted(there, key=lambda entry: entry.name)
        except OSError:
            return found
        for entry in entries:
            if entry.name.endswith(".jsonl"):
                found += self._grown(entry)
        return found

    def drain(self) -> list[Happening]:
        """Return all that is there now, of writers that have ended, however many blocks it is."""
        found: list[Happening] = []
        for _ in range(BYTES // BLOCK):
            before = self._read_so_far()
            found += self.poll()
            if self.full or self._read_so_far() == before:
                break
        return found

    def _read_so_far(self) -> int:
        return sum(file.offset for file in self._files.values())

    def _grown(self, entry: os.DirEntry[str]) -> list[Happening]:
        name = entry.name
        file = self._files.get(name)
        if file is None:
            if len(self._files) >= FILES:
                if not self._crowded:
                    self._crowded = True
                    self._complain(f"more than {FILES} events files; the others are not read")
                return []
            stem, _, number = name.removesuffix(".jsonl").rpartition(".")
            named = stem and number.isdecimal() and len(number) < 10  # noqa: PLR2004 - digits
            who, attempt = (stem, int(number)) if named else (name, 1)
            file = self._files[name] = _File(who, attempt)
        block = self._read(entry, file)
        return [] if not block else list(self._lines(name, file, block))

    def _read(self, entry: os.DirEntry[str], file: _File) -> bytes:
        try:
            seen = entry.stat(follow_symlinks=False)
            if not stat.S_ISREG(seen.st_mode):
                if not file.told:
                    file.told = True
                    self._complain(f"{entry.name}: is no regular file")
                return b""
            if seen.st_size < file.offset or file.inode not in (0, seen.st_ino):
                self._complain(f"{entry.name}: was written anew; what stood there is counted")
                file.offset, file.rest, file.skipping = 0, b"", False
            file.inode = seen.st_ino
            if seen.st_size <= file.offset:
                return b""
            # Between the look and the opening it may have become something else.
            opened = os.open(entry.path, FLAGS)
            try:
                block = os.pread(opened, BLOCK, file.offset)
            finally:
                os.close(opened)
        except OSError as error:
            if not file.told:
                file.told = True
                self._complain(f"{entry.name}: cannot be read ({error.strerror})")
            return b""
        file.offset += len(block)
        return block

    def _lines(self, name: str, file: _File, block: bytes) -> Iterator[Happening]:
        now = time.monotonic()
        lines = (file.rest + block).split(b"\n")
        file.rest = lines.pop()
        if len(file.rest) > LONGEST:
            file.rest, file.skipping = b"", True
        for line in lines:
            file.line += 1
            if file.skipping:
                file.skipping = False
                self._complain(f"{name} line {file.line}: longer than {LONGEST} bytes")
                continue
            if not line.strip():
                continue
            found = parse(line, file.who, now, file.attempt)
            if isinstance(found, str):
                self._complain(f"{name} line {file.line}: {found}")
            elif not self.full:
                self.count += 1
                self.size += len(line)
                yield self._checked(found, file, now) if self.strict else found
            else:
                self._complain(f"{name} line {file.line}: more than {MOST} lines or {BYTES} bytes")

    def _checked(self, found: Happening, file: _File, now: float) -> Happening:
        """Return it with what we know ourselves in the place of what it says."""
        who, rank = found.who, found.number("rank")
        if rank is not None and (found.number("world") or 1) > 1:
            who = f"rank{rank}"
        at = found.at
        if not self.since - EARLY <= at <= now + LATE:
            at = now
            if not self._untimely:
                self._untimely = True
                self._complain(f"{file.who}: its times are not those of this machine's clock")
        named = f"{file.who}.{who}" if RANK.fullmatch(who) else file.who
        return replace(found, at=at, who=named, attempt=file.attempt)

    def _complain(self, what: str) -> None:
        if len(self.problems) < SHOWN:
            self.problems.append(what)
        else:
            self.more += 1

    def told(self) -> list[str]:
        """Return the problems in words, the rest counted, half lines at the end included."""
        cut = [f"{name}: its last line was cut short" for name, f in self._files.items() if f.rest]
        rest = [f"and {self.more} more lines"] if self.more else []
        return [*self.problems, *rest, *cut]
