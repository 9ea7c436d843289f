"""What NVML says of the NVLink fabric and of single links: readings for the table of metrics.

In: a handle, and a link's number. Out: the value in the metric's unit. NVMLError passes through
(nvml.py translates it); an answer that is no reading raises a DeviceError here.
"""

import ctypes
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pynvml

from rackproof.harness.devices.nvml_fields import (
    NO_SUCH_CALL,
    bit_error_rate,
    number,
    value,
    values,
)
from rackproof.harness.errors import DeviceError
from rackproof.harness.model import Value

Handle = Any
Answer = Any
"""A number, or the NVMLError of one entry."""

# --- the fabric ---------------------------------------------------------------------------------

_STATES = ("not-supported", "not-started", "in-progress", "completed")
_COMPLETED = 3
_STRUCTS = (
    (pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.nvmlDeviceGetGpuFabricInfoV),
    (pynvml.c_nvmlGpuFabricInfo_v2_t, pynvml.nvmlDeviceGetGpuFabricInfoV),
    (pynvml.c_nvmlGpuFabricInfo_t, pynvml.nvmlDeviceGetGpuFabricInfo),
)
_SUMMARIES = {1: "healthy", 2: "unhealthy", 3: "limited-capacity"}


def _fabric(handle: Handle) -> Any:
    """Return the newest struct that this driver fills in."""
    for struct, call in _STRUCTS:
        found = struct()
        try:
            call(handle, ctypes.byref(found))
        except pynvml.NVMLError as error:
            if error.value not in NO_SUCH_CALL:
                raise
            continue
        return found
    raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)


def _registered(handle: Handle) -> Any:
    """Return the fabric struct of a GPU whose registration is over; only then it says more."""
    found = _fabric(handle)
    if found.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    if found.state != pynvml.NVML_GPU_FABRIC_STATE_COMPLETED:
        msg = f"registration with the fabric is {_state_name(found.state)}"
        raise DeviceError(msg)
    return found


def _state_name(state: int) -> str:
    return _STATES[state] if state < len(_STATES) else f"unknown-{state}"


def state(handle: Handle) -> str:
    """Return how far the registration is."""
    return _state_name(_fabric(handle).state)


def status(handle: Handle) -> str:
    """Return how the registration ended: success, or NVML's words for the error."""
    outcome = _registered(handle).status
    return "success" if outcome == 0 else str(pynvml.NVMLError(outcome)).lower()


def health(handle: Handle) -> str:
    """Return the driver's summary, or ours of its health mask where it gives none."""
    found = _registered(handle)
    summary = _SUMMARIES.get(getattr(found, "healthSummary", 0))
    if summary is not None:
        return summary
    mask = getattr(found, "healthMask", 0)
    if not mask:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return "unhealthy" if _sick(mask) else "healthy"


# Places in the packed health mask (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK_*): two bits each for
# degraded bandwidth, route recovery, unhealthy route and access time-outs, of which 1 means yes;
# four bits for the configuration, of which 0 means not supported and 1 means right.
_TROUBLES = (0, 2, 4, 6)
_YES = 1
_CONFIGURATION = 8
_RIGHT = 1


def _sick(mask: int) -> bool:
    """Whether the health mask of a driver that gives no summary shows a fault."""
    if any(mask >> place & 0x3 == _YES for place in _TROUBLES):
        return True
    return mask >> _CONFIGURATION & 0xF > _RIGHT


def clique(handle: Handle) -> str:
    """Return ``cluster UUID/clique``."""
    found = _registered(handle)
    return f"{uuid.UUID(bytes=bytes(found.clusterUuid))}/{found.cliqueId}"


# --- links --------------------------------------------------------------------------------------

_ERROR_FIELDS = (
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY,
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_CRC,
    pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS,
)
_DATA_FIELDS = (
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX,
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX,
)
_BYTE_FIELDS = (
    pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES,
    pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES,
)
_RECOVERY_FIELDS = (
    pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS,
    pynvml.NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
    pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_RECOVERY,
)
_COUNTED = tuple(dict.fromkeys((*_DATA_FIELDS, *_ERROR_FIELDS, *_RECOVERY_FIELDS)))


def _link_active(handle: Handle, link: int) -> int:
    return int(pynvml.nvmlDeviceGetNvLinkState(handle, link) != 0)


def _link_speed(handle: Handle, link: int) -> float:
    found = value(handle, pynvml.NVML_FI_DEV_NVLINK_GET_SPEED, link)
    if not found:
        msg = "the link is down and has no speed"
        raise DeviceError(msg)
    return found / 1000


def _link_errors(handle: Handle, link: int) -> Value:
    found = values(handle, [(field, link) for field in _ERROR_FIELDS])
    counts = _numbers(found, "link errors")
    if counts:
        return sum(counts)
    if found[0].value != pynvml.NVML_ERROR_NOT_SUPPORTED:  # type: ignore[union-attr]
        raise found[0]  # type: ignore[misc]
    return sum(
        number(pynvml.nvmlDeviceGetNvLinkErrorCounter(handle, link, counter), "link errors")
        for counter in range(pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT + 1)
    )


def _numbers(found: Sequence[Answer], what: str) -> list[float]:
    """Return the numbers among the answers; a mark for no value is a DeviceError."""
    return [number(f, what) for f in found if not isinstance(f, pynvml.NVMLError)]


def _link_ber(handle: Handle, link: int) -> float:
    return bit_error_rate(int(value(handle, pynvml.NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER, link)))


def link_counters(handle: Handle, links: int) -> list[dict[str, int | Exception]]:
    """Return for each link `sent`, `received` (KiB), `errors`, `recoveries`: a count, or why not.

    Where the counters of data are not supported, those of NVLink 5, in bytes, take their place.
    Recoveries are those of NVLink 5 where the driver has them, and those up to NVLink 4 else.
    """
    asked = [(field, link) for link in range(links) for field in _COUNTED]
    answers = values(handle, asked) if asked else []
    size = len(_COUNTED)
    found = []
    for link in range(links):
        said = dict(zip(_COUNTED, answers[link * size : (link + 1) * size], strict=True))
        counted = {
            name: _count([said[field]]) for name, field in zip(_WAYS, _DATA_FIELDS, strict=True)
        }
        if any(isinstance(count, pynvml.NVMLError) for count in counted.values()):
            counted |= _bytes_of(handle, link)
        *recoveries, old = (said[field] for field in _RECOVERY_FIELDS)
        new = not all(isinstance(answer, pynvml.NVMLError) for answer in recoveries)
        counted["errors"] = _count([said[field] for field in _ERROR_FIELDS])
        counted["recoveries"] = _count(recoveries if new else [old])
        found.append(counted)
    return found


_WAYS = ("sent", "received")


def _bytes_of(handle: Handle, link: int) -> dict[str, int | Exception]:
    """Return what crossed a link by its counters of bytes, in KiB."""
    answers = values(handle, [(field, link) for field in _BYTE_FIELDS])
    counts = [_count([answer]) for answer in answers]
    return {
        way: count if isinstance(count, Exception) else count // 1024
        for way, count in zip(_WAYS, counts, strict=True)
    }


def _count(answers: Sequence[Answer]) -> int | Exception:
    """Return the sum of what was answered, or why nothing was."""
    try:
        counts = _numbers(answers, "the link's counter")
    except DeviceError as error:
        return error
    if counts:
        return int(sum(counts))
    why: Exception = next(a for a in answers if isinstance(a, pynvml.NVMLError))
    return why


LINK: dict[str, Callable[[Handle, int], Value]] = {
    "nvlink.active": _link_active,
    "nvlink.speed": _link_speed,
    "nvlink.errors": _link_errors,
    "nvlink.ber": _link_ber,
}
