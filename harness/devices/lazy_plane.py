"""The CuPy plane of one real GPU, made at the first work: reading alone needs no CUDA.

In: a GPU's telemetry and PCI address. Out: the DataPlane seam. A GPU on which somebody else
computes is refused: a burn would slow that work down and be slowed down by it.
"""

import os
from pathlib import Path
from typing import Any

import pynvml

from rackproof.harness.devices import cupy_call
from rackproof.harness.devices.cupy_plane import CupyPlane
from rackproof.harness.devices.nvml import Handle, NvmlTelemetry, translated
from rackproof.harness.devices.protocol import Moved, Pattern, Product, Verified, Watch
from rackproof.harness.errors import DeviceError, NotPresent

NO_CUPY = "CuPy is not installed: pip install rackproof[gpu-cuda13]"
_ours: set[str] = set()
"""PCI addresses on which this process has begun to work: in a container the driver may know us by
another id than we do, and would show us as somebody else."""


class LazyPlane:
    """Everything but `release`, `check` and `load(0)` makes the plane, if there is none.

    Raises DeviceError without CuPy, or where other processes compute on the GPU. They are looked
    for once, before this process is one of them.
    """

    def __init__(self, telemetry: NvmlTelemetry, pci: str, *, shared: bool) -> None:
        self._telemetry = telemetry
        self._pci = pci
        self._shared = shared
        self._made: CupyPlane | None = None

    def made(self) -> CupyPlane:
        """Return the plane; raises DeviceError, or NotPresent where CUDA hides the GPU."""
        if self._made is None:
            self._refuse_shared()
            self._made = cupy_plane(self._pci)
            _ours.add(self._pci)
        return self._made

    def _refuse_shared(self) -> None:
        if self._shared or self._pci in _ours:
            return
        subject = self._telemetry.subject
        others = processes(self._telemetry.handle, subject)
        if others:
            shown = ", ".join(map(str, others[:5]))
            msg = f"{subject}: other processes compute on it (pid {shown}): stop them first"
            raise DeviceError(msg)

    def claim(self) -> int:
        """As protocol.DataPlane; so are all the others."""
        return self.made().claim()

    def release(self) -> None:
        """End the load and give the memory back, where there was any work."""
        if self._made is not None:
            self._made.release()

    def write(self, lo: int, hi: int, pattern: Pattern) -> None:
        """Write a pattern."""
        self.made().write(lo, hi, pattern)

    def verify(self, lo: int, hi: int, pattern: Pattern) -> Verified:
        """Compare with a pattern."""
        return self.made().verify(lo, hi, pattern)

    def march(self, lo: int, hi: int, up: bool, expect: Pattern, write: Pattern) -> Verified:  # noqa: FBT001 - the seam's signature
        """Read, compare and write in order."""
        return self.made().march(lo, hi, up, expect, write)

    @property
    def xp(self) -> Any:
        """The array module: cupy."""
        return self.made().xp

    def order(self, precision: str) -> int:
        """The matrix order that loads the GPU."""
        return self.made().order(precision)

    def multiply(
        self, a: Any, b: Any, precision: str, seconds: float, watch: Watch = None
    ) -> Product:
        """Multiply back to back."""
        return self.made().multiply(a, b, precision, seconds, watch)

    def copy(self, to: int, lo: int, hi: int) -> None:
        """Copy within the claimed memory."""
        self.made().copy(to, lo, hi)

    def stream(self, kind: str, seconds: float, watch: Watch = None) -> Moved:
        """Stream through memory."""
        return self.made().stream(kind, seconds, watch)

    def transfer(self, way: str, seconds: float, seed: int, watch: Watch = None) -> Moved:
        """Copy from and to the host."""
        return self.made().transfer(way, seconds, seed, watch)

    def load(self, share: float) -> None:
        """Load the GPU; 0 where there was no work needs no CUDA."""
        if share > 0 or self._made is not None:
            self.made().load(share)

    def check(self) -> None:
        """Raise what the background load met, a DeviceError."""
        if self._made is not None:
            self._made.check()


def processes(handle: Handle, subject: str) -> list[int]:
    """Return the ids of processes of others that compute on a GPU; raises DeviceError.

    Other workers of the same pytest-xdist run are none of others: they wait for us.
    """
    try:
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except pynvml.NVMLError as error:
        raise translated(error, f"{subject}: processes") from error
    return sorted(process.pid for process in running if not _of_this_run(process.pid))


def _of_this_run(pid: int) -> bool:
    if pid == os.getpid():
        return True
    return "PYTEST_XDIST_WORKER" in os.environ and parent(pid) == os.getppid()


def parent(pid: int) -> int | None:
    """Return the id of a process's parent; None where it does not run."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
        return int(text.rpartition(")")[2].split()[1])  # the name in brackets may hold anything
    except (OSError, IndexError, ValueError):
        return None


def cupy_plane(pci: str) -> CupyPlane:
    """Return the CuPy plane of the GPU at a PCI address; DeviceError says what is missing.

    CuPy counts GPUs in CUDA's order, which need not be the driver's. NotPresent where CUDA does not
    give that GPU.
    """
    try:
        cupy = cupy_call.module()
    except (ImportError, OSError) as error:
        # The GPU is there: a program that is missing accuses nobody.
        raise DeviceError(NO_CUPY) from error
    if not cupy_call.available():
        msg = "CuPy finds no GPU: its CUDA version has to be one that the driver knows"
        raise DeviceError(msg)
    try:
        index = cupy.cuda.runtime.deviceGetByPCIBusId(pci)
    except RuntimeError as error:  # CUDARuntimeError: the GPU is hidden from CUDA
        msg = f"CUDA does not give the GPU at {pci} (see CUDA_VISIBLE_DEVICES): {error}"
        raise NotPresent(msg) from error
    return CupyPlane(index)
