"""One replica of layer B: a small transformer trained under torchft, a process of its own.

In: ``--plan FILE`` (harness.training.plan), TORCHFT_LIGHTHOUSE and the contract's RP_ variables.
Out: happenings in RP_EVENTS, checkpoints at RP_CKPT_URL. A step: quorum (who is behind is healed
from a peer) → who takes part is logged → each writes its gradient into a row of its own and all
rows are summed, which is exact at any number of replicas, for the others add zeros → torchft's vote
→ the mean over the rows, in order. The batch of a replica that is not there is dropped.
SIGTERM: save, and exit.
"""

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rackproof.harness.errors import DrillError, RackproofError
from rackproof.harness.training.plan import Plan
from rackproof.harness.training.torch import require_torch

THREADS = "OMP_NUM_THREADS MKL_NUM_THREADS OPENBLAS_NUM_THREADS".split()


def read_plan(path: Path) -> Plan:
    """Return the plan in a file; DrillError where it is none, or one that this layer cannot run."""
    try:
        plan = Plan.read(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError) as error:
        msg = f"{path}: is no plan of a training run ({error})"
        raise DrillError(msg) from error
    if plan.device != "numpy":
        msg = f"the layer torchft runs on the CPU with gloo, not on {plan.device!r}"
        raise DrillError(msg)
    return plan


def pin(threads: int) -> None:
    """Fix the threads, before torch is imported: other threads may give other bits."""
    for name in THREADS:
        os.environ[name] = str(threads)
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
    import torch  # noqa: PLC0415 - only now are the threads pinned

    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    torch.use_deterministic_algorithms(mode=True)
    torch.manual_seed(0)


def threads(plan: Plan, attempt: int) -> int:
    """Return how many to pin; the planted mistake ``threads:N`` takes others after a restart."""
    word, _, number = plan.defect.partition(":")
    return int(number) if word == "threads" and attempt > 1 else plan.threads


def seat(environment: Mapping[str, str], plan: Plan) -> tuple[int, int]:
    """Return the number of this replica and its attempt, from RP_REPLICA and RP_ATTEMPT."""
    try:
        number = int(environment.get("RP_REPLICA", "0").removeprefix("r"))
        attempt = int(environment.get("RP_ATTEMPT", "1"))
    except ValueError as error:
        msg = f"RP_REPLICA and RP_ATTEMPT are whole numbers ({error})"
        raise DrillError(msg) from error
    if not 0 <= number < plan.replicas:
        msg = f"RP_REPLICA is {number}, of {plan.replicas} replicas"
        raise DrillError(msg)
    return number, attempt


def main(arguments: list[str] | None = None) -> int:
    """Train to the end; 0 when it was reached or SIGTERM came, 2 for what cannot be run."""
    parser = argparse.ArgumentParser(prog="rackproof.harness.training.torch.train")
    parser.add_argument("--plan", type=Path, required=True)
    asked = parser.parse_args(arguments)
    try:
        plan = read_plan(asked.plan)
        number, attempt = seat(os.environ, plan)
        if "TORCHFT_LIGHTHOUSE" not in os.environ:
            msg = "TORCHFT_LIGHTHOUSE is not set: start one with torchft_lighthouse"
            raise DrillError(msg)
        require_torch()
        pin(threads(plan, attempt))
        from rackproof.harness.training.torch.worker import Replica  # noqa: PLC0415 - needs torch

        return Replica(plan, number, attempt, os.environ).run()
    except RackproofError as error:
        sys.stderr.write(f"rackproof: {error}\n")
        return 2


def leave(code: int) -> None:
    """End this process; a quorum that torchft still awaits on a thread would keep it for long."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code)


if __name__ == "__main__":
    leave(main())
