"""One process computes a whole training run again: what bits it should have had.

In: the plan, the data set, and, for a run that lost micro-shards or put shards in quarantine, its
log. Out: the digest of every step. `fault_free` and `replay` compute in this process; `apart` does
it in a child that has as many BLAS threads as the plan says, which is what a judge wants, because
another number of threads gives other bits. ``python -m rackproof.harness.training.replay`` is that
child: a JSON object on stdin, a JSON line for each step on stdout; it is told its parent's pid, and
dies with it.
"""

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from rackproof.harness.errors import DrillError
from rackproof.harness.launch import processes
from rackproof.harness.training.data import Batch, DataSet, DataState
from rackproof.harness.training.model import Model, module
from rackproof.harness.training.optimizer import AdamW, State
from rackproof.harness.training.plan import Plan
from rackproof.harness.training.reduce import mean
from rackproof.harness.training.threads import pinned

MODULE = "rackproof.harness.training.replay"


@dataclass(frozen=True, slots=True)
class Logged:
    """A committed step as it was logged.

    `shards` are the micro-shards that contributed, ascending; `quarantined` the shards of the data
    set that were put in quarantine since the step before, those found in this very step included.
    """

    step: int
    shards: tuple[int, ...]
    quarantined: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Replayed:
    """A step as it was computed again: the state's digest after it, its samples in order."""

    step: int
    digest: str
    samples: tuple[int, ...]
    loss: float
    quarantined: tuple[int, ...] = ()


class _Run:
    """A training run in one process, a step at a time."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan, self.dataset = plan, DataSet.open(folder)
        self.model = Model(plan.shape, module(plan.device))
        self.adamw = AdamW(plan.optimizer)
        self.state = State.initial(self.model, plan.seed)
        self.data = DataState.initial(self.dataset, plan)
        self._spare = self.state.empty()

    def step(self, shards: Sequence[int], quarantined: Sequence[int]) -> Replayed:
        """Take a step with these micro-shards; DrillError where its gradient is not finite."""
        number = self.state.step + 1
        for shard in quarantined:
            self.data = self.data.quarantine(shard)
        batch, after = self.data.batch(self.dataset)
        losses, gradients = [], []
        for shard in shards:
            tokens, scale = self.dataset.rows(batch[shard])
            key = (self.plan.seed, number, shard)
            loss, grad = self.model.gradient(self.state.weights, tokens, scale, key)
            losses.append(loss)
            gradients.append(grad)
        loss = float(np.mean(losses))
        if not math.isfinite(loss):
            msg = f"step {number}: the loss is {loss} with the samples that it has"
            raise DrillError(msg)
        before = self.state
        self.state = self.adamw.advance(before, mean(gradients), self._spare)
        self._spare, self.data = before, after
        samples = tuple(sample for shard in shards for sample in batch[shard])
        return Replayed(number, self.state.digest(), samples, loss, tuple(quarantined))

    def broken(self) -> tuple[int, ...]:
        """Return the shards that the next step must do without, so that its samples are finite."""
        found: tuple[int, ...] = ()
        state = self.data
        while True:
            batch: Batch = state.batch(self.dataset)[0]
            more = self.dataset.broken(sample for part in batch for sample in part)
            if not more:
                return tuple(sorted(found))
            found += more
            for shard in more:
                state = state.quarantine(shard)


def fault_free(plan: Plan, folder: Path) -> list[Replayed]:
    """Return every step of `plan` as it is with no fault; its data set lies in `folder`.

    A poisoned shard is put in quarantine in the step that meets it, as a real run does.
    """
    run, every = _Run(plan, folder), range(plan.micro_shards)
    return [run.step(every, run.broken()) for _ in range(plan.steps)]


def replay(plan: Plan, folder: Path, log: Sequence[Logged]) -> list[Replayed]:
    """Return every step of the run that logged this, as it should have been.

    `log` has the steps from 1 on, each once: those of the trajectory that survived. Raises
    DrillError for a log that cannot be of this plan, such as a keep-batch step with less than all
    of its micro-shards.
    """
    _check(plan, log)
    run = _Run(plan, folder)
    return [run.step(each.shards, each.quarantined) for each in log]


def _check(plan: Plan, log: Sequence[Logged]) -> None:
    every = tuple(range(plan.micro_shards))
    for number, each in enumerate(log, start=1):
        if each.step != number or number > plan.steps:
            msg = f"step {each.step} stands in the log where step {number} of {plan.steps} should"
            raise DrillError(msg)
        sound = each.shards and list(each.shards) == sorted({*each.shards} & {*every})
        if not sound or (plan.mode == "keep-batch" and each.shards != every):
            msg = f"step {number}: a {plan.mode} step cannot be of micro-shards {each.shards}"
            raise DrillError(msg)


def apart(
    plan: Plan, folder: Path, log: Sequence[Logged] | None = None, within: float = 600.0
) -> list[Replayed]:
    """Do `replay`, or `fault_free` without a log, in a child with the plan's number of threads.

    `within` are the seconds that it may take. Raises DrillError where it ends without an answer.
    """
    told = None if log is None else [asdict(each) for each in log]
    order = json.dumps({"plan": plan.as_json(), "folder": str(folder), "log": told})
    words = [sys.executable, "-P", "-m", MODULE, str(os.getpid())]
    try:
        done = subprocess.run(  # noqa: S603  ourselves, with no argument of anybody's
            words,
            input=order, capture_output=True, text=True, timeout=within, check=False,
            env=pinned(os.environ, plan.threads),
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        msg = f"the run could not be computed again: {error}"
        raise DrillError(msg) from error
    if done.returncode != 0:
        msg = f"the run could not be computed again: {done.stderr.strip()[-500:]}"
        raise DrillError(msg)
    return [_replayed(json.loads(line)) for line in done.stdout.splitlines()]


def matters(plan: Plan, folder: Path, counts: Sequence[int] = (1, 2)) -> bool:
    """Return whether the first step's bits depend on how many of these threads BLAS may use.

    Where not, as with a single core, a resume with another number of threads shows nothing.
    """
    first = replace(plan, steps=1)
    found = {apart(replace(first, threads=count), folder)[0].digest for count in counts}
    return len(found) > 1


def _replayed(body: Mapping[str, Any]) -> Replayed:
    lists = {name: tuple(body[name]) for name in ("samples", "quarantined")}
    return Replayed(**{**body, **lists})


def _logged(body: Mapping[str, Any]) -> Logged:
    return Logged(int(body["step"]), tuple(body["shards"]), tuple(body["quarantined"]))


def _answer(order: Mapping[str, Any]) -> Iterator[str]:
    plan, folder, log = Plan.read(order["plan"]), Path(order["folder"]), order["log"]
    if log is None:
        steps = fault_free(plan, folder)
    else:
        steps = replay(plan, folder, [_logged(each) for each in log])
    for each in steps:
        yield json.dumps(asdict(each))


def main() -> int:
    """Answer the order on stdin; 0, or 2 with the reason on stderr."""
    try:
        for line in _answer(json.load(sys.stdin)):
            sys.stdout.write(line + "\n")
    except (DrillError, KeyError, TypeError, ValueError) as error:
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    processes.mortal(*(int(word) for word in sys.argv[1:]))
    sys.exit(main())
