"""A data plane on host memory: the kernels compiled by the C++ compiler, products in NumPy.

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
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rackproof.harness.clock import Clock, MachineClock
from rackproof.harness.devices.kernel_plane import FOUND_WORDS, KERNELS, THREADS, Chunk, KernelPlane
from rackproof.harness.devices.patterns import Words, words
from rackproof.harness.devices.precisions import rounded
from rackproof.harness.devices.protocol import Moved, Pattern, Product, Watch
from rackproof.harness.errors import DeviceError, NotPresent

SOURCES = ("host_launch.cpp", "host_shim.h", "memory.cu", "stream.cu")
ALIGNMENT = 32  # bytes, as the kernels want it
ARRAY = 1 << 16  # bytes of one array of a stream, and of a buffer that is copied
STREAMS = {"copy": 2, "triad": 3}  # arrays
FACTOR = 0x9E3779B97F4A7C15  # of the triad
PERIOD_S = 0.01  # in which a background load works and rests


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
                msg = f"{cxx} does not compile the kernels in {KERNELS}: {done.stderr.strip()}"
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
        self._load: _Load | None = None
        self.spoil: Callable[[Words], None] = _leave  # what happens to data that move

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
        self._buffers.extend(_aligned(self._share) for _ in bases)
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
        """Run the stream kernels over small arrays for about `seconds`; compare the last result."""
        count = STREAMS.get(kind)
        if count is None:
            msg = f"a stream is one of {', '.join(STREAMS)}, not {kind!r}"
            raise ValueError(msg)
        to, *sources = (_aligned(ARRAY) for _ in range(count))
        for seed, source in enumerate(sources):
            source[:] = words(Pattern("random", seed), 0, ARRAY)
        given = [array.ctypes.data for array in (to, *sources)]
        given += [ARRAY // 8, *([FACTOR] if kind == "triad" else [])]
        library()  # compiled, if need be, before the time counts
        repeats, taken = self._train(lambda: self._launch(f"stream_{kind}", given), seconds, watch)
        self.spoil(to)
        if kind == "copy":
            wrong = int(np.count_nonzero(to != sources[0]))
        else:
            found = self._begin_finding()
            self._launch("triad_differs", [given[0], ARRAY // 8, FACTOR, 0, 1, found])
            wrong = int(self._found()[0])
        return Moved(count * ARRAY * repeats, taken, wrong)

    def transfer(self, way: str, seconds: float, seed: int, watch: Watch = None) -> Moved:
        """Copy small buffers for about `seconds`; both ends are the host's."""
        ways = {"h2d": 1, "d2h": 1, "both": 2}.get(way)
        if ways is None:
            msg = f"a way is h2d, d2h or both, not {way!r}"
            raise ValueError(msg)
        sent = [words(Pattern("random", seed + n), 0, ARRAY) for n in range(ways)]
        arrived = [np.zeros_like(buffer) for buffer in sent]

        def move() -> None:
            for goal, source in zip(arrived, sent, strict=True):
                np.copyto(goal, source)

        repeats, taken = self._train(move, seconds, watch)
        for goal in arrived:
            self.spoil(goal)
        wrong = sum(int(np.count_nonzero(g != s)) for g, s in zip(arrived, sent, strict=True))
        return Moved(ways * ARRAY * repeats, taken, wrong)

    def load(self, share: float) -> None:
        """Keep a thread of the host busy for `share` of the time, until told otherwise."""
        if self._load is not None:
            self._load.stop()
            self._load = None
        if share > 0:
            self._load = _Load(share)
            self._load.start()

    def _train(self, work: Callable[[], None], seconds: float, watch: Watch) -> tuple[int, float]:
        """Work back to back for about `seconds`; return how often, and the seconds it took."""
        begin, repeats, taken = self._clock.now(), 0, 0.0
        while not repeats or taken < seconds:
            work()
            repeats += 1
            if watch is not None:
                watch()
            taken = self._clock.now() - begin
        return repeats, taken

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


class _Load(threading.Thread):
    """Works for a share of each period and rests in what is left of it."""

    def __init__(self, share: float) -> None:
        super().__init__(name="host-load", daemon=True)
        self._busy = min(share, 1.0) * PERIOD_S
        self._over = threading.Event()

    def run(self) -> None:
        """Multiply a little matrix again and again."""
        a = np.ones((64, 64), dtype=np.float32)
        while not self._over.wait(PERIOD_S - self._busy):
            until = time.monotonic() + self._busy
            while time.monotonic() < until:
                a @ a

    def stop(self) -> None:
        """End it."""
        self._over.set()
        self.join()


def _aligned(size: int) -> Words:
    """Return zeros of `size` bytes where the kernels want them."""
    raw = np.zeros((size + ALIGNMENT) // 8, dtype=np.uint64)
    skip = -raw.ctypes.data % ALIGNMENT // 8
    return raw[skip : skip + size // 8]


def _leave(_data: Words) -> None:
    """Let data be as they are."""
