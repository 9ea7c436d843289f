"""The emulated driver among processes: events, views of a tray, versions, foreign programs."""

import json
import os
import subprocess
import sys
import threading
from importlib.util import find_spec

import pynvml
import pytest

from rackproof.harness.devices.emulated.driver import matching_library
from rackproof.harness.devices.emulated.driver_state import EVENTS, Flag
from rackproof.harness.devices.nvml import Driver
from rackproof.harness.devices.nvml_fields import field_ids, value

XID = pynvml.nvmlEventTypeXidCriticalError
LONG = 60_000
SHORT = 20


def listening(*gpus):
    events = pynvml.nvmlEventSetCreate()
    for gpu in gpus:
        pynvml.nvmlDeviceRegisterEvents(gpu, XID, events)
    return events


def gpu(index):
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def codes(events):
    found = []
    while True:
        try:
            data = pynvml.nvmlEventSetWait_v2(events, 0)
        except pynvml.NVMLError_Timeout:
            return found
        found.append((pynvml.nvmlDeviceGetIndex(data.device), data.eventData))


# --- events ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("driver")
def test_an_xid_wakes_a_waiter(emulated):
    events, told = listening(gpu(5)), []
    waiter = threading.Thread(
        target=lambda: told.append(pynvml.nvmlEventSetWait_v2(events, LONG).eventData)
    )
    waiter.start()
    emulated.post_xid(4, 13, "another GPU's")
    emulated.post_xid(5, 79, "GPU has fallen off the bus.")
    waiter.join(LONG / 1000)
    assert told == [79]  # after a time-out it would be empty


@pytest.mark.usefixtures("driver")
def test_no_xid_is_a_time_out(emulated):
    events = listening(gpu(5))
    emulated.post_xid(4, 13, "another GPU's")
    with pytest.raises(pynvml.NVMLError_Timeout):
        pynvml.nvmlEventSetWait_v2(events, SHORT)


@pytest.mark.usefixtures("driver")
def test_events_come_in_the_order_of_posting_and_each_once(emulated):
    emulated.post_xid(1, 1, "before anybody listened")
    events, second = listening(gpu(2), gpu(1)), listening(gpu(1))
    for row, code in ((1, 48), (2, 145), (1, 63), (3, 13), (1, 94)):
        emulated.post_xid(row, code, "")
    assert codes(events) == [(1, 48), (2, 145), (1, 63), (1, 94)]
    assert codes(second) == [(1, 48), (1, 63), (1, 94)]
    assert codes(events) == []


@pytest.mark.usefixtures("driver")
def test_a_lost_gpu_still_tells_why(emulated):
    events = listening(gpu(5))
    emulated.post_xid(5, 79, "")
    emulated.rows["flags"][5] = Flag.LOST
    assert pynvml.nvmlEventSetWait_v2(events, 0).eventData == 79
    with pytest.raises(pynvml.NVMLError_GpuIsLost):
        gpu(5)


@pytest.mark.usefixtures("driver")
def test_a_reader_that_fell_behind_is_told(emulated):
    events = listening(gpu(5))
    for n in range(EVENTS + 3):
        emulated.post_xid(5, n, "")
    with pytest.raises(pynvml.NVMLError) as caught:
        pynvml.nvmlEventSetWait_v2(events, 0)
    assert caught.value.value == pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES
    rest = codes(events)
    assert (len(rest), rest[0], rest[-1]) == (EVENTS, (5, 3), (5, EVENTS + 2))


def test_posted_events_are_numbered_and_keep_their_text(emulated):
    assert [emulated.post_xid(5, 31, "MMU fault", 1.5), emulated.post_xid(6, 13, "é" * 200)] == [
        1,
        2,
    ]
    first, second = emulated.posted()
    assert (first.row, first.code, first.text, first.at) == (5, 31, "MMU fault", 1.5)
    assert second.text == "é" * 115  # cut between characters
    assert [e.sequence for e in emulated.posted(after=1)] == [2]
    with pytest.raises(IndexError):
        emulated.post_xid(72, 13, "")


# --- views and versions ---------------------------------------------------------------------------


def test_a_tray_shows_only_its_own_gpus(emulated, monkeypatch):
    monkeypatch.setenv("RACKPROOF_NVML_TRAY", "0,3")
    driver = Driver.open(matching_library(), emulated.path)
    try:
        serials = [pynvml.nvmlDeviceGetSerial(h) for h in driver.handles()]
        assert serials == [f"165{n:010d}" for n in range(12, 16)]
        assert pynvml.nvmlDeviceGetIndex(driver.handles()[3]) == 3
        emulated.rows["flags"][13] = Flag.ABSENT
        assert driver.count() == 3
        monkeypatch.setenv("RACKPROOF_NVML_TRAY", "1,0")
        assert driver.count() == 0
    finally:
        driver.close()


def test_the_state_file_itself_can_hold_the_view(emulated):
    emulated.view(0, 17)
    driver = Driver.open(matching_library(), emulated.path)
    try:
        assert driver.count() == 4
        emulated.view(None, None)
        assert driver.count() == 72
    finally:
        driver.close()


def test_two_racks_in_one_process_do_not_mix(make):
    library = matching_library()
    first, second = make("a", gpus=3), make("b", gpus=5)
    one, two = Driver.open(library, first.path), Driver.open(library, second.path)
    gpu_one, gpu_two = one.handles()[0], two.handles()[0]
    first.rows["temperature_c"] = 11
    second.rows["temperature_c"] = 22
    assert (one.count(), two.count(), one.count()) == (3, 5, 3)
    assert pynvml.nvmlDeviceGetTemperature(gpu_one, 0) == 11
    assert pynvml.nvmlDeviceGetTemperature(gpu_two, 0) == 22
    one.close()
    one.close()
    assert pynvml.nvmlDeviceGetTemperature(gpu_two, 0) == 22
    two.close()
    with pytest.raises(pynvml.NVMLError_Uninitialized):
        pynvml.nvmlDeviceGetTemperature(gpu_two, 0)


@pytest.mark.parametrize(
    ("version", "brake", "smoothing"),
    [
        ("560.35.03", None, None),
        ("570.86.15", None, 251),
        ("575.51.03", 253, 256),
        ("580.65.06", 253, 256),
        ("580.82.07", 271, 251),
        ("580.105.08-rackproof-emulated", 271, 251),
        ("610.10", 271, 251),
        ("unreadable", None, None),
    ],
)
def test_moved_field_ids_follow_the_drivers_version(make, version, brake, smoothing):
    ids = field_ids(version)
    assert ids.get("throttled.power_brake") == brake
    assert ids.get("smoothing.enabled") == smoothing
    emulated = make(gpus=1, version=version)
    emulated.rows["throttled_brake_ns"], emulated.rows["smoothing_lifetime"] = 123, 77
    driver = Driver.open(matching_library(), emulated.path)
    try:
        (only,) = driver.handles()
        if brake is not None:
            assert value(only, driver.fields["throttled.power_brake"]) == 123
        if smoothing is not None:
            assert value(only, driver.fields["smoothing.lifetime"]) == 77
    finally:
        driver.close()


def test_the_id_of_another_version_gives_a_number_and_no_error(make):
    emulated = make(gpus=1, version="580.65.06")
    emulated.rows["throttled_thermal_ns"] = 55
    driver = Driver.open(matching_library(), emulated.path)
    try:
        assert value(driver.handles()[0], pynvml.NVML_FI_PWR_SMOOTHING_ENABLED) == 55
    finally:
        driver.close()


# --- foreign programs -----------------------------------------------------------------------------


def run(state, *command, **environment):
    """Run a program that knows nothing of us, with the emulated driver as its driver."""
    done = subprocess.run(
        [sys.executable, *command],
        env={
            **os.environ,
            "LD_LIBRARY_PATH": str(matching_library().parent),
            "RACKPROOF_NVML_STATE": str(state),
            "TERM": "xterm",
            "PYTHONPATH": "",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def needs(module, optional=""):
    if find_spec(module) is None:
        pytest.skip(f"{optional}{module} is not installed (pip install {module})")


def test_gpustat_lists_72_gpus(emulated):
    needs("gpustat")
    listed = json.loads(run(emulated.path, "-m", "gpustat", "--json"))
    assert listed["driver_version"] == "580.105.08-rackproof-emulated"
    assert len(listed["gpus"]) == 72
    seen = listed["gpus"][71]
    assert {k: seen[k] for k in ("name", "temperature.gpu", "power.draw", "memory.total")} == {
        "name": "NVIDIA GB300",
        "temperature.gpu": 41,
        "power.draw": 234,
        "memory.total": 284208,
    }
    assert seen["utilization.gpu"] == 3


def test_nvitop_lists_72_gpus(emulated):
    needs("nvitop")
    emulated.rows["ecc"][71, 1, 0, 0] = 123
    said = run(emulated.path, "-m", "nvitop", "--once", "--ascii")
    lines = said.splitlines()
    heads = [n for n, line in enumerate(lines) if "GB300" in line]
    assert len(heads) == 72
    assert "580.105.08-rackproof-emulated" in said
    first, second = lines[heads[71]], lines[heads[71] + 1]
    assert first.split()[1] == "71"
    assert " 123 |" in first
    for what in ("41C", "234W / 1400W", "1024MiB / 277.5GiB", "3%"):
        assert what in second
    assert " 123 |" not in lines[heads[70]]


EXPORT = """
import prometheus_client
from nvitop import Device
from nvitop_exporter.exporter import PrometheusExporter
registry = prometheus_client.CollectorRegistry()
exporter = PrometheusExporter(Device.all(), registry=registry, hostname="h")
for device in exporter.devices:
    exporter.update_device(device)
print(prometheus_client.generate_latest(registry).decode())
"""


def test_nvitop_exporter_exports_72_gpus(emulated):
    needs("nvitop_exporter", "optional: ")
    lines = run(emulated.path, "-c", EXPORT).splitlines()
    for metric, number in (("gpu_temperature_C{", "41.0"), ("gpu_power_usage_W{", "234.0")):
        found = [line for line in lines if line.startswith(metric)]
        assert len(found) == 72
        assert all(line.endswith(f" {number}") for line in found)


def test_another_process_sees_one_tray_and_a_limit_set_there_is_seen_here(emulated):
    script = (
        "import pynvml as n; n.nvmlInit(); h = n.nvmlDeviceGetHandleByIndex(1);"
        "n.nvmlDeviceSetPowerManagementLimit(h, 600000);"
        "print(n.nvmlDeviceGetCount(), n.nvmlDeviceGetSerial(h))"
    )
    said = run(emulated.path, "-c", script, RACKPROOF_NVML_TRAY="0,2")
    assert said.split() == ["4", "1650000000009"]
    assert emulated.rows["limit_requested_mw"][9] == 600_000


def test_a_lost_and_an_absent_gpu_do_not_stop_gpustat(make):
    needs("gpustat")
    emulated = make(gpus=8)
    emulated.rows["flags"][3], emulated.rows["flags"][7] = Flag.LOST, Flag.ABSENT
    listed = json.loads(run(emulated.path, "-m", "gpustat", "--json"))["gpus"]
    assert len(listed) == 7
    assert listed[3]["name"] == "((GPU is lost))"
    assert listed[4]["name"] == "NVIDIA GB300"
