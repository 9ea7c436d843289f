"""How long the emulated electrical house takes: 72 GPUs, 60 s of virtual time at a tick of 1 ms.

In: nothing. Out: seconds of one core, as a share of the 2.5 s that are asked for, and of what a
plain loop over the ticks takes in the same run. The loop has one array a quantity and does less:
no dead times, no excursions, no meters, records or rows, one store and one breaker. A share of the
asked time above 1 ends with 1.
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from rackproof.harness.devices.emulated.governor import TAU_CAP_S, TAU_POWER_S
from rackproof.harness.devices.emulated.house.bank import TICK_S
from rackproof.harness.devices.emulated.house.house import PowerHouse
from rackproof.harness.devices.emulated.house.workload import Work, Workload
from rackproof.harness.devices.emulated.physics import TAU_HEAT_S
from rackproof.harness.devices.emulated.rack import EmulatedRack
from rackproof.harness.spec import load

RACK, SECONDS, ASKED_S, ROUNDS = "gb300-nvl72", 60.0, 2.5, 3
PERIOD, BUSY = 2000, 1400
"""Ticks of the loop's square wave, and how many of them are loaded."""
LOOPED_S = 3.0
"""Virtual seconds of the loop, which is then scaled to SECONDS."""


def best(run: Callable[[], None]) -> float:
    """Return the seconds of this process's core that the best of ROUNDS runs took."""
    times = []
    for _ in range(ROUNDS):
        begun = time.process_time()
        run()
        times.append(time.process_time() - begun)
    return min(times)


def caps(house: PowerHouse, rows: np.ndarray, watts: float) -> None:
    """Cap all GPUs and let half a second pass, as a controller does."""
    rows["limit_requested_mw"] = round(watts * 1000.0)
    house.advance(0.5)


def tick_by_tick(house: PowerHouse) -> None:
    """Do the house's physics for LOOPED_S the plain way: step by step, all GPUs in an array."""
    bank, rack = house.bank, house.plan.racks[0]
    power, heat, ceiling = bank.power, bank.temperature, bank.most
    energy, work, stored, given, mean, strain = np.zeros(72), np.zeros(72), 0.5, 0.0, 0.0, 0.0
    limit, span, racks = bank.most * 0.8, bank.most - bank.idle, []
    for tick in range(round(LOOPED_S / TICK_S)):
        ask = bank.idle + span * (1.0 if tick % PERIOD < BUSY else 0.35)
        ceiling = ceiling + (limit - ceiling) * TICK_S / TAU_CAP_S
        drive = np.minimum(ask, ceiling)
        power = power + (drive - power) * TICK_S / TAU_POWER_S
        heat = heat + (bank.coolant + bank.healthy * power - heat) * TICK_S / TAU_HEAT_S
        slow = np.where(heat > bank.slowdown, 0.5, 1.0)
        speed = slow * np.minimum((np.minimum(drive, ask) - bank.idle) / (ask - bank.idle), 1.0)
        energy += power * TICK_S
        work += speed**0.24 * TICK_S
        watts = rack.fixed + float(power.sum())
        mean += (watts - mean) * TICK_S
        given += 0.5 * (min(max(watts - mean, -72e3), 72e3) - given)
        stored = min(max(stored - given * TICK_S, 0.0), 4700.0)
        over = max(watts / rack.rated - 1.0, 0.0)
        strain += TICK_S * over**2.04 / 9.22 if over else -strain * TICK_S / 120.0
        racks.append(watts - given)


def house_and_loop() -> bool:
    """Run both and print the times; say whether the house is within what is asked."""
    spec = load(RACK)
    with tempfile.TemporaryDirectory() as folder:
        rack = EmulatedRack.build(spec, 7, Path(folder) / "state")
        rows = rack.driver.rows
        house = PowerHouse(spec, rows, 7)
        works = [
            Work("training", np.arange(48), 1.2, 0.3, 0.5),
            Work("batch", np.arange(48, 72), 0.9, 0.2, 0.4),
        ]
        jobs = Workload(house, works)
        took = best(lambda: jobs.advance(SECONDS) and None)
        rng = np.random.default_rng(1)
        capped = best(
            lambda: [caps(house, rows, float(w)) for w in rng.uniform(500, 1400, 120)] and None
        )
        loop = best(lambda: tick_by_tick(house)) * SECONDS / LOOPED_S
        rack.close()
    for what, seconds in (("two jobs", took), ("a new cap every 0.5 s", capped)):
        shares = f"{seconds / ASKED_S:6.3f} of what is asked, {seconds / loop:6.3f} of a loop"
        print(f"{len(spec.gpus)} GPUs x {SECONDS:g} s, {what:<22} {seconds:6.3f} s, {shares}")
    print(f"the loop over ticks {loop:33.3f} s, {loop / ASKED_S:6.3f} of what is asked")
    return max(took, capped) <= ASKED_S


def main() -> int:
    """Return 1 where anything takes longer than it may."""
    return 0 if house_and_loop() else 1


if __name__ == "__main__":
    sys.exit(main())
