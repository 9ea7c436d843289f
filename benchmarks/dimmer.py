"""A decision of the Dimmer for 100,000 and for 1,000,000 GPUs: seconds, and how it grows.

In: nothing. Out: the worst decision of a closed loop over a campus whose racks all get a lower
limit at once, and their ratio to what was asked: 50 ms and 0.5 s. A decision is one `step`: the
look is taken in, every feed is judged, jobs are cut or raised, and the caps are written.
"""

import sys
import time

import numpy as np

from rackproof.harness.power.campus_house import CampusHouse
from rackproof.harness.power.campus_plan import plan
from rackproof.harness.power.dimmer import Dimmer, Settings

ASKED = {100_000: 0.050, 1_000_000: 0.5}
CYCLES, EVENT, OVER = 30, 12, 24
CUT = 0.8
ROUNDS = 2
"""The better of two runs: a machine that others use strikes one of them."""


def worst(gpus: int) -> tuple[float, float]:
    """Return the worst and the usual decision of one closed loop, s."""
    campus = plan(gpus, 1)
    house = CampusHouse(campus, 1)
    settings = Settings()
    dimmer = Dimmer(campus.layout, house.bounds(), campus.jobs, settings, 1)
    taken, now = [], 0.0
    for number in range(CYCLES):
        cycle = house.advance(settings.cycle)
        now += settings.cycle
        if number == EVENT:
            dimmer.limit("utility", CUT * float(cycle.feed[0]), at=now, why="a benchmark")
        if number == OVER:
            dimmer.limit("utility", None, at=now, why="a benchmark")
        sample = house.sample(now, settings.cycle, cycle)
        began = time.perf_counter()
        orders = dimmer.step(sample)
        taken.append(time.perf_counter() - began)
        house.ask(orders.caps)
    # The first look makes the arrays; a controller is started before it is needed.
    return max(taken[1:]), float(np.median(taken[1:]))


def main() -> int:
    """Print both sizes and how a decision grows; 1 where one is too slow."""
    found = {}
    for gpus, asked in ASKED.items():
        most, usual = min(worst(gpus) for _ in range(ROUNDS))
        found[gpus] = most
        print(f"{gpus:>9,} GPUs: worst decision {1e3 * most:.0f} ms, usual {1e3 * usual:.0f} ms;"
              f" asked {1e3 * asked:.0f} ms, ratio {most / asked:.2f}")  # fmt: skip
    small, large = (found[gpus] for gpus in ASKED)
    print(f"10 times the GPUs: {large / small:.1f} times the worst decision")
    return 0 if all(found[gpus] <= asked for gpus, asked in ASKED.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
