"""Faults of links and of the fabric: what the driver says of them, and what counts as felt."""

import pytest

from rackproof.harness.errors import DeviceError
from rackproof.harness.spec import build

GPU, OTHER = "rack0/tray01/gpu2", "rack0/tray00/gpu0"
LINK = f"{GPU}/link07"
SIZE = 1 << 30
HOPPER = build(
    b"""
[rack]
name = "old"
source = "emulated"
[[tray]]
count = 2
gpus = 4
[gpu]
sku = "h100"
[fabric]
switches = 4
""",
    "old.toml",
)


def cross(bench, attempt: int = 1, check: str = "link.pair") -> None:
    """Copy both ways between the GPU and another, within a run."""
    for subject in (GPU, OTHER):
        bench.devices[subject].begin(check, attempt)
    bench.fabric.exchange([(GPU, OTHER), (OTHER, GPU)], SIZE, 1)
    for subject in (GPU, OTHER):
        bench.devices[subject].end()


def codes(bench, subject: str) -> list[str]:
    return [event.code for event in bench.devices[subject].telemetry.events()]


@pytest.fixture
def made(make, monkeypatch):
    """``made("nvlink-flap@...")`` as the others; ``old=True`` on a rack of NVLink 4."""

    def planted(*texts: str, old: bool = False, **more):
        if old:
            monkeypatch.setitem(make.__globals__, "RACK", HOPPER)
        return make(*texts, **more)

    return planted


@pytest.mark.parametrize("name", ["nvlink-down", "nvlink-degraded", "nvlink-flap:rate=1"])
def test_data_that_crosses_feels_it_once_a_run(made, name):
    kind, _, keys = name.partition(":")
    bench, planted = made(f"{kind}@{LINK}" + (f":{keys}" if keys else ""))
    assert planted.fired == [0]
    for attempt in (1, 2, 3):
        cross(bench, attempt)
    assert planted.fired == [3]
    bench.fabric.exchange([(OTHER, "rack0/tray00/gpu1")], SIZE, 1)
    assert planted.fired == [3]


def test_a_switch_counts_on_every_gpu_that_it_serves(made):
    bench, planted = made("nvswitch-down@rack0/switch07")
    cross(bench)
    assert planted.fired == [2]


@pytest.mark.parametrize("name", ["nvlink-down", "nvlink-degraded"])
def test_a_fault_that_lasts_is_taken_back_when_its_time_is_over(made, name):
    bench, _ = made(f"{name}@{LINK}:lasts=3")
    healthy, _ = made()
    rates = []
    for each in (bench, healthy):
        for attempt, at in ((1, 0.0), (2, 10.0)):
            for subject in (GPU, OTHER):
                each.devices[subject].begin("link.pair", attempt, at)
            rates.append(each.fabric.exchange([(GPU, OTHER)], SIZE, 1)[GPU, OTHER].rate)
    assert rates[0] < 0.98 * rates[2]
    assert rates[1] == rates[3]
    assert bench.devices[GPU].telemetry.read_link("nvlink.active", 7) == 1
    assert bench.fabric.port(LINK).up


def test_a_drop_on_nvlink_5_shows_in_its_counters_and_at_the_peers(made):
    bench, _ = made(f"nvlink-flap@{LINK}:rate=1")
    telemetry, row = bench.devices[GPU].telemetry, bench.backing.rack.gpus[GPU].row
    cross(bench)
    counters = telemetry.link_counters(18)
    assert counters[7].recoveries == 1
    assert counters[7].errors > 0
    assert {(c.errors, c.recoveries) for n, c in enumerate(counters) if n != 7} == {(0, 0)}
    assert 0 < telemetry.read_link("nvlink.ber", 7) < 1e-12
    assert row["links"][7]["symbol_errors"] > 0
    assert row["links"][7]["fec_history"].sum() > 0
    assert (row["links"][7]["replay"], row["links"][7]["crc"]) == (0, 0)
    assert telemetry.read_link("nvlink.active", 7) == 1
    assert (codes(bench, GPU), codes(bench, OTHER)) == (["xid.149"], ["xid.145"])
    assert codes(bench, "rack0/tray00/gpu1") == []


def test_a_drop_on_nvlink_4_shows_in_its_counters_and_at_no_peer(made):
    bench, _ = made(f"nvlink-flap@{LINK}:rate=1", old=True)
    row = bench.backing.rack.gpus[GPU].row["links"][7]
    cross(bench)
    assert min(row["replay"], row["recovery"], row["crc"]) > 0
    assert (row["symbol_errors"], row["recovered"]) == (0, 0)
    assert bench.devices[GPU].telemetry.link_counters(18)[7].recoveries == 1
    assert (codes(bench, GPU), codes(bench, OTHER)) == (["xid.74"], [])


def test_a_flap_strikes_in_the_share_of_runs_and_idles_where_nothing_crosses(made):
    bench, planted = made(f"nvlink-flap@{LINK}")
    device = bench.devices[GPU]
    for attempt in range(1, 41):
        device.begin("health", attempt)
        device.telemetry.read_link("nvlink.active", 7)
        device.end()
    assert planted.fired == [0]
    for attempt in range(1, 41):
        cross(bench, attempt)
    assert 4 <= planted.fired[0] <= 22
    assert device.telemetry.link_counters(18)[7].recoveries == planted.fired[0]


@pytest.mark.parametrize("old", [False, True])
def test_a_sick_fabric_reads_as_the_drivers_of_each_generation_say_it(made, old):
    bench, planted = made(f"fabric-unhealthy@{GPU}", old=old)
    read = bench.devices[GPU].telemetry.read
    assert read("fabric.state") == "completed"
    if old:
        assert read("fabric.status") == "unknown error"
        with pytest.raises(DeviceError):
            read("fabric.health")
    else:
        assert (read("fabric.status"), read("fabric.health")) == ("success", "unhealthy")
    assert bench.devices[OTHER].telemetry.read("fabric.status") == "success"
    assert planted.fired == [0]
    cross(bench)
    assert planted.fired == [1]
    bench.devices[GPU].begin("inventory", 1)
    read("fabric.status")
    assert planted.fired == [2]


def test_a_sick_fabric_that_heals_lets_data_through_again(made):
    bench, _ = made(f"fabric-unhealthy@{GPU}:lasts=once")
    cross(bench, 1)
    for subject in (GPU, OTHER):
        bench.devices[subject].begin("link.pair", 2)
    assert bench.fabric.exchange([(GPU, OTHER)], SIZE, 1)[GPU, OTHER].wrong == 0
    assert bench.devices[GPU].telemetry.read("fabric.health") == "healthy"
