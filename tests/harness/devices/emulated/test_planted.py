"""Each kind of fault does what it says, on its own GPU, and is counted when it does."""

import pytest

from rackproof.harness.devices.emulated.kinds import KINDS
from rackproof.harness.errors import DeviceError, Lost, NotPresent
from rackproof.harness.faults import kinds

GPU, OTHER = "rack0/tray01/gpu2", "rack0/tray00/gpu0"
PLACES = {"gpu": GPU, "link": f"{GPU}/link03", "switch": "rack0/switch03"}


def test_without_faults_nothing_is_wrong(make, work):
    bench, planted = make()
    for device in bench.devices.values():
        assert work.memory(device) == (0, 0, 0, [])
        made, seen = work.product(device)
        assert made.repeats_differ == 0
        assert not seen["throttle.thermal"] or seen["throttle.power_brake"]
        assert seen["thermal.margin"] >= 3
    assert planted.summary() == []


@pytest.mark.parametrize("name", [n for n in sorted(KINDS) if kinds()[n].on[0] in PLACES])
def test_a_fault_touches_no_other_gpu(make, work, name):
    bench, _ = make(f"{name}@{PLACES[kinds()[name].on[0]]}")
    healthy, _ = make()
    there, here = healthy.devices[OTHER], bench.devices[OTHER]
    assert work.memory(here) == work.memory(there)
    (made, seen), (other, expected) = work.product(here), work.product(there)
    assert (made.flops, seen) == (other.flops, expected)
    assert (made.c == other.c).all()


@pytest.mark.parametrize("seed", range(8))
def test_a_stuck_bit_moves_the_corrected_counter_in_every_run(make, work, seed):
    bench, planted = make(f"hbm-stuck-bit@{GPU}:count=2", seed=seed)
    for attempt in (1, 2, 3):
        wrong, corrected, uncorrected, codes = work.memory(bench.devices[GPU], attempt)
        assert (wrong, corrected, uncorrected, codes) == (0, 2, 0, [])
    assert planted.fired == [6]


@pytest.mark.parametrize("seed", range(8))
def test_two_wrong_bits_raise_48_63_and_94_and_mark_a_row(make, work, seed):
    bench, planted = make(f"hbm-uncorrectable@{GPU}", seed=seed)
    device = bench.devices[GPU]
    wrong, corrected, uncorrected, codes = work.memory(device)
    assert (wrong, corrected, uncorrected) == (1, 0, 1)
    assert codes == ["xid.48", "xid.63", "xid.94"]
    assert device.telemetry.read("remap.pending") == 1
    assert device.telemetry.read("remap.rows.uncorrected") == 1
    assert work.memory(device, 2)[3] == ["xid.48", "xid.94"]
    assert planted.fired == [2]


def test_a_flipped_bit_is_met_once_and_never_again(make, work):
    bench, planted = make(f"hbm-bit-flip@{GPU}")
    device = bench.devices[GPU]
    work.look(device)
    assert planted.fired == [0]
    assert work.memory(device, 1)[1] == 1
    assert work.memory(device, 2)[1] == work.memory(device, 3)[1] == 0
    assert planted.fired == [1]


def test_a_flip_that_is_not_once_comes_in_each_run(make, work):
    bench, planted = make(f"hbm-bit-flip@{GPU}:lasts=1000")
    assert [work.memory(bench.devices[GPU], n)[1] for n in (1, 2, 3)] == [1, 1, 1]
    assert planted.fired == [3]


def test_pending_and_failed_remaps_stand_in_the_driver(make, work):
    bench, planted = make(f"row-remap-pending@{GPU}:rows=3", f"row-remap-failure@{GPU}")
    device = bench.devices[GPU]
    read = device.telemetry.read
    assert (read("remap.pending"), read("remap.failure")) == (1, 1)
    assert (read("remap.rows.uncorrected"), read("remap.banks.none")) == (3, 1)
    work.look(device)
    assert planted.fired == [1, 1]
    assert work.memory(device, 1)[3] == ["xid.64"]
    assert work.memory(device, 2)[3] == []


def test_a_storm_goes_by_the_gpus_time(make, work):
    bench, planted = make(f"ecc-storm@{GPU}:per_second=1000")
    device = bench.devices[GPU]
    device.begin("gemm.fp32", 1)
    before = int(device.telemetry.read("ecc.corrected.volatile"))
    ones = device.plane.xp.ones((8, 8), dtype="float32")
    device.plane.multiply(ones, ones, "fp32", 2.5)
    after = int(device.telemetry.read("ecc.corrected.volatile"))
    assert after - before == pytest.approx(2500, abs=1)
    assert planted.fired == [after - before]


def test_a_bad_lane_makes_every_product_of_the_gpu_wrong_by_the_share(make, work):
    bench, planted = make(f"sm-sdc@{GPU}:relative=0.25")
    right, _ = work.product(bench.devices[OTHER])
    columns = set()
    for attempt in (1, 2, 3):
        made, _ = work.product(bench.devices[GPU], attempt)
        (at,) = (made.c != right.c).nonzero()[0:1]
        assert len(at) == 1
        row, column = (int(i[0]) for i in (made.c != right.c).nonzero())
        assert made.c[row, column] == pytest.approx(1.25 * right.c[row, column])
        assert made.repeats_differ == 0
        columns.add(column % 32)
    assert len(columns) == 1
    assert planted.fired == [3]


def test_a_lane_that_errs_now_and_then_makes_repeats_differ(make, work):
    bench, planted = make(f"sm-sdc@{GPU}:rate=0.5")
    differ = [work.product(bench.devices[GPU], n)[0].repeats_differ for n in range(1, 41)]
    assert sum(differ) == planted.fired[0]
    assert 8 <= sum(differ) <= 32


def test_a_slow_gpu_is_slow_by_the_factor_while_its_clock_is_high(make, work):
    bench, planted = make(f"slow-gpu@{GPU}:factor=0.8")
    healthy, _ = make()
    made, seen = work.product(bench.devices[GPU])
    other, expected = work.product(healthy.devices[GPU])
    assert made.flops / other.flops == pytest.approx(0.8)
    assert seen == expected
    assert planted.fired == [1]


def test_a_gpu_is_lost_in_the_middle_of_a_load_at_its_time(make, work):
    bench, planted = make(f"gpu-lost@{GPU}:at=0.5")
    device = bench.devices[GPU]
    work.product(device, 1)
    assert planted.fired == [0]
    with pytest.raises(Lost):
        work.product(device, 2)
    assert device.clock.now() == pytest.approx(0.5 * work.horizon)
    assert [event.code for event in device.telemetry.events()] == ["xid.79"]
    with pytest.raises(Lost):
        device.telemetry.read("temperature")
    with pytest.raises(Lost):
        device.plane.claim()
    work.look(device, attempt=10)
    assert bench.count == 8
    assert planted.fired == [1]
    bench.scan()
    assert bench.devices[GPU] is device


def test_a_gpu_that_was_lost_stays_lost_after_a_resume(make, work):
    bench, planted = make(f"gpu-lost@{GPU}", fired=[1])
    with pytest.raises(Lost):
        bench.devices[GPU].telemetry.read("temperature")
    assert planted.fired == [1]


def test_a_missing_gpu_leaves_a_gap_in_its_own_slot(make, work):
    bench, planted = make(f"gpu-missing@{GPU}")
    device = bench.devices[GPU]
    assert list(bench.devices) == [gpu.subject for gpu in work.rack.gpus]
    assert bench.count == 7
    assert bench.identity(GPU) is None
    assert bench.unexpected == []
    for call in (
        lambda: device.telemetry.read("gpu.name"),
        lambda: device.telemetry.read_link("nvlink.active", 0),
        device.telemetry.events,
        device.plane.claim,
        lambda: device.plane.multiply(None, None, "fp32", 1.0),
        lambda: device.begin("health", 1),
    ):
        with pytest.raises(NotPresent, match=GPU):
            call()
    healthy, _ = make()
    for subject in set(bench.devices) - {GPU}:
        assert bench.identity(subject) == healthy.identity(subject)
    assert planted.fired == [1]


def test_another_sku_in_the_slot_looks_like_itself(make, work):
    bench, planted = make(f"wrong-sku@{GPU}:sku=gb200")
    device = bench.devices[GPU]
    read = device.telemetry.read
    assert (read("gpu.name"), read("gpu.pci_id")) == ("NVIDIA GB200", "0x2941")
    assert read("memory.total") == 189471
    assert read("pcie.gen.max") == 5
    assert work.memory(device) == (0, 0, 0, [])
    assert planted.fired == [0]
    work.look(device)
    assert planted.fired == [1]


def test_a_link_is_down_alone(make, work):
    bench, planted = make(f"nvlink-down@{GPU}/link07")
    telemetry = bench.devices[GPU].telemetry
    states = [telemetry.read_link("nvlink.active", n) for n in range(18)]
    assert states == [n != 7 for n in range(18)]
    assert telemetry.read("nvlink.links") == 18
    work.look(bench.devices[GPU])
    assert planted.fired == [1]


@pytest.mark.parametrize("attempts", [3])
def test_a_gpu_without_cooling_slows_down_in_every_load_and_not_before(make, work, attempts):
    bench, planted = make(f"thermal-throttle@{GPU}")
    device = bench.devices[GPU]
    work.look(device)
    assert planted.fired == [0]
    assert device.telemetry.read("throttle.thermal") == 0
    idle = int(device.telemetry.read("temperature"))
    assert idle > int(bench.devices[OTHER].telemetry.read("temperature")) + 20
    _, healthy = work.product(bench.devices[OTHER])
    for attempt in range(1, attempts + 1):
        _, seen = work.product(device, attempt)
        assert seen["throttle.thermal"] == seen["throttle.hw_slowdown"] == 1
        assert seen["throttle.power_brake"] == 0
        assert seen["thermal.margin"] < 3
        assert seen["clock.sm"] < 0.8 * healthy["clock.sm"]
    assert planted.fired == [attempts]


def test_a_brake_on_a_host_holds_all_its_gpus_down_and_no_others(make, work):
    bench, planted = make("power-brake@rack0/tray01/host")
    for subject, device in bench.devices.items():
        _, seen = work.product(device)
        braked = subject.startswith("rack0/tray01/")
        assert seen["throttle.power_brake"] == seen["throttle.hw_slowdown"] == braked
        assert (seen["clock.sm"] < 1100) == braked
    assert planted.fired == [4]


@pytest.mark.parametrize(
    ("metric", "gone", "there"),
    [
        ("temperature", "temperature", "power.average"),
        ("power", "power.average", "temperature"),
        ("ecc.corrected.volatile", "ecc.corrected.volatile", "remap.pending"),
        ("fabric", "fabric.state", "gpu.name"),
    ],
)
def test_a_missing_sensor_is_an_error_and_never_a_number(make, work, metric, gone, there):
    bench, planted = make(f"sensor-missing@{GPU}:metric={metric}")
    device = bench.devices[GPU]
    with pytest.raises(DeviceError) as caught:
        device.telemetry.read(gone)
    assert type(caught.value) is DeviceError
    assert device.telemetry.read(there) is not None
    work.look(device)
    assert planted.fired == [1]
