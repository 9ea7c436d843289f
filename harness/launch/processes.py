"""Processes as Linux shows them, each known by its pid and its start: a pid alone may be reused.

In: /proc. Out: who descends from whom, who is alive, and signals that hit nobody else: a pidfd is
opened, the start time compared, and only then the signal sent through it.
"""

import ctypes
import os
import select
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

DEEPEST = 512  # generations that are walked up from a process; a chain is rarely ten long
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER, linux/prctl.h
ASK_SUBREAPER = 37  # PR_GET_CHILD_SUBREAPER
PARENT_DEATH = 1  # PR_SET_PDEATHSIG


@dataclass(frozen=True, slots=True)
class Process:
    """One process; `started` and `cpu` in clock ticks, proc_pid_stat(5).

    `cpu` is user and system time of its own, `waited` of the children that it has waited for.
    Two looks at one process are equal, whatever it did in between.
    """

    pid: int
    parent: int = field(compare=False)
    group: int = field(compare=False)
    session: int = field(compare=False)
    state: str = field(compare=False)
    started: int
    cpu: int = field(compare=False)
    waited: int = field(compare=False)
    threads: int = field(compare=False)

    @property
    def alive(self) -> bool:
        """Whether it runs: a zombie does not, unless threads outlive the first one."""
        return self.state not in "ZX" or self.threads > 1


def look(pid: int) -> Process | None:
    """Return the process that has this pid now, or None."""
    try:
        with open(f"/proc/{pid:d}/stat", "rb") as file:  # noqa: PTH123 - ten times a second
            words = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError, OverflowError):
        return None
    try:
        parent, group, session = (int(word) for word in words[1:4])
        own, waited = (sum(int(word) for word in words[at : at + 2]) for at in (11, 13))
        times = (int(words[19]), own, waited)
        return Process(pid, parent, group, session, words[0].decode(), *times, int(words[17]))
    except (IndexError, ValueError):
        return None


def table() -> dict[int, Process]:
    """Return all processes by pid."""
    with os.scandir("/proc") as entries:
        pids = [int(entry.name) for entry in entries if entry.name.isdecimal()]
    seen = (look(pid) for pid in pids)
    return {process.pid: process for process in seen if process is not None}


def descendants(root: int) -> list[Process]:
    """Return who lives and descends from `root`, the nearest first; not `root` itself."""
    children: dict[int, list[Process]] = {}
    for process in table().values():
        children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    row = [root]
    while row:
        below = [child for pid in row for child in children.pop(pid, ())]
        found += below
        row = [child.pid for child in below]
    return [process for process in found if process.alive]


def descends(pid: int, root: int) -> bool:
    """Return whether the process `pid` descends from `root`."""
    for _ in range(DEEPEST):
        process = look(pid)
        if process is None or process.parent <= 1:
            return False
        if process.parent == root:
            return True
        pid = process.parent
    return False


def still(process: Process) -> bool:
    """Return whether this very process, and not another one with its pid, is alive."""
    now = look(process.pid)
    return now is not None and now.started == process.started and now.alive


def effort(process: Process) -> float:
    """Return the seconds of CPU time that a process and those it has waited for have used.

    From schedstat where there is one: clock ticks are sampled, and miss what works in small bits.
    """
    tick = 1 / os.sysconf("SC_CLK_TCK")
    try:
        with open(f"/proc/{process.pid:d}/schedstat", "rb") as file:  # noqa: PTH123
            own = int(file.read().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        own = 0.0
    return max(own, process.cpu * tick) + process.waited * tick


def send(process: Process, number: int) -> bool:
    """Send a signal to this very process; False where it is gone, or is not ours to signal."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:  # a kernel before 5.3: there a small gap stays between the look and the signal
        return _send_by_number(process, number)
    try:
        if not still(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def _send_by_number(process: Process, number: int) -> bool:
    if not still(process):
        return False
    try:
        os.kill(process.pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def gone(process: Process, within: float) -> bool:
    """Wait until this very process is dead; False where it still lives after `within` s."""
    deadline = time.monotonic() + within
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return not still(process)
    try:
        while still(process):
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            # Readable once all its threads are gone; looked at again, as the pid may be another's.
            select.select([descriptor], [], [], min(left, 0.1))
    finally:
        os.close(descriptor)
    return True


def in_state(process: Process, states: str, within: float) -> bool:
    """Wait until the process is in one of `states` (letters of proc_pid_stat); False if not."""
    deadline = time.monotonic() + within
    pause = select.poll()
    while True:
        now = look(process.pid)
        if now is None or now.started != process.started:
            return False
        if now.state in states:
            return True
        if time.monotonic() >= deadline:
            return False
        pause.poll(2)


def marked(root: int, mark: bytes) -> Iterator[Process]:
    """Yield who descends from `root` and was started with ``NAME=VALUE`` in its environment."""
    for process in descendants(root):
        try:
            with open(f"/proc/{process.pid:d}/environ", "rb") as file:  # noqa: PTH123
                words = file.read().split(b"\0")
        except OSError:
            continue
        if mark in words:
            yield process


def stop_and_kill(root: int, within: float = 10.0) -> list[Process]:
    """SIGKILL all that descends from `root`; return who is still there after `within` s.

    All are stopped first, until a look finds nobody new: what is stopped forks no more.
    """
    deadline = time.monotonic() + within
    while (living := descendants(root)) and time.monotonic() < deadline:
        stopped: set[tuple[int, int]] = set()
        while fresh := [p for p in living if (p.pid, p.started) not in stopped]:
            for process in fresh:
                send(process, signal.SIGSTOP)
                stopped.add((process.pid, process.started))
            living = descendants(root)
        for process in living:
            send(process, signal.SIGKILL)
        for process in living:
            gone(process, max(0.0, min(1.0, deadline - time.monotonic())))
    return living


def control(option: int, value: int) -> bool:
    """Call prctl(2); False where this system has none."""
    try:
        return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def mortal(parent: int | None = None) -> None:
    """Die with the thread that started us, also while we are stopped, and of SIGINT as of others.

    `parent` is the pid of its process: where it was gone before we came here, we are not needed.
    Of SIGINT Python would end with an exit code of its own; a signal says that somebody sent it.
    """
    control(PARENT_DEATH, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        os._exit(5)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def is_subreaper() -> bool:
    """Return whether orphans below this process become its children."""
    found = ctypes.c_int(0)
    try:
        ctypes.CDLL(None).prctl(ASK_SUBREAPER, ctypes.byref(found), 0, 0, 0)
    except (OSError, AttributeError):
        return False
    return bool(found.value)
