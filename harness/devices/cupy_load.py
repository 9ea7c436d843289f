"""A load that runs on a GPU in the background, until it is told otherwise.

In: a share of the GPU's arithmetic. Out: bf16 products on a stream of their own, fed by a thread
that keeps two of them queued; below the full share it works and rests in turn, in periods of tens
of milliseconds. Nothing is left running: the thread ends with stop(), with the process, and at an
error, which the next call says.
"""

import atexit
import contextlib
import threading
import time
import weakref
from collections import deque
from typing import Any

import numpy as np

from rackproof.harness.devices.cupy_call import said
from rackproof.harness.devices.cupy_gemm import DEFAULT_MATH, PATHS, Gemm
from rackproof.harness.devices.cupy_pace import LEAST_S, TRIALS
from rackproof.harness.errors import DeviceError, TimedOut

ORDER = 8192  # 1 to 2 ms a product on today's parts
PERIOD_S = 0.04
AHEAD = 2  # products that are queued behind the one that runs: a change acts after 3 of them
STOP_S = 10.0  # far beyond three products: a thread that takes longer hangs in the driver
# bf16 of random sign and significand between 1 and 2: power depends on the bits that toggle, and
# neither NaN nor subnormals may make it easier.
BF16_KEPT, BF16_ONE = 0x807F, 0x3F80
MULTIPLIER, SHIFT = 2654435761, 15  # Knuth's hash by 2**32 / golden ratio

_live: "weakref.WeakSet[BackgroundLoad]" = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    for load in list(_live):
        with contextlib.suppress(DeviceError):
            load.stop()


def products(share: float, each: float) -> int:
    """Return how many products of `each` seconds make `share` of a period; at least one."""
    return max(1, round(share * PERIOD_S / each))


class BackgroundLoad:
    """The load of GPU `index`; made on the thread that asks, so that it says what does not fit."""

    def __init__(self, cupy: Any, index: int, order: int = ORDER) -> None:
        """Make the data and start the thread, at rest; raises DeviceError."""
        self._cupy, self._index, self._order = cupy, index, order
        self._share = 0.0
        self._closing = False
        self._error: DeviceError | None = None
        self._change = threading.Condition()
        with said(cupy, "prepare a load"), cupy.cuda.Device(index):
            self._arrays: list[Any] = [*_data(cupy, order)]
            cupy.cuda.get_current_stream().synchronize()
        self._thread = threading.Thread(target=self._run, name=f"load of GPU {index}", daemon=True)
        _live.add(self)
        self._thread.start()

    def set(self, share: float) -> None:
        """Load with `share` (0 to 1) from now on; raises what the thread met since the last call.

        Returns at once; a change acts after the products that are queued, 3 at most.
        """
        if not 0.0 <= share <= 1.0:
            msg = f"a share of the load is from 0 to 1, not {share}"
            raise ValueError(msg)
        self.check()
        with self._change:
            self._share = share
            self._change.notify_all()

    def check(self) -> None:
        """Raise what the thread met, a DeviceError."""
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """End the load and wait until the GPU is done; more calls do nothing.

        Raises TimedOut when the thread hangs in the driver.
        """
        with self._change:
            self._closing = True
            self._change.notify_all()
        self._thread.join(STOP_S)
        if self._thread.is_alive():
            msg = f"GPU {self._index}: the load does not end: the driver does not answer"
            raise TimedOut(msg)
        self._arrays.clear()
        _live.discard(self)

    @property
    def running(self) -> bool:
        """Say whether the thread lives."""
        return self._thread.is_alive()

    def _run(self) -> None:
        cupy = self._cupy
        try:
            # A Device of our own: one object is no context for two threads.
            with said(cupy, "load in the background"), cupy.cuda.Device(self._index):
                stream = cupy.cuda.Stream(non_blocking=True)
                with stream:
                    self._serve(stream)
        except DeviceError as error:
            self._error = error
        except Exception as error:  # noqa: BLE001 - a thread's boundary: the caller says it
            self._error = DeviceError(f"load in the background: {type(error).__name__}: {error}")

    def _serve(self, stream: Any) -> None:
        cublas = self._cupy.cuda.cublas
        handle = cublas.create()  # CuPy's own is not for two threads
        try:
            cublas.setMathMode(handle, DEFAULT_MATH)
            cublas.setStream(handle, stream.ptr)
            dims = (self._order, self._order, self._order)
            a, b, c = self._arrays
            gemm = Gemm(handle, (a, b, c), dims, PATHS["bf16"])
            each = self._each(gemm, stream)
            while self._wanted():
                self._work(gemm, each, stream)
            stream.synchronize()
        finally:
            cublas.destroy(handle)

    def _each(self, gemm: Gemm, stream: Any) -> float:
        """Return the seconds of one product, by a few of them."""
        begin, end = self._cupy.cuda.Event(), self._cupy.cuda.Event()
        gemm.run(self._cupy.cuda.cublas)
        begin.record(stream)
        for _ in range(TRIALS):
            gemm.run(self._cupy.cuda.cublas)
        end.record(stream)
        end.synchronize()
        taken = float(self._cupy.cuda.get_elapsed_time(begin, end)) / 1000.0
        return max(taken / TRIALS, LEAST_S)

    def _wanted(self) -> bool:
        """Rest while nothing is asked for; return False when the load is to end."""
        with self._change:
            self._change.wait_for(lambda: self._closing or self._share > 0)
            return not self._closing

    def _work(self, gemm: Gemm, each: float, stream: Any) -> None:
        """Run until the share changes (the full one), or work and rest for one period."""
        share, begun = self._share, time.monotonic()
        left = None if share >= 1.0 else products(share, each)
        queued: deque[Any] = deque()
        while left != 0 and self._share == share and not self._closing:
            gemm.run(self._cupy.cuda.cublas)
            mark = self._cupy.cuda.Event(block=True, disable_timing=True)
            mark.record(stream)
            queued.append(mark)
            left = None if left is None else left - 1
            if len(queued) > AHEAD:
                queued.popleft().synchronize()
        if queued:
            queued[-1].synchronize()
        rest = 0.0 if share >= 1.0 else PERIOD_S - (time.monotonic() - begun)
        if rest > 0:
            with self._change:
                self._change.wait_for(lambda: self._closing or self._share != share, rest)


def _data(cupy: Any, order: int) -> tuple[Any, Any, Any]:
    """Return A, B and C; A is B as well."""
    bits = cupy.arange(order * order, dtype=np.uint32)
    bits *= np.uint32(MULTIPLIER)
    bits ^= bits >> np.uint32(SHIFT)
    bits *= np.uint32(MULTIPLIER)
    bits >>= np.uint32(SHIFT)
    bits &= np.uint32(BF16_KEPT)
    bits |= np.uint32(BF16_ONE)
    a = cupy.ascontiguousarray(bits.astype(np.uint16).reshape(order, order))
    return a, a, cupy.empty((order, order), dtype=np.float32)
