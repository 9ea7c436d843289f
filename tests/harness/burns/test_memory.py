"""memory.*: what is written, what is verified, and what counts."""

import functools
import operator

import pytest

from rackproof.harness.burns import BURNS, Settings
from rackproof.harness.burns.memory import TESTS
from rackproof.harness.devices.patterns import word
from rackproof.harness.devices.protocol import Pattern, Verified
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


@pytest.mark.parametrize("burn", ALL)
def test_every_bit_is_read_as_a_one_and_as_a_zero(bench, burn):
    plane, seen = bench.device.plane, []
    plane.verify = lambda lo, hi, pattern: seen.append(pattern) or Verified((hi - lo) // 8, 0)
    plane.march = lambda lo, hi, _up, expect, _write: (
        seen.append(expect) or Verified((hi - lo) // 8, 0)
    )
    assert bench.burn(burn).values["memory.miscompares"] == 0
    patterns = {(p.kind, p.seed, p.invert, p.origin) for p in seen}
    for address in (0, 8 * 77):
        words = [word(Pattern(*pattern), address) for pattern in patterns]
        assert functools.reduce(operator.or_, words) == 2**64 - 1
        assert functools.reduce(operator.and_, words) == 0


def test_8_bit_inversions_go_up_with_the_pattern_and_down_with_its_inverse(bench):
    bench.burn("memory.inversions8")
    log = [line for line in bench.device.plane.log if line not in ("claim", "release")]
    seeds = [0x0101_0101_0101_0101 << bit for bit in range(8)]
    assert log[0] == f"wc+{seeds[0]}"
    assert log[1:-1:2] == [f"up(rc+{seed},wc-{seed})" for seed in seeds]
    following = [*seeds[1:], seeds[0]]
    assert log[2:-1:2] == [
        f"down(rc-{one},wc+{two})" for one, two in zip(seeds, following, strict=True)
    ]


def test_walking_visits_every_bit_both_ways(bench):
    bench.burn("memory.walking")
    log = bench.device.plane.log
    assert sum(line.startswith("up(rc+") for line in log) == 63
    assert sum(line.startswith("down(rc-") for line in log) == 63
    assert log.count(f"down(rc+{1 << 63},wc-1)") == 1


def test_modulo20_puts_the_odd_word_in_each_place(bench):
    bench.burn("memory.modulo20", seed=3, attempt=2)
    read = [line for line in bench.device.plane.log if line.startswith("up(rm+")]
    assert read == [f"up(rm+{100 + n},wm-{100 + n})" for n in range(20)]


@pytest.mark.parametrize(("level", "seconds"), [("acceptance", 30), ("soak", 300)])
def test_fade_waits_after_each_fill(bench, level, seconds):
    outcome = bench.burn("memory.fade", settings=Settings(level, 3))
    log = bench.device.plane.log
    assert log[1:-1] == ["wr+4", f"wait {seconds}", "rr+4", "wr-4", f"wait {seconds}", "rr-4"]
    # The wait is no part of the rate: four passes of half a second.
    assert outcome.values["memory.rate"] == pytest.approx(4 * 2**20 / 2.0 / 1e9)


def test_block_copies_each_block_once_and_verifies_both_halves(bench):
    bench.burn("memory.block")
    log = bench.device.plane.log
    copies = [tuple(map(int, line.split()[1:])) for line in log if line.startswith("copy")]
    size = 2**16
    there, back = copies[:8], copies[8:]
    assert sorted(lo for lo, _, _ in there) == [size * n for n in range(8)]
    assert sorted(to for _, _, to in there) == [2**19 + size * n for n in range(8)]
    assert [lo for lo, _, _ in there] != [to - 2**19 for _, _, to in there]
    assert all(hi - lo == size for lo, hi, _ in copies)
    assert back == [(to, to + size, lo) for lo, _, to in there]


def test_a_quick_level_leaves_the_long_tests_out():
    short = {id_ for id_ in ALL if "quick" in BURNS[id_].seconds}
    assert short == {"memory.address", "memory.inversions", "memory.march", "memory.random"}
    assert all({"acceptance", "soak"} <= set(BURNS[id_].seconds) for id_ in ALL)


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
