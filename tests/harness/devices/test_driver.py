"""The emulated driver as unmodified NVML programs see it."""

import ctypes
import os

import pynvml
import pytest

from rackproof.harness.devices.emulated import driver as driver_module
from rackproof.harness.devices.emulated.driver import EmulatedDriver, matching_library
from rackproof.harness.devices.emulated.driver_state import HEADER, ROW, Flag, Sensor
from rackproof.harness.errors import DeviceError

LOST, UNKNOWN = pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN
ROW_5 = 5


def handle(index=ROW_5):
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def error_of(call, *arguments):
    with pytest.raises(pynvml.NVMLError) as caught:
        call(*arguments)
    return caught.value.value


def sram(gpu):
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    pynvml.nvmlDeviceGetSramEccErrorStatus(gpu, ctypes.byref(status))
    return status


def fabric(gpu):
    found = pynvml.c_nvmlGpuFabricInfo_v2_t()
    pynvml.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(found))
    return found


# --- the seam between Python and C --------------------------------------------------------------


def test_every_member_has_the_same_place_in_c_and_in_numpy():
    ours = driver_module._members()
    assert driver_module.library_members(matching_library()) == ours
    assert len(ours) > 150


def test_a_library_of_another_layout_is_refused(monkeypatch):
    matching_library.cache_clear()
    shifted = {**driver_module._members(), "Row.temperature_c": (4, 4)}
    monkeypatch.setattr(driver_module, "_members", lambda: shifted)
    with pytest.raises(DeviceError, match=r"Row\.temperature_c differ"):
        matching_library()
    matching_library.cache_clear()


def test_what_is_no_library_is_refused(tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"cut")
    for path in (tmp_path / "libnvidia-ml.so.1", "libc.so.6"):
        with pytest.raises(DeviceError, match="no emulated driver that can be loaded"):
            driver_module.library_members(path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("magic", b"NVRAM\0\0\0"),
        ("version", 2),
        ("row_size", ROW.itemsize - 8),
        ("link_size", 8),
        ("rows", 73),
        ("rows_offset", 2**63),
        ("events", 2**31),
    ],
)
def test_a_state_file_of_another_layout_is_refused(make, field, value):
    emulated = make()
    path = emulated.path
    emulated.header[field] = value
    library = ctypes.CDLL(str(matching_library()))
    assert library.rackproofSetState(os.fsencode(path)) == 0
    mismatch = pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH
    assert error_of(pynvml.nvmlInit) == mismatch
    with pytest.raises(DeviceError, match="no state file"):
        EmulatedDriver(path)


@pytest.mark.parametrize("size", [0, 7, HEADER.itemsize - 1, HEADER.itemsize + 100])
def test_a_file_that_was_cut_is_refused(make, size):
    path = make().path
    os.truncate(path, size)
    with pytest.raises(DeviceError, match="no state file"):
        EmulatedDriver(path)
    library = ctypes.CDLL(str(matching_library()))
    library.rackproofSetState(os.fsencode(path))
    assert error_of(pynvml.nvmlInit) == pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH


def test_no_state_file_is_a_driver_that_is_not_loaded(tmp_path):
    library = ctypes.CDLL(str(matching_library()))
    library.rackproofSetState(os.fsencode(tmp_path / "nothing"))
    assert error_of(pynvml.nvmlInit) == pynvml.NVML_ERROR_DRIVER_NOT_LOADED


def test_a_file_is_made_whole_and_sparse(make):
    emulated = make()
    about = emulated.path.stat()
    assert about.st_size == int(emulated.header["rows_offset"]) + 72 * ROW.itemsize
    assert about.st_blocks * 512 < about.st_size
    assert [entry.name for entry in emulated.path.parent.iterdir()] == ["rack"]


# --- readings -------------------------------------------------------------------------------------

READINGS = [
    ("name", b"X", pynvml.nvmlDeviceGetName, "X"),
    ("uuid", b"GPU-9", pynvml.nvmlDeviceGetUUID, "GPU-9"),
    ("serial", b"7", pynvml.nvmlDeviceGetSerial, "7"),
    ("part_number", b"9", pynvml.nvmlDeviceGetBoardPartNumber, "9"),
    ("vbios", b"1.2", pynvml.nvmlDeviceGetVbiosVersion, "1.2"),
    ("inforom", b"G5", pynvml.nvmlDeviceGetInforomImageVersion, "G5"),
    ("module_id", 3, pynvml.nvmlDeviceGetModuleId, 3),
    ("cores", 20480, pynvml.nvmlDeviceGetNumGpuCores, 20480),
    ("temperature_c", 55, lambda g: pynvml.nvmlDeviceGetTemperature(g, 0), 55),
    ("temperature_c", -3, lambda g: pynvml.nvmlDeviceGetTemperatureV(g, 0), -3),
    ("margin_c", -1, pynvml.nvmlDeviceGetMarginTemperature, -1),
    ("slowdown_c", 90, lambda g: pynvml.nvmlDeviceGetTemperatureThreshold(g, 1), 90),
    ("power_average_mw", 999, pynvml.nvmlDeviceGetPowerUsage, 999),
    ("energy_mj", 2**40, pynvml.nvmlDeviceGetTotalEnergyConsumption, 2**40),
    ("limit_out_of_band_mw", 700000, pynvml.nvmlDeviceGetEnforcedPowerLimit, 700000),
    ("limit_default_mw", 7, pynvml.nvmlDeviceGetPowerManagementDefaultLimit, 7),
    ("memory_total", 2**38, lambda g: pynvml.nvmlDeviceGetMemoryInfo(g).total, 2**38),
    ("memory_used", 2**20, lambda g: pynvml.nvmlDeviceGetMemoryInfo(g, 0x02000028).used, 2**20),
    ("util_memory", 9, lambda g: pynvml.nvmlDeviceGetUtilizationRates(g).memory, 9),
    ("clock_mhz", [1, 2, 3, 4], lambda g: pynvml.nvmlDeviceGetClockInfo(g, 1), 2),
    ("clock_max_mhz", [1, 2, 3, 4], lambda g: pynvml.nvmlDeviceGetMaxClockInfo(g, 2), 3),
    ("clock_app_mhz", [1, 2, 3, 4], lambda g: pynvml.nvmlDeviceGetApplicationsClock(g, 0), 1),
    ("event_reasons", 0x48, pynvml.nvmlDeviceGetCurrentClocksEventReasons, 0x48),
    ("event_reasons", 0x80, pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, 0x80),
    ("pstate", 8, pynvml.nvmlDeviceGetPerformanceState, 8),
    ("ecc_enabled", 0, pynvml.nvmlDeviceGetEccMode, [0, 0]),
    ("sram_threshold", 1, lambda g: sram(g).bThresholdExceeded, 1),
    ("remap_failure", 1, pynvml.nvmlDeviceGetRemappedRows, (0, 0, 0, 1)),
    ("remap_histogram", [1, 2, 3, 4, 5], lambda g: pynvml.nvmlDeviceGetRowRemapperHistogram(g).none,
     5),
    ("pcie_gen", 3, pynvml.nvmlDeviceGetCurrPcieLinkGeneration, 3),
    ("pcie_width_max", 8, pynvml.nvmlDeviceGetMaxPcieLinkWidth, 8),
    ("pcie_replays", 12, pynvml.nvmlDeviceGetPcieReplayCounter, 12),
    ("fabric_clique", 9, lambda g: fabric(g).cliqueId, 9),
    ("fabric_health_mask", 0x12, lambda g: fabric(g).healthMask, 0x12),
    ("nvlink_version", 6, lambda g: pynvml.nvmlDeviceGetNvLinkVersion(g, 0), 6),
]  # fmt: skip


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize(("field", "value", "call", "said"), READINGS)
def test_what_python_writes_nvml_says(emulated, field, value, call, said):
    before = call(handle(4))
    emulated.rows[field][ROW_5] = value
    assert call(handle()) == said
    assert call(handle(4)) == before


def test_ecc_counters_by_kind_span_and_place(emulated, nvml):
    emulated.rows["ecc"][ROW_5] = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]
    assert nvml.nvmlDeviceGetTotalEccErrors(handle(), 1, 0) == 11
    assert nvml.nvmlDeviceGetMemoryErrorCounter(handle(), 0, 1, 2) == 3
    assert nvml.nvmlDeviceGetMemoryErrorCounter(handle(), 1, 1, 7) == 8
    assert nvml.nvmlDeviceGetDetailedEccErrors(handle(), 1, 0).deviceMemory == 5
    assert (sram(handle()).volatileCor, sram(handle()).aggregateUncSecDed) == (2, 8)
    emulated.rows["ecc_enabled"][ROW_5] = 0
    unsupported = error_of(nvml.nvmlDeviceGetTotalEccErrors, handle(), 1, 0)
    assert unsupported == nvml.NVML_ERROR_NOT_SUPPORTED


def test_a_link_its_counters_and_its_far_end(emulated, nvml):
    link = emulated.rows["links"][ROW_5, 7]
    link["recovery"], link["remote_bus"], link["remote_domain"], link["state"] = 505, 0xC1, 1, 0
    assert nvml.nvmlDeviceGetNvLinkErrorCounter(handle(), 7, 1) == 505
    assert nvml.nvmlDeviceGetNvLinkState(handle(), 7) == 0
    assert nvml.nvmlDeviceGetNvLinkState(handle(), 8) == 1
    assert nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle(), 7) == 2
    assert nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle(), 7).busId == "00000001:C1:00.0"
    assert error_of(nvml.nvmlDeviceGetNvLinkState, handle(), 18) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert error_of(nvml.nvmlDeviceGetNvLinkState, handle(), 36) == nvml.NVML_ERROR_INVALID_ARGUMENT


def test_field_values_fail_one_by_one(emulated, nvml):
    emulated.rows["links"]["fec_history"][ROW_5, 2, 15] = 77
    asked = [(186, 0), (191, 0), (999, 0), (164, 17), (164, 18), (250, 2), 194, 230, (185, 1)]
    entries = nvml.nvmlDeviceGetFieldValues(handle(), asked)
    assert [e.nvmlReturn for e in entries] == [0, 0, 3, 0, 3, 0, 0, 0, 3]
    assert (entries[0].value.uiVal, entries[1].value.ullVal) == (235_000, 5_000_000)
    assert (entries[3].value.uiVal, entries[5].value.ullVal) == (53125, 77)
    assert (entries[6].valueType, entries[6].value.siVal) == (nvml.NVML_VALUE_TYPE_SIGNED_INT, -2)


def test_nvlink_4_has_no_counters_of_nvlink_5(emulated, nvml):
    emulated.rows["nvlink_version"][ROW_5] = 6
    entries = nvml.nvmlDeviceGetFieldValues(handle(), [(220, 0), (235, 0), (162, 0)])
    assert [e.nvmlReturn for e in entries] == [3, 3, 0]


def test_platform_and_fabric_structs_of_each_version(emulated, nvml):
    emulated.rows["tray"][ROW_5] = 200  # above 127: the wrapper cannot decode it, the bytes can
    emulated.rows["rack_guid"][ROW_5] = 9
    for struct, chassis in (
        (nvml.c_nvmlPlatformInfo_v2_t, b"1821325190125\0\0\0"),
        (nvml.c_nvmlPlatformInfo_v1_t, bytes([9] * 16)),
    ):
        found = struct()
        nvml.nvmlDeviceGetPlatformInfo(handle(), ctypes.byref(found))
        assert (bytes(found)[20:36], bytes(found)[37], bytes(found)[40]) == (chassis, 200, 2)
    found = nvml.c_nvmlGpuFabricInfo_v3_t()
    nvml.nvmlDeviceGetGpuFabricInfoV(handle(), ctypes.byref(found))
    assert (found.healthSummary, found.state, bytes(found.clusterUuid)) == (1, 3, bytes(range(16)))
    found.version = nvml.nvmlGpuFabricInfo_v2 + 1
    mismatch = nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    assert error_of(nvml.nvmlDeviceGetGpuFabricInfoV, handle(), ctypes.byref(found)) == mismatch


def test_a_gpu_is_found_by_each_of_its_names(nvml):
    for gpu in (
        nvml.nvmlDeviceGetHandleByUUID("GPU-00000000-0000-0000-0000-000000000005"),
        nvml.nvmlDeviceGetHandleBySerial(b"1650000000005"),
        nvml.nvmlDeviceGetHandleByPciBusId("00000005:01:00.0"),
        nvml.nvmlDeviceGetHandleByPciBusId("5:1:0.0"),
    ):
        assert nvml.nvmlDeviceGetIndex(gpu) == ROW_5
    assert error_of(nvml.nvmlDeviceGetHandleByUUID, "GPU-x") == nvml.NVML_ERROR_NOT_FOUND
    assert error_of(nvml.nvmlDeviceGetHandleByIndex, 72) == nvml.NVML_ERROR_INVALID_ARGUMENT


def test_a_call_that_is_not_modelled_is_a_missing_function(nvml):
    missing = nvml.NVML_ERROR_FUNCTION_NOT_FOUND
    assert error_of(nvml.nvmlDeviceGetBridgeChipInfo, handle()) == missing
    for call in (
        lambda: nvml.nvmlDeviceGetRunningProcessDetailList(handle(), 0x1000018, 0),
        lambda: nvml.nvmlDeviceGetDriverModel(handle()),
        lambda: nvml.nvmlDeviceGetFanSpeed(handle()),
        lambda: nvml.nvmlDeviceGetRetiredPages(handle(), 0),
    ):
        assert error_of(call) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert nvml.nvmlDeviceGetComputeRunningProcesses(handle()) == []


# --- setters --------------------------------------------------------------------------------------


def test_a_power_limit_is_set_range_checked_and_refused(emulated, nvml):
    nvml.nvmlDeviceSetPowerManagementLimit(handle(), 1_000_000)
    assert emulated.rows["limit_requested_mw"][ROW_5] == 1_000_000
    assert nvml.nvmlDeviceGetPowerManagementLimit(handle()) == 1_000_000
    assert emulated.rows["limit_requested_mw"][4] == 1_400_000
    for limit in (499_999, 1_400_001):
        refused = error_of(nvml.nvmlDeviceSetPowerManagementLimit, handle(), limit)
        assert refused == nvml.NVML_ERROR_INVALID_ARGUMENT
    emulated.rows["flags"][ROW_5] = Flag.NO_PERMISSION
    refused = error_of(nvml.nvmlDeviceSetPowerManagementLimit, handle(), 900_000)
    assert refused == nvml.NVML_ERROR_NO_PERMISSION
    assert emulated.rows["limit_requested_mw"][ROW_5] == 1_000_000


def test_the_second_version_of_the_limit_setter_hides_the_refusal(emulated, nvml):
    assert nvml.nvmlDeviceSetPowerManagementLimit_v2(handle(), 0, 900_000) == nvml.NVML_SUCCESS
    assert nvml.nvmlDeviceGetPowerManagementLimit(handle()) == 900_000
    emulated.rows["flags"][ROW_5] = Flag.NO_PERMISSION
    assert nvml.nvmlDeviceSetPowerManagementLimit_v2(handle(), 0, 800_000) == nvml.NVML_SUCCESS
    assert nvml.nvmlDeviceGetPowerManagementLimit(handle()) == 900_000


def test_clocks_are_locked_and_smoothing_reads_back_in_milliwatts(emulated, nvml):
    nvml.nvmlDeviceSetGpuLockedClocks(handle(), 300, 1500)
    assert emulated.rows["clock_locked_max_mhz"][ROW_5] == 1500
    nvml.nvmlDeviceResetGpuLockedClocks(handle())
    assert emulated.rows["clock_locked_max_mhz"][ROW_5] == 0
    wanted = nvml.c_nvmlPowerSmoothingProfile_v1_t()
    wanted.profileId, wanted.paramId, wanted.value = 2, 1, 120.0  # ramp up, W/s
    nvml.nvmlDevicePowerSmoothingUpdatePresetProfileParam(handle(), ctypes.byref(wanted))
    (entry,) = nvml.nvmlDeviceGetFieldValues(handle(), [(261, 2)])
    assert entry.value.uiVal == 120_000


# --- faults ---------------------------------------------------------------------------------------


def test_a_lost_gpu_answers_nothing_and_keeps_its_place(emulated, nvml):
    gpu, other = handle(), handle(6)
    emulated.rows["flags"][ROW_5] = Flag.LOST
    for _, _, call, _ in READINGS:
        assert error_of(call, gpu) == LOST
    assert error_of(nvml.nvmlDeviceSetPowerManagementLimit, gpu, 900_000) == LOST
    assert error_of(nvml.nvmlDeviceGetFieldValues, gpu, [186]) == LOST
    assert error_of(handle) == LOST
    assert nvml.nvmlDeviceGetCount() == 72
    assert nvml.nvmlDeviceGetIndex(other) == 6
    assert nvml.nvmlDeviceGetTemperature(other, 0) == 41


def test_an_absent_gpu_is_not_counted_and_the_indices_close_up(emulated, nvml):
    emulated.rows["flags"][ROW_5] = Flag.ABSENT
    assert nvml.nvmlDeviceGetCount() == 71
    assert nvml.nvmlDeviceGetSerial(handle(5)) == "1650000000006"
    assert error_of(nvml.nvmlDeviceGetHandleBySerial, b"1650000000005") == nvml.NVML_ERROR_NOT_FOUND


HIDDEN = [
    (Sensor.TEMPERATURE, lambda g: pynvml.nvmlDeviceGetTemperature(g, 0)),
    (Sensor.TEMPERATURE, lambda g: pynvml.nvmlDeviceGetTemperatureV(g, 0)),
    (Sensor.TEMPERATURE, pynvml.nvmlDeviceGetMarginTemperature),
    (Sensor.MARGIN, pynvml.nvmlDeviceGetMarginTemperature),
    (Sensor.POWER, pynvml.nvmlDeviceGetPowerUsage),
    (Sensor.ECC, lambda g: pynvml.nvmlDeviceGetTotalEccErrors(g, 0, 0)),
    (Sensor.ECC, sram),
    (Sensor.REMAP, pynvml.nvmlDeviceGetRemappedRows),
    (Sensor.FABRIC, fabric),
    (Sensor.NVLINK, lambda g: pynvml.nvmlDeviceGetNvLinkState(g, 0)),
    (Sensor.REASONS, pynvml.nvmlDeviceGetCurrentClocksEventReasons),
    (Sensor.PCIE, pynvml.nvmlDeviceGetCurrPcieLinkWidth),
]


@pytest.mark.parametrize(("sensor", "call"), HIDDEN)
def test_a_sensor_can_stay_silent_or_not_exist(emulated, nvml, sensor, call):
    emulated.rows["missing"][ROW_5] = sensor
    assert error_of(call, handle()) == UNKNOWN
    call(handle(4))
    assert nvml.nvmlDeviceGetName(handle()) == "NVIDIA GB300"
    emulated.rows["missing"][ROW_5], emulated.rows["unsupported"][ROW_5] = 0, sensor
    assert error_of(call, handle()) == nvml.NVML_ERROR_NOT_SUPPORTED


def test_a_silent_sensor_is_silent_among_the_field_values(emulated, nvml):
    emulated.rows["missing"][ROW_5] = Sensor.POWER | Sensor.NVLINK
    entries = nvml.nvmlDeviceGetFieldValues(handle(), [185, 186, (164, 0), 191])
    assert [e.nvmlReturn for e in entries] == [UNKNOWN, UNKNOWN, UNKNOWN, 0]
