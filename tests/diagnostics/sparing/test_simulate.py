"""The simulation agrees with the closed forms, and with SimPy, which does the same one by one."""

import numpy as np
import pytest
import simpy

from rackproof.diagnostics.sparing.closed import (
    interval,
    poisson_at_most,
    unavailability,
    usable,
    useful,
)
from rackproof.diagnostics.sparing.plan import Demand, plan
from rackproof.diagnostics.sparing.simulate import Scenario, _below, demand, simulate

RATE, REPAIR = 4 * 4.2e-5, 72.0
ERRORS = 4.5  # standard errors; the seeds are fixed


def within(value, error, right) -> bool:
    return abs(value - right) <= ERRORS * error


@pytest.mark.parametrize("spare", [0, 1, 2])
@pytest.mark.parametrize("fixed", [False, True], ids=["exponential", "fixed"])
def test_availability_whatever_the_repairs_distribution(spare, fixed) -> None:
    scenario = Scenario(4, 18, spare, RATE, REPAIR, 20_000.0, fixed)
    found = simulate(scenario, 400, np.random.default_rng(7))
    right = usable(18, spare, unavailability(RATE, REPAIR))
    bias = REPAIR / scenario.hours * (1 - right)  # all units are up when a window begins
    assert abs(found.usable - right) <= ERRORS * found.usable_error + bias
    assert abs(found.all_usable - right**4) <= ERRORS * found.all_usable_error + 4 * bias
    up = 1 - unavailability(RATE, REPAIR)
    assert abs(found.failures - 72 * RATE * up * 20_000.0) <= ERRORS * found.failures_error + 1


def test_demand_is_poisson() -> None:
    asked = demand(0.653 / 720, 720.0, 40_000, np.random.default_rng(3))
    for stock in range(4):
        right = poisson_at_most(stock, 0.653)
        share = float((asked <= stock).mean())
        assert within(share, (right * (1 - right) / asked.size) ** 0.5, right)


def in_simpy(scenario: Scenario, draw) -> tuple[float, int]:
    """Return (share of rack-hours with enough units, failures) of one window, event by event."""
    world = simpy.Environment()
    down, since = [0] * scenario.racks, [0.0] * scenario.racks
    lost, failures = 0.0, 0

    def count(rack: int, change: int) -> None:
        nonlocal lost
        if down[rack] > scenario.spare:
            lost += world.now - since[rack]
        since[rack] = world.now
        down[rack] += change

    def unit(rack: int):
        nonlocal failures
        while True:
            yield world.timeout(draw.exponential(1 / scenario.rate))
            failures += 1
            count(rack, 1)
            yield world.timeout(draw.exponential(scenario.repair))
            count(rack, -1)

    for number in range(scenario.racks * scenario.units):
        world.process(unit(number // scenario.units))
    world.run(until=scenario.hours)
    for rack in range(scenario.racks):
        if down[rack] > scenario.spare:
            lost += scenario.hours - since[rack]
    return 1 - lost / (scenario.racks * scenario.hours), failures


def test_simpy_gives_the_same() -> None:
    scenario = Scenario(2, 18, 0, RATE, REPAIR, 3000.0)
    ours = simulate(scenario, 2000, np.random.default_rng(5))
    draw = np.random.default_rng(6)
    theirs = np.array([in_simpy(scenario, draw) for _ in range(120)])
    error = theirs.std(axis=0, ddof=1) / len(theirs) ** 0.5
    assert within(ours.usable, float(np.hypot(error[0], ours.usable_error)), theirs[:, 0].mean())
    assert within(
        ours.failures, float(np.hypot(error[1], ours.failures_error)), theirs[:, 1].mean()
    )


def test_the_ends_quiet_and_busy() -> None:
    quiet = simulate(Scenario(1, 3, 0, 1e-9, 1.0, 10.0), 50, np.random.default_rng(1))
    assert (quiet.usable, quiet.all_usable, quiet.outages, quiet.events) == (1.0, 1.0, 0.0, 0)
    busy = simulate(Scenario(1, 3, 1, 5.0, 100.0, 10.0), 50, np.random.default_rng(1))
    assert busy.usable < 0.2
    assert 1.0 <= busy.outages < 1.5


def naive(start, end, spare) -> tuple[float, int]:
    """Return (time with more than `spare` down, how often it begins), step by step."""
    steps = sorted([(t, 1) for t in start] + [(t, -1) for t in end])
    down = falls = 0
    below = last = 0.0
    for at, change in steps:
        below += (at - last) * (down > spare)
        falls += down == spare and change == 1
        down, last = down + change, at
    return below, falls


@pytest.mark.parametrize("spare", [0, 1, 2, 5, 40])
def test_times_below_are_those_of_a_walk_over_all_steps(spare) -> None:
    draw = np.random.default_rng(spare)
    for size in (0, 1, 2, 7, 30, 200):
        start = draw.uniform(0, 10, size)
        end = start + draw.exponential(1.0, size)
        begin, until, falls = _below(np.sort(start), np.sort(end), spare)
        below, count = naive(start, end, spare)
        assert (until - begin).sum() == pytest.approx(below)
        assert falls.sum() == count


def test_useful_time_by_renewal_agrees_with_a_job_run_failure_by_failure() -> None:
    failures, write, begin = 0.5, 0.02, 0.1
    gap = interval(write, failures)
    draw = np.random.default_rng(11)
    shares = []
    for _ in range(60):
        at = done = 0.0
        while at < 2000.0:
            until = draw.exponential(1 / failures)
            whole = int(until // (gap + write))
            done += whole * gap
            at += until + begin  # no failure strikes the restart, as in the formula
        shares.append(done / at)
    error = float(np.std(shares, ddof=1)) / len(shares) ** 0.5
    assert within(float(np.mean(shares)), error, useful(gap, write, begin, failures))


@pytest.mark.parametrize(
    ("racks", "days", "rate"),
    [(1, 30, 4.2e-5), (8, 30, 2e-5), (100, 7, 4.2e-5), (1, 0.5, 1e-7), (3000, 365, 1e-4)],
    ids=["one", "eight", "hall", "hardly-any", "very-many"],
)
def test_a_plan_agrees_with_its_own_simulation(racks, days, rate) -> None:
    wanted = Demand(racks, days, 18, 4, 2, rate, 0.3, 72.0, 0.99)
    table = plan(wanted, np.random.default_rng(72))
    assert table["agrees"]
    assert table == plan(wanted, np.random.default_rng(72))
    shares = [row["all_usable"] for row in table["in_rack"]]
    assert shares == sorted(shares)
    assert table["failures"] == pytest.approx(rate * 72 * racks * days * 24)
