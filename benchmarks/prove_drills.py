"""gpu-loss in number: one training run, hit at a thousand drawn moments, the same bits each time.

In: how many runs. Out: docs/proof/drills.md with the counts, what the kills hit, how fast the run
went on, and every drill that was not L4; exit 1 when there was one. A worker holds the fault-free
runs of its plan once, and then a drill for each turn, which draws step, moment and victim.
"""

import argparse
import collections
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

from rackproof import __version__
from rackproof.diagnostics.drills.table import DRILLS
from rackproof.fixtures.drill import Held, hold, rack_of
from rackproof.fixtures.stage import Asked, Silence
from rackproof.harness.errors import RackproofError

ROOT = Path(__file__).resolve().parents[1]
SEED, STEPS = 20261130, 48
DOUBT = 0.05


@dataclass(frozen=True, slots=True)
class Outcome:
    """One drill: what was shown, which member was hit after which step, and what came of it.

    `resumed` is seconds from the fault until the spare took part and a step was committed;
    `discarded` how many attempts at a step were thrown away.
    """

    turn: int
    verdict: str
    proof: str
    member: str = ""
    step: int = 0
    resumed: float = 0.0
    discarded: int = 0
    problem: str = ""

    @property
    def right(self) -> bool:
        """Whether it is all that can be shown."""
        return (self.verdict, self.proof) == ("PASS", "L4")


def outcome(turn: int, held: Held) -> Outcome:
    """Return what a drill that was held gave."""
    recovery, faulted = held.recovery, held.record.faulted
    said = [] if faulted is None else list(faulted.happenings)
    kill = next((h for h in said if h.kind == "injected" and h.text("fault") == "kill"), None)
    before = [h for h in said if h.kind == "step" and kill is not None and h.at <= kill.at]
    words = {moment.what: moment.at for moment in recovery.timeline}
    wrong = [
        f"{c.id}: {c.message}" for c in recovery.claims if str(c.verdict) in ("FAIL", "UNKNOWN")
    ]
    return Outcome(
        turn,
        str(recovery.verdict),
        recovery.proof,
        kill.text("member") if kill is not None else "",
        max((h.number("step") or 0 for h in before), default=0),
        words.get("resumed", 0.0) - words.get("fault", 0.0),
        recovery.steps.discarded,
        "; ".join([held.remark, *wrong])[:500],
    )


def work(turns: Sequence[int]) -> None:
    """Hold the drills of these turns, one after the other; say each outcome in a line."""
    drill = DRILLS["gpu-loss"]
    spec = rack_of(drill, None)
    for turn in turns:
        with tempfile.TemporaryDirectory(prefix="rackproof-prove-") as name:
            asked = Asked(drill, spec, SEED, Path(name) / "run", steps=STEPS, turn=turn)
            try:
                found = outcome(turn, hold(asked, Silence()))
            except RackproofError as error:
                found = Outcome(turn, "UNKNOWN", "none", problem=str(error))
            shutil.rmtree(asked.out, ignore_errors=True)
        print(json.dumps(asdict(found)), flush=True)


def told(script: str, runs: int, jobs: int) -> Iterator[dict[str, Any]]:
    """Share the turns out to so many processes of a script; yield what each of them printed."""
    shares = [range(first, runs, jobs) for first in range(min(jobs, runs))]
    words = [[sys.executable, script, "--turns", ",".join(map(str, turns))] for turns in shares]
    with ThreadPoolExecutor(len(shares)) as pool:
        for lines in pool.map(_lines, words):
            yield from (json.loads(line) for line in lines)


def _lines(words: Sequence[str]) -> list[str]:
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.splitlines()


PAGE = """\
# A GPU is lost at a thousand moments

Written by `make prove` on {day}; rackproof {version}; {machine}.
`rackproof drill gpu-loss --steps {length}` on gb300-nvl72, {runs} times on one training run (seed
{seed}): two replicas and a hot spare. Each time a step, a moment within it and a victim are drawn;
the fault is planted in the emulated rack too, and the spare is the one that telemetry, diagnosis
and sparing chose. L4: each committed state, and the state that was stored at the end, has the bits
of the run that nobody hit.

| | |
|---|---|
| drills | {runs} |
| PASS and L4 | {right} |
| kills at a step of their own | {steps} different steps, {first} to {last} |
| kills by member | {members} |
| kills that made a step be done again | {discarded} |
| fault until the spare took part | {resumed} |

{conclusion}

## What was not right
{wrong}
"""


def page(found: Sequence[Outcome]) -> str:
    """Return the page."""
    bad = [each for each in found if not each.right]
    times = sorted(each.resumed for each in found if each.right) or [0.0]
    steps = sorted({each.step for each in found}) or [0]
    members = collections.Counter(each.member for each in found)
    rate = 1 - DOUBT ** (1 / len(found)) if found and not bad else 1.0
    return PAGE.format(
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
        version=__version__,
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        seed=SEED,
        length=STEPS,
        runs=len(found),
        right=len(found) - len(bad),
        steps=len(steps),
        first=steps[0],
        last=steps[-1],
        members=", ".join(f"{name} {count}" for name, count in sorted(members.items())),
        discarded=sum(each.discarded > 0 for each in found),
        resumed=(
            f"median {statistics.median(times):.3f} s, 99 % within"
            f" {times[int(0.99 * (len(times) - 1))]:.3f} s, longest {times[-1]:.3f} s"
        ),
        conclusion=(
            f"**{len(bad)} of {len(found)} were not right.**"
            if bad
            else f"None of {len(found)} differed in a bit: at a rate of {rate:.2%} or more one"
            f" would have, with {1 - DOUBT:.0%} confidence (exact binomial bound)."
        ),
        wrong="\n".join(
            f"- turn {each.turn}: {each.verdict} {each.proof}: {each.problem}" for each in bad
        )
        or "Nothing.",
    )


def main() -> int:
    """Hold all drills, write the page, and return 1 when one was not L4."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "proof" / "drills.md")
    parser.add_argument("--turns", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.turns:
        work([int(turn) for turn in asked.turns.split(",")])
        return 0
    begun, found = time.monotonic(), []
    for fields in told(__file__, asked.runs, asked.jobs):
        each = Outcome(**fields)
        found.append(each)
        if not each.right:
            print(f"turn {each.turn}: {each.verdict} {each.proof}: {each.problem}", flush=True)
    asked.page.parent.mkdir(parents=True, exist_ok=True)
    asked.page.write_text(page(found), "utf-8")
    wrong = sum(not each.right for each in found) + (len(found) < asked.runs)
    print(f"{wrong} of {len(found)} not L4, {time.monotonic() - begun:.0f} s: {asked.page}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
