"""A campus: its plan, its electricity against closed forms, an event and its recovery."""

import dataclasses
import json

import numpy as np
import pytest

from rackproof.harness.errors import SpecError
from rackproof.harness.power.campus import Wanted, _under, simulate
from rackproof.harness.power.campus_house import CampusHouse, speed
from rackproof.harness.power.campus_plan import LEVELS, figure, plan, table

SMALL = 7200


@pytest.fixture(scope="module")
def event():
    return simulate(Wanted(SMALL, seed=1))


def test_every_parameter_has_unit_mark_and_source():
    for group in table().values():
        for name, row in group.items():
            assert set(row) == {"value", "unit", "mark", "source"}, name
            assert row["mark"] in ("seen", "computed", "assumed"), name


@pytest.mark.parametrize("gpus", [72, 100, SMALL, 50_000])
def test_a_plan_is_a_tree_with_each_level_oversubscribed(gpus):
    campus = plan(gpus, 4)
    feeds, parent = campus.layout.feeds, campus.layout.parent
    assert len(campus.layout.gpus) == gpus
    assert (campus.level == len(LEVELS) - 1).sum() == -(-gpus // 72)
    for depth in range(len(LEVELS) - 1):
        for feed in np.flatnonzero(campus.level == depth):
            below = campus.limit[parent == feed]
            assert campus.limit[feed] == pytest.approx(
                below.sum() * figure("level", LEVELS[depth])
            ), feeds[feed]
    assert np.bincount(campus.layout.feed_of, minlength=len(feeds)).max() <= 72
    sizes = [len(job.gpus) for job in campus.jobs]
    assert sum(sizes) <= gpus
    assert len(np.unique(np.concatenate([job.gpus for job in campus.jobs]))) == sum(sizes)


def test_the_same_seed_gives_the_same_campus_and_another_one_another():
    first, again, other = plan(SMALL, 5), plan(SMALL, 5), plan(SMALL, 6)
    assert (first.job_of == again.job_of).all()
    assert (first.scale == again.scale).all()
    assert (first.scale != other.scale).mean() > 0.9


@pytest.mark.parametrize("gpus", [-1, 0, 71, 10**9])
def test_a_number_that_is_none_of_a_campus_is_refused(gpus):
    with pytest.raises(SpecError, match=r"--gpus: -?\d+: a campus has 72"):
        plan(gpus, 1)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"event": "demand-respond"}, "did you mean demand-response"), ({"event": ""}, "--event"),
     ({"cut": 0.0}, "--cut"), ({"cut": 1e-9}, "0.001 to 0.6"), ({"cut": 0.9}, "--cut"),
     ({"cut": float("nan")}, "--cut")],
)  # fmt: skip
def test_an_event_that_is_none_is_refused(given, said):
    with pytest.raises(SpecError, match=said):
        Wanted(**given)


def test_the_speed_law_at_its_anchor():
    # 1200 to 1000 W: -5 % speed.
    assert speed(np.array([1000.0, 1200.0, 1500.0]), np.array(1200.0), 145.0, 0.24) == (
        pytest.approx([0.95, 1.0, 1.0], abs=0.002)
    )


def test_a_cycle_obeys_the_draws_and_adds_up():
    campus = plan(SMALL, 2)
    house = CampusHouse(campus, 2)
    free = house.advance(3.0)
    layout = campus.layout
    assert free.feed[0] == pytest.approx(free.gpu.sum() + layout.fixed.sum())
    assert free.rate == pytest.approx(np.ones(len(campus.jobs)))
    idle = campus.job_of < 0
    assert (free.gpu[idle] == figure("gpu", "idle")).all()
    house.ask(np.full(SMALL, 700.0))
    capped = house.advance(3.0)
    job = 0
    compute, high = campus.draws.compute[job], campus.draws.high[job]
    clock = ((700.0 - 145.0) / (high - 145.0)) ** 0.24
    step = compute / clock + 1.0 - compute
    assert capped.rate[job] == pytest.approx(1.0 / step)
    drawn = (compute / clock * 700.0 + (1.0 - compute) * campus.draws.low[job]) / step
    found = capped.gpu[campus.jobs[job].gpus].mean()
    assert found == pytest.approx(drawn, rel=0.03)  # noise and dies


def test_a_breaker_is_strained_by_its_curve_and_cools():
    campus = plan(72, 1)
    house = CampusHouse(campus, 1)
    rack = len(campus.limit) - 1
    house.limit = np.where(np.arange(rack + 1) == rack, house.up(np.full(72, 1000.0)) / 1.2, 1e12)
    net = house.up(np.full(72, 1000.0))
    house._strain(net, 3.0)
    assert house.strain[rack] == pytest.approx(3.0 * 0.2**2.04 / 9.22)
    assert house._trip_in(net)[rack] == pytest.approx(9.22 / 0.2**2.04 - 3.0)
    before = house.strain[rack]
    house._strain(net * 0.5, 60.0)
    assert house.strain[rack] == pytest.approx(before * np.exp(-60.0 / 120.0))


def test_batteries_give_what_the_utility_lacks_within_their_rating():
    campus = plan(SMALL, 1)
    house = CampusHouse(campus, 1)
    feed = house.up(np.full(SMALL, 900.0))
    house.limit[0] = feed[0] - 0.5 * house.bess_power
    assert house._batteries(feed, 3.0)[0] == pytest.approx(house.limit[0])
    assert house.bess_full - house.bess == pytest.approx(1.5 * house.bess_power)
    house.limit[0] = feed[0] - 2.0 * house.bess_power
    assert house._batteries(feed, 3.0)[0] == pytest.approx(feed[0] - house.bess_power)
    house.bess = 0.0
    assert house._batteries(feed, 3.0)[0] == pytest.approx(feed[0])


def test_an_event_is_kept_and_all_is_given_back(event):
    assert event.held
    assert event.under is not None
    assert event.under <= 60.0
    assert event.limit == pytest.approx(0.8 * event.peak, rel=0.01)
    assert 0.93 <= event.settled <= 0.97
    assert max(level.strain for level in event.levels) <= 0.25
    assert event.rebound <= 1.02
    assert not event.alarms


def test_goodput_is_lost_by_the_lowest_priority_first_and_less_than_power(event):
    lost = [row.lost for row in event.classes]
    assert lost[0] > 0.05
    assert lost[0] >= lost[-1]
    assert event.lost == pytest.approx(
        sum(row.lost * row.gpus for row in event.classes) / sum(row.gpus for row in event.classes)
    )
    assert event.lost < 0.2
    assert event.energy_not_used == pytest.approx(sum(row.megawatt_hours for row in event.classes))


def test_without_an_event_nothing_is_lost():
    quiet = simulate(Wanted(SMALL, event="none", seed=1))
    assert quiet.held
    assert quiet.limit is quiet.under is quiet.settled is None
    assert quiet.lost == pytest.approx(0.0, abs=1e-9)


def test_a_cut_under_all_floors_is_not_held_and_says_so():
    deep = simulate(Wanted(720, cut=0.6, seed=1))
    assert not deep.held
    assert any("cannot come under" in text for text in deep.alarms)
    assert not deep.reserve


def test_a_limit_that_is_kept_without_its_reserve_says_which_of_the_two(event):
    tight = simulate(Wanted(1283, cut=0.28, seed=7))
    assert tight.held
    assert 0.97 < tight.settled < 1.0
    assert not tight.reserve
    assert any("cannot come to its target, 95% of its limit" in text for text in tight.alarms)
    assert not any("under its limit" in text for text in tight.alarms)
    assert event.reserve


def test_a_limit_that_is_passed_again_at_the_end_is_not_held():
    load = np.array([(at, 90.0) for at in range(3, 601, 3)], float)
    assert _under(load, 100.0, 0.0, 600.0) == 0.0
    load[-1, 1] = 101.0
    assert _under(load, 100.0, 0.0, 600.0) is None
    load[-1, 1], load[100, 1] = 90.0, 101.0
    assert _under(load, 100.0, 0.0, 600.0) == 303.0


def test_the_same_seed_gives_the_same_answer_and_plain_json(event):
    again = simulate(Wanted(SMALL, seed=1))
    assert again == event
    assert json.loads(json.dumps(event.as_json()))["racks"] == 100
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.held = False


def test_it_tells_how_far_it_is():
    heard = []
    simulate(Wanted(72, seed=1), heard.append)
    assert heard == sorted(heard)
    assert heard[-1] == pytest.approx(1.0)
