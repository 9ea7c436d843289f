"""DCGM's fields as metrics: which field is which count, and what its stand-ins for "blank" are."""

import math

from rackproof.harness.model import Why
from rackproof.harness.readers.link_counters import metric_of

FIELD, EXPORTED = "DCGM_FI_DEV_", "DCGM_EXP_"
# dcgm_structs.h: DCGM_INT32_BLANK, DCGM_INT64_BLANK and DCGM_FP64_BLANK, each with fifteen
# neighbours for not found, not supported, not permitted.
_BLANKS = (0x7FFFFFF0, 0x7FFFFFFFFFFFFFF0, 140737488355328)
_NEIGHBOURS = 16
# A double cannot hold all digits of the 64-bit blanks: they arrive as 2^63.
_TOP = 2.0**63
_KINDS = {1: Why.NO_READING, 2: Why.NOT_SUPPORTED, 3: Why.NOT_PERMITTED}
SMALL = 1024

COUNTS = {
    "ECC_DBE_VOL_TOTAL": ("ecc.uncorrected.volatile", "errors"),
    "ECC_SBE_VOL_TOTAL": ("ecc.corrected.volatile", "errors"),
    "ECC_DBE_AGG_TOTAL": ("ecc.uncorrected.aggregate", "errors"),
    "ECC_SBE_AGG_TOTAL": ("ecc.corrected.aggregate", "errors"),
    "UNCORRECTABLE_REMAPPED_ROWS": ("remap.rows.uncorrected", "rows"),
    "CORRECTABLE_REMAPPED_ROWS": ("remap.rows.corrected", "rows"),
    "ROW_REMAP_FAILURE": ("remap.failure", "flag"),
    "ROW_REMAP_PENDING": ("remap.pending", "flag"),
    "BANKS_REMAP_ROWS_AVAIL_LOW": ("remap.banks.low", "banks"),
    "BANKS_REMAP_ROWS_AVAIL_NONE": ("remap.banks.none", "banks"),
    "THRESHOLD_SRM": ("sram.threshold", "flag"),
    "RETIRED_PENDING": ("retired.pending", "flag"),
    "PCIE_REPLAY_COUNTER": ("pcie.replays", "errors"),
    "PCIE_LINK_WIDTH": ("pcie.width", "lanes"),
    "PCIE_MAX_LINK_WIDTH": ("pcie.width.max", "lanes"),
    "GPU_TEMP": ("temperature", "C"),
    "GPU_TEMP_LIMIT": ("thermal.margin", "C"),
    "THERMAL_VIOLATION": ("violation.thermal", "s"),
    "POWER_VIOLATION": ("violation.power", "s"),
}
# The parts of the ECC totals, counted where the total is not exported.
PARTS = {"ECC_DBE_VOL_": "ecc.uncorrected.volatile", "ECC_SBE_VOL_": "ecc.corrected.volatile"}
RETIRED = frozenset(("RETIRED_SBE", "RETIRED_DBE"))
REASONS = frozenset(("CLOCK_THROTTLE_REASONS", "CLOCKS_EVENT_REASONS"))
# NVML nvmlClocksEventReasons, by bit; and the words of the exporter's own count of them.
THROTTLES = {
    "throttle.hw_slowdown": (0x08, ("hw_slowdown",)),
    "throttle.thermal": (0x60, ("sw_thermal", "hw_thermal")),
    "throttle.power_brake": (0x80, ("hw_power_brake",)),
}
# dcgm_structs.h dcgmFabricManagerStatus_t.
FABRIC = {0: ("not-supported", ""), 1: ("not-started", ""), 2: ("in-progress", ""),
          3: ("completed", "success"), 4: ("completed", "failure")}  # fmt: skip
XIDS = frozenset(("DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT",
                  "DCGM_FI_DEV_XID_ERRORS_ACTIVE"))  # fmt: skip
HEALTH = frozenset(("DCGM_EXP_GPU_HEALTH_STATUS",))
# dcgm_structs.h DCGM_HEALTH_RESULT_*: below 10 all is well.
WARNED, FAILED = 10, 20
# dcgm_structs.h DCGM_HEALTH_WATCH_*, those that name a part.
WATCHES = frozenset(("pcie", "nvlink", "mem", "sm", "thermal", "power", "driver"))
NANO = 1e-9
_PER_LINK = ("CRC_FLIT_ERROR_COUNT_L", "CRC_DATA_ERROR_COUNT_L", "REPLAY_ERROR_COUNT_L",
             "RECOVERY_ERROR_COUNT_L")  # fmt: skip


def blank(value: float) -> Why | None:
    """Return why a value is no reading, or None where it is one."""
    if math.isnan(value) or math.isinf(value):
        return Why.NO_READING
    for top in _BLANKS[::2]:
        if top <= value < top + _NEIGHBOURS:
            return _KINDS.get(int(value) - top, Why.NO_READING)
    if value >= _TOP or (1 << 32) - SMALL <= value < 1 << 32:
        return Why.NO_READING
    return None


def link_of(field: str) -> tuple[str, int | None]:
    """Return (metric, link or None) of an NVLink counter's field; "" where it is none."""
    if not field.startswith("NVLINK_"):
        return "", None
    name = field.removeprefix("NVLINK_")
    for head in _PER_LINK:
        tail = name.removeprefix(head)
        if tail != name and tail.isdecimal() and len(tail) < 3:  # noqa: PLR2004
            return metric_of(head), int(tail)
    return metric_of(name), None
