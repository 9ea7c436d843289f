"""The verbs: parse, call, print. Nothing is measured or judged here; door.py gives exit codes."""

import os
import sys
from pathlib import Path
from typing import Any

import click

import rackproof
from rackproof.door import Door, speak
from rackproof.options import (
    Number,
    as_json_option,
    commas,
    node_option,
    plant_option,
    rack_and_command,
    run_options,
    seed_option,
)

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
NOT_OF_PROBE = {
    **dict.fromkeys(("level", "budget", "lasting", "retest_budget")),
    **dict.fromkeys(("only", "allowed"), ()),
    "resume": False,
    "workers": 1,
}


@click.group(cls=Door, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(rackproof.__version__, prog_name="rackproof")
def main() -> None:
    """Says whether a rack of GPUs may carry a training job, which GPU may not, and why."""


@main.command()
@run_options
@click.option("--level", default=None, metavar="LEVEL", help="quick (default), acceptance, soak")
@click.option("--only", multiple=True, callback=commas, metavar="ID,…", help="burns or families")
@click.option(
    "--budget",
    metavar="TIME",
    help="device time, as in 20m or 1h30m: inventory and health, then one burn of each family,"
    " then the others, as far as they fit; the plan shows what was left out. Runs that repeat"
    " a failed burn come on top",
)
@click.option(
    "--for",
    "lasting",
    metavar="TIME",
    help="with --level soak: rounds of all burns, each in an order of its own, until this much"
    " device time is over; a round that has begun is finished",
)
@click.option(
    "--retest-budget",
    metavar="TIME",
    help="device time beyond the plan and its three runs, for retests that tell how lasting a fault"
    " is and what to do about it; default 0. The verdict never needs it",
)
@click.option(
    "--allow",
    "allowed",
    multiple=True,
    callback=commas,
    metavar="ID,…",
    help="burns that may change settings of real GPUs (power.cap: the power limit; power.smoothing)"
    " and put them back; without it they are UNKNOWN and nothing is touched. Emulated racks need"
    " no leave",
)
@click.option(
    "--allow-power-cap",
    "power_cap",
    is_flag=True,
    help="as --allow power.cap: power limits of real GPUs may be lowered; each is put back, also"
    " after a kill",
)
@click.option(
    "-n",
    "workers",
    type=click.IntRange(1, 256),
    default=1,
    metavar="N",
    help="worker processes for an emulated rack; the verdicts are the same",
)
@click.option("--resume", is_flag=True, help="go on with the run in --out, in the right round")
def burn(**given: Any) -> int:
    """Burn RACK and judge it: a shipped name, a TOML file, or local."""
    from rackproof.fixtures import launch  # noqa: PLC0415 - each verb loads what it needs

    if given.pop("power_cap"):
        given["allowed"] += ("power.cap",)
    return launch.run("burn", given, speak)


@main.command()
@run_options
def probe(**given: Any) -> int:
    """Read RACK without load, in seconds, and judge what it says."""
    from rackproof.fixtures import launch  # noqa: PLC0415

    return launch.run("probe", {**given, **NOT_OF_PROBE}, speak)


@main.command()
@click.argument("rack")
@seed_option
@click.option("--kinds", multiple=True, callback=commas, metavar="KIND,…", help="only these")
@click.option("--full", is_flag=True, help="run all burns for every kind")
@click.option("--jobs", type=click.IntRange(1, 256), default=2, show_default=True, metavar="N")
@click.option("--out", metavar="DIR", help="keep the runs there; they are removed otherwise")
@as_json_option
def qualify(**given: Any) -> int:
    """Plant every kind of fault into the emulated RACK and print what the burns make of it."""
    from rackproof.fixtures import qualify as verb  # noqa: PLC0415

    return verb.run(given, speak)


@main.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option("--as", "form", metavar="FORM", help="say it to a scheduler: slurm, kubernetes")
@node_option
@as_json_option
def diagnose(
    paths: tuple[str, ...], form: str | None, nodes: tuple[str, ...], *, as_json: bool
) -> int:
    """Judge files and folders that you already have, or a run directory."""
    from rackproof.fixtures import offline  # noqa: PLC0415
    from rackproof.reports import handover, terminal  # noqa: PLC0415

    handover.check(form, nodes, as_json=as_json)
    body, code = offline.diagnose([Path(p) for p in paths])
    if form:
        click.echo(handover.text(form, handover.of_files(body, handover.renames(nodes))), nl=False)
    elif as_json:
        speak(body)
    else:
        terminal.diagnosis_conclusion(body, sys.stdout)
    return code


@main.command("evaluate-classifier")
@click.option("--cases", type=click.IntRange(1, 1_000_000), metavar="N", help="incidents a world")
@seed_option
@click.option("--quick", is_flag=True, help="150 incidents a world instead of 1000")
@click.option("--out", metavar="FILE", help="also write the table (.md) or the JSON there")
@as_json_option
def evaluate_classifier(**given: Any) -> int:
    """Hold the classifier against drawn faults whose truth is known, beside three baselines."""
    for name in THREADS:  # small products: threads only cost
        os.environ.setdefault(name, "1")
    from rackproof.fixtures import evaluate  # noqa: PLC0415

    return evaluate.run(given, speak)


@main.command(context_settings={"ignore_unknown_options": False})
@click.argument("name", metavar="NAME")
@click.argument("rest", nargs=-1, type=click.UNPROCESSED, metavar="[RACK] [-- COMMAND…]")
@seed_option
@click.option("--out", metavar="DIR", help="run directory (rackproof-runs/<time>-drill-NAME)")
@click.option(
    "--steps",
    type=click.IntRange(1, 1 << 20),
    metavar="N",
    help="of the training run; each drill says how many it needs",
)
@click.option("--replicas", type=click.IntRange(1, 4096), metavar="N", help="of the training run")
@click.option(
    "--require",
    metavar="LEVEL",
    help="the proof that must be shown, L0 to L4; the drill's own otherwise",
)
@click.option(
    "--log-regex",
    "log_regex",
    metavar="RE",
    help="reads the steps of a command from its output: named groups step, loss, samples, digest",
)
@click.option("--layer", metavar="LAYER", help="torchft: the same drill on torch and torchft")
@click.option(
    "--patience",
    type=Number(0.1, 86_400.0),
    metavar="S",
    help="seconds without a step after which a training run is taken to stand still",
)
@as_json_option
def drill(*, name: str, rest: tuple[str, ...], **given: Any) -> int:
    """Break a training run on purpose, see it recover, and prove what it recovered to.

    Without a COMMAND it is a training run of our own. RACK is emulated: the drill's own by
    default, which its plan names first.
    """
    for variable in THREADS:  # burnt beside a training run that needs the cores
        os.environ.setdefault(variable, "1")
    from rackproof.fixtures import drill as verb  # noqa: PLC0415

    rack, command = rack_and_command(rest)
    return verb.run({**given, "name": name, "rack": rack, "command": command}, speak)


@main.command()
@click.argument("old", metavar="OLD")
@click.argument("new", metavar="NEW")
@as_json_option
def compare(old: str, new: str, *, as_json: bool) -> int:
    """Compare two runs of one rack: what got worse, by part and metric."""
    from rackproof.fixtures import compare as two  # noqa: PLC0415
    from rackproof.reports import comparison  # noqa: PLC0415

    body, code = two.compared(Path(old), Path(new))
    if as_json:
        speak(body)
    else:
        comparison.comparison(body, sys.stdout)
    return code


@main.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN…")
@click.option("--racks", type=click.IntRange(1, 100_000), metavar="N", help="plan for so many")
@click.option("--days", type=Number(0.01, 3650), default=30.0, show_default=True)
@click.option("--spare-trays", type=click.IntRange(0, 1000), metavar="N", help="in each rack")
@click.option("--spare-racks", type=click.IntRange(0, 10_000), default=0, metavar="N")
@click.option("--rate", metavar="RATE", help="failures per GPU-hour, or a name such as h100")
@click.option("--persistent", type=Number(0.0001, 1.0), help="share that outlasts a rerun")
@click.option("--repair", type=Number(0.01, 10_000), metavar="HOURS")
@click.option("--confidence", type=Number(0.5, 0.999999), default=0.99, show_default=True)
@click.option(
    "--job",
    type=click.IntRange(0, 10_000_000),
    default=0,
    metavar="GPUS",
    help="GPUs that stop when one does; default: those in use of its rack",
)
@click.option("--whole-trays", is_flag=True, help="no tray in use without one of its GPUs")
@as_json_option
def spares(runs: tuple[str, ...], *, as_json: bool, **wanted: Any) -> int:
    """Say who gets a spare, what stays exposed, and how many spares racks need."""
    from rackproof.fixtures import spares as verb  # noqa: PLC0415
    from rackproof.reports import spares as told  # noqa: PLC0415

    body, code = verb.spares([Path(run) for run in runs], verb.Wanted(**wanted))
    if as_json:
        speak(dict(body))
    else:
        told.spares(body, sys.stdout)
    return code


@main.command()
@click.option(
    "--gpus", type=int, default=100_000, show_default=True, metavar="N", help="72 to 2000000"
)
@click.option(
    "--event", default="demand-response", show_default=True, metavar="demand-response|none"
)
@click.option(
    "--cut",
    type=Number(0.001, 0.6),
    default=0.2,
    show_default=True,
    metavar="SHARE",
    help="share of the load that the utility takes away",
)
@seed_option
@as_json_option
def campus(*, as_json: bool, **asked: Any) -> int:
    """Simulate a campus of GPUs under its Dimmers, and say what an event costs it."""
    from rackproof.fixtures import campus as verb  # noqa: PLC0415
    from rackproof.reports import campus as told  # noqa: PLC0415

    body, code = verb.run(verb.Asked(**asked), told.Watching(sys.stderr if as_json else sys.stdout))
    if as_json:
        speak(dict(body))
    else:
        told.campus(body, sys.stdout)
    return code


@main.command()
@click.argument("run", metavar="RUN")
@click.option(
    "--as",
    "form",
    required=True,
    metavar="FORM",
    help="html, junit, csv, parquet, ocp (OCP Test & Validation), slurm, kubernetes",
)
@click.option("--out", metavar="FILE", help="where to write it; - is stdout; default: in RUN")
@node_option
@as_json_option
def report(run: str, form: str, out: str | None, nodes: tuple[str, ...], *, as_json: bool) -> int:
    """Render a run for a person, for CI, or for a scheduler, which we never call ourselves."""
    from rackproof.reports import render  # noqa: PLC0415

    path = render.report(Path(run), form, out, nodes)
    if as_json:
        speak({"schema": "rackproof.report/1", "form": form, "path": str(path) if path else "-"})
    elif path:
        click.echo(str(path))
    return 0


@main.command("list")
@click.argument("what", metavar="racks|burns|faults|drills|readers")
@as_json_option
def list_(what: str, *, as_json: bool) -> int:
    """List what there is, one line each."""
    from rackproof.fixtures import catalogue  # noqa: PLC0415

    items = catalogue.items(what)
    if as_json:
        speak({"items": items})
    else:
        width = max((len(item["name"]) for item in items), default=0)
        for item in items:
            click.echo(f"{item['name']:<{width}}  {item['summary']}")
        if not items:
            click.echo(f"rackproof: this version has no {what}", err=True)
    return 0


@main.command(context_settings={"ignore_unknown_options": True})
@click.argument("rack")
@plant_option
@seed_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND…")
def emulate(rack: str, plants: tuple[str, ...], seed: int | None, command: tuple[str, ...]) -> int:
    """Run COMMAND with the emulated RACK as its NVML driver; its exit code is passed on."""
    from rackproof.fixtures import launch  # noqa: PLC0415

    return launch.emulate(rack, plants, seed, command)
