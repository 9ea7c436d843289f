"""Who gives how much: priorities, equal caps, several feeds, contracts."""

import numpy as np
import pytest

from rackproof.harness.power.dimmer import Dimmer, Job, Settings
from rackproof.harness.power.dimmer.demand import Draw, demand, solve
from rackproof.harness.power.dimmer.shape import shape
from rackproof.harness.power.dimmer.sharing import Rise, cut, rise
from rackproof.harness.power.zone import TOP, Layout

TREE = Layout(
    tuple(f"g{n}" for n in range(8)), ("main", "rack0", "rack1"),
    np.repeat([1, 2], 4), np.array([TOP, 0, 0]), np.zeros(3),
)  # fmt: skip


def job(name, places, priority=0, floor=200.0):
    return Job(name, np.array(places), priority, floor, 2.0)


def model(jobs, mean=900.0, high=1200.0):
    """Eight GPUs that draw high for (mean - low) / (high - low) of the time, low 120 W."""
    made = shape(TREE, jobs)
    full = np.full(8, 1200.0)
    draw = Draw(np.broadcast_to(np.asarray(mean, float), 8).copy(),
                np.broadcast_to(np.asarray(high, float), 8).copy(),
                full, full, np.full(8, 120.0), np.ones(8, bool))  # fmt: skip
    return made, demand(made, draw)


def shed(jobs, excess, floors=None, **more):
    made, load = model(jobs, **more)
    floors = np.array([one.floor for one in jobs]) if floors is None else floors
    found = cut(made, load, np.full(len(jobs), 1200.0), floors, np.array(excess, float))
    before = made.cells_up(load.power(np.full(len(jobs), 1200.0)[made.cell_job]))
    return found, before - made.cells_up(load.power(found.caps[made.cell_job]))


def test_a_cap_takes_away_its_share_of_the_time_and_no_more():
    _, load = model([job("a", range(8))])
    share = (900.0 - 120.0) / (1200.0 - 120.0)
    for cap in (1200.0, 1000.0, 500.0):
        there = load.power(np.full(2, cap))
        assert there == pytest.approx(np.full(2, 4 * (900.0 - share * (1200.0 - cap))))
    assert load.slope(np.full(2, 500.0)) == pytest.approx(np.full(2, 4 * share))


def test_the_cap_for_a_power_is_found_also_where_gpus_differ():
    made, load = model([job("a", range(8))], mean=[900, 900, 145, 145] * 2,
                       high=[1200, 1100, 145, 145] * 2)  # fmt: skip
    level = made.levels[-1]
    wanted = np.array([2500.0])
    caps = solve(load, level, wanted, (np.array([200.0]), np.array([1200.0])))
    assert load.power(np.full(2, caps[0])).sum() == pytest.approx(2500.0, abs=1.0)


def test_the_lowest_priority_gives_all_it_can_before_another_gives_anything():
    jobs = [job("low", [0, 1, 2, 3], 0, 600.0), job("high", [4, 5, 6, 7], 5, 600.0)]
    found, taken = shed(jobs, [1000.0, 0, 0])
    assert found.caps[1] == 1200.0
    assert found.caps[0] > 600.0
    assert taken[0] == pytest.approx(1000.0, abs=1.0)
    found, taken = shed(jobs, [2500.0, 0, 0])
    assert found.caps[0] == 600.0
    assert 600.0 < found.caps[1] < 1200.0
    assert taken[0] == pytest.approx(2500.0, abs=1.0)


def test_equal_priorities_give_the_same_share_of_what_they_can():
    jobs = [job("a", [0, 1]), job("b", [2, 3, 4, 5, 6, 7], 0, 700.0)]
    found, taken = shed(jobs, [1200.0, 0, 0])
    given = (1200.0 - found.caps) / (1200.0 - np.array([200.0, 700.0]))
    assert given[0] == pytest.approx(given[1], rel=1e-3)
    assert taken[0] == pytest.approx(1200.0, abs=1.0)


def test_a_job_over_two_racks_gets_one_cap_that_its_neediest_feed_sets():
    jobs = [job("wide", [2, 3, 4, 5])]
    _, taken = shed(jobs, [0.0, 300.0, 100.0])
    assert taken[1] == pytest.approx(300.0, abs=1.0)
    assert taken[2] == pytest.approx(300.0, abs=1.0)


def test_what_racks_gave_counts_for_the_main():
    jobs = [job("a", [0, 1, 2, 3]), job("b", [4, 5, 6, 7])]
    found, taken = shed(jobs, [400.0, 400.0, 0.0])
    assert taken[0] == pytest.approx(400.0, abs=1.0)
    assert found.caps[1] == 1200.0


def test_what_nobody_can_give_is_said_feed_by_feed():
    found, taken = shed([job("a", [0, 1, 2, 3], 0, 1000.0)], [0.0, 5000.0, 50.0])
    assert found.caps[0] == 1000.0
    assert found.unmet[1] == pytest.approx(5000.0 - taken[1])
    assert found.unmet[2] == 50.0  # no job there at all


def test_a_raise_goes_to_the_highest_priority_and_keeps_to_the_budget():
    jobs = [job("low", [0, 1, 2, 3], 0), job("high", [4, 5, 6, 7], 5)]
    made, load = model(jobs)
    caps, top = np.array([600.0, 600.0]), np.array([1200.0, 1200.0])
    ranks, may = np.array([0.0, 5.0]), np.ones(2, bool)
    share = (900.0 - 120.0) / (1200.0 - 120.0)

    def raised(watts):
        return rise(made, load, Rise(caps, top, may, 20.0), ranks,
                    np.array([watts, np.inf, np.inf]))  # fmt: skip

    assert raised(30.0) == pytest.approx([600.0, 600.0 + 30.0 / (4 * share)])
    # What the higher one may still need is kept for it: 600 W x share x 4.
    assert raised(4 * share * 600.0) == pytest.approx([600.0, 620.0])
    assert raised(4 * share * 660.0) == pytest.approx([620.0, 620.0])
    assert raised(-1.0) == pytest.approx(caps)
    assert raised(np.inf) == pytest.approx([620.0, 620.0])


def test_priority_holds_in_closed_loop_on_a_tree(plant, kit):
    feeds = kit.feeds(("main/power", "rack0/power", "rack1/power"), (None, "main/power",
                      "main/power"), (0.0, 4000.0, 4000.0), (0, 12, 12))  # fmt: skip
    jobs = [Job("low", np.arange(6), 0, 400.0, 2.0), Job("wide", np.arange(6, 18), 1, 400.0, 2.0),
            Job("high", np.arange(18, 24), 2, 400.0, 2.0)]  # fmt: skip
    hall = plant(feeds=feeds, jobs=jobs, loads=[kit.load(phase=p) for p in (0.0, 0.7, 1.4)])
    hall.run(16.0)
    _, mean = hall.means()
    limit = 0.75 * mean[-1]
    hall.limit("main/power", limit)
    hall.run(80.0)
    _, after = hall.means(window=12.0)
    assert 0.93 <= after[-1] / limit <= 0.97
    caps = [hall.caps(job)[1][-1] for job in range(3)]
    assert caps[0] == pytest.approx(400.0, abs=1.0)
    assert 400.0 < caps[1] < 1200.0
    assert caps[2] == 1200.0
    assert len(set(np.round(hall.asked[6:18], 6))) == 1  # one cap over two racks
    for _, asked in hall.asks:
        assert not (asked < 400.0 - 1e-6).any()


def test_an_upper_controller_gives_contracts_that_respect_priority_and_takes_them_back(plant, kit):
    feeds = kit.feeds(("main/power", "rack0/power", "rack1/power"), (None, "main/power",
                      "main/power"), (0.0, 4000.0, 4000.0), (0, 12, 12))  # fmt: skip
    jobs = [Job("low", np.arange(12), 0, 400.0, 2.0), Job("high", np.arange(12, 24), 2, 400.0, 2.0)]
    hall = plant(feeds=feeds, jobs=jobs, loads=[kit.load(), kit.load(phase=0.7)])
    hall.run(16.0)
    _, mean = hall.means()
    upper = Dimmer(hall.layout, hall.bounds, jobs, Settings(cycle=9.0, advises=True, up=1200.0), 1)
    leaf = hall.dimmer

    class Pair:
        def step(self, sample):
            assert np.isnan(upper.step(sample).caps).all()
            contracts = upper.contracts()
            contracts[0] = np.nan  # the leaf knows racks
            leaf.obey(contracts, upper.paces())
            return leaf.step(sample)

    hall.dimmer = Pair()
    hall.run(16.0)
    limit = 0.85 * mean[-1]
    upper.limit("main/power", limit, at=hall.now, why="a test")
    hall.run(90.0)
    _, after = hall.means(window=12.0)
    assert 0.90 <= after[-1] / limit <= 0.99
    assert hall.caps(0)[1][-1] < 1000.0
    assert hall.caps(1)[1][-1] == 1200.0
    assert upper.contracts()[1] < 0.85 * mean[-1]
    upper.limit("main/power", None, at=hall.now, why="over")
    hall.run(190.0)
    assert hall.caps(0)[1][-1] == 1200.0
    assert np.isnan(upper.contracts()).all()
