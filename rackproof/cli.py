"""The threshold: loads the verbs and runs them. A signal is one line from the first moment on.

In: the command line. Out: the exit code of the verb; 130, 143 or 129 where Ctrl-C, SIGTERM or
SIGHUP came before a verb had its own way to end.
"""

import signal
import sys
from types import FrameType

NAMED = '{"schema": "rackproof.error/1", "error": "interrupted"}\n'


class Interrupted(KeyboardInterrupt):
    """A signal that ends us as Ctrl-C does; `number` says which."""

    number: int = signal.SIGINT


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup has it ignored, and it stays so
            signal.signal(number, _stop)
    try:
        from rackproof import verbs  # noqa: PLC0415 - what it loads takes a moment
    except KeyboardInterrupt as stop:
        typed = sys.argv[1:]
        sys.stderr.write("rackproof: interrupted\n")
        if "--json" in typed[: typed.index("--") if "--" in typed else None]:
            sys.stdout.write(NAMED)
        sys.exit(128 + getattr(stop, "number", signal.SIGINT))
    verbs.main()


def _stop(number: int, _frame: FrameType | None) -> None:
    """End as Ctrl-C does, with another number; a second one ends us at once."""
    signal.signal(number, signal.SIG_DFL)
    interrupted = Interrupted()
    interrupted.number = number
    raise interrupted


if __name__ == "__main__":
    main()
