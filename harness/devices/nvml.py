"""Telemetry through NVML: unmodified nvidia-ml-py, the same code on a real and an emulated driver.

In: a driver (the machine's own, or a library and the state file that it answers from) and a GPU's
handle. Out: readings by their names in metrics.toml, in those units; XIDs as Events; and whatever
the driver would not say as a DeviceError that says why. What a metric is read from is one table,
in nvml_readings.py.
"""

import contextlib
import ctypes
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from rackproof.harness.clock import Clock, MachineClock, VirtualClock
from rackproof.harness.devices import nvml_fabric, nvml_readings, nvml_smoothing
from rackproof.harness.devices.nvml_fields import counter, field_ids
from rackproof.harness.devices.protocol import LinkCounters, PowerLimits, Smoothing
from rackproof.harness.errors import (
    DeviceError,
    Lost,
    NotPermitted,
    NotPresent,
    TimedOut,
    Unsupported,
)
from rackproof.harness.model import Event, Value

Handle = Any
"""NVML's opaque handle of a GPU."""
Hook = Callable[[], None] | None

_ERRORS: dict[int, type[DeviceError]] = {
    pynvml.NVML_ERROR_UNINITIALIZED: NotPresent,
    pynvml.NVML_ERROR_NOT_SUPPORTED: Unsupported,
    pynvml.NVML_ERROR_NO_PERMISSION: NotPermitted,
    pynvml.NVML_ERROR_NOT_FOUND: NotPresent,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: NotPresent,
    pynvml.NVML_ERROR_TIMEOUT: TimedOut,
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: NotPresent,
    pynvml.NVML_ERROR_FUNCTION_NOT_FOUND: Unsupported,
    pynvml.NVML_ERROR_GPU_IS_LOST: Lost,
    pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH: Unsupported,
    pynvml.NVML_ERROR_DEPRECATED: Unsupported,
    pynvml.NVML_ERROR_GPU_NOT_FOUND: NotPresent,
}
_OPENING = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "this machine has no NVIDIA driver: libnvidia-ml.so.1 is "
    "not found. Install the driver, or name an emulated rack (rackproof list racks)",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "libnvidia-ml.so.1 is here, but the driver behind it is "
    "not loaded. Load it (modprobe nvidia) or see why it did not (dmesg)",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "libnvidia-ml.so.1 and the driver behind it are of "
    "two versions: reboot, or reload the driver",
}
_MOST_EVENTS = 4096


def translated(error: pynvml.NVMLError, what: str) -> DeviceError:
    """Return the DeviceError for what NVML said about `what`."""
    return _ERRORS.get(error.value, DeviceError)(f"{what}: NVML says {error}")


class Driver:
    """One initialised NVML, held until close(). Several may be open over emulated racks."""

    def __init__(self, library: Any | None, state: Path | None) -> None:
        """Take over what open() has prepared."""
        self._library = library
        self._state = state
        self._open = True
        self.version: str = pynvml.nvmlSystemGetDriverVersion()
        self.fields = field_ids(self.version)

    @classmethod
    def open(cls, library: Path | None, state: Path | None) -> "Driver":
        """Initialise NVML: the machine's own for (None, None), else `library` over `state`.

        Raises NotPresent where there is no driver, DeviceError where one is there and cannot be
        used, or where this process has already loaded another one.
        """
        loaded = None
        if library is not None:
            if state is None:
                msg = "an emulated driver needs a state file"
                raise ValueError(msg)
            loaded = _load(library)
            _choose(loaded, state)
        elif hasattr(pynvml.nvmlLib, "rackproofSetState") and not os.environ.get(
            "RACKPROOF_NVML_STATE"
        ):
            msg = "this process already uses an emulated driver: ask for the real one in another"
            raise DeviceError(msg)
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            why = _OPENING.get(error.value, f"NVML does not start: {error}")
            if state is not None:
                why = f"{state}: the emulated driver cannot use this state file ({error})"
            raise _ERRORS.get(error.value, DeviceError)(why) from error
        if loaded is not None and _address(loaded) != _address(pynvml.nvmlLib):
            pynvml.nvmlShutdown()
            msg = "this process has already loaded another libnvidia-ml.so.1 than the emulated one"
            raise DeviceError(msg)
        return cls(loaded, state)

    def _select(self) -> None:
        if self._library is not None and self._state is not None:
            _choose(self._library, self._state)

    def count(self) -> int:
        """Return how many GPUs the driver lists now."""
        self._select()
        try:
            return int(pynvml.nvmlDeviceGetCount())
        except pynvml.NVMLError as error:
            raise translated(error, "GPU count") from error

    def handles(self) -> list[Handle | None]:
        """Return the handles by NVML index; None for a GPU that is listed and gives none (lost)."""
        found: list[Handle | None] = []
        for index in range(self.count()):
            try:
                found.append(pynvml.nvmlDeviceGetHandleByIndex(index))
            except pynvml.NVMLError:
                found.append(None)
        return found

    def close(self) -> None:
        """Shut NVML down, unless others in this process still use it; more calls do nothing."""
        if self._open:
            self._open = False
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlShutdown()


def _load(library: Path) -> Any:
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        msg = f"{library}: the emulated driver cannot be loaded ({error})"
        raise DeviceError(msg) from error


def _choose(library: Any, state: Path) -> None:
    status = library.rackproofSetState(os.fsencode(state))
    if status != pynvml.NVML_SUCCESS:
        why = pynvml.NVMLError(status)
        msg = f"{state}: the emulated driver cannot use this state file ({why})"
        raise DeviceError(msg)


def _address(library: Any) -> int | None:
    return ctypes.cast(library.nvmlShutdown, ctypes.c_void_p).value


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a GPU is: `pci` is ``dddd:bb:dd.f``; None is what the driver does not say."""

    serial: str | None
    uuid: str
    pci: str
    tray: int | None
    module: int | None


class NvmlTelemetry:
    """What NVML says of one GPU; see protocol.Telemetry.

    Events are collected from the moment this object exists. NVML does not date them: `at` is when
    we were told, on a VirtualClock's own time (clock ``virtual``) or since the epoch.
    """

    def __init__(
        self, driver: Driver, handle: Handle, subject: str, clock: Clock | None = None
    ) -> None:
        """Read the GPU `handle` of `driver`, spoken of as `subject`."""
        self.driver = driver
        self.handle = handle
        self.subject = subject
        self._clock = clock or MachineClock()
        self._events: Any = None
        self._late: DeviceError | None = None
        self.before_change: Hook = None  # called before the power limit is changed
        self.before_smoothing: Hook = None  # called before power smoothing is
        with contextlib.suppress(DeviceError):  # events() asks again, and says why
            self._listen()

    def read(self, metric: str) -> Value:
        """Return one reading by its name in metrics.toml, in that metric's unit.

        Raises Unsupported (also for a metric that NVML does not have), Lost, NotPermitted,
        TimedOut, or DeviceError where the sensor is there and does not answer.
        """
        reading = nvml_readings.GPU.get(metric)
        if reading is None:
            msg = f"{self.subject}: NVML has no reading {metric}"
            raise Unsupported(msg)
        try:
            return reading(self.handle)
        except pynvml.NVMLError as error:
            raise translated(error, f"{self.subject}: {metric}") from error
        except UnicodeDecodeError as error:
            msg = f"{self.subject}: {metric}: NVML answers with bytes that are no text"
            raise DeviceError(msg) from error
        except DeviceError as error:
            msg = f"{self.subject}: {metric}: {error}"
            raise DeviceError(msg) from error

    def read_link(self, metric: str, link: int) -> Value:
        """Return one reading of NVLink `link`; raises as read() does."""
        reading = nvml_fabric.LINK.get(metric)
        if reading is None:
            msg = f"{self.subject}: NVML has no reading {metric} of a link"
            raise Unsupported(msg)
        try:
            return reading(self.handle, link)
        except pynvml.NVMLError as error:
            raise translated(error, f"{self.subject}/link{link:02d}: {metric}") from error
        except DeviceError as error:
            msg = f"{self.subject}/link{link:02d}: {metric}: {error}"
            raise DeviceError(msg) from error

    def link_counters(self, links: int) -> list[LinkCounters]:
        """Return the counters of NVLinks 0 to `links` - 1, asked for in one call."""
        try:
            found = nvml_fabric.link_counters(self.handle, links)
        except pynvml.NVMLError as error:
            raise translated(error, f"{self.subject}: link counters") from error
        return [
            LinkCounters(**{name: self._told(name, link, c) for name, c in counted.items()})
            for link, counted in enumerate(found)
        ]

    def _told(self, name: str, link: int, count: int | Exception) -> int | DeviceError:
        what = f"{self.subject}/link{link:02d}: {name}"
        if isinstance(count, pynvml.NVMLError):
            return translated(count, what)
        return DeviceError(f"{what}: {count}") if isinstance(count, Exception) else count

    def identity(self) -> Identity:
        """Return serial number, UUID, PCI address, tray and module; raises a DeviceError."""
        try:
            return Identity(**nvml_readings.identity(self.handle))
        except pynvml.NVMLError as error:
            raise translated(error, f"{self.subject}: identity") from error

    def throttled(self, reason: str) -> float:
        """Return the seconds spent so far with the clocks held down for `reason`, cumulative.

        `reason` is ``sw_power``, ``sw_thermal``, ``hw_thermal`` or ``power_brake``. Raises
        Unsupported where this driver version has no such counter, DeviceError where it has
        something else there.
        """
        field = self.driver.fields.get(f"throttled.{reason}")
        if field is None:
            msg = f"{self.subject}: driver {self.driver.version} has no counter throttled.{reason}"
            raise Unsupported(msg)
        try:
            return counter(self.handle, field) / 1e9
        except pynvml.NVMLError as error:
            raise translated(error, f"{self.subject}: throttled.{reason}") from error

    def power_limits(self) -> PowerLimits:
        """Return the GPU's power limits in W; raises a DeviceError."""
        try:
            return PowerLimits(**nvml_readings.power_limits(self.handle))
        except pynvml.NVMLError as error:
            raise translated(error, f"{self.subject}: power limits") from error

    def set_power_limit(self, watts: float) -> float:
        """Ask for a power limit in W and return what is in force then, read back.

        By the first version of the call: nvidia-ml-py ignores what the second one answers.
        Raises NotPermitted, or a DeviceError for a limit outside the GPU's range, or where what it
        was cannot be written down first.
        """
        if self.before_change is not None:
            self.before_change()
        try:
            pynvml.nvmlDeviceSetPowerManagementLimit(self.handle, round(watts * 1000))
        except pynvml.NVMLError as error:
            raise translated(error, f"{self.subject}: power limit {watts:g} W") from error
        return self.power_limits().current

    def smoothing(self) -> Smoothing:
        """Return how the GPU's power is smoothed; raises Unsupported, or a DeviceError."""
        try:
            return nvml_smoothing.smoothing(self.handle, self.driver.fields)
        except pynvml.NVMLError as error:
            raise translated(error, f"{self.subject}: power smoothing") from error

    def set_smoothing(self, *, enabled: bool, profile: int) -> Smoothing:
        """Make a profile the active one and switch smoothing; return what is in force then.

        Nothing is asked for that is so already. Raises NotPermitted, Unsupported, or a DeviceError,
        also where what it was cannot be written down first.
        """
        before = self.smoothing()
        if (before.enabled, before.active) == (enabled, profile):
            return before
        if self.before_smoothing is not None:
            self.before_smoothing()
        try:
            if before.active != profile:
                nvml_smoothing.activate(self.handle, profile)
            if before.enabled != enabled:
                nvml_smoothing.switch(self.handle, enabled=enabled)
        except pynvml.NVMLError as error:
            raise translated(error, f"{self.subject}: power smoothing") from error
        return self.smoothing()

    def events(self) -> list[Event]:
        """Return the XIDs that were reported since the last call, in order.

        Raises a DeviceError where this driver reports none, or where some were lost.
        """
        if self._late is not None:
            error, self._late = self._late, None
            raise error
        self._listen()
        found: list[Event] = []
        while len(found) < _MOST_EVENTS:
            try:
                told = pynvml.nvmlEventSetWait_v2(self._events, 0)
            except pynvml.NVMLError as error:
                if error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self._late = translated(error, f"{self.subject}: events")
                break
            at, clock = self._now()
            code = told.eventData
            found.append(Event(self.subject, f"xid.{code}", f"NVML: XID {code}", at, clock))
        if self._late is not None and not found:
            return self.events()
        return found

    def _now(self) -> tuple[float, str]:
        if isinstance(self._clock, VirtualClock):
            return self._clock.now(), "virtual"
        return time.time(), "epoch"

    def _listen(self) -> None:
        if self._events is not None:
            return
        try:
            events = pynvml.nvmlEventSetCreate()
            try:
                pynvml.nvmlDeviceRegisterEvents(
                    self.handle, pynvml.nvmlEventTypeXidCriticalError, events
                )
            except pynvml.NVMLError:
                pynvml.nvmlEventSetFree(events)
                raise
        except pynvml.NVMLError as error:
            raise translated(error, f"{self.subject}: events") from error
        self._events = events

    def close(self) -> None:
        """Stop listening for events."""
        if self._events is not None:
            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(self._events)
            self._events = None
