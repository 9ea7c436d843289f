"""A signal that ends us lets a burn put back what it changed first.

In: SIGTERM or SIGHUP while a burn changes settings. Out: the same end as without us, a little
later: the burn is interrupted as by Ctrl-C, puts back what was there, and then the signal does what
it would have done.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

STOPS = (signal.SIGTERM, signal.SIGHUP)


class StoppedError(KeyboardInterrupt):
    """A signal asked us to end; nothing that handles errors takes it for one."""


@contextmanager
def orderly(wanted: bool) -> Iterator[None]:  # noqa: FBT001 - reads as the sentence that it is
    """Hold back signals that would end us, until what runs inside has been interrupted.

    Does nothing where it is not `wanted`, or off the main thread, which alone gets signals.
    """
    if not wanted or threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def stop(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        if len(came) == 1:  # one is enough; a second must not break what puts things back
            raise StoppedError

    old: dict[int, Any] = {}
    for each in STOPS:
        if signal.getsignal(each) not in (signal.SIG_IGN, None):
            old[each] = signal.signal(each, stop)
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
        if came:
            os.kill(os.getpid(), came[0])
