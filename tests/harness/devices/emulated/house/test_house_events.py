import math

import pytest

from rackproof.harness.errors import SpecError

FULL_TOY = 2000.0 + 8 * 1400.0


def words(house):
    return [what for _, what, _ in house.happened]


def when(house, word):
    return next(at for at, what, _ in house.happened if what == word)


def cap(house, watts):
    house.rows["limit_requested_mw"] = round(watts * 1000)


def run(house, seconds, load=None):
    if load is not None:
        house.load[:] = load
    house.advance(seconds)
    return house.take()


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
    assert (house.speed == 0.0).all()
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
    lost = run(house, 2.0)
    assert not house.meter().ac.any()
    assert lost[-1].seen[0] == 0.0  # nor does its own store draw from there
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
    assert house.carries("rack0/power") == stated
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


@pytest.mark.parametrize(("cooling", "share"), [("aalc", 0.25), ("flc", 0.4)])
def test_under_the_load_that_its_cooling_states_nobody_is_slowed_down(make, cooling, share):
    house = make(cooling=cooling)
    run(house, 10.0, 1.0)
    house.pumps("rack0", share)
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


def test_a_sag_that_the_inputs_bear_is_no_trouble(make):
    house = make()
    run(house, 1.0, 1.0)
    house.sag("rack0/power", 0.9, 30.0)
    assert run(house, 10.0)[-1].seen[3] == pytest.approx(FULL_TOY, rel=0.01)
    run(house, 25.0)
    assert "psu-rides-through" in words(house)
    assert "bus-low" not in words(house)


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
