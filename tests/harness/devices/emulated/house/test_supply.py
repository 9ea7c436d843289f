import numpy as np
import pytest

from rackproof.harness.devices.emulated.house.parameters import shipped
from rackproof.harness.devices.emulated.house.plan import plan
from rackproof.harness.devices.emulated.house.stores import Store
from rackproof.harness.devices.emulated.house.supply import Inlet, Supply
from rackproof.harness.spec import load

DT = 0.001
FULL = 145_800.0


def supply(name="gb300-nvl72", charge=1.0):
    """Make a rack's supplies; a charge of None: without a battery."""
    rack = plan(load(name), shipped()).racks[0]
    bbu = Store(rack.bbu, charge) if rack.bbu and charge is not None else None
    return Supply(rack, Inlet.of(shipped()), 6, bbu)


def run(shelves, watts, seconds, at=0.0):
    return shelves.run(np.full(round(seconds / DT), float(watts)), at)


def words(shelves):
    return [what for _, what, _ in shelves.happened]


def when(shelves, word):
    return next(at for at, what, _ in shelves.happened if what == word)


def test_in_peace_the_mains_give_what_the_bus_needs():
    shelves = supply()
    assert run(shelves, FULL, 0.5) == pytest.approx(FULL)
    assert (words(shelves), shelves.calm, shelves.volts) == ([], True, 50.0)


@pytest.mark.parametrize("name", ["gb200-nvl72", "gb300-nvl72", "catalina", "hgx-h100"])
def test_a_short_sag_moves_no_load_and_resets_nobody(name):
    shelves = supply(name)
    shelves.mains = 0.7
    run(shelves, shelves.rack.greatest, 0.020)
    shelves.mains = 1.0
    run(shelves, shelves.rack.greatest, 2.0)
    assert words(shelves) == ["psu-rides-through"]
    assert shelves.calm
    assert shelves.bbu is None or shelves.bbu.charge == 1.0


@pytest.mark.parametrize("name", ["gb200-nvl72", "gb300-nvl72", "catalina"])
@pytest.mark.parametrize("share", [1.0, 0.4])
def test_a_longer_sag_is_carried_by_the_battery_within_4_ms(name, share):
    shelves = supply(name)
    shelves.mains = 0.7
    run(shelves, share * shelves.rack.greatest, 0.2)
    shelves.mains = 1.0
    run(shelves, share * shelves.rack.greatest, 3.0, 0.2)
    assert words(shelves) == ["bus-low", "bbu-carries", "bbu-rests"]
    assert when(shelves, "bbu-carries") - when(shelves, "bus-low") <= 0.004 + 1e-9
    assert shelves.bbu.charge < 1.0
    assert not shelves.dark


def test_without_a_battery_a_longer_sag_resets_the_gpus():
    shelves = supply("hgx-h100")
    shelves.mains = 0.7
    drawn = run(shelves, shelves.rack.greatest, 0.2)
    assert words(shelves) == ["gpu-reset"]
    assert shelves.dark
    assert drawn[-1] == 0.0
    assert 0.020 < when(shelves, "gpu-reset") < 0.060
    shelves.mains = 1.0
    shelves.restart()
    assert run(shelves, 1000.0, 0.1) == pytest.approx(1000.0)


def test_mains_that_are_back_before_the_hold_up_is_used_are_taken_at_once():
    shelves = supply("hgx-h100")
    shelves.mains = 0.7
    run(shelves, shelves.rack.greatest, 0.027)
    shelves.mains = 1.0
    assert run(shelves, shelves.rack.greatest, 1.0)[0] >= shelves.rack.greatest
    assert words(shelves) == ["psu-rides-through"]


def test_the_hold_up_lasts_20_ms_at_the_rating_without_mains():
    shelves = supply(charge=None)
    shelves.mains = 0.0
    run(shelves, shelves.rack.rated, 0.1)
    assert when(shelves, "gpu-reset") == pytest.approx(0.020, abs=0.0011)


def test_the_bus_is_low_when_its_share_of_the_hold_up_is_used():
    shelves = supply()
    shelves.mains = 0.0
    run(shelves, shelves.rack.rated, 0.1)
    assert when(shelves, "bus-low") == pytest.approx(0.020 * 1.5 / 4.0, abs=0.0011)


def test_without_mains_the_battery_rides_its_240_s_and_then_the_gpus_are_gone():
    shelves = supply()
    shelves.mains = 0.0
    rated, at = shelves.rack.rated, 0.0
    while not shelves.dark and at < 300.0:
        assert run(shelves, rated, 0.5, at).max() == 0.0
        at += 0.5
        if at == 120.0:
            assert shelves.bbu.charge == pytest.approx(0.5, rel=1e-3)
    assert when(shelves, "gpu-reset") == pytest.approx(240.0, rel=1e-3)
    assert words(shelves)[:2] == ["bus-low", "bbu-carries"]


@pytest.mark.parametrize(("charge", "calm"), [(1.0, True), (0.1, True), (0.001, False)])
def test_a_battery_that_is_nearly_empty_is_watched_closely(charge, calm):
    shelves = supply(charge=charge)
    shelves.mains = 0.0
    assert run(shelves, 100e3, 0.05).max() == 0.0
    assert words(shelves) == ["bus-low", "bbu-carries"]
    assert shelves.calm is calm


def test_when_the_mains_are_back_it_is_charged_at_a_bounded_rate():
    shelves = supply(charge=0.5)
    shelves.mains = 0.0
    run(shelves, 100e3, 1.0)
    shelves.mains = 1.0
    back = run(shelves, 100e3, 2.0, 1.0)
    assert np.diff(back).max() < 264e3 * DT * 1.01  # a ramp, no jump
    assert back.max() <= 100e3 + 0.10 * shelves.rack.rated + 1.0
    before = shelves.bbu.energy
    assert run(shelves, 100e3, 10.0, 3.0) == pytest.approx(100e3 + 0.05 * 142e3)
    assert shelves.bbu.energy - before == pytest.approx(0.05 * 142e3 * 10.0 * 0.95)


def test_the_others_take_the_load_of_a_lost_supply():
    shelves = supply()
    for _ in range(5):
        shelves.lose(3)
    assert shelves.capacity == pytest.approx(264e3 * 43 / 48)
    assert run(shelves, FULL, 0.1) == pytest.approx(FULL)
    for _ in range(5):
        shelves.lose(3)
    assert shelves.capacity == pytest.approx(264e3 * 42 / 48)


@pytest.mark.parametrize(("charge", "said"), [(1.0, "bbu-carries"), (None, "gpu-reset")])
def test_over_what_is_left_the_supplies_limit_and_the_battery_gives_the_rest(charge, said):
    shelves = supply(charge=charge)
    for shelf in range(4):
        for _ in range(6):
            shelves.lose(shelf)
    drawn = run(shelves, FULL, 3.0)
    assert drawn.max() <= 132e3 + 1e-6
    assert said in words(shelves)
    if charge:
        assert shelves.bbu.power == pytest.approx(FULL - 132e3, rel=1e-3)


def test_no_energy_comes_from_nowhere():
    shelves = supply()
    begin = shelves.bbu.energy
    shelves.mains = 0.0
    total = 0.0
    for seconds, mains in [(0.05, 0.0), (1.0, 0.7), (0.5, 0.0), (5.0, 1.0)]:
        shelves.mains = mains
        total += float(run(shelves, FULL, seconds).sum()) * DT
    from_battery = (begin - shelves.bbu.energy) * 0.95
    assert total + from_battery == pytest.approx(FULL * 6.55, rel=0.01)
