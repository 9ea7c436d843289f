"""A zone over NVML: powers by energy, limits read back, written down before and put back after."""

import numpy as np
import pytest

from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices import connect, source_of
from rackproof.harness.devices.attached import attach, of_bench, uuids_of
from rackproof.harness.devices.emulated.driver_state import Flag, Sensor
from rackproof.harness.devices.real import put_back
from rackproof.harness.errors import DeviceError
from rackproof.harness.journal import Journal
from rackproof.harness.power.meter import ToldMeter
from rackproof.harness.power.nvml_zone import NvmlZone
from rackproof.harness.power.zone import TOP, Layout, Meters
from rackproof.harness.spec import load

GPUS, LOST, HIGH, LOW = 8, 3, 700.0, 200.0


class Rack:
    """An emulated node, a second opening of its driver by UUID, and a zone over that."""

    def __init__(self, folder):
        self.bench = connect(load("hgx-h100"), seed=1, state_dir=folder)
        self.rows = self.bench.backing.rack.driver.rows
        self.clock = VirtualClock(100.0)
        self.folder = folder / "journal"
        self.meter = ToldMeter(1)
        self.layout = Layout(
            tuple(self.bench.devices), ("rack0/power",), np.zeros(GPUS, dtype=np.intp),
            np.array([TOP]), np.array([3000.0]),
        )  # fmt: skip
        self.gpus = attach(source_of(self.bench), uuids_of(self.bench), self.clock)
        self.zone = self.opened()

    def opened(self):
        journal = Journal(self.folder, put_back, listens=False)
        return NvmlZone(self.gpus, self.layout, self.meter, journal)

    def passes(self, seconds, watts):
        """Let time pass with each GPU drawing so much; W may be an array."""
        self.clock.advance(seconds)
        self.rows["energy_mj"] += np.rint(np.broadcast_to(watts, GPUS) * seconds * 1e3).astype("u8")

    def requested(self):
        return self.rows["limit_requested_mw"] / 1e3

    def files(self):
        return list(self.folder.glob("*.jsonl"))

    def close(self):
        self.zone.restore()
        self.gpus.close()
        self.bench.close()


@pytest.fixture
def rack(tmp_path):
    made = Rack(tmp_path)
    yield made
    made.close()


def caps(*watts, gpus=GPUS):
    """Return caps with those of the first GPUs given, NaN for the others."""
    return np.array([*watts, *[np.nan] * (gpus - len(watts))])


# --- looking -------------------------------------------------------------------------------------
def test_power_is_the_energy_between_two_looks(rack):
    for seconds, watts in ((0.5, np.arange(GPUS) * 100.0 + 50.0), (3.0, 640.0)):
        rack.passes(seconds, watts)
        sample = rack.zone.sample()
        assert sample.at == rack.clock.now()
        assert sample.seconds == pytest.approx(seconds)
        assert sample.gpu == pytest.approx(np.broadcast_to(watts, GPUS), rel=1e-6)
    assert rack.zone.problems == {}


def test_a_first_look_without_any_time_has_the_drivers_own_mean(rack):
    rack.rows["power_average_mw"] = 333_000
    assert rack.zone.sample().gpu == pytest.approx(333.0)


def test_two_looks_too_close_together_keep_the_mean_and_lose_no_energy(rack):
    rack.passes(1.0, 500.0)
    assert rack.zone.sample().gpu == pytest.approx(500.0)
    rack.passes(0.05, 900.0)
    sample = rack.zone.sample()
    assert (sample.gpu, sample.seconds) == (pytest.approx(500.0), pytest.approx(0.05))
    rack.passes(0.95, 500.0)
    assert rack.zone.sample().gpu == pytest.approx(0.05 * 900.0 + 0.95 * 500.0)


@pytest.mark.parametrize("seconds", [-50.0, -0.05])
def test_a_clock_that_is_set_back_begins_anew(rack, seconds):
    rack.passes(1.0, 500.0)
    rack.zone.sample()
    rack.rows["power_average_mw"] = 444_000
    rack.clock._now += seconds
    assert rack.zone.sample().gpu == pytest.approx(444.0)
    rack.passes(1.0, 600.0)
    assert rack.zone.sample().gpu == pytest.approx(600.0)


def test_what_cannot_be_read_is_nan_for_that_gpu_alone(rack):
    rack.passes(1.0, 500.0)
    rack.rows["flags"][LOST] = Flag.LOST
    rack.rows["missing"][4] = Sensor.ENERGY
    rack.rows["flags"][5] = Flag.HUNG
    sample = rack.zone.sample()
    assert np.flatnonzero(np.isnan(sample.gpu)).tolist() == [3, 4, 5]
    assert np.flatnonzero(np.isnan(sample.current)).tolist() == [3, 5]
    assert np.flatnonzero(np.isnan(sample.requested)).tolist() == [3, 5]
    assert sorted(rack.zone.problems) == [rack.layout.gpus[gpu] for gpu in (3, 4, 5)]
    rack.rows["flags"] = rack.rows["missing"] = 0
    rack.passes(1.0, 500.0)
    rack.zone.sample()  # its counter is known again
    rack.passes(1.0, 500.0)
    assert rack.zone.sample().gpu == pytest.approx(500.0)
    assert rack.zone.problems == {}


@pytest.mark.parametrize("change", [0, -5_000_000, 10**12])
def test_a_counter_that_is_stuck_or_jumps_is_no_reading(rack, change):
    rack.rows["energy_mj"] += 10_000_000
    rack.zone = rack.opened()
    rack.passes(1.0, np.where(np.arange(GPUS) == 2, 0.0, 500.0))
    rack.rows["energy_mj"][2] = int(rack.rows["energy_mj"][2]) + change
    sample = rack.zone.sample()
    assert np.flatnonzero(np.isnan(sample.gpu)).tolist() == [2]
    assert "stands still, or jumps" in rack.zone.problems[rack.layout.gpus[2]]


def test_the_feeds_are_what_was_told_and_only_once(rack):
    one = np.ones(1)
    told = Meters(one * 9000, one * 0.2, one * np.inf, one == 0.0, one * 12_000)
    rack.meter.tell(told)
    sample = rack.zone.sample()
    for name in Meters.__slots__:
        assert getattr(sample, name) == getattr(told, name)
    sample = rack.zone.sample()
    assert np.isnan([sample.feed, sample.strain, sample.trip_in, sample.limit]).all()
    assert sample.ac.all()


def test_meters_of_other_feeds_are_refused(rack):
    two = np.ones(2)
    with pytest.raises(ValueError, match="for 1 feeds"):
        rack.meter.tell(Meters(two, two, two, two > 0, two))


# --- acting --------------------------------------------------------------------------------------
def test_limits_are_set_and_read_back_and_put_back(rack):
    rack.rows["limit_requested_mw"][1] = 650_000
    got = rack.zone.ask(caps(400.0, 500.0))
    assert got[:2].tolist() == [400.0, 500.0]
    assert np.isnan(got[2:]).all()
    assert rack.requested()[:3].tolist() == [400.0, 500.0, HIGH]
    assert rack.zone.changed == 2
    assert len(rack.files()) == 1
    bounds = rack.zone.bounds()
    assert bounds.requested[:3].tolist() == [HIGH, 650.0, HIGH]  # what will be put back
    assert bounds.current[:3].tolist() == [400.0, 500.0, HIGH]
    assert (bounds.low[0], bounds.high[0], bounds.default[0]) == (LOW, HIGH, HIGH)
    assert rack.zone.restore() == ""
    assert rack.requested()[:3].tolist() == [HIGH, 650.0, HIGH]
    assert rack.files() == []


def test_a_limit_never_leaves_what_the_gpu_can_be_given(rack):
    assert rack.zone.ask(caps(10.0, 5000.0, -3.0))[:3].tolist() == [LOW, HIGH, LOW]
    got = rack.zone.ask(caps(np.inf, -np.inf))
    assert np.isnan(got).all()
    assert len(rack.zone.problems) == 2
    assert rack.requested()[:3].tolist() == [LOW, HIGH, LOW]


def test_an_error_of_one_gpu_never_stops_the_others(rack):
    rack.rows["flags"][0] = Flag.NO_PERMISSION
    rack.rows["flags"][LOST] = Flag.LOST
    got = rack.zone.ask(np.full(GPUS, 300.0))
    assert np.flatnonzero(np.isnan(got)).tolist() == [0, LOST]
    assert np.nanmax(got) == 300.0
    assert "Permission" in rack.zone.problems[rack.layout.gpus[0]]
    assert "lost" in rack.zone.problems[rack.layout.gpus[LOST]].lower()


def test_a_cap_out_of_band_is_seen_and_survives(rack):
    rack.rows["limit_out_of_band_mw"][2] = 350_000
    assert rack.zone.ask(np.full(GPUS, 400.0))[2] == 350.0
    sample = rack.zone.sample()
    assert (sample.requested[2], sample.current[2]) == (400.0, 350.0)
    assert rack.zone.restore() == ""
    assert rack.requested()[2] == HIGH
    assert rack.zone.sample().current[2] == 350.0


def test_nothing_is_changed_where_it_cannot_be_written_down(rack):
    rack.folder.write_text("a file where the folder ought to be")
    got = rack.zone.ask(np.full(GPUS, 300.0))
    assert np.isnan(got).all()
    assert (rack.requested() == HIGH).all()
    assert len(rack.zone.problems) == GPUS
    assert "nothing is changed" in rack.zone.problems[rack.layout.gpus[0]]


def test_what_cannot_be_put_back_stays_written_down_and_is_said(rack):
    rack.zone.ask(np.full(GPUS, 300.0))
    rack.rows["flags"][1] = Flag.NO_PERMISSION
    assert "1 limits could not be put back" in rack.zone.restore()
    assert len(rack.files()) == 1
    rack.rows["flags"][1] = 0
    assert rack.zone.restore() == ""
    assert (rack.requested() == HIGH).all()


def test_a_limit_that_is_in_force_already_is_not_set_again(rack, monkeypatch):
    rack.zone.ask(np.full(GPUS, 300.0))
    monkeypatch.setattr("pynvml.nvmlDeviceSetPowerManagementLimit", pytest.fail)
    assert rack.zone.ask(np.full(GPUS, 300.0)).tolist() == [300.0] * GPUS


def test_a_driver_that_ignores_is_read_back_as_it_is(rack, monkeypatch):
    monkeypatch.setattr("pynvml.nvmlDeviceSetPowerManagementLimit", lambda *_: None)
    assert rack.zone.ask(np.full(GPUS, 300.0)).tolist() == [HIGH] * GPUS
    assert rack.zone.problems == {}
    assert rack.zone.restore() == ""


# --- attaching -----------------------------------------------------------------------------------
def test_a_gpu_that_is_not_there_says_so_to_every_call(rack):
    uuids = {**uuids_of(rack.bench), "a": None, "b": "GPU-of-nobody"}
    gpus = attach(source_of(rack.bench), uuids, rack.clock)
    try:
        for subject in ("a", "b"):
            with pytest.raises(DeviceError, match=subject):
                gpus.telemetry[subject].read("power.energy")
        assert "a" not in gpus.uuids
        assert gpus.telemetry[rack.layout.gpus[0]].power_limits().high == HIGH
    finally:
        gpus.close()


def test_the_gpus_of_a_bench_make_the_same_zone(rack):
    journal = Journal(rack.folder, put_back, listens=False)
    zone = NvmlZone(of_bench(rack.bench, rack.clock), rack.layout, rack.meter, journal)
    rack.passes(1.0, 420.0)
    assert zone.sample().gpu == pytest.approx(420.0)
    assert zone.ask(caps(300.0))[0] == 300.0
    assert zone.restore() == ""
