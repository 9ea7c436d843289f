"""Faults that nobody tuned on: places, seeds and racks are drawn when this is run.

In: how many single faults, pairs and triples. Out: docs/proof/forty.md with every case, its command
and what was made of it; exit 1 when one was not right. Every kind that can be planted is drawn at
least once among forty. Faults of a pair or a triple are on other trays, and none of them hides
another by nature: see HIDES.
"""

import argparse
import os
import platform
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rackproof import __version__
from rackproof.fixtures.trial import Outcome, Trial
from rackproof.fixtures.trials import Children
from rackproof.harness.faults import Fault, kinds, lacking, parse, subjects
from rackproof.harness.spec import RackSpec, load

ROOT = Path(__file__).resolve().parents[1]
RACKS = ("gb300-nvl72", "gb200-nvl72", "catalina", "hgx-h100")
LEVEL = "acceptance"
HIDES: Mapping[str, frozenset[str]] = {
    # all GPUs of a rack without coolant are hot and slow, whatever else slows one of them
    "coolant-loss": frozenset({"slow-gpu", "thermal-throttle", "power-brake", "power-cap-ignored",
                               "power-cap-out-of-band", "psu-loss"}),
    # a switch that is gone takes a link of every GPU with it
    "nvswitch-down": frozenset({"nvlink-down", "nvlink-degraded", "nvlink-flap"}),
}  # fmt: skip
"""What a fault shared by a whole rack covers on all of it."""


@dataclass(frozen=True, slots=True)
class Case:
    """One run: what is planted where, and how often its burns may be repeated."""

    trial: Trial
    faults: tuple[Fault, ...]


def draw(rng: random.Random, singles: int, pairs: int, triples: int) -> list[Case]:
    """Return that many cases of one, two and three faults, drawn from `rng`."""
    kinds_left: list[str] = []
    found = []
    for many in [1] * singles + [2] * pairs + [3] * triples:
        spec = load(rng.choice(RACKS))
        names: list[str] = []
        while len(names) < many:
            name = next((n for n in kinds_left if _fits(n, names, spec)), None)
            if name is None:  # none of those that are left: all come again, these first
                more = [kind.name for kind in kinds().values() if kind.available]
                rng.shuffle(more)
                kinds_left += more
                continue
            kinds_left.remove(name)
            names.append(name)
        seed = rng.randrange(1 << 31)
        faults = _places(rng, names, spec, seed)
        plants = tuple(str(fault) for fault in faults)
        found.append(Case(Trial(spec.name, seed, LEVEL, plants), faults))
    return found


def _fits(name: str, names: Sequence[str], spec: RackSpec) -> bool:
    """Say whether the rack can have a kind, and it hides none of the others nor is hidden."""
    hidden = any(name in HIDES.get(o, ()) or o in HIDES.get(name, ()) for o in names)
    return not lacking(spec, kinds()[name]) and name not in names and not hidden


def _places(
    rng: random.Random, names: Sequence[str], spec: RackSpec, seed: int
) -> tuple[Fault, ...]:
    """Return a fault of each kind on subjects of different trays, as far as the rack has several.

    On an HGX node, which is one tray, they are on different GPUs.
    """
    taken: set[str] = set()
    found = []
    for name in names:
        open_ = [s for s in subjects(spec, kinds()[name]) if _place(s, spec) not in taken]
        subject = rng.choice(open_ or subjects(spec, kinds()[name]))
        taken.add(_place(subject, spec))
        found.append(parse(f"{name}@{subject}", spec, seed))
    return tuple(found)


def _place(subject: str, spec: RackSpec) -> str:
    """Return the tray, or where there is one only the GPU, that a subject is in."""
    parts = subject.split("/")
    alone = len(spec.trays) == 1
    return "/".join(parts[: 3 if alone else 2])


PAGE = """\
# Faults at places and seeds that nobody tuned on

Written by `make prove` on {day}; rackproof {version}; {machine}.
Racks, kinds, places and seeds are drawn when it is run, from {drawn}. Racks are emulated; level
{level}, all burns. A case is right when each of its faults is detected, named at its subject with
the component, the persistence and the action of the table of faults, and nobody else is accused.
A fault with a rate has its burns repeated until it has struck twice and passed once.

| faults at once | cases | right |
|---|---|---|
{counts}

## Every case
| | rack | seed | planted | seen by | right | s |
|---|---|---|---|---|---|---|
{rows}

## What was not right
{wrong}
"""


def report(found: Sequence[tuple[Case, Outcome]], drawn: int) -> str:
    """Return the page; `drawn` is the seed of the draw."""
    counts = []
    for many in sorted({len(case.faults) for case, _ in found}):
        own = [outcome for case, outcome in found if len(case.faults) == many]
        counts.append(f"| {many} | {len(own)} | {sum(o.right == 'PASS' for o in own)} |")
    wrong = [_complaint(case, outcome) for case, outcome in found if outcome.right != "PASS"]
    return PAGE.format(
        day=datetime.now(UTC).strftime("%Y-%m-%d"),
        version=__version__,
        machine=f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        drawn=drawn,
        level=LEVEL,
        counts="\n".join(counts),
        rows="\n".join(_row(n, case, outcome) for n, (case, outcome) in enumerate(found, 1)),
        wrong="\n".join(wrong) or "Nothing.",
    )


def _row(number: int, case: Case, outcome: Outcome) -> str:
    planted = "<br>".join(f"`{fault}`" for fault in case.faults)
    by = "<br>".join(", ".join(finding["by"]) or "–" for finding in outcome.findings)
    cells = (case.trial.rack, str(case.trial.seed), planted, by or "–")
    right = "yes" if outcome.right == "PASS" else f"NO: {outcome.right}"
    return f"| {number} | {' | '.join(cells)} | {right} | {outcome.seconds:.1f} |"


def _complaint(case: Case, outcome: Outcome) -> str:
    wrong = [
        f"{finding['fault']}@{finding['subject']}: {', '.join(finding['wrong'])}"
        for finding in outcome.findings
        if finding["wrong"]
    ]
    wrong += [f"accused {', '.join(outcome.innocents)}"] if outcome.innocents else []
    said = "; ".join([*wrong, *([outcome.problem] if outcome.problem else [])])
    return f"- `rackproof burn {' '.join(case.trial.words)}`: {said}"


def main() -> int:
    """Draw the cases, run them, write the page, and return 1 when one was not right."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--singles", type=int, default=40)
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--triples", type=int, default=10)
    parser.add_argument("--draw", type=int, default=None, help="repeat an earlier draw")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "proof" / "forty.md")
    asked = parser.parse_args()
    drawn = secrets.randbelow(1 << 31) if asked.draw is None else asked.draw
    todo = draw(random.Random(drawn), asked.singles, asked.pairs, asked.triples)
    begun = time.monotonic()
    outcomes: dict[int, Outcome] = {}
    with (
        tempfile.TemporaryDirectory(prefix="rackproof-prove-") as name,
        Children(asked.jobs, Path(name)) as children,
    ):
        for number, outcome in children([case.trial for case in todo]):
            outcomes[number] = outcome
            right = outcome.right if outcome.right == "PASS" else _complaint(todo[number], outcome)
            print(f"{len(outcomes)}/{len(todo)} {' '.join(todo[number].trial.plants)}: {right}")
            sys.stdout.flush()
    found = [(case, outcomes[number]) for number, case in enumerate(todo)]
    asked.page.parent.mkdir(parents=True, exist_ok=True)
    asked.page.write_text(report(found, drawn), "utf-8")
    wrong = sum(outcome.right != "PASS" for _, outcome in found)
    print(f"{wrong} of {len(found)} not right, {time.monotonic() - begun:.0f} s: {asked.page}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
