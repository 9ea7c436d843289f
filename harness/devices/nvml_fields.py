"""NVML's field values: which id means what under which driver, and what an entry's value is.

nvmlDeviceGetFieldValues succeeds as a whole while its entries fail one by one, so every entry is
looked at. The ids 251 to 273 were numbered three ways (nvidia-ml-py 12.570.86, 12.575.51 to
13.580.65, 13.580.82 and later), so they go by name here, and the driver's version decides.
"""

import re
from collections.abc import Mapping
from typing import Any

import pynvml

from rackproof.harness.errors import DeviceError

_SMOOTHING = (
    "enabled",
    "privilege",
    "immediate_ramp_down",
    "ceiling",
    "floor",
    "floor.max",
    "floor.min",
    "lifetime",
    "profiles",
    "profile.floor",
    "profile.ramp_up",
    "profile.ramp_down",
    "profile.hysteresis",
    "profile.active",
    "override.floor",
    "override.ramp_up",
    "override.ramp_down",
    "override.hysteresis",
)
_THROTTLED = ("throttled.sw_thermal", "throttled.hw_thermal", "throttled.power_brake")
_FIRST = 251
_SETTLED = {"throttled.sw_power": pynvml.NVML_FI_DEV_PERF_POLICY_POWER}
"""What has had the same id in every driver."""

_NO_VALUE = frozenset({0xFFFF_FFFF, 0xFFFF_FFFF_FFFF_FFFF})
"""What the driver writes where it has no value; never a number to us."""

NO_SUCH_CALL = frozenset(
    {
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
    }
)
"""What an older driver answers to a struct or a call that it does not know."""

_MEMBER = {
    pynvml.NVML_VALUE_TYPE_DOUBLE: "dVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_INT: "uiVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG: "ulVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG: "ullVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_LONG_LONG: "sllVal",
    pynvml.NVML_VALUE_TYPE_SIGNED_INT: "siVal",
    pynvml.NVML_VALUE_TYPE_UNSIGNED_SHORT: "usVal",
}


def field_ids(driver_version: str) -> Mapping[str, int]:
    """Return name -> field id for counters and the fields whose ids moved, by `driver_version`.

    Names: ``throttled.sw_power``, which never moved, ``throttled.sw_thermal``,
    ``throttled.hw_thermal``, ``throttled.power_brake`` (all ns, cumulative) and ``smoothing.…``.
    A name that this driver does not have is absent; of a version that cannot be read only what
    never moved is there, for a wrong id gives a wrong number and no error.
    """
    found = re.match(r"(\d+)\.(\d+)", driver_version)
    if found is None:
        return dict(_SETTLED)
    version = (int(found[1]), int(found[2]))
    smoothing = [f"smoothing.{name}" for name in _SMOOTHING]
    if version >= (580, 82):
        order: list[str] = [*smoothing, *_THROTTLED]
    elif version >= (575, 0):
        order = [*_THROTTLED, "", "", *smoothing]
    elif version >= (570, 0):
        order = smoothing
    else:
        order = []
    moved = {name: _FIRST + place for place, name in enumerate(order) if name}
    return _SETTLED | moved


def number(value: float, what: str) -> float:
    """Return `value`, or raise a DeviceError where it is the driver's mark for having none."""
    if value in _NO_VALUE or value != value:  # noqa: PLR0124 - the second is NaN
        msg = f"the driver answers for {what} with its mark for no value ({value})"
        raise DeviceError(msg)
    return value


def values(handle: Any, ids: list[tuple[int, int]]) -> list[int | float | pynvml.NVMLError]:
    """Return the value of each (field id, scope) in one call, or the error of that entry.

    A scope is a link's number, a power scope (0: the GPU) or a profile, and 0 otherwise.
    """
    found: list[int | float | pynvml.NVMLError] = []
    for entry in pynvml.nvmlDeviceGetFieldValues(handle, ids):
        status = entry.nvmlReturn
        if status != pynvml.NVML_SUCCESS:
            found.append(pynvml.NVMLError(status))
            continue
        found.append(getattr(entry.value, _MEMBER.get(entry.valueType, "ullVal")))
    return found


def value(handle: Any, field: int, scope: int = 0) -> float:
    """Return the value of one field; raises NVMLError as its entry says, DeviceError for none."""
    (found,) = values(handle, [(field, scope)])
    if isinstance(found, pynvml.NVMLError):
        raise found
    return number(found, f"field {field}")


def counter(handle: Any, field: int) -> int:
    """Return a cumulative counter of 64 bits.

    A check on field_ids(): among the ids that moved, counters are 64 bits wide and settings are
    not, so another width means that the id stands for something else under this driver, which is
    a DeviceError.
    """
    (entry,) = pynvml.nvmlDeviceGetFieldValues(handle, [field])
    if entry.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(entry.nvmlReturn)
    if entry.valueType != pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG:
        msg = f"field {field} is no counter under this driver: its version numbers it otherwise"
        raise DeviceError(msg)
    return int(number(entry.value.ullVal, f"field {field}"))


_MANTISSA_SHIFT, _MANTISSA, _EXPONENT = 8, 0xF, 0xFF
_ZERO = (15, 255)


def bit_error_rate(packed: int) -> float:
    """Return mantissa × 10^-exponent of a packed NVLink 5 rate.

    The exponent stands in bits 0-7 and the mantissa in bits 8-11 (NVML_NVLINK_BER_* in nvml.h);
    15e-255 stands for zero (DCGM 4.6).
    """
    mantissa, exponent = packed >> _MANTISSA_SHIFT & _MANTISSA, packed & _EXPONENT
    if (mantissa, exponent) == _ZERO:
        return 0.0
    return float(f"{mantissa}e-{exponent}")
