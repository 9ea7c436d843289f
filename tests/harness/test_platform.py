"""What a rack's description bounds, what it cannot bound, and what does not exist there."""

from dataclasses import replace

import pytest

from rackproof.harness import spec
from rackproof.harness.metrics import metrics
from rackproof.harness.platform import (
    HOST_COUNTERS,
    PlatformLimit,
    absent,
    missing_limits,
    platform_limits,
)
from rackproof.harness.units import convert

NAMES = [name for name, _ in spec.shipped()]
KNOWN = [name for name in NAMES if name != "vr-nvl72"]
INVENTORY = {
    "gpu.name", "gpu.pci_id", "memory.total", "pcie.gen.max", "pcie.width.max", "nvlink.links",
    "nvlink.speed", "pcie.gen.loaded", "pcie.width.loaded", "power.steady",
}  # fmt: skip
AROUND = {"nic.speed"}


def limits(name: str) -> dict[str, PlatformLimit]:
    return {limit.metric: limit for limit in platform_limits(spec.load(name))}


@pytest.mark.parametrize("name", NAMES)
def test_every_limit_names_a_metric_in_its_own_unit_with_a_source(name: str) -> None:
    for limit in platform_limits(spec.load(name)):
        metric = metrics()[limit.metric]
        assert limit.unit == metric.unit
        convert(1.0, limit.unit, metric.unit)
        assert len(limit.source) > 10
        bounds = [limit.low, limit.high, limit.equal]
        assert any(bound is not None for bound in bounds)
        if limit.equal is not None:
            assert limit.low is None
            assert limit.high is None
        if limit.low is not None and limit.high is None:
            assert metric.better == "high"
        if limit.high is not None and limit.low is None:
            assert metric.better == "low"
        if limit.low is not None and limit.high is not None:
            assert limit.low <= limit.high


@pytest.mark.parametrize("name", KNOWN)
def test_a_rack_of_a_known_sku_bounds_its_whole_inventory(name: str) -> None:
    assert limits(name).keys() >= INVENTORY | AROUND
    assert missing_limits(spec.load(name)) == ()


@pytest.mark.parametrize("name", KNOWN)
def test_no_limit_rests_on_an_announced_or_assumed_value(name: str) -> None:
    for limit in platform_limits(spec.load(name)):
        assert not limit.source.startswith("announced")
        assert "confirmed by" in limit.source or "memory: " not in limit.source


def test_vera_rubin_bounds_only_its_count_and_says_what_is_missing() -> None:
    rack = spec.load("vr-nvl72")
    assert {limit.metric for limit in platform_limits(rack)} == {"gpu.count"}
    missing = missing_limits(rack)
    assert {gap.metric for gap in missing} == INVENTORY | AROUND
    assert all("vr" in gap.reason for gap in missing)


def test_an_assumed_value_of_the_emulator_is_never_a_limit() -> None:
    text = (
        b"[rack]\nname='a'\nsource='emulated'\n[[tray]]\ncount=1\ngpus=1\n[gpu]\nsku='gb300'\n"
        b"[emulation]\nmemory_total=1024\nname='x'\n"
    )
    found = {limit.metric: limit for limit in platform_limits(spec.build(text, "a.toml"))}
    assert found["gpu.name"].equal == "NVIDIA GB300"
    assert found["memory.total"].low is not None
    assert found["memory.total"].low > 280_000


def test_the_links_of_a_users_file_bound_a_sku_that_states_none() -> None:
    text = (
        b"[rack]\nname='a'\nsource='real'\n[[tray]]\ncount=1\ngpus=1\n[gpu]\nsku='vr'\n"
        b"[fabric]\nlinks_per_gpu=36\n"
    )
    found = {limit.metric: limit for limit in platform_limits(spec.build(text, "a.toml"))}
    assert found["nvlink.links"].equal == 36
    assert "a.toml" in found["nvlink.links"].source


def test_the_figures_of_gb300() -> None:
    found = limits("gb300-nvl72")
    assert found["gpu.name"].equal == "NVIDIA GB300"
    assert found["gpu.pci_id"].equal == "0x31c2"
    assert found["pcie.gen.max"].low == 6
    assert found["nvlink.links"].equal == 18
    assert found["nvlink.speed"].low == pytest.approx(52.59375)


def test_a_superchips_two_gpus_may_share_a_serial_and_an_sxm_gpu_may_not() -> None:
    assert limits("gb300-nvl72")["serial.unique"].high == 2
    assert "serial.unique" not in limits("hgx-h100")


def test_every_host_counts_its_own_gpus() -> None:
    found = [x for x in platform_limits(spec.load("catalina")) if x.metric == "gpu.count"]
    assert len(found) == 36
    assert {limit.equal for limit in found} == {2}
    assert found[-1].subject == "rack1/tray17/host"


def test_a_downtrained_pcie_link_is_outside_on_every_known_sku() -> None:
    for name in KNOWN:
        low = limits(name)["pcie.gen.max"].low
        assert low is not None
        assert low > 3


HEAD = "[rack]\nname='a'\nsource='emulated'\n[gpu]\nsku='gb300'\n"


def nic_speeds(*trays: str) -> list[PlatformLimit]:
    text = HEAD + "".join(f"[[tray]]\ncount=1\ngpus=4\n{tray}\n" for tray in trays)
    found = platform_limits(spec.build(text.encode(), "a.toml"))
    return [limit for limit in found if limit.metric == "nic.speed"]


def test_a_gpus_nics_share_its_rate() -> None:
    assert [(x.low, x.subject) for x in nic_speeds("nics=4", "nics=4")] == [(800, "*")]
    assert [x.low for x in nic_speeds("nics=8")] == [400]


def test_a_tray_may_say_the_rate_of_its_nics_itself() -> None:
    (one, two) = nic_speeds("nics=4\nnic_rate=400", "nics=2")
    assert (one.low, one.subject) == (400, "rack0/tray00/nic*")
    assert "a.toml: [[tray]] nic_rate" in one.source
    assert (two.low, two.subject) == (1600, "rack0/tray01/nic*")


def test_a_tray_without_nics_has_no_rate_and_misses_none() -> None:
    assert nic_speeds("nics=0") == nic_speeds("cpus=2") == []
    bare = spec.build((HEAD + "[[tray]]\ncount=1\ngpus=4\n").encode(), "a.toml")
    assert "nic.speed" not in {gap.metric for gap in missing_limits(bare)}


def test_what_a_kernel_counts_may_be_absent_only_where_nobody_said_what_is_due() -> None:
    described = spec.load("hgx-h100")
    assert not set(HOST_COUNTERS) & set(absent(described))
    assert set(HOST_COUNTERS) <= set(absent(replace(described, file="local")))


def test_what_does_not_exist_on_a_platform_is_named() -> None:
    assert set(absent(spec.load("hgx-h100"))) == {
        "retired.pending", "retired.pages", "nvlink.ber", "fabric.health",
    }  # fmt: skip
    assert set(absent(spec.load("gb300-nvl72"))) == {"retired.pending", "retired.pages"}
    for name in NAMES:
        assert set(absent(spec.load(name))) <= metrics().keys()


def test_a_rack_without_switches_registers_with_no_fabric() -> None:
    text = b"[rack]\nname='a'\nsource='real'\n[[tray]]\ncount=1\ngpus=1\n[gpu]\nsku='gb300'\n"
    assert "fabric.state" in absent(spec.build(text, "a.toml"))
