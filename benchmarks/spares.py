"""The spares simulation against SimPy on the same scenario: events a second, and their ratio.

In: nothing. Out: two rates of one run. Asked for: a million events a second, and a hundred times
SimPy's. An event is a failure or a repair.
"""

import sys
import time

import numpy as np
import simpy

from rackproof.diagnostics.sparing.simulate import Scenario, simulate

EVENTS, RATIO = 1e6, 100.0
SCENARIO = Scenario(10, 18, 2, 4 * 4.2e-5, 72.0, 8760.0)
TRIALS, WINDOWS, ROUNDS = 2000, 8, 3


def one_by_one(scenario: Scenario, draw: np.random.Generator) -> int:
    """Run one window event by event, as SimPy's users write it; return how many there were."""
    world, down, events = simpy.Environment(), [0] * scenario.racks, [0]
    below, since = [0.0] * scenario.racks, [0.0] * scenario.racks

    def change(rack: int, by: int) -> None:
        events[0] += 1
        if down[rack] > scenario.spare:
            below[rack] += world.now - since[rack]
        since[rack] = world.now
        down[rack] += by

    def unit(rack: int):  # noqa: ANN202 - a SimPy process
        while True:
            yield world.timeout(draw.exponential(1 / scenario.rate))
            change(rack, 1)
            yield world.timeout(draw.exponential(scenario.repair))
            change(rack, -1)

    for number in range(scenario.racks * scenario.units):
        world.process(unit(number // scenario.units))
    world.run(until=scenario.hours)
    return events[0]


def main() -> int:
    """Print both rates and the ratio; 1 where it is too low."""
    ours = theirs = 0.0
    for turn in range(ROUNDS):  # in turns, so that a noisy machine strikes both
        began = time.perf_counter()
        found = simulate(SCENARIO, TRIALS, np.random.default_rng(turn))
        ours = max(ours, found.events / (time.perf_counter() - began))
        draw = np.random.default_rng(100 + turn)
        began = time.perf_counter()
        count = sum(one_by_one(SCENARIO, draw) for _ in range(WINDOWS))
        theirs = max(theirs, count / (time.perf_counter() - began))
    print(f"simulation: {ours:.3g} events/s, {ours / EVENTS:.2f} of the {EVENTS:.0e} wanted")
    print(f"SimPy:      {theirs:.3g} events/s; ratio {ours / theirs:.0f}, wanted {RATIO:.0f}")
    return 0 if ours >= EVENTS and ours / theirs >= RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
