"""Copies, streams and transfers of an emulated GPU, and its PCIe link at rest and under load."""

import numpy as np
import pytest

from rackproof.fixtures.plant import plant
from rackproof.harness.burns import BURNS, Settings, execute
from rackproof.harness.devices import connect
from rackproof.harness.devices.emulated.bus import DUPLEX, IDLE_GEN, LANE_RATE, bus
from rackproof.harness.devices.emulated.cells import Leak
from rackproof.harness.devices.protocol import Pattern
from rackproof.harness.errors import DeviceError, Lost, SpecError
from rackproof.harness.faults import parse_all
from rackproof.harness.model import Measurement
from rackproof.harness.spec import build, load

RANDOM = Pattern("random", 3)
NAMES = ["hgx-h100", "hgx-h200", "hgx-b200", "gb200-nvl72", "gb300-nvl72", "catalina", "vr-nvl72"]


@pytest.fixture
def racks():
    made = []

    def opened(name, *texts, seed=7):
        spec = load(name) if isinstance(name, str) else name
        bench = connect(spec, seed=seed)
        made.append(bench)
        bench.planted = plant(bench, parse_all(texts, spec, seed), horizon_s=20.0)
        return bench

    yield opened
    for bench in made:
        bench.close()


@pytest.fixture
def device(racks):
    found = racks("hgx-h100").devices["rack0/tray00/gpu3"]
    found.begin("copy.h2d", 1)
    return found


def looks(device, work):
    """Return (generation, width) as read while `work(watch)` runs."""
    seen = []
    work(lambda: seen.append(tuple(map(device.telemetry.read, ("pcie.gen", "pcie.width")))))
    return seen


def values(bench, burn, subject, level="acceptance", attempt=1):
    seen = execute(BURNS[burn], bench, subject, Settings(level, 7, attempt))
    return {s.metric: s.value for s in seen if isinstance(s, Measurement)}


# --- copies within the memory ---------------------------------------------------------------------
def test_a_copy_within_the_claim_is_exact_and_takes_time(device):
    plane, clock = device.plane, device.clock
    half = plane.claim() // 2
    plane.write(0, half, RANDOM)
    before = clock.now()
    plane.copy(half, 0, half)
    took = clock.now() - before
    assert plane.verify(half, 2 * half, Pattern("random", 3, origin=half)).miscompares == 0
    assert plane.verify(half, 2 * half, RANDOM).miscompares == half // 8
    assert 2 * half / took / 1e9 == pytest.approx(2900, rel=0.05)  # BabelStream of an H100


@pytest.mark.parametrize("spans", [(16, 0, 16), (8, 64, 128), (0, 16, 64), (0, 32, 40)])
def test_a_copy_is_apart_and_in_steps_of_a_sector(device, spans):
    device.plane.claim()
    with pytest.raises(ValueError, match=r"overlap|32 bytes"):
        device.plane.copy(*spans)


def test_without_a_claim_nothing_is_copied(device):
    with pytest.raises(DeviceError, match="claimed"):
        device.plane.copy(64, 0, 32)


# --- streams --------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["copy", "triad"])
def test_a_stream_goes_through_the_memory(racks, kind):
    bench = racks("hgx-h100", "hbm-stuck-bit@rack0/tray00/gpu3:count=40")
    for subject, device in bench.devices.items():
        device.begin("hbm.bandwidth", 1)
        assert device.plane.stream(kind, 1.0).wrong == 0
        corrected = device.telemetry.read("ecc.corrected.volatile")
        assert (corrected > 0) == (subject == "rack0/tray00/gpu3")


def test_a_stream_brings_wrong_words_along(racks):
    bench = racks("hgx-h100", "hbm-uncorrectable@rack0/tray00/gpu3:bits=20")
    device = bench.devices["rack0/tray00/gpu3"]
    device.begin("hbm.bandwidth", 1)
    assert sum(device.plane.stream(kind, 1.0).wrong for kind in ("copy", "triad") * 3) > 0


def test_a_stream_beside_a_claim_finds_no_memory(device):
    device.plane.claim()
    with pytest.raises(DeviceError, match="too little"):
        device.plane.stream("copy", 1.0)


def test_what_a_stream_wrote_is_gone_with_the_next_pattern(device):
    device.plane.stream("triad", 1.0)
    size = device.plane.claim()
    device.plane.write(0, size, RANDOM)
    assert device.plane.verify(0, size, RANDOM).miscompares == 0


# --- transfers ------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_transfers_reach_the_racks_rates(racks, name):
    spec = load(name)
    device = next(iter(racks(name).devices.values()))
    device.begin("copy.both", 1)
    rates = {way: device.plane.transfer(way, 1.0, 3).rate for way in ("h2d", "d2h", "both")}
    assert rates["h2d"] == pytest.approx(float(spec.assumed("h2d_rate")), rel=0.01)
    assert rates["d2h"] == pytest.approx(float(spec.assumed("d2h_rate")), rel=0.01)
    assert rates["both"] == pytest.approx(DUPLEX * (rates["h2d"] + rates["d2h"]), rel=0.02)


def test_a_rack_that_states_no_rates_has_those_of_its_link():
    spec = build(
        b'[rack]\nname="x"\nsource="emulated"\n[[tray]]\ncount=1\ngpus=1\n[gpu]\nsku="h100"\n',
        "x.toml",
    )
    made = bus(spec, 5, 16)
    assert made.rate("h2d") / 1e9 == pytest.approx(55.4, rel=0.01)  # nvbandwidth on HGX H100
    assert made.h2d == made.d2h


@pytest.mark.parametrize("way", ["h2d", "d2h", "both"])
def test_what_changes_on_the_way_is_counted(device, way):
    def spoil(data):
        data[5] ^= np.uint64(1)

    device.plane.spoil = spoil
    moved = device.plane.transfer(way, 1.0, 3)
    assert moved.wrong == (2 if way == "both" else 1)
    assert moved.size > 0


def test_another_word_is_a_value_error(device):
    with pytest.raises(ValueError, match="'up'"):
        device.plane.transfer("up", 1.0, 3)
    with pytest.raises(ValueError, match="'add'"):
        device.plane.stream("add", 1.0)


def test_a_gpu_that_is_lost_on_the_way_is_lost(racks):
    bench = racks("hgx-h100", "gpu-lost@rack0/tray00/gpu3:at=0.1")
    device = bench.devices["rack0/tray00/gpu3"]
    device.begin("copy.h2d", 1)
    with pytest.raises(Lost):
        device.plane.transfer("h2d", 10.0, 3)
    assert not device._emulated.bus.moving


# --- PCIe -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_an_idle_link_rests_and_a_busy_one_does_not(racks, name):
    device = next(iter(racks(name).devices.values()))
    best = device.telemetry.read("pcie.gen.max")
    assert best > IDLE_GEN
    assert device.telemetry.read("pcie.gen") == IDLE_GEN
    device.begin("copy.h2d", 1)
    assert device.telemetry.read("pcie.gen") == IDLE_GEN
    seen = looks(device, lambda watch: device.plane.transfer("h2d", 1.0, 3, watch))
    assert len(seen) > 1
    assert set(seen) == {(best, 16)}
    device.end()
    assert device.telemetry.read("pcie.gen") == IDLE_GEN


@pytest.mark.parametrize("name", ["hgx-h100", "gb300-nvl72"])
def test_a_downtrained_link_shows_while_data_move_alone(racks, name):
    gpu, healthy = "rack0/tray00/gpu1", "rack0/tray00/gpu0"
    bench = racks(name, f"pcie-downtrain@{gpu}")
    assert values(bench, "inventory", gpu)["pcie.gen.max"] == load(name).assumed("pcie_gen")
    values(bench, "health", gpu)
    values(bench, "gemm.fp32", gpu, "quick")
    assert bench.planted.fired == [0]
    wrong, right = (values(bench, "copy.h2d", each) for each in (gpu, healthy))
    assert bench.planted.fired == [1]
    assert wrong["pcie.gen.loaded"] == 3
    assert right["pcie.gen.loaded"] == load(name).assumed("pcie_gen")
    share = wrong["copy.h2d.rate"] / right["copy.h2d.rate"]
    over_pcie = name == "hgx-h100"
    expected = LANE_RATE[3] / LANE_RATE[5] if over_pcie else 1.0
    assert share == pytest.approx(expected, rel=0.03)


def test_a_downtrained_link_may_come_and_go(racks):
    gpu = "rack0/tray00/gpu1"
    bench = racks("hgx-h100", f"pcie-downtrain@{gpu}:rate=0.5,gen=4")
    seen = [values(bench, "copy.d2h", gpu, attempt=n)["pcie.gen.loaded"] for n in range(1, 13)]
    assert set(seen) == {4, 5}
    assert bench.planted.fired == [seen.count(4)]


def test_a_generation_that_is_no_lower_one_is_refused(racks):
    with pytest.raises(SpecError, match="Gen 5"):
        racks("hgx-h100", "pcie-downtrain@rack0/tray00/gpu1:gen=5")
    racks("gb300-nvl72", "pcie-downtrain@rack0/tray00/gpu1:gen=5")


# --- address alias --------------------------------------------------------------------------------
def test_an_address_alias_is_seen_by_every_memory_test_and_by_no_counter(racks):
    gpu = "rack0/tray00/gpu2"
    bench = racks("hgx-h100", f"hbm-address-alias@{gpu}")
    memory = [burn for burn in BURNS if burn.startswith("memory.")]
    assert len(memory) == 9
    for burn in memory:
        fired = bench.planted.fired[0]
        found = values(bench, burn, gpu)
        assert found["memory.miscompares"] > 0
        assert (found["ecc.corrected.delta"], found["ecc.uncorrected.delta"]) == (0, 0)
        assert found["memory.coverage"] > 0.999
        assert bench.planted.fired[0] > fired
    assert values(bench, "memory.address", "rack0/tray00/gpu1")["memory.miscompares"] == 0


def test_a_bit_that_leaks_is_seen_by_the_burn_that_waits(racks):
    gpu = "rack0/tray00/gpu2"
    bench = racks("hgx-h100")
    bench.devices[gpu]._emulated.hbm.plant(Leak(8 * 12345, 1 << 40, seconds=15.0))
    for burn in ("memory.fade", "memory.random", "memory.march", "memory.walking"):
        corrected = values(bench, burn, gpu)["ecc.corrected.delta"]
        assert (corrected > 0) == (burn == "memory.fade")
