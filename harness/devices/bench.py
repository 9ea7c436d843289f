"""All GPUs of a rack behind one driver, each in the slot where it ought to be.

In: an open driver, a RackSpec, and what stands behind the GPUs (silicon or an emulated rack).
Out: a Device for every slot. Who sits where is found through the driver alone, as on silicon: by
the platform's tray and module, or by PCI order where the driver does not say. A slot that no GPU
answers for gets a device that says so to every call; a GPU that fits no slot is `unexpected`.
"""

import contextlib
import ctypes
from collections.abc import Iterable, Sequence
from typing import Protocol

import pynvml

from rackproof.harness.clock import Clock, VirtualClock
from rackproof.harness.devices import nvml_readings
from rackproof.harness.devices.absent import AbsentDevice
from rackproof.harness.devices.nvml import Driver, Handle, Identity, NvmlTelemetry
from rackproof.harness.devices.protocol import Device, Fabric, Host, Service
from rackproof.harness.errors import DeviceError, Lost
from rackproof.harness.model import WIDE, Gpu, item_of
from rackproof.harness.spec import RackSpec


class Backing(Protocol):
    """What stands behind a rack's GPUs."""

    def clock(self, subject: str) -> Clock:
        """Return the clock that a GPU's work goes by."""
        ...

    def device(self, gpu: Gpu, identity: Identity, telemetry: NvmlTelemetry) -> Device:
        """Return the device in a slot, whose readings come through `telemetry`."""
        ...

    def fabric(self) -> Fabric:
        """Return what joins the GPUs; raises a DeviceError where nothing does."""
        ...

    def host(self) -> Host:
        """Return what stands around them."""
        ...

    def service(self) -> Service:
        """Return what can be done to them between burns."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class Bench:
    """The devices of a rack by subject, in the rack's order. Close it at the end."""

    def __init__(self, spec: RackSpec, driver: Driver, backing: Backing) -> None:
        """Take over an open driver and ask it who is there; raises DeviceError."""
        self.spec = spec
        self.source = spec.source
        self.hosts: tuple[str, ...] = tuple(tray.host for tray in spec.trays)
        self.links = spec.links
        self.counted = not spec.emulated and spec.file == LOCAL
        self._gpus = {gpu.subject: gpu for gpu in spec.gpus}
        self.take(driver, backing)

    def take(self, driver: Driver, backing: Backing) -> None:
        """Take over another driver and what stands behind it, in place of those that were closed.

        Raises DeviceError.
        """
        self.backing = backing
        self.driver_version = driver.version
        self.devices: dict[str, Device] = {}
        self.unexpected: list[Identity] = []
        self._driver = driver
        self._identities: dict[str, Identity] = {}
        self._telemetry: dict[str, NvmlTelemetry] = {}
        self._chassis: tuple[bytes, ...] = ()
        self.scan()

    @property
    def count(self) -> int:
        """How many GPUs the driver lists now, lost ones included."""
        return self._driver.count()

    def identity(self, subject: str) -> Identity | None:
        """Return who the GPU in a slot is: serial, UUID, PCI address; None for an empty one."""
        return self._identities.get(subject)

    def scan(self) -> None:
        """Ask the driver again who is there. A lost GPU keeps the slot that it was seen in.

        A rack keeps its number, also when none of its GPUs answers any more.
        """
        found = self._found()
        self._chassis = chassis(found, self._chassis)
        slots = place(self.spec, found, self._chassis)
        self._forget(keep=self._lost())
        self.unexpected = [i for (_, i, _), slot in zip(found, slots, strict=True) if not slot]
        for (handle, identity, _), slot in zip(found, slots, strict=True):
            if slot:
                self._seat(slot, handle, identity)
        here = self.devices
        self.devices = {}
        for subject, gpu in self._gpus.items():
            absent: Device = AbsentDevice(gpu, self.driver_version)
            self.devices[subject] = here.get(subject, absent)

    @property
    def fabric(self) -> Fabric:
        """What joins the GPUs; raises a DeviceError where nothing does."""
        return self.backing.fabric()

    @property
    def around(self) -> Host:
        """What stands around the GPUs."""
        return self.backing.host()

    @property
    def service(self) -> Service:
        """What can be done to the GPUs and hosts between burns; `scan` afterwards."""
        return self.backing.service()

    def parts(self, item: str, sort: str) -> list[str]:
        """Return the subjects of a sort that an item (a host, a rack's power, ...) stands for."""
        return [s for s in self.spec.of_sort(sort) if item_of(s, wide=item == WIDE) == item]

    def now(self) -> float:
        """Return the time of the GPU whose clock is furthest."""
        return max(device.clock.now() for device in self.devices.values())

    def align(self, devices: Iterable[Device]) -> None:
        """Let time pass on each device's clock until it is as late as the latest of them."""
        found = list(devices)
        latest = max((device.clock.now() for device in found), default=0.0)
        for device in found:
            behind = latest - device.clock.now()
            if behind > 0 and isinstance(device.clock, VirtualClock):
                with contextlib.suppress(DeviceError):  # the first use of it says so
                    device.wait(behind)

    def close(self) -> None:
        """Stop listening, let go of the devices, shut the driver down; more calls do nothing."""
        self._forget(keep=set())
        self.devices.clear()
        self._driver.close()
        self.backing.close()

    def _found(self) -> "list[Found]":
        """Return the GPUs that say who they are."""
        found: list[Found] = []
        for handle in self._driver.handles():
            identity = None if handle is None else _identity(handle)
            if identity is not None:
                found.append((handle, identity, _chassis(handle)))
        return found

    def _lost(self) -> set[str]:
        """Return the slots whose GPU was seen before and now answers that it is lost."""
        lost = set()
        for subject, telemetry in self._telemetry.items():
            try:
                telemetry.identity()
            except Lost:
                lost.add(subject)
            except DeviceError:
                continue
        return lost

    def _forget(self, keep: set[str]) -> None:
        for subject in [s for s in self._telemetry if s not in keep]:
            self._telemetry.pop(subject).close()
            self._identities.pop(subject, None)
        self.devices = {s: d for s, d in self.devices.items() if s in keep}

    def _seat(self, subject: str, handle: Handle, identity: Identity) -> None:
        clock = self.backing.clock(subject)
        telemetry = NvmlTelemetry(self._driver, handle, subject, clock)
        self._telemetry[subject] = telemetry
        self._identities[subject] = identity
        self.devices[subject] = self.backing.device(self._gpus[subject], identity, telemetry)


LOCAL = "local"
"""Where a RackSpec has this for its file, nobody said what ought to be there."""

Found = tuple[Handle, Identity, bytes]


def chassis(found: Sequence[Found], known: Sequence[bytes] = ()) -> tuple[bytes, ...]:
    """Return the serial numbers of racks by the rack's number: those `known`, then in PCI order."""
    order = sorted(found, key=lambda each: each[1].pci)
    return tuple(dict.fromkeys((*known, *(each[2] for each in order))))


def place(spec: RackSpec, found: Sequence[Found], known: Sequence[bytes] = ()) -> list[str | None]:
    """Return the slot of each GPU that was found, or None where it fits none.

    By tray and module number where all GPUs give them and they make sense in this rack; by PCI
    order else, where a gap cannot be seen and the last slots stay empty. `known` are the racks that
    were seen before, as of `chassis`.
    """
    order = sorted(range(len(found)), key=lambda i: found[i][1].pci)
    by_number = _by_number(spec, found, chassis(found, known))
    if by_number is not None:
        return by_number
    slots: list[str | None] = [None] * len(found)
    for gpu, i in zip(spec.gpus, order, strict=False):
        slots[i] = gpu.subject
    return slots


def _by_number(
    spec: RackSpec, found: Sequence[Found], numbered: Sequence[bytes]
) -> list[str | None] | None:
    known = {(gpu.rack, gpu.tray, gpu.index): gpu.subject for gpu in spec.gpus}
    modules = [identity.module for _, identity, _ in found]
    if not found or None in modules:
        return None
    largest = max(gpu.index for gpu in spec.gpus)
    first = 0 if min(m for m in modules if m is not None) == 0 else 1
    if max(m for m in modules if m is not None) - first > largest:
        return None
    alone = len(spec.trays) == 1
    slots: list[str | None] = [None] * len(found)
    taken: set[str] = set()
    for i in sorted(range(len(found)), key=lambda i: found[i][1].pci):
        _, identity, serial = found[i]
        if identity.tray is None and not alone:
            return None
        rack = numbered.index(serial) if spec.racks > 1 else 0
        tray = 0 if alone or identity.tray is None else identity.tray
        subject = known.get((rack, tray, (identity.module or 0) - first))
        if subject is not None and subject not in taken:
            taken.add(subject)
            slots[i] = subject
    return slots


def _identity(handle: Handle) -> Identity | None:
    """Return who a GPU is, or None when it does not say: lost, or not to be asked."""
    try:
        return Identity(**nvml_readings.identity(handle))
    except (pynvml.NVMLError, DeviceError):
        return None


def _chassis(handle: Handle) -> bytes:
    """Return the serial number of the rack that a GPU is in, or nothing."""
    try:
        platform = pynvml.c_nvmlPlatformInfo_v2_t()
        pynvml.nvmlDeviceGetPlatformInfo(handle, ctypes.byref(platform))
    except pynvml.NVMLError:
        return b""
    start = pynvml.c_nvmlPlatformInfo_v2_t.chassisSerialNumber.offset
    return bytes(platform)[start : start + 16]
