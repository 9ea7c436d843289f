"""A watch that was blind: what only telemetry could have found is not known, and nothing else."""

from dataclasses import replace

import pytest

from rackproof.diagnostics.verdict import Verdict


def fails(scene, name, said):
    claim = scene.claim(name)
    assert (str(claim.verdict), said in claim.message) == ("FAIL", True), claim
    assert scene.judge().verdict is Verdict.FAIL


def with_rack(scene):
    seats = {"r0": "rack0/tray00/gpu0", "r1": "rack0/tray00/gpu1"}
    scene.head = replace(scene.head, placement=seats)
    return scene.expect(components=("pcie", "host"))


def blind(scene):
    return scene.say(106.0, "drill", "blind", why="the disk is full")


def test_a_watch_that_was_blind_is_unknown(good):
    claim = blind(with_rack(good)).claim("diagnosis")
    assert str(claim.verdict) == "UNKNOWN"
    assert "telemetry found nothing, but its watch was blind: the disk is full" in claim.message
    assert str(good.judge().verdict) == "UNKNOWN"


def test_a_watch_that_was_blind_after_it_had_accused_another_fails(good):
    diagnosed = {"subject": "rack0/tray00/gpu1", "component": "nvlink"}
    blind(with_rack(good)).say(105.8, "drill", "diagnosed", **diagnosed)
    fails(good, "diagnosis", "nvlink was diagnosed")


@pytest.mark.parametrize(
    "missing", [("told",), ("decided", "told"), ("told", "lost"), ("spare-active",)]
)
def test_of_what_was_not_said_only_telemetrys_part_is_excused(good, missing):
    blind(with_rack(good)).expect(kinds=missing).drop("lost").drop("spare-active")
    wanted = "UNKNOWN" if set(missing) <= {"told", "decided"} else "FAIL"
    assert good.verdict("kinds") == wanted


NOTICED = ("detected", "isolated", "evicted", "timeline", "budget detect")


def unnoticed(scene):
    return scene.drop("lost").drop("isolated").drop("exited")


@pytest.mark.parametrize("name", NOTICED)
def test_a_killed_member_is_missed_without_telemetry(good, name):
    assert unnoticed(blind(with_rack(good))).verdict(name) == "FAIL"


@pytest.mark.parametrize("name", NOTICED)
def test_what_only_telemetry_sees_is_not_missed_by_a_blind_watch(good, name):
    unnoticed(with_rack(good)).change("injected", {"fault": "flip-bit"})
    good.saw("fired", 105.5, fault="flip-bit", fired=1)
    assert good.verdict(name) == "FAIL"
    assert blind(good).verdict(name) == "UNKNOWN"
