"""hbm.bandwidth and copy.*: what is moved, what is compared, and when PCIe is looked at."""

import pytest

from rackproof.harness.burns import BURNS, Settings
from rackproof.harness.devices.protocol import Moved
from rackproof.harness.errors import DeviceError, Lost, TimedOut, Unsupported
from rackproof.harness.model import Why

COPIES = ["copy.h2d", "copy.d2h", "copy.both"]
SIZE = 1 << 20


@pytest.fixture
def bench(bench):
    bench.device.telemetry.readings |= {"pcie.gen": 5, "pcie.width": 16, "pcie.replays": 7}
    return bench


# --- hbm.bandwidth --------------------------------------------------------------------------------
def test_copy_and_triad_are_rates_of_their_own(bench):
    outcome = bench.burn("hbm.bandwidth")
    assert bench.device.plane.log == ["stream copy", "stream triad"]
    assert outcome.gaps == {}
    assert outcome.values["hbm.bandwidth"] == pytest.approx(8 * SIZE / 1.0 / 1e9)
    assert outcome.values["hbm.triad"] == outcome.values["hbm.bandwidth"]
    assert outcome.values["hbm.wrong"] == 0
    assert outcome.values["ecc.corrected.delta"] == 0


def test_wrong_words_of_both_streams_add_up(bench):
    bench.device.plane.at = {0: 3, 1: 4}
    assert bench.burn("hbm.bandwidth").values["hbm.wrong"] == 7


def test_wrong_words_before_an_error_stay_seen(bench):
    bench.device.plane.at = {0: 3, 1: TimedOut("slow")}
    outcome = bench.burn("hbm.bandwidth")
    assert outcome.values["hbm.wrong"] == 3
    assert outcome.values["hbm.bandwidth"] > 0
    assert outcome.gaps["hbm.triad"].why is Why.TIMED_OUT


def test_no_wrong_word_before_an_error_is_no_reading(bench):
    bench.device.plane.at = {1: DeviceError("odd")}
    assert "hbm.wrong" not in bench.burn("hbm.bandwidth").values


def test_corrected_errors_while_data_stream_are_the_burns(bench):
    bench.device.telemetry.readings["ecc.corrected.volatile"] = [5, 9]
    assert bench.burn("hbm.bandwidth").values["ecc.corrected.delta"] == 4


@pytest.mark.parametrize("burn", ["hbm.bandwidth", "copy.h2d"])
def test_what_took_no_time_has_no_rate(bench, burn):
    bench.device.plane.seconds = 0.0
    outcome = bench.burn(burn)
    metric = "hbm.bandwidth" if burn == "hbm.bandwidth" else "copy.h2d.rate"
    assert metric not in outcome.values
    assert "took no time" in outcome.gaps[metric].reason


def test_what_moved_nothing_has_no_rate(bench):
    bench.device.plane.transfer = lambda *_: Moved(0, 1.0)
    assert "copy.h2d.rate" not in bench.burn("copy.h2d").values


# --- copy.* ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("burn", COPIES)
def test_a_copy_is_a_rate_and_a_comparison(bench, burn):
    outcome = bench.burn(burn, settings=Settings("acceptance", 3))
    assert outcome.gaps == {}
    assert outcome.values[f"{burn}.rate"] == pytest.approx(SIZE / 6.0 / 1e9)
    assert outcome.values["copy.wrong"] == 0
    assert outcome.values["pcie.replays.delta"] == 0
    assert (outcome.values["pcie.gen.loaded"], outcome.values["pcie.width.loaded"]) == (5, 16)


def test_words_that_arrive_wrong_are_counted(bench):
    bench.device.plane.at = {0: 2}
    assert bench.burn("copy.d2h").values["copy.wrong"] == 2


def test_each_attempt_moves_fresh_data(bench):
    for attempt in (1, 2):
        bench.burn("copy.h2d", attempt=attempt)
    assert len(set(bench.device.plane.log)) == 2


def test_replays_are_the_burns_own(bench):
    bench.device.telemetry.readings["pcie.replays"] = [1000, 1003]
    assert bench.burn("copy.h2d").values["pcie.replays.delta"] == 3


def test_the_link_is_read_while_data_move_and_at_no_other_time(bench):
    readings = bench.device.telemetry.readings
    readings |= {"pcie.gen": 1, "pcie.width": 1}

    def loaded(watch):
        readings.update({"pcie.gen": 5, "pcie.width": 16})
        watch()
        readings.update({"pcie.gen": 1, "pcie.width": 1})

    bench.device.plane.while_loaded = loaded
    values = bench.burn("copy.h2d").values
    assert (values["pcie.gen.loaded"], values["pcie.width.loaded"]) == (5, 16)


@pytest.mark.parametrize(("read", "noted"), [([1, 5, 5], 5), ([5, 5, 4], 4), ([3], 3)])
def test_the_first_look_may_come_while_the_link_is_on_its_way_up(bench, read, noted):
    bench.device.telemetry.readings["pcie.gen"] = list(read)
    bench.device.plane.while_loaded = lambda watch: [watch() for _ in read]
    assert bench.burn("copy.h2d").values["pcie.gen.loaded"] == noted


def test_a_plane_that_lets_nobody_look_leaves_the_link_unknown(bench):
    bench.device.plane.while_loaded = lambda _watch: None
    outcome = bench.burn("copy.h2d")
    assert "nobody looked" in outcome.gaps["pcie.gen.loaded"].reason
    assert outcome.values["copy.h2d.rate"] > 0


def test_a_link_that_is_not_told_is_missing_with_the_drivers_reason(bench):
    bench.device.telemetry.readings["pcie.gen"] = Unsupported("N/A")
    outcome = bench.burn("copy.h2d")
    assert outcome.gaps["pcie.gen.loaded"].why is Why.NOT_SUPPORTED
    assert outcome.values["pcie.width.loaded"] == 16


def test_a_gpu_that_is_lost_while_data_move_is_lost(bench):
    bench.device.telemetry.readings["pcie.gen"] = Lost("gone")
    outcome = bench.burn("copy.h2d")
    assert outcome.values["gpu.present"] == 0
    assert outcome.gaps["copy.h2d.rate"].why is Why.LOST


def test_a_quick_level_copies_one_way_at_a_time():
    assert [id_ for id_ in COPIES if "quick" in BURNS[id_].seconds] == COPIES[:2]
    assert "quick" in BURNS["hbm.bandwidth"].seconds
