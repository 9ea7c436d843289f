"""One table: a metric's name in metrics.toml -> how NVML is asked for it.

In: a handle. Out: the value in the metric's unit. NVMLError passes through (nvml.py translates it);
a sentinel or an answer that is no reading raises a DeviceError here.
"""

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import pynvml

from rackproof.harness.devices import nvml_fabric
from rackproof.harness.devices.nvml_fields import NO_SUCH_CALL, number, value, values
from rackproof.harness.errors import DeviceError
from rackproof.harness.model import Value

Handle = Any
Reading = Callable[[Handle], Value]

_MIB = 2**20
_LONG_DOMAIN = 0xFFFF
_TOLD_NOTHING = frozenset({"", "N/A", "[N/A]", "Unknown", "[Unknown Error]"})


def _text(call: Callable[[Handle], Any]) -> Reading:
    def read(handle: Handle) -> str:
        found = str(call(handle)).strip()
        if found in _TOLD_NOTHING:
            msg = f"the driver answers with {found!r}, which is no value"
            raise DeviceError(msg)
        return found

    return read


def _count(call: Callable[..., Any], *arguments: Any, per: float = 1) -> Reading:
    """Read a whole number; with `per`, a number of the larger unit that `per` of them make."""

    def read(handle: Handle) -> Value:
        found = number(call(handle, *arguments), call.__name__)
        return found if per == 1 else found / per

    return read


def _pci_id(handle: Handle) -> str:
    return f"0x{pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId >> 16:04x}"


def _memory_total(handle: Handle) -> float:
    return number(pynvml.nvmlDeviceGetMemoryInfo(handle).total, "memory size") // _MIB


def _memory_free(handle: Handle) -> float:
    return number(pynvml.nvmlDeviceGetMemoryInfo(handle).free, "free memory") // _MIB


def _pci(handle: Handle) -> str:
    place = pynvml.nvmlDeviceGetPciInfo(handle)
    domain = f"{place.domain:04x}" if place.domain <= _LONG_DOMAIN else f"{place.domain:08x}"
    return f"{domain}:{place.bus:02x}:{place.device:02x}.0"


def _links(handle: Handle) -> Value:
    try:
        return value(handle, pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT)
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_NOT_SUPPORTED:
            raise
    # A driver without that field: a link that is there has a state, up or not.
    found = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            pynvml.nvmlDeviceGetNvLinkState(handle, link)
        except pynvml.NVMLError as error:
            if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                raise
            break
        found += 1
    if not found:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return found


def _sram_threshold(handle: Handle) -> int:
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return int(status.bThresholdExceeded != 0)


def _remapped(place: int) -> Reading:
    def read(handle: Handle) -> Value:
        return number(pynvml.nvmlDeviceGetRemappedRows(handle)[place], "remapped rows")

    return read


def _banks(which: str) -> Reading:
    def read(handle: Handle) -> Value:
        histogram = pynvml.nvmlDeviceGetRowRemapperHistogram(handle)
        return number(getattr(histogram, which), "row remapper histogram")

    return read


def _retired_pages(handle: Handle) -> int:
    causes = range(pynvml.NVML_PAGE_RETIREMENT_CAUSE_COUNT)
    return sum(len(list(pynvml.nvmlDeviceGetRetiredPages(handle, cause))) for cause in causes)


def _event_reasons(handle: Handle) -> int:
    try:
        return int(pynvml.nvmlDeviceGetCurrentClocksEventReasons(handle))
    except pynvml.NVMLError as error:
        if error.value != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
            raise
        return int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle))


def _throttle(bits: int) -> Reading:
    return lambda handle: int(_event_reasons(handle) & bits != 0)


def _temperature(handle: Handle) -> int:
    try:
        found = pynvml.nvmlDeviceGetTemperatureV(handle, pynvml.NVML_TEMPERATURE_GPU)
    except pynvml.NVMLError as error:
        if error.value not in NO_SUCH_CALL:
            raise
        found = pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU)
    # The old call is unsigned and the new one signed: the mark for no value is -1 in the latter.
    if found == -1:
        msg = "the driver answers with its mark for no value (-1)"
        raise DeviceError(msg)
    return int(number(found, "temperature"))


def _power(handle: Handle) -> float:
    """Average over 1 s in W. Where the field is not there, the call is the average from Ampere."""
    try:
        return value(handle, pynvml.NVML_FI_DEV_POWER_AVERAGE) / 1000
    except pynvml.NVMLError as error:
        if error.value not in {pynvml.NVML_ERROR_NOT_SUPPORTED, *NO_SUCH_CALL}:
            raise
    return number(pynvml.nvmlDeviceGetPowerUsage(handle), "power") / 1000


def _power_now(handle: Handle) -> float:
    """Return the power right now in W; no call stands in for this field, for calls average."""
    return value(handle, pynvml.NVML_FI_DEV_POWER_INSTANT) / 1000


def _limit_gap(handle: Handle) -> float:
    """Return by how many W the limit in force is below the one that was asked for."""
    limits = power_limits(handle)
    return max(0.0, limits["requested"] - limits["current"])


_RECOVERY = dict(
    enumerate(
        (
            "none",
            "reset",
            "reboot",
            "drain-p2p",
            "drain-and-reset",
            "recover-imex-domain",
            "bus-reset",
            "system-reboot",
        )
    )
)


def _recovery_action(handle: Handle) -> str:
    action = value(handle, pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
    return _RECOVERY.get(int(action), f"unknown-{action:.0f}")


_ECC = {
    "uncorrected": pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
    "corrected": pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED,
}
_SPAN = {"volatile": pynvml.NVML_VOLATILE_ECC, "aggregate": pynvml.NVML_AGGREGATE_ECC}
_THERMAL = pynvml.nvmlClocksEventReasonHwThermalSlowdown
_THERMAL |= pynvml.nvmlClocksEventReasonSwThermalSlowdown

GPU: dict[str, Reading] = {
    "gpu.name": _text(pynvml.nvmlDeviceGetName),
    "gpu.pci_id": _pci_id,
    "gpu.serial": _text(pynvml.nvmlDeviceGetSerial),
    "gpu.uuid": _text(pynvml.nvmlDeviceGetUUID),
    "gpu.pci": _pci,
    "memory.total": _memory_total,
    "memory.free": _memory_free,
    "driver.version": _text(lambda _: pynvml.nvmlSystemGetDriverVersion()),
    "vbios.version": _text(pynvml.nvmlDeviceGetVbiosVersion),
    "pcie.gen.max": _count(pynvml.nvmlDeviceGetMaxPcieLinkGeneration),
    "pcie.width.max": _count(pynvml.nvmlDeviceGetMaxPcieLinkWidth),
    "pcie.gen": _count(pynvml.nvmlDeviceGetCurrPcieLinkGeneration),
    "pcie.width": _count(pynvml.nvmlDeviceGetCurrPcieLinkWidth),
    "pcie.replays": _count(pynvml.nvmlDeviceGetPcieReplayCounter),
    "nvlink.links": _links,
    "ecc.enabled": lambda handle: int(pynvml.nvmlDeviceGetEccMode(handle)[0] != 0),
    **{
        f"ecc.{kind}.{span}": _count(pynvml.nvmlDeviceGetTotalEccErrors, _ECC[kind], _SPAN[span])
        for kind in _ECC
        for span in _SPAN
    },
    "sram.threshold": _sram_threshold,
    "remap.rows.corrected": _remapped(0),
    "remap.rows.uncorrected": _remapped(1),
    "remap.pending": _remapped(2),
    "remap.failure": _remapped(3),
    "remap.banks.none": _banks("none"),
    "remap.banks.low": _banks("low"),
    "retired.pending": _count(pynvml.nvmlDeviceGetRetiredPagesPendingStatus),
    "retired.pages": _retired_pages,
    "throttle.thermal": _throttle(_THERMAL),
    "throttle.power_brake": _throttle(pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown),
    "throttle.hw_slowdown": _throttle(pynvml.nvmlClocksEventReasonHwSlowdown),
    "temperature": _temperature,
    "thermal.margin": _count(pynvml.nvmlDeviceGetMarginTemperature),
    "recovery.action": _recovery_action,
    "fabric.state": nvml_fabric.state,
    "fabric.status": nvml_fabric.status,
    "fabric.health": nvml_fabric.health,
    "fabric.clique": nvml_fabric.clique,
    "power.average": _power,
    "power.instant": _power_now,
    "power.energy": _count(pynvml.nvmlDeviceGetTotalEnergyConsumption, per=1000),
    "power.limit": lambda handle: power_limits(handle)["current"],
    "power.limit.gap": _limit_gap,
    "clock.sm": _count(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
}

# --- who a GPU is, and its power limits -----------------------------------------------------------

# version, IB GUID, chassis serial, slot, tray, host, peer type, module. Read as bytes: the wrapper
# has these numbers as text and cannot decode one above 127.
_PLATFORM = struct.Struct("=I16s16s5B")


def _platform(handle: Handle) -> tuple[int | None, int | None]:
    """Return tray index and module id, None where the platform has no such things."""
    try:
        found = pynvml.c_nvmlPlatformInfo_v2_t()
        pynvml.nvmlDeviceGetPlatformInfo(handle, ctypes.byref(found))
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise
        return None, _optional(pynvml.nvmlDeviceGetModuleId, handle)
    *_, tray, _, _, module = _PLATFORM.unpack_from(bytes(found))
    return tray, module


def _optional(call: Callable[[Handle], Any], handle: Handle) -> Any:
    try:
        return call(handle)
    except pynvml.NVMLError as error:
        if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise
        return None


def identity(handle: Handle) -> dict[str, Any]:
    """Return serial, uuid, pci, tray and module; raises NVMLError."""
    tray, module = _platform(handle)
    return {
        "serial": _optional(pynvml.nvmlDeviceGetSerial, handle),
        "uuid": pynvml.nvmlDeviceGetUUID(handle),
        "pci": _pci(handle),
        "tray": tray,
        "module": module,
    }


_LIMITS = {
    "current": pynvml.NVML_FI_DEV_POWER_CURRENT_LIMIT,
    "requested": pynvml.NVML_FI_DEV_POWER_REQUESTED_LIMIT,
    "default": pynvml.NVML_FI_DEV_POWER_DEFAULT_LIMIT,
    "low": pynvml.NVML_FI_DEV_POWER_MIN_LIMIT,
    "high": pynvml.NVML_FI_DEV_POWER_MAX_LIMIT,
}


def power_limits(handle: Handle) -> dict[str, float]:
    """Return the limits in W under the names of nvml.PowerLimits; raises NVMLError.

    A driver that has no such fields is asked by the older calls.
    """
    limits = {}
    answers = values(handle, [(field, 0) for field in _LIMITS.values()])
    for name, found in zip(_LIMITS, answers, strict=True):
        if isinstance(found, pynvml.NVMLError):
            if found.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                return _limits_by_calls(handle)
            raise found
        limits[name] = number(found, f"{name} power limit") / 1000
    return limits


def _limits_by_calls(handle: Handle) -> dict[str, float]:
    """Return the limits by the calls that are older than the fields; the board enforces."""
    low, high = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    found = {
        "current": pynvml.nvmlDeviceGetEnforcedPowerLimit(handle),
        "requested": pynvml.nvmlDeviceGetPowerManagementLimit(handle),
        "default": pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle),
        "low": low,
        "high": high,
    }
    return {name: number(watts, f"{name} power limit") / 1000 for name, watts in found.items()}
