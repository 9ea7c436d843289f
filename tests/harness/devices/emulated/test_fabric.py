"""The emulated fabric: rates, stripes, both ends of links, time, and who cannot take part."""

from collections.abc import Iterator

import numpy as np
import pytest

from rackproof.fixtures.plant import plant
from rackproof.harness.devices import Bench, connect
from rackproof.harness.devices.emulated.fabric import LINK_UTILISATION, EmulatedFabric
from rackproof.harness.devices.emulated.stripes import WORDS
from rackproof.harness.devices.protocol import Moved
from rackproof.harness.errors import DeviceError, Lost, NotPresent
from rackproof.harness.faults import parse_all
from rackproof.harness.spec import build, load

SIZE = 2 << 30
A, B, C = (f"rack0/tray00/gpu{n}" for n in range(3))
RACKS = ("hgx-h100", "hgx-b200", "gb300-nvl72", "catalina")


@pytest.fixture
def racks() -> Iterator:
    """``racks("hgx-h100", "nvlink-down@...")``: a bench, planted; all are closed at the end."""
    made: list[Bench] = []

    def opened(name: str, *texts: str, seed: int = 7) -> Bench:
        spec = load(name) if isinstance(name, str) else name
        bench = connect(spec, seed=seed)
        made.append(bench)
        if texts:
            bench.planted = plant(bench, parse_all(texts, spec, seed), horizon_s=20.0)
        return bench

    yield opened
    for bench in made:
        bench.close()


def copy(bench: Bench, a: str = A, b: str = B, seed: int = 1) -> Moved:
    """Copy once from `a` to `b`, within a run of both."""
    for subject in (a, b):
        bench.devices[subject].begin("link.pair", 1)
    try:
        moved = bench.fabric.exchange([(a, b)], SIZE, seed)[a, b]
    finally:
        for subject in (a, b):
            bench.devices[subject].end()
    if isinstance(moved, DeviceError):
        raise moved
    return moved


def carried(bench: Bench, subject: str, name: str = "sent") -> np.ndarray:
    counters = bench.devices[subject].telemetry.link_counters(bench.links)
    return np.array([getattr(link, name) for link in counters], float)


# --- rates and stripes ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", RACKS)
def test_a_copy_reaches_the_racks_rate_within_dies_and_noise(racks, name):
    bench = racks(name)
    rate = copy(bench).rate
    assert rate == pytest.approx(bench.spec.assumed("pair_rate"), rel=0.04)


@pytest.mark.parametrize(
    ("fault", "lost"), [("nvlink-degraded", 0.5 / 18), ("nvlink-down", 1 / 18)]
)
@pytest.mark.parametrize("name", RACKS)
def test_a_bad_link_costs_its_share_of_the_gpus_rate_as_either_end(racks, name, fault, lost):
    healthy, bench = racks(name), racks(name, f"{fault}@{A}/link07")
    for ends in ((A, B), (B, A)):
        assert copy(bench, *ends).rate / copy(healthy, *ends).rate == pytest.approx(1 - lost)
    third = list(bench.devices)[2]
    assert copy(bench, B, third).rate == copy(healthy, B, third).rate


@pytest.mark.parametrize("name", RACKS)
def test_what_leaves_one_gpu_arrives_at_the_other_over_all_links_alike(racks, name):
    bench = racks(name)
    copy(bench)
    for subject, way in ((A, "sent"), (B, "received")):
        kib = carried(bench, subject, way)
        assert kib.sum() == pytest.approx(SIZE / 1024, abs=bench.links)
        assert kib / kib.mean() == pytest.approx(np.ones(bench.links), abs=0.02)
        assert len(set(kib)) > 1
    third = list(bench.devices)[2]
    assert carried(bench, A, "received").sum() == carried(bench, third).sum() == 0


def test_a_slow_link_carries_what_it_can_and_states_its_full_speed(racks):
    bench = racks("gb300-nvl72", f"nvlink-degraded@{A}/link07:factor=0.25")
    copy(bench)
    kib = carried(bench, A)
    assert kib[7] / np.delete(kib, 7).mean() == pytest.approx(0.25, rel=0.02)
    telemetry = bench.devices[A].telemetry
    assert telemetry.read_link("nvlink.speed", 7) == telemetry.read_link("nvlink.speed", 8)
    assert telemetry.read_link("nvlink.active", 7) == 1
    assert telemetry.link_counters(18)[7].errors == 0


def test_in_a_switch_of_several_links_the_receivers_links_share_what_comes(racks):
    """Link 5 to 8 of an HGX H100 end at one switch: a dead one is spread over the peer's four."""
    bench = racks("hgx-h100", f"nvlink-down@{A}/link06")
    copy(bench)
    got = carried(bench, B, "received")
    assert got[5:9] / got[0:5].mean() == pytest.approx(np.full(4, 0.75), rel=0.02)


def test_copies_from_and_to_one_gpu_share_its_bandwidth(racks):
    bench = racks("hgx-h100")
    alone = copy(bench).rate
    out = bench.fabric.exchange([(A, B), (A, C)], SIZE, 1)
    into = bench.fabric.exchange([(B, A), (C, A)], SIZE, 1)
    for moved in (*out.values(), *into.values()):
        assert moved.rate == pytest.approx(alone / 2, rel=0.04)


def test_all_at_once_nobody_waits_for_a_switch(racks):
    bench = racks("gb300-nvl72")
    names = list(bench.devices)
    ring = [(a, names[(n + 5) % 72]) for n, a in enumerate(names)]
    rates = [moved.rate for moved in bench.fabric.exchange(ring, SIZE, 1).values()]
    assert np.median(rates) == pytest.approx(bench.spec.assumed("pair_rate"), rel=0.03)


# --- both ends -----------------------------------------------------------------------------------
def test_a_switchs_port_counts_what_its_gpu_does(racks):
    bench = racks("gb300-nvl72")
    fabric = bench.fabric
    assert isinstance(fabric, EmulatedFabric)
    copy(bench)
    near, far = fabric.port(f"{A}/link03"), fabric.port(f"{B}/link03")
    assert (near.switch, near.up) == ("rack0/switch03", True)
    assert (near.rx_kib, near.tx_kib) == (carried(bench, A)[3], 0)
    assert (far.rx_kib, far.tx_kib) == (0, carried(bench, B, "received")[3])


def test_a_link_that_is_down_is_down_at_both_ends_and_carries_nothing(racks):
    bench = racks("gb300-nvl72", f"nvlink-down@{A}/link03")
    copy(bench)
    port = bench.fabric.port(f"{A}/link03")
    assert (port.up, port.rx_kib, carried(bench, A)[3]) == (False, 0, 0)
    assert bench.fabric.port(f"{B}/link03").up
    assert carried(bench, B, "received")[3] == 0


@pytest.mark.parametrize(
    ("name", "switch", "links"),
    [
        ("hgx-h100", "rack0/switch00", range(5)),
        ("hgx-b200", "rack0/switch01", range(9, 18)),
        ("gb300-nvl72", "rack0/switch11", [11]),
        ("catalina", "rack1/switch11", [11]),
    ],
)
def test_a_dead_switch_is_the_same_links_of_all_its_gpus_at_both_ends(racks, name, switch, links):
    bench = racks(name, f"nvswitch-down@{switch}")
    rack = switch.partition("/")[0]
    for subject, device in bench.devices.items():
        dark = [n for n in range(18) if not device.telemetry.read_link("nvlink.active", n)]
        assert dark == (list(links) if subject.startswith(rack) else [])
        assert [bench.fabric.port(f"{subject}/link{n:02d}").up for n in links] == [
            not subject.startswith(rack)
        ] * len(links)


def test_a_path_between_two_racks_needs_the_switches_of_both(racks):
    bench = racks("catalina", "nvswitch-down@rack1/switch11")
    far = "rack1/tray00/gpu0"
    across, within = copy(bench, A, far), copy(bench, A, B)
    assert across.rate / within.rate == pytest.approx(17 / 18, rel=0.03)
    assert carried(bench, far, "received")[11] == 0


def test_two_faults_on_one_link_are_both_taken_back(racks):
    bench = racks("hgx-h100", f"nvlink-down@{A}/link00:lasts=1", "nvswitch-down@rack0/switch00")
    device = bench.devices[A]
    device.begin("link.pair", 1, at=2.0)
    assert device.telemetry.read_link("nvlink.active", 0) == 0
    assert not bench.fabric.port(f"{A}/link00").up


# --- data ----------------------------------------------------------------------------------------
def test_data_that_arrives_wrong_is_counted_at_the_sender_alone(racks):
    bench = racks("hgx-h100")
    bench.backing.rack.gpus[A].wires.spoils = 3
    found = bench.fabric.exchange([(A, B), (B, A), (B, C)], SIZE, 5)
    assert {pair: moved.wrong for pair, moved in found.items()} == {(A, B): 3, (B, A): 0, (B, C): 0}
    reduced = bench.fabric.all_reduce(list(bench.devices), 8 << 30, 5)
    assert {gpu: n for gpu, n in reduced.wrong.items() if n} == {A: 3}
    bench.backing.rack.gpus[A].wires.spoils = 1000
    assert bench.fabric.exchange([(A, B)], SIZE, 5)[A, B].wrong == WORDS


# --- time, and who is there ----------------------------------------------------------------------
def test_time_passes_for_those_who_took_part_until_the_slowest_is_done(racks):
    bench = racks("hgx-h100", f"nvlink-degraded@{A}/link00:factor=0.01")
    bench.devices[C].wait(2.0)
    before = {subject: device.clock.now() for subject, device in bench.devices.items()}
    found = bench.fabric.exchange([(A, B), (C, "rack0/tray00/gpu3")], SIZE, 1)
    slowest = max(moved.seconds for moved in found.values())
    for n, (subject, device) in enumerate(bench.devices.items()):
        after = max(before.values()) + slowest if n < 4 else before[subject]
        assert device.clock.now() == pytest.approx(after)
    assert found[A, B].seconds == slowest


def test_a_lost_gpu_is_lost_to_its_own_pairs_alone(racks):
    bench = racks("hgx-h100", f"gpu-lost@{A}:at=0.0001")
    found = bench.fabric.exchange([(A, B), (C, A), (B, C)], SIZE, 1)
    for pair in ((A, B), (C, A)):
        assert isinstance(found[pair], Lost)
        assert A in str(found[pair])
    assert found[B, C].wrong == 0
    again = bench.fabric.exchange([(A, B), (B, C)], SIZE, 2)
    assert isinstance(again[A, B], Lost)
    assert isinstance(again[B, C], Moved)
    with pytest.raises(Lost, match=A):
        bench.fabric.all_reduce([A, B, C], 8 << 30, 1)
    assert bench.fabric.all_reduce([B, C], 8 << 30, 1).ranks == 2


def test_a_gpu_that_gets_lost_in_an_all_reduce_is_named_and_time_passes_for_the_rest(racks):
    bench = racks("hgx-h100", f"gpu-lost@{A}:at=0.0001")
    with pytest.raises(Lost, match=A):
        bench.fabric.all_reduce([A, B, C], 8 << 30, 1)
    assert bench.devices[B].clock.now() > bench.devices[A].clock.now()


@pytest.mark.parametrize("name", ["hgx-h100", "gb300-nvl72"])
def test_who_is_not_healthy_with_the_fabric_exchanges_with_nobody(racks, name):
    bench = racks(name, f"fabric-unhealthy@{A}")
    found = bench.fabric.exchange([(A, B), (C, A), (B, C)], SIZE, 1)
    for pair in ((A, B), (C, A)):
        assert type(found[pair]) is DeviceError
        assert A in str(found[pair])
    assert isinstance(found[B, C], Moved)
    with pytest.raises(DeviceError, match=A):
        bench.fabric.all_reduce([A, B], 8 << 30, 1)


def test_a_gpu_that_is_not_there_is_not_present(racks):
    bench = racks("hgx-h100", f"gpu-missing@{A}")
    found = bench.fabric.exchange([(A, B), ("rack9/tray00/gpu0", B)], SIZE, 1)
    assert all(isinstance(error, NotPresent) for error in found.values())


def test_a_gpu_without_a_link_reaches_nobody(racks):
    bench = racks("hgx-h100", *(f"nvlink-down@{A}/link{n:02d}" for n in range(18)))
    found = bench.fabric.exchange([(A, B), (B, C)], SIZE, 1)
    assert "no NVLink path" in str(found[A, B])
    assert isinstance(found[B, C], Moved)
    with pytest.raises(DeviceError, match=f"{A} has no NVLink"):
        bench.fabric.all_reduce([A, B], 8 << 30, 1)


@pytest.mark.parametrize("gpus", [[A], [A, A], []])
def test_an_all_reduce_is_over_two_or_more(racks, gpus):
    with pytest.raises(DeviceError, match="two GPUs or more"):
        racks("hgx-h100").fabric.all_reduce(gpus, 8 << 30, 1)


def test_domains_that_are_smaller_than_the_rack_are_apart(racks):
    raw = b"""
[rack]
name = "two"
source = "emulated"
[[tray]]
count = 2
gpus = 4
[gpu]
sku = "gb300"
[fabric]
switches = 18
domain = 4
[emulation]
pair_rate = 769.0
collective_rate = 930.0
"""
    bench = racks(build(raw, "two.toml"))
    other = "rack0/tray01/gpu0"
    found = bench.fabric.exchange([(A, other), (A, B), (A, A)], SIZE, 1)
    assert "two NVLink domains" in str(found[A, other])
    assert "itself" in str(found[A, A])
    assert isinstance(found[A, B], Moved)
    with pytest.raises(DeviceError, match="one NVLink domain"):
        bench.fabric.all_reduce([A, other], 8 << 30, 1)


# --- the all-reduce ------------------------------------------------------------------------------
@pytest.mark.parametrize("name", RACKS)
def test_an_all_reduce_reaches_the_racks_bus_bandwidth_at_the_slowest_gpus_pace(racks, name):
    bench, bad = racks(name), racks(name, f"nvlink-degraded@{A}/link07:factor=0.01")
    gpus = list(bench.devices)
    n = len(gpus)
    rates = []
    for each in (bench, bad):
        reduced = each.fabric.all_reduce(gpus, 8 << 30, 1)
        assert (reduced.ranks, set(reduced.wrong.values())) == (n, {0})
        rates.append(reduced.size / reduced.seconds * 2 * (n - 1) / n / 1e9)
        sent = carried(each, gpus[-1]).sum() * 1024
        assert sent == pytest.approx((8 << 30) * 2 * (n - 1) / n, rel=1e-3)
    assert rates[0] == pytest.approx(bench.spec.assumed("collective_rate"), rel=0.05)
    assert 0.92 < rates[1] / rates[0] < 0.99


# --- chance --------------------------------------------------------------------------------------
def test_the_same_seed_gives_the_same_and_no_draw_depends_on_other_gpus(racks):
    first, again, other = racks("hgx-h100"), racks("hgx-h100"), racks("hgx-h100", seed=8)
    more = [("rack0/tray00/gpu4", "rack0/tray00/gpu5")]
    one = first.fabric.exchange([(A, B)], SIZE, 1)[A, B]
    two = again.fabric.exchange([*more, (A, B)], SIZE, 1)[A, B]
    assert one == two
    assert carried(first, A).tolist() == carried(again, A).tolist()
    assert other.fabric.exchange([(A, B)], SIZE, 1)[A, B] != one


def test_traffic_takes_power(racks):
    bench = racks("gb300-nvl72")
    idle = bench.devices[A].telemetry.read("power.average")
    bench.fabric.exchange([(A, B)], 1 << 40, 1)
    assert 0 < LINK_UTILISATION < 1
    assert bench.devices[A].telemetry.read("power.average") > 1.5 * idle
