"""The controller of a rack's power as a process of its own, and the handle by which it is held.

``python -m rackproof.harness.power.keeper PARENT`` takes one JSON request a line and gives one
answer a line: begin, tick, limit, contract, status, stop. However it ends, but by SIGKILL, it first
puts every limit back: told to stop, by SIGTERM, SIGINT or SIGHUP, or because its parent is gone,
which it sees by the end of its input and by its parent's pid. After SIGKILL the next one does
that, from what was written down before each change.
"""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from typing import IO, Any, Self

from rackproof.harness.errors import DrillError
from rackproof.harness.launch import processes
from rackproof.harness.power.answers import Stopped, Ticked, ticked
from rackproof.harness.power.assignment import Assignment
from rackproof.harness.power.controller import NONSENSE, Controller, Make
from rackproof.harness.power.dimmer import Dimmer
from rackproof.harness.power.lines import Channel, EndedError, Object, packed, parsed
from rackproof.harness.power.zone import Bounds, Meters

MODULE = "rackproof.harness.power.keeper"
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
ENDS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
LOOK_S = 0.5
"""Between two looks at whether the parent is still there."""
BEGIN_S, TICK_S, STOP_S = 30.0, 10.0, 30.0
"""The longest that answers may take: a start loads modules, a stop writes 72 limits."""
TAKE_S = 5.0
SAID = 2000  # bytes of a dead controller's last words


class Keeper:
    """A running controller. A context manager, at whose end it is stopped."""

    def __init__(self, child: "subprocess.Popen[bytes]", log: IO[bytes]) -> None:
        """Take over a child that speaks our lines; see `start`."""
        assert child.stdin is not None  # noqa: S101 - both were asked for
        assert child.stdout is not None  # noqa: S101
        self._child, self._log = child, log
        self._channel = Channel(child.stdout.fileno(), child.stdin.fileno())
        self._number = 0
        self._last = ""
        self.said: tuple[str, ...] = ()
        """What it had to say when it began: what killed controllers had left."""

    @classmethod
    def start(cls, assignment: Assignment, *, within: float = BEGIN_S) -> "Keeper":
        """Start the controller of one rack.

        Raises DrillError, with no limit changed, where it cannot be: another one has the rack, it
        cannot be reached, or what is asked for makes no sense.
        """
        keeper = cls(*_spawned())
        try:
            answer = keeper._ask("begin", within, assignment=assignment.to_json())
            keeper.said = tuple(map(str, answer["said"]))
        except BaseException:
            keeper.close()
            raise
        return keeper

    # --- requests -------------------------------------------------------------------------------
    def tick(self, at: float, meters: Meters | None = None, *, within: float = TICK_S) -> Ticked:
        """Have it look, decide and act at the moment `at`; None: nobody meters the feeds.

        Raises DrillError where it is dead, answers nothing in time, or cannot decide.
        """
        answer = self._ask("tick", within, at=at, meters=None if meters is None else _told(meters))
        try:
            return ticked(answer)
        except NONSENSE as error:
            msg = f"the controller of power answers a tick with nonsense: {error!r}"
            raise DrillError(msg) from error

    def limit(self, feed: str, watts: float | None, *, at: float, why: str = "") -> None:
        """Tell it that a feed's limit is another one now; None: as its equipment says."""
        self._ask("limit", TICK_S, feed=feed, watts=watts, at=at, why=why)

    def contract(self, feed: str, watts: float | None, *, at: float) -> None:
        """Tell it what an upper controller grants a feed; None: no contract."""
        self._ask("contract", TICK_S, feed=feed, watts=watts, at=at)

    def status(self) -> Object:
        """Return its pid, how many limits are changed now, and how often it ticked."""
        return self._ask("status", TICK_S)

    def stop(self, *, within: float = STOP_S) -> Stopped:
        """Have it put everything back, and end it."""
        answer = self._ask("stop", within, strict=False)
        self.close()
        return Stopped(int(answer.get("restored", 0)), str(answer.get("problem", "")))

    def _ask(self, do: str, within: float, *, strict: bool = True, **more: Any) -> Object:
        self._number += 1
        deadline = time.monotonic() + within
        try:
            self._channel.send({"do": do, "number": self._number, **more}, within)
            while True:
                line = self._channel.receive(max(0.0, deadline - time.monotonic()))
                if line is None:
                    msg = f"the controller of power (pid {self.pid}) does not answer {do} within "
                    msg += f"{within:g} s"
                    raise DrillError(msg)
                answer = parsed(line)
                if answer.get("number") == self._number:  # else it is of an earlier, late request
                    break
        except EndedError as error:
            raise self._dead() from error
        except ValueError as error:
            msg = f"what is asked of the controller of power, or its answer, is no JSON: {error}"
            raise DrillError(msg) from error
        self._last = str(answer.get("problem", self._last))
        if strict and "problem" in answer:
            raise DrillError(self._last)
        return answer

    # --- the process ----------------------------------------------------------------------------
    @property
    def pid(self) -> int:
        """Its process."""
        return self._child.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._child.poll() is None

    @property
    def code(self) -> int | None:
        """With what it ended (below 0: a signal); None while it runs."""
        return self._child.poll()

    def kill(self) -> None:
        """SIGKILL it, as a drill does: it puts nothing back."""
        self._child.kill()
        self._child.wait()

    def close(self, within: float = STOP_S) -> None:
        """End its input, so that it puts everything back and goes; more calls do nothing.

        One that is stopped is let go on for it; one that does not go in time is killed.
        """
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._child.send_signal(signal.SIGCONT)
        try:
            self._child.wait(within)
        except subprocess.TimeoutExpired:
            self.kill()
        self._last = self._last or self._words()
        self._log.close()

    def _words(self) -> str:
        """Return the last that it wrote to its standard error."""
        if self._log.closed:
            return self._last
        size = os.fstat(self._log.fileno()).st_size
        text = os.pread(self._log.fileno(), SAID, max(0, size - SAID))
        return text.decode("utf-8", "replace").strip()

    def _dead(self) -> DrillError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(TAKE_S)
        code = self._child.poll()
        how = "hung up" if code is None else f"ended with {code}"
        if code is not None and code < 0:
            how = f"was ended by {signal.Signals(-code).name}"
        last = self._words() or self._last or "nothing"
        return DrillError(f"the controller of power (pid {self.pid}) {how}; it last said: {last}")

    def __enter__(self) -> Self:
        """Hold it."""
        return self

    def __exit__(self, *_: object) -> None:
        """End it."""
        self.close()


def recover(assignment: Assignment) -> tuple[str, ...]:
    """Put back what a killed controller of this rack left changed; return what there is to say.

    At once: whoever has to let go slowly starts a controller that adopts. Raises DrillError where a
    controller runs, or a limit cannot be put back.
    """
    with Keeper.start(replace(assignment, adopt=False)) as keeper:
        stopped = keeper.stop()
        if stopped.problem:
            raise DrillError(stopped.problem)
        return keeper.said


def _told(meters: Meters) -> Object:
    numbers = {
        name: packed(getattr(meters, name)) for name in ("feed", "strain", "trip_in", "limit")
    }
    return {**numbers, "ac": meters.ac.tolist()}


def _spawned() -> "tuple[subprocess.Popen[bytes], IO[bytes]]":
    log = tempfile.TemporaryFile()  # noqa: SIM115 - the keeper closes it
    try:
        child = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", MODULE, str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**os.environ, **dict.fromkeys(THREADS, "1")},
            start_new_session=True,
        )
    except OSError as error:
        log.close()
        msg = f"the controller of power cannot be started ({error.strerror})"
        raise DrillError(msg) from error
    return child, log


# --- the process itself --------------------------------------------------------------------------
class _Ending:
    """Remembers the signal that asks us to end, and wakes who waits."""

    def __init__(self) -> None:
        self.number = 0
        self.woken, writing = os.pipe()
        for end in (self.woken, writing):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        for number in ENDS:
            signal.signal(number, self._ask)

    def _ask(self, number: int, frame: object) -> None:
        del frame
        self.number = number


def serve(parent: int, make: Make) -> int:
    """Answer the requests on our standard input until we are to end; return the exit code."""
    ending = _Ending()
    processes.control(processes.PARENT_DEATH, signal.SIGCONT)  # we may have been stopped
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever else is printed is no answer
    channel = Channel(0, answers, ending.woken)
    controller = Controller(make)
    done: Object = {}
    try:
        while not ending.number and os.getppid() == parent:
            line = channel.receive(LOOK_S)
            if line is not None:
                channel.send(controller.answer(line), TAKE_S)
    except EndedError:
        pass
    finally:
        done = controller.end()
    if "problem" in done:
        sys.stderr.write(f"{done['problem']}\n")
        return 3
    return 128 + ending.number if ending.number else 0


def dimmer(assignment: Assignment, bounds: Bounds) -> Dimmer:
    """Make the Dimmer of an assignment."""
    return Dimmer(assignment.layout, bounds, assignment.jobs, assignment.settings, assignment.seed)


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1]), dimmer))
