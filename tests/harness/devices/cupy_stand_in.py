"""CuPy's calls on host memory, for what has to be tested without a GPU.

It has CuPy's calls and nothing of its speed: cards of a limited memory, kernels by the C++ build of
the same text, a column-major gemmEx that reads A and B through their pointers, copies that happen
at once, and an NCCL that sums. `log` holds what was done in order; what `Card.breaks` names fails.
"""

import ctypes
import itertools
import threading
import types

import numpy as np

from rackproof.harness.devices import host_plane

MIB = 1 << 20
PIECE_MS = 10.0  # what any two events are apart
space = types.SimpleNamespace


class Array(np.ndarray):
    @property
    def data(self):
        return space(ptr=self.ctypes.data)


class CudaError(RuntimeError):
    def __init__(self, status):
        super().__init__(f"cuda error {status}")
        self.status = status


class Memory:
    def __init__(self, card, size):
        if size > card.largest or size > card.free:
            raise CudaError(2)
        self.card, self.size = card, size
        self.buffer = np.empty(size // 8 + 4, dtype=np.uint64)
        self.ptr = self.buffer.ctypes.data + -self.buffer.ctypes.data % 32
        card.free -= size

    def __del__(self):
        if hasattr(self, "card"):
            self.card.free += self.size


def read(pointer, kind, rows, columns):
    dtype = {0: np.float32, 2: np.float16, 14: np.uint16}[kind]
    raw = ctypes.string_at(pointer, rows * columns * np.dtype(dtype).itemsize)
    x = np.frombuffer(raw, dtype=dtype).reshape(rows, columns, order="F")
    return (x.astype(np.uint32) << 16).view(np.float32) if kind == 14 else x.astype(np.float32)


class Card:
    """One GPU with `free` bytes, of which no allocation may exceed `largest`."""

    def __init__(self, free, largest):
        self.free, self.largest = free, largest
        self.breaks = {}  # an error by the name of the kernel or call that raises it
        self.computes = []
        self.product = threading.Event()  # set by each product

    def maybe(self, name):
        error = self.breaks.get(name) or self.breaks.get("*")
        if error is not None:
            raise error

    def gemm(self, *arguments):
        self.maybe("gemm")
        _, _, _, m, n, k, _, a, a_kind, lda, b, b_kind, ldb, _, c, c_kind, ldc, compute, _ = (
            arguments
        )
        assert (c_kind, lda, ldb, ldc) == (0, m, k, m)
        product = read(a, a_kind, m, k) @ read(b, b_kind, k, n)
        raw = np.asfortranarray(product).tobytes(order="F")
        ctypes.memmove(c, raw, len(raw))
        self.computes.append((a_kind, compute))
        self.product.set()


class Machine:
    """Some cards behind one CuPy. `peers` says whether they reach each other."""

    def __init__(self, cards, *, peers=True):
        self.cards, self.peers = cards, peers
        self.log = []
        self.enabled = set()
        self.handles = set()
        self.corrupt = None  # called with (target pointer, size) after each copy between cards
        self.collective = None  # called with the list of received arrays of an all-reduce
        self.here = threading.local()
        self.names = itertools.count()

    @property
    def index(self):
        return getattr(self.here, "index", 0)

    @property
    def card(self):
        return self.cards[self.index]

    def kernel(self, name):
        def launch(grid, block, values):
            self.card.maybe(name)
            self.log.append(name)
            function = getattr(host_plane.library(), f"launch_{name}")
            function.restype = None
            words = (*grid, *block, *values)
            function(*(ctypes.c_uint64(int(word)) for word in words))

        return launch

    def module(self):
        cupy = types.ModuleType("cupy")
        cupy.__dict__.update({k: v for k, v in vars(np).items() if not k.startswith("__")})
        cupy.asarray = lambda x: np.asarray(x).view(Array)
        cupy.ascontiguousarray = lambda x: np.ascontiguousarray(x).view(Array)
        cupy.empty = lambda shape, dtype: np.empty(shape, dtype).view(Array)
        cupy.full = lambda shape, value, dtype: np.full(shape, value, dtype).view(Array)
        cupy.zeros = lambda shape, dtype: np.zeros(shape, dtype).view(Array)
        cupy.asnumpy = np.array
        cupy.RawModule = lambda code, options: space(
            code=code, options=options, get_function=self.kernel
        )
        pool = space(free_all_blocks=lambda: None)
        cupy.get_default_memory_pool = lambda: pool
        cupy.get_default_pinned_memory_pool = lambda: pool
        cupy.cuda = cuda(self)
        return cupy

    def modules(self):
        """Return what importlib finds: CuPy, and its NCCL."""
        return {"cupy": self.module(), "cupy.cuda.nccl": nccl(self)}


def device_class(machine):
    class Device:
        attributes = types.MappingProxyType({"MultiProcessorCount": 1})

        def __init__(self, index):
            self.id, self._before = index, []

        def __enter__(self):
            self._before.append(machine.index)
            machine.here.index = self.id

        def __exit__(self, *_):
            machine.here.index = self._before.pop()

        def use(self):
            machine.here.index = self.id

    return Device


def event_class(machine):
    class Event:
        def __init__(self, block=False, disable_timing=False):  # noqa: FBT002 - CuPy's signature
            self.name = next(machine.names)
            self.timing = not disable_timing

        def record(self, stream):  # CuPy's own takes the null stream for none
            assert stream.ptr is not None
            machine.log.append(("record", self.name))

        def synchronize(self):
            machine.card.maybe("synchronize")
            machine.log.append(("synchronize", self.name))

    return Event


def stream_class(machine):
    class Stream:
        def __init__(self, non_blocking=False):  # noqa: FBT002 - CuPy's signature
            assert non_blocking
            self.ptr = id(self)

        def __enter__(self): ...
        def __exit__(self, *_): ...
        def synchronize(self):
            machine.card.maybe("synchronize")

        def wait_event(self, event): ...

    return Stream


def elapsed(begin, end):
    assert begin.timing
    assert end.timing
    return PIECE_MS


def cuda(machine):
    return space(
        Device=device_class(machine),
        Event=event_class(machine),
        Stream=stream_class(machine),
        Memory=lambda size: Memory(machine.card, size),
        alloc_pinned_memory=bytearray,
        memory=space(OutOfMemoryError=type("OutOfMemoryError", (MemoryError,), {})),
        compiler=space(CompileException=type("CompileException", (Exception,), {})),
        cublas=cublas(machine),
        runtime=runtime(machine),
        is_available=lambda: True,
        get_cublas_handle=lambda: 1,
        get_current_stream=lambda: space(synchronize=lambda: None, ptr=0),
        get_elapsed_time=elapsed,
    )


def cublas(machine):
    def gemm(*arguments):
        machine.card.gemm(*arguments)

    def create():
        machine.handles.add(handle := next(machine.names))
        return handle

    return space(
        CUBLAS_OP_N=0,
        gemmEx=gemm,
        setMathMode=lambda *_: None,
        setStream=lambda *_: None,
        create=create,
        destroy=machine.handles.remove,
    )


def runtime(machine):
    def move(to, source, size, *_):
        machine.card.maybe("memcpy")
        ctypes.memmove(to, source, size)
        machine.log.append("copy")

    def between(to, target, source, origin, size, stream):
        machine.cards[target].maybe("memcpyPeer")
        machine.cards[origin].maybe("memcpyPeer")
        assert machine.index == origin  # the stream's device has to be the current one
        ctypes.memmove(to, source, size)
        machine.log.append(("peer", origin, target))
        if machine.corrupt is not None:
            machine.corrupt(to, size)

    def enable(peer):
        if (machine.index, peer) in machine.enabled:
            raise CudaError(704)
        machine.enabled.add((machine.index, peer))

    return space(
        CUDARuntimeError=CudaError,
        getDeviceCount=lambda: len(machine.cards),
        memGetInfo=lambda: (machine.card.free, machine.card.free),
        memset=ctypes.memset,
        memcpyAsync=move,
        memcpyPeerAsync=between,
        deviceCanAccessPeer=lambda *_: machine.peers,
        deviceEnablePeerAccess=enable,
        deviceGetByPCIBusId=lambda pci: int(pci.split(":")[0], 16),
    )


def nccl(machine):
    """Return an NCCL that sums at groupEnd."""
    waiting = []

    class Communicator:
        def __init__(self, index):
            self.index = index

        @staticmethod
        def initAll(devices):  # noqa: N802 - NCCL's name
            machine.log.append(("initAll", tuple(devices)))
            return [Communicator(index) for index in devices]

        def allReduce(self, send, receive, count, kind, op, stream):  # noqa: N802
            assert machine.index == self.index
            machine.card.maybe("allReduce")
            assert (kind, op) == (7, 0)
            waiting.append((send, receive, count))

        def destroy(self):
            machine.log.append(("destroy", self.index))

    def arrays(which):
        kind = ctypes.c_float
        return [np.ctypeslib.as_array((kind * w[2]).from_address(w[which])) for w in waiting]

    def end():
        total = np.sum(np.stack(arrays(0)), axis=0, dtype=np.float32)
        for received in arrays(1):
            received[:] = total
        if machine.collective is not None:
            machine.collective(arrays(1))
        waiting.clear()

    return space(
        available=True, NcclCommunicator=Communicator, NCCL_FLOAT32=7, NCCL_SUM=0,
        groupStart=waiting.clear, groupEnd=end,
    )  # fmt: skip
