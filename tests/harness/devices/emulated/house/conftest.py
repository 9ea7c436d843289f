"""Houses over emulated drivers of shipped racks, or of a small one of our own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rackproof.harness.devices.emulated.house.house import PowerHouse
from rackproof.harness.devices.emulated.house.parameters import shipped
from rackproof.harness.devices.emulated.rack import EmulatedRack
from rackproof.harness.spec import RackSpec, build, load

Make = Callable[..., PowerHouse]
STORES = "bbu = true\ncbu = true\nbess = true"


def toy(power: str, cooling: str = "flc") -> RackSpec:
    """Return a rack of 8 GB300 whose [power] table holds these lines besides the fixed load."""
    text = f"""
[rack]
name = "toy"
source = "emulated"
[[tray]]
count = 2
gpus = 4
[gpu]
sku = "gb300"
[fabric]
switches = 2
[power]
uncappable_kw = 2
{power}
[cooling]
kind = "{cooling}"
"""
    return build(text.encode(), "toy.toml")


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """``make("gb300-nvl72")``, or ``make(power="bbu = true")`` for the small one; see `rows`."""
    racks: list[EmulatedRack] = []

    def made(name: str = "", power: str = STORES, seed: int = 7, **other) -> PowerHouse:
        changes = other.pop("changes", {})
        spec = load(name) if name else toy(power, **other)
        rack = EmulatedRack.build(spec, seed, tmp_path / str(len(racks)))
        racks.append(rack)
        house = PowerHouse(spec, rack.driver.rows, seed, shipped().but(changes))
        house.rows, house.path = rack.driver.rows, rack.driver.path
        return house

    yield made
    for rack in racks:
        rack.close()
