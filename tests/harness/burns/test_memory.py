"""memory.*: what is written, what is verified, and what counts."""

import pytest

from rackproof.harness.burns.memory import TESTS
from rackproof.harness.errors import DeviceError, Lost, TimedOut, Unsupported
from rackproof.harness.model import Why

ALL = [f"memory.{name}" for name in TESTS]


@pytest.mark.parametrize("burn", ALL)
def test_a_healthy_pass_covers_everything_and_gives_the_memory_back(bench, burn):
    outcome = bench.burn(burn)
    assert outcome.gaps == {}
    assert outcome.values["memory.coverage"] == pytest.approx(1.0)
    assert outcome.values["memory.miscompares"] == 0
    assert outcome.values["memory.rate"] > 0
    log = bench.device.plane.log
    assert (log[0], log[-1], log.count("release")) == ("claim", "release", 1)


def test_march_c_minus_is_what_the_book_says(bench):
    bench.burn("memory.march")
    assert bench.device.plane.log[1:-1] == [
        "w0", "up(r0,w1)", "up(r1,w0)", "down(r0,w1)", "down(r1,w0)", "r0",
    ]  # fmt: skip


def test_every_word_and_its_inverse_are_written_and_read(bench):
    for burn in ALL:
        bench.device.plane.log.clear()
        bench.burn(burn)
        log = bench.device.plane.log
        read = {
            part for line in log for part in line.replace("(", ",").split(",") if part[0] == "r"
        }
        read = {word.strip(")") for word in read} - {"release"}
        assert len(read) == 2, (burn, read)


def test_random_data_is_fresh_in_each_attempt(bench):
    bench.burn("memory.random", attempt=1)
    first = list(bench.device.plane.log)
    bench.device.plane.log.clear()
    bench.burn("memory.random", attempt=2)
    assert bench.device.plane.log != first


@pytest.mark.parametrize("burn", ALL)
def test_less_memory_claimed_is_less_coverage(bench, burn):
    bench.device.plane.claims //= 2
    assert bench.burn(burn).values["memory.coverage"] == pytest.approx(0.5)


def test_words_that_were_not_verified_are_not_covered(bench):
    bench.device.plane.verified = 0.25
    assert bench.burn("memory.march").values["memory.coverage"] == pytest.approx(0.25)


@pytest.mark.parametrize(("claims", "free"), [(0, 1.0), (1 << 20, 0.0)])
def test_no_memory_is_no_work_and_no_number(bench, claims, free):
    bench.device.plane.claims = claims
    bench.device.telemetry.readings["memory.free"] = free
    outcome = bench.burn("memory.march")
    assert "memory.coverage" not in outcome.values
    assert "no memory could be claimed" in outcome.gaps["memory.miscompares"].reason
    assert bench.device.plane.log[-1] == "release"


def test_miscompares_of_all_passes_add_up(bench):
    bench.device.plane.at = {1: 3, 5: 4}
    assert bench.burn("memory.march").values["memory.miscompares"] == 7


@pytest.mark.parametrize("error", [Lost("gone"), TimedOut("slow"), DeviceError("odd"), OSError()])
def test_the_memory_is_given_back_on_any_error(bench, error):
    bench.device.plane.at = {2: error}
    outcome = bench.burn("memory.march")
    assert bench.device.plane.log[-1] == "release"
    assert outcome.gaps["memory.coverage"].reason
    assert bench.device.ended == 1


def test_what_was_seen_before_an_error_stays_seen(bench):
    bench.device.plane.at = {1: 3, 2: TimedOut("slow")}
    outcome = bench.burn("memory.march")
    assert outcome.values["memory.miscompares"] == 3
    assert outcome.gaps["memory.coverage"].why is Why.TIMED_OUT


def test_zero_seen_before_an_error_is_no_reading(bench):
    bench.device.plane.at = {2: TimedOut("slow")}
    assert "memory.miscompares" not in bench.burn("memory.march").values


def test_free_memory_that_nobody_tells_is_unknown(bench):
    bench.device.telemetry.readings["memory.free"] = Unsupported("N/A")
    outcome = bench.burn("memory.march")
    assert "memory.coverage" not in outcome.values
    assert bench.device.plane.log == []


# --- the counters -------------------------------------------------------------------------------


def test_the_counters_growth_is_the_burns_own(bench):
    bench.device.telemetry.readings["ecc.corrected.volatile"] = [54_000_000_000, 54_000_000_063]
    values = bench.burn("memory.march").values
    assert (values["ecc.corrected.delta"], values["ecc.uncorrected.delta"]) == (63, 0)


def test_a_counter_that_went_back_is_no_reading(bench):
    bench.device.telemetry.readings["ecc.corrected.volatile"] = [9, 3]
    outcome = bench.burn("memory.march")
    assert "ecc.corrected.delta" not in outcome.values
    assert "went back from 9 to 3" in outcome.gaps["ecc.corrected.delta"].reason
    assert outcome.values["ecc.uncorrected.delta"] == 0


@pytest.mark.parametrize("readings", [[Unsupported("N/A"), 3], [3, Unsupported("N/A")]])
def test_a_counter_that_is_not_read_is_missing(bench, readings):
    bench.device.telemetry.readings["ecc.corrected.volatile"] = readings
    outcome = bench.burn("memory.march")
    assert outcome.gaps["ecc.corrected.delta"].why is Why.NOT_SUPPORTED
    assert "ecc.corrected.delta" not in outcome.values


def test_a_gpu_lost_at_the_last_counter_is_lost(bench):
    bench.device.telemetry.readings["ecc.corrected.volatile"] = [3, Lost("gone")]
    assert bench.burn("memory.march").values["gpu.present"] == 0
