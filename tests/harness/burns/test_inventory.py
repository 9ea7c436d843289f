"""inventory and health: each item is read, or missing by name."""

import pytest

from rackproof.harness.errors import DeviceError, Lost, NotPresent, TimedOut
from rackproof.harness.model import Why

GPU = "rack0/tray00/gpu0"


def test_a_gpu_says_who_it_is(bench):
    bench.serials = {GPU: "165001"}
    outcome = bench.burn("inventory")
    assert outcome.values["gpu.present"] == 1
    assert outcome.values["gpu.name"] == "NVIDIA H100"
    assert outcome.values["gpu.serial"] == "165001"
    assert (outcome.values["gpu.uuid"], outcome.values["gpu.pci"]) == ("GPU-1", "0000:01:00.0")
    assert outcome.values["serial.unique"] == 1


def test_a_serial_number_that_two_carry_is_counted(paper):
    bench = paper(gpus=4, serials={f"rack0/tray00/gpu{n}": "165001" for n in range(3)})
    assert bench.burn("inventory").values["serial.unique"] == 3


@pytest.mark.parametrize("serials", [{}, {GPU: None}, {GPU: ""}])
def test_no_serial_number_is_no_unique_one(bench, serials):
    bench.serials = serials
    outcome = bench.burn("inventory")
    assert "serial.unique" not in outcome.values
    assert "gpu.serial" not in outcome.values
    assert "no serial number" in outcome.gaps["serial.unique"].reason


@pytest.mark.parametrize("error", [Lost("gone"), NotPresent("none")])
def test_a_gpu_that_does_not_answer_is_not_there(bench, error):
    bench.device.telemetry.readings["gpu.name"] = error
    outcome = bench.burn("inventory")
    assert outcome.on(GPU).values == {"gpu.present": 0}
    assert set(outcome.gaps) >= {"memory.total", "driver.version", "nvlink.active"}


def test_a_gpu_without_a_name_is_there_all_the_same(bench):
    bench.device.telemetry.readings["gpu.name"] = DeviceError("odd")
    outcome = bench.burn("inventory")
    assert outcome.values["gpu.present"] == 1
    assert outcome.gaps["gpu.name"].why is Why.NO_READING


def test_each_link_is_read_for_itself(bench):
    bench.device.telemetry.links = {("nvlink.active", 0): 0, ("nvlink.speed", 1): TimedOut("slow")}
    outcome = bench.burn("inventory")
    first, second = (outcome.on(f"{GPU}/link{n:02d}") for n in range(2))
    assert first.values == {"nvlink.active": 0, "nvlink.speed": 1}
    assert second.values == {"nvlink.active": 1}
    assert second.gaps["nvlink.speed"].why is Why.TIMED_OUT


def test_a_rack_without_links_owes_none(paper):
    for links in (0, None):
        outcome = paper(links=links).burn("inventory")
        assert not [s for s in outcome.seen if "/link" in s.subject]


def test_the_first_host_counts_what_ought_not_to_be_there(bench):
    bench.unexpected = ["a stranger", "another"]
    assert bench.burn_host("inventory").values == {"gpu.unexpected": 2}
    other = bench.burn_host("inventory", "rack0/tray01/host")
    assert other.values == {"gpu.unexpected": 0}


def test_gpus_are_counted_where_nobody_said_how_many(bench):
    bench.counted, bench.count = True, 5
    assert bench.burn_host("inventory").values["gpu.count"] == 5


def test_health_reads_each_or_misses_it_by_name(bench):
    outcome = bench.burn("health")
    assert outcome.values["temperature"] == 50
    assert outcome.gaps["remap.pending"].why is Why.NOT_SUPPORTED
    assert outcome.gaps["thermal.margin"].reason == "thermal.margin: not supported"
    assert "power.average" not in outcome.gaps
    assert outcome.values["ecc.corrected.volatile"] == 7
