"""Reads the events files of a training run as they grow, whoever writes them.

In: a folder of ``<who>.<attempt>.jsonl``. Out: happenings, each once, in the order in which lines
were found; ones that cannot be read are counted and told in words. A half line waits for its end.
What is no regular file is not opened: a fifo would hang us.
"""

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rackproof.harness.happening import LONGEST, Happening, parse

BLOCK = 1 << 20  # bytes of one file in one poll, so that a trainer without end starves nobody
SHOWN = 20  # problems that are told one by one
MOST = 1 << 20  # happenings that are kept of one run


@dataclass(slots=True)
class _File:
    who: str
    attempt: int
    offset: int = 0
    line: int = 0
    rest: bytes = b""
    skipping: bool = False


@dataclass(slots=True)
class Tail:
    """All events files of a folder. `problems` are the first lines that were none, in words."""

    folder: Path
    problems: list[str] = field(default_factory=list)
    more: int = 0
    count: int = 0
    _files: dict[str, _File] = field(default_factory=dict)

    def poll(self) -> list[Happening]:
        """Return what was written since the last call; nothing where the folder is not there."""
        found: list[Happening] = []
        try:
            names = sorted(entry.name for entry in os.scandir(self.folder))
        except OSError:
            return found
        for name in names:
            if name.endswith(".jsonl"):
                found += self._grown(name)
        return found

    def _grown(self, name: str) -> list[Happening]:
        file = self._files.get(name)
        if file is None:
            stem, _, number = name.removesuffix(".jsonl").rpartition(".")
            who, attempt = (stem, int(number)) if stem and number.isdecimal() else (name, 1)
            file = self._files[name] = _File(who, attempt)
        block = self._read(self.folder / name, file)
        return [] if not block else list(self._lines(name, file, block))

    def _read(self, path: Path, file: _File) -> bytes:
        try:
            seen = path.lstat()
            if not stat.S_ISREG(seen.st_mode):
                if not file.line:
                    file.line = 1
                    self._complain(f"{path.name}: is no regular file")
                return b""
            if seen.st_size <= file.offset:
                return b""
            with path.open("rb") as opened:
                opened.seek(file.offset)
                block = opened.read(BLOCK)
        except OSError as error:
            self._complain(f"{path.name}: cannot be read ({error.strerror})")
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
            elif self.count < MOST:
                self.count += 1
                yield found
            else:
                self._complain(f"{name} line {file.line}: more than {MOST} happenings")

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
