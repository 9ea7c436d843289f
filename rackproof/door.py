"""The door: turns what a verb raises into one line and an exit code, and says JSON.

Exit codes: 0 PASS, 1 FAIL, 2 usage, 3 UNKNOWN; 130, 143 and 129 interrupted. With --json one object
goes to stdout and everything else to stderr; a person's mistake gets one line, and no traceback.
"""

import json
import signal
import sys
from typing import Any, TextIO, cast

import click

from rackproof.harness.errors import DeviceError, RackproofError
from rackproof.options import Verb, typed_before_command
from rackproof.reports.outlet import Outlet

USAGE, UNKNOWN = 2, 3


class Stopped(click.Abort):
    """A verb was interrupted by the signal `number`."""

    def __init__(self, number: int) -> None:
        """Keep the number."""
        super().__init__()
        self.number = number


class Door(click.Group):
    """The command group: turns our errors into one line and an exit code."""

    command_class = Verb

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run, and end with the exit code; output that nobody takes does not change it."""
        outlet = Outlet(sys.stdout)
        sys.stdout = cast("TextIO", outlet)
        code = self._code(*args, **{**extra, "standalone_mode": False})
        if outlet.trouble:
            click.echo(f"rackproof: {outlet.trouble}: the answer was not delivered", err=True)
            code = code or UNKNOWN
        sys.exit(code)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; an interruption keeps its number, and costs no empty line."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            raise Stopped(getattr(stop, "number", signal.SIGINT)) from stop

    def _code(self, *args: Any, **extra: Any) -> int:
        as_json = "--json" in typed_before_command()
        try:
            code = super().main(*args, **extra)
        except click.exceptions.Exit as stop:
            return stop.exit_code
        except (click.Abort, KeyboardInterrupt) as stop:
            _complain("interrupted", as_json=as_json)
            return 128 + int(getattr(stop, "number", signal.SIGINT))
        except click.ClickException as error:
            _complain(error.format_message(), as_json=as_json)
            return USAGE
        except DeviceError as error:
            _complain(str(error), as_json=as_json, verdict="UNKNOWN")
            return UNKNOWN
        except RackproofError as error:
            _complain(str(error), as_json=as_json)
            return USAGE
        return code if isinstance(code, int) else 0


def _complain(message: str, *, as_json: bool, verdict: str | None = None) -> None:
    prefix = f"{verdict}: " if verdict else ""
    click.echo(f"rackproof: {prefix}{message}", err=True)
    if as_json:
        body = {"schema": "rackproof.error/1", "error": message}
        click.echo(json.dumps({**body, "verdict": verdict} if verdict else body))


def speak(body: dict[str, Any]) -> None:
    """Write one JSON object to stdout."""
    click.echo(json.dumps(body, indent=1, ensure_ascii=True))
