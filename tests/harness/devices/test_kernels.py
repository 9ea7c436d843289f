"""kernels/memory.cu on host memory: every word by the reference, every mismatch found and counted.

The very text that a GPU gets, compiled by the C++ compiler; where nvcc is, also by nvcc.
"""

import ctypes
import os
import random
import shutil
import subprocess

import numpy as np
import pytest

from rackproof.harness.devices import host_plane
from rackproof.harness.devices.emulated.hbm import Hbm
from rackproof.harness.devices.host_plane import HostPlane
from rackproof.harness.devices.kernel_plane import KERNELS
from rackproof.harness.devices.patterns import KINDS, word, words
from rackproof.harness.devices.protocol import Mismatch, Pattern, Verified
from rackproof.harness.errors import DeviceError

pytestmark = pytest.mark.skipif(
    host_plane.compiler() is None and os.environ.get("REQUIRE_ALL") != "1",
    reason="no C++ compiler",
)
ALL = 2**64 - 1
SAMPLE = [Pattern(kind, seed, invert) for kind in KINDS for seed in (0, 2**63 + 5)
          for invert in (False, True)]  # fmt: skip
SAMPLE += [Pattern(kind, 46, invert=True, origin=at) for kind in KINDS for at in (4096, -40)]
ZEROS, ONES = Pattern("constant"), Pattern("constant", invert=True)


@pytest.fixture(autouse=True)
def no_misaligned_access():
    misaligned = host_plane.library().host_misaligned
    before = misaligned()
    yield
    assert misaligned() == before  # host memory forgives it, a GPU does not


def reads_of(work):
    """Return the addresses of the words that kernels read while `work` ran, in order."""
    log = np.zeros(1 << 16, dtype=np.uint64)
    trace = host_plane.library().host_trace
    trace(ctypes.c_uint64(log.ctypes.data), ctypes.c_uint64(len(log)))
    try:
        work()
    finally:
        trace(ctypes.c_uint64(0), ctypes.c_uint64(0))
    return [int(address) for address in log[log != 0]]


@pytest.fixture(params=[(4096, 1), (24 * 101, 3)], ids=["one chunk", "odd chunks"])
def plane(request):
    size, chunks = request.param
    plane = HostPlane(size, chunks, blocks=1)
    assert plane.claim() == size
    yield plane
    plane.release()


def content(plane):
    return [plane.peek(address) for address in range(0, plane.size, 8)]


@pytest.mark.parametrize("pattern", SAMPLE, ids=str)
@pytest.mark.parametrize("cut", [(0, 0), (8, 8), (24, 16), (1000, 640)])
def test_fill_writes_the_reference_and_nothing_else(plane, pattern, cut):
    plane.write(0, plane.size, Pattern("random", 99))
    lo, hi = cut[0], plane.size - cut[1]
    expected = words(Pattern("random", 99), 0, plane.size)
    expected[lo // 8 : hi // 8] = words(pattern, lo, hi)
    plane.write(lo, hi, pattern)
    assert content(plane) == [int(w) for w in expected]
    assert plane.verify(lo, hi, pattern) == Verified((hi - lo) // 8, 0)


@pytest.mark.parametrize("pattern", SAMPLE, ids=str)
def test_verify_finds_each_changed_word(plane, pattern):
    plane.write(0, plane.size, pattern)
    at = sorted(random.Random(3).sample(range(0, plane.size, 8), 40))
    for address in at:
        plane.poke(address, word(pattern, address) ^ 1 << address % 64)
    found = plane.verify(0, plane.size, pattern)
    assert found.miscompares == 40
    assert found.first == tuple(
        Mismatch(a, word(pattern, a), word(pattern, a) ^ 1 << a % 64) for a in at
    )


def test_more_than_64_mismatches_are_counted_and_64_kept(plane):
    plane.write(0, plane.size, ZEROS)
    found = plane.verify(0, plane.size, ONES)
    assert found.words == found.miscompares == plane.size // 8
    assert len({m.address for m in found.first}) == 64
    assert all((m.expected, m.actual) == (ALL, 0) for m in found.first)


@pytest.mark.parametrize("up", [True, False])
@pytest.mark.parametrize("ends", [(0, 0), (8, 16), (40, 8)])
def test_march_reads_compares_and_writes_each_word_once(plane, up, ends):
    one, two = Pattern("address", 7), Pattern("random", 3, invert=True)
    lo, hi = ends[0], plane.size - ends[1]
    plane.write(0, plane.size, one)
    plane.poke(lo + 80, 5)
    found = plane.march(lo, hi, up, one, two)
    wrong = (Mismatch(lo + 80, word(one, lo + 80), 5),)
    assert found == Verified((hi - lo) // 8, 1, wrong)
    expected = words(one, 0, plane.size)
    expected[lo // 8 : hi // 8] = words(two, lo, hi)
    assert content(plane) == [int(w) for w in expected]


@pytest.mark.parametrize("up", [True, False])
def test_march_goes_in_address_order_inside_each_threads_chunk(up):
    plane = HostPlane(8 * 4096, blocks=1)  # 256 threads, 16 words each
    plane.claim()
    base = plane._chunks[0].pointer
    reads = reads_of(lambda: plane.march(0, plane.size, up, ZEROS, ONES))
    at = [(address - base) // 8 for address in reads]
    assert sorted(at) == list(range(4096))
    for thread in range(256):
        own = at[16 * thread : 16 * (thread + 1)]
        sectors = [word // 4 for word in own[::4]]
        assert own == [4 * sector + k for sector in sectors for k in range(4)]
        wanted = range(4 * thread, 4 * thread + 4)
        assert sectors == list(wanted if up else reversed(wanted))


def test_march_of_a_few_words_goes_word_by_word():
    plane = HostPlane(8 * 3, blocks=1)
    plane.claim()
    base = plane._chunks[0].pointer
    reads = reads_of(lambda: plane.march(0, 24, False, ZEROS, ONES))  # noqa: FBT003 - the seam's
    assert [address - base for address in reads] == [16, 8, 0]


def test_the_planes_agree_on_random_work():
    rng = random.Random(11)
    for _ in range(60):
        size = 96 * rng.randint(1, 60)
        host, sparse = HostPlane(size, rng.choice([1, 3, 4]), blocks=1), Hbm(size)
        host.claim()
        host.write(0, size, ZEROS)
        sparse.write(0, size, ZEROS)
        for _ in range(12):
            lo, hi = sorted(8 * rng.randrange(size // 8 + 1) for _ in range(2))
            one, two = rng.choice(SAMPLE), rng.choice(SAMPLE)
            if rng.random() < 0.3:
                host.write(lo, hi, one)
                sparse.write(lo, hi, one)
                continue
            if rng.random() < 0.3 and size >= 256 and host._share % 32 == 0:
                half = size // 64 * 32
                to, start = rng.choice([(0, half), (half, 0)])
                host.copy(to, start, start + half)
                sparse.copy(to, start, start + half)
                continue
            up = rng.random() < 0.5
            if rng.random() < 0.5:
                pair = host.march(lo, hi, up, one, two), sparse.march(lo, hi, up, one, two)
            else:
                pair = host.verify(lo, hi, one), sparse.verify(lo, hi, one)
            assert pair[0].miscompares == pair[1].miscompares
            if pair[0].miscompares <= 64:
                assert pair[0].first == tuple(sorted(pair[1].first, key=lambda m: m.address))
        host.release()


@pytest.mark.parametrize("chunks", [1, 4])
def test_copy_moves_every_word(chunks):
    plane = HostPlane(4096, chunks, blocks=1)
    plane.claim()
    plane.write(0, 2048, Pattern("random", 4))
    plane.copy(2048 + 32, 64, 1600)
    got = content(plane)
    assert got[(2048 + 32) // 8 : (2048 + 1568) // 8] == got[8:200]
    with pytest.raises(ValueError, match="overlap"):
        plane.copy(32, 0, 64)
    with pytest.raises(ValueError, match="32 bytes"):
        plane.copy(2048 + 8, 0, 64)


def test_nothing_claimed_is_a_device_error_and_a_bad_range_a_value_error(plane):
    with pytest.raises(ValueError, match="no range"):
        plane.verify(0, plane.size + 8, ZEROS)
    plane.release()
    with pytest.raises(DeviceError, match="no memory is claimed"):
        plane.write(0, 8, ZEROS)


def test_a_refused_text_says_what_the_compiler_said(monkeypatch, tmp_path):
    for name in host_plane.SOURCES:
        (tmp_path / name).write_text("#error out of order\n", encoding="utf-8")
    monkeypatch.setattr(host_plane, "KERNELS", tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with pytest.raises(DeviceError, match="out of order"):
        host_plane.library.__wrapped__()


def test_products_are_numpys():
    plane = HostPlane()
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=(64, 64)).astype(np.float32) for _ in range(2))
    product = plane.multiply(a, b, "fp32", 0.0)
    assert np.array_equal(product.c, a @ b)
    assert (product.flops, product.repeats_differ) == (2 * 64**3, 0)
    assert not np.array_equal(plane.multiply(a, b, "bf16", 0.0).c, a @ b)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_nvcc_takes_the_same_text(arch, tmp_path):
    command = ["nvcc", f"-arch={arch}", "-cubin", "-o", str(tmp_path / "memory.cubin")]
    done = subprocess.run(
        [*command, str(KERNELS / "memory.cu")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert b"march" in (tmp_path / "memory.cubin").read_bytes()
