"""Power smoothing through NVML: what the driver states of it, and how it is switched.

In: a handle, and the field ids of this driver (nvml_fields.py: they moved twice). Out: a Smoothing,
in shares, W/s and s. Ramp rates are written in W/s and read back in mW/s; floors and what is left
of the circuit's life are whole percents. NVMLError passes through (nvml.py translates it).
"""

import ctypes
from collections.abc import Mapping
from typing import Any

import pynvml

from rackproof.harness.devices.nvml_fields import number, values
from rackproof.harness.devices.protocol import Smoothing, SmoothingProfile
from rackproof.harness.errors import DeviceError, Unsupported

Handle = Any
Ids = Mapping[str, int]

_STATE = ("enabled", "profile.active", "lifetime", "floor.min", "floor.max", "profiles")
_PROFILE = ("profile.floor", "profile.ramp_up", "profile.ramp_down", "profile.hysteresis")
_PERCENT, _MILLI = 0.01, 1e-3


def smoothing(handle: Handle, ids: Ids) -> Smoothing:
    """Return how a GPU's power is smoothed.

    Raises Unsupported where this driver has no such fields, NVMLError as their entries say, and a
    DeviceError for an answer that is no state.
    """
    enabled, active, lifetime, low, high, count = _read(handle, ids, _STATE, 0)
    if enabled not in (0, 1):
        msg = f"power smoothing is neither off nor on: the driver says {enabled:g}"
        raise DeviceError(msg)
    most = min(int(count), pynvml.NVML_POWER_SMOOTHING_MAX_NUM_PROFILES)
    profiles = tuple(
        SmoothingProfile(floor * _PERCENT, up * _MILLI, down * _MILLI, hysteresis * _MILLI)
        for floor, up, down, hysteresis in (_read(handle, ids, _PROFILE, n) for n in range(most))
    )
    left = lifetime * _PERCENT
    return Smoothing(bool(enabled), int(active), left, low * _PERCENT, high * _PERCENT, profiles)


def _read(handle: Handle, ids: Ids, names: tuple[str, ...], scope: int) -> list[float]:
    """Return the values of a few fields of one scope."""
    fields = []
    for name in names:
        field = ids.get(f"smoothing.{name}")
        if field is None:
            msg = f"this driver has no field smoothing.{name}"
            raise Unsupported(msg)
        fields.append((field, scope))
    found = []
    for name, answer in zip(names, values(handle, fields), strict=True):
        if isinstance(answer, pynvml.NVMLError):
            raise answer
        found.append(float(number(answer, f"smoothing.{name}")))
    return found


def activate(handle: Handle, profile: int) -> None:
    """Make a preset profile the active one; raises NVMLError."""
    wanted = pynvml.c_nvmlPowerSmoothingProfile_v1_t()
    wanted.profileId = profile
    pynvml.nvmlDevicePowerSmoothingActivatePresetProfile(handle, ctypes.byref(wanted))


def switch(handle: Handle, *, enabled: bool) -> None:
    """Switch smoothing on or off; raises NVMLError."""
    wanted = pynvml.c_nvmlPowerSmoothingState_v1_t()
    wanted.state = int(enabled)
    pynvml.nvmlDevicePowerSmoothingSetState(handle, ctypes.byref(wanted))
