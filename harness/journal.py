"""What a burn changes on real hardware is written down first, and put back whatever happens.

In: a GPU's UUID, a setting, and its value before. Out: a line in a file of this process, on disk
(fsync) before the change is made. It is put back at the end, after an exception, on SIGTERM and
SIGHUP, and, where the process was killed, by the next start, which finds the file of a writer that
is dead. A writer that lives (it holds its file's lock) is left alone, and a GPU that it works on
with it. What cannot be read is set aside and said; what cannot be put back stays written down.

The files lie in a folder of this boot of this machine: homes are shared between machines, and a
driver that is loaded anew has forgotten what was changed.

The journal knows no driver: `put` is handed in, and puts one value back or raises a DeviceError.
"""

import contextlib
import fcntl
import itertools
import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

from rackproof.harness.errors import DeviceError, NotPresent

SUFFIX, BROKEN, LOCK = ".jsonl", ".broken", "lock"
STOPS = (signal.SIGTERM, signal.SIGHUP)
_number = itertools.count()  # of the journals of this process
START_FIELD = 19  # of /proc/PID/stat after the name: the time it was started, field 22 of proc(5)


@dataclass(frozen=True, slots=True)
class Change:
    """A setting of a GPU that was changed, and its value before, 0 or more: `power.limit` in W."""

    uuid: str
    setting: str
    was: float

    @property
    def key(self) -> tuple[str, str]:
        """What was changed: two entries with the same key are about one thing."""
        return self.uuid, self.setting

    def __str__(self) -> str:
        """Return it in words."""
        return f"{self.uuid}: {self.setting} of {self.was:g}"


Put = Callable[[Change], None]


@dataclass(frozen=True, slots=True)
class Writer:
    """A process: its id, and when it was started (clock ticks after boot)."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it runs: a process of that id that was started at another time is another."""
        return started(self.pid) == self.started


def boot() -> str:
    """Return the id of this boot of this machine, the same in all its containers."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return "boot"


def started(pid: int) -> int | None:
    """Return when a process was started, in clock ticks after boot; None where it does not run."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        # The name in brackets may hold anything, brackets too.
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[START_FIELD])
    except (OSError, IndexError, ValueError):
        return None


def this_process() -> Writer:
    """Return the writer that we are."""
    return Writer(os.getpid(), started(os.getpid()) or 0)


def state_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the folder of the journal: under XDG_STATE_HOME, or ~/.local/state."""
    given = (os.environ if environment is None else environment).get("XDG_STATE_HOME", "")
    # The XDG base directory specification: a path that is not absolute is to be ignored.
    base = Path(given) if Path(given).is_absolute() else Path.home() / ".local" / "state"
    return base / "rackproof" / "changes" / boot()


class Journal:
    """The changes of this process. Not for two threads, as the burns that make them are not."""

    def __init__(
        self, folder: Path, put: Put, writer: Writer | None = None, *, listens: bool = True
    ) -> None:
        """Keep the changes in `folder`, which is made with the first of them.

        A process that restores by itself when a signal ends it says that it `listens` alone.
        """
        self._folder, self._put, self._listens = folder, put, listens
        self._writer = writer or this_process()
        self.path = folder / f"{self._writer.pid}-{self._writer.started}-{next(_number)}{SUFFIX}"
        self._open: dict[tuple[str, str], Change] = {}
        self._file: BinaryIO | None = None
        self._handlers: dict[int, Any] = {}

    @property
    def changes(self) -> tuple[Change, ...]:
        """What is changed now, and written down."""
        return tuple(self._open.values())

    def keep(self, *changes: Change) -> None:
        """Write changes down before they are made; only the first of a setting counts.

        Raises DeviceError when it cannot be written: no change must be made then.
        """
        fresh: dict[tuple[str, str], Change] = {}
        for change in changes:
            if change.key not in self._open:
                fresh.setdefault(change.key, change)
        if not fresh:
            return
        more = {**asdict(self._writer), "at": time.time()}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._append(*({**asdict(change), **more} for change in fresh.values()))
            _sync_folder(self._folder)
        except OSError as error:
            msg = f"{self.path}: the value before a change cannot be written down "
            msg += f"({error.strerror}), so nothing is changed"
            raise DeviceError(msg) from error
        self._open |= fresh
        if self._listens:
            self._listen()

    def restore(self, uuid: str | None = None) -> None:
        """Put back what was changed, of one GPU or of all; try all, then raise the first error."""
        first: DeviceError | None = None
        before = set(self._open)
        for change in [c for c in self.changes if uuid in (None, c.uuid)]:
            try:
                self._put(change)
            except DeviceError as error:
                first = first or error
                continue
            self._open.pop(change.key, None)
        if self._open:
            with contextlib.suppress(OSError):  # then the next start puts the same value back
                self._append(*({"restored": list(key)} for key in before - self._open.keys()))
        if not self._open and self._file is not None:
            self._ignore()
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)
            self._file.close()
            self._file = None
        if first is not None:
            raise first

    def _append(self, *entries: Mapping[str, Any]) -> None:
        if self._file is None:
            self._file = self.path.open("ab")
            with contextlib.suppress(OSError):  # a file system without locks: the pid has to do
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # A line that a full disk cut short must not spoil the next.
        lines = (b"\n" + json.dumps(entry).encode() + b"\n" for entry in entries)
        self._file.write(b"".join(lines))
        self._file.flush()
        os.fsync(self._file.fileno())

    def _listen(self) -> None:
        """Put back before a signal ends us; Python lets only the main thread ask for that."""
        if self._handlers or threading.current_thread() is not threading.main_thread():
            return
        for number in STOPS:
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._handlers[number] = signal.signal(number, self._stop)

    def _ignore(self) -> None:
        if threading.current_thread() is threading.main_thread():
            while self._handlers:
                number, before = self._handlers.popitem()
                if signal.getsignal(number) == self._stop:  # else somebody else took over since
                    signal.signal(number, before)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """Put back, then do what the signal would have done."""
        before = self._handlers.get(number, signal.SIG_DFL)
        with contextlib.suppress(DeviceError):  # it stays written down
            self.restore()
        if callable(before):
            before(number, frame)
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def recover(self) -> list[str]:
        """Put back what writers left changed that are dead; return what there is to say."""
        if not self._folder.is_dir():
            return []
        try:
            with _locked(self._folder):
                return self._recover()
        except OSError as error:
            return [f"{self._folder}: what earlier runs changed cannot be read ({error.strerror})"]

    def adopt(self, uuids: Collection[str]) -> list[str]:
        """Take over what dead writers left changed on these GPUs; return what there is to say.

        `restore` puts it back later, as if we had changed it: a controller that follows a killed
        one need not let go at once. Raises DeviceError where it cannot be written down.
        """
        if not self._folder.is_dir():
            return []
        try:
            with _locked(self._folder):
                return self._adopt(uuids)
        except OSError as error:
            msg = f"{self._folder}: what earlier runs changed cannot be read ({error.strerror})"
            raise DeviceError(msg) from error

    def _adopt(self, uuids: Collection[str]) -> list[str]:
        notes, said, busy = self._notes()
        mine = [[c for c in n.open if c.uuid in uuids and c.key not in busy] for n in notes]
        self.keep(*(change for own in mine for change in own))
        for note, own in zip(notes, mine, strict=True):
            note.rewrite([change for change in note.open if change not in own])
            if own:
                who = f"a run that was killed (pid {note.writer.pid})"
                said.append(f"{len(own)} settings that {who} had left changed are taken over")
        return said

    def _notes(self) -> "tuple[list[_Note], list[str], set[tuple[str, str]]]":
        """Return the notes of dead writers, the eldest first, what to say, what is busy."""
        said: list[str] = []
        notes = []
        for path in sorted(self._folder.glob(f"*{SUFFIX}")):
            try:
                notes.append(_read(path))
            except OSError as error:
                said.append(f"{path}: cannot be read ({error.strerror})")
        said += [line for note in notes for line in note.problems]
        busy = {change.key for note in notes if note.alive for change in note.open}
        busy |= self._open.keys()
        return sorted((n for n in notes if not n.alive), key=lambda n: n.at), said, busy

    def _recover(self) -> list[str]:
        notes, said, busy = self._notes()
        done: dict[tuple[str, str], bool] = {}
        for note in notes:
            left = [c for c in note.open if not self._settled(c, note, busy, done, said)]
            note.rewrite(left)
        return said

    def _settled(
        self,
        change: Change,
        note: "_Note",
        busy: set[tuple[str, str]],
        done: dict[tuple[str, str], bool],
        said: list[str],
    ) -> bool:
        """Put one change of a dead writer back; return whether nothing is left to be done."""
        if change.key in done:  # the eldest entry has the value before all of them
            return done[change.key]
        done[change.key] = False
        if change.key in busy:
            said.append(f"{change}: put back later, as another run is at work there")
            return False
        try:
            self._put(change)
        except NotPresent:
            said.append(f"{change}: put back when the GPU is here again")
        except DeviceError as error:
            said.append(f"{change}: not put back: {error}")
        else:
            done[change.key] = True
            who = f"a run that was killed (pid {note.writer.pid}) had left it changed"
            said.append(f"{change} is put back: {who}")
        return done[change.key]


@dataclass(slots=True)
class _Note:
    """One file of the journal: what it says, and what of it could not be read."""

    path: Path
    writer: Writer
    lines: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    at: float = 0.0
    held: bool = False

    @property
    def alive(self) -> bool:
        """Whether its writer runs, be it in a container whose processes we cannot see."""
        return self.held or self.writer.alive

    @property
    def open(self) -> list[Change]:
        """What is not put back."""
        return [_change(line) for line in self.lines.values()]

    def rewrite(self, left: list[Change]) -> None:
        """Keep only what is left; without anything left the file goes."""
        if not left:
            self.path.unlink(missing_ok=True)
            return
        if len(left) == len(self.lines) and not self.problems:
            return
        fresh = self.path.with_suffix(".new")
        kept = [self.lines[change.key] for change in left]
        with fresh.open("wb") as file:
            file.writelines(json.dumps(line).encode() + b"\n" for line in kept)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        _sync_folder(self.path.parent)


def _change(line: Mapping[str, Any]) -> Change:
    return Change(line["uuid"], line["setting"], line["was"])


def _read(path: Path) -> _Note:
    """Read one file; what is no line of ours is said, and a copy set aside if its writer died."""
    pid, begun, *_ = [*path.stem.split("-"), ""]
    number = int(pid) if pid.isdecimal() and len(pid) < len("99999999999") else 0
    at = int(begun) if begun.isascii() and begun.isdecimal() else 0
    note = _Note(path, Writer(number, at))
    with path.open("rb") as file:
        note.held = _is_held(file)
        raw = file.read()
    wrong = [n for n, text in enumerate(raw.split(b"\n"), 1) if text and not _take(note, text)]
    if wrong and not note.alive:
        aside = path.with_suffix(BROKEN)
        aside.write_bytes(raw)
        where = ", ".join(map(str, wrong[:5]))
        note.problems.append(f"{path}: line {where} cannot be read; set aside as {aside.name}")
    return note


def _take(note: _Note, text: bytes) -> bool:
    """Take one line over; return whether it is one of ours."""
    try:
        line = json.loads(text)
        if list(line) == ["restored"]:
            uuid, setting = line["restored"]
            note.lines.pop((uuid, setting), None)
            return True
        change, writer, at = _change(line), Writer(line["pid"], line["started"]), line["at"]
        good = all(isinstance(word, str) for word in change.key)
        good = good and all(type(n) is int for n in (writer.pid, writer.started))
        if not good or not math.isfinite(at) or not math.isfinite(change.was) or change.was < 0:
            return False
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return False
    note.writer, note.at = writer, note.at or at
    note.lines.setdefault(change.key, line)
    return True


def _is_held(file: BinaryIO) -> bool:
    """Say whether somebody holds the lock of a file."""
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # a file system without locks
        return False
    return False


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: two starts at once put nothing back twice."""
    with (folder / LOCK).open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
