import math

import numpy as np
import pynvml
import pytest

from rackproof.harness.devices.emulated.driver import matching_library
from rackproof.harness.devices.emulated.house.house import PowerHouse
from rackproof.harness.devices.nvml import Driver
from rackproof.harness.errors import SpecError
from rackproof.harness.spec import load

RACKS = ["gb200-nvl72", "gb300-nvl72", "catalina", "hgx-h100", "hgx-h200", "hgx-b200"]
FULL_TOY = 2000.0 + 8 * 1400.0


def cap(house, watts, gpus=slice(None)):
    house.rows["limit_requested_mw"][gpus] = round(watts * 1000)


def run(house, seconds, load=None):
    if load is not None:
        house.load[:] = load
    house.advance(seconds)
    return house.take()


@pytest.mark.parametrize("name", RACKS)
def test_every_shipped_rack_idles_and_works_in_peace(make, name):
    house = make(name)
    idle = run(house, 2.0)
    busy = run(house, 20.0, 0.9)
    assert (len(idle), len(busy)) == (20, 200)
    assert house.happened == []
    assert house.tripped == []
    first = len(house.layout.feeds) - len(house.plan.racks)
    for rack in house.plan.racks:
        place = first + rack.number
        drawn = busy[-1].mean[place]
        idles, most = house.bank.idle[0], house.bank.most[0]
        each = idles + 0.9 * (most - idles)
        assert drawn == pytest.approx(rack.fixed + rack.gpus * each, rel=1e-3)
        assert idle[-1].mean[place] == pytest.approx(rack.fixed + rack.gpus * idles, rel=1e-3)
    assert busy[-1].margin.min() > 10.0
    assert house.clock.now() == pytest.approx(22.0)


def test_a_rack_that_is_only_announced_is_refused(make):
    with pytest.raises(SpecError, match="uncappable_kw"):
        make("vr-nvl72")


def test_no_energy_is_lost_between_gpus_and_records(make):
    house = make("catalina")
    begin = house.rows["energy_mj"].astype(float)
    records = []
    rng = np.random.default_rng(2)
    for _ in range(20):
        cap(house, float(rng.uniform(300, 1200)))
        records += run(house, 0.35, rng.uniform(0.0, 1.0, 72))
    gpus = (house.rows["energy_mj"] - begin).sum() / 1000.0
    racks = sum((r.mean[3] + r.mean[4]) * 0.1 for r in records)
    assert racks == pytest.approx(gpus + 2 * 22_000.0 * 7.0, rel=1e-6)
    assert all((r.peak >= r.mean - 1e-6).all() for r in records)
    assert all((r.seen_peak >= r.seen - 1e-6).all() for r in records)


def test_what_the_stores_gave_is_the_difference_of_load_and_what_is_seen(make):
    house = make()
    for n in range(30):
        for record in run(house, 0.25, 1.0 if n % 2 else 0.2):
            out = dict(zip(house.stores, record.out, strict=True))
            at = {feed: n for n, feed in enumerate(house.layout.feeds)}
            rack, site = at["rack0/power"], at["site/power"]
            given = out["rack0/power/cbu"] + out["rack0/power/bbu"]
            assert record.mean[rack] - record.seen[rack] == pytest.approx(given, abs=1e-3)
            difference = record.mean[site] - record.seen[site]
            assert difference == pytest.approx(out["site/power/bess"], abs=1e-3)


def test_its_stores_are_those_of_its_file(make):
    assert make("hgx-h100").stores == ()
    ratings = make("gb300-nvl72").ratings
    assert list(ratings) == ["site/power/bess", "rack0/power/bbu", "rack0/power/cbu"]
    assert ratings["rack0/power/cbu"].energy == 4700.0


@pytest.mark.parametrize("field", ["limit_requested_mw", "limit_out_of_band_mw"])
def test_a_limit_in_band_or_out_of_band_is_kept(make, field):
    house = make()
    run(house, 2.0, 1.0)
    assert house.rows["power_instant_mw"] == pytest.approx(1.4e6, rel=0.01)
    house.rows[field][:4] = 900_000
    run(house, 3.0)
    assert house.rows["power_instant_mw"][:4] == pytest.approx(9e5, rel=0.01)
    assert house.rows["power_average_mw"][:4] == pytest.approx(9e5, rel=0.01)
    assert house.rows["power_instant_mw"][4:] == pytest.approx(1.4e6, rel=0.01)
    assert house.rows["event_reasons"].tolist() == [4] * 4 + [0] * 4
    capped = house.rows["throttled_power_ns"] / 1e9
    assert capped == pytest.approx([2.95] * 4 + [0.0] * 4, abs=1e-6)
    idle = house.bank.idle[0]
    slowed = ((900.0 - idle) / (1400.0 - idle)) ** 0.24
    spread = house.bank.makeup.spread
    assert house.speed == pytest.approx(spread * np.array([slowed] * 4 + [1.0] * 4), rel=1e-4)


def test_who_ignores_a_limit_is_not_capped(make):
    house = make()
    house.keeps_limit[2] = False
    cap(house, 700.0)
    run(house, 2.0, 1.0)
    watts = house.rows["power_instant_mw"] / 1000.0
    assert watts[2] == pytest.approx(1400.0, rel=0.01)
    assert np.delete(watts, 2) == pytest.approx(700.0, rel=0.01)


def test_rows_show_heat_and_clocks(make):
    house = make()
    run(house, 30.0, 1.0)
    rows = house.rows
    assert (rows["temperature_c"] == 65).all()
    assert (rows["memory_temperature_c"] == 69).all()
    assert (rows["margin_c"] == rows["gpu_max_c"] - 65).all()
    assert (rows["clock_mhz"][:, 1] == rows["clock_max_mhz"][:, 1]).all()
    assert (rows["util_gpu"] == 100).all()
    run(house, 30.0, 0.0)
    assert (rows["event_reasons"] == 1).all()
    assert (rows["clock_mhz"][:, 1] == 345).all()


def test_the_noise_is_the_seeds_and_the_dies_are_the_racks(make):
    one, same, other = make(seed=1), make(seed=1), make(seed=2)
    for house in (one, same, other):
        for n in range(8):
            run(house, 0.3, 1.0 if n % 3 else 0.1)
    assert one.rows.tobytes() == same.rows.tobytes()
    assert (one.rows["power_instant_mw"] != other.rows["power_instant_mw"]).any()
    assert (one.work == other.work).all()
    assert len(set(one.work.tolist())) == 8


def test_time_in_parts_is_the_time(make):
    whole, parts = make(), make()
    for house in (whole, parts):
        cap(house, 1000.0)
    run(whole, 3.0, 0.8)
    for seconds in (0.0004, 0.0008, 0.7, 0.2988, 1.0, 0.9999, 0.0001):
        run(parts, seconds, 0.8)
    assert parts.clock.now() == pytest.approx(whole.clock.now())
    assert parts.work == pytest.approx(whole.work, rel=1e-9)
    assert parts.bank.energy == pytest.approx(whole.bank.energy, rel=1e-9)


def test_meters_give_means_since_the_last_look(make):
    house = make()
    run(house, 5.0, 1.0)
    house.meter()
    for n in range(4):
        run(house, 0.5, n % 2)
    meters = house.meter()
    both = 2000.0 + 8 * (1400.0 + house.bank.idle[0]) / 2.0
    assert meters.feed[3] == pytest.approx(both, rel=0.01)
    assert meters.ac.all()
    assert meters.limit[3] == pytest.approx(1.05 * FULL_TOY)
    assert np.isinf(meters.trip_in).all()
    again = house.meter()  # with no time between
    assert np.isfinite(again.feed).all()


def test_records_come_at_their_grain_whatever_the_advances(make):
    house = make()
    for _ in range(7):
        house.advance(0.033)
    records = house.take()
    assert [round(r.at, 9) for r in records] == [0.1, 0.2]
    house.advance(0.1)
    assert [round(r.at, 9) for r in house.take()] == [0.3]


@pytest.mark.parametrize("seconds", [-0.1, math.nan, math.inf])
def test_time_goes_forward(make, seconds):
    with pytest.raises(ValueError, match="time"):
        make().advance(seconds)


@pytest.mark.parametrize("load", [-0.1, 1.1, math.nan])
def test_a_load_is_0_to_1(make, load):
    house = make()
    house.load[3] = load
    with pytest.raises(ValueError, match="0 to 1"):
        house.advance(0.1)


def test_what_nvml_sets_is_kept_and_nvml_reads_what_is_drawn(make):
    house = make("hgx-h100")
    driver = Driver.open(matching_library(), house.path)
    try:
        run(house, 5.0, 1.0)
        for number, gpu in enumerate(driver.handles()):
            pynvml.nvmlDeviceSetPowerManagementLimit(gpu, 400_000 + 10_000 * number)
        before = [pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) for gpu in driver.handles()]
        run(house, 1.0)
        run(house, 1.0)
        for number, gpu in enumerate(driver.handles()):
            watts = 400.0 + 10.0 * number
            drawn = pynvml.nvmlDeviceGetPowerUsage(gpu) / 1000.0
            assert drawn == pytest.approx(watts, rel=0.01)
            used = (pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu) - before[number]) / 1000.0
            assert used == pytest.approx(2.0 * watts + (700.0 - watts) * 0.125, rel=1e-3)
    finally:
        driver.close()


def test_rows_of_another_rack_are_refused(make):
    house = make("hgx-h100")
    with pytest.raises(SpecError, match="72 GPUs, and the driver 8"):
        PowerHouse(load("gb300-nvl72"), house.rows, 1)
