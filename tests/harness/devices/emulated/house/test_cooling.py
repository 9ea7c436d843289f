import math

import pytest

from rackproof.harness.devices.emulated.house.cooling import Design, cooling
from rackproof.harness.devices.emulated.house.parameters import shipped
from rackproof.harness.errors import SpecError


def part(kind="flc", heat=100e3, **changes):
    parameters = shipped().but({f"cooling.{name}": value for name, value in changes.items()})
    return cooling(kind, Design("rack0/cooling", heat, 25.0), parameters)


@pytest.mark.parametrize("kind", ["aalc", "flc"])
@pytest.mark.parametrize(("litres", "rise"), [(1.0, 15.1), (1.5, 10.1), (2.0, 7.5)])
def test_the_outlet_is_as_warm_as_the_flow_makes_it(kind, litres, rise):
    loop = part(kind, flow=litres)
    assert loop.outlet(100e3) - 25.0 == pytest.approx(rise, rel=0.02)
    assert loop.outlet(50e3) - 25.0 == pytest.approx(rise / 2, rel=0.02)
    loop.pumps(0.5)
    assert loop.outlet(50e3) - 25.0 == pytest.approx(rise, rel=0.02)


@pytest.mark.parametrize("kind", ["aalc", "flc"])
def test_what_is_over_the_capacity_warms_the_loop_and_is_worked_off(kind):
    loop = part(kind)
    for _ in range(100):
        loop.advance(loop.capacity, 1.0)
    assert loop.supply == 25.0
    for _ in range(60):
        loop.advance(loop.capacity + 20e3, 1.0)
    assert loop.supply - 25.0 == pytest.approx(20e3 * 60.0 / (3.96e6 * 0.080))
    for _ in range(60):
        loop.advance(loop.capacity - 20e3, 1.0)
    assert loop.supply == pytest.approx(25.0)
    loop.advance(0.0, 1000.0)
    assert loop.supply == 25.0


@pytest.mark.parametrize(
    ("kind", "share", "kw"),
    [("flc", 1.0, 110.0), ("flc", 0.5, 55.0), ("flc", 0.0, 0.0),
     ("aalc", 1.0, 120.0), ("aalc", 0.5, 60.0), ("aalc", 0.49, 40.0), ("aalc", 0.1, 20.0),
     ("aalc", 0.0, 0.0)],
)  # fmt: skip
def test_lost_pumps_cost_an_flc_its_share_and_an_aalc_whole_pods(kind, share, kw):
    loop = part(kind)
    loop.pumps(share)
    assert loop.capacity == pytest.approx(kw * 1000.0)


@pytest.mark.parametrize("kind", ["aalc", "flc"])
def test_without_flow_nothing_comes_back_and_the_loop_stays_cold(kind):
    loop = part(kind)
    loop.pumps(0.0)
    loop.advance(100e3, 60.0)
    assert loop.supply == 25.0
    assert math.isnan(loop.outlet(100e3))


def test_air_has_no_pumps_and_no_limit():
    fans = part("air")
    fans.advance(1e6, 100.0)
    assert (fans.capacity, fans.flow, fans.supply) == (math.inf, 1.0, 25.0)
    assert math.isnan(fans.outlet(1e3))
    with pytest.raises(SpecError, match="no pumps"):
        fans.pumps(0.5)


@pytest.mark.parametrize("share", [-0.1, 1.1, math.nan])
def test_a_share_that_is_none_is_refused(share):
    with pytest.raises(SpecError, match="0 to 1"):
        part().pumps(share)
