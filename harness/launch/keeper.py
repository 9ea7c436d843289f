"""The keeper: a small process between a drill and a training command, which ends all of its tree.

It adopts every orphan below it (PR_SET_CHILD_SUBREAPER), so that a double fork or a setsid does not
get away, and holds one end of a socket to the drill: when the drill dies, whatever killed it, the
socket closes and the keeper kills the tree (the kernel wakes it, where it was stopped). If the
keeper itself is killed, the command gets SIGKILL from the kernel (PR_SET_PDEATHSIG), and the rest
falls to the drill.

Called as ``python -m rackproof.harness.launch.keeper FD COMMAND…``. Tells, a JSON message each:
``{"started": pid}`` or ``{"failed": why}``, ``{"exited": code}``, and at last ``{"ended": pids,
"stayed": pids}``. Is told ``{"end": grace, "settle": seconds}``. It imports the standard library
only, and judges nothing.
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from rackproof.harness.launch import processes

LONGEST = 65536  # bytes of a message
MOST = 1000  # pids that are told one by one
LOOK = 0.5  # seconds between two looks at whether the drill is still our parent


class Keeper:
    """One command, from its start until nothing of it is left."""

    def __init__(self, drill: socket.socket, command: Sequence[str]) -> None:
        """Start the command; `why` says why it could not be."""
        self.drill = drill
        self.parent = os.getppid()
        self.code: int | None = None
        self.why = ""
        self.pid = 0
        self.asked = False
        processes.control(processes.SUBREAPER, 1)
        processes.control(processes.PARENT_DEATH, signal.SIGCONT)  # a command may have stopped us
        self.woken, writing = os.pipe()
        for end in (self.woken, writing):
            os.set_blocking(end, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._ask)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        self._start(command)

    def _ask(self, *_: object) -> None:
        self.asked = True

    def _start(self, command: Sequence[str]) -> None:
        def first() -> None:
            processes.control(processes.PARENT_DEATH, signal.SIGKILL)

        try:
            child = subprocess.Popen(  # noqa: S603 - the user's own command, never through a shell
                command,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                preexec_fn=first,  # noqa: PLW1509 - there is one thread here
            )
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            self.why = getattr(error, "strerror", None) or str(error)
            return
        self.pid = child.pid
        child.returncode = 0  # it is reaped below, with the orphans

    def run(self) -> int:
        """Keep the command until we are told to end it, or the drill is gone."""
        if self.why:
            self._tell({"failed": self.why})
            return 0
        self._tell({"started": self.pid})
        while True:
            self._reap()
            order = self._hear(LOOK)
            if order is None or self.asked or os.getppid() != self.parent:
                processes.stop_and_kill(os.getpid())
                self._reap()
                return 1
            if "end" in order:
                left, stayed = self._end(float(order["end"]), float(order.get("settle", 0.0)))
                self._tell({"ended": left[:MOST], "stayed": stayed[:MOST]})
                return 0

    def _hear(self, seconds: float) -> dict[str, float] | None:
        """Return the drill's next order, an empty one after `seconds`, None when it is gone."""
        drill = self.drill.fileno()
        ready, _, _ = select.select([drill, self.woken], [], [], seconds)
        if self.woken in ready:
            os.read(self.woken, LONGEST)
        if drill not in ready:
            return {}
        try:
            message = self.drill.recv(LONGEST)
        except OSError:
            return None
        return dict(json.loads(message)) if message else None

    def _tell(self, what: dict[str, object]) -> None:
        try:
            self.drill.send(json.dumps(what).encode())
        except OSError:
            self.asked = True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid and self.code is None:
                self.code = os.waitstatus_to_exitcode(status)
                self._tell({"exited": self.code})

    def _wait(self, seconds: float, *, command_only: bool = False) -> list[int]:
        """Return the pids below us that still live after `seconds`, as soon as there are none."""
        deadline = time.monotonic() + seconds
        while True:
            self._reap()
            living = [process.pid for process in processes.descendants(os.getpid())]
            left = deadline - time.monotonic()
            if not living or left <= 0 or (command_only and self.code is not None):
                return living
            order = self._hear(min(left, 0.05))
            if order is None or self.asked:
                return living

    def _end(self, grace: float, settle: float) -> tuple[list[int], list[int]]:
        """End the command, then what it left: SIGTERM, `grace` seconds, SIGKILL.

        Returns the pids that were still there `settle` seconds after the command's end, and those
        that even SIGKILL did not remove.
        """
        if self.code is None:
            os.killpg(self.pid, signal.SIGTERM)  # not reaped, so the number is still its own
            os.killpg(self.pid, signal.SIGCONT)  # one that is stopped would never see it
            self._wait(grace, command_only=True)
        left = self._wait(settle) if self.code is not None else []
        if left:
            for process in processes.descendants(os.getpid()):
                processes.send(process, signal.SIGTERM)
                processes.send(process, signal.SIGCONT)
            self._wait(grace)
        stayed = processes.stop_and_kill(os.getpid())
        self._reap()
        return left, [process.pid for process in stayed]


def main(words: Sequence[str]) -> int:
    """Keep the command of ``FD COMMAND…``."""
    descriptor = int(words[0])
    os.set_inheritable(descriptor, False)  # noqa: FBT003 - it takes no name
    with socket.socket(fileno=descriptor) as drill:
        return Keeper(drill, words[1:]).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
