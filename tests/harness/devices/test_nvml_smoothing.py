"""Power smoothing through NVML, what an emulated GPU makes of it, and who puts it back."""

import pynvml
import pytest

from rackproof.harness.devices import connect, real
from rackproof.harness.devices.emulated.driver import Flag, matching_library
from rackproof.harness.devices.emulated.rows import PRESETS
from rackproof.harness.devices.nvml import Driver, NvmlTelemetry
from rackproof.harness.devices.nvml_fields import field_ids
from rackproof.harness.devices.protocol import SmoothingProfile
from rackproof.harness.errors import DeviceError, NotPermitted, NotPresent, Unsupported
from rackproof.harness.journal import Change
from rackproof.harness.spec import load

ROW = 5  # of the fixture `gpu`
GPU = "rack0/tray00/gpu1"


@pytest.fixture
def row(emulated):
    own = emulated.rows[ROW]
    own["smoothing_profiles"] = PRESETS
    return own


def test_what_the_driver_states_comes_in_shares_and_watts_a_second(row, gpu):
    state = gpu.smoothing()
    assert (state.enabled, state.active, state.lifetime) == (False, 0, 0.99)
    assert (state.low, state.high) == (pytest.approx(0.2), pytest.approx(0.9))
    assert state.profiles[0] == SmoothingProfile(0.8, 2000.0, 1000.0, 5.0)
    assert len(state.profiles) == 5


@pytest.mark.parametrize("version", ["570.86.15", "575.57.08", "580.173.02"])
def test_it_is_found_however_the_driver_numbers_it(make, version):
    driver = make(name=version, version=version)
    driver.rows["smoothing_enabled"], driver.rows["smoothing_profile"] = 1, 3
    opened = Driver.open(matching_library(), driver.path)
    try:
        telemetry = NvmlTelemetry(opened, opened.handles()[0], "gpu")
        state = telemetry.smoothing()
        telemetry.close()
    finally:
        opened.close()
    assert (state.enabled, state.active) == (True, 3)


def test_it_is_switched_and_read_back_and_only_where_it_is_not_so_already(row, gpu, monkeypatch):
    asked = []
    gpu.before_smoothing = lambda: asked.append("before")
    state = gpu.set_smoothing(enabled=True, profile=2)
    assert (state.enabled, state.active) == (True, 2)
    assert (int(row["smoothing_enabled"]), int(row["smoothing_profile"])) == (1, 2)
    assert asked == ["before"]
    monkeypatch.setattr(pynvml, "nvmlDevicePowerSmoothingSetState", None)
    assert gpu.set_smoothing(enabled=True, profile=2) == state
    assert asked == ["before"]
    assert gpu.set_smoothing(enabled=True, profile=1).active == 1


@pytest.mark.usefixtures("row")
def test_who_may_not_change_it_is_told_so_and_nothing_is_written_twice(emulated, gpu):
    emulated.rows["flags"][ROW] = Flag.NO_PERMISSION
    with pytest.raises(NotPermitted):
        gpu.set_smoothing(enabled=True, profile=1)


def test_a_part_or_a_driver_without_it_says_so(row, gpu, driver):
    row["smoothing_supported"] = 0
    with pytest.raises(Unsupported):
        gpu.smoothing()
    row["smoothing_supported"] = 1
    driver.fields = field_ids("560.35.03")
    with pytest.raises(Unsupported, match=r"no field smoothing\.enabled"):
        gpu.smoothing()


def test_a_number_that_is_no_state_is_not_believed(row, gpu, driver):
    driver.fields = field_ids("575.57.08")  # an id that stands for something else here
    row["throttled_hw_thermal_ns"] = 7
    with pytest.raises((DeviceError, Unsupported)):
        gpu.smoothing()


@pytest.mark.usefixtures("driver")
def test_what_was_is_put_back_and_read_back(row):
    uuid = row["uuid"].decode()
    row["smoothing_enabled"], row["smoothing_profile"] = 1, 4
    real.put_back(Change(uuid, real.SMOOTHING, 0.0))
    real.put_back(Change(uuid, real.SMOOTHING_PROFILE, 2.0))
    assert (int(row["smoothing_enabled"]), int(row["smoothing_profile"])) == (0, 2)
    row["smoothing_supported"] = 0
    with pytest.raises(Unsupported):
        real.put_back(Change(uuid, real.SMOOTHING, 1.0))
    with pytest.raises(NotPresent):
        real.put_back(Change("GPU-none", real.SMOOTHING, 1.0))
    with pytest.raises(DeviceError, match="knows no such setting"):
        real.put_back(Change(uuid, "power.hum", 1.0))


# --- an emulated GPU obeys ------------------------------------------------------------------------
@pytest.fixture
def bench():
    made = connect(load("gb300-nvl72"), seed=7)
    yield made
    made.close()


def test_an_emulated_gpu_keeps_the_floor_that_was_set_through_nvml(bench):
    device = bench.devices[GPU]
    device.telemetry.set_smoothing(enabled=True, profile=0)
    device.plane.load(1.0)
    device.wait(0.3)
    assert device.telemetry.read("power.instant") < 900.0
    device.wait(2.0)
    device.plane.load(0.0)
    device.wait(4.5)
    assert device.telemetry.read("power.instant") == pytest.approx(0.8 * 1400.0, rel=0.01)
    device.wait(5.0)
    assert device.telemetry.read("power.instant") < 300.0
    device.telemetry.set_smoothing(enabled=False, profile=0)
    device.plane.load(1.0)
    device.wait(0.3)
    assert device.telemetry.read("power.instant") > 1380.0


def test_each_switching_on_wears_the_circuit_and_switching_off_does_not(bench):
    device = bench.devices[GPU]
    left = []
    for number in range(101):
        device.telemetry.set_smoothing(enabled=True, profile=0)
        device.wait(0.01)
        device.telemetry.set_smoothing(enabled=False, profile=0)
        device.wait(0.01)
        left.append((number, device.telemetry.smoothing().lifetime))
    assert left[0] == (0, pytest.approx(0.99))
    assert left[99] == (99, pytest.approx(0.99))
    assert left[100] == (100, pytest.approx(0.98))


def test_a_reset_switches_it_off_and_the_wear_goes_with_the_gpu(bench):
    device, other = bench.devices[GPU], "rack0/tray05/gpu0"
    device.telemetry.set_smoothing(enabled=True, profile=1)
    device.wait(0.01)
    bench.service.reset(GPU)
    state = bench.devices[GPU].telemetry.smoothing()
    assert (state.enabled, state.active, state.lifetime) == (False, 0, pytest.approx(0.99))
    bench.service.swap(GPU, other)
    bench.scan()
    assert bench.devices[GPU].telemetry.smoothing().lifetime == 1.0
    assert bench.devices[other].telemetry.smoothing().lifetime == pytest.approx(0.99)


def test_a_part_of_the_generation_before_has_none():
    bench = connect(load("hgx-h100"), seed=7)
    try:
        with pytest.raises(Unsupported):
            bench.devices["rack0/tray00/gpu0"].telemetry.smoothing()
    finally:
        bench.close()
