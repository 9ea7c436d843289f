"""What a healthy GPU's row in the emulated driver holds.

In: the rack, a GPU's identity, and the SKU that is in the slot. Out: the row, filled as a real
node of that platform answers. What the SKU's constants leave open is taken from the rack's
[emulation] table, and from the defaults below, which are assumptions; no limit rests on them.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from rackproof.harness.devices.emulated.bus import IDLE_GEN
from rackproof.harness.devices.emulated.driver_state import GRAPHICS, LINKS, MEMORY, SM, VIDEO
from rackproof.harness.devices.emulated.identity import Birth, chassis, cluster
from rackproof.harness.errors import SpecError
from rackproof.harness.model import Gpu
from rackproof.harness.skus import CONSTANTS, Sku
from rackproof.harness.spec import RackSpec

MIB = 1 << 20
NVIDIA = 0x10DE
DRIVER_MARK = "-rackproof-emulated"
CUDA_VERSION = 13000
CLOCK_IDLE_MHZ = 345
"""SM clock without load, as on H100 nodes; assumed for the others."""
RESERVED_MIB = 640
"""What the driver keeps for itself: assumed."""
NO_BER = (15, 255)
"""Mantissa and exponent by which NVLink 5 says that no bit was wrong."""

SMOOTHED = ("Blackwell", "Rubin")
"""Parts whose power can be smoothed: Blackwell as published, Rubin assumed."""
FLOORS = (20, 90)
"""What the floor of a smoothing profile may be, % of TDP: as published."""
PRESETS = (
    (80, 2_000_000, 1_000_000, 5000),
    (70, 2_000_000, 1_000_000, 5000),
    (60, 1_000_000, 1_000_000, 2000),
    (50, 1_000_000, 500_000, 2000),
    (20, 4_000_000, 4_000_000, 1000),
)
"""Floor in % of TDP, ramps up and down in mW/s, hysteresis in ms of each profile: assumed."""

_ARCHITECTURES = {"Ampere": 7, "Ada": 8, "Hopper": 9, "Blackwell": 10, "Rubin": 13}
_DEFAULTS: Mapping[str, float | str] = {
    "driver_version": "580.173.02",
    "vbios_version": "00.00.00.00.00",
    "pci_subsystem_ids": "0x0000",
    "hbm_clock": 3200,
    "pcie_width": 16,
    "sm_count": 132,
    "power_idle": 100,
    "power_min": 200,
    "compute_capability": "9.0",
    "architecture": "Hopper",
    "temperature_max_operating": 87,
    "temperature_slowdown": 89,
    "temperature_shutdown": 92,
    "memory_temperature_max": 95,
    "tlimit_max_operating": 0,
    "tlimit_slowdown": -2,
    "tlimit_shutdown": -8,
    "remap_banks": 2560,
}


class Constants:
    """The emulator's view of one SKU: its constants, the rack's assumptions, the defaults."""

    def __init__(self, spec: RackSpec, sku: Sku) -> None:
        self._spec = spec
        self._sku = sku

    def _find(self, name: str) -> float | str | None:
        if self._sku.key == self._spec.sku.key:
            value = self._spec.assumed(name)
        else:
            # Another SKU in the slot: its own constants, and the rack's where they are silent.
            known = self._sku.known(name) if name in CONSTANTS else None
            value = known.value if known else self._spec.assumed(name)
        return _DEFAULTS.get(name) if value is None else value

    def number(self, name: str) -> float:
        """Return a number; a SpecError that says where to write it when nobody knows it."""
        value = self._find(name)
        if value is None or isinstance(value, str):
            msg = f"{self._spec.file}: nothing to emulate {name} with: add it to [emulation]"
            raise SpecError(msg)
        return value

    def text(self, name: str) -> str:
        """Return a text; a SpecError as in `number`."""
        value = self._find(name)
        if not isinstance(value, str):
            msg = f"{self._spec.file}: nothing to emulate {name} with: add it to [emulation]"
            raise SpecError(msg)
        return value


def driver_version(spec: RackSpec) -> str:
    """Return the version that the emulated driver states, marked as what it is."""
    return str(spec.assumed("driver_version") or _DEFAULTS["driver_version"]) + DRIVER_MARK


def fill(row: Any, spec: RackSpec, gpu: Gpu, birth: Birth, position: int) -> None:
    """Write a healthy, idle GPU of the rack's own SKU into `row`, a ROW record of zeros.

    `position` counts the rack's GPUs from 0 and decides the NVLink domain.
    """
    constants = Constants(spec, spec.sku)
    place = {
        "rack": gpu.rack,
        "tray": gpu.tray,
        "index": gpu.index,
        "module_id": gpu.index + 1,
        "slot": gpu.tray + 1,
        "host_id": 1,
        "peer_type": 1 if spec.switches else 0,
        "pci_domain": birth.pci.domain,
        "pci_bus": birth.pci.bus,
        "pci_device": birth.pci.device,
        "chassis_serial": chassis(spec, gpu.rack),
        "rack_guid": np.frombuffer(chassis(spec, gpu.rack).ljust(16, b"\0"), np.uint8),
        "uuid": birth.uuid.encode(),
        "serial": birth.serial.encode(),
        "brand": 14,
        "persistence": 1,
        "ecc_enabled": 1,
    }
    fields = place | part_fields(constants) | _fabric(spec, position)
    for name, value in fields.items():
        try:
            row[name] = value
        except OverflowError:
            msg = f"{spec.file}: {name} of an emulated GPU cannot be {value}: see [emulation]"
            raise SpecError(msg) from None
    fill_links(row, spec.links, constants)


def part_fields(constants: Constants) -> dict[str, Any]:
    """Return the fields that the part itself decides: name, memory, power, heat, clocks, PCIe."""
    number, text = constants.number, constants.text
    memory = int(number("memory_total")) * MIB
    major, _, minor = text("compute_capability").partition(".")
    return {
        "name": text("name").encode(),
        "vbios": text("vbios_version").encode(),
        "inforom": b"G520.0200.00.05",
        "pci_id": int(text("pci_id"), 16) << 16 | NVIDIA,
        "pci_subsystem": int(text("pci_subsystem_ids").split(",")[0], 16) << 16 | NVIDIA,
        "architecture": _ARCHITECTURES.get(text("architecture"), 0xFFFFFFFF),
        "capability_major": int(major),
        "capability_minor": int(minor),
        "cores": int(number("sm_count")) * 128,
        "memory_bus_bits": 8192 if number("hbm_rate") > 5 else 5120,  # noqa: PLR2004 - 8 or 5 stacks
        "memory_total": memory,
        "memory_reserved": RESERVED_MIB * MIB,
        "memory_used": 0,
        "bar1_total": 1 << (memory - 1).bit_length(),
        "limit_min_mw": int(number("power_min") * 1000),
        "limit_max_mw": int(number("power_max") * 1000),
        "limit_default_mw": int(_default_limit(constants) * 1000),
        "limit_requested_mw": int(_default_limit(constants) * 1000),
        "remap_histogram": (int(number("remap_banks")), 0, 0, 0, 0),
        **_smoothing(constants),
        **_heat(constants),
        **_clocks(constants),
        **_pcie(constants),
    }


def fill_links(row: Any, count: int, constants: Constants) -> None:
    """Write `count` healthy NVLinks into `row`; a GPU of this driver has at most 18."""
    count = min(count, LINKS)
    row["nvlink_count"] = count
    if not count:
        return
    generation = int(constants.number("nvlink_generation"))
    row["nvlink_version"] = generation + 2
    links = row["links"][:count]
    links["state"] = 1
    links["speed_mbps"] = int(constants.number("nvlink_speed") * 1000)
    links["ber_mantissa"], links["ber_exponent"] = NO_BER
    links["symbol_ber_mantissa"], links["symbol_ber_exponent"] = NO_BER
    links["remote_type"] = 2
    links["remote_link"] = row["index"]


def _default_limit(constants: Constants) -> float:
    try:
        return constants.number("power_default")
    except SpecError:
        return constants.number("power_max")


def _smoothing(constants: Constants) -> dict[str, Any]:
    """Return the circuit of power smoothing, unworn and switched off, where the part has one."""
    if constants.text("architecture") not in SMOOTHED:
        return {"smoothing_supported": 0}
    watts = _default_limit(constants)
    return {
        "smoothing_supported": 1,
        "smoothing_lifetime": 100,
        "smoothing_floor_min": FLOORS[0],
        "smoothing_floor_max": FLOORS[1],
        "smoothing_ceiling_mw": int(watts * 1000),
        "smoothing_floor_mw": int(watts * 10 * PRESETS[0][0]),
        "smoothing_profiles": PRESETS,
    }


def _heat(constants: Constants) -> dict[str, Any]:
    number = constants.number
    names = {
        "shutdown_c": "temperature_shutdown",
        "slowdown_c": "temperature_slowdown",
        "gpu_max_c": "temperature_max_operating",
        "memory_max_c": "memory_temperature_max",
        "shutdown_offset_c": "tlimit_shutdown",
        "slowdown_offset_c": "tlimit_slowdown",
        "gpu_max_offset_c": "tlimit_max_operating",
    }
    return {field: int(number(name)) for field, name in names.items()}


def _clocks(constants: Constants) -> dict[str, Any]:
    sm, memory = int(constants.number("sm_clock_max")), int(constants.number("hbm_clock"))
    limits, now = [0] * 4, [0] * 4
    limits[GRAPHICS] = limits[SM] = limits[VIDEO] = sm
    now[GRAPHICS] = now[SM] = now[VIDEO] = CLOCK_IDLE_MHZ
    limits[MEMORY] = now[MEMORY] = memory
    return {"clock_max_mhz": limits, "clock_app_mhz": limits, "clock_mhz": now}


def _pcie(constants: Constants) -> dict[str, Any]:
    gen, width = int(constants.number("pcie_gen")), int(constants.number("pcie_width"))
    return {"pcie_gen": IDLE_GEN, "pcie_gen_max": gen, "pcie_width": width, "pcie_width_max": width}


def _fabric(spec: RackSpec, position: int) -> dict[str, Any]:
    """Return the registration with the fabric: completed, healthy, one cluster for each domain.

    A driver of Hopper states no health (platform.absent), so the fields stay 0 there.
    """
    if not spec.switches:
        return {"fabric_state": 0}
    domain = position // spec.domain
    told = (spec.sku.number("nvlink_generation") or 5) >= 5  # noqa: PLR2004 - as platform.py
    return {
        "fabric_state": 3,
        "fabric_status": 0,
        "fabric_clique": 1 + domain,
        "fabric_uuid": np.frombuffer(cluster(spec, domain), np.uint8),
        # every two-bit condition "false", and no incorrect configuration
        "fabric_health_mask": 0x1AA if told else 0,
        "fabric_health_summary": 1 if told else 0,
    }
