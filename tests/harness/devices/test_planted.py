"""Each kind does what it says, is counted when it does, and is gone when its time is over."""

import random
from collections.abc import Callable, Iterator

import pytest

from rackproof.fixtures.plant import Planted, plant
from rackproof.harness.devices import Bench, connect
from rackproof.harness.devices.emulated.planted import KINDS
from rackproof.harness.devices.protocol import Device, Pattern
from rackproof.harness.errors import DeviceError, Lost, NotPresent
from rackproof.harness.faults import parse_all
from rackproof.harness.spec import build

RACK = build(
    b"""
[rack]
name = "toy"
source = "emulated"
[[tray]]
count = 2
gpus = 4
[gpu]
sku = "gb300"
[fabric]
switches = 18
[cooling]
kind = "flc"
""",
    "toy.toml",
)
GPU, OTHER = "rack0/tray01/gpu2", "rack0/tray00/gpu0"
ZERO, ONES = Pattern("constant", 0), Pattern("constant", 0, invert=True)
HORIZON = 20.0

Make = Callable[..., tuple[Bench, Planted]]


@pytest.fixture
def make() -> Iterator[Make]:
    """``make("slow-gpu@...", seed=3)``: a rack with these faults; all are closed at the end."""
    made: list[Bench] = []

    def planted(*texts: str, seed: int = 7, fired: list[int] | None = None):
        bench = connect(RACK, seed=seed)
        made.append(bench)
        faults = parse_all(texts, RACK, seed)
        return bench, plant(bench, faults, horizon_s=HORIZON, fired=fired)

    yield planted
    for bench in made:
        bench.close()


def memory(device: Device, attempt: int = 1, patterns: tuple[Pattern, ...] = (ZERO, ONES)):
    """Run a memory burn; return (miscompares, corrected, uncorrected, XIDs) of its window."""
    device.begin("memory.march", attempt)
    try:
        device.telemetry.events()
        read = device.telemetry.read
        before = read("ecc.corrected.volatile"), read("ecc.uncorrected.volatile")
        size, wrong = device.plane.claim(), 0
        for pattern in patterns:
            device.plane.write(0, size, pattern)
            wrong += device.plane.verify(0, size, pattern).miscompares
        after = read("ecc.corrected.volatile"), read("ecc.uncorrected.volatile")
        codes = [event.code for event in device.telemetry.events()]
    finally:
        device.end()
    return wrong, after[0] - before[0], after[1] - before[1], codes


def product(device: Device, attempt: int = 1, check: str = "gemm.fp32"):
    """Run a product; return it with what is read under the load."""
    device.begin(check, attempt)
    try:
        xp, n = device.plane.xp, device.plane.order("fp32")
        a = xp.arange(n * n, dtype="float32").reshape(n, n) % 7 + 1
        made = device.plane.multiply(a, a, "fp32", 5.0)
        metrics = ("throttle.thermal", "throttle.power_brake", "throttle.hw_slowdown",
                   "temperature", "thermal.margin", "clock.sm", "power.average")  # fmt: skip
        return made, {metric: device.telemetry.read(metric) for metric in metrics}
    finally:
        device.end()


def rate(device: Device, attempt: int = 1) -> float:
    made, _ = product(device, attempt)
    return made.flops / made.seconds


def look(device: Device, check: str = "health", attempt: int = 1) -> None:
    device.begin(check, attempt)
    device.end()


def test_without_faults_nothing_is_wrong(make):
    bench, planted = make()
    for device in bench.devices.values():
        assert memory(device) == (0, 0, 0, [])
        made, seen = product(device)
        assert made.repeats_differ == 0
        assert not seen["throttle.thermal"] or seen["throttle.power_brake"]
        assert seen["thermal.margin"] >= 3
    assert planted.summary() == []


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_fault_touches_no_other_gpu(make, name):
    subject = f"{GPU}/link03" if name == "nvlink-down" else GPU
    bench, _ = make(f"{name}@{subject}")
    healthy, _ = make()
    there, here = healthy.devices[OTHER], bench.devices[OTHER]
    assert memory(here) == memory(there)
    (made, seen), (other, expected) = product(here), product(there)
    assert (made.flops, seen) == (other.flops, expected)
    assert (made.c == other.c).all()


@pytest.mark.parametrize("seed", range(8))
def test_a_stuck_bit_moves_the_corrected_counter_in_every_run(make, seed):
    bench, planted = make(f"hbm-stuck-bit@{GPU}:count=2", seed=seed)
    for attempt in (1, 2, 3):
        wrong, corrected, uncorrected, codes = memory(bench.devices[GPU], attempt)
        assert (wrong, corrected, uncorrected, codes) == (0, 2, 0, [])
    assert planted.fired == [6]


@pytest.mark.parametrize("seed", range(8))
def test_two_wrong_bits_raise_48_63_and_94_and_mark_a_row(make, seed):
    bench, planted = make(f"hbm-uncorrectable@{GPU}", seed=seed)
    device = bench.devices[GPU]
    wrong, corrected, uncorrected, codes = memory(device)
    assert (wrong, corrected, uncorrected) == (1, 0, 1)
    assert codes == ["xid.48", "xid.63", "xid.94"]
    assert device.telemetry.read("remap.pending") == 1
    assert device.telemetry.read("remap.rows.uncorrected") == 1
    assert memory(device, 2)[3] == ["xid.48", "xid.94"]
    assert planted.fired == [2]


def test_a_flipped_bit_is_met_once_and_never_again(make):
    bench, planted = make(f"hbm-bit-flip@{GPU}")
    device = bench.devices[GPU]
    look(device)
    assert planted.fired == [0]
    assert memory(device, 1)[1] == 1
    assert memory(device, 2)[1] == memory(device, 3)[1] == 0
    assert planted.fired == [1]


def test_a_flip_that_is_not_once_comes_in_each_run(make):
    bench, planted = make(f"hbm-bit-flip@{GPU}:lasts=1000")
    assert [memory(bench.devices[GPU], n)[1] for n in (1, 2, 3)] == [1, 1, 1]
    assert planted.fired == [3]


def test_pending_and_failed_remaps_stand_in_the_driver(make):
    bench, planted = make(f"row-remap-pending@{GPU}:rows=3", f"row-remap-failure@{GPU}")
    device = bench.devices[GPU]
    read = device.telemetry.read
    assert (read("remap.pending"), read("remap.failure")) == (1, 1)
    assert (read("remap.rows.uncorrected"), read("remap.banks.none")) == (3, 1)
    look(device)
    assert planted.fired == [1, 1]
    assert memory(device, 1)[3] == ["xid.64"]
    assert memory(device, 2)[3] == []


def test_a_storm_goes_by_the_gpus_time(make):
    bench, planted = make(f"ecc-storm@{GPU}:per_second=1000")
    device = bench.devices[GPU]
    device.begin("gemm.fp32", 1)
    before = int(device.telemetry.read("ecc.corrected.volatile"))
    ones = device.plane.xp.ones((8, 8), dtype="float32")
    device.plane.multiply(ones, ones, "fp32", 2.5)
    after = int(device.telemetry.read("ecc.corrected.volatile"))
    assert after - before == pytest.approx(2500, abs=1)
    assert planted.fired == [after]


def test_a_bad_lane_makes_every_product_of_the_gpu_wrong_by_the_share(make):
    bench, planted = make(f"sm-sdc@{GPU}:relative=0.25")
    right, _ = product(bench.devices[OTHER])
    columns = set()
    for attempt in (1, 2, 3):
        made, _ = product(bench.devices[GPU], attempt)
        (at,) = (made.c != right.c).nonzero()[0:1]
        assert len(at) == 1
        row, column = (int(i[0]) for i in (made.c != right.c).nonzero())
        assert made.c[row, column] == pytest.approx(1.25 * right.c[row, column])
        assert made.repeats_differ == 0
        columns.add(column % 32)
    assert len(columns) == 1
    assert planted.fired == [3]


def test_a_lane_that_errs_now_and_then_makes_repeats_differ(make):
    bench, planted = make(f"sm-sdc@{GPU}:rate=0.5")
    differ = [product(bench.devices[GPU], n)[0].repeats_differ for n in range(1, 41)]
    assert sum(differ) == planted.fired[0]
    assert 8 <= sum(differ) <= 32


def test_a_slow_gpu_is_slow_by_the_factor_while_its_clock_is_high(make):
    bench, planted = make(f"slow-gpu@{GPU}:factor=0.8")
    healthy, _ = make()
    made, seen = product(bench.devices[GPU])
    other, expected = product(healthy.devices[GPU])
    assert made.flops / other.flops == pytest.approx(0.8)
    assert seen == expected
    assert planted.fired == [1]


def test_a_gpu_is_lost_in_the_middle_of_a_load_at_its_time(make):
    bench, planted = make(f"gpu-lost@{GPU}:at=0.5")
    device = bench.devices[GPU]
    product(device, 1)
    assert planted.fired == [0]
    with pytest.raises(Lost):
        product(device, 2)
    assert device.clock.now() == pytest.approx(0.5 * HORIZON)
    assert [event.code for event in device.telemetry.events()] == ["xid.79"]
    with pytest.raises(Lost):
        device.telemetry.read("temperature")
    with pytest.raises(Lost):
        device.plane.claim()
    look(device, attempt=10)
    assert bench.count == 8
    assert planted.fired == [1]
    bench.scan()
    assert bench.devices[GPU] is device


def test_a_gpu_that_was_lost_stays_lost_after_a_resume(make):
    bench, planted = make(f"gpu-lost@{GPU}", fired=[1])
    with pytest.raises(Lost):
        bench.devices[GPU].telemetry.read("temperature")
    assert planted.fired == [1]


def test_a_missing_gpu_leaves_a_gap_in_its_own_slot(make):
    bench, planted = make(f"gpu-missing@{GPU}")
    device = bench.devices[GPU]
    assert list(bench.devices) == [gpu.subject for gpu in RACK.gpus]
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


def test_another_sku_in_the_slot_looks_like_itself(make):
    bench, planted = make(f"wrong-sku@{GPU}:sku=gb200")
    device = bench.devices[GPU]
    read = device.telemetry.read
    assert (read("gpu.name"), read("gpu.pci_id")) == ("NVIDIA GB200", "0x2941")
    assert read("memory.total") == 189471
    assert read("pcie.gen.max") == 5
    assert memory(device) == (0, 0, 0, [])
    assert planted.fired == [1]


def test_a_link_is_down_alone(make):
    bench, planted = make(f"nvlink-down@{GPU}/link07")
    telemetry = bench.devices[GPU].telemetry
    states = [telemetry.read_link("nvlink.active", n) for n in range(18)]
    assert states == [n != 7 for n in range(18)]
    assert telemetry.read("nvlink.links") == 18
    look(bench.devices[GPU])
    assert planted.fired == [1]


@pytest.mark.parametrize("attempts", [3])
def test_a_gpu_without_cooling_slows_down_in_every_load_and_not_before(make, attempts):
    bench, planted = make(f"thermal-throttle@{GPU}")
    device = bench.devices[GPU]
    look(device)
    assert planted.fired == [0]
    assert device.telemetry.read("throttle.thermal") == 0
    idle = int(device.telemetry.read("temperature"))
    assert idle > int(bench.devices[OTHER].telemetry.read("temperature")) + 20
    _, healthy = product(bench.devices[OTHER])
    for attempt in range(1, attempts + 1):
        _, seen = product(device, attempt)
        assert seen["throttle.thermal"] == seen["throttle.hw_slowdown"] == 1
        assert seen["throttle.power_brake"] == 0
        assert seen["thermal.margin"] < 3
        assert seen["clock.sm"] < 0.8 * healthy["clock.sm"]
    assert planted.fired == [attempts]


def test_a_brake_on_a_host_holds_all_its_gpus_down_and_no_others(make):
    bench, planted = make("power-brake@rack0/tray01/host")
    for subject, device in bench.devices.items():
        _, seen = product(device)
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
def test_a_missing_sensor_is_an_error_and_never_a_number(make, metric, gone, there):
    bench, planted = make(f"sensor-missing@{GPU}:metric={metric}")
    device = bench.devices[GPU]
    with pytest.raises(DeviceError) as caught:
        device.telemetry.read(gone)
    assert type(caught.value) is DeviceError
    assert device.telemetry.read(there) is not None
    look(device)
    assert planted.fired == [1]


# --- when ----------------------------------------------------------------------------------------
def test_once_strikes_in_the_first_run_and_is_gone(make):
    bench, planted = make(f"slow-gpu@{GPU}:factor=0.5,lasts=once")
    healthy, _ = make()
    shares = [rate(bench.devices[GPU], n) / rate(healthy.devices[GPU], n) for n in (1, 2, 3)]
    assert shares == pytest.approx([0.5, 1.0, 1.0])
    assert planted.fired == [1]


@pytest.mark.parametrize("name", ["slow-gpu", "power-brake", "hbm-bit-flip", "row-remap-pending"])
def test_once_that_fired_before_a_resume_is_spent(make, name):
    bench, planted = make(f"{name}@{GPU}:lasts=once", fired=[1])
    look(bench.devices[GPU])
    assert memory(bench.devices[GPU]) == (0, 0, 0, [])
    product(bench.devices[GPU])
    assert bench.devices[GPU].telemetry.read("remap.pending") == 0
    assert planted.fired == [1]


def test_seconds_are_those_of_the_gpus_clock(make):
    bench, _ = make(f"slow-gpu@{GPU}:factor=0.5,lasts=3.5")
    healthy, _ = make()
    # A run begins with a second of idling: 2.5 of the first product's 5 seconds are slow.
    device, other = bench.devices[GPU], healthy.devices[GPU]
    assert rate(device, 2) / rate(other, 2) < 1.0
    assert rate(device, 3) / rate(other, 3) == pytest.approx(1.0)


def test_strikes_of_a_rate_are_those_of_the_run_whatever_ran_before(make):
    text = f"slow-gpu@{GPU}:factor=0.5,rate=0.4"

    def strikes(order):
        bench, _ = make(text)
        healthy, _ = make()
        return {
            n: rate(bench.devices[GPU], n) / rate(healthy.devices[GPU], n) < 0.75 for n in order
        }

    runs = list(range(1, 31))
    once = strikes(runs)
    assert 4 <= sum(once.values()) <= 20
    random.Random(5).shuffle(runs)
    assert strikes(runs) == once


def test_other_seeds_strike_in_other_runs(make):
    def strikes(seed):
        bench, planted = make(f"power-brake@{GPU}:rate=0.5", seed=seed)
        fired = []
        for attempt in range(1, 21):
            look(bench.devices[GPU], attempt=attempt)
            fired.append(planted.fired[0])
        return fired

    assert strikes(1) == strikes(1)
    assert strikes(1) != strikes(2)


def test_the_account_reads_as_in_the_contract(make):
    _, planted = make(f"gpu-missing@{GPU}")
    assert planted.summary() == [
        {"kind": "gpu-missing", "subject": GPU, "parameters": {}, "fired": 1}
    ]
