"""The classifier against faults whose truth is known, in number: docs/proof/classifier.md.

In: how many incidents a world, and a seed. The seed is held back: it was used by nobody while
worlds, losses and the classifier were written, which was done with seeds below 100. Out: the page,
and exit 1 unless each baseline is beaten, beyond a tie, on the matched world and on the others.
"""

import argparse
import os
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from rackproof import __version__
from rackproof.diagnostics.evaluation.worlds import names
from rackproof.fixtures.evaluate import evaluate
from rackproof.reports import evaluation

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "proof" / "classifier.md"
HELD = 20270115
CASES = 2000
DEVELOPED_BELOW = 100


def facts(seed: int) -> list[str]:
    """Return what the page says of itself."""
    day = datetime.now(UTC).date().isoformat()
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    held = f"Seed {seed} is held back: the worlds, the losses and the classifier were written with"
    return [
        f"Written by `make prove` on {day}; rackproof {__version__}; {machine}.",
        f"{held} seeds below {DEVELOPED_BELOW}.",
    ]


def main() -> int:
    """Evaluate, write the page, and say how it went."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cases", type=int, default=CASES, help="incidents of each world")
    parser.add_argument("--seed", type=int, default=HELD, help="the held seed unless you say so")
    parser.add_argument("--out", type=Path, default=PAGE, help="the page")
    asked = parser.parse_args()
    begun = time.monotonic()
    body = evaluate(asked.seed, asked.cases, names(), lambda _: None)
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(evaluation.page(body, facts(asked.seed)), "utf-8")
    print(f"{body['verdict']}: {evaluation.sentence(body)}; {time.monotonic() - begun:.0f} s")
    print(f"written: {asked.out}")
    return int(body["verdict"] != "PASS")


if __name__ == "__main__":
    sys.exit(main())
