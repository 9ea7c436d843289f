"""What CupyPlane asks of CuPy, on a stand-in whose device memory is the host's.

The stand-in has CuPy's calls and nothing of its speed: allocations of a limited memory, kernels by
the C++ build of the same text, and a column-major gemmEx that reads A and B through their
pointers. The real thing is tested by tests/contract, where there is a GPU.
"""

import ctypes
import types

import numpy as np
import pytest

from rackproof.harness.devices import cupy_plane, host_plane
from rackproof.harness.devices.cupy_plane import MIB, CupyPlane, available
from rackproof.harness.devices.kernel_plane import Chunk
from rackproof.harness.devices.precisions import rounded
from rackproof.harness.devices.protocol import Mismatch, Pattern
from rackproof.harness.errors import DeviceError, Lost, NotPresent, Unsupported

OWN = Pattern("address", 3)


class Array(np.ndarray):
    @property
    def data(self):
        return types.SimpleNamespace(ptr=self.ctypes.data)


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
        self.breaks = None  # an error that the next kernel raises
        self.computes = []

    def gemm(self, *arguments):
        _, _, _, m, n, k, _, a, a_kind, lda, b, b_kind, ldb, _, c, c_kind, ldc, compute, _ = (
            arguments
        )
        assert (c_kind, lda, ldb, ldc) == (0, m, k, m)
        product = read(a, a_kind, m, k) @ read(b, b_kind, k, n)
        raw = np.asfortranarray(product).tobytes(order="F")
        ctypes.memmove(c, raw, len(raw))
        self.computes.append((a_kind, compute))

    def kernel(self, name):
        def launch(grid, block, values):
            if self.breaks is not None:
                raise self.breaks
            words = (*grid, *block, *values)
            function = getattr(host_plane.library(), f"launch_{name}")
            function.restype = None
            function(*(ctypes.c_uint64(int(word)) for word in words))

        return launch

    def module(self):
        cupy = types.ModuleType("cupy")
        cupy.__dict__.update({k: v for k, v in vars(np).items() if not k.startswith("__")})
        cupy.asarray = lambda x: np.asarray(x).view(Array)
        cupy.ascontiguousarray = lambda x: np.ascontiguousarray(x).view(Array)
        cupy.empty = lambda shape, dtype: np.empty(shape, dtype).view(Array)
        cupy.zeros = lambda shape, dtype: np.zeros(shape, dtype).view(Array)
        cupy.asnumpy = np.array
        cupy.RawModule = lambda code, options: types.SimpleNamespace(
            code=code, options=options, get_function=self.kernel
        )
        cupy.get_default_memory_pool = lambda: types.SimpleNamespace(free_all_blocks=lambda: None)
        cupy.cuda = self.cuda()
        return cupy

    def cuda(self):
        class Device:
            attributes = types.MappingProxyType({"MultiProcessorCount": 1})

            def __init__(self, index): ...
            def __enter__(self): ...
            def __exit__(self, *_): ...
            def use(self): ...

        class Event:
            def record(self): ...
            def synchronize(self): ...

        out_of_memory = type("OutOfMemoryError", (MemoryError,), {})
        compile_exception = type("CompileException", (Exception,), {})
        space = types.SimpleNamespace
        return space(
            Device=Device,
            Event=Event,
            Memory=lambda size: Memory(self, size),
            memory=space(OutOfMemoryError=out_of_memory),
            compiler=space(CompileException=compile_exception),
            cublas=space(CUBLAS_OP_N=0, gemmEx=self.gemm, setMathMode=lambda *_: None),
            runtime=space(
                CUDARuntimeError=CudaError,
                getDeviceCount=lambda: 1,
                memGetInfo=lambda: (self.free, self.free),
            ),
            is_available=lambda: True,
            get_cublas_handle=lambda: 1,
            get_current_stream=lambda: space(synchronize=lambda: None),
            get_elapsed_time=lambda *_: 10.0,
        )


@pytest.fixture
def card(monkeypatch):
    card = Card(free=300 * MIB, largest=128 * MIB)
    modules = {"cupy": card.module()}
    monkeypatch.setattr(cupy_plane.importlib, "import_module", modules.__getitem__)
    return card


def test_without_cupy_there_is_no_plane(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(cupy_plane.importlib, "import_module", missing)
    assert not available()
    with pytest.raises(NotPresent, match="gpu-cuda12"):
        CupyPlane(0)


def test_an_unknown_gpu_is_not_present(card):
    assert card.free
    with pytest.raises(NotPresent, match="no GPU 1"):
        CupyPlane(1)


def test_claim_takes_what_there_is_in_chunks_and_release_gives_it_back(card):
    plane = CupyPlane(0)
    size = plane.claim()
    scratch = 300 * MIB // 8
    assert size >= 0.95 * (300 * MIB - scratch) - 64 * MIB
    assert size == sum(chunk.size for chunk in plane._chunks)
    assert [c.base for c in plane._chunks] == [0, plane._chunks[0].size]
    assert all(c.size <= card.largest for c in plane._chunks)
    plane.release()
    assert card.free == 300 * MIB
    card.largest = MIB * 40
    with pytest.raises(DeviceError, match="64 MiB"):
        plane.claim()
    assert card.free == 300 * MIB


def test_memory_work_crosses_chunks(card):
    plane = CupyPlane(0)
    plane.claim()
    memory = plane._memory[1:]
    # Only the two ends that meet, so that the test stays short.
    ends = [Chunk(0, 4096, memory[0].ptr), Chunk(4096, 2048, memory[1].ptr)]
    plane._chunks = ends
    plane.write(0, 6144, OWN)
    assert plane.verify(0, 6144, OWN).miscompares == 0
    ctypes.c_uint64.from_address(memory[1].ptr + 8).value = 1
    found = plane.march(0, 6144, False, OWN, Pattern("constant"))  # noqa: FBT003 - the seam's
    assert found.first == (Mismatch(4104, 4104 ^ 3, 1),)
    assert plane.verify(0, 6144, Pattern("constant")).miscompares == 0
    assert card.breaks is None


@pytest.mark.parametrize(
    ("precision", "path"),
    [("fp32", (0, 68)), ("tf32", (0, 77)), ("bf16", (14, 68)), ("fp16", (2, 68))],
)
def test_products_are_row_major_in_the_asked_type(card, precision, path):
    plane = CupyPlane(0)
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=s).astype(np.float32) for s in [(5, 7), (7, 3)])
    product = plane.multiply(a, b, precision, seconds=0.02)
    expected = rounded(np, a, precision) @ rounded(np, b, precision)
    assert np.allclose(product.c, expected, rtol=1e-5)
    # An elapsed 10 ms for 3 products is 3.3 ms each: six of them in 20 ms.
    assert (product.seconds, product.flops) == (0.01, 2.0 * 5 * 7 * 3 * 6)
    assert product.repeats_differ == 0
    assert set(card.computes) == {path}
    assert len(card.computes) == 1 + 3 + 6


def test_fp8_is_unsupported(card):
    assert card.free
    with pytest.raises(Unsupported, match="fp8"):
        CupyPlane(0).order("fp8")


@pytest.mark.parametrize(("status", "kind"), [(719, DeviceError), (999, Lost), (46, Lost)])
def test_what_cuda_raises_becomes_a_device_error(card, status, kind):
    plane = CupyPlane(0)
    plane.claim()
    card.breaks = CudaError(status)
    with pytest.raises(DeviceError, match=f"launch fill: cuda error {status}") as caught:
        plane.write(0, 64, OWN)
    assert type(caught.value) is kind
