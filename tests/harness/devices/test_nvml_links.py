"""An NVLink's counters through NVML: of either generation, and where the driver has none."""

import pynvml
import pytest

from rackproof.harness.devices.absent import NoTelemetry
from rackproof.harness.devices.emulated.driver_state import Flag, Sensor
from rackproof.harness.errors import DeviceError, Lost, NotPresent, Unsupported

ROW, NVLINK_4 = 5, 6


def hide(monkeypatch, *fields: int) -> None:
    """Let the driver say NOT_SUPPORTED of these fields."""
    real = pynvml.nvmlDeviceGetFieldValues
    monkeypatch.setattr(
        pynvml,
        "nvmlDeviceGetFieldValues",
        lambda handle, ids: real(handle, [(999 if f in fields else f, s) for f, s in ids]),
    )


@pytest.fixture
def link(emulated):
    """The counters of link 7, each with a value of its own."""
    found = emulated.rows["links"][ROW, 7]
    counts = {"tx_kib": 4096, "rx_kib": 2048, "replay": 1, "recovery": 20, "crc": 300,
              "effective_errors": 4000, "recovered": 50, "unrecovered": 600}  # fmt: skip
    for name, count in counts.items():
        found[name] = count
    return found


def test_nvlink_5_counts_what_was_left_after_correction_and_its_own_recoveries(gpu, link):
    counters = gpu.link_counters(18)
    assert len(counters) == 18
    seven = counters[7]
    assert (seven.sent, seven.received, seven.errors, seven.recoveries) == (4096, 2048, 4321, 650)
    eight = counters[8]
    assert (eight.sent, eight.received, eight.errors, eight.recoveries) == (0, 0, 0, 0)


def test_nvlink_4_counts_replays_recoveries_and_crc_errors(emulated, gpu, link):
    emulated.rows["nvlink_version"][ROW] = NVLINK_4
    seven = gpu.link_counters(8)[7]
    assert (seven.sent, seven.received, seven.errors, seven.recoveries) == (4096, 2048, 321, 20)


def test_without_counters_of_data_those_of_bytes_take_their_place(gpu, link, monkeypatch):
    hide(monkeypatch, 138, 139)
    seven = gpu.link_counters(8)[7]
    assert (seven.sent, seven.received) == (4096, 2048)


def test_what_the_driver_does_not_have_is_unsupported_by_itself(emulated, gpu, link, monkeypatch):
    emulated.rows["nvlink_version"][ROW] = NVLINK_4
    hide(monkeypatch, 138, 139, 161, 162, 163)
    seven = gpu.link_counters(8)[7]
    for name in ("sent", "received", "errors", "recoveries"):
        error = getattr(seven, name)
        assert isinstance(error, Unsupported)
        assert f"rack0/tray01/gpu1/link07: {name}" in str(error)


def test_one_counter_that_is_missing_takes_no_other_with_it(gpu, link, monkeypatch):
    hide(monkeypatch, 219, 213)
    seven = gpu.link_counters(8)[7]
    assert (seven.sent, seven.errors, seven.recoveries) == (4096, 321, 600)


def test_a_link_that_is_not_there_has_no_counters(emulated, gpu):
    emulated.rows["nvlink_count"][ROW] = 6
    counters = gpu.link_counters(8)
    assert counters[5].sent == 0
    assert isinstance(counters[6].sent, Unsupported)


def test_a_mark_for_no_value_is_no_number(gpu, link):
    link["tx_kib"] = 2**64 - 1
    seven = gpu.link_counters(8)[7]
    assert isinstance(seven.sent, DeviceError)
    assert "no value" in str(seven.sent)
    assert seven.received == 2048


def test_a_sensor_that_does_not_answer_is_no_number(emulated, gpu):
    emulated.rows["missing"][ROW] |= int(Sensor.NVLINK)
    assert all(type(c.sent) is DeviceError for c in gpu.link_counters(18))


def test_a_lost_gpu_is_lost_and_an_absent_one_not_present(emulated, gpu):
    emulated.rows["flags"][ROW] = int(Flag.LOST)
    with pytest.raises(Lost):
        gpu.link_counters(18)
    with pytest.raises(NotPresent):
        NoTelemetry("no such GPU").link_counters(18)


def test_no_links_are_no_counters(gpu):
    assert gpu.link_counters(0) == []
