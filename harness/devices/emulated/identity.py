"""Who an emulated GPU is: what its rack's identity decides, and no seed ever changes.

In: the identity of the rack (its name, unless its file says otherwise) and a GPU's place. Out:
serial number, UUID, PCI address, and how fast this very die is.
"""

from dataclasses import dataclass

from rackproof.harness.devices.emulated import draw
from rackproof.harness.model import Gpu
from rackproof.harness.spec import RackSpec

SPREAD_SIGMA = 0.01
"""Spread between dies, one standard deviation: our assumption, truncated at twice that."""
SPREAD_CUT = 2.0

# Buses of the eight SXM sockets on an HGX board, ascending as their module numbers do here. The
# numbers are those of a common server; any ascending ones would do.
_SXM_BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
_TRAYS_IN_DOMAIN = 0x100


@dataclass(frozen=True, slots=True)
class Pci:
    """A PCI address; the function is always 0."""

    domain: int
    bus: int
    device: int = 0

    @property
    def subject(self) -> str:
        """The address in the contract's spelling, without its ``pci:``."""
        return f"{self.domain:04x}:{self.bus:02x}:{self.device:02x}.0"


@dataclass(frozen=True, slots=True)
class Birth:
    """What a GPU was made as: names, place on the bus, and speed relative to its SKU."""

    serial: str
    uuid: str
    pci: Pci
    spread: float


def birth(spec: RackSpec, gpu: Gpu) -> Birth:
    """Return the identity of one GPU of the rack."""
    per_serial = max(1, int(spec.assumed("gpus_per_serial") or 1))
    module = gpu.index // per_serial
    serial = draw.word("serial", spec.identity, gpu.rack, gpu.tray, module) % 10**10
    raw = draw.octets(16, "uuid", spec.identity, gpu.subject).hex()
    return Birth(
        serial=f"165{serial:010d}",
        uuid=f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}",
        pci=_pci(spec, gpu),
        spread=1.0 + SPREAD_SIGMA * draw.normal(SPREAD_CUT, "die", spec.identity, gpu.subject),
    )


def cluster(spec: RackSpec, domain: int) -> bytes:
    """Return the cluster UUID of one NVLink domain of the rack."""
    return draw.octets(16, "cluster", spec.identity, domain)


def chassis(spec: RackSpec, rack: int) -> bytes:
    """Return the chassis serial number of one rack: 13 digits."""
    return f"{draw.word('chassis', spec.identity, rack) % 10**13:013d}".encode()


def _pci(spec: RackSpec, gpu: Gpu) -> Pci:
    """Place a GPU: one domain in a lone node, else the domain says rack and tray.

    A superchip's GPUs each have a domain of their own (rack, tray and index, as on GB200 nodes);
    SXM GPUs share their node's and differ by bus.
    """
    place = (gpu.rack * _TRAYS_IN_DOMAIN + gpu.tray) << 4
    if spec.sku.text("form_factor") == "superchip":
        return Pci(place | gpu.index, 0x01)
    bus = _SXM_BUSES[gpu.index] if gpu.index < len(_SXM_BUSES) else 0xE0 + gpu.index
    return Pci(0 if len(spec.trays) == 1 else place, bus)
