"""A trainer in a few lines of Python or shell, and a look at who is left of it."""

import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rackproof.harness.launch import processes
from rackproof.harness.launch.command import CommandJob

TRAINER = """
import json, os, sys, time
attempt, resume = int(os.environ["RP_ATTEMPT"]), os.environ["RP_RESUME"] == "1"
home = os.environ["RP_CKPT_URL"].removeprefix("file://")
place = os.path.join(home, "replica" + os.environ["RP_REPLICA"])
def say(kind, **fields):
    with open(os.environ["RP_EVENTS"], "a") as file:
        file.write(json.dumps({"kind": kind, **fields}) + "\\n")
def steps(first, last, pause=0.01):
    for step in range(first, last + 1):
        time.sleep(pause)  # the work
        with open(place + ".new", "w") as file:
            file.write(str(step))
        os.replace(place + ".new", place)
        say("ckpt", phase="committed", step=step, uri=place)
        say("step", step=step, loss=1 / step, samples=4)
def gate():
    while attempt == 1 and not os.path.exists(os.path.join(os.environ["RP_RUN_DIR"], "go")):
        time.sleep(0.005)
def newest():
    if not resume or not os.path.exists(place):
        return 0
    with open(place) as file:
        step = int(file.read())
    say("restore", step=step, uri=place, fields=["weights"])
    return step
"""


@pytest.fixture
def trainer(tmp_path: Path) -> Callable[[str], list[str]]:
    """Return the command of a trainer: the lines above, and those that are given."""

    def make(body: str, name: str = "train.py") -> list[str]:
        path = tmp_path / name
        path.write_text(TRAINER + textwrap.dedent(body), "utf-8")
        return [sys.executable, str(path)]

    return make


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Callable[..., CommandJob]]:
    """Return a job in a folder of its own, which is closed at the end, and must leave nobody."""
    made: list[CommandJob] = []
    before = {process.pid for process in processes.descendants(os.getpid())}

    def make(command: list[str], **terms: object) -> CommandJob:
        folder = tmp_path / f"run{len(made)}"
        found = CommandJob(command, folder, **{"grace": 5.0, "patience": 30.0, **terms})  # type: ignore[arg-type]
        made.append(found)
        return found

    yield make
    for each in made:
        each.close()
    left = [p.pid for p in processes.descendants(os.getpid()) if p.pid not in before]
    assert left == []
