"""Ports, counters and errors as Linux states them, and what is no statement at all."""

import pytest

from rackproof.harness.devices import sysfs
from rackproof.harness.devices.sysfs import Sysfs, pci_of, run_ethtool
from rackproof.harness.errors import DeviceError, NotPermitted, NotPresent, TimedOut, Unsupported

PCI = "0000:17:00.0"
ETHTOOL = "Settings for eth0:\n\tSpeed: 400000Mb/s\n\tLink detected: yes\n"


class Machine:
    """A tree, what reads it, and what ethtool says."""

    def __init__(self, site, root):
        self.tree = site.Tree(root)
        self.said = ""
        self.asked = []
        self.sysfs = Sysfs(root, self._ethtool)

    def _ethtool(self, name):
        self.asked.append(name)
        return self.said

    def port(self):
        (port,) = self.sysfs.ports()
        return port


@pytest.fixture
def machine(site, tmp_path):
    return Machine(site, tmp_path)


# --- which ports there are -----------------------------------------------------------------------
def test_ports_stand_in_the_order_of_their_pci_addresses(machine):
    for name, pci in (("mlx5_0", "0001:03:00.0"), ("mlx5_1", "0000:e3:00.1"),
                      ("mlx5_2", "0000:e3:00.0"), ("mlx5_9", "10000:01:00.0")):  # fmt: skip
        machine.tree.rdma(name, pci)
    assert [p.name for p in machine.sysfs.ports()] == ["mlx5_2", "mlx5_1", "mlx5_0", "mlx5_9"]


def test_a_second_port_and_its_interface_are_known(machine):
    machine.tree.rdma("mlx5_0", PCI)
    machine.tree.write("class/infiniband/mlx5_0/ports/2/state", "1: DOWN")
    machine.tree.net("ibs1", PCI)
    machine.tree.net("ibs1d1", PCI)
    machine.tree.write("class/net/ibs1d1/dev_port", "1")
    found = {p.name: p.net.name for p in machine.sysfs.ports()}
    assert found == {"mlx5_0": "ibs1", "mlx5_0/2": "ibs1d1"}


def test_virtual_functions_and_what_is_on_no_pci_are_no_ports(machine):
    machine.tree.rdma("mlx5_0", PCI)
    machine.tree.rdma("mlx5_1", "0000:17:00.1")
    machine.tree.write("bus/pci/devices/0000:17:00.1/physfn/vendor", "0x15b3")
    machine.tree.rdma("siw0", "virtual")
    assert [p.name for p in machine.sysfs.ports()] == ["mlx5_0"]


def test_without_rdma_the_interfaces_on_pci_are_the_ports(machine):
    machine.tree.net("eth0", "0000:02:00.0")
    machine.tree.net("ens1f0np0", PCI)
    machine.tree.write("class/net/lo/carrier", "1")
    assert [p.name for p in machine.sysfs.ports()] == ["eth0", "ens1f0np0"]


def test_a_machine_without_any_has_no_port(machine):
    assert machine.sysfs.ports() == []


@pytest.mark.parametrize("name", ["-s", "a b", "x" * 40, "a;b"])
def test_a_name_that_no_program_should_see_is_no_port(machine, name):
    machine.tree.net(name, PCI)
    assert machine.sysfs.ports() == []


def test_a_link_to_itself_is_no_device(machine):
    (machine.tree.root / "class/infiniband/mlx5_0").mkdir(parents=True)
    (machine.tree.root / "class/infiniband/mlx5_0/device").symlink_to("device")
    assert machine.sysfs.ports() == []


def test_dpus_are_told_from_nics(machine):
    machine.tree.rdma("mlx5_0", PCI)
    assert not machine.sysfs.is_dpu(machine.port())
    machine.tree.device(PCI, ("0x15b3", "0xa2dc"))
    assert machine.sysfs.is_dpu(machine.port())


# --- link and speed ------------------------------------------------------------------------------
@pytest.mark.parametrize(("state", "up"), [("4: ACTIVE", 1), ("1: DOWN", 0), ("2: INIT", 0)])
def test_an_rdma_port_is_up_when_it_is_active(machine, state, up):
    machine.tree.write(machine.tree.rdma("mlx5_0", PCI) + "/state", state)
    assert machine.sysfs.link(machine.port()) == up


@pytest.mark.parametrize(("carrier", "state", "up"), [("1", "up", 1), ("0", "down", 0),
                                                      ("", "down", 0)])  # fmt: skip
def test_an_interface_is_up_when_it_has_a_carrier(machine, carrier, state, up):
    at = machine.tree.net("eth0", PCI)
    machine.tree.write(f"{at}/carrier", carrier)
    machine.tree.write(f"{at}/operstate", state)
    assert machine.sysfs.link(machine.port()) == up


def test_a_link_that_nobody_states_is_neither_up_nor_down(machine):
    at = machine.tree.net("eth0", PCI)
    machine.tree.write(f"{at}/carrier", "")
    machine.tree.write(f"{at}/operstate", "unknown")
    with pytest.raises(DeviceError, match="not stated"):
        machine.sysfs.link(machine.port())


def test_a_port_that_went_away_is_not_present(machine):
    port = machine.tree.rdma("mlx5_0", PCI)
    found = machine.port()
    (machine.tree.root / port / "state").unlink()
    with pytest.raises(NotPresent):
        machine.sysfs.link(found)


def test_the_rate_of_an_rdma_port_is_its_own(machine):
    machine.tree.rdma("mlx5_0", PCI, rate=800)
    assert machine.sysfs.speed(machine.port()) == 800.0
    assert machine.asked == []


@pytest.mark.parametrize("speed", ["-1", "", "0", "fast"])
def test_ethtool_is_asked_where_sysfs_is_silent(machine, speed):
    machine.tree.net("eth0", PCI, speed=speed)
    machine.said = ETHTOOL
    assert machine.sysfs.speed(machine.port()) == 400.0
    assert machine.asked == ["eth0"]


@pytest.mark.parametrize("said", ["", "Speed: Unknown!", "Speed: 1e99Mb/s", "Speed: -5Mb/s",
                                  "Speed: 400000Mb/s but not now", "\x00" * 99])  # fmt: skip
def test_a_speed_that_nobody_states_is_no_number(machine, said):
    machine.tree.net("eth0", PCI, speed="-1")
    machine.said = said
    with pytest.raises(DeviceError, match="neither"):
        machine.sysfs.speed(machine.port())


# --- counters ------------------------------------------------------------------------------------
def test_flaps_are_counted_by_the_port_or_by_the_kernel(machine):
    port = machine.tree.rdma("mlx5_0", PCI)
    at = machine.tree.net("ens1", PCI)
    machine.tree.write(f"{at}/carrier_down_count", "8")
    assert machine.sysfs.flaps(machine.port()) == 3
    machine.tree.write(f"{port}/link_layer", "Ethernet")
    assert machine.sysfs.flaps(machine.port()) == 8
    (machine.tree.root / at / "carrier_down_count").unlink()
    assert machine.sysfs.flaps(machine.port()) == 4  # 7 changes


def test_errors_are_those_of_the_ports_own_layer(machine):
    port = machine.tree.rdma("mlx5_0", PCI)
    machine.tree.net("ens1", PCI)
    assert machine.sysfs.errors(machine.port()) == 2
    machine.tree.write(f"{port}/link_layer", "Ethernet")
    assert machine.sysfs.errors(machine.port()) == 2 + 5


@pytest.mark.parametrize(("name", "end"), [("link_downed", 255), ("symbol_error", 65535),
                                           ("local_link_integrity_errors", 15)])  # fmt: skip
def test_a_counter_at_its_end_says_nothing(machine, name, end):
    port = machine.tree.rdma("mlx5_0", PCI)
    machine.tree.write(f"{port}/counters/{name}", str(end))
    ask = machine.sysfs.flaps if name == "link_downed" else machine.sysfs.errors
    with pytest.raises(DeviceError, match="its end"):
        ask(machine.port())
    machine.tree.write(f"{port}/counters/{name}", str(end - 1))
    assert ask(machine.port()) >= end - 1


@pytest.mark.parametrize("text", ["-1", "1.5", "many", "0x10", "9" * 30, "\xff"])
def test_a_count_that_is_none_is_said(machine, text):
    machine.tree.write(machine.tree.rdma("mlx5_0", PCI) + "/counters/symbol_error", text)
    with pytest.raises(DeviceError, match="is no count"):
        machine.sysfs.errors(machine.port())


def test_what_counts_nothing_is_unsupported(machine):
    machine.tree.device(PCI)
    machine.tree.hang("class/net/eth0", PCI)
    for ask in (machine.sysfs.flaps, machine.sysfs.errors):
        with pytest.raises(Unsupported):
            ask(machine.port())


# --- memory and PCIe -----------------------------------------------------------------------------
def test_memory_errors_are_those_of_all_controllers(machine):
    machine.tree.memory((3, 0), (4, 1))
    assert machine.sysfs.memory("host.memory.corrected") == 7
    assert machine.sysfs.memory("host.memory.uncorrected") == 1


def test_a_kernel_without_edac_says_so(machine):
    with pytest.raises(Unsupported, match="EDAC"):
        machine.sysfs.memory("host.memory.uncorrected")


def test_pcie_errors_are_those_of_the_devices(machine):
    machine.tree.aer(PCI, fatal=1, nonfatal=2, corrected=5)
    machine.tree.aer("0000:18:00.0", corrected=1)
    devices = [PCI, "0000:18:00.0", "0000:19:00.0"]
    found = [
        machine.sysfs.aer(f"host.aer.{s}", devices) for s in ("fatal", "nonfatal", "corrected")
    ]
    assert found == [1, 2, 6]


def test_a_kernel_without_aer_says_so(machine):
    with pytest.raises(Unsupported, match="AER"):
        machine.sysfs.aer("host.aer.fatal", [PCI])


@pytest.mark.parametrize("text", ["", "TOTAL_ERR_FATAL many", "nothing to see"])
def test_a_list_of_errors_that_is_none_is_said(machine, text):
    machine.tree.write(f"bus/pci/devices/{PCI}/aer_dev_fatal", text)
    with pytest.raises(DeviceError, match="no list"):
        machine.sysfs.aer("host.aer.fatal", [PCI])


def test_a_file_that_may_not_be_read_wants_rights(machine, monkeypatch):
    machine.tree.memory((0, 0))

    def refuse(_self, _mode):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.open", refuse)
    with pytest.raises(NotPermitted, match="may not be read"):
        machine.sysfs.memory("host.memory.uncorrected")


def test_a_huge_file_is_not_taken_whole(machine):
    machine.tree.write("devices/system/edac/mc/mc0/ue_count", "1" * (1 << 20))
    with pytest.raises(DeviceError, match="is no count"):
        machine.sysfs.memory("host.memory.uncorrected")


# --- ethtool, addresses --------------------------------------------------------------------------
@pytest.fixture
def program(tmp_path, monkeypatch):
    """Put a program called ethtool into the path: ``program("echo hello")``."""

    def put(script):
        file = tmp_path / "bin" / "ethtool"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        file.chmod(0o755)
        monkeypatch.setenv("PATH", f"{file.parent}:/bin:/usr/bin")

    return put


def test_ethtool_is_run_with_the_interface_alone(program):
    program('echo "$#: $1"')
    assert run_ethtool("eth0") == "1: eth0\n"


def test_a_machine_without_ethtool_is_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unsupported):
        run_ethtool("eth0")


def test_an_ethtool_that_hangs_or_does_not_stop_is_ended(program, monkeypatch):
    monkeypatch.setattr(sysfs, "ETHTOOL_S", 0.2)
    program("exec tail -f /dev/null")
    with pytest.raises(TimedOut):
        run_ethtool("eth0")
    program("exec yes")
    assert len(run_ethtool("eth0")) == sysfs.MAX_TEXT


@pytest.mark.parametrize(("said", "in_sysfs"), [("00000000:17:00.0", "0000:17:00.0"),
                                                ("00010000:AB:00.0", "00010000:ab:00.0"),
                                                ("0009:01:00.0", "0009:01:00.0")])  # fmt: skip
def test_the_drivers_address_is_that_of_sysfs(said, in_sysfs):
    assert pci_of(said) == in_sysfs
