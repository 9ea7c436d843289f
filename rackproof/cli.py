"""The threshold: loads the verbs and runs them. Ctrl-C is one line from the first moment on.

In: the command line. Out: the exit code of the verb, 130 where loading itself was interrupted.
"""

import sys

NAMED = '{"schema": "rackproof.error/1", "error": "interrupted"}\n'


def main() -> None:
    """Run the command line; ends the process with its exit code."""
    try:
        from rackproof import verbs  # noqa: PLC0415 - what it loads takes a moment
    except KeyboardInterrupt:
        typed = sys.argv[1:]
        sys.stderr.write("rackproof: interrupted\n")
        if "--json" in typed[: typed.index("--") if "--" in typed else None]:
            sys.stdout.write(NAMED)
        sys.exit(130)
    verbs.main()


if __name__ == "__main__":
    main()
