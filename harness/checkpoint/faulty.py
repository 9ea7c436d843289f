"""Storage that breaks when it is told to: full, slow, lost or torn. For drills and tests.

In: an order: which tier it strikes (`Tier.url`), and when. Out: what the real thing does: ENOSPC,
time that goes by, EIO, or a machine that dies with what was not synced dropped; `fired` counts how
often it struck.
"""

import errno
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from rackproof.harness.checkpoint.files import Files
from rackproof.harness.errors import DrillError

KINDS = ("", "full", "slow", "lost", "torn")


@dataclass(frozen=True, slots=True)
class Order:
    """What is to break: `under` a path or URL; `after` that many more operations; `seconds` each.

    full: nothing can be made or written · slow: every operation takes `seconds` more · lost:
    every operation fails · torn: the process dies (SIGKILL) at the operation, and what it had not
    synced is dropped: bytes of files, and names that were given.
    """

    kind: str = ""
    under: str = "/"
    after: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Raise DrillError for a kind that there is not."""
        if self.kind not in KINDS:
            msg = f"storage cannot be {self.kind!r}: one of {', '.join(KINDS[1:])}"
            raise DrillError(msg)


@dataclass(slots=True)
class _Unsynced:
    """What a machine that dies would forget."""

    files: dict[int, Path] = field(default_factory=dict)
    renames: list[tuple[Path, Path]] = field(default_factory=list)


class Faulty(Files):
    """Files under an Order; with an empty one they are as good as any. Safe between threads."""

    def __init__(self) -> None:
        self.fired = 0
        self._order = Order()
        self._left = 0
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._unsynced = _Unsynced()

    def obey(self, order: Order) -> None:
        """Break in this way from now on; an empty Order mends it, and wakes what sleeps."""
        with self._lock:
            self._over.set()
            self._over = threading.Event()
            self._order, self._left = order, order.after

    def mkdir(self, path: Path) -> None:
        """Make one directory."""
        self._strike(str(path), makes=True)
        super().mkdir(path)

    def create(self, path: Path) -> int:
        """Make a file."""
        self._strike(str(path), makes=True)
        descriptor = super().create(path)
        self._unsynced.files[descriptor] = path
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> None:
        """Append all of `data`."""
        self._strike(self._path(descriptor), makes=True)
        super().write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        """Have a file on disk."""
        self._strike(self._path(descriptor))
        super().fsync(descriptor)
        self._unsynced.files.pop(descriptor, None)

    def close(self, descriptor: int) -> None:
        """Close a file, whatever is broken."""
        self._unsynced.files.pop(descriptor, None)
        super().close(descriptor)

    def rename(self, old: Path, new: Path) -> None:
        """Give another name."""
        self._strike(str(old))
        super().rename(old, new)
        self._unsynced.renames.append((old, new))

    def fsync_dir(self, path: Path) -> None:
        """Have names on disk."""
        self._strike(str(path))
        super().fsync_dir(path)
        kept = [(old, new) for old, new in self._unsynced.renames if new.parent != path]
        self._unsynced.renames = kept

    def unlink(self, path: Path) -> None:
        """Remove a file; a full disk lets one do that."""
        self._strike(str(path))
        super().unlink(path)

    def rmdir(self, path: Path) -> None:
        """Remove a directory."""
        self._strike(str(path))
        super().rmdir(path)

    def put(self, address: str, send: Callable[[], None]) -> None:
        """Put or remove an object."""
        self._strike(address, makes=True)
        super().put(address, send)

    def _path(self, descriptor: int) -> str:
        return str(self._unsynced.files.get(descriptor, ""))

    def _strike(self, where: str, *, makes: bool = False) -> None:
        """Do what the order says to an operation on `where`."""
        with self._lock:
            order, over = self._order, self._over
            inside = f"{where.rstrip('/')}/".startswith(f"{order.under.rstrip('/')}/")
            if not order.kind or not inside or (order.kind == "full" and not makes):
                return
            if self._left > 0:
                self._left -= 1
                return
            self.fired += 1
        if order.kind == "slow":
            over.wait(order.seconds)
        elif order.kind == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), where)
        elif order.kind == "lost":
            raise OSError(errno.EIO, os.strerror(errno.EIO), where)
        else:
            self._die()

    def _die(self) -> None:
        """Forget what was not synced, and end as a machine does that loses its power."""
        for old, new in reversed(self._unsynced.renames):
            new.rename(old)
        for path in self._unsynced.files.values():
            if path.exists():
                os.truncate(path, path.stat().st_size // 2)
        os.kill(os.getpid(), signal.SIGKILL)
