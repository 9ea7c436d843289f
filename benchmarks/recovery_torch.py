"""From a kill to the next committed step under torchft and under torchrun, on this machine.

In: nothing. Out: a Gap each, for benchmarks/recovery.py, or, run by itself, lines. Both train on
two processes over gloo; one is killed with SIGKILL in the middle. Without torch they are left out.
"""

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening
from rackproof.harness.launch.command import CommandJob
from rackproof.harness.training.plan import Plan
from rackproof.harness.training.torch.job import TorchftJob

EXAMPLE = Path(__file__).resolve().parent.parent / "docs" / "examples" / "train_torchrun.py"
STEPS, KILL = 400, 60
LEFT_OUT = "torch and torchft are not installed (pip install 'rackproof[torch]'): left out"
QUIET = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "lo"}


@dataclass(frozen=True, slots=True)
class Gap:
    """Seconds from the kill to the next new step and until all take part again; a clean step."""

    who: str
    next_step: float
    rejoin: float
    clean_step: float

    def __str__(self) -> str:
        """Say it in a line."""
        steps = self.next_step / self.clean_step
        return (
            f"{self.who:10} kill to the next new step {self.next_step:6.3f} s ({steps:.0f} clean "
            f"steps of {self.clean_step * 1e3:.1f} ms), all take part again {self.rejoin:6.3f} s"
        )


def missing() -> bool:
    """Return whether torch or torchft is not there."""
    return find_spec("torch") is None or find_spec("torchft") is None


def clean(said: Sequence[Happening], until: float) -> float:
    """Return the median seconds between the steps that one process told before a time."""
    steps = [what for what in said if what.kind == "step" and what.at < until]
    one = [what.at for what in steps if what.who == steps[-1].who]
    return statistics.median(b - a for a, b in itertools.pairwise(one))


def first(said: Sequence[Happening], since: float, above: int, attempt: int = 0) -> float:
    """Return seconds from `since` to the first later step over `above`; DrillError for none."""
    for what in sorted(said, key=lambda what: what.at):
        step = what.number("step") or 0
        if what.kind == "step" and what.at > since and step > above and what.attempt >= attempt:
            return what.at - since
    msg = "the run never went on"
    raise DrillError(msg)


def torchft_gap() -> Gap | None:
    """Return the gap of two replicas under torchft, heartbeat one second; None without torch."""
    if missing():
        return None
    plan = Plan(
        seed=1, steps=STEPS, replicas=2, every=STEPS, mode="drop-batch", pace=0.01, silence=1.0
    )
    with tempfile.TemporaryDirectory() as folder, TorchftJob(plan, Path(folder)) as job:
        job.reach(KILL)
        struck = time.monotonic()
        job.kill("r1")
        newest = job.committed()
        job.finish()
        said = job.happenings
    return Gap(
        "torchft", first(said, struck, newest), first(said, struck, 0, 2), clean(said, struck)
    )


def torchrun_gap() -> Gap | None:
    """Return the gap of two ranks under torchrun --max-restarts; None without torch."""
    if missing():
        return None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(EXAMPLE, folder)
        shim = [sys.executable, "-m", "rackproof.harness.launch.rackproof_shim"]
        text = subprocess.run(shim, capture_output=True, text=True, check=True).stdout
        (folder / "rackproof_shim.py").write_text(text, "utf-8")
        words = "-m torch.distributed.run --standalone --nproc-per-node 2 --max-restarts 3".split()
        script = [str(folder / EXAMPLE.name), "--steps", str(STEPS)]
        command = [sys.executable, *words, *script]
        with CommandJob(command, folder / "run", steps=STEPS, environment=QUIET) as job:
            job.reach(KILL)
            ranks = [each.name for each in job.members() if each.name.endswith("rank1")]
            newest, struck = job.committed(), time.monotonic()
            job.kill(ranks[0])
            job.finish()
            said = job.happenings
        return Gap(
            "torchrun", first(said, struck, newest), first(said, struck, 0), clean(said, struck)
        )


def main() -> int:
    """Print both."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for gap in (torchft_gap, torchrun_gap):
        print(gap() or LEFT_OUT, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
