"""False alarms in number: healthy racks of many seeds, each of which has to pass.

In: how many seeds, and from which on. Out: docs/proof/false-alarms.md with the counts, the upper
bound that they allow, and every run that was not PASS; exit 1 when there was one. A seed draws
noise, data and order; what a rack is, the spread between its GPUs included, comes from its name, so
each fourth run is of a rack of the same kind with an identity of its own.
"""

import argparse
import os
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

from rackproof import __version__
from rackproof.fixtures.trial import Outcome, Trial
from rackproof.fixtures.trials import Children

ROOT = Path(__file__).resolve().parents[1]
SHARES = {"hgx-h100": 400, "gb300-nvl72": 300, "gb200-nvl72": 150, "catalina": 150}
"""Runs of each rack, out of 1000."""
ACCEPTANCE = 50  # each so many-th run is of level acceptance, which has all burns
OTHER = 4  # each so many-th run is of a rack with an identity of its own
DOUBT = 0.05


@dataclass(frozen=True, slots=True)
class Case:
    """One healthy run: the shipped rack that it is like, and whether it is another of its kind."""

    like: str
    trial: Trial
    other: bool


def cases(seeds: int, first: int, folder: Path) -> list[Case]:
    """Return `seeds` runs shared out over the racks; racks of another identity lie in `folder`."""
    found = []
    seed = first
    for like, share in SHARES.items():
        for number in range(round(seeds * share / sum(SHARES.values()))):
            other = number % OTHER == OTHER - 1
            rack = _other(like, seed, folder) if other else like
            level = "acceptance" if number % ACCEPTANCE == ACCEPTANCE - 1 else "quick"
            found.append(Case(like, Trial(rack, seed, level), other))
            seed += 1
    return found


def _other(like: str, seed: int, folder: Path) -> str:
    """Write a rack that is like a shipped one and has other GPUs in it; return its path."""
    text = resources.files("rackproof.harness").joinpath(f"racks/{like}.toml").read_text("utf-8")
    path = folder / f"{like}-{seed}.toml"
    path.write_text(text.replace("[rack]", f'[rack]\nidentity = "{like}-{seed}"', 1), "utf-8")
    return str(path)


def bound(runs: int) -> float:
    """Return the rate of false alarms that `runs` clean runs rule out, at 1 - DOUBT: exact."""
    return float(1 - DOUBT ** (1 / runs)) if runs else 1.0


PAGE = """\
# False alarms

Written by `make prove` on {day}; rackproof {version}; {machine}.
Healthy emulated racks, one run a seed, seeds {first} to {last}. A run is right when its verdict is
PASS, nobody is accused, and all that was planned was judged. One in {other} is of a rack with an
identity of its own: other serial numbers, and another spread between its GPUs. One in {acceptance}
is of level acceptance, the others of level quick.

| rack | runs | right | accused | checks judged | seconds each |
|---|---|---|---|---|---|
{rows}

{conclusion}

## What was not right
{wrong}
"""


def report(found: Sequence[tuple[Case, Outcome]], first: int) -> str:
    """Return the page."""
    rows = [_row(rack, [o for c, o in found if c.like == rack]) for rack in SHARES]
    bad = [(case, outcome) for case, outcome in found if not clean(outcome)]
    if bad:
        conclusion = f"**{len(bad)} of {len(found)} runs were not right.**"
    else:
        conclusion = (
            f"No false alarm in {len(found)} runs: their rate is below {bound(len(found)):.2%} of"
            f" runs with {1 - DOUBT:.0%} confidence (exact binomial bound)."
        )
    return PAGE.format(
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
        version=__version__,
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        first=first,
        last=first + len(found) - 1,
        other=OTHER,
        acceptance=ACCEPTANCE,
        rows="\n".join(row for row in rows if row),
        conclusion=conclusion,
        wrong="\n".join(_complaint(case, outcome) for case, outcome in bad) or "Nothing.",
    )


def clean(outcome: Outcome) -> bool:
    """Say whether a healthy run is right."""
    planned, judged = outcome.coverage
    return outcome.verdict == "PASS" and not outcome.innocents and planned == judged > 0


def _row(rack: str, outcomes: Sequence[Outcome]) -> str:
    if not outcomes:
        return ""
    right = sum(clean(outcome) for outcome in outcomes)
    alarms = sum(len(outcome.innocents) for outcome in outcomes)
    judged = sum(outcome.coverage[1] for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes) / len(outcomes)
    return f"| {rack} | {len(outcomes)} | {right} | {alarms} | {judged} | {seconds:.1f} |"


def _complaint(case: Case, outcome: Outcome) -> str:
    what = outcome.problem or f"{outcome.verdict}; accused {', '.join(outcome.innocents) or 'none'}"
    like = f" (like {case.like})" if case.other else ""
    return f"- `rackproof burn {' '.join(case.trial.words)}`{like}: {what}"


def main() -> int:
    """Run all cases, write the page, and return 1 when one was not right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "proof" / "false-alarms.md")
    asked = parser.parse_args()
    begun = time.monotonic()
    found: list[tuple[Case, Outcome]] = []
    with tempfile.TemporaryDirectory(prefix="rackproof-prove-") as name:
        todo = cases(asked.seeds, asked.first, Path(name))
        with Children(asked.jobs, Path(name)) as children:
            for number, outcome in children([case.trial for case in todo]):
                found.append((todo[number], outcome))
                if not clean(outcome):
                    print(_complaint(*found[-1]), flush=True)
    asked.page.parent.mkdir(parents=True, exist_ok=True)
    asked.page.write_text(report(found, asked.first), "utf-8")
    wrong = sum(not clean(outcome) for _, outcome in found)
    print(f"{wrong} of {len(found)} not right, {time.monotonic() - begun:.0f} s: {asked.page}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
