"""power.step on an emulated node of eight GPUs, and on a rack with power of its own."""

import itertools

import pytest

from rackproof.fixtures.plant import plant
from rackproof.harness.burns import BURNS, Settings, execute, power_step
from rackproof.harness.devices import connect
from rackproof.harness.faults import parse_all
from rackproof.harness.model import Measurement, Missing, Why
from rackproof.harness.spec import load

GPU, OTHER = "rack0/tray00/gpu1", "rack0/tray00/gpu0"


@pytest.fixture
def make():
    made = []

    def planted(*texts, rack="hgx-h100", seed=7, horizon=200.0):
        spec = load(rack)
        bench = connect(spec, seed=seed)
        made.append(bench)
        if texts:
            plant(bench, parse_all(texts, spec, seed), horizon_s=horizon)
        return bench

    yield planted
    for bench in made:
        bench.close()


def step(bench, **settings):
    """Run power.step once; return (values, gaps), each by (metric, subject)."""
    seen = execute(BURNS["power.step"], bench, "fabric", Settings("acceptance", 7, **settings))
    values = {(s.metric, s.subject): s.value for s in seen if isinstance(s, Measurement)}
    return values, {(s.metric, s.subject): s for s in seen if isinstance(s, Missing)}


def test_a_swing_of_one_hertz_is_seen_by_the_instantaneous_sensor_alone(make):
    device = make().devices[GPU]
    device.begin("power.step", 1)
    instant, average = [], []
    for number, share in enumerate(itertools.islice(itertools.cycle((1.0, 0.0)), 20)):
        device.plane.load(share)
        device.wait(0.45)
        if number >= 4:  # a second has passed
            instant.append(device.telemetry.read("power.instant"))
            average.append(device.telemetry.read("power.average"))
        device.wait(0.05)
    device.end()
    assert max(instant) - min(instant) > 600.0
    assert max(average) - min(average) < 100.0


def test_the_burn_sees_the_edges_and_the_swing_of_the_slowest_wave(make):
    values, gaps = step(make())
    assert gaps == {}
    assert values["power.step.edges", GPU] == 1.0
    assert values["power.step.swing", GPU] == pytest.approx(700.0 - 68.6, rel=0.03)
    assert values["power.step.phase", GPU] <= 0.01
    assert values["power.step.peak", GPU] <= 1.02
    assert values["power.step.mean", GPU] <= 1.01


def test_a_sensor_that_only_averages_sees_no_edges(make, monkeypatch):
    bench = make()
    telemetry = bench.devices[GPU].telemetry
    read = telemetry.read
    monkeypatch.setattr(
        telemetry, "read", lambda m: read("power.average" if m == "power.instant" else m)
    )
    values, gaps = step(bench)
    assert values["power.step.edges", GPU] < 0.9 or ("power.step.phase", GPU) in gaps
    assert values["power.step.edges", OTHER] == 1.0


@pytest.mark.parametrize("late", [0.03, 0.06])
def test_a_gpu_that_follows_later_than_the_others_is_out_of_phase(make, monkeypatch, late):
    bench = make()
    device = bench.devices[GPU]
    plane, pending = device.plane, []
    load, wait = plane.load, device.wait

    def later(share):
        pending.append((device.clock.now() + late, share))

    def passes(seconds):
        end = device.clock.now() + seconds
        while pending and pending[0][0] <= end:
            at, share = pending.pop(0)
            wait(max(0.0, at - device.clock.now()))
            load(share)
        wait(max(0.0, end - device.clock.now()))

    monkeypatch.setattr(plane, "load", later)
    monkeypatch.setattr(device, "wait", passes)
    values, _ = step(bench)
    assert values["power.step.phase", GPU] == pytest.approx(late, abs=0.011)
    assert values["power.step.phase", OTHER] == pytest.approx(0.0, abs=0.001)


def test_a_cap_from_outside_shows_in_its_peaks(make):
    values, _ = step(make(f"power-cap-out-of-band@{GPU}"))
    assert values["power.step.peak", GPU] > 1.1
    assert values["power.step.peak", OTHER] < 1.02
    assert values["throttled.cap.share", GPU] > 0.5
    assert values["power.step.mean", GPU] <= 1.02


def test_a_gpu_that_is_lost_in_the_middle_is_left_behind(make):
    bench = make(f"gpu-lost@{GPU}:at=0.7", rack="gb300-nvl72")
    values, gaps = step(bench)
    assert values["gpu.present", GPU] == 0
    owed = {m for m, s in gaps if s == GPU}
    assert owed == set(power_step.OWES["gpu"])
    assert {gaps[m, GPU].why for m in owed} == {Why.LOST}
    others = [subject for subject in bench.devices if subject != GPU]
    for metric in power_step.OWES["gpu"]:
        assert all((metric, subject) in values for subject in others)
    assert gaps["power.step.line", "rack0/power"].reason.startswith("not all GPUs")


def test_when_all_are_lost_nothing_is_left_to_say(make):
    bench = make(*(f"gpu-lost@rack0/tray00/gpu{n}:at=0.7" for n in range(8)))
    values, gaps = step(bench)
    assert {s for m, s in values if m == "gpu.present" and values[m, s] == 0} == set(bench.devices)
    assert {(m, s) for m, s in gaps} == {
        (m, s) for m in power_step.OWES["gpu"] for s in bench.devices
    }


def test_the_racks_line_is_the_sum_of_its_gpus(make):
    values, _ = step(make(rack="catalina"))
    swing = 36 * (1200.0 - 165.9)
    for rack in ("rack0/power", "rack1/power"):
        assert values["power.step.line", rack] == pytest.approx(swing * 2 / 3.14159, rel=0.08)
        assert values["power.step.frequency", rack] == pytest.approx(0.1)
        assert values["power.step.ramp", rack] > 500.0


def test_a_part_of_a_rack_is_not_taken_for_the_rack(make):
    bench = make(rack="gb300-nvl72")
    few = tuple(bench.devices)[:4]
    values, gaps = step(bench, gpus=few)
    assert ("power.step.line", "rack0/power") in gaps
    assert {s for m, s in values if m == "power.step.edges"} == set(few)


def test_a_power_sensor_that_is_away_leaves_the_rest_and_accuses_nobody(make):
    bench = make(f"sensor-missing@{GPU}:metric=power", rack="gb300-nvl72")
    values, gaps = step(bench)
    own = {metric for metric, subject in gaps if subject == GPU}
    assert own == {
        "power.step.peak", "power.step.edges", "power.step.phase", "power.step.swing",
        "power.step.seen.instant", "power.step.seen.average",
    }  # fmt: skip
    assert values["gpu.present", GPU] == 1
    assert values["power.steady", GPU] == pytest.approx(1400.0, rel=0.01)
    assert {s for _, s in gaps} == {GPU, "rack0/power"}


def test_the_gpus_of_a_rack_without_shelves_are_added_up_too(make):
    bench = make()
    values, gaps = step(bench)
    assert gaps == {}
    swing = 8 * (700.0 - 68.6)
    assert values["power.step.line", "rack0/power"] == pytest.approx(swing * 2 / 3.14159, rel=0.08)
    assert values["power.step.ramp", "rack0/power"] > 50.0
    assert not [metric for metric, _ in values if ".mains." in metric]
