"""The data plane of a real GPU, through CuPy: memory and streams by kernels/, products by cuBLAS.

In and out: the DataPlane seam. CuPy is imported when a plane is made and not before; `available`
says whether one can be. What CuPy and CUDA raise becomes a DeviceError, or Lost for the codes that
a GPU gives which has fallen off the bus (cupy_call). How products, moves and background loads are
done stands in cupy_gemm, cupy_moves and cupy_load.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from rackproof.harness.devices import cupy_moves
from rackproof.harness.devices.cupy_call import allocated, available, module, said
from rackproof.harness.devices.cupy_gemm import DEFAULT_MATH, ORDER, Gemm, as_type, path_of
from rackproof.harness.devices.cupy_load import BackgroundLoad
from rackproof.harness.devices.cupy_pace import paced
from rackproof.harness.devices.kernel_plane import FOUND_WORDS, KERNELS, THREADS, Chunk, KernelPlane
from rackproof.harness.devices.patterns import Words, numbers
from rackproof.harness.devices.protocol import Moved, Pattern, Product, Watch
from rackproof.harness.errors import DeviceError, NotPresent

__all__ = ["CupyPlane", "available"]

MIB = 1 << 20
LEFT = 0.02  # of the free memory: for CUDA's own allocations
SCRATCH = 256 * MIB  # written after each pass to push it out of L2; at least twice today's L2
LEAST_CHUNK = 64 * MIB
STREAM_KERNELS = ("stream_copy", "stream_triad", "triad_differs")


class CupyPlane(KernelPlane):
    """GPU `index` in CUDA's order."""

    def __init__(self, index: int) -> None:
        """Load the kernels; DeviceError without CuPy, a GPU, or when CUDA refuses.

        NotPresent for a GPU that CUDA does not have.
        """
        super().__init__()
        if not available():
            msg = "CuPy finds no GPU: install rackproof[gpu-cuda12] or [gpu-cuda13] and a driver"
            raise DeviceError(msg)
        self.cupy = module()
        self.index = index
        self._cublas = self.cupy.cuda.cublas
        if not 0 <= index < self.cupy.cuda.runtime.getDeviceCount():
            msg = f"CUDA has no GPU {index}"
            raise NotPresent(msg)
        self._device = self.cupy.cuda.Device(index)
        self._memory: list[Any] = []
        self._load: BackgroundLoad | None = None
        with self.on("load the kernels"):
            self._modules = {name: self._module(name) for name in ("memory", "stream")}
            self._finding = self.cupy.zeros(FOUND_WORDS, dtype=np.uint64)
            # 8 blocks of 256 threads fill the 2048 threads of an SM.
            self._blocks = 8 * int(self._device.attributes["MultiProcessorCount"])

    def _module(self, name: str) -> Any:
        text = (KERNELS / f"{name}.cu").read_text(encoding="utf-8")
        return self.cupy.RawModule(code=text, options=("--std=c++11",))

    @contextmanager
    def on(self, doing: str) -> Iterator[None]:
        """Make this GPU the thread's current one within, and say CUDA's errors as ours."""
        with said(self.cupy, doing), self._device:
            yield

    @property
    def blocks(self) -> int:
        """Return the blocks that fill the GPU."""
        return self._blocks

    @property
    def xp(self) -> Any:
        """Return cupy, with this GPU as the thread's current one: arrays made next are its own."""
        self._device.use()
        return self.cupy

    def claim(self) -> int:
        """Claim 98 % of the free memory less 256 MiB, in as few chunks as the driver gives.

        Raises DeviceError when not even one chunk of 64 MiB is to be had.
        """
        self._give_back()
        with self.on("claim the free memory"):
            free, _ = self.cupy.cuda.runtime.memGetInfo()
            self._memory.append(self.cupy.cuda.Memory(min(SCRATCH, free // 8)))
            left = int((free - self._memory[0].size) * (1 - LEFT))
            chunks: list[Chunk] = []
            size = left - left % MIB
            while size >= LEAST_CHUNK:
                memory = allocated(self.cupy, size)
                if memory is None:
                    size = size // 2 - size // 2 % MIB
                    continue
                base = chunks[-1].base + chunks[-1].size if chunks else 0
                self._memory.append(memory)
                chunks.append(Chunk(base, size, memory.ptr))
                left -= size
                size = min(size, left - left % MIB)
        if not chunks:
            self._give_back()
            msg = f"no {LEAST_CHUNK // MIB} MiB of GPU memory are free to be tested"
            raise DeviceError(msg)
        self._chunks = chunks
        return self.size

    def release(self) -> None:
        """End the load, free the claimed memory, and what CuPy keeps for later."""
        try:
            if self._load is not None:
                self._load.stop()
        finally:
            self._load = None
            self._give_back()

    def _give_back(self) -> None:
        self._chunks = ()
        with self.on("release memory"):
            self._memory.clear()  # cudaFree, as nothing else holds it
            self.cupy.get_default_memory_pool().free_all_blocks()
            self.cupy.get_default_pinned_memory_pool().free_all_blocks()

    def order(self, precision: str) -> int:
        """Return 8192; Unsupported for fp8."""
        path_of(precision)
        return ORDER

    def multiply(
        self, a: Any, b: Any, precision: str, seconds: float, watch: Watch = None
    ) -> Product:
        """Multiply a (m, n) by b (n, p) for about `seconds`, timed by CUDA events."""
        path = path_of(precision)
        with self.on(f"multiply in {precision}"):
            c = self.cupy.empty((a.shape[0], b.shape[1]), dtype=np.float32)
            pair = as_type(self.cupy, a, precision), as_type(self.cupy, b, precision)
            handle = self.cupy.cuda.get_cublas_handle()
            self._cublas.setMathMode(handle, DEFAULT_MATH)
            dims = (a.shape[0], a.shape[1], b.shape[1])
            gemm = Gemm(handle, (*pair, c), dims, path)
            gemm.run(self._cublas)
            first = c.copy()
            train = paced(self.cupy, lambda: gemm.run(self._cublas), seconds, watch)
            differ = int((first.view(np.uint32) != c.view(np.uint32)).sum())
        flops = 2.0 * dims[0] * dims[1] * dims[2] * train.repeats
        return Product(c, train.seconds, flops, differ)

    def stream(self, kind: str, seconds: float, watch: Watch = None) -> Moved:
        """Stream through memory beside whatever is claimed; raises DeviceError without room."""
        return cupy_moves.stream(self, kind, seconds, watch)

    def transfer(self, way: str, seconds: float, seed: int, watch: Watch = None) -> Moved:
        """Copy between pinned host memory and the GPU, timed by CUDA events."""
        return cupy_moves.transfer(self, way, seconds, seed, watch)

    def load(self, share: float) -> None:
        """Set the background load; it ends with `release`, with an error and with the process.

        Raises what the load met since the last call, Lost included.
        """
        if self._load is None and share > 0:
            self._load = BackgroundLoad(self.cupy, self.index)
        if self._load is not None:
            self._load.set(share)

    def check(self) -> None:
        """Raise what the background load met, a DeviceError."""
        if self._load is not None:
            self._load.check()

    def memory(self, size: int) -> Any:
        """Return `size` bytes of this GPU that live as long as the object; raises DeviceError."""
        with self.on("allocate memory"):
            found = allocated(self.cupy, size)
        if found is None:
            msg = f"no {size // MIB} MiB of GPU memory are free in one piece"
            raise DeviceError(msg)
        return found

    def sow(self, pointer: int, size: int, seed: int) -> None:
        """Fill `size` bytes with Pattern("random", seed)."""
        self.launch("fill", (pointer, 0, size // 8, *numbers(Pattern("random", seed))))

    def wrong(self, pointer: int, size: int, seed: int) -> int:
        """Return how many of the words are not Pattern("random", seed)'s."""
        return self.counted("verify", (pointer, 0, size // 8, *numbers(Pattern("random", seed))))

    def counted(self, kernel: str, arguments: Sequence[int]) -> int:
        """Launch a kernel that counts into the findings, its last argument; return the count."""
        self.launch(kernel, (*arguments, self._begin_finding()))
        return int(self._found()[0])

    def launch(self, kernel: str, arguments: Sequence[int]) -> None:
        """Launch a kernel over the whole GPU on the current stream; all arguments are 64-bit."""
        own = self._modules["stream" if kernel in STREAM_KERNELS else "memory"]
        with self.on(f"launch {kernel}"):
            values = tuple(np.uint64(word) for word in arguments)
            own.get_function(kernel)((self._blocks,), (THREADS,), values)

    def _launch(self, kernel: str, arguments: Sequence[int]) -> None:
        self.launch(kernel, arguments)

    def _settle(self) -> None:
        scratch = self._memory[0]
        self.launch("fill", (scratch.ptr, 0, scratch.size // 8, 0, 0, 0))
        with self.on("wait for the kernels"):
            self.cupy.cuda.get_current_stream().synchronize()

    def _begin_finding(self) -> int:
        with self.on("clear the findings"):
            self._finding.fill(0)
            return int(self._finding.data.ptr)

    def _found(self) -> Words:
        with self.on("read the findings"):
            found: Words = self.cupy.asnumpy(self._finding)
            return found
