"""The data plane of a real GPU, through CuPy: memory by kernels/memory.cu, products by cuBLAS.

In and out: the DataPlane seam. CuPy is imported when a plane is made and not before; `available`
says whether one can be. What CuPy and CUDA raise becomes a DeviceError, or Lost for the codes that
a GPU gives which has fallen off the bus.

Products are cublasGemmEx with CUBLAS_COMPUTE_32F, C in fp32 for every input: fp32 under
CUBLAS_DEFAULT_MATH, which never uses TF32; tf32 as CUBLAS_COMPUTE_32F_FAST_TF32; fp16 and bf16 as
inputs of those types. fp8 needs cublasLt, which CuPy does not have: Unsupported.
"""

import importlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackproof.harness.devices.kernel_plane import FOUND_WORDS, KERNELS, THREADS, Chunk, KernelPlane
from rackproof.harness.devices.patterns import Words
from rackproof.harness.devices.precisions import precision as precision_of
from rackproof.harness.devices.precisions import rounded
from rackproof.harness.devices.protocol import Moved, Product, Watch
from rackproof.harness.errors import DeviceError, Lost, NotPresent, Unsupported

MIB = 1 << 20
LEFT = 0.02  # of the free memory: for CUDA's own allocations
SCRATCH = 256 * MIB  # written after each pass to push it out of L2; at least twice today's L2
LEAST_CHUNK = 64 * MIB
ORDER = 8192  # near the peak rate in every precision, and A, B, C fit everywhere
TRIALS = 3  # products by which the number of repeats is chosen
MEMORY_ALLOCATION = 2  # cudaErrorMemoryAllocation
# cudaErrorDevicesUnavailable, cudaErrorNoDevice, cudaErrorInvalidDevice, cudaErrorUnknown: what a
# GPU that was there before answers after it is lost.
LOST = frozenset({46, 100, 101, 999})
# cuBLAS: the type of A and B (cudaDataType) and the compute type, both from library_types.h and
# cublas_api.h; CUBLAS_GEMM_DEFAULT, CUBLAS_DEFAULT_MATH.
CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF = 0, 2, 14
COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77
GEMM_DEFAULT, DEFAULT_MATH = -1, 0
PATHS = {
    "fp32": (CUDA_R_32F, COMPUTE_32F),
    "tf32": (CUDA_R_32F, COMPUTE_32F_FAST_TF32),
    "bf16": (CUDA_R_16BF, COMPUTE_32F),
    "fp16": (CUDA_R_16F, COMPUTE_32F),
}


def available() -> bool:
    """Say whether CuPy is installed and finds a GPU; CuPy imports well without one."""
    try:
        cupy = importlib.import_module("cupy")
        return bool(cupy.cuda.is_available())
    except (ImportError, OSError, RuntimeError):  # no CuPy, no CUDA library, no driver
        return False


@contextmanager
def _said(cupy: Any, doing: str) -> Iterator[None]:
    """Turn what CuPy raises into our errors."""
    try:
        yield
    except (cupy.cuda.memory.OutOfMemoryError, cupy.cuda.compiler.CompileException) as error:
        msg = f"{doing}: {error}"
        raise DeviceError(msg) from error
    except RuntimeError as error:  # CUDARuntimeError, CUDADriverError, CUBLASError, NVRTCError
        lost = getattr(error, "status", None) in LOST
        msg = f"{doing}: {error}"
        raise (Lost if lost else DeviceError)(msg) from error


@dataclass(frozen=True, slots=True)
class _Gemm:
    """Row-major C = A B for cuBLAS, which is column-major: C' = B' A'. `dims` are m, n, p."""

    handle: int
    arrays: tuple[Any, Any, Any]
    dims: tuple[int, int, int]
    path: tuple[int, int]

    def run(self, cublas: Any) -> None:
        """Enqueue one product."""
        a, b, c = self.arrays
        m, n, p = self.dims
        kind, compute = self.path
        one, zero = np.ones(1, np.float32), np.zeros(1, np.float32)
        cublas.gemmEx(
            self.handle, cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_N, p, m, n, one.ctypes.data,
            b.data.ptr, kind, p, a.data.ptr, kind, n, zero.ctypes.data,
            c.data.ptr, CUDA_R_32F, p, compute, GEMM_DEFAULT,
        )  # fmt: skip


class CupyPlane(KernelPlane):
    """GPU `index` in CUDA's order."""

    def __init__(self, index: int) -> None:
        """Load the kernels; NotPresent without CuPy or that GPU, DeviceError when CUDA refuses."""
        super().__init__()
        if not available():
            msg = "CuPy finds no GPU: install rackproof[gpu-cuda12] or [gpu-cuda13] and a driver"
            raise NotPresent(msg)
        self._cupy = importlib.import_module("cupy")
        self._cublas = self._cupy.cuda.cublas
        if not 0 <= index < self._cupy.cuda.runtime.getDeviceCount():
            msg = f"CUDA has no GPU {index}"
            raise NotPresent(msg)
        self._device = self._cupy.cuda.Device(index)
        self._memory: list[Any] = []
        with self._on("load the kernels"):
            text = (KERNELS / "memory.cu").read_text(encoding="utf-8")
            self._module = self._cupy.RawModule(code=text, options=("--std=c++11",))
            self._finding = self._cupy.zeros(FOUND_WORDS, dtype=np.uint64)
            # 8 blocks of 256 threads fill the 2048 threads of an SM.
            self._blocks = 8 * int(self._device.attributes["MultiProcessorCount"])

    @contextmanager
    def _on(self, doing: str) -> Iterator[None]:
        with _said(self._cupy, doing), self._device:
            yield

    @property
    def blocks(self) -> int:
        """Return the blocks that fill the GPU."""
        return self._blocks

    @property
    def xp(self) -> Any:
        """Return cupy, with this GPU as the thread's current one: arrays made next are its own."""
        self._device.use()
        return self._cupy

    def claim(self) -> int:
        """Claim 98 % of the free memory less 256 MiB, in as few chunks as the driver gives.

        Raises DeviceError when not even one chunk of 64 MiB is to be had.
        """
        self.release()
        with self._on("claim the free memory"):
            free, _ = self._cupy.cuda.runtime.memGetInfo()
            self._memory.append(self._cupy.cuda.Memory(min(SCRATCH, free // 8)))
            left = int((free - self._memory[0].size) * (1 - LEFT))
            chunks: list[Chunk] = []
            size = left - left % MIB
            while size >= LEAST_CHUNK:
                memory = self._allocated(size)
                if memory is None:
                    size = size // 2 - size // 2 % MIB
                    continue
                base = chunks[-1].base + chunks[-1].size if chunks else 0
                self._memory.append(memory)
                chunks.append(Chunk(base, size, memory.ptr))
                left -= size
                size = min(size, left - left % MIB)
        if not chunks:
            self.release()
            msg = f"no {LEAST_CHUNK // MIB} MiB of GPU memory are free to be tested"
            raise DeviceError(msg)
        self._chunks = chunks
        return self.size

    def _allocated(self, size: int) -> Any | None:
        try:
            return self._cupy.cuda.Memory(size)
        except self._cupy.cuda.memory.OutOfMemoryError:
            return None
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            if error.status == MEMORY_ALLOCATION:
                return None
            raise

    def release(self) -> None:
        """Free the claimed memory, and what CuPy keeps for later."""
        self._chunks = ()
        with self._on("release memory"):
            self._memory.clear()  # cudaFree, as nothing else holds it
            self._cupy.get_default_memory_pool().free_all_blocks()

    def order(self, precision: str) -> int:
        """Return 8192; Unsupported for fp8."""
        _path(precision)
        return ORDER

    def multiply(
        self, a: Any, b: Any, precision: str, seconds: float, watch: Watch = None
    ) -> Product:
        """Multiply a (m, n) by b (n, p) for about `seconds`, timed by CUDA events."""
        path = _path(precision)
        with self._on(f"multiply in {precision}"):
            c = self._cupy.empty((a.shape[0], b.shape[1]), dtype=np.float32)
            pair = self._as_type(a, precision), self._as_type(b, precision)
            handle = self._cupy.cuda.get_cublas_handle()
            self._cublas.setMathMode(handle, DEFAULT_MATH)
            dims = (a.shape[0], a.shape[1], b.shape[1])
            gemm = _Gemm(handle, (*pair, c), dims, path)
            gemm.run(self._cublas)
            first = c.copy()
            trial = self._timed(gemm, TRIALS) / TRIALS
            repeats = max(1, round(seconds / max(trial, 1e-6)))
            taken = self._timed(gemm, repeats)
            differ = int((first.view(np.uint32) != c.view(np.uint32)).sum())
        flops = 2.0 * dims[0] * dims[1] * dims[2] * repeats
        return Product(c, taken, flops, differ)

    def _as_type(self, x: Any, precision: str) -> Any:
        """Return fp32 `x` in the input type; bf16 is the upper half of an fp32, as uint16."""
        x = self._cupy.ascontiguousarray(rounded(self._cupy, self._cupy.asarray(x), precision))
        if precision == "fp16":
            return x.astype(np.float16)
        if precision == "bf16":
            return (x.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        return x

    def _timed(self, gemm: _Gemm, repeats: int) -> float:
        """Return the device's seconds for `repeats` products back to back."""
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        begin.record()
        for _ in range(repeats):
            gemm.run(self._cublas)
        end.record()
        end.synchronize()
        return float(self._cupy.cuda.get_elapsed_time(begin, end)) / 1000.0

    def stream(self, kind: str, seconds: float, watch: Watch = None) -> Moved:
        """Stream through memory."""
        raise Unsupported(kind)

    def transfer(self, way: str, seconds: float, seed: int, watch: Watch = None) -> Moved:
        """Copy from and to the host."""
        raise Unsupported(way)

    def load(self, share: float) -> None:
        """Load it in the background."""
        raise Unsupported(str(share))

    def _launch(self, kernel: str, arguments: Sequence[int]) -> None:
        with self._on(f"launch {kernel}"):
            values = tuple(np.uint64(word) for word in arguments)
            self._module.get_function(kernel)((self._blocks,), (THREADS,), values)

    def _settle(self) -> None:
        scratch = self._memory[0]
        self._launch("fill", (scratch.ptr, 0, scratch.size // 8, 0, 0, 0))
        with self._on("wait for the kernels"):
            self._cupy.cuda.get_current_stream().synchronize()

    def _begin_finding(self) -> int:
        with self._on("clear the findings"):
            self._finding.fill(0)
            return int(self._finding.data.ptr)

    def _found(self) -> Words:
        with self._on("read the findings"):
            found: Words = self._cupy.asnumpy(self._finding)
            return found


def _path(precision: str) -> tuple[int, int]:
    """Return cuBLAS's input and compute types; Unsupported for a precision without any."""
    precision_of(precision)
    if precision not in PATHS:
        msg = f"CuPy has no {precision} products"
        raise Unsupported(msg)
    return PATHS[precision]
