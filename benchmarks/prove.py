"""The large counts: healthy racks of many seeds, and every fault kind that can be planted.

In: the command line as a user has it, each burn a cold child. Out: docs/proof/burns.md, with the
date and the machine, and exit 1 when anything was not as the contract says. `--seeds`, `--racks`
and `--kinds` make it smaller.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rackproof import __version__
from rackproof.harness.faults import Kind, kinds

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-c", "from rackproof.cli import main; main()"]
# Rack, and how many seeds of it have to pass.
HEALTHY = {"gb300-nvl72": 20, "gb200-nvl72": 5, "catalina": 5, "hgx-h100": 5}
PLANTED_RACK = "gb300-nvl72"


@dataclass(frozen=True, slots=True)
class Case:
    """One burn: of which rack, with which seed, and with what planted (None: healthy)."""

    rack: str
    seed: int
    kind: Kind | None = None

    @property
    def options(self) -> list[str]:
        """What follows ``rackproof burn``."""
        plant = [f"--plant={self.kind.name}@?"] if self.kind else []
        return [self.rack, "--seed", str(self.seed), "--json", *plant]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a case gave: seconds, and everything that was not as it ought to be."""

    case: Case
    seconds: float
    verdict: str
    complaints: tuple[str, ...]


def accused(answer: dict[str, Any]) -> set[str]:
    """Return the accused subjects, as the contract defines them."""
    victims = {d["subject"] for d in answer["diagnoses"] if d["role"] == "victim"}
    roots = {d["subject"] for d in answer["diagnoses"] if d["role"] == "root"}
    failed = {c["subject"] for c in answer["checks"] if c["verdict"] == "FAIL"}
    return roots | {
        s for s in failed if s not in victims and s.partition("/link")[0] not in victims
    }


def complaints_healthy(answer: dict[str, Any]) -> list[str]:
    """Return what is wrong with the answer to a healthy rack."""
    wrong = [] if answer["verdict"] == "PASS" else [f"verdict {answer['verdict']}"]
    if accused(answer):
        wrong.append(f"accused {sorted(accused(answer))}")
    coverage = answer["coverage"]
    if coverage["judged"] != coverage["planned"] or not coverage["planned"]:
        wrong.append(f"judged {coverage['judged']} of {coverage['planned']}")
    return wrong


def complaints_planted(answer: dict[str, Any], kind: Kind) -> list[str]:
    """Return what is wrong with the answer to a rack with one fault of `kind`."""
    wrong = [] if answer["verdict"] == kind.verdict else [f"verdict {answer['verdict']}"]
    (planted,) = answer["planted"]
    if not planted["fired"]:
        wrong.append("the fault did not fire")
    expected = set() if kind.persistence == "none" else {planted["subject"]}
    if accused(answer) != expected:
        wrong.append(f"accused {sorted(accused(answer))}, expected {sorted(expected)}")
    for diagnosis in answer["diagnoses"]:
        if diagnosis["subject"] not in expected or diagnosis["role"] != "root":
            continue
        if diagnosis["component"] not in kind.component:
            wrong.append(f"component {diagnosis['component']}")
        if kind.persistence not in {"any", "by-rate", diagnosis["persistence"]}:
            wrong.append(f"persistence {diagnosis['persistence']}")
        if kind.action and diagnosis["action"] not in kind.action:
            wrong.append(f"action {diagnosis['action']}")
    return wrong


def run(case: Case) -> Outcome:
    """Burn `case` in a child and look at what it says."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="rackproof-prove-") as folder:
        done = subprocess.run(
            [*COMMAND, "burn", *case.options, "--out", str(Path(folder) / "run")],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
        )
    seconds = time.monotonic() - begun
    try:
        answer = json.loads(done.stdout)
    except json.JSONDecodeError:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1]
        return Outcome(case, seconds, "none", (f"exit {done.returncode}: {said}",))
    wrong = complaints_planted(answer, case.kind) if case.kind else complaints_healthy(answer)
    right_code = {"PASS": 0, "FAIL": 1, "UNKNOWN": 3}.get(answer["verdict"])
    if done.returncode != right_code:
        wrong.append(f"exit {done.returncode} for {answer['verdict']}")
    return Outcome(case, seconds, answer["verdict"], tuple(wrong))


PAGE = """\
# Burns, proved in number

Written by `make prove` on {day}; rackproof {version}; {machine}.
Racks are emulated. Each burn is a cold child process of level quick, several at once.

## Healthy racks: PASS, nobody accused, and all that was planned was judged
| rack | seeds | right | seconds each |
|---|---|---|---|
{healthy}

## Planted faults on {rack}: the contract's row, and no other subject accused
| kind | seeds | right | seconds each |
|---|---|---|---|
{planted}

## What was not right
{wrong}
"""


def report(outcomes: list[Outcome]) -> str:
    """Return the page: what was run where, one line a rack and one a kind, and all complaints."""
    rows: dict[bool, dict[str, list[Outcome]]] = {True: {}, False: {}}
    for outcome in outcomes:
        kind = outcome.case.kind
        name = kind.name if kind else outcome.case.rack
        rows[kind is None].setdefault(name, []).append(outcome)
    wrong = [_complaint(outcome) for outcome in outcomes if outcome.complaints]
    return PAGE.format(
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
        version=__version__,
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        rack=PLANTED_RACK,
        healthy="\n".join(_row(name, group) for name, group in rows[True].items()),
        planted="\n".join(_row(name, group) for name, group in rows[False].items()),
        wrong="\n".join(wrong) or "Nothing.",
    )


def _row(name: str, outcomes: list[Outcome]) -> str:
    right = sum(not outcome.complaints for outcome in outcomes)
    seconds = sum(outcome.seconds for outcome in outcomes) / len(outcomes)
    return f"| {name} | {len(outcomes)} | {right} | {seconds:.1f} |"


def _complaint(outcome: Outcome) -> str:
    return f"- `rackproof burn {' '.join(outcome.case.options)}`: {'; '.join(outcome.complaints)}"


def cases(racks: list[str], seeds: int, names: list[str]) -> list[Case]:
    """Return all cases: healthy racks first."""
    found = [
        Case(rack, seed)
        for rack, count in HEALTHY.items()
        if rack in racks
        for seed in range(1, min(count, seeds) + 1)
    ]
    for kind in kinds().values():
        if kind.available and (not names or kind.name in names):
            found += [Case(PLANTED_RACK, seed, kind) for seed in range(1, min(3, seeds) + 1)]
    return found


def main() -> int:
    """Run all cases, write the page, and return 1 when one was not right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--racks", nargs="*", default=list(HEALTHY), choices=list(HEALTHY))
    parser.add_argument("--kinds", nargs="*", default=[], choices=list(kinds()))
    parser.add_argument("--seeds", type=int, default=max(HEALTHY.values()))
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "proof" / "burns.md")
    chosen = parser.parse_args()
    outcomes = []
    todo = cases(chosen.racks, chosen.seeds, chosen.kinds)
    with ThreadPoolExecutor(chosen.jobs) as pool:
        for number, outcome in enumerate(pool.map(run, todo), 1):
            outcomes.append(outcome)
            what = outcome.case.kind.name if outcome.case.kind else "healthy"
            right = "; ".join(outcome.complaints) or "right"
            print(f"{number}/{len(todo)} {outcome.case.rack} {outcome.case.seed} {what}: {right}")
    chosen.page.parent.mkdir(parents=True, exist_ok=True)
    chosen.page.write_text(report(outcomes), "utf-8")
    print(f"written: {chosen.page}")
    return int(any(outcome.complaints for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
