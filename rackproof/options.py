"""The options that several verbs share, and how words are read. In: typed text. Out: values."""

import errno
import functools
import os
import sys
from collections.abc import Callable
from typing import Any

import click

LONGEST = 80  # characters of a name that are shown of one that is too long


def typed_before_command() -> list[str]:
    """Return the words of the command line that are ours: those before a ``--``."""
    typed = sys.argv[1:]
    return typed[: typed.index("--")] if "--" in typed else typed


def commas(_: click.Context, option: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of options that take several, with commas between or given again."""
    found = tuple(part.strip() for value in values for part in value.split(",") if part.strip())
    if values and not found:
        msg = f"{option.opts[0]}: names nothing; write names, or leave it out"
        raise click.UsageError(msg)
    return found


PLACES = frozenset("rack out paths run runs old new limits alluredir".split())
"""The parameters that name files or folders, or may."""


class Verb(click.Command):
    """A verb. No word for it may be empty, as that of a variable that is not set is."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb; a UsageError for a word that can mean nothing."""
        for param in self.params:
            if param.type is click.UNPROCESSED:  # a command's words are its own
                continue
            value = ctx.params.get(param.name or "")
            for word in value if isinstance(value, tuple) else (value,):
                if isinstance(word, str):
                    refuse_word(word, param)
        return super().invoke(ctx)


def refuse_word(word: str, param: click.Parameter) -> None:
    """Raise UsageError for an empty word, or for one that no file can be called."""
    shown = param.metavar or str(param.name).upper()
    name = param.opts[0] if isinstance(param, click.Option) else shown.strip("…")
    if not word.strip():
        msg = f"{name} is empty; is a variable not set?"
        raise click.UsageError(msg)
    if param.name in PLACES:
        refuse_place(word, name)


def refuse_place(word: str, name: str) -> None:
    """Raise UsageError where a word can be the name of no file, wherever it is looked for."""
    try:
        os.stat(word)  # noqa: PTH116 - not to know it, but to hear what is wrong with its name
    except ValueError as error:
        msg = f"{name}: {word[:60]!r} can be no name"
        raise click.UsageError(msg) from error
    except OSError as error:
        if error.errno in (errno.ENAMETOOLONG, errno.ELOOP):
            shown = word if len(word) <= LONGEST else f"{word[:LONGEST]}…"
            why = (
                "is too long a name" if error.errno == errno.ENAMETOOLONG else "is a loop of links"
            )
            msg = f"{name}: {shown} {why}"
            raise click.UsageError(msg) from error


as_json_option = click.option("--json", "as_json", is_flag=True, help="one JSON object on stdout")
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    metavar="N",
    help="seed of noise, data and order; drawn and shown when left out",
)
node_option = click.option(
    "--node",
    "nodes",
    multiple=True,
    metavar="[TRAY=]NAME",
    help="with --as slurm or kubernetes: the node's name, as in rack0/tray03=gpu-17",
)
plant_option = click.option(
    "--plant",
    "plants",
    multiple=True,
    metavar="FAULT",
    help="KIND@SUBJECT[:key=value,…], into an emulated rack",
)


class Number(click.FloatRange):
    """A number within bounds; not a number is none."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the number; a UsageError for another thing."""
        found = float(super().convert(value, param, ctx))
        if found != found:  # noqa: PLR0124 - nan passes every comparison of FloatRange
            self.fail(f"{value!r} is no number", param, ctx)
        return found


def run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of `burn` and `probe`."""
    options = [
        click.argument("rack"),
        plant_option,
        seed_option,
        click.option("--limits", metavar="FILE", help="your limits, golden values, waivers (TOML)"),
        click.option("--expect", metavar="WHAT", help="gpus=72,driver=…,vbios=…, or a rack's name"),
        click.option("--out", metavar="DIR", help="run directory (rackproof-runs/<time>-<rack>)"),
        click.option(
            "--shared", is_flag=True, help="burn real GPUs on which other processes compute, too"
        ),
        click.option("--alluredir", metavar="DIR", help="also write Allure results there"),
        click.option("--all", "everything", is_flag=True, help="show PASS checks too"),
        as_json_option,
    ]
    return functools.reduce(lambda f, option: option(f), reversed(options), command)


def rack_and_command(rest: tuple[str, ...]) -> tuple[str | None, tuple[str, ...]]:
    """Tell RACK from COMMAND by the ``--`` before it, which click takes away."""
    typed = sys.argv[1:]
    command = tuple(typed[typed.index("--") + 1 :]) if "--" in typed else ()
    if "--" in typed and not command:
        msg = "drill: there is no command after --"
        raise click.UsageError(msg)
    before = rest[: len(rest) - len(command)]
    if len(before) > 1:
        msg = f"drill: {before[1]!r} is one word too many; a command stands after --"
        raise click.UsageError(msg)
    for word in before:
        refuse_word(word, click.Argument(["rack"]))
    return (before[0] if before else None), command
