"""Strikes: which injections are one fault, and whom they concern."""

import pytest

from rackproof.diagnostics.recovery.strikes import Strike, akin, place

GPU = "rack0/tray00/gpu1"


@pytest.mark.parametrize(
    ("own", "other", "does"),
    [
        ("r1", "r1", True),
        ("c0", "c0.rank1", True),
        ("c0.rank1", "c0", True),
        ("r1", "r11", False),
        ("r1", "", False),
        ("", "r1", False),
        ("", "", False),
    ],
)
def test_whom_a_strike_concerns(own, other, does):
    assert Strike(1.0, "kill", own).concerns(other) is does


@pytest.mark.parametrize(
    ("one", "other", "are"),
    [
        (Strike(1.0, "kill", "r1"), Strike(2.0, "kill", "r1"), True),
        (Strike(1.0, "kill", "r1"), Strike(2.0, "kill", "r2"), False),
        (Strike(1.0, "a", subject=GPU), Strike(2.0, "kill", "r1", GPU), True),
        (Strike(1.0, "a", subject=GPU), Strike(2.0, "kill", "r1", "rack0/tray01/gpu1"), False),
        (Strike(1.0, "a", subject=GPU), Strike(2.0, "kill", "r1"), False),
        (Strike(1.0, "kill", "r1", pid=7), Strike(2.0, "kill", "r1", pid=8), False),
        (Strike(1.0, "kill", "r1", pid=7), Strike(2.0, "kill", "r1"), True),
        (Strike(1.0, "freeze", "r1", until=1.5), Strike(2.0, "freeze", "r1"), False),
    ],
)
def test_which_strikes_are_one_fault(one, other, are):
    assert one.like(other) is are


def test_a_part_is_akin_to_its_whole_and_a_namesake_is_not():
    assert akin(GPU, "rack0/tray00")
    assert akin("rack0/tray00", GPU)
    assert not akin(GPU, "rack0/tray00/gpu11")


@pytest.mark.parametrize(
    ("text", "found"), [("file:///a/b/", "/a/b"), ("s3://a/b", "s3://a/b"), (None, ""), (7, "")]
)
def test_an_address_as_it_is_compared(text, found):
    assert place(text) == found


def ended(scene, last):
    """Have a launcher's child be killed after `last` steps, and the launcher end with code 0."""
    scene.said["faulted"] = [
        h
        for h in scene.said["faulted"]
        if h.attempt == 1 and h.kind in {"step", "injected"} and h.fields.get("step", 0) <= last
    ]
    scene.unsee("died").saw("died", 106.55, member="c0", pid=50, code=None)
    return scene.saw("died", 107.0, member="c0", pid=49, code=0)


def test_a_child_that_was_killed_was_struck_though_its_parent_ends_well(command):
    assert ended(command, 5).verdict("fault-fired") == "PASS"
    assert "it died (process 50)" in command.claim("fault-fired").message
    assert (command.verdict("survived"), command.verdict("reached")) == ("FAIL", "FAIL")


def test_a_child_that_was_gone_after_the_last_step_may_have_ended_by_itself(command):
    ended(command, 5)
    for step in range(6, 13):
        command.say(106.0 + step / 100, "c0", "step", step=step)
    assert command.verdict("fault-fired") == "UNKNOWN"
