"""The real GPUs of this machine: what stands behind a Bench when no rack is emulated.

In: the machine's NVML driver, and what ought to be there, if anyone said. Out: a RackSpec of one
tray for `local`; for each GPU a device whose work goes through CuPy, that begins a burn at rest and
ends it idle, with every setting as it was before; and what killed runs left changed, put back.
"""

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from types import MappingProxyType

import pynvml

from rackproof.harness.clock import Clock, MachineClock
from rackproof.harness.devices.absent import NoService
from rackproof.harness.devices.bench import LOCAL
from rackproof.harness.devices.cupy_plane import CupyPlane
from rackproof.harness.devices.host import RealHost
from rackproof.harness.devices.lazy_plane import LazyPlane
from rackproof.harness.devices.nvml import Driver, Handle, Identity, NvmlTelemetry, translated
from rackproof.harness.devices.nvml_fields import field_ids
from rackproof.harness.devices.nvml_readings import power_limits
from rackproof.harness.devices.nvml_smoothing import activate, smoothing, switch
from rackproof.harness.devices.protocol import (
    DataPlane,
    Device,
    Fabric,
    Host,
    Service,
    Smoothing,
    Telemetry,
)
from rackproof.harness.devices.real_fabric import RealFabric
from rackproof.harness.devices.settle import IDLE, Gate, Sample, optional, settle
from rackproof.harness.errors import DeviceError, NotPresent, TimedOut
from rackproof.harness.journal import Change, Journal, state_folder
from rackproof.harness.model import Gpu, Tray
from rackproof.harness.skus import Sku, skus
from rackproof.harness.spec import AIR, Power, RackSpec

UNKNOWN_SKU = "unknown"
POWER_LIMIT = "power.limit"
SMOOTHING, SMOOTHING_PROFILE = "power.smoothing", "power.smoothing.profile"
"""Journaled as 0 or 1, and as the profile's number."""
SAME_W = 0.5  # what reads back within this is what was asked for
LOOK_S = 0.25  # between two looks whether a GPU is still there: a look takes milliseconds
Tell = Callable[[str], None]


class RealBacking:
    """Silicon. `shared` allows work on GPUs on which other processes compute.

    `spec` is the rack that is planned, so that NICs, shelves and cooling are known by their names.
    """

    def __init__(self, *, shared: bool = False, spec: RackSpec | None = None) -> None:
        self._shared = shared
        self._pci: dict[str, str] = {}
        self._host = RealHost(spec, self._pci)
        self._clock = MachineClock()
        self._journal = Journal(state_folder(), put_back)
        self._planes: dict[str, LazyPlane] = {}
        self._telemetry: dict[str, NvmlTelemetry] = {}
        self._fabric: RealFabric | None = None

    def clock(self, subject: str) -> Clock:
        """Return the machine's clock, whichever GPU it is for."""
        del subject
        return self._clock

    def device(self, gpu: Gpu, identity: Identity, telemetry: NvmlTelemetry) -> Device:
        """Return the device in a slot."""
        self._pci[gpu.subject] = identity.pci
        plane = LazyPlane(telemetry, identity.pci, shared=self._shared)
        self._planes[gpu.subject], self._telemetry[gpu.subject] = plane, telemetry
        telemetry.before_change = partial(self._keep, identity.uuid, telemetry)
        telemetry.before_smoothing = partial(self._keep_smoothing, identity.uuid, telemetry)
        restore = partial(self._journal.restore, identity.uuid)
        return RealDevice(gpu, telemetry, plane, restore, shared=self._shared)

    def _keep(self, uuid: str, telemetry: NvmlTelemetry) -> None:
        """Write down the power limit that was asked for: one from out of band lowers the other."""
        self._journal.keep(Change(uuid, POWER_LIMIT, telemetry.power_limits().requested))

    def _keep_smoothing(self, uuid: str, telemetry: NvmlTelemetry) -> None:
        """Write down whether the power is smoothed, and by which profile."""
        state = telemetry.smoothing()
        self._journal.keep(Change(uuid, SMOOTHING, float(state.enabled)))
        self._journal.keep(Change(uuid, SMOOTHING_PROFILE, float(state.active)))

    def fabric(self) -> Fabric:
        """Return what joins the GPUs."""
        if self._fabric is None:
            self._fabric = RealFabric(self._plane, self._reads)
        return self._fabric

    def _plane(self, subject: str) -> CupyPlane:
        found = self._planes.get(subject)
        if found is None:
            msg = f"{subject}: the driver lists no such GPU"
            raise NotPresent(msg)
        return found.made()

    def _reads(self, subject: str) -> object:
        return self._telemetry[subject].read("temperature") if subject in self._telemetry else None

    def host(self) -> Host:
        """Return what stands around them."""
        return self._host

    def service(self) -> Service:
        """Return what refuses to touch the machine."""
        return NoService()

    def close(self) -> None:
        """Let NCCL go, end all loads, and put back what is changed."""
        if self._fabric is not None:
            self._fabric.close()
        for plane in self._planes.values():
            with contextlib.suppress(DeviceError):  # a GPU that was lost has nothing to give back
                plane.release()
        with contextlib.suppress(DeviceError):  # it stays written down for the next start
            self._journal.restore()


class RealDevice:
    """One GPU of this machine."""

    gpu: Gpu
    clock: Clock
    telemetry: Telemetry
    plane: DataPlane

    def __init__(
        self,
        gpu: Gpu,
        telemetry: NvmlTelemetry,
        plane: LazyPlane,
        restore: Callable[[], None],
        *,
        shared: bool,
    ) -> None:
        self.gpu = gpu
        self.clock = MachineClock()
        self.telemetry = telemetry
        self.plane = plane
        self.sleep: Callable[[float], None] = time.sleep
        self.gate = Gate()
        self._looked = -LOOK_S
        self._nvml, self._lazy, self._restore, self._shared = telemetry, plane, restore, shared

    def begin(self, check: str, attempt: int, at: float = 0.0) -> None:
        """Wait until the GPU has come to rest; the machine's time needs no planned start.

        Raises TimedOut when it is still at work and nobody allowed for others on it.
        """
        del attempt, at
        self._lazy.release()
        busy = settle(self._sample, self.clock, self.sleep, self.gate)
        if busy and busy.utilisation is not None and busy.utilisation > IDLE and not self._shared:
            msg = f"{self.gpu.subject}: utilised for {busy.utilisation:g} % of its time before "
            msg += f"{check} began, for {self.gate.bound:g} s: see what else runs on it"
            raise TimedOut(msg)

    def _sample(self) -> Sample:
        return Sample(
            optional(partial(utilisation, self._nvml)),
            optional(partial(self._number, "power.average")),
            optional(partial(self._number, "temperature")),
        )

    def _number(self, metric: str) -> float:
        return float(self.telemetry.read(metric))

    def wait(self, seconds: float) -> None:
        """Let the machine's time pass; raises Lost when the GPU is lost, or what its load met."""
        self.sleep(max(0.0, seconds))
        self._lazy.check()
        if self.clock.now() - self._looked >= LOOK_S:
            self._looked = self.clock.now()
            optional(partial(self._number, "temperature"))

    def end(self) -> None:
        """End the load, give the memory back, and every setting that was changed."""
        try:
            self._lazy.release()
        finally:
            self._restore()


def utilisation(telemetry: NvmlTelemetry) -> float:
    """Return for how much of its time a GPU computed lately, in %; raises a DeviceError."""
    try:
        return float(pynvml.nvmlDeviceGetUtilizationRates(telemetry.handle).gpu)
    except pynvml.NVMLError as error:
        raise translated(error, f"{telemetry.subject}: utilisation") from error


def put_back(change: Change) -> None:
    """Put back a setting of a GPU, wherever it sits now, and read it back.

    Raises NotPresent where it is not there, NotPermitted, or DeviceError when it does not hold.
    """
    what = f"{change.uuid}: {change.setting}"
    ways = _WAYS.get(change.setting)
    if ways is None:
        msg = f"{what}: this version knows no such setting"
        raise DeviceError(msg)
    look, put = ways
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(change.uuid)
        if abs(look(handle) - change.was) <= SAME_W:
            return
        put(handle, change.was)
        now = look(handle)
    except pynvml.NVMLError as error:
        raise translated(error, what) from error
    if abs(now - change.was) > SAME_W:
        msg = f"{what}: reads {now:g} after {change.was:g} was asked for"
        raise DeviceError(msg)


def _requested(handle: Handle) -> float:
    return power_limits(handle)["requested"]


def _smoothing(handle: Handle) -> Smoothing:
    return smoothing(handle, field_ids(pynvml.nvmlSystemGetDriverVersion()))


_WAYS: Mapping[str, tuple[Callable[[Handle], float], Callable[[Handle, float], object]]] = {
    POWER_LIMIT: (
        _requested,
        lambda handle, watts: pynvml.nvmlDeviceSetPowerManagementLimit(handle, round(watts * 1000)),
    ),
    SMOOTHING: (
        lambda handle: float(_smoothing(handle).enabled),
        lambda handle, was: switch(handle, enabled=bool(was)),
    ),
    SMOOTHING_PROFILE: (
        lambda handle: float(_smoothing(handle).active),
        lambda handle, was: activate(handle, int(was)),
    ),
}
"""How each setting is read, and put back."""


def unheard(_line: str) -> None:
    """Take a line that nobody wants to hear."""


def recover(tell: Tell) -> None:
    """Put back what runs that were killed left changed, and say so; needs an open driver."""
    for line in Journal(state_folder(), put_back).recover():
        tell(line)


def local_spec(driver: Driver, expect: RackSpec | None) -> RackSpec:
    """Return the spec of `local`: one tray, as expected, or as it is where nobody said.

    A machine is one tray of a rack: of the expected rack its first tray is taken. Raises
    NotPresent where the driver lists no GPU and none was expected.
    """
    if expect is not None:
        first = expect.trays[0]
        return replace(
            expect,
            name=LOCAL,
            source="real",
            trays=(first,),
            domain=min(expect.domain, len(first.gpus)),
            spares=0,
            power=Power(),  # shelves and cooling are the rack's, and no machine sees them
            cooling=AIR,
            emulation=MappingProxyType({}),
        )
    handles = [handle for handle in driver.handles() if handle is not None]
    if not handles:
        msg = "the driver is here and lists no GPU: see dmesg, or say what is due with --expect"
        raise NotPresent(msg)
    part, links = _part(NvmlTelemetry(driver, handles[0], "gpu0"))
    return _as_it_is(part, links, driver.count())


def _as_it_is(part: Sku, links: int | None, gpus: int) -> RackSpec:
    """Return the spec of a machine of which nobody said what it ought to be."""
    tray = tuple(Gpu(f"rack0/tray00/gpu{n}", 0, 0, n, part.key) for n in range(gpus))
    return RackSpec(
        name=LOCAL,
        generation="",
        source="real",
        identity=LOCAL,
        trays=(Tray(0, 0, tray, None, None),),
        switches=("rack0/switch00",) if links else (),
        links_per_gpu=links,
        domain=gpus,
        sku=part,
        power=Power(),
        cooling=AIR,
        spares=0,
        file=LOCAL,
        digest="",
        emulation=MappingProxyType({}),
    )


def _part(telemetry: NvmlTelemetry) -> tuple[Sku, int | None]:
    """Return the SKU of a GPU by its name in NVML, and how many NVLinks it has."""
    try:
        name = str(telemetry.read("gpu.name"))
        part = next((s for s in skus().values() if s.text("name") == name), None)
        links = telemetry.read("nvlink.links")
    except DeviceError:
        return part_unknown(), None
    finally:
        telemetry.close()
    return part or part_unknown(), int(links)


def part_unknown() -> Sku:
    """Return a SKU of which nothing is known, so that nothing is judged by it."""
    return Sku(UNKNOWN_SKU, MappingProxyType({}))
