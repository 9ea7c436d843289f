"""The real GPUs of this machine: what stands behind a Bench when no rack is emulated.

In: the machine's NVML driver, and what ought to be there, if anyone said. Out: a RackSpec of one
tray for `local`, and for each GPU a device whose work goes through CuPy. A GPU on which somebody
else computes is refused: a burn would slow that work down and be slowed down by it.
"""

import importlib
import os
import time
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pynvml

from rackproof.harness.clock import Clock, MachineClock
from rackproof.harness.devices.absent import NoFabric
from rackproof.harness.devices.bench import LOCAL
from rackproof.harness.devices.host import RealHost
from rackproof.harness.devices.nvml import Driver, Handle, Identity, NvmlTelemetry, translated
from rackproof.harness.devices.protocol import (
    DataPlane,
    Device,
    Fabric,
    Host,
    Moved,
    Pattern,
    Product,
    Telemetry,
    Verified,
    Watch,
)
from rackproof.harness.errors import DeviceError, NotPresent
from rackproof.harness.model import Gpu, Tray
from rackproof.harness.skus import Sku, skus
from rackproof.harness.spec import AIR, Power, RackSpec

NO_CUPY = "CuPy is not installed: pip install rackproof[gpu-cuda13]"
UNKNOWN_SKU = "unknown"


class RealBacking:
    """Silicon. `shared` allows work on GPUs on which other processes compute.

    `spec` is the rack that is planned, so that NICs, shelves and cooling are known by their names.
    """

    def __init__(self, *, shared: bool = False, spec: RackSpec | None = None) -> None:
        self._shared = shared
        self._pci: dict[str, str] = {}
        self._host = RealHost(spec, self._pci)
        self._clock = MachineClock()

    def clock(self, subject: str) -> Clock:
        """Return the machine's clock, whichever GPU it is for."""
        del subject
        return self._clock

    def device(self, gpu: Gpu, identity: Identity, telemetry: NvmlTelemetry) -> Device:
        """Return the device in a slot."""
        self._pci[gpu.subject] = identity.pci
        return RealDevice(gpu, identity, telemetry, shared=self._shared)

    def fabric(self) -> Fabric:
        """Return what joins the GPUs."""
        return NoFabric("copies between GPUs are not there yet")

    def host(self) -> Host:
        """Return what stands around them."""
        return self._host

    def close(self) -> None:
        """Do nothing: the devices' planes hold nothing between runs."""


class RealDevice:
    """One GPU of this machine."""

    gpu: Gpu
    clock: Clock
    telemetry: Telemetry
    plane: DataPlane

    def __init__(
        self, gpu: Gpu, identity: Identity, telemetry: NvmlTelemetry, *, shared: bool
    ) -> None:
        self.gpu = gpu
        self.clock = MachineClock()
        self.telemetry = telemetry
        self.plane = LazyPlane(telemetry, identity.pci, shared=shared)

    def begin(self, check: str, attempt: int, at: float = 0.0) -> None:
        """Do nothing yet: silicon settles while the next burn prepares its data."""
        del check, attempt, at

    def wait(self, seconds: float) -> None:
        """Let the machine's time pass."""
        time.sleep(seconds)

    def end(self) -> None:
        """Give the memory back."""
        self.plane.release()


class LazyPlane:
    """The CuPy plane of one GPU, made at the first work: reading alone needs no CUDA.

    Everything but `release` raises NotPresent without CuPy, and DeviceError where other processes
    compute on the GPU. They are looked for once, before this process is one of them.
    """

    def __init__(self, telemetry: NvmlTelemetry, pci: str, *, shared: bool) -> None:
        self._telemetry = telemetry
        self._pci = pci
        self._shared = shared
        self._made: DataPlane | None = None

    @property
    def _plane(self) -> DataPlane:
        if self._made is None:
            subject = self._telemetry.subject
            others = [] if self._shared else processes(self._telemetry.handle, subject)
            if others:
                shown = ", ".join(map(str, others[:5]))
                msg = f"{subject}: other processes compute on it (pid {shown}): stop them first"
                raise DeviceError(msg)
            self._made = cupy_plane(self._pci)
        return self._made

    def claim(self) -> int:
        """As protocol.DataPlane; so are all the others."""
        return self._plane.claim()

    def release(self) -> None:
        """Give the memory back, where there was any work."""
        if self._made is not None:
            self._made.release()

    def write(self, lo: int, hi: int, pattern: Pattern) -> None:
        """Write a pattern."""
        self._plane.write(lo, hi, pattern)

    def verify(self, lo: int, hi: int, pattern: Pattern) -> Verified:
        """Compare with a pattern."""
        return self._plane.verify(lo, hi, pattern)

    def march(self, lo: int, hi: int, up: bool, expect: Pattern, write: Pattern) -> Verified:  # noqa: FBT001 - the seam's signature
        """Read, compare and write in order."""
        return self._plane.march(lo, hi, up, expect, write)

    @property
    def xp(self) -> Any:
        """The array module: cupy."""
        return self._plane.xp

    def order(self, precision: str) -> int:
        """The matrix order that loads the GPU."""
        return self._plane.order(precision)

    def multiply(
        self, a: Any, b: Any, precision: str, seconds: float, watch: Watch = None
    ) -> Product:
        """Multiply back to back."""
        return self._plane.multiply(a, b, precision, seconds, watch)

    def copy(self, to: int, lo: int, hi: int) -> None:
        """Copy within the claimed memory."""
        self._plane.copy(to, lo, hi)

    def stream(self, kind: str, seconds: float, watch: Watch = None) -> Moved:
        """Stream through memory."""
        return self._plane.stream(kind, seconds, watch)

    def transfer(self, way: str, seconds: float, seed: int, watch: Watch = None) -> Moved:
        """Copy from and to the host."""
        return self._plane.transfer(way, seconds, seed, watch)

    def load(self, share: float) -> None:
        """Load the GPU; 0 where there was no work needs no CUDA."""
        if share > 0 or self._made is not None:
            self._plane.load(share)


def processes(handle: Handle, subject: str) -> list[int]:
    """Return the ids of other processes that compute on a GPU; raises DeviceError."""
    try:
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError as error:
        raise translated(error, f"{subject}: processes") from error
    return sorted(process.pid for process in running if process.pid != os.getpid())


def cupy_plane(pci: str) -> DataPlane:
    """Return the CuPy plane of the GPU at a PCI address; raises NotPresent, saying what is missing.

    CuPy counts GPUs in CUDA's order, which need not be the driver's.
    """
    try:
        cupy: Any = importlib.import_module("cupy")
    except (ImportError, OSError) as error:
        raise NotPresent(NO_CUPY) from error
    module = importlib.import_module("rackproof.harness.devices.cupy_plane")
    try:
        plane: DataPlane = module.CupyPlane(cupy.cuda.runtime.deviceGetByPCIBusId(pci))
    except RuntimeError as error:  # CUDARuntimeError: no driver, or the GPU is hidden from CUDA
        msg = f"CUDA does not give the GPU at {pci}: {error}"
        raise NotPresent(msg) from error
    return plane


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
