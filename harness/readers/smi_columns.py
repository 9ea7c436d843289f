"""The columns of nvidia-smi's CSV queries, each as the field that `nvidia-smi -q` has for it."""

import re
from collections.abc import Mapping, Sequence

from rackproof.harness.readers.smi_fields import slug, why_absent

_NAME = re.compile(r"[A-Za-z][\w.]{1,80}(?: \[[\w/%]{1,8}\])?\Z")
# Old names, and those of --query-retired-pages and --query-remapped-rows.
_SAME = {
    "gpu_name": "name", "gpu_bus_id": "pci.bus_id", "gpu_serial": "serial", "gpu_uuid": "uuid",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current", "pcie.link.gen.gpumax": "",
    "retired_pages.sbe": "retired_pages.single_bit_ecc.count",
    "retired_pages.dbe": "retired_pages.double_bit.count",
}  # fmt: skip
# Single words that other tables have too: they make no header by themselves.
_COMMON = frozenset("timestamp count name index serial uuid pid process_name hostname".split())
_KNOWN = frozenset(
    "driver_version vbios_version pstate gpu_recovery_action compute_mode compute_cap "
    "persistence_mode display_mode display_active used_gpu_memory used_memory gpu_name gpu_bus_id "
    "gpu_serial gpu_uuid kmd_version".split()
)
_SPACES = frozenset(
    "pci pcie memory utilization temperature power clocks clocks_event_reasons "
    "clocks_throttle_reasons clocks_event_reasons_counters ecc retired_pages remapped_rows fabric "
    "mig inforom driver_model fan encoder enforced gom accounting gsp protected_memory module "
    "power_smoothing vgpu_driver_capability vgpu_device_capability platform c2c".split()
)
_PATHS = {
    "name": "product_name", "serial": "serial", "uuid": "uuid", "vbios_version": "vbios_version",
    "gpu_recovery_action": "gpu_recovery_action", "pstate": "performance_state",
    "pcie.link.gen.current": "pci/gpu_link_info/pcie_generation/current",
    "pcie.link.gen.max": "pci/gpu_link_info/pcie_generation/max",
    "pcie.link.width.current": "pci/gpu_link_info/link_width/current",
    "pcie.link.width.max": "pci/gpu_link_info/link_width/max",
    "memory.total": "fb_memory_usage/total", "utilization.gpu": "utilization/gpu",
    "temperature.gpu": "temperature/gpu_current_temp",
    "ecc.mode.current": "ecc_mode/current",
    "ecc.errors.uncorrected.aggregate.sram.thresholdexceeded":
        "ecc_errors/aggregate/sram_threshold_exceeded",
    "retired_pages.single_bit_ecc.count": "retired_pages/single_bit_ecc",
    "retired_pages.double_bit.count": "retired_pages/double_bit_ecc",
    "retired_pages.pending": "retired_pages/pending_page_blacklist",
    "remapped_rows.correctable": "remapped_rows/correctable_error",
    "remapped_rows.uncorrectable": "remapped_rows/uncorrectable_error",
    "remapped_rows.pending": "remapped_rows/pending",
    "remapped_rows.failure": "remapped_rows/remapping_failure_occurred",
    "remapped_rows.histogram.low": "remapped_rows/bank_remap_availability_histogram/low",
    "remapped_rows.histogram.none": "remapped_rows/bank_remap_availability_histogram/none",
    "fabric.state": "fabric/state", "fabric.status": "fabric/status",
    "fabric.cliqueid": "fabric/cliqueid", "fabric.clusteruuid": "fabric/clusteruuid",
}  # fmt: skip
# NVML nvmlClocksEventReasons: the bits of the mask, where the columns of their own are not asked.
_BITS = (
    (0x08, "hw_slowdown"),
    (0x20, "sw_thermal_slowdown"),
    (0x40, "hw_thermal_slowdown"),
    (0x80, "hw_power_brake_slowdown"),
)
_MASK = re.compile(r"0x[0-9a-fA-F]{1,16}\Z")
_COUNT = re.compile(r"\d{1,20}\Z")


def bare_name(cell: str) -> str:
    """Return a column's name in its newest spelling, in lower case and without its unit."""
    name = cell.partition(" [")[0].strip().lower()
    name = name.replace("clocks_throttle_reasons", "clocks_event_reasons")
    return _SAME.get(name, name)


def is_header(cells: Sequence[str]) -> bool:
    """Whether a row is a header of nvidia-smi's: all cells are names, and one is its own."""
    if not all(_NAME.match(cell) for cell in cells):
        return False
    names = [cell.partition(" [")[0].lower() for cell in cells]
    own = [n for n in names if n in _KNOWN or ("." in n and n.partition(".")[0] in _SPACES)]
    listed = sum(n in _COMMON for n in names)
    return bool(own) and 2 * (len(own) + listed) > len(names)


def _ecc(row: Mapping[str, str], found: dict[str, str]) -> None:
    """Take the ECC counts once: by memory where both are told, else the total, else the parts."""
    for sort, few, one in (("corrected", "correctable", "single"),
                           ("uncorrected", "uncorrectable", "double")):  # fmt: skip
        for since in ("volatile", "aggregate"):
            head = f"ecc.errors.{sort}.{since}."
            parts = {k.removeprefix(head): v for k, v in row.items() if k.startswith(head)}
            path = f"ecc_errors/{since}/"
            if all(_COUNT.match(parts.get(memory, "")) for memory in ("dram", "sram")):
                found[f"{path}dram_{few}"] = parts["dram"]
                found[f"{path}sram_{few}"] = parts["sram"]
            elif "total" in parts and (why_absent(parts["total"]) is None or len(parts) == 1):
                found[f"{path}{one}_bit/total"] = parts["total"]
            elif counts := [int(v) for k, v in parts.items() if "." not in k and _COUNT.match(v)]:
                found[f"{path}{one}_bit/total"] = str(sum(counts))
            elif parts:
                found[f"{path}{one}_bit/total"] = next(iter(parts.values()))


def fields(row: Mapping[str, str]) -> dict[str, str]:
    """Return one row, by column, as fields by the paths of `nvidia-smi -q`."""
    found: dict[str, str] = {}
    for name, cell in row.items():
        reason = name.removeprefix("clocks_event_reasons.")
        health = name.removeprefix("fabric.health.")
        if name in _PATHS:
            found[_PATHS[name]] = cell
        elif reason != name and reason not in ("active", "supported"):
            found[f"clocks_event_reasons/{reason}"] = cell
        elif health != name:
            found[f"fabric/health/{health}"] = cell
        elif name and not name.startswith("ecc.errors."):
            found[f"csv/{slug(name)}"] = cell
    _ecc(row, found)
    mask = row.get("clocks_event_reasons.active", "")
    if _MASK.match(mask):
        for bit, reason in _BITS:
            on = "Active" if int(mask, 16) & bit else "Not Active"
            found.setdefault(f"clocks_event_reasons/{reason}", on)
    return found
