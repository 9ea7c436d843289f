"""The replay of a run's logged membership, in one process, from the first step on.

In: the plan, and who took part in each step. Out: the steps, with their digests. It shares nothing
with the run but the model: no torchft, no gloo, one sum in the order of the replicas. It runs as a
process of its own, since threads are pinned before torch is imported; `replayed` starts it, and
needs no torch itself.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rackproof.harness.errors import DrillError, RackproofError
from rackproof.harness.happening import Happening
from rackproof.harness.launch import processes
from rackproof.harness.launch.tail import Tail
from rackproof.harness.training.plan import Plan
from rackproof.harness.training.torch import require_torch
from rackproof.harness.training.torch.lineage import lineage
from rackproof.harness.training.torch.train import pin, read_plan

WITHIN = 600.0  # seconds


def replayed(
    plan: Plan, folder: Path, said: Sequence[Happening]
) -> tuple[list[Happening], list[str]]:
    """Return what a replay of a run says, and why it could not be made, in words.

    `folder` gets a folder ``replay`` with the log, the events and the output of the process.
    """
    try:
        taken = lineage(said)
        require_torch()
        place = folder.absolute() / "replay"
        place.mkdir(parents=True, exist_ok=True)
        (place / "plan.json").write_text(json.dumps(plan.as_json()), "utf-8")
        (place / "log.json").write_text(json.dumps([asdict(each) for each in taken]), "utf-8")
        code = _run(place)
    except DrillError as error:
        return [], [str(error)]
    except OSError as error:
        return [], [f"the replay cannot be written ({error.strerror})"]
    except subprocess.TimeoutExpired:
        return [], [f"the replay took longer than {WITHIN:g} s"]
    tail, found = Tail(place / "events"), list[Happening]()
    while more := tail.poll():
        found += more
    problems = tail.told()
    if code:
        problems.append(f"the replay ended with exit code {code}: see {place / 'replay.log'}")
    return found, problems


def _run(place: Path) -> int:
    (place / "events").mkdir(exist_ok=True)
    file = place / "events" / "replay.1.jsonl"
    module = "rackproof.harness.training.torch.replay"
    with (place / "replay.log").open("ab") as log:
        return subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-P", "-m", module, str(place), str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "RP_EVENTS": str(file), "PYTHONHASHSEED": "0"},
            timeout=WITHIN,
            check=False,
        ).returncode


def compute(plan: Plan, place: Path) -> None:
    """Compute all steps of ``place/log.json``, and say them to RP_EVENTS."""
    from rackproof.harness.training.torch.events import Events  # noqa: PLC0415
    from rackproof.harness.training.torch.net import Net, samples  # noqa: PLC0415 - torch

    tell = Events.of(os.environ, "replay", 1)
    net = Net(plan)
    for entry in json.loads((place / "log.json").read_text("utf-8")):
        step, members = net.step + 1, [int(member) for member in entry["participants"]]
        if entry["step"] != step or not set(members) <= set(range(plan.replicas)):
            msg = f"the log is none of this plan at step {step}"
            raise DrillError(msg)
        computed = [net.gradient(step, member) for member in members]
        net.advance([gradient for _, gradient in computed])
        tell(
            "step",
            step=step,
            loss=sum(loss for loss, _ in computed) / len(computed),
            samples=[number for member in members for number in samples(plan, step, member)],
            participants=[f"r{member}" for member in members],
            digest=net.digest(),
        )
    tell("ended", step=net.step, digest=net.digest())


def main(arguments: list[str] | None = None) -> int:
    """Replay what lies in a folder."""
    parser = argparse.ArgumentParser(prog="rackproof.harness.training.torch.replay")
    parser.add_argument("place", type=Path)
    parser.add_argument("parent", type=int, nargs="?", help="the pid with which it dies")
    told = parser.parse_args(arguments)
    place: Path = told.place
    if told.parent is not None:
        processes.mortal(told.parent)
    try:
        plan = read_plan(place / "plan.json")
        require_torch()
        pin(plan.threads)
        compute(plan, place)
    except (RackproofError, OSError, ValueError, KeyError) as error:
        sys.stderr.write(f"rackproof: the replay cannot be made: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
