"""A command under its keeper, as the drill sees it: start, exit code, an end that leaves nobody.

Comes in: words, environment, where its output goes. Goes out: the exit code when there is one, and
after `end` the pids that had to be ended because the command left them behind.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rackproof.harness.errors import DrillError
from rackproof.harness.launch import keeper, processes

START = 60.0  # seconds in which the keeper must have started the command
LOOK = 0.2  # seconds between two looks at whether the keeper is stopped
LOST = -signal.SIGKILL  # what a command is taken to have ended with when its keeper was killed

_adopting = threading.Lock()
_adopters = 0
_before = False


def _adopt(*, more: bool) -> None:
    """Have orphans whose keeper was killed come to us, while there is any keeper."""
    global _adopters, _before  # noqa: PLW0603 - it is a property of the process
    with _adopting:
        if more and not _adopters:
            _before = processes.is_subreaper()
            processes.control(processes.SUBREAPER, 1)
        _adopters += 1 if more else -1
        if not _adopters and not _before:
            processes.control(processes.SUBREAPER, 0)


class Kept:
    """One start of a training command. `code` is None while it runs; negative: a signal."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        """Start it; DrillError where that cannot be, and then nothing was started."""
        self.code: int | None = None
        self._mark = os.fsencode(f"RP_EVENTS={environment.get('RP_EVENTS', '')}")
        self._ended = self._alone = False
        self._told: dict[str, Any] = {}
        _adopt(more=True)
        try:
            self._socket, self._keeper = self._launch(command, environment, log)
        except (OSError, ValueError) as error:  # ValueError: a zero byte in a word
            _adopt(more=False)
            msg = f"cannot start {command[0]}: {getattr(error, 'strerror', None) or error}"
            raise DrillError(msg) from error
        self._hear_awake(START, "started", "failed")
        if "started" not in self._told:
            why = self._told.get("failed", "its keeper was ended before it could tell")
            self._close()
            msg = f"cannot start {command[0]}: {why}"
            raise DrillError(msg)
        self.process = processes.look(int(self._told["started"]))

    @staticmethod
    def _launch(
        command: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> "tuple[socket.socket, subprocess.Popen[bytes]]":
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with log.open("ab") as output, theirs:
                child = subprocess.Popen(  # noqa: S603 - our own keeper
                    [sys.executable, "-P", "-m", keeper.__name__, str(theirs.fileno()), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
        except BaseException:
            ours.close()
            raise
        return ours, child

    @property
    def root(self) -> int:
        """The pid of the keeper, from which all of the command descends."""
        return self._keeper.pid

    def fileno(self) -> int:
        """Return what becomes readable when there is news."""
        return self._socket.fileno()

    def poll(self) -> int | None:
        """Return the command's exit code, None while it runs."""
        if self.code is None and not self._ended:
            self._wake()
            self._hear(0.0, "exited")
        return self.code

    def await_code(self, seconds: float) -> int | None:
        """Wait until the command has ended; return its exit code, None after `seconds`."""
        if self.code is None and not self._ended:
            self._hear_awake(seconds, "exited")
        return self.code

    def _wake(self) -> None:
        """Have the keeper go on, where a command has stopped it."""
        seen = processes.look(self.root)
        if seen is not None and seen.state == "T":
            self._keeper.send_signal(signal.SIGCONT)

    def _hear_awake(self, seconds: float, *awaited: str) -> None:
        """As `_hear`, and see to it that the keeper is not stopped meanwhile."""
        deadline = time.monotonic() + seconds
        while not self._alone and not any(word in self._told for word in awaited):
            left = deadline - time.monotonic()
            if left <= 0:
                return
            self._wake()
            self._hear(min(left, LOOK), *awaited)

    def _hear(self, seconds: float, *awaited: str) -> None:
        """Take in what the keeper says, until one of `awaited` or for `seconds` each."""
        self._socket.settimeout(seconds)
        while not any(word in self._told for word in awaited):
            try:
                message = self._socket.recv(keeper.LONGEST)
            except (TimeoutError, BlockingIOError):
                return
            except OSError:
                message = b""
            if not message:  # somebody killed the keeper
                self._alone = True
                self.code = LOST if self.code is None else self.code
                return
            self._told.update(json.loads(message))
            self.code = self._told.get("exited", self.code)

    def end(self, grace: float, settle: float = 0.0) -> list[int]:
        """End all of it; return the pids that outlived the command by `settle` seconds.

        SIGTERM to the command's process group, `grace` seconds, SIGKILL to whatever descends from
        it. DrillError where a process does not even go then (a driver that hangs).
        """
        if self._ended:
            return []
        self._wake()
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps({"end": grace, "settle": settle}).encode())
        self._hear_awake(2 * grace + settle + START, "ended")
        self._close()
        stayed = self._told.get("stayed", [])
        if stayed:
            msg = f"processes of the training command that SIGKILL does not end: {stayed}"
            raise DrillError(msg)
        return [int(pid) for pid in self._told.get("ended", [])]

    def _close(self) -> None:
        """Have the keeper go, which kills what is left, and sweep what outlived it."""
        self._ended = True
        self._socket.close()
        deadline = time.monotonic() + START
        while self._keeper.poll() is None:
            self._wake()
            if time.monotonic() > deadline:
                self._keeper.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._keeper.wait(LOOK)
        if self._keeper.returncode != 0:
            self._sweep()
        _adopt(more=False)

    def _sweep(self) -> None:
        """End what the command left when its keeper was killed: it is ours by adoption, marked."""
        while found := list(processes.marked(os.getpid(), self._mark)):
            for process in found:
                processes.send(process, signal.SIGKILL)
            for process in found:
                if not processes.gone(process, 10.0):
                    return
                if process.parent == os.getpid():
                    with contextlib.suppress(ChildProcessError):
                        os.waitpid(process.pid, os.WNOHANG)
