"""A data plane on host memory: kernels/memory.cu compiled by the C++ compiler, products in NumPy.

In and out: the DataPlane seam. It proves the kernels' text and the code that launches them where
there is no GPU, and is the third plane of the contract tests. It is a test of this program, not
of the host's memory.
"""

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rackproof.harness.clock import Clock, MachineClock
from rackproof.harness.devices.kernel_plane import FOUND_WORDS, KERNELS, THREADS, Chunk, KernelPlane
from rackproof.harness.devices.patterns import Words
from rackproof.harness.devices.precisions import rounded
from rackproof.harness.devices.protocol import Moved, Product, Watch
from rackproof.harness.errors import DeviceError, NotPresent, Unsupported

SOURCES = ("host_launch.cpp", "host_shim.h", "memory.cu")
ALIGNMENT = 32  # bytes, as the kernels want it


def compiler() -> str | None:
    """Return the path of the C++ compiler, or None where there is none."""
    return shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")


def cache() -> Path:
    """Return the folder for what is compiled at first use."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rackproof"


@functools.cache
def library() -> ctypes.CDLL:
    """Return the kernels as a shared library, compiled where the cache has none of this text.

    Raises NotPresent without a compiler, and DeviceError with its words when it refuses the text.
    """
    cxx = compiler()
    if cxx is None:
        msg = "no C++ compiler to build the kernels for host memory: install g++ or clang"
        raise NotPresent(msg)
    texts = b"\0".join((KERNELS / name).read_bytes() for name in SOURCES)
    name = f"memory-{hashlib.sha256(texts + cxx.encode()).hexdigest()[:16]}.so"
    built = cache() / name
    if not built.exists():
        built.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=built.parent) as folder:
            fresh = Path(folder) / name
            command = [cxx, "-x", "c++", "-std=c++17", "-O2", "-shared", "-fPIC", "-o", str(fresh)]
            done = subprocess.run(  # noqa: S603 - our own text, no shell
                [*command, str(KERNELS / "host_launch.cpp")],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                msg = f"{cxx} does not compile {KERNELS / 'memory.cu'}: {done.stderr.strip()}"
                raise DeviceError(msg)
            fresh.replace(built)  # at once, so that a second process never loads half a file
    return ctypes.CDLL(str(built))


class HostPlane(KernelPlane):
    """`size` bytes of host memory in `chunks` equal chunks, as a GPU's memory may come."""

    def __init__(
        self, size: int = 1 << 20, chunks: int = 1, blocks: int = 2, clock: Clock | None = None
    ) -> None:
        super().__init__()
        self._clock = clock or MachineClock()
        if chunks < 1 or size <= 0 or size % (8 * chunks):
            msg = f"{size} bytes make no {chunks} equal chunks of whole words"
            raise ValueError(msg)
        self._share = size // chunks
        self._count = chunks
        self._blocks = blocks
        self._buffers: list[Words] = []
        self._finding = np.zeros(FOUND_WORDS, dtype=np.uint64)

    @property
    def blocks(self) -> int:
        """Return the blocks of a grid."""
        return self._blocks

    @property
    def xp(self) -> Any:
        """Return numpy."""
        return np

    def claim(self) -> int:
        """Allocate the memory; return its size in bytes."""
        self.release()
        bases = range(0, self._share * self._count, self._share)
        for _ in bases:
            raw = np.zeros(self._share // 8 + ALIGNMENT // 8, dtype=np.uint64)
            skip = -raw.ctypes.data % ALIGNMENT // 8
            self._buffers.append(raw[skip : skip + self._share // 8])
        self._chunks = [
            Chunk(base, self._share, buffer.ctypes.data)
            for base, buffer in zip(bases, self._buffers, strict=True)
        ]
        return self.size

    def release(self) -> None:
        """Drop the memory."""
        self._chunks = ()
        self._buffers.clear()

    def peek(self, address: int) -> int:
        """Return the word at byte `address`, read by the host."""
        return int(self._buffers[address // self._share][address % self._share // 8])

    def poke(self, address: int, word: int) -> None:
        """Let the host change the word at byte `address`, as a fault would."""
        self._buffers[address // self._share][address % self._share // 8] = word

    def order(self, precision: str) -> int:
        """Return 256 for every precision."""
        rounded(np, np.zeros(1, dtype=np.float32), precision)
        return 256

    def multiply(
        self, a: Any, b: Any, precision: str, seconds: float, watch: Watch = None
    ) -> Product:
        """Multiply in NumPy, in fp32 with inputs rounded to `precision`, for about `seconds`."""
        a, b = (rounded(np, np.asarray(x, dtype=np.float32), precision) for x in (a, b))
        begin = self._clock.now()
        first = last = a @ b
        repeats = 1
        while self._clock.now() - begin < seconds:
            last = a @ b
            repeats += 1
            if watch is not None:
                watch()
        taken = self._clock.now() - begin
        differ = int(np.count_nonzero(first.view(np.uint32) != last.view(np.uint32)))
        return Product(last, taken, 2.0 * a.shape[0] * a.shape[1] * b.shape[1] * repeats, differ)

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
        launch = getattr(library(), f"launch_{kernel}")
        launch.restype = None
        launch(*(ctypes.c_uint64(word) for word in (self._blocks, THREADS, *arguments)))

    def _settle(self) -> None:
        """Do nothing: the launches have returned, and the host's caches are coherent."""

    def _begin_finding(self) -> int:
        self._finding[:] = 0
        return self._finding.ctypes.data

    def _found(self) -> Words:
        return self._finding
