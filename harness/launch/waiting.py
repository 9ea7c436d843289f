"""Waiting for a job: for a step, for a happening, for its end, as long as somebody still works.

In: what a job of ours heard (`happenings`) and its newest step, which another thread keeps under
`_news`. Out: the waits of the Job protocol. What a job cannot be told is refused in one sentence.
"""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening


class Waiting:
    """A job whose happenings come in on a thread of its own."""

    folder: Path
    happenings: list[Happening]
    _step: int
    _news: threading.Condition

    def _gone(self) -> str:
        """Return why nothing more will come, or an empty text."""
        raise NotImplementedError

    def committed(self) -> int:
        """Return the newest committed step, 0 before the first."""
        with self._news:
            return self._step

    def reach(self, step: int, within: float = 60.0) -> None:
        """Wait until `step` is committed; DrillError where the run stands still for so long."""
        self._wait(lambda: self._step >= step, within, f"step {step}")

    def until(self, what: Callable[[Happening], bool], within: float = 60.0) -> Happening | None:
        """Wait for a happening, those that were included; None when it does not come in time."""
        looked, end = 0, time.monotonic() + within
        with self._news:
            while True:
                while looked < len(self.happenings):
                    looked += 1
                    if what(self.happenings[looked - 1]):
                        return self.happenings[looked - 1]
                left = end - time.monotonic()
                if left <= 0 or self._gone():
                    return None
                self._news.wait(left)

    def _wait(self, done: Callable[[], bool], patience: float, goal: str) -> None:
        last, since = self._step, time.monotonic()
        with self._news:
            while not done():
                if self._step != last:
                    last, since = self._step, time.monotonic()
                gone = self._gone()
                if gone or time.monotonic() - since > patience:
                    why, logs = gone or "no step is committed", self.folder / "logs"
                    msg = f"the run did not reach {goal}: after step {last} {why}; see {logs}"
                    raise DrillError(msg)
                self._news.wait(0.5)


class NoOrders:
    """A job of which only processes can be hit: orders, links and gates are layer A's."""

    def order(self, member: str, what: str, **_how: Any) -> None:
        """Raise DrillError: its processes take no orders."""
        msg = f"{what!r} for {member}: only the reference training run (layer A) takes orders"
        raise DrillError(msg)

    def link(self, member: str, *, delay: float = 0.0, cut: bool = False) -> None:
        """Raise DrillError: the ways between its processes are its own."""
        what = "cut" if cut else f"delayed by {delay:g} s"
        msg = f"the link of {member} cannot be {what}: only in the reference training run (layer A)"
        raise DrillError(msg)

    def gate(self, step: int | None) -> None:
        """Raise DrillError where there is a step to hold at: it goes at its own pace."""
        if step is not None:
            msg = f"nothing holds this run at step {step}: only the reference training run can be"
            raise DrillError(msg)
