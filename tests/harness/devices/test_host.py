"""Which port is which NIC, whose host this is, and how a real machine comes through the burn."""

from types import SimpleNamespace

import pytest

from rackproof.harness.burns import BURNS, Settings, execute
from rackproof.harness.devices import host as hosts
from rackproof.harness.devices.host import NICS, RealHost
from rackproof.harness.devices.real import RealBacking
from rackproof.harness.devices.redfish import PASSWORD, URL, USER
from rackproof.harness.devices.sysfs import Sysfs
from rackproof.harness.errors import DeviceError, NotPresent, Unsupported
from rackproof.harness.model import Measurement, Missing, Why, item_of
from rackproof.harness.spec import build

RACK = b"""
[rack]
name = "r"
source = "real"
[[tray]]
count = 1
gpus = 2
nics = 2
[gpu]
sku = "h100"
"""
HOST, NIC0, NIC1 = "rack0/tray00/host", "rack0/tray00/nic0", "rack0/tray00/nic1"
GPUS = {"rack0/tray00/gpu0": "00000000:1A:00.0"}


class Around:
    """A real host over a tree; `bench` is what a burn gets."""

    def __init__(self, site, root, **environment):
        self.tree = site.Tree(root)
        self.environment = environment
        self.sysfs = Sysfs(root, lambda _name: "")
        self.waited = []
        self.between = lambda: None

    def host(self, spec=None, gpus=GPUS):
        spec = spec or build(RACK, "r.toml")
        host = RealHost(spec, gpus, sysfs=self.sysfs, environment=self.environment)
        host.wait = self.wait
        return host

    def wait(self, seconds):
        self.waited.append(seconds)
        self.between()

    def burn(self, subject=HOST, spec=None):
        spec = spec or build(RACK, "r.toml")
        host = self.host(spec)
        bench = SimpleNamespace(
            spec=spec, around=host, devices={},
            parts=lambda item, sort: [s for s in spec.of_sort(sort) if item_of(s) == item],
        )  # fmt: skip
        seen = execute(BURNS["platform"], bench, subject, Settings("quick", 3))
        return (
            {(s.subject, s.metric): s.value for s in seen if isinstance(s, Measurement)},
            {(s.subject, s.metric): s for s in seen if isinstance(s, Missing)},
        )


@pytest.fixture
def around(site, tmp_path):
    return Around(site, tmp_path)


def two_nics(around):
    """Two ports that are up, memory, and AER of one GPU."""
    for number, pci in enumerate(("0000:03:00.0", "0000:04:00.0")):
        around.tree.rdma(f"mlx5_{number}", pci)
    around.tree.memory((9, 0))
    around.tree.aer("0000:1a:00.0", corrected=4)


# --- which is which ------------------------------------------------------------------------------
def test_nics_are_the_ports_in_pci_order(around):
    around.tree.rdma("mlx5_0", "0000:e0:00.0", rate=100)
    around.tree.rdma("mlx5_1", "0000:03:00.0", rate=400)
    host = around.host()
    assert [host.read("nic.speed", nic) for nic in (NIC0, NIC1)] == [400, 100]


def test_the_environment_may_say_which_ports_are_meant(around):
    for number in range(4):
        around.tree.rdma(f"mlx5_{number}", f"0000:0{number}:00.0", rate=100 * (number + 1))
    around.tree.net("ens7", "0000:02:00.0")
    around.environment[NICS] = "mlx5_3, ens7"
    host = around.host()
    assert [host.read("nic.speed", nic) for nic in (NIC0, NIC1)] == [400, 300]


def test_a_name_that_no_port_has_is_not_present(around):
    around.tree.rdma("mlx5_0", "0000:03:00.0")
    around.environment[NICS] = "mlx5_0 mlx5_7"
    with pytest.raises(NotPresent, match="mlx5_7"):
        around.host().read("nic.link", NIC0)


def test_more_ports_than_are_planned_are_not_guessed_at(around):
    for number in range(3):
        around.tree.rdma(f"mlx5_{number}", f"0000:0{number}:00.0")
    with pytest.raises(DeviceError, match=NICS):
        around.host().read("nic.link", NIC0)


def test_the_ports_of_dpus_are_left_out_where_there_are_too_many(around):
    two_nics(around)
    around.tree.rdma("mlx5_9", "0000:01:00.0", rate=200)
    around.tree.device("0000:01:00.0", ("0x15b3", "0xa2dc"))
    assert around.host().read("nic.speed", NIC0) == 400


def test_fewer_ports_leave_the_last_missing(around):
    around.tree.rdma("mlx5_0", "0000:03:00.0")
    host = around.host()
    assert host.read("nic.link", NIC0) == 1
    with pytest.raises(NotPresent, match="1 ports of NICs are found and 2 planned"):
        host.read("nic.link", NIC1)


def test_the_host_of_another_tray_is_not_this_machine(around):
    two_nics(around)
    spec = build(RACK.replace(b"count = 1", b"count = 2"), "r.toml")
    host = around.host(spec)
    assert host.read("nic.link", NIC1) == 1
    for metric, subject in (("nic.link", "rack0/tray01/nic0"),
                            ("host.memory.uncorrected", "rack0/tray01/host")):  # fmt: skip
        with pytest.raises(NotPresent, match="not this machine"):
            host.read(metric, subject)


# --- through the burn ----------------------------------------------------------------------------
def test_a_healthy_machine_is_read_whole(around):
    two_nics(around)
    values, gaps = around.burn()
    assert gaps == {}
    assert values[NIC0, "nic.link"] == values[NIC1, "nic.link"] == 1
    assert values[NIC0, "nic.flaps"] == values[NIC0, "nic.errors"] == 0
    assert values[HOST, "host.memory.uncorrected"] == values[HOST, "host.aer.fatal"] == 0
    assert sum(around.waited) <= 2.0


def test_what_rises_in_the_window_is_written(around):
    two_nics(around)
    port = "class/infiniband/mlx5_1/ports/1"

    def meanwhile():
        around.tree.write(f"{port}/counters/link_downed", "5")
        around.tree.write(f"{port}/counters/symbol_error", "40")
        around.tree.memory((9, 2))
        around.tree.aer("0000:1a:00.0", nonfatal=1)

    around.between = meanwhile
    values, _ = around.burn()
    assert (values[NIC1, "nic.flaps"], values[NIC1, "nic.errors"]) == (2, 40)
    assert values[NIC0, "nic.flaps"] == 0
    assert values[HOST, "host.memory.uncorrected"] == 2
    assert values[HOST, "host.aer.nonfatal"] == 1


@pytest.mark.parametrize("late", [False, True])
def test_a_port_that_is_down_at_one_end_of_the_window_is_down(around, late):
    two_nics(around)
    state = "class/infiniband/mlx5_0/ports/1/state"
    down, up = (
        lambda: around.tree.write(state, "1: DOWN"),
        lambda: around.tree.write(state, "4: ACTIVE"),
    )
    if not late:
        down()
    around.between = down if late else up
    values, _ = around.burn()
    assert (values[NIC0, "nic.link"], values[NIC1, "nic.link"]) == (0, 1)


def test_a_counter_that_was_cleared_meanwhile_is_missing(around):
    two_nics(around)
    around.between = lambda: around.tree.write(
        "class/infiniband/mlx5_0/ports/1/counters/link_downed", "0"
    )
    values, gaps = around.burn()
    assert (NIC0, "nic.flaps") not in values
    assert "fell from 3 to 0" in gaps[NIC0, "nic.flaps"].reason


def test_an_absent_nic_is_missing_by_name_and_not_down(around):
    around.tree.rdma("mlx5_0", "0000:03:00.0")
    values, gaps = around.burn()
    assert values[NIC0, "nic.link"] == 1
    lost = {metric for subject, metric in gaps if subject == NIC1}
    assert lost == {"nic.link", "nic.speed", "nic.flaps", "nic.errors"}
    assert (NIC1, "nic.link") not in values
    assert all(gaps[NIC1, metric].cure for metric in lost)


def test_a_virtual_machine_is_neither_accused_nor_passed(around):
    around.tree.rdma("mlx5_0", "0000:03:00.0")
    around.tree.rdma("mlx5_1", "0000:04:00.0")
    values, gaps = around.burn()
    for metric in ("host.memory.uncorrected", "host.aer.fatal", "host.aer.nonfatal"):
        assert (HOST, metric) not in values
        assert gaps[HOST, metric].why is Why.NOT_SUPPORTED
    assert (HOST, "host.aer.corrected") not in gaps  # only noted: leaves no trace


def test_of_nics_that_nobody_planned_only_a_list_is_noted(around):
    two_nics(around)
    around.tree.write("class/infiniband/mlx5_1/ports/1/state", "1: DOWN")
    spec = build(RACK.replace(b"nics = 2\n", b""), "r.toml")
    values, _ = around.burn(spec=spec)
    told = values[HOST, "host.nics"]
    assert "mlx5_0 at 0000:03:00.0 up, 400 Gb/s" in told
    assert "mlx5_1 at 0000:04:00.0 down" in told
    assert not any(metric.startswith("nic.") for _, metric in values)


# --- shelves and cooling -------------------------------------------------------------------------
WHOLE = RACK + b'[power]\nshelves = 2\n[cooling]\nkind = "flc"\n'


def test_shelves_and_cooling_are_read_by_redfish(site, around):
    spec = build(WHOLE, "r.toml")
    with site.controller(site.site(2, 1)) as controller:
        around.environment.update({URL: controller.url, USER: "reader", PASSWORD: "x"})
        values, gaps = around.burn("rack0/power", spec)
        assert gaps == {}
        assert values["rack0/power/shelf1", "shelf.supplies.bad"] == 0
        values, gaps = around.burn("rack0/cooling", spec)
        assert gaps == {}
        assert values["rack0/cooling", "cooling.flow"] == 180.5


def test_without_a_controller_they_are_unknown_with_a_cure(around):
    for item in ("rack0/power", "rack0/cooling"):
        values, gaps = around.burn(item, build(WHOLE, "r.toml"))
        assert values == {}
        assert gaps
        for gap in gaps.values():
            assert gap.why is Why.NO_READING
            assert URL in gap.reason
            assert "Redfish" in gap.cure


def test_a_controller_is_asked_anew_in_each_run(site, around):
    spec = build(WHOLE, "r.toml")
    tree = site.site(2, 1)
    with site.controller(tree) as controller:
        around.environment[URL] = controller.url
        host = around.host(spec)
        for health in ("OK", "Critical"):
            host.begin("platform", 1)
            tree["/redfish/v1/ThermalEquipment/CDUs/CDU0"]["Status"] = {"Health": health}
            assert host.read("cooling.health", "rack0/cooling") == health.lower()
            asked = len(controller.asked)
            host.read("cooling.flow", "rack0/cooling")
            assert len(controller.asked) == asked
            host.end()


def test_neither_address_nor_credentials_come_into_the_record(site, around):
    spec = build(WHOLE, "r.toml")
    with site.controller({}) as controller:
        around.environment.update({URL: controller.url, USER: "reader-7", PASSWORD: "s3cret-7"})
        _, gaps = around.burn("rack0/power", spec)
    text = repr(gaps)
    assert gaps
    for secret in ("reader-7", "s3cret-7", controller.url, "127.0.0.1"):
        assert secret not in text


def test_the_host_knows_the_gpus_that_were_found(around, monkeypatch):
    monkeypatch.setattr(hosts, "SYS", around.tree.root)
    spec = build(RACK, "r.toml")
    backing = RealBacking(spec=spec)
    around.tree.aer("0000:1b:00.0", fatal=3)
    with pytest.raises(Unsupported):
        backing.host().read("host.aer.fatal", HOST)
    identity = SimpleNamespace(pci="00000000:1B:00.0", uuid="GPU-1")
    backing.device(spec.gpus[0], identity, SimpleNamespace(subject=spec.gpus[0].subject))
    assert backing.host().read("host.aer.fatal", HOST) == 3
