"""How long `rackproof qualify` takes, as a share of what is allowed; and the pages of the matrix.

In: the command line as a user has it, on gb300-nvl72, or on others with --racks. Out: a ratio
for each rack; one above 1 is too much, and ends with 1, as does a matrix that is not PASS. With
--pages the matrices are written to docs/qualification/, each with the count of false alarms over
healthy racks of as many seeds as --healthy says. ``--pages --racks`` writes those of RACKS.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rackproof import __version__
from rackproof.fixtures.trial import Outcome, Trial
from rackproof.fixtures.trials import Children
from rackproof.reports import matrix

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-c", "from rackproof.cli import main; main()"]
SECONDS = 300.0  # on two cores
RACKS = ("gb200-nvl72", "gb300-nvl72", "catalina", "hgx-h100")
JOBS = 2


def qualify(rack: str, seed: int) -> tuple[float, dict[str, Any]]:
    """Qualify a rack; return the seconds it took and the JSON that it gave."""
    begun = time.monotonic()
    words = ["qualify", rack, "--seed", str(seed), "--jobs", str(JOBS), "--json"]
    done = subprocess.run([*COMMAND, *words], stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.monotonic() - begun
    if done.returncode not in (0, 1, 3):
        sys.exit(f"qualify {rack} ended with {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return seconds, answer


def healthy(rack: str, seeds: Sequence[int]) -> list[Outcome]:
    """Run healthy racks of those seeds at level quick; return what they gave."""
    trials = [Trial(rack, seed, "quick") for seed in seeds]
    with (
        tempfile.TemporaryDirectory(prefix="rackproof-bench-") as name,
        Children(JOBS, Path(name)) as children,
    ):
        return [outcome for _, outcome in children(trials)]


def facts(outcomes: Sequence[Outcome]) -> list[str]:
    """Return what a page says of itself and of the healthy racks, as lines."""
    right = sum(outcome.verdict == "PASS" for outcome in outcomes)
    alarms = sum(len(outcome.innocents) for outcome in outcomes)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return [
        f"Written by `benchmarks/qualify.py --pages` on {day}; rackproof {__version__}; {machine}.",
        "The rack is emulated: each kind of fault is planted once, at a place that the seed draws,",
        "and the run is judged by one who does not know of it. *yes*: as the table of faults says.",
        "",
        f"Healthy racks, level quick, {len(outcomes)} seeds: {right} PASS, {alarms} accused.",
    ]


def main() -> int:
    """Qualify, print ratios, and write pages where they are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--racks", nargs="*", default=["gb300-nvl72"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--healthy", type=int, default=30)
    parser.add_argument("--pages", action="store_true")
    parser.add_argument("--folder", type=Path, default=ROOT / "docs" / "qualification")
    asked = parser.parse_args()
    good = True
    for rack in asked.racks or RACKS:
        seconds, body = qualify(rack, asked.seed)
        print(f"{seconds / SECONDS:6.2f}  qualify {rack}, of {SECONDS:g} s; {body['verdict']}")
        print(f"        {matrix.sentence(body)}", flush=True)
        good = good and seconds <= SECONDS and body["verdict"] == "PASS"
        if asked.pages:
            outcomes = healthy(rack, range(1, asked.healthy + 1))
            asked.folder.mkdir(parents=True, exist_ok=True)
            path = asked.folder / f"{rack}.md"
            path.write_text(matrix.page(body, facts(outcomes)), "utf-8")
            print(f"        written: {path}", flush=True)
            good = good and all(outcome.right == "PASS" for outcome in outcomes)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
