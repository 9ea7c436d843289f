"""One suite against every Host: the emulated one, and the real one on stand-ins of a machine.

What the burn `platform` relies on is stated here once: every reading that is owed comes in its
metric's unit, counters never fall, and what is not there is a DeviceError and no number.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from rackproof.harness.burns.platform import OWES
from rackproof.harness.devices import connect
from rackproof.harness.devices.host import RealHost
from rackproof.harness.devices.protocol import Host
from rackproof.harness.devices.redfish import PASSWORD, URL, USER
from rackproof.harness.devices.sysfs import Sysfs
from rackproof.harness.errors import DeviceError, NotPresent, Unsupported
from rackproof.harness.metrics import metrics
from rackproof.harness.spec import RackSpec, load

RANGES = {
    "nic.link": (0, 1), "nic.speed": (1, 10_000), "nic.flaps": (0, 1e6), "nic.errors": (0, 1e9),
    "host.memory.uncorrected": (0, 1e9), "host.memory.corrected": (0, 1e9),
    "host.aer.fatal": (0, 1e9), "host.aer.nonfatal": (0, 1e9), "host.aer.corrected": (0, 1e9),
    "shelf.supplies.bad": (0, 64), "shelf.output": (0, 1e5), "cooling.pumps.bad": (0, 64),
    "cooling.flow": (1, 1e4), "cooling.leak": (0, 1), "cooling.supply": (1, 60),
}  # fmt: skip
NOTED = {
    "host": ("host.memory.corrected", "host.aer.corrected"),
    "shelf": ("shelf.output",),
    "cooling": ("cooling.supply",),
}
COUNTERS = ("nic.flaps", "nic.errors", "host.memory.uncorrected", "host.aer.fatal")


@dataclass
class Stood:
    """A host, and the rack of which it is a part."""

    host: Host
    spec: RackSpec

    def owed(self) -> list[tuple[str, str]]:
        sorts = {sort: (*names, *NOTED.get(sort, ())) for sort, names in OWES.items()}
        return [
            (name, subject)
            for sort, names in sorts.items()
            for subject in self.spec.of_sort(sort)
            for name in names
        ]


def real(site, root, environment) -> Stood:
    """A machine with four NICs, as the one tray of a rack with eight shelves and a CDU."""
    whole = load("gb300-nvl72")
    spec = replace(whole, source="real", trays=whole.trays[:1], emulation={})
    tree = site.Tree(root)
    for number in range(4):
        pci = f"000{number}:03:00.0"
        tree.rdma(f"mlx5_{number}", pci, rate=800)
        tree.aer(pci)
    tree.memory((3, 0), (0, 0))
    sysfs = Sysfs(root, lambda _name: "")
    return Stood(RealHost(spec, {}, sysfs=sysfs, environment=environment), spec)


@pytest.fixture(params=["hgx-h100", "gb300-nvl72", "catalina", "real"])
def stood(request, site, tmp_path) -> Iterator[Stood]:
    """A host of each sort, within a run."""
    if request.param != "real":
        bench = connect(load(request.param), seed=5)
        bench.around.begin("contract", 1)
        yield Stood(bench.around, bench.spec)
        bench.close()
        return
    with site.controller(site.site(shelves=8, units=1)) as controller:
        environment = {URL: controller.url, USER: "reader", PASSWORD: "s3cret"}
        found = real(site, tmp_path, environment)
        found.host.begin("contract", 1)
        yield found
        found.host.end()


def test_everything_owed_is_read_in_its_metrics_unit(stood):
    keys = stood.owed()
    assert keys
    for name, subject in keys:
        value = stood.host.read(name, subject)
        if metrics()[name].unit == "text":
            assert value in ("ok", "warning", "critical")
        else:
            low, high = RANGES[name]
            assert low <= value <= high, (name, subject)


def test_a_healthy_machine_is_well(stood):
    read = stood.host.read
    for nic in stood.spec.of_sort("nic"):
        assert read("nic.link", nic) == 1
    for shelf in stood.spec.of_sort("shelf"):
        assert (read("shelf.health", shelf), read("shelf.supplies.bad", shelf)) == ("ok", 0)
    for unit in stood.spec.of_sort("cooling"):
        assert (read("cooling.health", unit), read("cooling.pumps.bad", unit)) == ("ok", 0)
        assert read("cooling.leak", unit) == 0


def test_counters_are_cumulative_and_never_fall(stood):
    keys = [key for key in stood.owed() if key[0] in COUNTERS]
    before = {key: stood.host.read(*key) for key in keys}
    assert any(before.values())  # since the machine started, and not since we looked
    stood.host.wait(0.01)
    assert {key: stood.host.read(*key) for key in keys} == before


def test_a_reading_that_a_subject_does_not_have_is_unsupported(stood):
    host = stood.spec.trays[0].host
    for name in ("temperature", "nic.flaps"):
        with pytest.raises(Unsupported):
            stood.host.read(name, host)
    with pytest.raises(Unsupported):
        stood.host.read("shelf.health", stood.spec.of_sort("nic")[0])


@pytest.mark.parametrize("subject", ["rack0/tray00/nic9", "rack7/power/shelf1", "rack7/cooling"])
def test_what_is_not_there_is_not_present(stood, subject):
    name = {"c": "cooling.flow", "s": "shelf.health", "n": "nic.link"}[subject.split("/")[-1][0]]
    with pytest.raises(NotPresent):
        stood.host.read(name, subject)


def test_a_run_may_end_twice_and_begin_again(stood):
    stood.host.end()
    stood.host.end()
    stood.host.begin("contract", 2, 5.0)
    for key in stood.owed():
        assert not isinstance(stood.host.read(*key), DeviceError)
