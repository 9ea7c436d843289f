"""One suite against every Device and every data plane: emulated, host memory, and silicon.

What a burn relies on is stated here once. The emulated rack and the host's plane run everywhere;
the real GPU where there is one.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from rackproof.harness.devices import Bench, connect, connect_local, cupy_plane, host_plane
from rackproof.harness.devices.protocol import DataPlane, Device, Pattern
from rackproof.harness.errors import DeviceError, NotPresent, Unsupported
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event
from rackproof.harness.spec import load

ZERO, ONES = Pattern("constant", 0), Pattern("constant", 0, invert=True)
PATTERNS = (
    ZERO,
    ONES,
    Pattern("address", 0x55),
    Pattern("random", 3),
    Pattern("random", 3, invert=True),
    Pattern("modulo", 20 * 3 + 7),
    Pattern("modulo", 20 * 3 + 7, invert=True),
    Pattern("address", 0x55, origin=1 << 20),
    Pattern("random", 3, origin=-4096),
)
PART = 1 << 20  # bytes of the memory that the slower planes are asked to look at

IDENTITY = ("gpu.name", "gpu.pci_id", "memory.total", "driver.version", "vbios.version")
RANGES = {
    "memory.total": (1024, 1 << 20),
    "temperature": (5, 110),
    "power.average": (1, 3000),
    "clock.sm": (1, 4000),
    "pcie.gen.max": (1, 8),
    "pcie.width.max": (1, 32),
    "throttle.thermal": (0, 1),
    "throttle.power_brake": (0, 1),
}


def real() -> Bench:
    """The bench of a real GPU that can be worked on, or a skip."""
    if not cupy_plane.available():
        pytest.skip("optional: no CuPy with a GPU")
    return connect_local()


def host() -> DataPlane:
    """The plane on host memory, or a skip."""
    try:
        host_plane.library()
    except NotPresent as error:
        pytest.skip(str(error))
    return host_plane.HostPlane(size=4 * PART, chunks=2)


@pytest.fixture(scope="module", params=["hgx-h100", "gb300-nvl72", "vr-nvl72", "real"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A bench, emulated or real."""
    opened = real() if request.param == "real" else connect(load(request.param), seed=5)
    yield opened
    opened.close()


@pytest.fixture
def device(bench: Bench) -> Iterator[Device]:
    """The last device of a bench, within a run."""
    found = list(bench.devices.values())[-1]
    found.begin("contract", 1)
    yield found
    found.end()


@pytest.fixture(params=["emulated", "host", "real"])
def plane(request: pytest.FixtureRequest) -> Iterator[DataPlane]:
    """A data plane of each sort, with its memory claimed."""
    opened = None
    if request.param == "host":
        found = host()
    else:
        opened = connect(load("hgx-b200"), seed=5) if request.param == "emulated" else real()
        found = next(iter(opened.devices.values())).plane
    assert found.claim() >= PART
    yield found
    found.release()
    if opened is not None:
        opened.close()


# --- memory --------------------------------------------------------------------------------------
@pytest.mark.parametrize("pattern", PATTERNS)
def test_what_was_written_is_read(plane, pattern):
    plane.write(0, PART, pattern)
    verified = plane.verify(0, PART, pattern)
    assert (verified.words, verified.miscompares, tuple(verified.first)) == (PART // 8, 0, ())


def test_all_that_was_claimed_can_be_written_to_its_end(plane):
    size = plane.claim()
    plane.write(size - 64, size, ONES)
    assert plane.verify(size - 64, size, ONES).miscompares == 0


def test_another_pattern_is_seen_in_every_word_and_64_are_kept(plane):
    plane.write(0, PART, ZERO)
    verified = plane.verify(0, PART, ONES)
    assert verified.miscompares == PART // 8
    assert len(verified.first) == 64
    for mismatch in verified.first:
        assert (mismatch.expected, mismatch.actual) == ((1 << 64) - 1, 0)
        assert mismatch.address % 8 == 0
    assert len({mismatch.address for mismatch in verified.first}) == 64


def test_one_wrong_word_is_found_at_its_address(plane):
    plane.write(0, PART, ZERO)
    plane.write(4096, 4104, Pattern("constant", 9))
    verified = plane.verify(0, PART, ZERO)
    assert verified.miscompares == 1
    (mismatch,) = verified.first
    assert (mismatch.address, mismatch.expected, mismatch.actual) == (4096, 0, 9)


@pytest.mark.parametrize("up", [True, False])
def test_a_march_reads_before_it_writes(plane, up):
    plane.write(0, PART, ZERO)
    assert plane.march(0, PART, up, ZERO, ONES).miscompares == 0
    assert plane.march(0, PART, up, ZERO, ONES).miscompares == PART // 8
    assert plane.verify(0, PART, ONES).miscompares == 0


def test_a_write_ends_where_it_ends(plane):
    plane.write(0, PART, ZERO)
    plane.write(256, 512, ONES)
    assert plane.verify(0, 256, ZERO).miscompares == 0
    assert plane.verify(256, 512, ONES).miscompares == 0
    assert plane.verify(512, PART, ZERO).miscompares == 0


@pytest.mark.parametrize("span", [(4, 64), (0, 12), (64, 0), (-8, 8)])
def test_a_range_that_is_none_is_a_value_error(plane, span):
    with pytest.raises(ValueError, match=r"range|within"):
        plane.write(*span, ZERO)


def test_nothing_is_written_beyond_the_claim(plane):
    size = plane.claim()
    with pytest.raises(ValueError, match=r"range|within"):
        plane.write(0, size + 8, ZERO)


def test_without_a_claim_there_is_no_memory(plane):
    plane.release()
    plane.release()
    with pytest.raises(DeviceError):
        plane.write(0, 64, ZERO)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("down", [False, True])
def test_a_copy_carries_a_pattern_with_its_origin(plane, pattern, down):
    half = PART // 2
    lo, to = (half, 0) if down else (0, half)
    plane.write(0, PART, ONES)
    plane.write(lo, lo + half, pattern)
    plane.copy(to, lo, lo + half)
    carried = replace(pattern, origin=pattern.origin + to - lo)
    assert plane.verify(to, to + half, carried).miscompares == 0
    assert plane.verify(lo, lo + half, pattern).miscompares == 0


def test_a_copy_carries_a_wrong_word_and_ends_where_it_ends(plane):
    plane.write(0, PART, ZERO)
    plane.write(4096, 4104, Pattern("constant", 9))
    plane.copy(PART // 2, 4064, 8192)
    verified = plane.verify(PART // 2, PART, ZERO)
    assert verified.miscompares == 1
    assert (verified.first[0].address, verified.first[0].actual) == (PART // 2 + 32, 9)


@pytest.mark.parametrize("spans", [(32, 0, 64), (0, 32, 96), (8, 64, 128), (512, 0, 40)])
def test_a_copy_that_overlaps_or_cuts_a_sector_is_a_value_error(plane, spans):
    with pytest.raises(ValueError, match=r"overlap|32 bytes"):
        plane.copy(*spans)


# --- data that move ------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["copy", "triad"])
def test_a_stream_moves_bytes_in_time_and_arrives(plane, kind):
    plane.release()
    looked = []
    moved = plane.stream(kind, 0.05, lambda: looked.append(1))
    assert moved.size > 0
    assert moved.seconds > 0
    assert moved.rate == pytest.approx(moved.size / moved.seconds / 1e9)
    assert moved.wrong == 0
    assert looked


@pytest.mark.parametrize("way", ["h2d", "d2h", "both"])
def test_a_transfer_moves_bytes_in_time_and_arrives(plane, way):
    plane.release()
    looked = []
    moved = plane.transfer(way, 0.05, 11, lambda: looked.append(1))
    assert moved.size > 0
    assert moved.seconds > 0
    assert moved.wrong == 0
    assert looked


def test_nobody_need_look(plane):
    plane.release()
    assert plane.stream("copy", 0.01).wrong == plane.transfer("h2d", 0.01, 2).wrong == 0


def test_a_stream_or_a_way_that_is_none_is_a_value_error(plane):
    plane.release()
    with pytest.raises(ValueError, match="'add'"):
        plane.stream("add", 0.01)
    with pytest.raises(ValueError, match="'up'"):
        plane.transfer("up", 0.01, 1)


def test_a_load_begins_and_ends_at_once_and_twice(plane):
    plane.release()
    for share in (0.5, 1.0, 0.0, 0.0):
        plane.load(share)


# --- arithmetic ----------------------------------------------------------------------------------
def test_a_product_is_the_product(plane):
    xp, n = plane.xp, 64
    a = xp.asarray(np.random.default_rng(1).standard_normal((n, n)), dtype="float32")
    b = xp.asarray(np.random.default_rng(2).standard_normal((n, n)), dtype="float32")
    product = plane.multiply(a, b, "fp32", 0.01)
    exact = np.asarray([[float(x) for x in row] for row in a]) @ np.asarray(
        [[float(x) for x in row] for row in b]
    )
    found = np.asarray([[float(x) for x in row] for row in product.c])
    assert np.abs(found - exact).max() < 1e-4
    assert product.c.dtype == "float32"
    assert product.seconds > 0
    assert product.flops > 0
    assert product.repeats_differ == 0


def test_an_order_is_said_for_what_can_be_multiplied_only(plane):
    assert plane.order("fp32") >= 64
    with pytest.raises(Unsupported):
        plane.order("fp33")


# --- telemetry -----------------------------------------------------------------------------------
def test_identity_is_told(device):
    for metric in IDENTITY:
        assert device.telemetry.read(metric)


@pytest.mark.parametrize("metric", sorted(RANGES))
def test_readings_are_in_the_metrics_unit(device, metric):
    low, high = RANGES[metric]
    assert metric in metrics()
    assert low <= device.telemetry.read(metric) <= high


def test_a_metric_that_is_no_reading_is_unsupported(device):
    with pytest.raises(Unsupported):
        device.telemetry.read("memory.miscompares")
    with pytest.raises(Unsupported):
        device.telemetry.read_link("temperature", 0)


def read(device: Device, name: str) -> object:
    """Return a reading, or the DeviceError that came instead."""
    try:
        return device.telemetry.read(name)
    except DeviceError as error:
        return error


def test_every_reading_is_a_value_or_a_device_error(device):
    for name, metric in metrics().items():
        if metric.subject == "gpu":
            found = read(device, name)
            kind = str if metric.unit == "text" else int | float
            assert isinstance(found, kind | DeviceError), name
            assert str(found)


def test_a_healthy_gpu_reports_no_event(device):
    found = device.telemetry.events()
    assert all(isinstance(event, Event) for event in found)
    assert device.telemetry.events() == []


# --- runs ----------------------------------------------------------------------------------------
def test_time_passes_with_work_and_never_back(device):
    if device.plane.claim() == 0:
        pytest.fail("nothing to claim")
    before = device.clock.now()
    device.plane.write(0, PART, ZERO)
    device.plane.verify(0, PART, ZERO)
    assert device.clock.now() > before


def test_a_load_lasts_until_told_otherwise(device):
    idle = device.telemetry.read("power.average")
    before = device.clock.now()
    device.plane.load(1.0)
    device.wait(2.0)
    loaded = device.telemetry.read("power.average")
    device.plane.load(0.0)
    device.wait(3.0)
    assert device.clock.now() - before > 4.999
    assert loaded > idle + 20
    assert device.telemetry.read("power.average") < (loaded + idle) / 2


def test_pcie_is_at_its_best_while_data_move(device):
    seen = []
    device.plane.transfer("both", 0.5, 3, lambda: seen.append(device.telemetry.read("pcie.gen")))
    assert seen
    assert 1 <= max(seen) <= device.telemetry.read("pcie.gen.max")


def test_a_run_leaves_the_gpu_as_it_was(bench, device):
    free = device.telemetry.read("memory.free")
    assert device.plane.claim() > 0
    assert device.telemetry.read("memory.free") < free
    device.end()
    assert device.telemetry.read("memory.free") >= 0.99 * free
    device.begin("contract", 2)


def test_a_claim_covers_what_is_free(device):
    free = device.telemetry.read("memory.free") * 2**20
    assert 0.9 * free <= device.plane.claim() <= free


def test_a_bench_knows_its_gpus(bench):
    assert bench.count == len(bench.devices)
    assert bench.unexpected == []
    assert bench.source in {"emulated", "real"}
    assert bench.driver_version
    assert bench.driver_version.endswith("-rackproof-emulated") == (bench.source == "emulated")
    seen = set()
    for subject, device in bench.devices.items():
        identity = bench.identity(subject)
        assert device.gpu.subject == subject
        assert identity.uuid not in seen
        seen.add(identity.uuid)
    assert set(bench.hosts) == {device.gpu.host for device in bench.devices.values()}
