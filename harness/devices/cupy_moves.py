"""Data that moves on one GPU, or between it and its host, and is compared where it arrives.

In: a CupyPlane, and what to move for how long. Out: bytes, the device's seconds, and the words that
arrived wrong. Data is splitmix64 by seed: a GPU's memory is drawn and compared by its own kernels,
host memory by NumPy, so that neither end is compared with itself.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from rackproof.harness.devices.cupy_pace import Lanes, paced
from rackproof.harness.devices.patterns import Words, words
from rackproof.harness.devices.protocol import Moved, Pattern, Watch
from rackproof.harness.errors import DeviceError

if TYPE_CHECKING:
    from rackproof.harness.devices.cupy_plane import CupyPlane

MIB = 1 << 20
LARGEST_ARRAY = 1024 * MIB  # eight times the largest L2 of today
LEAST_ARRAY = 64 * MIB
BUFFER = 128 * MIB  # of one copy from or to the host: 2 ms on PCIe Gen 5
SEED, TRIAD_SEED, FACTOR = 0x57EA, 0x7A1A, 0x9E3779B97F4A7C15
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2  # cudaMemcpyKind
ARRAYS = {"copy": 2, "triad": 3}
WAYS = ("h2d", "d2h", "both")


def stream(plane: "CupyPlane", kind: str, seconds: float, watch: Watch) -> Moved:
    """Copy or triad over arrays much larger than L2; ValueError for another kind."""
    count = ARRAYS.get(kind)
    if count is None:
        msg = f"a stream is one of {', '.join(ARRAYS)}, not {kind!r}"
        raise ValueError(msg)
    cupy = plane.cupy
    with plane.on(f"stream ({kind})"):
        size = _array_size(cupy, count)
        arrays = [plane.memory(size) for _ in range(count)]
        to, *sources = (memory.ptr for memory in arrays)
        for source, seed in zip(sources, (SEED, TRIAD_SEED), strict=False):
            plane.sow(source, size, seed)
        cupy.cuda.runtime.memset(to, 0, size)
        given = (to, *sources, size // 8, *([FACTOR] if kind == "triad" else []))
        train = paced(cupy, lambda: plane.launch(f"stream_{kind}", given), seconds, watch)
        if kind == "copy":
            wrong = plane.wrong(to, size, SEED)
        else:
            wrong = plane.counted("triad_differs", (to, size // 8, FACTOR, SEED, TRIAD_SEED))
    return Moved(count * size * train.repeats, train.seconds, wrong)


def _array_size(cupy: Any, count: int) -> int:
    free, _ = cupy.cuda.runtime.memGetInfo()
    size = int(min(LARGEST_ARRAY, free // (count + 1)))
    size -= size % MIB
    if size < LEAST_ARRAY:
        msg = f"{free // MIB} MiB of GPU memory are free: too little for {count} arrays"
        raise DeviceError(msg)
    return size


def transfer(plane: "CupyPlane", way: str, seconds: float, seed: int, watch: Watch) -> Moved:
    """Copy between pinned host memory and the GPU; ValueError for a way that is none of WAYS."""
    if way not in WAYS:
        msg = f"a way is one of {', '.join(WAYS)}, not {way!r}"
        raise ValueError(msg)
    cupy = plane.cupy
    with plane.on(f"copy ({way})"):
        ways = [w for w in ("h2d", "d2h") if way in (w, "both")]
        # Each way has data of its own: bytes that came the other way are none of this one's.
        copies = [_Copy(plane, each, seed + n) for n, each in enumerate(ways)]

        def enqueue() -> None:
            for copy in copies:
                copy.run()

        lanes = Lanes([copy.stream for copy in copies])
        cupy.cuda.get_current_stream().synchronize()  # these streams do not wait for it
        train = paced(cupy, enqueue, seconds, watch, lanes)
        wrong = sum(copy.wrong() for copy in copies)
        cupy.cuda.get_current_stream().synchronize()
    return Moved(len(copies) * BUFFER * train.repeats, train.seconds, wrong)


class _Copy:
    """One way: pinned host memory, a GPU's memory, and a stream of its own."""

    def __init__(self, plane: "CupyPlane", way: str, seed: int) -> None:
        self._plane, self._way, self._seed = plane, way, seed
        cupy = plane.cupy
        self.stream = cupy.cuda.Stream(non_blocking=True)
        pinned = cupy.cuda.alloc_pinned_memory(BUFFER)
        self._host: Words = np.frombuffer(pinned, np.uint64, BUFFER // 8)
        self._device = plane.memory(BUFFER)
        if way == "h2d":
            self._host[:] = self._expected()
            cupy.cuda.runtime.memset(self._device.ptr, 0, BUFFER)
            ends = self._device.ptr, self._host.ctypes.data
        else:
            self._host[:] = 0
            plane.sow(self._device.ptr, BUFFER, seed)
            ends = self._host.ctypes.data, self._device.ptr
        kind = HOST_TO_DEVICE if way == "h2d" else DEVICE_TO_HOST
        self._arguments = (*ends, BUFFER, kind, self.stream.ptr)

    def _expected(self) -> Words:
        return words(Pattern("random", self._seed), 0, BUFFER)

    def run(self) -> None:
        """Enqueue one copy."""
        self._plane.cupy.cuda.runtime.memcpyAsync(*self._arguments)

    def wrong(self) -> int:
        """Return the words that arrived wrong."""
        if self._way == "h2d":
            return self._plane.wrong(self._device.ptr, BUFFER, self._seed)
        return int(np.count_nonzero(self._host != self._expected()))
