"""Whatever happens to a house, and in whatever order, its figures stay what they can be."""

import random

import numpy as np
import pytest

from rackproof.harness.devices.emulated.house.workload import Work, Workload

EVENTS = 50


def strike(house, jobs, draw):
    """Let one thing happen, or none."""
    feeds, racks = house.layout.feeds, [rack.feed for rack in house.plan.racks]
    feed, rack = draw.choice(feeds), draw.choice(racks)
    load = float(house.meter().feed.max())
    acts = [
        lambda: house.limit(feed, draw.choice([None, draw.uniform(0.6, 1.2) * load + 1.0])),
        lambda: house.lose_ac(feed),
        lambda: [house.return_ac(each) for each in feeds],
        lambda: [house.return_ac(each) for each in feeds],
        lambda: house.sag(feed, draw.random(), draw.choice([0.02, 0.05, 0.3, 2.0])),
        lambda: house.lose_supply(f"{rack}/shelf{draw.randrange(8)}"),
        lambda: house.pumps(rack.partition("/")[0], draw.choice([0.0, 0.2, 0.5, 1.0])),
        lambda: house.rows["limit_requested_mw"].fill(draw.randrange(200, 1400) * 1000),
        lambda: draw.choice([jobs.pause, jobs.resume])("training"),
        lambda: house.restart(feed),
        lambda: None,
    ]
    draw.choice(acts)()


def check(house, before):
    """Hold what has been recorded, and what stands now, against what can be."""
    for record in house.take():
        for name in ("mean", "peak", "seen", "seen_peak", "charge", "out", "margin", "strain"):
            assert np.isfinite(getattr(record, name)).all(), name
        assert (record.peak >= record.mean - 1e-6).all()
        assert (record.seen >= -1e-6).all()
        assert ((record.charge >= 0.0) & (record.charge <= 1.0)).all()
        assert ((record.strain >= 0.0) & (record.strain <= 1.0)).all()
        most = [rating.power for rating in house.ratings.values()]
        assert (np.abs(record.out) <= np.array(most) * (1.0 + 1e-9)).all()
    energy, work = before
    assert (house.bank.energy >= energy).all()
    assert (house.work >= work).all()
    assert (house.bank.power <= house.bank.most + 1e-6).all()
    assert (house.bank.temperature <= house.bank.slowdown + 15.0).all()
    assert (house.rows["power_average_mw"] <= 1.01 * house.bank.most * 1000.0).all()
    meters = house.meter()
    assert (meters.feed >= 0.0).all()
    assert (meters.limit > 0.0).all()
    assert not np.isnan(meters.trip_in).any()


@pytest.mark.parametrize("name", ["gb300-nvl72", "catalina"])
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_events(make, name, seed):
    house, draw = make(name), random.Random(seed)
    jobs = Workload(
        house,
        [
            Work("training", np.arange(40), 1.2, 0.3, 0.5),
            Work("batch", np.arange(40, 70), 0.9, 0.2, 0.4),
        ],
    )
    last = 0.0
    for _ in range(EVENTS):
        strike(house, jobs, draw)
        before = house.bank.energy.copy(), house.work.copy()
        steps = jobs.advance(draw.uniform(0.0, 1.0))
        check(house, before)
        for step in steps:
            assert step.end > step.begin
            assert step.end >= last
            last = step.end
