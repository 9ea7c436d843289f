"""The layout of the emulated driver's state file, as numpy dtypes with the unit of every field.

The same members stand in ``driver_state.h``; ``driver.matching_library`` compares every name,
offset and size before anything is read through the C library. No padding on either side.
"""

from enum import IntFlag

import numpy as np

MAGIC = b"RPNVML\r\n"
VERSION = 1
LINKS = 18
PROFILES = 5
EVENTS = 4096
"""How many events the ring holds."""

CORRECTED, UNCORRECTED = 0, 1
"""First index of the field ``ecc``."""
VOLATILE, AGGREGATE = 0, 1
"""Second index of ``ecc``: since the driver was loaded, over the GPU's life."""
DRAM, SRAM = 0, 1
"""Third index of ``ecc``."""
GRAPHICS, SM, MEMORY, VIDEO = 0, 1, 2, 3
"""Index of ``clock_mhz``, ``clock_max_mhz`` and ``clock_app_mhz``."""


class Flag(IntFlag):
    """Bits of the field ``flags``."""

    LOST = 1
    """Every call about this GPU answers GPU_IS_LOST; it still counts as one of the machine's."""
    ABSENT = 2
    """The GPU is not counted and not listed; the indices above it close up."""
    NO_PERMISSION = 4
    """Setters answer NO_PERMISSION."""
    HUNG = 8
    """Every call about this GPU answers TIMEOUT."""


class Sensor(IntFlag):
    """Bits of ``missing`` (the reading answers UNKNOWN) and ``unsupported`` (NOT_SUPPORTED)."""

    TEMPERATURE = 1 << 0
    """Core and memory temperature, and the margin, which is derived from them."""
    POWER = 1 << 1
    ECC = 1 << 2
    REMAP = 1 << 3
    FABRIC = 1 << 4
    NVLINK = 1 << 5
    MARGIN = 1 << 6
    ENERGY = 1 << 7
    CLOCK = 1 << 8
    REASONS = 1 << 9
    MEMORY = 1 << 10
    PCIE = 1 << 11
    UTILISATION = 1 << 12
    RECOVERY = 1 << 13
    SRAM = 1 << 14
    NAME = 1 << 15
    VBIOS = 1 << 16
    PLATFORM = 1 << 17
    SERIAL = 1 << 18


_SENSOR_OF = {
    "ecc": Sensor.ECC,
    "fabric": Sensor.FABRIC,
    "clock": Sensor.CLOCK,
    "gpu.name": Sensor.NAME,
    "gpu.serial": Sensor.SERIAL,
    "memory.free": Sensor.MEMORY,
    "memory.total": Sensor.MEMORY,
    "nvlink": Sensor.NVLINK,
    "pcie": Sensor.PCIE,
    "power": Sensor.POWER,
    "power.energy": Sensor.ENERGY,
    "recovery": Sensor.RECOVERY,
    "remap": Sensor.REMAP,
    "sram": Sensor.SRAM,
    "temperature": Sensor.TEMPERATURE,
    "thermal.margin": Sensor.MARGIN,
    "throttle": Sensor.REASONS,
    "vbios": Sensor.VBIOS,
}


_SETTINGS = frozenset({"power.limit", "power.limit.gap"})
"""What is no reading of a sensor, whatever its name begins with."""


def sensor_of(metric: str) -> Sensor | None:
    """Return the sensor that the metric of this name (as in metrics.toml) is read from."""
    if metric in _SETTINGS:
        return None
    return _SENSOR_OF.get(metric) or _SENSOR_OF.get(metric.partition(".")[0])


HEADER = np.dtype(
    [
        ("magic", "S8"),
        ("events_offset", "<u8"),  # bytes from the start of the file
        ("rows_offset", "<u8"),  # bytes from the start of the file
        ("events_head", "<u8"),  # sequence number of the last event; 0: none yet
        ("time_us", "<i8"),  # stamp of field values, us since 1970; 0: the machine's clock
        ("version", "<u4"),
        ("header_size", "<u4"),  # bytes, as the next three
        ("event_size", "<u4"),
        ("row_size", "<u4"),
        ("link_size", "<u4"),
        ("rows", "<u4"),  # GPUs
        ("events", "<u4"),  # slots of the ring
        ("cuda_version", "<u4"),  # 1000 x major + 10 x minor
        ("view_rack", "<i4"),  # only this tray is visible; -1: all are
        ("view_tray", "<i4"),
        ("driver_version", "S80"),
        ("nvml_version", "S80"),
    ]
)

EVENT = np.dtype(
    [
        ("sequence", "<u8"),  # 1, 2, 3, ...
        ("at", "<f8"),  # s, on the clock of the emulated devices
        ("row", "<u4"),
        ("code", "<u4"),  # XID
        ("text", "S232"),
    ]
)

LINK = np.dtype(
    [
        ("replay", "<u8"),  # errors, as the next two
        ("recovery", "<u8"),
        ("crc", "<u8"),  # flow-control packets, all lanes
        ("tx_kib", "<u8"),  # KiB of data sent
        ("rx_kib", "<u8"),
        ("effective_errors", "<u8"),  # errors after correction (NVLink 5)
        ("symbol_errors", "<u8"),
        ("recovered", "<u8"),  # link recoveries that succeeded (NVLink 5)
        ("unrecovered", "<u8"),  # and that failed
        ("fec_history", "<u8", (16,)),  # blocks by number of corrected symbols (NVLink 5)
        ("state", "<u4"),  # 0 inactive, 1 active, 2 sleep
        ("speed_mbps", "<u4"),  # MB/s in one direction
        ("ber_mantissa", "<u4"),  # effective bit error rate = mantissa x 10^-exponent;
        ("ber_exponent", "<u4"),  # 15 and 255 stand for zero
        ("symbol_ber_mantissa", "<u4"),
        ("symbol_ber_exponent", "<u4"),
        ("remote_type", "<u4"),  # 0 GPU, 2 switch, 255 unknown
        ("remote_domain", "<u4"),
        ("remote_bus", "<u4"),
        ("remote_device", "<u4"),
        ("remote_pci_id", "<u4"),  # device id << 16 | vendor id
        ("remote_link", "<u4"),
    ]
)

ROW = np.dtype(
    [
        ("memory_total", "<u8"),  # B, as the next four
        ("memory_used", "<u8"),
        ("memory_reserved", "<u8"),
        ("bar1_total", "<u8"),
        ("bar1_used", "<u8"),
        ("energy_mj", "<u8"),  # mJ since the driver was loaded
        ("event_reasons", "<u8"),  # NVML's clocks event reason bits
        ("throttled_power_ns", "<u8"),  # ns, cumulative: software power cap
        ("throttled_thermal_ns", "<u8"),  # software thermal slowdown
        ("throttled_sync_ns", "<u8"),
        ("throttled_board_ns", "<u8"),
        ("throttled_idle_ns", "<u8"),
        ("throttled_reliability_ns", "<u8"),
        ("throttled_hw_thermal_ns", "<u8"),
        ("throttled_brake_ns", "<u8"),  # external power brake
        ("ecc", "<u8", (2, 2, 2)),  # errors [corrected, un-][volatile, aggregate][DRAM, SRAM]
        ("sram_sources", "<u8", (5,)),  # uncorrected, aggregate: L2, SM, PCIe, MCU, other
        ("flags", "<u4"),  # Flag
        ("missing", "<u4"),  # Sensor
        ("unsupported", "<u4"),  # Sensor
        ("rack", "<u4"),
        ("tray", "<u4"),
        ("index", "<u4"),  # within its tray
        ("module_id", "<u4"),
        ("slot", "<u4"),  # of the chassis
        ("host_id", "<u4"),
        ("peer_type", "<u4"),  # 0 direct, 1 through a switch
        ("pci_domain", "<u4"),
        ("pci_bus", "<u4"),
        ("pci_device", "<u4"),
        ("pci_id", "<u4"),  # device id << 16 | vendor id (0x10de)
        ("pci_subsystem", "<u4"),  # subsystem id << 16 | vendor id
        ("brand", "<u4"),  # 14 NVIDIA
        ("architecture", "<u4"),  # 9 Hopper, 10 Blackwell, 13 Rubin
        ("capability_major", "<u4"),
        ("capability_minor", "<u4"),
        ("cores", "<u4"),
        ("memory_bus_bits", "<u4"),
        ("power_average_mw", "<u4"),  # mW over 1 s
        ("power_instant_mw", "<u4"),  # mW
        ("limit_min_mw", "<u4"),
        ("limit_max_mw", "<u4"),
        ("limit_default_mw", "<u4"),
        ("limit_requested_mw", "<u4"),  # in band; NVML's setter writes it
        ("limit_out_of_band_mw", "<u4"),  # 0: none
        ("temperature_c", "<i4"),  # degC
        ("memory_temperature_c", "<i4"),
        ("margin_c", "<i4"),  # live distance to the slowdown
        ("shutdown_c", "<i4"),  # thresholds; 0: NOT_SUPPORTED
        ("slowdown_c", "<i4"),
        ("memory_max_c", "<i4"),
        ("gpu_max_c", "<i4"),
        ("shutdown_offset_c", "<i4"),  # the same as offsets of the margin (T.Limit), as -8
        ("slowdown_offset_c", "<i4"),
        ("memory_max_offset_c", "<i4"),
        ("gpu_max_offset_c", "<i4"),
        ("clock_mhz", "<u4", (4,)),  # MHz: graphics, SM, memory, video
        ("clock_max_mhz", "<u4", (4,)),
        ("clock_app_mhz", "<u4", (4,)),
        ("clock_locked_min_mhz", "<u4"),  # 0 and 0: not locked; NVML's setter writes them
        ("clock_locked_max_mhz", "<u4"),
        ("pstate", "<u4"),  # 0 is the fastest
        ("util_gpu", "<u4"),  # %
        ("util_memory", "<u4"),
        ("util_encoder", "<u4"),
        ("util_decoder", "<u4"),
        ("compute_mode", "<u4"),
        ("persistence", "<u4"),  # 0 or 1
        ("ecc_enabled", "<u4"),  # 0 or 1; at 0 the counters are NOT_SUPPORTED
        ("sram_threshold", "<u4"),  # 0 or 1
        ("remap_corrected", "<u4"),  # rows
        ("remap_uncorrected", "<u4"),
        ("remap_pending", "<u4"),  # 0 or 1
        ("remap_failure", "<u4"),
        ("remap_histogram", "<u4", (5,)),  # banks by spare rows left: max, high, partial, low, none
        ("recovery_action", "<u4"),  # 0 none, 1 reset, 2 reboot, 3 drain P2P, 4 drain and reset
        ("pcie_gen", "<u4"),
        ("pcie_gen_max", "<u4"),
        ("pcie_width", "<u4"),  # lanes
        ("pcie_width_max", "<u4"),
        ("pcie_replays", "<u4"),
        ("pcie_tx_kbps", "<u4"),  # KB/s
        ("pcie_rx_kbps", "<u4"),
        ("nvlink_count", "<u4"),
        ("nvlink_version", "<u4"),  # 6: NVLink 4.0, 7: NVLink 5.0
        ("fabric_state", "<u4"),  # 0 not supported, 1 not started, 2 in progress, 3 completed
        ("fabric_status", "<u4"),  # an NVML return value; 0 success
        ("fabric_clique", "<u4"),
        ("fabric_health_mask", "<u4"),  # NVML's packed mask
        ("fabric_health_summary", "<u4"),  # 0 not supported, 1 healthy, 2 un-, 3 limited capacity
        ("smoothing_supported", "<u4"),
        ("smoothing_enabled", "<u4"),
        ("smoothing_profile", "<u4"),
        ("smoothing_lifetime", "<u4"),  # % of the circuit's life that is left
        ("smoothing_floor_min", "<u4"),  # % of TDP
        ("smoothing_floor_max", "<u4"),
        ("smoothing_ceiling_mw", "<u4"),
        ("smoothing_floor_mw", "<u4"),
        ("smoothing_profiles", "<u4", (PROFILES, 4)),  # floor %, ramp up, down mW/s, hysteresis ms
        ("fabric_uuid", "u1", (16,)),
        ("rack_guid", "u1", (16,)),
        ("ib_guid", "u1", (16,)),
        ("chassis_serial", "S16"),
        ("name", "S96"),  # empty text: NOT_SUPPORTED
        ("uuid", "S48"),
        ("serial", "S32"),
        ("part_number", "S32"),
        ("vbios", "S32"),
        ("inforom", "S16"),
        ("links", LINK, (LINKS,)),
    ]
)
