"""The timeline: words that were seen after a fault, and no others."""

from rackproof.diagnostics.recovery.timeline import FAULT, RESUMED, flat, follows, recoveries
from rackproof.diagnostics.recovery.view import view

WORDS = ["fault", "detected", "isolated", "spare-active", "restored", "resynchronised", "resumed"]


def words(scene):
    return [each.what for each in flat(view(scene.record).windows)]


def test_the_words_are_those_that_were_seen(good):
    assert words(good) == WORDS
    good.drop("restore", who="s0").drop("spare-active")
    assert words(good) == ["fault", "detected", "isolated", "resynchronised", "resumed"]


def test_seconds_are_those_since_the_course_began(good):
    assert [m["at"] for m in good.judge().as_json()["timeline"]] == [
        5.5, 5.7, 5.8, 5.9, 6.0, 6.1, 7.1,
    ]  # fmt: skip


def test_what_happened_before_the_fault_is_none_of_it(good):
    for what in ("lost", "isolated", "spare-active"):
        good.say(103.2, "coordinator", what, member="r9")
    assert [m.at for m in flat(view(good.record).windows)][:3] == [105.5, 105.7, 105.8]


def test_without_a_fault_there_is_none(good):
    assert words(good.drop("injected")) == []


def test_resumed_is_the_first_step_after_all_other_words(good):
    good.say(105.95, "coordinator", "step", step=5)
    (window,) = view(good.record).windows
    assert window.when(RESUMED) == 108.1


def test_a_second_fault_opens_a_second_window(good):
    good.say(108.3, "drill", "injected", fault="kill", member="s0", pid=30)
    good.unsee("died", member="s0").saw("died", 108.32, member="s0", pid=30, code=-9)
    good.say(108.4, "coordinator", "lost", member="s0")
    found = view(good.record).windows
    assert [[m.what for m in each.moments] for each in found] == [
        WORDS,
        ["fault", "detected", "resumed"],
    ]
    assert recoveries(found) == [(105.5, 107.1), (108.3, found[1].when(RESUMED))]


def test_a_fault_during_a_recovery_prolongs_it(good):
    good.say(105.95, "drill", "injected", fault="kill", member="s0", pid=30)
    good.unsee("died", member="s0").saw("died", 105.96, member="s0", pid=30, code=-9)
    found = view(good.record).windows
    assert len(found) == 2
    assert found[0].when(RESUMED) is None
    assert recoveries(found) == [(105.5, 107.1)]


def test_both_halves_of_a_fault_are_one(good):
    gpu = "rack0/tray00/gpu1"
    good.head = good.head.__class__(
        **{n: getattr(good.head, n) for n in good.head.__slots__} | {"placement": {"r1": gpu}}
    )
    good.say(105.3, "drill", "injected", fault=f"gpu-lost@{gpu}", subject=gpu)
    good.say(105.4, "drill", "detected", subject=gpu)
    (window,) = view(good.record).windows
    assert (window.at, len(window.strikes), window.moments[0].who) == (105.3, 2, "r1")


def test_a_short_stop_is_a_fault_of_its_own(good):
    good.say(103.2, "drill", "injected", fault="freeze", member="r1", pid=21)
    good.saw("stopped", 103.21, member="r1", pid=21).saw("thawed", 103.5, member="r1", pid=21)
    found = view(good.record).windows
    assert [[m.what for m in each.moments] for each in found] == [[FAULT, RESUMED], WORDS]


def test_a_command_is_detected_by_its_end(command):
    command.drop("lost").drop("isolated")
    (window,) = view(command.record).windows
    assert [m.what for m in window.moments] == ["fault", "detected", "resumed"]
    assert round(window.found, 6) == 0.1


def test_the_end_of_all_is_no_detection(command):
    command.drop("lost").drop("isolated").drop("exited")
    command.say(119.5, "drill", "exited", member="c0", pid=51, code=-15)
    command.say(107.0, "drill", "exited", member="c1", pid=52, code=0)
    assert words(command) == ["fault", "resumed"]


def test_of_our_own_run_the_parent_only_sees_the_coordinators_end(good):
    good.drop("lost").say(105.6, "drill", "exited", member="r1", pid=21, code=-9)
    assert "detected" not in words(good)
    good.say(105.65, "drill", "exited", member="coordinator", pid=10, code=-9)
    assert "detected" in words(good)


def test_an_order_is_looked_for_in_its_place(good):
    moments = flat(view(good.record).windows)
    assert follows(moments, WORDS) == ""
    assert follows(moments, ["fault", "resumed"]) == ""
    assert follows(moments, ["isolated", "detected"]) == "detected"
    assert follows(moments, ["fault", "fault"]) == "fault"
