"""What CupyPlane asks of CuPy, on a stand-in whose device memory is the host's.

The real thing is tested by tests/contract, where there is a GPU.
"""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

from rackproof.harness.devices import cupy_call, cupy_plane
from rackproof.harness.devices.cupy_plane import MIB, CupyPlane, available
from rackproof.harness.devices.kernel_plane import KERNELS, Chunk
from rackproof.harness.devices.precisions import rounded
from rackproof.harness.devices.protocol import Mismatch, Pattern
from rackproof.harness.errors import DeviceError, Lost, NotPresent, Unsupported

OWN = Pattern("address", 3)


def test_without_cupy_there_is_no_plane_and_no_gpu_is_accused(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(cupy_call.importlib, "import_module", missing)
    assert not available()
    with pytest.raises(DeviceError, match="gpu-cuda12") as caught:
        CupyPlane(0)
    assert not isinstance(caught.value, NotPresent)  # the GPU is there, CuPy is not


def test_an_unknown_gpu_is_not_present(machine):
    with pytest.raises(NotPresent, match="no GPU 2"):
        CupyPlane(len(machine.cards))


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
    assert card.breaks == {}


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


def test_fp8_is_unsupported_and_says_why(card):
    assert card.free
    with pytest.raises(Unsupported, match="no fp8 products: they need cublasLt"):
        CupyPlane(0).order("fp8")


@pytest.mark.parametrize(("status", "kind"), [(719, DeviceError), (999, Lost), (46, Lost)])
def test_what_cuda_raises_becomes_a_device_error(stand_in, card, status, kind):
    plane = CupyPlane(0)
    plane.claim()
    card.breaks["fill"] = stand_in.CudaError(status)
    with pytest.raises(DeviceError, match=f"launch fill: cuda error {status}") as caught:
        plane.write(0, 64, OWN)
    assert type(caught.value) is kind


def test_an_allocation_that_does_not_fit_says_how_much(card):
    plane = CupyPlane(0)
    with pytest.raises(DeviceError, match="129 MiB"):
        plane.memory(129 * MIB)
    kept = plane.memory(MIB)
    assert card.free == 299 * MIB
    del kept
    assert card.free == 300 * MIB


def test_work_happens_on_the_planes_own_gpu(machine):
    plane = CupyPlane(1)
    kept = plane.memory(MIB)
    assert [card.free // MIB for card in machine.cards] == [300, 299]
    plane.sow(kept.ptr, MIB, seed=5)
    assert plane.wrong(kept.ptr, MIB, seed=5) == 0
    assert plane.wrong(kept.ptr, MIB, seed=6) == MIB // 8
    ctypes.c_uint64.from_address(kept.ptr + 80).value ^= 1
    assert plane.wrong(kept.ptr, MIB, seed=5) == 1
    assert machine.index == 0  # and leaves the thread's current one as it was
    assert plane.xp is not None
    assert machine.index == 1


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_nvcc_takes_every_text(arch, tmp_path):
    assert {f"{name}.cu" for name in ("memory", "stream")} == {p.name for p in KERNELS.glob("*.cu")}
    for name in ("memory", "stream"):
        built = tmp_path / f"{name}.cubin"
        command = ["nvcc", f"-arch={arch}", "-std=c++11", "-cubin", "-o", str(built)]
        done = subprocess.run(
            [*command, str(KERNELS / f"{name}.cu")], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    assert cupy_plane.STREAM_KERNELS
    for kernel in cupy_plane.STREAM_KERNELS:
        assert kernel.encode() in (tmp_path / "stream.cubin").read_bytes()
