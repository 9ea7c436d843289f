"""Something else hit the run as well: it condemns nobody, and nothing passes."""

import pytest

from rackproof.diagnostics.verdict import Verdict
from rackproof.reports.drill_words import headline

SAID = "s0 died of signal 9, which the drill did not send"


@pytest.fixture
def noted(good):
    """The sound recovery, of which every death says who sent its signal."""
    good.facts = [_by(fact) for fact in good.facts]
    return good


def _by(fact):
    if fact.what not in ("died", "stopped"):
        return fact
    by = "drill" if fact.fields.get("code") == -9 else ""
    return type(fact)(fact.what, {**fact.fields, "by": by}, fact.course, fact.at)


def killed(scene, who="s0", code=-9, course="faulted", by=""):
    """Have somebody kill a member."""
    return scene.resee("died", {"code": code, "by": by}, course=course, member=who)


def test_what_only_the_drill_hit_passes(noted):
    assert noted.judge().verdict is Verdict.PASS
    assert noted.verdict("undisturbed") == "PASS"


def test_an_old_record_that_notes_no_sender_is_judged_as_before(good):
    assert good.judge().verdict is Verdict.PASS
    assert good.verdict("undisturbed") == "SKIP"


@pytest.mark.parametrize("code", [-9, -15, -2])
def test_a_process_that_somebody_else_killed_is_unknown_and_told_first(noted, code):
    found = killed(noted, code=code).judge()
    assert found.verdict is Verdict.UNKNOWN
    said = f"{SAID.replace('9', str(-code))}: something else hit the run as well"
    assert headline(found.as_json()).startswith(f"gpu-loss: undisturbed: {said}")


@pytest.mark.parametrize(
    ("code", "by"), [(-9, "drill"), (-9, "order"), (-11, ""), (-6, ""), (1, ""), (4, "")]
)
def test_neither_an_act_of_the_drill_nor_a_crash_is_a_strangers(noted, code, by):
    assert killed(noted, code=code, by=by).verdict("undisturbed") == "PASS"


def test_a_process_that_somebody_else_stopped_is_unknown(noted):
    noted.saw("stopped", 104.0, member="r0", pid=20, by="")
    assert noted.judge().verdict is Verdict.UNKNOWN
    assert "r0 was stopped, and not by the drill" in noted.claim("undisturbed").message


def test_a_stop_of_the_drills_own_is_none(noted):
    noted.saw("stopped", 104.0, member="r0", pid=20, by="drill")
    assert noted.verdict("undisturbed") == "PASS"


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("restarts", lambda s: s.say(112.0, "coordinator", "restarted", step=8, uri="x")),
        ("evicted", lambda s: s.say(112.0, "coordinator", "isolated", member="s0", epoch=3)),
        ("timeline", lambda s: s.drop("resynchronised")),
        ("kinds", lambda s: s.drop("spare-active")),
        ("reached", lambda s: s.unfinished.add("faulted")),
    ],
)
def test_what_did_not_happen_or_too_often_is_no_ones_fault(noted, name, spoil):
    spoil(noted)
    assert noted.verdict(name) == "FAIL"  # with nobody else about
    claim = killed(noted).claim(name)
    assert (str(claim.verdict), SAID in claim.message) == ("UNKNOWN", True), claim


@pytest.mark.parametrize(
    ("name", "spoil"),
    [
        ("digests", lambda s: s.change("step", {"digest": "ab" * 32}, who="r0", step=7)),
        ("fault-free", lambda s: s.resee("final", {"digest": "ab" * 32})),
        ("final-state", lambda s: s.resee("final", {"digest": "ab" * 32})),
        ("checkpoints", lambda s: s.resee("checkpoint", {"digest": "ab" * 32}, step=8)),
        ("processes", lambda s: s.resee("alive", {"ours": False}, member="r0")),
        ("samples", lambda s: s.change("step", {"samples": [0, 1, 2, 3]}, step=7)),
        ("no-process-left", lambda s: s.saw("left-behind", 119.5, pids=[20])),
    ],
)
def test_a_wrong_state_fails_whoever_else_hit_it(noted, name, spoil):
    spoil(killed(noted))
    assert noted.verdict(name) == "FAIL"
    assert noted.judge().verdict is Verdict.FAIL


def test_the_death_that_somebody_else_caused_is_no_sign_of_the_drills_fault(noted):
    killed(noted, "r1").drop("lost").drop("isolated")
    assert noted.verdict("fault-fired") == "UNKNOWN"


@pytest.mark.parametrize("code", [-9, -11])
def test_a_fault_free_run_in_which_a_process_was_killed_is_none(noted, code):
    killed(noted, "coordinator", code, course="clean2")
    assert noted.judge().verdict is Verdict.UNKNOWN
    assert "clean2: coordinator died of signal" in noted.claim("clean-runs").message


def test_a_fault_free_run_in_which_a_process_was_stopped_is_none(noted):
    noted.saw("stopped", 104.0, course="clean1", member="r0", pid=20, by="")
    assert "clean1: r0 was stopped" in noted.claim("clean-runs").message
    assert noted.judge().verdict is Verdict.UNKNOWN
