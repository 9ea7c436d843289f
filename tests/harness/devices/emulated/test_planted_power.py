"""The faults of power and cooling, as GPUs feel them."""

import pytest

GPU, OTHER = "rack0/tray01/gpu2", "rack0/tray00/gpu0"
COOLING = "rack0/cooling"


def loaded(device, seconds=5.0, check="power.steady", attempt=1):
    """Load a GPU fully for a while; return its power and the driver's word for it."""
    device.begin(check, attempt)
    device.plane.load(1.0)
    device.wait(seconds)
    found = {m: device.telemetry.read(m) for m in ("power.instant", "throttle.thermal", "clock.sm")}
    device.end()
    return found


@pytest.mark.parametrize(("text", "watts"), [("", 980.0), (":watts=600", 600.0)])
def test_a_cap_out_of_band_is_in_force_and_not_what_was_asked_for(make, text, watts):
    bench, planted = make(f"power-cap-out-of-band@{GPU}{text}")
    telemetry = bench.devices[GPU].telemetry
    limits = telemetry.power_limits()
    assert (limits.requested, limits.current) == (1400.0, watts)
    assert telemetry.read("power.limit.gap") == 1400.0 - watts
    assert loaded(bench.devices[GPU])["power.instant"] == pytest.approx(watts, rel=0.01)
    assert telemetry.throttled("sw_power") > 4.0
    assert bench.devices[OTHER].telemetry.throttled("sw_power") == 0.0
    assert planted.fired == [1]


def test_the_lower_of_the_two_limits_is_in_force(make):
    bench, _ = make(f"power-cap-out-of-band@{GPU}:watts=900")
    device = bench.devices[GPU]
    assert device.telemetry.set_power_limit(800.0) == 800.0
    assert device.telemetry.read("power.limit.gap") == 0.0
    assert device.telemetry.set_power_limit(1000.0) == 900.0
    assert device.telemetry.read("power.limit.gap") == 100.0


def test_a_cap_above_what_is_asked_for_is_felt_by_nobody(make, work):
    bench, planted = make(f"power-cap-out-of-band@{GPU}:watts=1400")
    loaded(bench.devices[GPU])
    work.look(bench.devices[GPU])
    assert bench.devices[GPU].telemetry.read("power.limit.gap") == 0.0
    assert planted.fired == [0]


def test_a_cap_out_of_band_lasts_as_long_as_it_says(make):
    bench, _ = make(f"power-cap-out-of-band@{GPU}:lasts=3")
    assert loaded(bench.devices[GPU], 4.0)["power.instant"] == pytest.approx(1400.0, rel=0.01)
    assert bench.devices[GPU].telemetry.read("power.limit.gap") == 0.0


def test_an_ignored_cap_is_said_and_not_kept(make):
    bench, planted = make(f"power-cap-ignored@{GPU}")
    device = bench.devices[GPU]
    assert loaded(device)["power.instant"] == pytest.approx(1400.0, rel=0.01)
    assert planted.fired == [0]
    assert device.telemetry.set_power_limit(900.0) == 900.0
    assert loaded(device, attempt=2)["power.instant"] == pytest.approx(1400.0, rel=0.01)
    assert planted.fired == [1]
    other = bench.devices[OTHER]
    other.telemetry.set_power_limit(900.0)
    assert loaded(other)["power.instant"] == pytest.approx(900.0, rel=0.01)


def test_without_coolant_every_gpu_of_the_rack_slows_down_and_the_cooling_says_so(make):
    bench, planted = make(f"coolant-loss@{COOLING}")
    for device in bench.devices.values():
        found = loaded(device, 30.0)
        assert found["throttle.thermal"] == 1
        assert found["power.instant"] < 300.0
        assert device.telemetry.read("thermal.margin") < 3
        assert device.telemetry.throttled("hw_thermal") > 15.0
    bench.around.begin("platform", 1)
    assert bench.around.read("cooling.flow", COOLING) == 0.0
    bench.around.end()
    assert planted.fired[0] > len(bench.devices)


def test_coolant_that_flows_again_takes_the_heat_away(make):
    bench, _ = make(f"coolant-loss@{COOLING}:lasts=20")
    device = bench.devices[GPU]
    device.begin("thermal.soak", 1)
    device.plane.load(1.0)
    device.wait(15.0)
    assert device.telemetry.read("throttle.thermal") == 1
    device.wait(60.0)
    assert device.telemetry.read("throttle.thermal") == 0
    assert device.telemetry.read("temperature") == 65


def test_a_brake_moves_its_own_counter_alone(make):
    bench, _ = make(f"power-brake@{GPU}")
    loaded(bench.devices[GPU], 10.0)
    reasons = {r: bench.devices[GPU].telemetry.throttled(r) for r in ("power_brake", "sw_power")}
    assert reasons["power_brake"] >= 10.0
    assert reasons["sw_power"] == 0.0
