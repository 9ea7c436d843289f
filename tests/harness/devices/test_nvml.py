"""Telemetry by metric: values in their units, and every way in which there is none."""

import os

import pynvml
import pytest

from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices import nvml_fabric, nvml_readings
from rackproof.harness.devices.emulated.driver import Flag, Sensor, matching_library, sensor_of
from rackproof.harness.devices.emulated.driver_state import EVENTS
from rackproof.harness.devices.nvml import Driver, NvmlTelemetry
from rackproof.harness.devices.nvml_fields import bit_error_rate, number
from rackproof.harness.errors import (
    DeviceError,
    Lost,
    NotPresent,
    TimedOut,
    Unsupported,
)
from rackproof.harness.metrics import metrics

ROW = 5
UUID = "00010203-0405-0607-0809-0a0b0c0d0e0f"
ERRORS = "ecc", [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]

# metric, what the row holds (nothing: as it was filled), what is read
VALUES = [
    ("gpu.name", None, None, "NVIDIA GB300"),
    ("gpu.serial", None, None, "1650000000005"),
    ("gpu.uuid", None, None, "GPU-00000000-0000-0000-0000-000000000005"),
    ("gpu.pci", None, None, "0005:01:00.0"),
    ("gpu.pci", "pci_domain", 0x10005, "00010005:01:00.0"),
    ("gpu.pci_id", "pci_id", 0x2330_10DE, "0x2330"),
    ("memory.total", None, None, 284208),
    ("memory.free", None, None, 284208 - 1024 - 512),
    ("driver.version", None, None, "580.105.08-rackproof-emulated"),
    ("vbios.version", None, None, "97.00.A1.00.01"),
    ("pcie.gen.max", "pcie_gen_max", 5, 5),
    ("pcie.width.max", "pcie_width_max", 8, 8),
    ("pcie.gen", "pcie_gen", 1, 1),
    ("pcie.width", "pcie_width", 4, 4),
    ("pcie.replays", "pcie_replays", 31, 31),
    ("nvlink.links", "nvlink_count", 17, 17),
    ("ecc.enabled", "ecc_enabled", 0, 0),
    ("ecc.corrected.volatile", *ERRORS, 3),
    ("ecc.corrected.aggregate", *ERRORS, 7),
    ("ecc.uncorrected.volatile", *ERRORS, 11),
    ("ecc.uncorrected.aggregate", *ERRORS, 15),
    ("sram.threshold", "sram_threshold", 1, 1),
    ("remap.rows.corrected", "remap_corrected", 2, 2),
    ("remap.rows.uncorrected", "remap_uncorrected", 3, 3),
    ("remap.pending", "remap_pending", 1, 1),
    ("remap.failure", "remap_failure", 1, 1),
    ("remap.banks.none", "remap_histogram", [9, 8, 7, 6, 5], 5),
    ("remap.banks.low", "remap_histogram", [9, 8, 7, 6, 5], 6),
    ("throttle.thermal", "event_reasons", 0x20, 1),
    ("throttle.thermal", "event_reasons", 0x40, 1),
    ("throttle.thermal", "event_reasons", 0x9F, 0),
    ("throttle.power_brake", "event_reasons", 0x80, 1),
    ("throttle.hw_slowdown", "event_reasons", 0x08, 1),
    ("temperature", "temperature_c", 77, 77),
    ("thermal.margin", "margin_c", -1, -1),
    ("recovery.action", None, None, "none"),
    ("recovery.action", "recovery_action", 4, "drain-and-reset"),
    ("recovery.action", "recovery_action", 77, "unknown-77"),
    ("fabric.state", None, None, "completed"),
    ("fabric.state", "fabric_state", 2, "in-progress"),
    ("fabric.state", "fabric_state", 0, "not-supported"),
    ("fabric.status", None, None, "success"),
    ("fabric.status", "fabric_status", 999, "unknown error"),
    ("fabric.health", None, None, "healthy"),
    ("fabric.health", "fabric_health_summary", 2, "unhealthy"),
    ("fabric.clique", None, None, f"{UUID}/1"),
    ("power.average", "power_average_mw", 1_234_500, 1234.5),
    ("power.instant", "power_instant_mw", 1_234_500, 1234.5),
    ("power.energy", "energy_mj", 1_234_500, 1234.5),
    ("power.limit", "limit_requested_mw", 900_000, 900.0),
    ("power.limit", "limit_out_of_band_mw", 800_000, 800.0),
    ("power.limit.gap", None, None, 0.0),
    ("power.limit.gap", "limit_out_of_band_mw", 800_000, 600.0),
    ("clock.sm", None, None, 1920),
]


@pytest.mark.parametrize(("metric", "field", "held", "said"), VALUES)
def test_a_metric_in_its_unit(emulated, gpu, metric, field, held, said):
    if field is not None:
        emulated.rows[field][ROW] = held
    found = gpu.read(metric)
    assert found == said
    assert isinstance(found, str) == (metrics()[metric].unit == "text")


def test_the_table_holds_metrics_that_exist_and_each_is_shown_here():
    assert set(nvml_readings.GPU) <= set(metrics())
    assert set(nvml_fabric.LINK) <= set(metrics())
    shown = {metric for metric, *_ in VALUES}
    assert set(nvml_readings.GPU) - shown == {"retired.pages", "retired.pending"}
    assert all(metrics()[name].subject == "link" for name in nvml_fabric.LINK)


def test_links(emulated, gpu):
    link = emulated.rows["links"][ROW, 7]
    link["replay"], link["recovery"], link["crc"] = 1, 505, 3
    link["ber_mantissa"], link["ber_exponent"] = 3, 11
    assert gpu.read_link("nvlink.errors", 7) == 509
    assert gpu.read_link("nvlink.ber", 7) == 3e-11
    assert gpu.read_link("nvlink.ber", 8) == 0.0
    assert gpu.read_link("nvlink.speed", 7) == 53.125
    assert gpu.read_link("nvlink.active", 7) == 1
    link["state"] = link["speed_mbps"] = 0
    assert gpu.read_link("nvlink.active", 7) == 0
    with pytest.raises(DeviceError, match=r"gpu1/link07: nvlink\.speed: the link is down"):
        gpu.read_link("nvlink.speed", 7)
    with pytest.raises(Unsupported, match=r"gpu1/link18: nvlink\.active"):
        gpu.read_link("nvlink.active", 18)
    emulated.rows["nvlink_version"][ROW] = 6
    with pytest.raises(Unsupported, match=r"nvlink\.ber"):
        gpu.read_link("nvlink.ber", 7)


@pytest.mark.parametrize(
    ("packed", "rate"),
    [(0x0FFF, 0.0), (0x010C, 1e-12), (0x0F0C, 1.5e-11), (0x0000, 0.0), (0x0FFE, 15e-254)],
)
def test_a_packed_bit_error_rate(packed, rate):
    assert bit_error_rate(packed) == rate


def test_identity(emulated, gpu):
    emulated.rows["tray"][ROW] = 200
    found = gpu.identity()
    assert (found.serial, found.pci) == ("1650000000005", "0005:01:00.0")
    assert (found.tray, found.module) == (200, 2)
    emulated.rows["unsupported"][ROW] = Sensor.PLATFORM | Sensor.SERIAL
    found = gpu.identity()
    assert (found.serial, found.tray, found.module) == (None, None, None)
    emulated.rows["flags"][ROW] = Flag.LOST
    with pytest.raises(Lost, match="rack0/tray01/gpu1: identity: NVML says GPU is lost"):
        gpu.identity()


# --- no value -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metric", "field"),
    [
        ("pcie.gen", "pcie_gen"),
        ("pcie.replays", "pcie_replays"),
        ("remap.rows.corrected", "remap_corrected"),
        ("power.average", "power_average_mw"),
        ("clock.sm", "clock_mhz"),
        ("temperature", "temperature_c"),
        ("nvlink.links", "nvlink_count"),
    ],
)
def test_a_sentinel_is_no_number(emulated, gpu, metric, field):
    emulated.rows[field][ROW] = -1 if field == "temperature_c" else 0xFFFF_FFFF
    with pytest.raises(DeviceError, match="mark for no value"):
        gpu.read(metric)


def test_the_wide_sentinel_and_nan_are_no_numbers(emulated, gpu):
    emulated.rows["ecc"][ROW, 0, 0] = [2**64 - 1, 0]
    with pytest.raises(DeviceError, match="mark for no value"):
        gpu.read("ecc.corrected.volatile")
    with pytest.raises(DeviceError):
        number(float("nan"), "x")
    emulated.rows["links"]["replay"][ROW, 0] = 2**64 - 1
    with pytest.raises(DeviceError, match="mark for no value"):
        gpu.read_link("nvlink.errors", 0)


@pytest.mark.parametrize("text", [b"N/A", b"[Unknown Error]", b"\xff\xfe"])
def test_a_text_that_says_nothing_is_no_value(emulated, gpu, text):
    emulated.rows["vbios"][ROW] = text
    with pytest.raises(DeviceError):
        gpu.read("vbios.version")


@pytest.mark.parametrize(
    ("set_to", "error"),
    [
        ({"flags": Flag.LOST}, Lost),
        ({"flags": Flag.HUNG}, TimedOut),
        ({"unsupported": Sensor.TEMPERATURE}, Unsupported),
        ({"missing": Sensor.TEMPERATURE}, DeviceError),
    ],
)
def test_what_nvml_refuses_is_a_device_error(emulated, gpu, set_to, error):
    for field, held in set_to.items():
        emulated.rows[field][ROW] = held
    for metric in ("temperature", "thermal.margin"):
        with pytest.raises(
            DeviceError, match=f"^rack0/tray01/gpu1: {metric}: NVML says "
        ) as caught:
            gpu.read(metric)
        assert type(caught.value) is error


@pytest.mark.parametrize("metric", sorted({m for m, *_ in VALUES}))
def test_a_lost_gpu_and_a_silent_sensor_give_no_metric(emulated, gpu, metric):
    sensor = sensor_of(metric)
    if sensor is not None:
        emulated.rows["missing"][ROW] = sensor
        with pytest.raises(DeviceError) as caught:
            gpu.read(metric)
        assert type(caught.value) is DeviceError
    emulated.rows["flags"][ROW] = Flag.LOST
    if metric != "driver.version":  # the driver's, not the GPU's
        with pytest.raises(Lost):
            gpu.read(metric)


@pytest.mark.parametrize("metric", ["retired.pages", "retired.pending", "xid.count", "no.such"])
def test_what_nvml_does_not_have_is_unsupported(gpu, metric):
    with pytest.raises(Unsupported, match=metric):
        gpu.read(metric)
    with pytest.raises(Unsupported, match="of a link"):
        gpu.read_link("temperature", 0)


@pytest.mark.parametrize("state", [0, 1, 2])
def test_the_fabric_says_nothing_before_it_is_registered(emulated, gpu, state):
    emulated.rows["fabric_state"][ROW] = state
    for metric in ("fabric.status", "fabric.health", "fabric.clique"):
        with pytest.raises(Unsupported if state == 0 else DeviceError):
            gpu.read(metric)


# --- older drivers --------------------------------------------------------------------------------


def lacks(monkeypatch, *names, code=pynvml.NVML_ERROR_FUNCTION_NOT_FOUND):
    """Let the driver answer `code` to these calls of nvidia-ml-py."""

    def refuse(*_, **__):
        raise pynvml.NVMLError(code)

    for name in names:
        monkeypatch.setattr(pynvml, name, refuse)


def test_older_calls_serve_where_the_new_ones_are_missing(gpu, monkeypatch):
    lacks(monkeypatch, "nvmlDeviceGetTemperatureV", "nvmlDeviceGetCurrentClocksEventReasons")
    assert gpu.read("temperature") == 41
    assert gpu.read("throttle.thermal") == 0
    lacks(monkeypatch, "nvmlDeviceGetFieldValues")
    assert gpu.read("power.average") == 234.0
    with pytest.raises(Unsupported):
        gpu.read("recovery.action")
    lacks(monkeypatch, "nvmlDeviceGetTemperature")
    with pytest.raises(Unsupported):
        gpu.read("temperature")


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (0b01_10_1010_10_10_10_10 & 0xFF | 1 << 8, "healthy"),
        (0b01, "unhealthy"),  # bandwidth degraded
        (0b01 << 4 | 0b10, "unhealthy"),  # route unhealthy
        (0b10 | 5 << 8, "unhealthy"),  # too few NVLinks configured
    ],
)
def test_the_health_mask_serves_where_there_is_no_summary(emulated, gpu, mask, said):
    emulated.rows["fabric_health_summary"][ROW] = 0
    emulated.rows["fabric_health_mask"][ROW] = mask
    assert gpu.read("fabric.health") == said
    emulated.rows["fabric_health_mask"][ROW] = 0
    with pytest.raises(Unsupported):
        gpu.read("fabric.health")


def test_links_are_counted_where_the_driver_does_not_count_them(emulated, gpu, monkeypatch):
    real = pynvml.nvmlDeviceGetFieldValues
    renumbered = lambda handle, ids: real(handle, [(999, scope) for _, scope in ids])  # noqa: E731
    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", renumbered)
    emulated.rows["nvlink_count"][ROW] = 12
    assert gpu.read("nvlink.links") == 12
    emulated.rows["links"]["crc"][ROW, 0] = 4
    assert gpu.read_link("nvlink.errors", 0) == 4
    emulated.rows["nvlink_count"][ROW] = 0
    with pytest.raises(Unsupported):
        gpu.read("nvlink.links")


# --- events, limits, the driver -------------------------------------------------------------------


def test_events_are_seen_once_with_the_devices_time(emulated, driver):
    clock = VirtualClock(12.5)
    gpu = NvmlTelemetry(driver, driver.handles()[ROW], "rack0/tray01/gpu1", clock)
    emulated.post_xid(ROW, 79, "fallen off")
    emulated.post_xid(4, 13, "another GPU's")
    emulated.rows["flags"][ROW] = Flag.LOST
    (event,) = gpu.events()
    assert (event.subject, event.code) == ("rack0/tray01/gpu1", "xid.79")
    assert (event.at, event.clock) == (12.5, "virtual")
    assert gpu.events() == []
    gpu.close()


def test_lost_events_are_said_and_the_rest_is_kept(emulated, gpu):
    for n in range(EVENTS + 1):
        emulated.post_xid(ROW, n, "")
    with pytest.raises(DeviceError, match="events"):
        gpu.events()
    assert len(gpu.events()) == EVENTS
    assert gpu.events() == []


def test_a_gpu_that_is_lost_from_the_start_says_so_when_asked_for_events(emulated, driver):
    handle = driver.handles()[ROW]
    emulated.rows["flags"][ROW] = Flag.LOST
    gpu = NvmlTelemetry(driver, handle, "rack0/tray01/gpu1")
    with pytest.raises(Lost, match="events"):
        gpu.events()
    assert driver.handles()[ROW] is None
    assert driver.count() == 72


def test_a_machine_without_a_driver_is_explained(monkeypatch):
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    lacks(monkeypatch, "nvmlInit", code=pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    with pytest.raises(NotPresent, match=r"libnvidia-ml\.so\.1 is not found"):
        Driver.open(None, None)
    lacks(monkeypatch, "nvmlInit", code=pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
    with pytest.raises(NotPresent, match="not loaded"):
        Driver.open(None, None)


@pytest.mark.usefixtures("driver")
def test_the_real_driver_is_not_confused_with_an_emulated_one(monkeypatch):
    monkeypatch.delenv("RACKPROOF_NVML_STATE", raising=False)
    with pytest.raises(DeviceError, match="already uses an emulated driver"):
        Driver.open(None, None)


def test_a_program_under_emulation_opens_the_machines_own_driver(emulated, monkeypatch):
    Driver.open(matching_library(), emulated.path).close()
    monkeypatch.setenv("RACKPROOF_NVML_STATE", os.fspath(emulated.path))
    driver = Driver.open(None, None)
    assert driver.count() == 72
    driver.close()


def test_a_library_that_cannot_be_loaded_is_explained(emulated, tmp_path):
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"no library")
    with pytest.raises(DeviceError, match="cannot be loaded"):
        Driver.open(tmp_path / "libnvidia-ml.so.1", emulated.path)


def test_a_bad_state_file_is_explained(make, tmp_path):
    emulated = make()
    emulated.header["row_size"] = 8
    with pytest.raises(DeviceError, match="rack: the emulated driver cannot use"):
        Driver.open(matching_library(), emulated.path)
    with pytest.raises(NotPresent):
        Driver.open(matching_library(), tmp_path / "nothing")
    with pytest.raises(ValueError, match="needs a state file"):
        Driver.open(matching_library(), None)
