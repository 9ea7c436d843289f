"""power.steady, power.cap and thermal.soak on an emulated node of eight GPUs."""

import os
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from rackproof.diagnostics.limits import Limit, Limits, shipped
from rackproof.fixtures.plant import plant
from rackproof.harness.burns import BURNS, Settings, execute, power, thermal
from rackproof.harness.burns.base import Crew
from rackproof.harness.burns.lease import Patience
from rackproof.harness.devices import connect
from rackproof.harness.devices.emulated.driver import EmulatedDriver
from rackproof.harness.errors import DeviceError, Unsupported
from rackproof.harness.faults import parse_all
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Measurement, Missing, Why
from rackproof.harness.platform import platform_limits
from rackproof.harness.power.wave import SENSOR_S, coincides
from rackproof.harness.spec import load

GPU, OTHER = "rack0/tray00/gpu1", "rack0/tray00/gpu0"
ALL = ("power.steady", "power.step", "power.cap", "thermal.soak")


class Burnt:
    """What one run of a wide burn gave, by metric and subject."""

    def __init__(self, seen) -> None:
        self.seen = seen
        self.values = defaultdict(dict)
        self.gaps = defaultdict(dict)
        for what in seen:
            if isinstance(what, Measurement):
                self.values[what.metric][what.subject] = what.value
            elif isinstance(what, Missing):
                self.gaps[what.metric][what.subject] = what


@pytest.fixture
def make():
    """``make("KIND@SUBJECT", rack="hgx-h100", seed=3)``: a bench with these faults."""
    made = []

    def planted(*texts, rack="hgx-h100", seed=7):
        spec = load(rack)
        bench = connect(spec, seed=seed)
        made.append(bench)
        if texts:
            bench.planted = plant(bench, parse_all(texts, spec, seed), horizon_s=200.0)
        return bench

    yield planted
    for bench in made:
        bench.close()


def burn(bench, name, attempt=1, **settings):
    given = Settings("acceptance", 7, attempt, **settings)
    return Burnt(execute(BURNS[name], bench, "fabric", given))


def outside(spec, burnt):
    """Return what is outside the limits that ship, and what has none though it is judged."""
    own = [
        Limit(x.metric, x.source, "platform", low=x.low, high=x.high, equal=x.equal)
        for x in platform_limits(spec)
        if x.subject == "*"
    ]
    limits = Limits((*own, *shipped()))
    wrong = []
    for metric, values in burnt.values.items():
        known = metrics()[metric]
        if not known.judged or known.optional:
            continue
        for subject, value in values.items():
            found = limits.of(metric, subject, spec.sku.key)
            if not found or any(not limit.allows(value) for limit in found):
                wrong.append((metric, subject, value))
    return wrong


def owes(bench, name):
    return {
        (metric, subject)
        for sort, names in BURNS[name].owes.items()
        for metric in names
        for subject in bench.parts("fabric", sort)
    }


# --- healthy racks -------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(20))
def test_a_healthy_node_of_any_seed_is_within_limits(make, seed):
    bench = make(seed=seed)
    for name in ALL:
        burnt = burn(bench, name)
        assert burnt.gaps == {}
        assert outside(bench.spec, burnt) == []
        have = {(m, s) for m, values in burnt.values.items() for s in values}
        assert owes(bench, name) <= have


@pytest.mark.parametrize("rack", ["gb300-nvl72", "catalina"])
def test_a_healthy_rack_is_within_limits(make, rack):
    bench = make(rack=rack)
    for name in ALL:
        burnt = burn(bench, name)
        assert burnt.gaps == {}
        assert outside(bench.spec, burnt) == []


def test_the_same_rack_seed_and_order_give_the_same_record(make):
    first, second = make(), make()
    for name in ALL:
        assert burn(first, name).seen == burn(second, name).seen


def test_the_burns_take_the_time_that_is_planned(make):
    bench = make()
    for name in ALL:
        before = bench.now()
        burn(bench, name)
        planned = BURNS[name].seconds["acceptance"]
        assert planned * 0.5 <= bench.now() - before <= planned + 10.0


# --- power.steady --------------------------------------------------------------------------------
def test_steady_power_is_that_of_the_counter(make):
    burnt = burn(make(), "power.steady")
    assert burnt.values["power.steady"][GPU] == pytest.approx(700.0, rel=1e-3)
    assert burnt.values["power.agreement"][GPU] < 0.01


def test_the_samples_do_not_beat_with_the_sensor():
    assert not coincides(power.SAMPLE_S)
    assert not coincides(power.SAMPLED_S)
    assert min(power.SAMPLE_S, power.SAMPLED_S) >= SENSOR_S
    assert min(power.STEADY.values()) >= 120.0


@pytest.mark.parametrize(
    ("fault", "metrics_"),
    [
        (f"power-cap-out-of-band@{GPU}", {"power.steady"}),
        (f"power-brake@{GPU}", {"power.steady", "throttled.brake.share"}),
        (
            f"thermal-throttle@{GPU}",
            {"power.steady", "throttled.thermal.share", "thermal.margin"},
        ),
    ],
)
def test_a_gpu_that_is_held_down_is_seen_and_no_other(make, fault, metrics_):
    bench = make(fault)
    found = outside(bench.spec, burn(bench, "power.steady"))
    assert {metric for metric, _, _ in found} == metrics_
    assert {subject for _, subject, _ in found} == {GPU}


def test_a_power_sensor_that_is_away_leaves_the_rest(make):
    bench = make(f"sensor-missing@{GPU}:metric=power")
    burnt = burn(bench, "power.steady")
    assert burnt.gaps["power.agreement"].keys() == {GPU}
    assert GPU in burnt.values["power.steady"]
    assert burnt.values["gpu.present"][GPU] == 1


def test_an_energy_counter_that_lies_is_seen(make, monkeypatch):
    bench = make()
    read = bench.devices[GPU].telemetry.read

    def lies(metric):
        found = read(metric)
        return found * 0.9 if metric == "power.energy" else found

    monkeypatch.setattr(bench.devices[GPU].telemetry, "read", lies)
    found = outside(bench.spec, burn(bench, "power.steady"))
    assert [(metric, subject) for metric, subject, _ in found] == [("power.agreement", GPU)]


# --- power.cap -----------------------------------------------------------------------------------
def limits_of(bench):
    return {s: d.telemetry.power_limits().requested for s, d in bench.devices.items()}


def test_the_limits_that_were_there_come_back(make):
    bench = make()
    bench.devices[GPU].telemetry.set_power_limit(650.0)
    before = limits_of(bench)
    burnt = burn(bench, "power.cap")
    assert limits_of(bench) == before
    assert before[GPU] == 650.0
    assert set(burnt.values["power.cap.restored"].values()) == {1}


def test_a_cap_that_is_ignored_is_not_held(make):
    bench = make(f"power-cap-ignored@{GPU}")
    found = outside(bench.spec, burn(bench, "power.cap"))
    assert [(m, s) for m, s, _ in found] == [("power.cap.held", GPU)]
    assert found[0][2] == pytest.approx(1 / min(power.STEPS), rel=0.01)
    assert bench.planted.fired == [1]


def test_a_cap_from_outside_is_read_back(make):
    bench = make(f"power-cap-out-of-band@{GPU}")
    found = outside(bench.spec, burn(bench, "power.cap"))
    assert found == [("power.cap.readback", GPU, 0)]


def test_a_gpu_that_takes_no_limit_is_missing_and_the_others_go_on(make, monkeypatch):
    bench = make()

    def refuses(watts):
        msg = f"no {watts} W"
        raise Unsupported(msg)

    monkeypatch.setattr(bench.devices[GPU].telemetry, "set_power_limit", refuses, raising=False)
    burnt = burn(bench, "power.cap")
    assert burnt.gaps["power.cap.held"].keys() == {GPU}
    assert burnt.values["power.cap.held"].keys() == bench.devices.keys() - {GPU}
    assert limits_of(bench) == dict.fromkeys(bench.devices, 700.0)


def test_without_a_power_sensor_a_cap_is_read_back_all_the_same(make):
    bench = make(f"sensor-missing@{GPU}:metric=power")
    burnt = burn(bench, "power.cap")
    assert {metric for metric in burnt.gaps if GPU in burnt.gaps[metric]} == {"power.cap.held"}
    assert burnt.values["power.cap.readback"][GPU] == burnt.values["power.cap.restored"][GPU] == 1


def test_an_exception_in_the_middle_puts_all_back(make, monkeypatch):
    bench, calls = make(), []
    step = power.Together.step

    def breaks(self, seconds, work):
        calls.append(seconds)
        if len(calls) == 25:
            msg = "the tester itself"
            raise RuntimeError(msg)
        return step(self, seconds, work)

    monkeypatch.setattr(power.Together, "step", breaks)
    burnt = burn(bench, "power.cap")
    assert {gap.why for gap in burnt.gaps["power.cap.held"].values()} == {Why.CRASHED}
    assert limits_of(bench) == dict.fromkeys(bench.devices, 700.0)


def test_a_limit_that_cannot_be_put_back_is_said(make, monkeypatch):
    bench = make()
    set_ = bench.devices[GPU].telemetry.set_power_limit

    def sticks(watts):
        if watts == 700.0 and bench.devices[GPU].telemetry.power_limits().requested == 700.0:
            return 700.0  # the last step of the burn
        if watts == 650.0:
            msg = "it sticks"
            raise DeviceError(msg)
        return set_(watts)

    set_(650.0)
    monkeypatch.setattr(bench.devices[GPU].telemetry, "set_power_limit", sticks, raising=False)
    burnt = burn(bench, "power.cap")
    assert burnt.values["power.cap.restored"][GPU] == 0
    assert burnt.values["power.cap.restored"][OTHER] == 1


def test_on_real_gpus_nothing_is_touched_without_leave(make, monkeypatch):
    bench, asked = make(), []
    monkeypatch.setattr(bench, "source", "real")
    monkeypatch.setattr(power, "ask", lambda device, watts: asked.append((device, watts)))
    burnt = burn(bench, "power.cap")
    assert asked == []
    gap = burnt.gaps["power.cap.held"][GPU]
    assert gap.why is Why.NOT_PERMITTED
    assert "--allow power.cap" in gap.cure
    burn(bench, "power.cap", allowed=("power.cap",))
    assert asked != []


SCRIPT = """
import sys
from pathlib import Path
from rackproof.harness.burns import BURNS, Settings, execute, power
from rackproof.harness.burns.lease import Patience
from rackproof.harness.devices import connect
from rackproof.harness.spec import load

bench = connect(load("hgx-h100"), state_dir=Path(sys.argv[1]))
wait = power.Together.wait

def stops(self, seconds):
    wait(self, seconds)
    if any(d.telemetry.power_limits().requested < 700 for d in self.crew.devices.values()):
        print("capped", flush=True)
        while True:  # as a driver that takes its time; each call looks at the lease
            for device in self.crew.devices.values():
                device.telemetry.read("temperature")

power.Together.wait = stops
execute(BURNS["power.cap"], bench, "fabric", Settings("acceptance", 1, patience=Patience(grace=60)))
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_in_the_middle_puts_all_back(tmp_path: Path, number):
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout is not None
    assert child.stdout.readline() == b"capped\n"
    driver = EmulatedDriver(tmp_path / "driver.state")
    try:
        assert set(driver.rows["limit_requested_mw"].tolist()) == {595_000}
        os.kill(child.pid, number)
        assert child.wait() != 0
        assert set(driver.rows["limit_requested_mw"].tolist()) == {700_000}
    finally:
        driver.close()
        child.stdout.close()
    if number != signal.SIGINT:
        assert child.returncode == -number


def test_a_burn_that_is_over_puts_all_back(make):
    bench = make()
    burnt = burn(bench, "power.cap", patience=Patience(factor=0.2, floor=0.0))
    assert {gap.why for gap in burnt.gaps["power.cap.held"].values()} == {Why.TIMED_OUT}
    assert limits_of(bench) == dict.fromkeys(bench.devices, 700.0)


def test_what_was_not_changed_is_not_put_back(make):
    bench = make()
    kept = power.Kept(Crew(bench, tuple(bench.devices)))
    bench.devices[GPU].telemetry.set_power_limit(500.0)
    kept.restore()
    assert limits_of(bench)[GPU] == 500.0


# --- thermal.soak --------------------------------------------------------------------------------
def test_a_line_has_its_slope():
    times = [float(n) for n in range(0, 120, 3)]
    assert thermal.slope(times, [50.0 + t / 60.0 for t in times]) == pytest.approx(1.0)
    assert thermal.slope(times, [50.0 for _ in times]) == pytest.approx(0.0)


def test_a_soak_ends_at_the_steady_temperature(make):
    burnt = burn(make(), "thermal.soak")
    assert burnt.values["thermal.soak.temperature"][GPU] == 65.0
    assert burnt.values["thermal.soak.slope"][GPU] == pytest.approx(0.0, abs=1e-6)


def test_a_die_that_rises_to_the_end_is_seen(make, monkeypatch):
    bench = make()
    telemetry, clock = bench.devices[GPU].telemetry, bench.devices[GPU].clock
    read = telemetry.read

    def rises(metric):
        return 40.0 + clock.now() / 200.0 if metric == "temperature" else read(metric)

    monkeypatch.setattr(telemetry, "read", rises)
    found = outside(bench.spec, burn(bench, "thermal.soak"))
    assert [(metric, subject) for metric, subject, _ in found] == [("thermal.soak.slope", GPU)]
    assert found[0][2] == pytest.approx(0.3)


def test_without_coolant_all_gpus_of_that_rack_and_no_other_are_hot(make):
    bench = make("coolant-loss@rack1/cooling", rack="catalina")
    found = outside(bench.spec, burn(bench, "thermal.soak"))
    assert {subject for _, subject, _ in found} == {s for s in bench.devices if "rack1" in s}
    assert {metric for metric, _, _ in found} == {"thermal.margin", "throttled.thermal.share"}


def test_a_thermometer_that_is_away_is_missing(make):
    bench = make(f"sensor-missing@{GPU}")
    burnt = burn(bench, "thermal.soak")
    assert burnt.gaps["thermal.soak.slope"].keys() == {GPU}
    assert burnt.values["gpu.present"][GPU] == 1
