"""Power limits and throttle counters through NVML."""

import pynvml
import pytest

from rackproof.harness.devices import nvml_readings
from rackproof.harness.devices.emulated.driver import Flag
from rackproof.harness.devices.nvml_fields import field_ids
from rackproof.harness.errors import DeviceError, NotPermitted, Unsupported

ROW = 5  # of the fixture `gpu`


def test_a_driver_without_the_fields_is_asked_for_its_limits_by_the_older_calls(
    emulated, gpu, monkeypatch
):
    emulated.rows["limit_out_of_band_mw"][ROW] = 800_000
    known = gpu.power_limits()
    missing = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    monkeypatch.setattr(nvml_readings, "values", lambda _handle, ids: [missing] * len(ids))
    # the emulated driver answers both calls with what is in force; a real one tells them apart
    monkeypatch.setattr(pynvml, "nvmlDeviceGetPowerManagementLimit", lambda _handle: 1_400_000)
    assert gpu.power_limits() == known
    assert gpu.read("power.limit.gap") == 600.0


def test_the_counter_of_the_power_cap_has_one_id_in_every_driver(emulated, gpu, driver):
    emulated.rows["throttled_power_ns"][ROW] = 1_500_000_000
    assert gpu.throttled("sw_power") == 1.5
    driver.fields = field_ids("a version that nobody can read")
    assert gpu.throttled("sw_power") == 1.5


def test_a_power_limit_is_read_back(emulated, gpu):
    assert gpu.set_power_limit(1000.0) == 1000.0
    emulated.rows["limit_out_of_band_mw"][ROW] = 800_000
    assert gpu.set_power_limit(900.0) == 800.0
    limits = gpu.power_limits()
    assert (limits.current, limits.requested, limits.default) == (800.0, 900.0, 1400.0)
    assert (limits.low, limits.high) == (500.0, 1400.0)
    with pytest.raises(DeviceError, match="power limit 1500 W: NVML says Invalid Argument"):
        gpu.set_power_limit(1500.0)
    emulated.rows["flags"][ROW] = Flag.NO_PERMISSION
    with pytest.raises(NotPermitted):
        gpu.set_power_limit(1000.0)


def test_seconds_of_throttling(emulated, gpu, driver):
    emulated.rows["throttled_brake_ns"][ROW] = 2_500_000_000
    assert gpu.throttled("power_brake") == 2.5
    driver.fields = {"throttled.power_brake": 251}  # as before 580.82: smoothing is there now
    with pytest.raises(DeviceError, match="is no counter under this driver"):
        gpu.throttled("power_brake")
    driver.fields = {}
    with pytest.raises(Unsupported, match=r"has no counter throttled\.power_brake"):
        gpu.throttled("power_brake")
