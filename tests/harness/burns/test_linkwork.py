"""What counters and copies come to: shares, deltas, wrong words, coverage, medians."""

import pytest

from rackproof.harness.burns.base import Run, Settings
from rackproof.harness.burns.linkwork import Copies, grown_by, shares
from rackproof.harness.devices.protocol import LinkCounters, Moved
from rackproof.harness.errors import DeviceError, Lost, Unsupported
from rackproof.harness.model import Measurement, Missing

GONE = Unsupported("no such counter")


def mark(*kib: object) -> list[LinkCounters]:
    return [LinkCounters(sent, 0, 0, 0) for sent in kib]


# --- counters ------------------------------------------------------------------------------------
def test_a_share_is_of_the_mean_of_the_gpus_links():
    assert shares([mark(10, 20, 30), mark(110, 70, 180)]) == [1.0, 0.5, 1.5]


def test_the_best_segment_counts():
    marks = [mark(0, 0), mark(100, 0), mark(200, 100), mark(200, 100)]
    assert shares(marks) == [2.0, 1.0]


def test_both_ways_count():
    marks = [
        [LinkCounters(0, 0, 0, 0)] * 2,
        [LinkCounters(30, 10, 0, 0), LinkCounters(0, 40, 0, 0)],
    ]
    assert shares(marks) == [1.0, 1.0]


def test_a_link_that_carried_nothing_has_the_share_zero_and_not_none():
    assert shares([mark(0, 0), mark(0, 8)]) == [0.0, 2.0]


def test_where_nothing_crossed_or_is_told_there_is_no_share():
    nothing = shares([mark(5, 5), mark(5, 5)])
    untold = shares([mark(0, GONE), mark(8, GONE)])
    assert [type(s) for s in nothing] == [DeviceError, DeviceError]
    assert untold == [1.0, GONE]


@pytest.mark.parametrize(
    ("first", "last", "grown"), [(3, 3, 0), (3, 10, 7), (GONE, 1, GONE), (1, GONE, GONE)]
)
def test_a_counter_grows_or_is_not_told(first, last, grown):
    found = grown_by(LinkCounters(0, 0, first, 0), LinkCounters(0, 0, last, 0), "errors")
    assert found == grown


def test_a_counter_that_went_back_is_no_reading():
    found = grown_by(LinkCounters(0, 0, 0, 9), LinkCounters(0, 0, 0, 2), "recoveries")
    assert isinstance(found, DeviceError)
    assert "went back from 9 to 2" in str(found)


# --- copies --------------------------------------------------------------------------------------
GPUS = ("a", "b", "c", "d")


def copies(
    rate: dict[str, float] | None = None, wrong: dict | None = None, failed: tuple = ()
) -> Copies:
    """All copies among GPUS, at the slower end's rate; those of an end in `failed` cannot."""
    made = Copies()
    for a in GPUS:
        for b in GPUS:
            if a == b:
                continue
            if {a, b} & set(failed):
                made.add({(a, b): DeviceError(f"{failed[0]} cannot")})
                continue
            speed = min((rate or {}).get(a, 100.0), (rate or {}).get(b, 100.0))
            made.add({(a, b): Moved(round(speed * 1e9), 1.0, (wrong or {}).get((a, b), 0))})
    return made


def noted(made: Copies, *, extras: bool = True) -> tuple[dict, dict]:
    notes = Run("link.pair", "fabric", Settings("quick", 1))
    made.note("link.pair", GPUS, notes, extras=extras)
    values = {(s.subject, s.metric): s.value for s in notes.seen if isinstance(s, Measurement)}
    gaps = {(s.subject, s.metric): s.reason for s in notes.seen if isinstance(s, Missing)}
    return values, gaps


def test_one_slow_gpu_is_slow_and_its_partners_are_not():
    values, gaps = noted(copies({"b": 50.0}))
    assert gaps == {}
    assert {g: values[g, "link.pair.rate"] for g in GPUS} == {"a": 100, "b": 50, "c": 100, "d": 100}
    assert {values[g, "link.pair.worst"] for g in GPUS} == {50}


def test_wrong_words_are_the_end_s_with_more_bad_partners():
    sends_wrong = {("b", other): 5 for other in "acd"}
    gets_wrong = {(other, "b"): 5 for other in "acd"}
    for wrong in (sends_wrong, gets_wrong):
        values, _ = noted(copies(wrong=wrong))
        assert {g: values[g, "link.pair.wrong"] for g in GPUS} == {"a": 0, "b": 15, "c": 0, "d": 0}


def test_one_wrong_copy_is_the_senders():
    values, _ = noted(copies(wrong={("c", "a"): 2}))
    assert {g: values[g, "link.pair.wrong"] for g in GPUS} == {"a": 0, "b": 0, "c": 2, "d": 0}


def test_who_exchanges_with_nobody_is_alone_in_it():
    values, gaps = noted(copies(failed=("b",)))
    assert {g: values[g, "link.pair.coverage"] for g in GPUS} == {"a": 1, "b": 0, "c": 1, "d": 1}
    assert gaps == {("b", "link.pair.rate"): "b cannot", ("b", "link.pair.wrong"): "b cannot"}


def test_one_pair_that_fails_shows_at_both_ends():
    made = copies()
    for pair in (("a", "b"), ("b", "a")):
        del made.made[pair]
        made.add({pair: DeviceError("no path")})
    values, _ = noted(made)
    shown = {g: values[g, "link.pair.coverage"] for g in GPUS}
    assert shown == pytest.approx({"a": 2 / 3, "b": 2 / 3, "c": 1, "d": 1})


def test_where_all_fail_nothing_is_covered():
    values, _ = noted(copies(failed=GPUS))
    assert {values[g, "link.pair.coverage"] for g in GPUS} == {0.0}


def test_a_lost_gpu_is_told_from_another_trouble():
    assert Copies().add({("a", "b"): Lost("a is lost")})
    assert not Copies().add({("a", "b"): DeviceError("slow"), ("b", "a"): Moved(1, 1.0)})


def test_a_partner_that_was_lost_on_the_way_is_missed_by_nobody():
    made = copies()
    del made.made["a", "b"]
    made.add({("a", "b"): Lost("b is lost")})
    notes = Run("link.pair", "fabric", Settings("quick", 1))
    made.note("link.pair", ("a", "c", "d"), notes, extras=True)
    covered = [s.value for s in notes.seen if s.metric == "link.pair.coverage"]
    assert covered == [1.0, 1.0, 1.0]
