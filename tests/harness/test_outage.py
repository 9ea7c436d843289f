"""A loss of power as faults: what it names, and that the emulated rack then is dark."""

from rackproof.fixtures import plant
from rackproof.harness.devices import connect
from rackproof.harness.faults import parse
from rackproof.harness.outage import SUPPLIES, outage, trays_of
from rackproof.harness.spec import load


def test_a_dark_rack_has_lost_its_gpus_and_all_supplies_of_its_shelves():
    spec = load("catalina")
    faults = outage(spec, trays_of(spec, 1))
    assert len(faults) == 8 * SUPPLIES + 36
    assert {text.split("@")[1].split("/")[0] for text in faults} == {"rack1"}
    bench = connect(spec)
    plant.plant(bench, [parse(text, spec, 0) for text in faults], horizon_s=0.0)
    read = bench.around.read
    assert read("shelf.health", "rack1/power/shelf7") == "critical"
    assert read("shelf.output", "rack1/power/shelf7") == 0.0
    assert read("shelf.health", "rack0/power/shelf7") == "ok"
    bench.close()


def test_some_dark_trays_leave_the_shelves_alone():
    faults = outage(load("gb300-nvl72"), ["rack0/tray03"])
    assert faults == [f"gpu-lost@rack0/tray03/gpu{n}" for n in range(4)]


def test_a_node_whose_supplies_nobody_counts_loses_its_gpus():
    spec = load("hgx-h100")
    assert outage(spec, trays_of(spec, 0)) == [f"gpu-lost@rack0/tray00/gpu{n}" for n in range(8)]
