"""What joins the real GPUs of a machine: copies from one to another, and NCCL's all-reduce.

In: pairs or GPUs by subject, and a way from a subject to its plane. Out: device seconds by CUDA
events, and every word that arrived wrong, counted on the GPU where it arrived. Copies are
cudaMemcpyPeerAsync on a stream for each pair, over NVLink or PCIe where the GPUs reach each other
and through the host where they do not. The all-reduce is NCCL's, all ranks in this process.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from rackproof.harness.devices.cupy_call import PEER_ENABLED, module, said
from rackproof.harness.devices.cupy_plane import CupyPlane
from rackproof.harness.devices.patterns import words
from rackproof.harness.devices.protocol import Moved, Pattern, Reduced
from rackproof.harness.errors import DeviceError, Lost

Pair = tuple[str, str]
Find = Callable[[str], CupyPlane]

REPEATS = 4  # copies of a pair that are timed, after one that sets the path up
SUMS = 8  # all-reduces that are timed, after one that sets NCCL's connections up
# Elements after which the numbers of a rank begin again: a prime, so that a piece that landed in
# another's place, which is off by a power of two, holds other numbers.
PERIOD = 1_000_003
VALUES = 256  # of a rank's elements: 0 to 255, whose sums are exact in fp32 up to 2**16 ranks
BLOCK = 64 * PERIOD  # elements that are compared at once
FLOAT = 4  # bytes
NO_NCCL = "NCCL is not there: pip install nvidia-nccl-cu13 (or -cu12, as CuPy's)"


class RealFabric:
    """The GPUs of this machine. `find` returns a subject's plane, or raises a DeviceError."""

    def __init__(self, find: Find, reads: Callable[[str], object]) -> None:
        """Know the planes, and `reads`, which asks a GPU's driver and raises Lost where it is."""
        self._find, self._reads = find, reads
        self._joined: set[tuple[int, int]] = set()
        self._ring: tuple[tuple[int, ...], list[Any]] = ((), [])

    def exchange(
        self, pairs: Sequence[Pair], size: int, seed: int
    ) -> Mapping[Pair, Moved | DeviceError]:
        """As protocol.Fabric: all pairs at once; one that could not is its own error."""
        planes = self._planes({subject for pair in pairs for subject in pair})
        found: dict[Pair, Moved | DeviceError] = {}
        copies: list[_Copy] = []
        for pair in pairs:
            with self._tried(pair, found):
                source, target = (_plane(planes[subject]) for subject in pair)
                self._join(source, target)
                copies.append(_Copy(pair, source, target, size, seed))
        # The first copy of each sets its path up, the next are timed.
        for step in (_Copy.prepare, _Copy.begin, _Copy.end, _Copy.finish):
            for copy in [c for c in copies if c.pair not in found]:
                with self._tried(copy.pair, found):
                    step(copy)
        for copy in copies:
            if copy.pair not in found:
                found[copy.pair] = Moved(copy.size, copy.seconds, copy.wrong)
        return {pair: found[pair] for pair in pairs}

    def all_reduce(self, gpus: Sequence[str], size: int, seed: int) -> Reduced:
        """As protocol.Fabric; the sum of small whole numbers in fp32, which is exact."""
        planes = [_plane(plane) for plane in self._planes(gpus).values()]
        nccl = _nccl()
        count = max(1, size // FLOAT)
        period = min(PERIOD, count)
        shares = [_numbers(seed, rank, period) for rank in range(len(planes))]
        expected = np.add.reduce(np.stack(shares), axis=0, dtype=np.float32)
        try:
            communicators = self._communicators(nccl, planes)
            ranks = [
                _Rank(plane, communicator, share, count)
                for plane, communicator, share in zip(planes, communicators, shares, strict=True)
            ]
            with said(planes[0].cupy, "all-reduce"):
                _summed(nccl, ranks, 1)
                seconds = _summed(nccl, ranks, SUMS) / SUMS
            wrong = [rank.wrong(expected) for rank in ranks]
        except DeviceError:
            self.close()  # a communicator that failed is of no more use
            self._say_lost(gpus)
            raise
        return Reduced(FLOAT * count, seconds, len(ranks), dict(zip(gpus, wrong, strict=True)))

    def close(self) -> None:
        """Let NCCL's communicators go; more calls do nothing."""
        communicators, self._ring = self._ring[1], ((), [])
        for communicator in communicators:
            # One of a GPU that is lost cannot be destroyed, and there is nobody to tell.
            try:
                communicator.destroy()
            except RuntimeError:
                continue

    def _planes(self, subjects: Sequence[str] | set[str]) -> "dict[str, CupyPlane | DeviceError]":
        found: dict[str, CupyPlane | DeviceError] = {}
        for subject in sorted(subjects) if isinstance(subjects, set) else subjects:
            try:
                found[subject] = self._find(subject)
            except DeviceError as error:
                found[subject] = error
        return found

    @contextmanager
    def _tried(self, pair: Pair, found: dict[Pair, Moved | DeviceError]) -> Iterator[None]:
        """Keep what goes wrong within as the pair's; Lost where a driver says so of either end."""
        try:
            yield
        except DeviceError as error:
            try:
                self._say_lost(pair)
                lost = isinstance(error, Lost)
                text = f"{pair[0]} to {pair[1]}: {error}"
                # CUDA says lost and no driver does: the context is gone, maybe for another reason.
                found[pair] = DeviceError(text) if lost else type(error)(text)
            except Lost as gone:
                found[pair] = gone

    def _say_lost(self, subjects: Sequence[str]) -> None:
        """Raise Lost for the first of the GPUs of which its driver says so."""
        for subject in subjects:
            try:
                self._reads(subject)
            except Lost as error:
                msg = f"{subject} is lost: {error}"
                raise Lost(msg) from error
            except DeviceError:
                continue

    def _join(self, source: CupyPlane, target: CupyPlane) -> None:
        """Let `source` reach `target`'s memory directly, where the machine can."""
        ends = source.index, target.index
        if ends in self._joined or source.index == target.index:
            return
        runtime = source.cupy.cuda.runtime
        with source.on("enable peer access"):
            if runtime.deviceCanAccessPeer(*ends):
                try:
                    runtime.deviceEnablePeerAccess(target.index)
                except runtime.CUDARuntimeError as error:
                    if error.status != PEER_ENABLED:
                        raise
        self._joined.add(ends)

    def _communicators(self, nccl: Any, planes: Sequence[CupyPlane]) -> list[Any]:
        """Return NCCL's communicators, kept for the next call over the same GPUs."""
        devices = tuple(plane.index for plane in planes)
        if self._ring[0] != devices:
            self.close()
            with planes[0].on("start NCCL"):
                self._ring = devices, nccl.NcclCommunicator.initAll(list(devices))
        return self._ring[1]


def _plane(found: CupyPlane | DeviceError) -> CupyPlane:
    if isinstance(found, DeviceError):
        raise found
    return found


@dataclass(slots=True)
class _Copy:
    """The copies of one pair: on a stream of the sender's, compared on the receiver."""

    pair: Pair
    source: CupyPlane
    target: CupyPlane
    size: int
    seed: int
    seconds: float = 0.0
    wrong: int = 0
    _memory: list[Any] = field(default_factory=list)
    _stream: Any = None
    _events: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.size -= self.size % 8
        # Each sender's data is its own: what came from another is wrong.
        self.seed += 1 + self.source.index

    def prepare(self) -> None:
        """Draw the data, empty the goal, and copy once to set the path up."""
        cuda = self.source.cupy.cuda
        with self.target.on("empty the goal of a copy"):
            self._memory.append(self.target.memory(self.size))
            cuda.runtime.memset(self._memory[0].ptr, 0, self.size)
            cuda.get_current_stream().synchronize()
        with self.source.on("prepare a copy"):
            self._memory.append(self.source.memory(self.size))
            self.source.sow(self._memory[1].ptr, self.size, self.seed)
            cuda.get_current_stream().synchronize()
            self._stream = cuda.Stream(non_blocking=True)
            self._events = [cuda.Event(), cuda.Event()]
            self._copy()
            self._stream.synchronize()

    def _copy(self) -> None:
        to, origin = self._memory
        self.source.cupy.cuda.runtime.memcpyPeerAsync(
            to.ptr, self.target.index, origin.ptr, self.source.index, self.size, self._stream.ptr
        )

    def begin(self) -> None:
        """Enqueue the timed copies."""
        with self.source.on("copy"):
            self._events[0].record(self._stream)
            for _ in range(REPEATS):
                self._copy()
            self._events[1].record(self._stream)

    def end(self) -> None:
        """Wait for them."""
        with self.source.on("copy"):
            self._events[1].synchronize()
            taken = self.source.cupy.cuda.get_elapsed_time(*self._events)
            self.seconds = float(taken) / 1000.0 / REPEATS

    def finish(self) -> None:
        """Compare where it arrived, and give the memory back."""
        with self.target.on("compare a copy"):
            self.wrong = self.target.wrong(self._memory[0].ptr, self.size, self.seed)
        self._memory.clear()


class _Rank:
    """One GPU of an all-reduce."""

    def __init__(self, plane: CupyPlane, communicator: Any, share: Any, count: int) -> None:
        self._plane, self._communicator, self._count = plane, communicator, count
        cupy = plane.cupy
        with plane.on("prepare an all-reduce"):
            self._stream = cupy.cuda.Stream(non_blocking=True)
            self._events = [cupy.cuda.Event(), cupy.cuda.Event()]
            self._send = cupy.empty((count,), dtype=np.float32)
            self._received = cupy.full((count,), -1.0, dtype=np.float32)
            _tile(self._send, cupy.asarray(share))
            cupy.cuda.get_current_stream().synchronize()

    def record(self, which: int) -> None:
        """Set the mark before (0) or after (1) the sums."""
        with self._plane.on("all-reduce"):
            self._events[which].record(self._stream)

    def enqueue(self, nccl: Any) -> None:
        """Take part in one sum."""
        with self._plane.on("all-reduce"):
            self._communicator.allReduce(
                self._send.data.ptr, self._received.data.ptr, self._count,
                nccl.NCCL_FLOAT32, nccl.NCCL_SUM, self._stream.ptr,
            )  # fmt: skip

    def seconds(self) -> float:
        """Wait for the sums; return the device's seconds for them."""
        with self._plane.on("all-reduce"):
            self._events[1].synchronize()
            return float(self._plane.cupy.cuda.get_elapsed_time(*self._events)) / 1000.0

    def wrong(self, expected: npt.NDArray[np.float32]) -> int:
        """Return the elements that are not what the host summed up."""
        with self._plane.on("compare a sum"):
            own = self._plane.cupy.asarray(expected)
            return sum(
                int((part != own[: part.shape[-1]]).sum()) for part in _periods(self._received, own)
            )


def _summed(nccl: Any, ranks: Sequence[_Rank], times: int) -> float:
    """Sum `times` times over all ranks; return the device's seconds of the slowest."""
    for rank in ranks:
        rank.record(0)
    for _ in range(times):
        nccl.groupStart()
        try:
            for rank in ranks:
                rank.enqueue(nccl)
        finally:
            nccl.groupEnd()
    for rank in ranks:
        rank.record(1)
    return max(rank.seconds() for rank in ranks)


@functools.lru_cache(maxsize=256)
def _numbers(seed: int, rank: int, period: int) -> npt.NDArray[np.float32]:
    """Return a rank's numbers, whole ones below VALUES, by splitmix64."""
    drawn = words(Pattern("random", (seed << 16) + rank), 0, 8 * period)
    return (drawn % np.uint64(VALUES)).astype(np.float32)


def _periods(array: Any, period: Any) -> Iterator[Any]:
    """Yield an array in parts: blocks of whole periods as (n, period), then what is left."""
    length = len(period)
    whole = len(array) - len(array) % length
    step = max(1, BLOCK // length) * length
    for begin in range(0, whole, step):
        yield array[begin : min(begin + step, whole)].reshape(-1, length)
    if whole < len(array):
        yield array[whole:]


def _tile(array: Any, period: Any) -> None:
    for part in _periods(array, period):
        part[...] = period[: part.shape[-1]]


def _nccl() -> Any:
    """Return CuPy's NCCL; DeviceError where the library is not installed."""
    try:
        nccl = module("cupy.cuda.nccl")
    except (ImportError, OSError) as error:
        raise DeviceError(NO_NCCL) from error
    if not nccl.available:
        raise DeviceError(NO_NCCL)
    return nccl
