"""Streams and transfers move what they say, and see every word that arrives wrong."""

import ctypes
import shutil

import numpy as np
import pytest

from rackproof.harness.devices import cupy_moves, host_plane
from rackproof.harness.devices.cupy_plane import MIB, CupyPlane
from rackproof.harness.devices.patterns import words
from rackproof.harness.devices.protocol import Pattern
from rackproof.harness.errors import DeviceError, Lost

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
REPEATS = 3  # of a piece of 3.3 ms in 10 ms


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(cupy_moves, "LARGEST_ARRAY", MIB)
    monkeypatch.setattr(cupy_moves, "LEAST_ARRAY", MIB)
    monkeypatch.setattr(cupy_moves, "BUFFER", MIB)


@pytest.fixture
def plane(machine):
    return CupyPlane(0)


@pytest.mark.parametrize(("kind", "arrays"), [("copy", 2), ("triad", 3)])
def test_a_stream_counts_what_is_read_and_written(plane, card, kind, arrays):
    watched = []
    moved = plane.stream(kind, 0.01, lambda: watched.append(1))
    assert (moved.size, moved.seconds, moved.wrong) == (arrays * MIB * REPEATS, 0.01, 0)
    assert watched
    assert card.free == 300 * MIB  # nothing is kept


@pytest.mark.parametrize("kind", ["copy", "triad"])
def test_a_word_that_a_stream_gets_wrong_is_counted(plane, machine, kind, monkeypatch):
    """The fault sits in the memory that is written: one word, after all repeats."""
    made = []
    real = plane.memory

    def memory(size):
        made.append(real(size))
        return made[-1]

    def watch():  # the last piece is done in the stand-in when it is watched
        ctypes.c_uint64.from_address(made[0].ptr + 4096).value ^= 1 << 63

    monkeypatch.setattr(plane, "memory", memory)
    assert plane.stream(kind, 0.0, watch).wrong == 1


def test_the_triad_is_b_plus_s_c():
    n = 1 << 12
    b, c = (words(Pattern("random", seed), 0, 8 * n) for seed in (1, 2))
    a = np.zeros(n, np.uint64)
    library = host_plane.library()
    found = np.zeros(1, np.uint64)
    values = [1, 256, a.ctypes.data, b.ctypes.data, c.ctypes.data, n, 5]
    library.launch_stream_triad(*(ctypes.c_uint64(v) for v in values))
    assert np.array_equal(a, b + np.uint64(5) * c)
    a[7] += np.uint64(1)
    values = [1, 256, a.ctypes.data, n, 5, 1, 2, found.ctypes.data]
    library.launch_triad_differs(*(ctypes.c_uint64(v) for v in values))
    assert found[0] == 1
    assert library.host_misaligned() == 0


def test_too_little_memory_for_a_stream_says_so(plane, card):
    card.free = MIB
    with pytest.raises(DeviceError, match="1 MiB of GPU memory are free"):
        plane.stream("copy", 0.01)
    card.free = 300 * MIB


@pytest.mark.parametrize(("way", "ways"), [("h2d", 1), ("d2h", 1), ("both", 2)])
def test_a_transfer_moves_its_bytes_and_compares_them(plane, machine, card, way, ways):
    watched = []
    moved = plane.transfer(way, 0.01, 7, lambda: watched.append(1))
    assert (moved.size, moved.seconds, moved.wrong) == (ways * MIB * REPEATS, 0.01, 0)
    assert machine.log.count("copy") == ways * (REPEATS + 3)
    assert watched
    assert card.free == 300 * MIB


@pytest.mark.parametrize("way", ["h2d", "d2h", "both"])
def test_a_copy_that_brings_nothing_is_all_wrong(plane, machine, way, monkeypatch):
    monkeypatch.setattr(plane.cupy.cuda.runtime, "memcpyAsync", lambda *_: None)
    ways = 2 if way == "both" else 1
    assert plane.transfer(way, 0.0, 7).wrong == ways * MIB // 8


def test_both_ways_carry_different_data(plane, machine, monkeypatch):
    seen = []
    runtime = plane.cupy.cuda.runtime
    real = runtime.memcpyAsync

    def move(to, source, size, *rest):
        seen.append(ctypes.string_at(source, 64))
        real(to, source, size, *rest)

    monkeypatch.setattr(runtime, "memcpyAsync", move)
    plane.transfer("both", 0.0, 7)
    assert len(set(seen)) == 2


def test_what_is_no_kind_and_no_way_is_a_value_error(plane):
    with pytest.raises(ValueError, match="copy, triad"):
        plane.stream("scale", 0.0)
    with pytest.raises(ValueError, match="h2d, d2h, both"):
        plane.transfer("d2d", 0.0, 1)


def test_a_gpu_that_is_lost_on_the_way_is_lost(plane, card, stand_in):
    card.breaks["memcpy"] = stand_in.CudaError(999)
    with pytest.raises(Lost, match="h2d"):
        plane.transfer("h2d", 0.0, 1)
