"""A background load runs while it is asked for, and is never left running."""

import subprocess
import sys
from pathlib import Path

import pytest

from rackproof.harness.devices import cupy_load
from rackproof.harness.devices.cupy_load import PERIOD_S, BackgroundLoad, products
from rackproof.harness.devices.cupy_plane import CupyPlane
from rackproof.harness.errors import DeviceError, Lost

WAIT_S = 30.0  # a deadline for a thread, not a time that is measured
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(BackgroundLoad.__init__, "__defaults__", (16,))


@pytest.fixture
def plane(machine):
    plane = CupyPlane(0)
    yield plane
    plane.release()


def running(card):
    """Say whether another product comes."""
    card.product.clear()
    return card.product.wait(WAIT_S)


def test_nothing_runs_before_it_is_asked_for(plane, card):
    plane.load(0.0)
    assert plane._load is None
    plane.check()


@pytest.mark.parametrize("share", [1.0, 0.5])
def test_a_load_runs_until_it_is_taken_off(plane, card, share):
    plane.load(share)
    assert running(card)
    assert running(card)
    plane.load(0.0)
    assert plane._load.running  # at rest, and ready
    plane.load(1.0)
    assert running(card)
    assert {compute for compute, _ in card.computes} == {14}  # bf16


def test_release_ends_it_and_gives_everything_back(plane, machine, card):
    plane.load(1.0)
    assert running(card)
    load = plane._load
    plane.release()
    assert not load.running
    assert machine.handles == set()
    count = len(card.computes)
    plane.load(0.0)
    assert len(card.computes) == count
    assert load._arrays == []


def test_a_load_can_be_stopped_twice_and_at_rest(machine):
    load = BackgroundLoad(machine.modules()["cupy"], 0)
    load.stop()
    load.stop()
    assert not load.running


def test_a_gpu_that_is_lost_under_load_is_said_at_the_next_call(plane, card, stand_in):
    plane.load(1.0)
    assert running(card)
    card.breaks["gemm"] = stand_in.CudaError(999)
    plane._load._thread.join(WAIT_S)
    with pytest.raises(Lost, match="background"):
        plane.load(0.5)
    with pytest.raises(Lost, match="background"):
        plane.check()
    plane.release()
    plane.check()


def test_a_thread_that_breaks_is_a_device_error(plane, card):
    plane.load(1.0)
    assert running(card)
    card.breaks["gemm"] = ZeroDivisionError("by zero")
    plane._load._thread.join(WAIT_S)
    with pytest.raises(DeviceError, match="by zero"):
        plane.check()


def test_a_share_is_from_0_to_1(plane):
    with pytest.raises(ValueError, match="from 0 to 1"):
        plane.load(1.5)


def test_a_share_is_made_of_whole_products():
    assert products(0.5, 0.002) == round(PERIOD_S * 0.5 / 0.002)
    assert products(0.01, 0.002) == 1


def test_the_data_is_finite_and_random(machine):
    a, _, _ = cupy_load._data(machine.modules()["cupy"], 64)
    exponents = a >> 7 & 0xFF
    assert set(exponents.ravel()) == {127}
    assert len(set(a.ravel())) > 200
    assert 0.3 < (a >> 15).mean() < 0.7  # signs


def test_the_end_of_the_program_ends_the_load():
    """A load that is still on does not keep the interpreter, and ends in good order."""
    code = f"""
import atexit
atexit.register(lambda: print("running" if load.running else "stopped"))  # the last to be called
import importlib, importlib.util, sys
sys.path.insert(0, {str(ROOT)!r})
place = {str(Path(__file__).with_name("cupy_stand_in.py"))!r}
spec = importlib.util.spec_from_file_location("stand_in", place)
stand_in = importlib.util.module_from_spec(spec); spec.loader.exec_module(stand_in)
card = stand_in.Card(1 << 28, 1 << 28)
machine = stand_in.Machine([card])
from rackproof.harness.devices.cupy_load import BackgroundLoad
load = BackgroundLoad(machine.module(), 0, 16)
load.set(1.0)
assert card.product.wait(30)
print("end" if load.running else "too soon")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["end", "stopped"]
