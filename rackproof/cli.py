"""The threshold: loads the verbs and runs them. A signal is one line from the first moment on.

In: the command line. Out: the exit code of the verb; 130, 143 or 129 where Ctrl-C, SIGTERM or
SIGHUP came before a verb had its own way to end.
"""

import signal
import sys

from rackproof.fixtures.signals import interrupt

NAMED = '{"schema": "rackproof.error/1", "error": "interrupted"}\n'


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_DFL:  # nohup has it ignored, and it stays so
            signal.signal(number, interrupt)
    try:
        from rackproof import verbs  # noqa: PLC0415 - what it loads takes a moment
    except KeyboardInterrupt as stop:
        typed = sys.argv[1:]
        sys.stderr.write("rackproof: interrupted\n")
        if "--json" in typed[: typed.index("--") if "--" in typed else None]:
            sys.stdout.write(NAMED)
        sys.exit(128 + getattr(stop, "number", signal.SIGINT))
    verbs.main()


if __name__ == "__main__":
    main()
