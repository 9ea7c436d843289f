import math

import numpy as np
import pytest

from rackproof.harness.devices.emulated.house.house import PowerHouse
from rackproof.harness.errors import SpecError
from rackproof.harness.spec import load

RACKS = ["gb200-nvl72", "gb300-nvl72", "catalina", "hgx-h100", "hgx-h200", "hgx-b200"]
FULL_TOY = 2000.0 + 8 * 1400.0


def words(house):
    return [what for _, what, _ in house.happened]


def when(house, word):
    return next(at for at, what, _ in house.happened if what == word)


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


def test_a_limit_under_the_load_trips_when_the_formula_says(make):
    house = make(power="")
    run(house, 5.0, 1.0)
    house.limit("rack0/power", FULL_TOY / 1.17)
    house.meter()
    run(house, 1.0)
    meters = house.meter()
    assert meters.trip_in[3] == pytest.approx(341.0, rel=0.01)
    assert meters.limit[3] == pytest.approx(FULL_TOY / 1.17)
    while not house.tripped and house.clock.now() < 400.0:
        last = run(house, 1.0)[-1]
    assert house.tripped == ["rack0/power"]
    assert when(house, "breaker-tripped") == pytest.approx(5.0 + 342.0, rel=0.01)
    assert last.strain[3] == 1.0
    work = house.work.copy()
    dark = run(house, 1.0)[-1]
    assert dark.mean[3] == dark.seen[0] == 0.0
    assert (house.rows["power_instant_mw"] == 0).all()
    assert (house.work == work).all()
    assert house.dark.all()
    assert not house.meter().ac[3]
    house.limit("rack0/power", None)
    house.restart("rack0/power")
    run(house, 2.0, 0.0)
    assert house.tripped == []
    assert house.rows["power_average_mw"] == pytest.approx(house.bank.idle * 1e3, rel=0.02)


def test_a_trip_above_takes_every_rack_below_away(make):
    house = make("catalina")
    run(house, 1.0, 1.0)
    house.limit("main/power", 60_000.0)
    while not house.tripped and house.clock.now() < 60.0:
        run(house, 0.5)
    assert house.tripped == ["main/power"]
    assert house.dark.all()
    assert house.meter().ac.tolist() == [True, False, False, False, False]


def test_without_mains_the_battery_carries_and_is_charged_again(make):
    house = make("gb300-nvl72")
    run(house, 3.0, 0.8)
    house.lose_ac("rack0/power")
    lost = run(house, 30.0)
    meters = house.meter()
    assert set(words(house)) == {"bus-low", "bbu-carries", "bess-charges"}
    assert when(house, "bbu-carries") - when(house, "bus-low") <= 0.004 + 1e-9
    assert meters.ac.tolist() == [True, True, True, False]
    assert meters.limit[3] == pytest.approx(142e3)
    assert lost[-1].seen[3] == lost[-1].mean[2] == 0.0
    assert lost[-1].mean[3] > 100e3
    battery = house.stores.index("rack0/power/bbu")
    drawn = lost[-1].mean[3]
    assert lost[-1].charge[battery] == pytest.approx(1.0 - drawn * 30.0 / (142e3 * 240.0), rel=0.01)
    house.return_ac("rack0/power")
    back = run(house, 20.0)
    assert "bbu-rests" in words(house)
    assert not house.dark.any()
    assert house.meter().ac.all()
    assert back[-1].seen[3] - back[-1].mean[3] == pytest.approx(0.05 * 142e3, rel=0.3)
    assert back[-1].charge[battery] > lost[-1].charge[battery]


def test_mains_that_are_lost_at_the_site_are_lost_in_every_rack(make):
    house = make("catalina")
    run(house, 1.0, 0.5)
    house.lose_ac("site/power")
    run(house, 2.0)
    assert not house.meter().ac.any()
    assert [s for _, what, s in house.happened if what == "bbu-carries"] == [
        "rack0/power", "rack1/power",
    ]  # fmt: skip
    house.return_ac("site/power")
    house.lose_ac("rack1/power")
    run(house, 5.0)
    assert house.meter().ac.tolist() == [True, True, True, True, False]


@pytest.mark.parametrize("name", ["gb200-nvl72", "gb300-nvl72", "catalina"])
def test_a_sag_of_20_ms_moves_no_load_and_a_longer_one_is_carried(make, name):
    house = make(name)
    run(house, 3.0, 1.0)
    house.sag("rack0/power", 0.7, 0.020)
    run(house, 2.0)
    assert "psu-rides-through" in words(house)
    assert not {"bus-low", "bbu-carries", "gpu-reset"} & set(words(house))
    house.sag("rack0/power", 0.7, 0.2)
    run(house, 3.0)
    assert when(house, "bbu-carries") - when(house, "bus-low") <= 0.004 + 1e-9
    assert "gpu-reset" not in words(house)
    assert not house.dark.any()


def test_a_longer_sag_resets_gpus_that_have_no_battery(make):
    house = make("hgx-h100")
    run(house, 3.0, 1.0)
    house.sag("rack0/power", 0.7, 0.020)
    run(house, 1.0)
    assert words(house) == ["psu-rides-through"]
    house.sag("rack0/power", 0.7, 0.2)
    run(house, 1.0)
    assert words(house) == ["psu-rides-through", "gpu-reset"]
    assert house.dark.all()
    house.restart("rack0/power")
    run(house, 1.0, 1.0)
    assert not house.dark.any()


def test_lost_supplies_are_the_limit_once_they_carry_less_than_the_feed(make):
    house = make("gb300-nvl72")
    for number in range(3):
        house.lose_supply("rack0/power/shelf2")
        run(house, 0.5, 1.0)
        assert house.meter().limit[3] == pytest.approx(142e3), number
    for shelf in range(5):
        for _ in range(6):
            house.lose_supply(f"rack0/power/shelf{shelf}")
    assert house.meter().limit[3] == pytest.approx(264e3 * 18 / 48)
    run(house, 2.0)
    assert "bbu-carries" in words(house)


def test_without_coolant_the_gpus_are_held_at_their_slowdown(make):
    house = make()
    run(house, 30.0, 1.0)
    house.pumps("rack0", 0.0)
    stated = house.meter().limit[3]
    assert 2000.0 < stated < 0.4 * FULL_TOY
    begin = house.clock.now()
    while not house.bank.throttled.any() and house.clock.now() < begin + 60.0:
        run(house, 0.5)
    assert 6.0 < house.clock.now() - begin < 20.0
    last = run(house, 5.0)[-1]
    assert words(house).count("slowdown") == 8
    assert last.margin.min() == pytest.approx(87.0 - 89.0, abs=0.1)
    assert (house.rows["event_reasons"] & 0x48 == 0x48).all()
    assert (house.speed < 0.8).all()
    house.pumps("rack0/cooling", 1.0)
    run(house, 30.0)
    assert (house.rows["temperature_c"] == 65).all()
    assert house.meter().limit[3] == pytest.approx(1.05 * FULL_TOY)


@pytest.mark.parametrize("cooling", ["aalc", "flc"])
def test_under_the_load_that_its_cooling_states_nobody_is_slowed_down(make, cooling):
    house = make(cooling=cooling)
    run(house, 10.0, 1.0)
    house.pumps("rack0", 0.4)
    stated = house.meter().limit[3]
    assert stated < FULL_TOY
    cap(house, max(200.0, (stated - 2000.0) / 8))
    run(house, 150.0)
    assert not house.bank.throttled.any()
    cap(house, 1400.0)
    run(house, 150.0)
    assert house.bank.throttled.all()


def test_the_site_store_smooths_what_the_utility_sees(make):
    rises, ramps = {}, {}
    for power in ("bess = true", ""):
        house = make(power=power)
        before = run(house, 120.0, 0.4)[-1]
        records = run(house, 1.5, 1.0)
        step = 0.6 * 8 * (1400.0 - house.bank.idle[0])
        assert records[-1].mean[0] - before.mean[0] == pytest.approx(step, rel=0.01)
        rises[power] = (records[-1].seen[0] - before.seen[0]) / step
        ramps[power] = max(record.ramp for record in records)
        assert ramps[power] * 0.1 >= 0.5 * step  # nobody is faster than 180 ms
    assert rises[""] == pytest.approx(1.0, rel=0.01)
    assert 0.0 < rises["bess = true"] < 0.1


def test_stores_say_that_they_respond_to_what_happens(make):
    house = make("gb300-nvl72")
    run(house, 5.0, 0.6)
    house.limit("rack0/power", 120e3)
    run(house, 2.0, 1.0)
    assert {"cbu-responds", "bess-discharges"} <= set(words(house))
    assert words(house).count("cbu-responds") == 1
    house.limit("rack0/power", None)
    run(house, 60.0, 1.0)
    house.limit("rack0/power", 130e3)
    run(house, 2.0, 0.2)
    assert "bess-charges" in words(house)


def test_records_come_at_their_grain_whatever_the_advances(make):
    house = make()
    for _ in range(7):
        house.advance(0.033)
    records = house.take()
    assert [round(r.at, 9) for r in records] == [0.1, 0.2]
    house.advance(0.1)
    assert [round(r.at, 9) for r in house.take()] == [0.3]


@pytest.mark.parametrize(
    ("act", "said"),
    [
        (lambda house: house.limit("rack0/powr", 1.0), "did you mean rack0/power"),
        (lambda house: house.limit("rack0/power", 0.0), "rated"),
        (lambda house: house.lose_ac("rack9/power"), "no feed"),
        (lambda house: house.sag("rack0/power", 1.5, 1.0), "0 to 1"),
        (lambda house: house.sag("rack0/power", 0.5, math.nan), "seconds"),
        (lambda house: house.lose_supply("rack0/power/shelf0"), "no shelf"),
        (lambda house: house.pumps("rack7", 0.5), "no rack"),
        (lambda house: house.pumps("rack0", -1.0), "0 to 1"),
        (lambda house: house.restart("here"), "no feed"),
    ],
)
def test_what_makes_no_sense_is_refused(make, act, said):
    with pytest.raises(SpecError, match=said):
        act(make())


@pytest.mark.parametrize("seconds", [-0.1, math.nan, math.inf])
def test_time_goes_forward(make, seconds):
    with pytest.raises(ValueError, match="time"):
        make().advance(seconds)


def test_rows_of_another_rack_are_refused(make):
    house = make("hgx-h100")
    with pytest.raises(SpecError, match="72 GPUs, and the driver 8"):
        PowerHouse(load("gb300-nvl72"), house.rows, 1)
