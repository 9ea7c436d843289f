import contextlib
import re

import numpy as np
import pytest

from rackproof.harness.devices.emulated.house import parameters
from rackproof.harness.devices.emulated.house.house import PowerHouse
from rackproof.harness.devices.emulated.house.parameters import MARKS, shipped
from rackproof.harness.devices.emulated.house.plan import plan
from rackproof.harness.devices.emulated.rack import EmulatedRack
from rackproof.harness.errors import SpecError
from rackproof.harness.spec import build, load

ENTRY = 'value = {value}, unit = "s", mark = "{mark}", source = "{source}"'


def one(value=1.0, mark="seen", source="a book", more=""):
    entry = ENTRY.format(value=value, mark=mark, source=source)
    return f"[bbu]\nride = {{ {entry}{more} }}\n"


def toy(power="", name="toy"):
    text = f"""
[rack]
name = "{name}"
source = "emulated"
[[tray]]
count = 2
gpus = 4
[gpu]
sku = "gb300"
[power]
{power}
"""
    return build(text.encode(), "toy.toml")


def test_every_figure_has_a_unit_a_mark_and_a_source():
    assert len(shipped().known) > 40
    for name, known in shipped().known.items():
        assert known.mark in MARKS, name
        assert known.unit, name
        assert known.source, name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bbu = {", "parameters.toml"),
        ("[bbu]\nride = 3", "bbu.ride: needs value"),
        (one(more=", more = 1"), "and no more"),
        (one(value="true"), "a number is due"),
        (one(value="nan"), "0 or more"),
        (one(value=-1), "0 or more"),
        (one(mark="guessed"), "a mark of"),
        (one(source=""), "a source"),
    ],
)
def test_an_entry_that_is_not_as_it_must_be_is_refused(text, said):
    with pytest.raises(SpecError, match=re.escape(said)):
        parameters.read(text)


def test_a_figure_can_be_changed_and_a_wrong_name_cannot():
    changed = shipped().but({"bbu.ride": 10})
    assert changed.number("bbu.ride") == 10.0
    assert changed.known["bbu.ride"].mark == "assumed"
    assert shipped().number("bbu.ride") == 240.0
    with pytest.raises(SpecError, match=r"bbu\.ridee.*did you mean"):
        shipped().but({"bbu.ridee": 10})
    with pytest.raises(SpecError, match="number"):
        shipped().but({"bbu.ride": "long"})


@pytest.mark.parametrize(
    ("name", "racks", "rated", "greatest", "cbu"),
    [
        ("gb200-nvl72", 1, 132e3, 131.4e3, 4680.0),
        ("gb300-nvl72", 1, 142e3, 145.8e3, 4700.0),
        ("catalina", 2, 70e3, 65.2e3, 2340.0),
        ("hgx-h100", 1, 1.05 * 10.2e3, 10.2e3, None),
    ],
)
def test_shipped_racks(name, racks, rated, greatest, cbu):
    built = plan(load(name), shipped())
    assert len(built.racks) == racks
    for rack in built.racks:
        assert rack.rated == pytest.approx(rated)
        assert rack.greatest == pytest.approx(greatest)
        assert (rack.cbu.energy if rack.cbu else None) == cbu
        if rack.bbu:
            assert rack.bbu.energy * rack.bbu.efficiency == pytest.approx(240.0 * rated)
    assert built.row == built.main == built.site == pytest.approx(1.1 * racks * rated)


def test_a_file_says_which_stores_there_are_and_how_large():
    spec = toy("uncappable_kw = 2\nbbu = 100\ncbu = true\nbess = 50")
    built = plan(spec, shipped())
    (rack,) = built.racks
    assert rack.bbu is not None
    assert rack.cbu is not None
    assert built.bess is not None
    assert (rack.bbu.energy, rack.cbu.energy, built.bess.energy) == (100e3, 8 * 65.0, 50e3)
    assert rack.rated == pytest.approx(1.05 * (2000.0 + 8 * 1400.0))
    assert rack.shelves == 0
    none = plan(toy("uncappable_kw = 2"), shipped())
    assert (none.racks[0].bbu, none.racks[0].cbu, none.bess) == (None, None, None)


def test_what_is_only_announced_is_refused_by_name():
    with pytest.raises(SpecError, match=r"vr-nvl72.*uncappable_kw.*power_default of a vr"):
        plan(load("vr-nvl72"), shipped())


@pytest.mark.parametrize(
    ("power", "missing"), [("", "uncappable_kw"), ("uncappable_kw = 2\nshelves = 2", "shelf_kw")]
)
def test_what_a_file_leaves_open_is_named(power, missing):
    with pytest.raises(SpecError, match=missing):
        plan(toy(power), shipped())


HOT = """
[rack]
name = "hot"
source = "emulated"
[[tray]]
count = 1
gpus = 4
[gpu]
sku = "gb300"
[power]
uncappable_kw = 2
[cooling]
kind = "flc"
[emulation]
"""


def build_house(tmp_path, lines):
    spec = build((HOT + lines).encode(), "hot.toml")
    with contextlib.closing(EmulatedRack.build(spec, 1, tmp_path / "state")) as rack:
        house = PowerHouse(spec, rack.driver.rows, 1)
        house.load[:] = 1.0
        house.advance(2.0)
        house.pumps("rack0", 0.5)
        house.advance(2.0)
        return house.meter().feed, house.bank.temperature


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("coolant_temperature = 95.0", "no heat goes that way"),
        ("coolant_temperature = 65.0", "no heat goes that way"),
        ("thermal_resistance = 0", "no heat goes that way"),
        ("coolant_temperature = 95.0\nthermal_resistance = 0.03", "no load can run"),
        ("power_idle = 0", "power_idle must be above 0"),
        ("power_default = 150\npower_idle = 150", "under power_default"),
        ("power_default = 0", "none: see"),
        ("power_min = -1000", "cannot be -1000"),
        ("power_min = 1e9", "cannot be 1000"),
        ("thermal_resistance = 1e9", "none: see"),
        ("coolant_temperature = -300", "none: see"),
    ],
)
def test_gpus_that_cannot_be_are_refused_by_the_files_name(tmp_path, lines, said):
    with pytest.raises(SpecError, match=f"hot.toml: .*{said}"):
        build_house(tmp_path, lines)


@pytest.mark.parametrize("celsius", [-10.0, 45.0, 60.0, 64.9])
def test_odd_coolant_that_can_be_leaves_all_of_it_finite(tmp_path, celsius):
    feed, temperature = build_house(tmp_path, f"coolant_temperature = {celsius}")
    assert np.isfinite(feed).all()
    assert np.isfinite(temperature).all()
    assert (temperature > celsius).all()
