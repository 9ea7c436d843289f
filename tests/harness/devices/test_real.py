"""Real devices, with the emulated driver for NVML and a stand-in for CuPy."""

import os
from types import SimpleNamespace

import pynvml
import pytest

from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices import lazy_plane
from rackproof.harness.devices.cupy_load import BackgroundLoad
from rackproof.harness.devices.lazy_plane import parent, processes
from rackproof.harness.devices.nvml import NvmlTelemetry
from rackproof.harness.devices.real import RealBacking, put_back
from rackproof.harness.errors import DeviceError, Lost, NotPermitted, NotPresent, TimedOut
from rackproof.harness.journal import Change
from rackproof.harness.model import Gpu

SUBJECTS = [f"rack0/tray00/gpu{n}" for n in range(4)]
MAX_W = 1400.0


@pytest.fixture(autouse=True)
def small(monkeypatch, tmp_path):
    monkeypatch.setattr(BackgroundLoad.__init__, "__defaults__", (16,))
    monkeypatch.setattr(lazy_plane, "_ours", set())
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def backing(driver, machine):
    made = RealBacking()
    yield made
    made.close()


@pytest.fixture
def devices(driver, backing):
    """GPUs 0 and 1 on the stand-in's cards, 2 and 3 that CUDA does not have."""
    found = []
    for row, subject in enumerate(SUBJECTS):
        telemetry = NvmlTelemetry(driver, driver.handles()[row], subject)
        gpu = Gpu(subject, 0, 0, row, "gb300")
        device = backing.device(gpu, telemetry.identity(), telemetry)
        device.clock = VirtualClock()
        device.sleep = device.clock.advance
        found.append(device)
    yield found
    for device in found:
        device.telemetry.close()


@pytest.fixture
def rows(emulated):
    return emulated.rows


def requested(device):
    return device.telemetry.power_limits().requested


def journal_files(tmp_path):
    return list((tmp_path / "state").rglob("*.jsonl"))


# --- begin, wait, end ----------------------------------------------------------------------------
def test_a_run_begins_at_rest(devices):
    devices[0].begin("gemm.fp32", 1)
    assert devices[0].clock.now() == pytest.approx(devices[0].gate.window, abs=0.11)


def test_a_gpu_that_stays_busy_is_not_burnt(devices, rows):
    rows["util_gpu"][0] = 80
    with pytest.raises(TimedOut, match=r"gpu0: utilised for 80 % .* gemm.fp32"):
        devices[0].begin("gemm.fp32", 1)
    devices[1].begin("gemm.fp32", 1)


def test_what_only_wavers_is_burnt_after_the_bound(devices, rows, monkeypatch):
    heat = iter(range(45, 1000))
    device = devices[0]

    def warmer(seconds):
        device.clock.advance(seconds)
        rows["temperature_c"][0] = next(heat)

    device.sleep = warmer
    device.gate = type(device.gate)(step=0.5, window=1.0, bound=10.0)
    device.begin("gemm.fp32", 1)
    assert device.clock.now() == 10.0


def test_a_gpu_that_is_lost_is_not_begun(devices, rows):
    rows["flags"][0] = 1
    with pytest.raises(Lost):
        devices[0].begin("gemm.fp32", 1)


def test_time_passes_under_a_load_and_the_end_ends_it(devices, machine):
    device = devices[0]
    device.plane.load(1.0)
    assert machine.cards[0].product.wait(30)
    before = device.clock.now()
    device.wait(2.5)
    assert device.clock.now() == before + 2.5
    load = device.plane.made()._load
    assert load.running
    device.end()
    assert not load.running


def test_a_gpu_that_gets_lost_while_time_passes_is_lost(devices, rows):
    devices[0].sleep = lambda _: rows["flags"].__setitem__(0, 1)
    with pytest.raises(Lost):
        devices[0].wait(1.0)


def test_what_the_load_met_is_raised_by_wait(devices, machine, stand_in):
    device = devices[0]
    device.plane.load(1.0)
    assert machine.cards[0].product.wait(30)
    machine.cards[0].breaks["gemm"] = stand_in.CudaError(719)
    device.plane.made()._load._thread.join(30)
    with pytest.raises(DeviceError, match="background"):
        device.wait(1.0)


def test_reading_alone_needs_no_cuda(devices):
    device = devices[0]
    device.begin("health", 1)
    device.plane.load(0.0)
    device.wait(1.0)
    device.end()
    assert device.plane._made is None


# --- whose GPU it is -----------------------------------------------------------------------------
def running(monkeypatch, *pids):
    answer = [SimpleNamespace(pid=pid) for pid in pids]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda _: answer)


def test_a_gpu_on_which_others_compute_is_refused(devices, monkeypatch):
    running(monkeypatch, 1, os.getpid())
    with pytest.raises(DeviceError, match=r"pid 1\): stop them first"):
        devices[0].plane.claim()


def test_a_gpu_that_may_be_shared_is_not(driver, machine, devices, monkeypatch):
    running(monkeypatch, 1)
    telemetry = devices[0].telemetry
    shared = RealBacking(shared=True)
    device = shared.device(devices[0].gpu, telemetry.identity(), telemetry)
    assert device.plane.claim() > 0
    shared.close()


def test_a_gpu_that_we_work_on_is_ours_under_whatever_id(devices, driver, backing, monkeypatch):
    """In a container the driver may know this process by its id outside."""
    assert devices[0].plane.claim() > 0
    devices[0].plane.release()
    running(monkeypatch, 4242)
    telemetry = devices[0].telemetry
    again = backing.device(devices[0].gpu, telemetry.identity(), telemetry)
    assert again.plane.claim() > 0
    with pytest.raises(DeviceError, match="4242"):
        devices[1].plane.claim()


def test_workers_of_one_run_are_not_in_each_others_way(devices, monkeypatch):
    sibling = os.getppid()
    running(monkeypatch, sibling)
    monkeypatch.setattr(lazy_plane.os, "getppid", lambda: parent(sibling))
    handle, subject = devices[0].telemetry.handle, SUBJECTS[0]
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    assert processes(handle, subject) == [sibling]
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    assert processes(handle, subject) == []


def test_a_process_that_is_gone_has_no_parent():
    assert parent(os.getpid()) == os.getppid()
    assert parent(1 << 22) is None


def test_a_gpu_that_cuda_hides_is_not_present(devices, machine, stand_in, monkeypatch):
    def hidden(_):
        raise stand_in.CudaError(101)

    cuda = lazy_plane.cupy_call.module().cuda
    monkeypatch.setattr(cuda.runtime, "deviceGetByPCIBusId", hidden)
    with pytest.raises(NotPresent, match="CUDA_VISIBLE_DEVICES"):
        devices[0].plane.claim()


# --- what is changed is put back -----------------------------------------------------------------
def test_a_power_limit_is_written_down_and_put_back_at_the_end(devices, tmp_path):
    device = devices[0]
    device.begin("power.cap", 1)
    assert device.telemetry.set_power_limit(900.0) == 900.0
    assert device.telemetry.set_power_limit(700.0) == 700.0
    assert len(journal_files(tmp_path)) == 1
    device.end()
    assert requested(device) == MAX_W
    assert journal_files(tmp_path) == []


def test_each_gpus_end_puts_back_its_own(devices):
    for device in devices[:2]:
        device.telemetry.set_power_limit(800.0)
    devices[0].end()
    assert [requested(device) for device in devices[:2]] == [MAX_W, 800.0]


def test_what_was_asked_for_comes_back_and_not_what_a_cap_from_outside_left(devices, rows):
    rows["limit_requested_mw"][0] = 1_200_000
    rows["limit_out_of_band_mw"][0] = 700_000
    device = devices[0]
    assert device.telemetry.power_limits().current == 700.0
    device.telemetry.set_power_limit(600.0)
    device.end()
    assert requested(device) == 1200.0


def test_nothing_is_changed_where_it_cannot_be_written_down(devices, tmp_path):
    (tmp_path / "state").write_text("no folder")
    with pytest.raises(DeviceError, match="nothing is changed"):
        devices[0].telemetry.set_power_limit(900.0)
    assert requested(devices[0]) == MAX_W


def test_closing_puts_back_what_no_end_did(devices, backing):
    devices[0].telemetry.set_power_limit(900.0)
    backing.close()
    assert requested(devices[0]) == MAX_W


def test_putting_back_says_why_it_could_not(devices, rows):
    uuid = devices[0].telemetry.identity().uuid
    with pytest.raises(NotPresent):
        put_back(Change("GPU-none", "power.limit", 700.0))
    with pytest.raises(DeviceError, match="knows no such setting"):
        put_back(Change(uuid, "clock.sm", 700.0))
    rows["flags"][0] = 4
    with pytest.raises(NotPermitted):
        put_back(Change(uuid, "power.limit", 700.0))
    put_back(Change(uuid, "power.limit", MAX_W))  # nothing to do needs no rights


# --- what joins them -----------------------------------------------------------------------------
def test_the_fabric_finds_its_gpus_by_subject(devices, backing):
    pairs = [(SUBJECTS[0], SUBJECTS[1]), (SUBJECTS[1], SUBJECTS[0])]
    found = backing.fabric().exchange(pairs, 1 << 16, 3)
    assert [found[pair].wrong for pair in pairs] == [0, 0]
    (missing,) = backing.fabric().exchange([(SUBJECTS[0], "rack0/tray07/gpu0")], 64, 3).values()
    assert isinstance(missing, NotPresent)
