"""How fast a run of ours goes on after a kill, beside torchft and torchrun; what watching costs.

In: nothing. Out: ratios of one run on this machine. Asked for: from the kill to the next committed
step at most three clean steps and 0.5 s with a hot spare, and a drill that watches takes at most
2 % of a step.
"""

import itertools
import statistics
import sys
import tempfile
import time
from contextlib import nullcontext as nothing
from pathlib import Path

import recovery_torch

from rackproof.fixtures.course import Following, Place
from rackproof.harness.happening import Happening
from rackproof.harness.launch.tail import Tail
from rackproof.harness.training.plan import Plan, Shape
from rackproof.harness.training.run import COORDINATOR, LayerA
from rackproof.reports.drill_record import DrillWriter

STEPS_MOST, SECONDS_MOST, SHARE_MOST = 3.0, 0.5, 0.02
RUNS, ROUNDS, STEPS = 5, 6, 100
LARGER = Shape(layers=2, width=96, heads=4, context=32)
"""A step of some tens of milliseconds, as short as any that is worth a drill."""


class Unwatched(LayerA):
    """The same run, with nobody who looks while it goes on."""

    def _follow(self) -> None:
        """Look at nothing."""

    def end(self) -> None:
        """Wait for the coordinator's end, as a parent does."""
        self._living[COORDINATOR].wait()


def committed(said: list[Happening]) -> list[Happening]:
    """Return the coordinator's steps, in order."""
    return [what for what in said if what.kind == "step" and what.who == COORDINATOR]


def gap() -> tuple[float, float, float]:
    """Return seconds from a kill to the next step and to the spare's first, and a clean step."""
    with tempfile.TemporaryDirectory() as name, LayerA(Plan(steps=150), Path(name)) as job:
        job.reach(60)
        kill = time.monotonic()
        job.kill("r0")
        job.finish()
        steps = committed(list(job.happenings))
    before = [what.at for what in steps if what.at < kill]
    after = [what for what in steps if what.at > kill]
    clean = statistics.median(b - a for a, b in itertools.pairwise(before[10:]))
    whole = next(what for what in after if "s0" in what.fields["participants"])
    return after[0].at - kill, whole.at - kill, clean


def step_time(*, watched: bool) -> float:
    """Return the median seconds of a step, with all that a drill does beside it or with nothing."""
    kind = LayerA if watched else Unwatched
    with (
        tempfile.TemporaryDirectory() as name,
        kind(Plan(steps=STEPS, shape=LARGER), Path(name)) as job,
        Following(Place("faulted", Path(name), DrillWriter(Path(name)))) if watched else nothing(),
    ):
        if isinstance(job, Unwatched):
            job.end()
        else:
            job.finish()
        steps = committed(Tail(Path(name) / "events").poll())
    return statistics.median(b.at - a.at for a, b in itertools.pairwise(steps[10:]))


def watching() -> tuple[float, float, float]:
    """Return what watching adds to a step, what nothing adds to it, as shares, and a step's time.

    Runs with and without take turns, in an order that turns too, so that a machine that gets slower
    makes both slower.
    """
    with_, without = [], []
    for turn in range(ROUNDS):
        for watched in (True, False, False, True) if turn % 2 else (False, True, True, False):
            (with_ if watched else without).append(step_time(watched=watched))
    usual = statistics.median(without)
    nothing_more = statistics.median(without[::2]) / statistics.median(without[1::2]) - 1
    return statistics.median(with_) / usual - 1, nothing_more, usual


def others() -> list[str]:
    """Return torchft's and torchrun's lines, or why they are left out."""
    if recovery_torch.missing():
        return [str(recovery_torch.LEFT_OUT)]
    return [str(recovery_torch.torchft_gap()), str(recovery_torch.torchrun_gap())]


def main() -> int:
    """Print the figures and the ratios; 1 where one is too high."""
    gaps = [gap() for _ in range(RUNS)]
    following, whole, clean = (statistics.median(each) for each in zip(*gaps, strict=True))
    allowed = STEPS_MOST * clean + SECONDS_MOST
    worst = max(each[0] / (STEPS_MOST * each[2] + SECONDS_MOST) for each in gaps)
    print(
        f"ours       kill to the next new step {following:6.3f} s ({following / clean:.1f} clean"
        f" steps of {clean * 1e3:.1f} ms), all take part again {whole:6.3f} s"
    )
    print(f"           of what is allowed ({allowed:.3f} s): {worst:.2f} at worst of {RUNS}")
    for line in others():
        print(line)
    share, noise, step = watching()
    print(
        f"watching   {share:+.1%} of a step of {step * 1e3:.0f} ms, {SHARE_MOST:.0%} allowed"
        f" (nothing against nothing: {noise:+.1%})"
    )
    return 0 if worst <= 1 and share <= SHARE_MOST else 1


if __name__ == "__main__":
    sys.exit(main())
