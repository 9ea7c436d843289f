"""power.smoothing on an emulated node of eight GPUs, and on a rack."""

import pytest

from rackproof.diagnostics.checks import OURS
from rackproof.diagnostics.limits import Limits, shipped
from rackproof.harness.burns import BURNS, Settings, execute, power_smoothing
from rackproof.harness.burns.lease import Patience
from rackproof.harness.burns.power_smoothing import chosen, lacks
from rackproof.harness.devices import connect
from rackproof.harness.devices.protocol import Smoothing, SmoothingProfile
from rackproof.harness.errors import DeviceError, OverTime
from rackproof.harness.model import Measurement, Missing, Why
from rackproof.harness.power import together
from rackproof.harness.spec import load

GPU, OTHER = "rack0/tray00/gpu1", "rack0/tray00/gpu0"
STATE = {"active": 0, "lifetime": 1.0, "low": 0.2, "high": 0.9}


@pytest.fixture
def make():
    made = []

    def connected(rack="hgx-b200"):
        bench = connect(load(rack), seed=7)
        made.append(bench)
        return bench

    yield connected
    for bench in made:
        bench.close()


def burn(bench, **settings):
    """Run it once; return (values, gaps), each by (metric, subject)."""
    given = Settings("acceptance", 7, **settings)
    seen = execute(BURNS["power.smoothing"], bench, "fabric", given)
    values = {(s.metric, s.subject): s.value for s in seen if isinstance(s, Measurement)}
    return values, {(s.metric, s.subject): s for s in seen if isinstance(s, Missing)}


def outside(values):
    """Return what the limits that ship do not allow."""
    limits = Limits(tuple(shipped()))
    return {
        key
        for key, value in values.items()
        for limit in limits.of(key[0], key[1], None)
        if limit.layer in OURS and not limit.allows(value)
    }


def state_of(bench, subject=GPU):
    state = bench.devices[subject].telemetry.smoothing()
    return state.enabled, state.active


def test_the_swing_that_is_left_is_that_above_the_floor(make):
    bench = make()
    values, gaps = burn(bench)
    assert gaps == {}
    assert outside(values) == set()
    assert values["power.smoothing.bare", GPU] == pytest.approx(1000.0 - 190.0, rel=0.03)
    assert values["power.smoothing.swing", GPU] == pytest.approx(0.2 * 1000.0, rel=0.1)
    assert values["power.smoothing.excess", GPU] == pytest.approx(0.0, abs=0.02)
    assert values["power.smoothing.floor", GPU] == pytest.approx(0.8)
    assert values["power.smoothing.restored", GPU] == 1


def test_a_floor_that_is_ignored_is_seen_on_that_gpu_alone(make):
    bench = make()
    bench.backing.rack.gpus[GPU].keeps_floor = False
    values, _ = burn(bench)
    assert outside(values) == {("power.smoothing.excess", GPU)}
    assert values["power.smoothing.excess", GPU] > 0.5


def test_it_is_put_back_and_the_wear_is_said(make):
    bench = make()
    bench.devices[GPU].telemetry.set_smoothing(enabled=False, profile=3)
    values, _ = burn(bench)
    assert state_of(bench) == (False, 3)
    assert values["power.smoothing.lifetime", GPU] == pytest.approx(99.0)


def test_one_that_was_on_stays_on_and_has_nothing_to_compare_with(make):
    bench = make()
    bench.devices[GPU].telemetry.set_smoothing(enabled=True, profile=0)
    values, _ = burn(bench)
    assert state_of(bench) == (True, 0)
    assert ("power.smoothing.bare", GPU) not in values
    assert ("power.smoothing.bare", OTHER) in values
    assert values["power.smoothing.excess", GPU] == pytest.approx(0.0, abs=0.02)


@pytest.mark.parametrize(("left", "refused"), [(19, True), (20, False)])
def test_a_circuit_that_is_worn_is_not_worn_any_more(make, left, refused):
    bench = make()
    bench.backing.rack.gpus[GPU].row["smoothing_lifetime"] = left
    values, gaps = burn(bench)
    assert (("power.smoothing.excess", GPU) in gaps) is refused
    assert ("power.smoothing.excess", OTHER) in values
    assert int(bench.backing.rack.gpus[GPU].row["smoothing_lifetime"]) == left - (not refused)
    if refused:
        assert "refused below 20%" in gaps["power.smoothing.excess", GPU].reason


def test_a_gpu_without_smoothing_says_so_and_the_others_go_on(make):
    bench = make()
    bench.backing.rack.gpus[GPU].row["smoothing_supported"] = 0
    values, gaps = burn(bench)
    assert gaps["power.smoothing.excess", GPU].why is Why.NOT_SUPPORTED
    assert ("power.smoothing.excess", OTHER) in values
    assert values["gpu.present", GPU] == values["xid.count", OTHER] + 1 == 1


def test_a_gpu_that_does_not_take_it_is_missing(make, monkeypatch):
    bench = make()
    telemetry = bench.devices[GPU].telemetry
    state = telemetry.smoothing()
    monkeypatch.setattr(telemetry, "set_smoothing", lambda **_: state, raising=False)
    values, gaps = burn(bench)
    assert "after it was asked on" in gaps["power.smoothing.excess", GPU].reason
    assert ("power.smoothing.excess", OTHER) in values


def test_one_that_cannot_be_put_back_is_said(make, monkeypatch):
    bench = make()
    telemetry = bench.devices[GPU].telemetry
    set_ = telemetry.set_smoothing

    def sticks(*, enabled, profile):
        if not enabled:
            msg = "it sticks"
            raise DeviceError(msg)
        return set_(enabled=enabled, profile=profile)

    monkeypatch.setattr(telemetry, "set_smoothing", sticks, raising=False)
    values, _ = burn(bench)
    assert outside(values) == {("power.smoothing.restored", GPU)}


@pytest.mark.parametrize("error", [RuntimeError, OverTime])
def test_whatever_ends_it_puts_all_back(make, monkeypatch, error):
    bench, calls = make(), []
    step = together.Together.step

    def breaks(self, seconds, work):
        calls.append(seconds)
        if any(state_of(bench, subject)[0] for subject in bench.devices) and len(calls) > 60:
            msg = "the end"
            raise error(msg)
        return step(self, seconds, work)

    monkeypatch.setattr(power_smoothing.Together, "step", breaks)
    _, gaps = burn(bench)
    assert ("power.smoothing.excess", GPU) in gaps
    assert {state_of(bench, subject) for subject in bench.devices} == {(False, 0)}


def test_a_burn_that_is_over_puts_all_back(make):
    bench = make()
    _, gaps = burn(bench, patience=Patience(factor=0.6, floor=0.0))
    assert gaps["power.smoothing.excess", GPU].why is Why.TIMED_OUT
    assert {state_of(bench, subject) for subject in bench.devices} == {(False, 0)}


def test_on_real_gpus_nothing_is_touched_without_leave(make, monkeypatch):
    bench = make()
    monkeypatch.setattr(bench, "source", "real")
    _, gaps = burn(bench)
    gap = gaps["power.smoothing.excess", GPU]
    assert gap.why is Why.NOT_PERMITTED
    assert "--allow power.smoothing" in gap.cure
    assert int(bench.backing.rack.gpus[GPU].row["smoothing_lifetime"]) == 100
    values, _ = burn(bench, allowed=("power.smoothing",))
    assert ("power.smoothing.excess", GPU) in values


def test_without_a_power_sensor_nothing_is_known(make, monkeypatch):
    bench = make()
    telemetry = bench.devices[GPU].telemetry
    read = telemetry.read

    def blind(metric):
        if metric == "power.instant":
            msg = "it is away"
            raise DeviceError(msg)
        return read(metric)

    monkeypatch.setattr(telemetry, "read", blind)
    values, gaps = burn(bench)
    assert gaps["power.smoothing.excess", GPU].reason == "it is away"
    assert values["power.smoothing.restored", GPU] == 1


def test_a_rack_says_which_line_is_left(make):
    values, _ = burn(make("gb300-nvl72"))
    assert values["power.smoothing.line", "rack0/power"] < 0.3 * 72 * 1225.0 * 2 / 3.14159


@pytest.mark.parametrize(
    ("rack", "said"), [("hgx-h100", "came with Blackwell"), ("gb300-nvl72", ""), ("vr-nvl72", "")]
)
def test_which_racks_can_have_it(rack, said):
    assert said in lacks(load(rack))
    assert bool(said) is bool(lacks(load(rack)))


def test_the_profile_of_the_highest_floor_is_chosen():
    profiles = tuple(SmoothingProfile(floor, 1.0, 1.0, 1.0) for floor in (0.5, 0.9, 0.2))
    state = Smoothing(enabled=False, profiles=profiles, **STATE)
    assert chosen(state) == 1
    for none in ((), (SmoothingProfile(0.0, 1.0, 1.0, 1.0),)):
        with pytest.raises(DeviceError, match="no profile"):
            chosen(Smoothing(enabled=False, profiles=none, **STATE))


def test_a_profile_that_holds_for_too_short_cannot_be_judged(make):
    bench = make()
    for gpu in bench.backing.rack.gpus.values():
        gpu.row["smoothing_profiles"][:, 3] = 10  # ms
    _, gaps = burn(bench)
    assert "too short for a wave" in gaps["power.smoothing.excess", GPU].reason
