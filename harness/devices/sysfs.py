"""What Linux says of a host's NICs, memory and PCIe devices, read below an injected root.

In: a root that stands for /sys, and the PCI addresses of devices. Out: ports, and cumulative
counters; where sysfs is silent of a port's speed, ethtool is asked. Text is bounded, and taken for
a value only where it has the shape of one.

    NIC     class/infiniband/*/ports/*/{state,rate,link_layer,counters}, class/net/*/{carrier,speed,
            carrier_down_count,carrier_changes,statistics}
    memory  devices/system/edac/mc/mc*/{ce_count,ue_count}
    PCIe    bus/pci/devices/*/aer_dev_{correctable,nonfatal,fatal}
"""

import re
import subprocess
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from rackproof.harness.errors import DeviceError, NotPermitted, NotPresent, TimedOut, Unsupported

MAX_TEXT = 1 << 16
ETHTOOL_S = 5.0
BLUEFIELD = re.compile(r"0xa2[def][0-9a-f]")
"""PCI device ids of NVIDIA's DPUs, which serve storage and management (pci.ids, vendor 15b3)."""
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
_RATE = re.compile(r"(\d{1,6}(\.\d{1,3})?) Gb/sec")
_SPEED = re.compile(r"^\s*Speed: (\d{1,9})Mb/s\s*$", re.MULTILINE)
_TOTAL = re.compile(r"^TOTAL_ERR_\w+ (\d{1,20})$", re.MULTILINE)
_EACH = re.compile(r"^(?!TOTAL_)\w+ (\d{1,20})$", re.MULTILINE)

# Counters of an InfiniBand port and where they stand still: InfiniBand Architecture Specification,
# volume 1, PortCounters, whose fields are as wide as that and do not wrap.
DOWNED = ("link_downed", 0xFF)
PORT_ERRORS = (
    ("symbol_error", 0xFFFF),
    ("port_rcv_errors", 0xFFFF),
    ("link_error_recovery", 0xFF),
    ("local_link_integrity_errors", 0xF),
)
NET_ERRORS = ("rx_errors", "tx_carrier_errors")
"""Of an Ethernet port: received frames that were wrong, CRC and symbols, and carrier lost."""
AER = {
    "host.aer.corrected": "aer_dev_correctable",
    "host.aer.nonfatal": "aer_dev_nonfatal",
    "host.aer.fatal": "aer_dev_fatal",
}
EDAC = {"host.memory.corrected": "ce_count", "host.memory.uncorrected": "ue_count"}

Ethtool = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Port:
    """One port of a NIC: its RDMA port, its network interface, or both.

    `name` is the RDMA device's, with ``/2`` for a second port, else the interface's.
    """

    name: str
    pci: str
    rdma: Path | None
    net: Path | None

    @property
    def order(self) -> tuple[str, str]:
        """Ports stand in the order of their PCI addresses."""
        return (self.pci.rjust(16, "0"), self.name)


class Sysfs:
    """The files of one host."""

    def __init__(self, root: Path, ethtool: Ethtool) -> None:
        self._root = root
        self._ethtool = ethtool

    # --- NICs ------------------------------------------------------------------------------------
    def ports(self) -> list[Port]:
        """Return the ports of physical NICs: those for RDMA, or, where none is, all on PCI."""
        nets = [(net, pci) for net in self._list("class/net") if (pci := self._pci(net))]
        found: list[Port] = []
        for device in self._list("class/infiniband"):
            pci = self._pci(device)
            for port in _entries(device / "ports") if pci else ():
                own = [net for net, at in nets if at == pci and _port_of(net) == port.name]
                name = device.name if port.name == "1" else f"{device.name}/{port.name}"
                found.append(Port(name, pci or "", port, own[0] if own else None))
        if not found:
            found = [Port(net.name, pci, None, net) for net, pci in nets]
        return sorted(found, key=lambda port: port.order)

    def is_dpu(self, port: Port) -> bool:
        """Say whether a port belongs to a BlueField DPU."""
        device = self._root / "bus/pci/devices" / port.pci
        vendor, number = _maybe(device / "vendor"), _maybe(device / "device")
        return vendor == "0x15b3" and BLUEFIELD.fullmatch(number or "") is not None

    def link(self, port: Port) -> int:
        """Return 1 for a port that is up, 0 for one that is down or not configured."""
        if port.rdma is not None:
            return int(_text(port.rdma / "state").partition(":")[2].strip() == "ACTIVE")
        net = _net(port)
        carrier = _maybe(net / "carrier")  # no answer while the interface is set down
        if carrier in ("0", "1"):
            return int(carrier)
        state = _text(net / "operstate")
        if state in ("down", "lowerlayerdown", "notpresent"):
            return 0
        msg = f"{port.name}: carrier is not stated, and operstate is {state[:20]!r}"
        raise DeviceError(msg)

    def speed(self, port: Port) -> float:
        """Return the rate of a port in Gb/s."""
        if port.rdma is not None:
            rate = _RATE.match(_text(port.rdma / "rate"))
            if rate is not None:
                return float(rate[1])
        if port.net is not None:
            said = _maybe(port.net / "speed") or ""  # in Mb/s; -1 where nobody knows
            if re.fullmatch(r"[1-9]\d{0,8}", said):
                return int(said) / 1000.0
            found = _SPEED.search(self._ethtool(port.net.name))
            if found is not None:
                return int(found[1]) / 1000.0
        msg = f"{port.name}: neither sysfs nor ethtool states a rate"
        raise DeviceError(msg)

    def flaps(self, port: Port) -> int:
        """Return how often a port lost its carrier: by the port, or over Ethernet by the kernel."""
        if port.rdma is not None and (port.net is None or not _ethernet(port.rdma)):
            found = _counter(port.rdma / "counters", *DOWNED)
            if found is not None:
                return found
        if port.net is not None:
            down = _maybe(port.net / "carrier_down_count")
            if down is not None:
                return _whole(port.name, down)
            changes = _maybe(port.net / "carrier_changes")
            if changes is not None:
                return (_whole(port.name, changes) + 1) // 2
        msg = f"{port.name}: nothing counts how often its link went down"
        raise Unsupported(msg)

    def errors(self, port: Port) -> int:
        """Return the symbol, receive and link errors of a port."""
        found: list[int] = []
        if port.rdma is not None:
            each = [_counter(port.rdma / "counters", name, end) for name, end in PORT_ERRORS]
            found += [count for count in each if count is not None]
        if port.net is not None and (port.rdma is None or _ethernet(port.rdma)):
            texts = [_maybe(port.net / "statistics" / name) for name in NET_ERRORS]
            found += [_whole(port.name, text) for text in texts if text is not None]
        if not found:
            msg = f"{port.name}: nothing counts its errors"
            raise Unsupported(msg)
        return sum(found)

    # --- the host --------------------------------------------------------------------------------
    def memory(self, metric: str) -> int:
        """Return the errors of all memory controllers; Unsupported where the kernel counts none."""
        files = [at / EDAC[metric] for at in self._list("devices/system/edac/mc")]
        texts = [text for file in files if (text := _maybe(file)) is not None]
        if not texts:
            msg = "the kernel counts no errors of memory (EDAC has no memory controller)"
            raise Unsupported(msg)
        return sum(_whole("EDAC", text) for text in texts)

    def aer(self, metric: str, devices: Iterable[str]) -> int:
        """Return the PCIe errors of devices, by PCI address, over those of which they are counted.

        Raises Unsupported where they are counted of none.
        """
        files = [self._root / "bus/pci/devices" / pci / AER[metric] for pci in devices]
        texts = [text for file in files if (text := _maybe(file)) is not None]
        if not texts:
            msg = "the kernel counts no PCIe errors of the GPUs and NICs (no AER)"
            raise Unsupported(msg)
        return sum(_aer(text) for text in texts)

    def _list(self, folder: str) -> list[Path]:
        return _entries(self._root / folder)

    def _pci(self, device: Path) -> str | None:
        """Return the PCI address of a physical device, or None for others and virtual functions."""
        at = device / "device"
        try:
            pci = at.resolve(strict=True).name
            virtual = (at / "physfn").exists()
        except (OSError, RuntimeError):
            return None
        return None if virtual or not _PCI.fullmatch(pci) else pci


def run_ethtool(interface: str) -> str:
    """Return what ethtool says of an interface; Unsupported where there is no such program."""
    words = ["ethtool", interface]
    try:
        with subprocess.Popen(  # noqa: S603 - a fixed program, and a name that _NAME lets through
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child:
            late = threading.Timer(ETHTOOL_S, child.kill)
            late.start()
            try:
                said = child.stdout.read(MAX_TEXT) if child.stdout else b""
                child.kill()
            finally:
                ran_out = late.finished.is_set()
                late.cancel()
    except OSError as error:
        msg = f"ethtool cannot be run ({error.strerror})"
        raise Unsupported(msg) from None
    if ran_out:
        msg = f"ethtool {interface}: no answer within {ETHTOOL_S:g} s"
        raise TimedOut(msg)
    return said.decode("utf-8", "replace")


def pci_of(address: str) -> str:
    """Return a PCI address as sysfs writes it; NVML's domain has eight digits."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:] if domain[:-4].strip('0') == '' else domain}:{rest}"


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(each for each in folder.iterdir() if _NAME.fullmatch(each.name))
    except OSError:
        return []


def _text(file: Path) -> str:
    """Return the text of a file, at most MAX_TEXT bytes."""
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_TEXT).decode("utf-8", "replace").strip()
    except PermissionError as error:
        msg = f"{file.name} may not be read: {error.strerror}"
        raise NotPermitted(msg) from None
    except (FileNotFoundError, NotADirectoryError):
        msg = f"{file.parent.name}/{file.name} is not there"
        raise NotPresent(msg) from None
    except OSError as error:
        msg = f"{file.parent.name}/{file.name} gives no value: {error.strerror}"
        raise DeviceError(msg) from None


def _maybe(file: Path) -> str | None:
    """Return the text of a file, or None where it is not there or gives no value."""
    try:
        return _text(file)
    except NotPermitted:
        raise
    except DeviceError:
        return None


def _whole(who: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,20}", text):
        msg = f"{who}: {text[:20]!r} is no count"
        raise DeviceError(msg)
    return int(text)


def _counter(folder: Path, name: str, end: int) -> int | None:
    """Return a counter of an RDMA port; None where there is none, DeviceError where it is full."""
    text = _maybe(folder / name)
    if text is None:
        return None
    count = _whole(name, text)
    if count == end:
        msg = f"{name} stands at {end}, its end, and can rise no more: have it cleared"
        raise DeviceError(msg)
    return count


def _aer(text: str) -> int:
    total = _TOTAL.search(text)
    each: Sequence[str] = [total[1]] if total else _EACH.findall(text)
    if not each:
        msg = f"AER: {text[:40]!r} is no list of errors"
        raise DeviceError(msg)
    return sum(map(int, each))


def _ethernet(rdma: Path) -> bool:
    return _maybe(rdma / "link_layer") == "Ethernet"


def _port_of(net: Path) -> str:
    """Return the number of the RDMA port that an interface stands on, which count from 1."""
    number = _maybe(net / "dev_port") or ""
    return str(int(number) + 1) if re.fullmatch(r"\d{1,3}", number) else "1"


def _net(port: Port) -> Path:
    if port.net is None:
        msg = f"{port.name} has no network interface"
        raise Unsupported(msg)
    return port.net
