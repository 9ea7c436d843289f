"""The burn boundary: whatever happens inside, everything owed comes out."""

import pytest

from rackproof.harness.burns import BURNS, Burn, Settings, plan
from rackproof.harness.burns.base import Run, why
from rackproof.harness.errors import (
    DeviceError,
    Lost,
    NotPermitted,
    NotPresent,
    SpecError,
    TimedOut,
    Unsupported,
)
from rackproof.harness.model import Event, Missing, Why

GPU = "rack0/tray00/gpu0"
OWES = {"gpu": ("temperature", "memory.rate", "xid.count"), "link": ("nvlink.active",)}


def burn_of(work, owes=OWES, host=None):
    return Burn("health", "a test", owes, {"quick": 1.0}, work, host)


def works(device, _bench, notes):
    for metric in ("temperature", "memory.rate"):
        notes.note(metric, 1)
    for n in range(2):
        notes.note("nvlink.active", 1, device.gpu.link(n))


def complete(outcome, owes=OWES):
    """All that is owed is there once, as a value or as Missing; and nothing else is Missing."""
    keys = [(s.subject, s.metric) for s in outcome.seen if not isinstance(s, Event)]
    owed = {(GPU, m) for m in (*owes.get("gpu", ()), "gpu.present")}
    owed |= {(f"{GPU}/link{n:02d}", m) for m in owes.get("link", ()) for n in range(2)}
    assert owed <= set(keys)
    assert len(set(keys)) == len(keys)
    missing = {(s.subject, s.metric) for s in outcome.seen if isinstance(s, Missing)}
    assert missing <= owed
    return outcome


def test_a_run_that_works_gives_all_that_is_owed(bench):
    outcome = complete(bench.burn(burn_of(works), attempt=2))
    assert outcome.gaps == {}
    assert outcome.values["gpu.present"] == 1
    assert {s.attempt for s in outcome.seen} == {2}
    assert bench.device.begun == [("health", 2)]
    assert bench.device.ended == 1


def test_a_reading_carries_the_metrics_unit_and_the_runs_window(bench):
    def work(device, _bench, notes):
        device.clock.advance(4.0)
        notes.note("temperature", 50)

    outcome = bench.burn(burn_of(work))
    (found,) = [s for s in outcome.seen if s.metric == "temperature"]
    assert (found.unit, found.window) == ("C", (100.0, 104.0))


def test_a_gpu_that_is_lost_in_the_middle_is_a_reading_and_the_rest_is_missing(bench):
    def work(_device, _bench, notes):
        notes.note("temperature", 50)
        notes.note("gpu.present", 1)
        msg = "gone"
        raise Lost(msg)

    outcome = complete(bench.burn(burn_of(work)))
    assert outcome.values["gpu.present"] == 0
    assert outcome.values["temperature"] == 50
    assert outcome.gaps["memory.rate"].why is Why.LOST
    assert outcome.gaps["nvlink.active"].cure
    assert bench.device.ended == 1


@pytest.mark.parametrize("where", ["begin", "events", "end"])
def test_it_may_be_lost_anywhere(bench, where):
    if where == "begin":
        bench.device.on_begin = Lost("gone")
    if where == "events":
        bench.device.telemetry.coming = [[], Lost("gone")]
    if where == "end":
        bench.device.on_end = Lost("gone")
    outcome = complete(bench.burn(burn_of(works)))
    assert outcome.values["gpu.present"] == 0
    assert bench.device.ended == 1


def test_a_gpu_that_is_not_there_is_a_reading(bench):
    bench.device.on_begin = NotPresent("no such GPU")
    outcome = complete(bench.burn(burn_of(works)))
    assert outcome.values == {"gpu.present": 0}
    assert "is not there" in outcome.gaps["temperature"].reason


@pytest.mark.parametrize(
    ("error", "word"),
    [
        (TimedOut("slow"), Why.TIMED_OUT),
        (NotPermitted("no"), Why.NOT_PERMITTED),
        (DeviceError("odd"), Why.NO_READING),
        (Unsupported("memory.free"), Why.NO_READING),
        (ValueError("x"), Why.CRASHED),
        (ZeroDivisionError(), Why.CRASHED),
        (RecursionError(), Why.CRASHED),
    ],
)
def test_any_exception_is_missing_with_its_reason_and_says_nothing_of_the_gpu(bench, error, word):
    def work(_device, _bench, notes):
        notes.note("temperature", 50)
        raise error

    outcome = complete(bench.burn(burn_of(work)))
    assert outcome.values == {"temperature": 50, "xid.count": 0}
    for metric in ("memory.rate", "gpu.present", "nvlink.active"):
        assert outcome.gaps[metric].why is word
        assert outcome.gaps[metric].reason
    assert bench.device.ended == 1


def test_a_gpu_that_cannot_be_left_clean_is_no_pass(bench):
    bench.device.on_end = DeviceError("still busy")
    outcome = complete(bench.burn(burn_of(works)))
    assert "gpu.present" not in outcome.values
    assert "still busy" in outcome.gaps["gpu.present"].reason


def test_an_interrupt_goes_through_and_the_gpu_is_left_clean(bench):
    def work(_device, _bench, _notes):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bench.burn(burn_of(work))
    assert bench.device.ended == 1


def test_a_burn_that_gives_nothing_passes_nothing(bench):
    outcome = complete(bench.burn(burn_of(lambda *_: None)))
    assert set(outcome.values) == {"xid.count", "gpu.present"}
    assert outcome.gaps["temperature"].reason == "the burn gave no value"


# --- events -------------------------------------------------------------------------------------

XID = Event(GPU, "xid.48", "DBE")


def test_events_are_written_and_those_of_the_burn_are_counted(bench):
    bench.device.telemetry.coming = [[Event(GPU, "xid.13", "before")], [XID, XID]]
    outcome = bench.burn(burn_of(works))
    assert outcome.values["xid.count"] == 2
    assert [e.code for e in outcome.events] == ["xid.13", "xid.48", "xid.48"]


def test_events_of_a_burn_that_broke_are_kept(bench):
    def work(_device, _bench, _notes):
        msg = "gone"
        raise Lost(msg)

    bench.device.telemetry.coming = [[], [XID]]
    outcome = bench.burn(burn_of(work))
    assert outcome.events == [XID]
    assert outcome.values == {"gpu.present": 0, "xid.count": 1}


def test_events_that_cannot_be_read_are_missing_and_not_none(bench):
    bench.device.telemetry.coming = [[], TimedOut("no answer")]
    outcome = complete(bench.burn(burn_of(works)))
    assert "xid.count" not in outcome.values
    assert outcome.gaps["xid.count"].why is Why.TIMED_OUT


def test_events_are_kept_where_nobody_counts_them(bench):
    bench.device.telemetry.coming = [[], [XID]]
    outcome = bench.burn(burn_of(works, {"gpu": ("temperature",)}))
    assert outcome.events == [XID]
    assert "xid.count" not in outcome.values


# --- the notebook -------------------------------------------------------------------------------


def test_a_reading_that_is_absent_is_missing_and_one_only_noted_leaves_no_trace():
    def refuse():
        msg = "N/A"
        raise Unsupported(msg)

    notes = Run("health", GPU, Settings("quick", 1))
    notes.read("temperature", refuse)
    notes.read("power.average", refuse)
    (gap,) = notes.seen
    assert (gap.metric, gap.why, gap.reason) == ("temperature", Why.NOT_SUPPORTED, "N/A")


def test_a_lost_gpu_is_not_swallowed_by_a_reading():
    def lose():
        msg = "gone"
        raise Lost(msg)

    notes = Run("health", GPU, Settings("quick", 1))
    for metric in ("temperature", "power.average"):
        with pytest.raises(Lost):
            notes.read(metric, lose)
    assert notes.seen == []


def test_every_device_error_has_a_word_and_a_cure():
    for kind in (DeviceError, Lost, NotPresent, Unsupported, NotPermitted, TimedOut):
        word, cure = why(kind("x"))
        assert isinstance(word, Why)
        assert cure


# --- hosts --------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [Lost("gone"), NotPresent("none"), OSError("x"), TimedOut("x")])
def test_a_host_that_cannot_be_asked_is_missing_and_no_gpu_is_accused(bench, error):
    def host(_bench, _notes):
        raise error

    outcome = bench.burn_host(burn_of(works, {"host": ("gpu.unexpected",)}, host))
    assert outcome.values == {}
    assert set(outcome.gaps) == {"gpu.unexpected"}


def test_a_burn_without_a_hosts_part_owes_its_hosts_all_the_same(bench):
    outcome = bench.burn_host(burn_of(works, {"host": ("gpu.unexpected",)}))
    assert set(outcome.gaps) == {"gpu.unexpected"}


# --- the plan -----------------------------------------------------------------------------------


def test_every_burn_gives_what_it_owes_when_the_driver_says_nothing(bench):
    bench.device.telemetry.readings.clear()
    for burn in BURNS.values():
        outcome = bench.burn(burn)
        owed = {(GPU, m) for m in burn.owes.get("gpu", ())}
        owed |= {(f"{GPU}/link{n:02d}", m) for m in burn.owes.get("link", ()) for n in range(2)}
        assert owed <= {(s.subject, s.metric) for s in outcome.seen if not isinstance(s, Event)}
        assert "gpu.present" in outcome.values or "gpu.present" in outcome.gaps


def test_a_plan_takes_ids_and_families_in_the_tables_order():
    assert [b.id for b in plan("soak")] == list(BURNS)
    assert {b.id for b in plan("quick")} < set(BURNS)
    family = [b.id for b in plan("quick", ["memory", "inventory"])]
    assert family[0] == "inventory"
    assert len(family) > 2
    assert all(b.startswith("memory.") for b in family[1:])
    assert [b.id for b in plan("soak", ["gemm.fp32"])] == ["gemm.fp32"]


@pytest.mark.parametrize(
    ("level", "only", "said"),
    [
        ("fast", (), "unknown level"),
        ("quick", ("memroy",), "did you mean memory"),
        ("quick", ("inventory", "thermal.soak"), "not of level quick, only of acceptance, soak"),
        ("quick", ("power.cap",), "not of level quick"),
        ("quick", ("gemm.fp32", "gemm.fp33"), "unknown burn"),
    ],
)
def test_a_plan_that_makes_no_sense_is_a_spec_error(level, only, said):
    with pytest.raises(SpecError, match=said):
        plan(level, only)
