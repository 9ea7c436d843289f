"""Power events in number: a thousand of drawn sizes, times and sensor faults, under the Dimmer.

In: how many events. Out: docs/proof/power.md with the counts and every drill that was not PASS and
L4; exit 1 when there was one. Each drill holds twenty events on one training run, one rack of
three in turn: no breaker trips, no cap is left behind, and the states are those of the run that
nobody dimmed, bit for bit.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")

from prove_drills import told

from rackproof import __version__
from rackproof.diagnostics.drills.power import random_events
from rackproof.diagnostics.power.record import read
from rackproof.fixtures.drill import Held, hold, rack_of
from rackproof.fixtures.stage import Asked, Silence
from rackproof.harness.errors import RackproofError

ROOT = Path(__file__).resolve().parents[1]
RACKS = ("gb200-nvl72", "gb300-nvl72", "catalina")
EACH = 20
SEED = 20261130


@dataclass(frozen=True, slots=True)
class Outcome:
    """One drill: what was shown, how many events struck, how far the worst breaker came."""

    turn: int
    rack: str
    verdict: str
    proof: str
    events: int = 0
    strain: float = 0.0
    seconds: float = 0.0
    problem: str = ""

    @property
    def right(self) -> bool:
        """Whether it is all that can be shown."""
        return (self.verdict, self.proof) == ("PASS", "L4")


def outcome(turn: int, rack: str, held: Held) -> Outcome:
    """Return what a drill that was held gave."""
    record, recovery = read(held.record.facts), held.recovery
    begun = record.of("limit", "ac-lost", "ramp", "sag")
    strains = [float(s.strain.max()) for s in record.series.values() if len(s.strain)]
    wrong = [
        f"{c.id}: {c.message}" for c in recovery.claims if str(c.verdict) in ("FAIL", "UNKNOWN")
    ]
    return Outcome(
        turn,
        rack,
        str(recovery.verdict),
        recovery.proof,
        len(begun),
        max(strains, default=1.0),
        record.end,
        "; ".join([held.remark, *wrong])[:500],
    )


def work(turns: Sequence[int]) -> None:
    """Hold the drills of these turns, one after the other; say each outcome in a line."""
    for turn in turns:
        rack, drill = RACKS[turn % len(RACKS)], random_events(SEED + turn, EACH)
        with tempfile.TemporaryDirectory(prefix="rackproof-prove-") as name:
            asked = Asked(drill, rack_of(drill, rack), SEED, Path(name) / "run", turn=turn)
            try:
                found = outcome(turn, rack, hold(asked, Silence()))
            except RackproofError as error:
                found = Outcome(turn, rack, "UNKNOWN", "none", problem=str(error))
            shutil.rmtree(asked.out, ignore_errors=True)
        print(json.dumps(asdict(found)), flush=True)


PAGE = """\
# A thousand power events

Written by `make prove` on {day}; rackproof {version}; {machine}.
{runs} drills of {each} drawn events each, on {racks} in turn, seed {seed}: limits
that fall by 5 to 40 % of the load, at once or along a ramp, lost mains, sags of 10 to 50 % for
10 ms to 1 s, at drawn times, the next often before the last one is got over; in three of ten a
drawn share of the GPUs' sensors, and all meters, are lost as well.

| | |
|---|---|
| events | {events} |
| drills that are PASS and L4: no trip, no cap left behind, the same bits | {right} of {runs} |
| the most of any breaker's trip integral (1 trips, 0.25 is allowed) | {strain:.3f} |
| virtual time of the racks | {hours:.1f} h |
| machine time, {jobs} at once | {seconds:.0f} s |

{wrong}
"""


def page(found: Sequence[Outcome], jobs: int, seconds: float) -> str:
    """Return the page; it says what went wrong, by drill."""
    bad = [each for each in found if not each.right]
    lines = [
        f"- drill {each.turn} on {each.rack}: {each.verdict}, {each.proof}: {each.problem}"
        for each in bad
    ]
    return PAGE.format(
        day=datetime.now(UTC).date(), version=__version__, machine=platform.machine(),
        runs=len(found), each=EACH, racks=", ".join(RACKS), seed=SEED,
        events=sum(each.events for each in found), right=len(found) - len(bad),
        strain=max((each.strain for each in found if each.events), default=1.0),
        hours=sum(each.seconds for each in found) / 3600.0, jobs=jobs, seconds=seconds,
        wrong="\n".join(lines) if lines else "None went wrong.",
    )  # fmt: skip


def main() -> int:
    """Hold them, write the page, say how many went wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "proof" / "power.md")
    parser.add_argument("--turns", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.turns:
        work([int(turn) for turn in given.turns.split(",")])
        return 0
    runs, begun = -(-given.events // EACH), time.monotonic()
    every = (Outcome(**fields) for fields in told(__file__, runs, given.jobs))
    found = sorted(every, key=lambda each: each.turn)
    bad = [each for each in found if not each.right]
    if len(found) < runs:
        print(f"{runs - len(found)} drills told nothing")
        return 1
    given.page.write_text(page(found, given.jobs, time.monotonic() - begun), "utf-8")
    print(f"{len(found) - len(bad)} of {len(found)} drills are PASS and L4: {given.page}")
    for each in bad:
        print(f"  {each.turn} {each.rack}: {each.verdict} {each.proof}: {each.problem}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
