"""judge: the same record gives the same Recovery, and what was not looked at is never PASS."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.recovery.judge import judge
from rackproof.diagnostics.recovery.record import Course, DrillRecord, Fact
from rackproof.diagnostics.recovery.view import FIELDS
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.checkpoint import anatomy
from rackproof.harness.happening import KINDS, Happening

CONTRACT = (
    "schema drill verdict proof fault_fired restarts steps timeline ledger claims planted".split()
)


def text_of(recovery):
    return json.dumps(recovery.as_json(), allow_nan=False)


def test_a_recovery_as_it_should_be_passes_at_the_highest_level(good):
    found = good.judge()
    wrong = [claim for claim in found.claims if claim.verdict not in {Verdict.PASS, Verdict.SKIP}]
    assert wrong == []
    assert (found.verdict, found.proof, found.restarts) == (Verdict.PASS, "L4", 0)
    assert found.fault_fired
    assert found.steps.as_json() == {
        "planned": 12, "committed": 12, "lost": 0, "repeated": 0, "discarded": 0,
        "from_nothing": False,
    }  # fmt: skip


def test_a_command_that_says_only_steps_passes_at_the_level_that_was_asked(command):
    found = command.judge()
    assert (found.verdict, found.proof, found.required) == (Verdict.PASS, "L1", "L1")
    assert (found.restarts, found.steps.lost, found.steps.repeated) == (1, 2, 2)


def test_a_command_that_tells_more_is_proven_further(telling_command):
    found = telling_command.judge()
    assert (found.verdict, found.proof) == (Verdict.PASS, "L4")


def test_a_command_that_says_only_steps_is_unknown_where_more_is_asked(command):
    found = command.expect(proof="L4").judge()
    assert (found.verdict, found.proof) == (Verdict.UNKNOWN, "L1")
    cures = " ".join(c.message for c in found.claims if c.verdict is Verdict.UNKNOWN)
    assert "--require L1" in cures
    assert "emit `digest`" in cures


def test_the_json_has_the_contracts_keys_and_its_words(good):
    body = good.judge().as_json()
    assert set(CONTRACT) <= set(body)
    assert body["schema"] == "rackproof.drill/1"
    assert [m["what"] for m in body["timeline"]] == list(good.head.expected.timeline)
    restored = body["timeline"][4]
    assert (restored["what"], restored["step"], restored["at"]) == ("restored", 4, 6.0)
    assert set(body["claims"][0]) == {"id", "verdict", "message"}
    assert [level["level"] for level in body["proofs"]] == ["L0", "L1", "L2", "L3", "L4"]
    for key in ("ettr", "mttd", "mttr", "rpo_steps", "lost_steps", "young_daly"):
        assert key in body


def test_judging_again_gives_the_same_bytes(good, command):
    for scene in (good, command):
        record = scene.record
        assert text_of(judge(record)) == text_of(judge(record)) == text_of(scene.judge())


def test_what_was_planted_is_passed_on_and_weighs_nothing(good):
    without = good.judge()
    good.planted = [{"kind": "gpu-lost", "subject": "rack0/tray00/gpu1", "fired": 0}]
    beside = good.judge()
    assert beside.as_json()["planted"] == good.planted
    assert replace(beside, planted=()) == replace(without, planted=())


def test_every_claim_has_its_id_once_and_says_something(good, command):
    for scene in (good, command):
        claims = scene.judge().claims
        assert len({claim.id for claim in claims}) == len(claims)
        assert all(claim.message for claim in claims)


def test_nothing_looked_at_is_unknown(good):
    empty = DrillRecord(good.head, {}, [])
    found = judge(empty)
    assert (found.verdict, found.proof, found.fault_fired) == (Verdict.UNKNOWN, "none", False)
    assert found.as_json()["ledger"] == {}
    assert not any(c.verdict is Verdict.FAIL for c in found.claims)


@pytest.mark.parametrize("course", ["clean1", "clean2", "faulted"])
def test_a_course_that_is_missing_is_unknown_and_nobody_fails(good, course):
    del good.said[course]
    good.facts = [fact for fact in good.facts if fact.course != course]
    found = good.judge()
    assert found.verdict is Verdict.UNKNOWN
    assert found.proof == ("none" if course == "faulted" else "L3")


def test_a_record_without_an_end_is_unknown(good):
    good.has_end = False
    assert good.judge().verdict is Verdict.UNKNOWN
    assert "no end" in good.claim("events").message


def test_a_course_without_an_end_is_unknown(good):
    good.ended["faulted"] = 100.0
    assert good.verdict("events") == "UNKNOWN"
    assert good.judge().verdict is Verdict.UNKNOWN


def test_a_line_of_the_record_that_cannot_be_read_is_unknown(good):
    good.problems.append("drill.jsonl line 9: cut short")
    assert good.judge().verdict is Verdict.UNKNOWN
    assert "line 9" in good.claim("events").message


def test_a_line_of_the_trainer_that_cannot_be_read_is_unknown(good):
    good.course_problems["faulted"] = ["r0.1.jsonl line 3: no JSON"]
    assert good.judge().verdict is Verdict.UNKNOWN


def test_the_cut_last_line_of_a_process_that_was_killed_is_no_problem(good):
    good.course_problems["faulted"] = ["r1.1.jsonl: its last line was cut short"]
    assert good.judge().verdict is Verdict.PASS
    good.course_problems["faulted"] = ["r0.1.jsonl: its last line was cut short"]
    assert good.judge().verdict is Verdict.UNKNOWN


def test_what_is_missing_may_only_be_unread(good):
    good.drop("isolated")
    assert good.verdict("isolated") == good.verdict("timeline") == "FAIL"
    good.course_problems["faulted"] = ["coordinator.1.jsonl line 3: no JSON"]
    assert good.verdict("isolated") == good.verdict("timeline") == "UNKNOWN"


def test_a_hole_in_what_was_said_excuses_a_jump_and_no_contradiction(good):
    good.drop("step", step=7).course_problems["faulted"] = ["r0.1.jsonl line 3: no JSON"]
    assert good.verdict("steps") == "UNKNOWN"
    good.resee("final", {"digest": "ab" * 32})
    assert good.verdict("final-state") == "FAIL"
    assert good.judge().verdict is Verdict.FAIL


@pytest.mark.parametrize("kind", ["injected", "detected", "diagnosed", "exited"])
def test_only_the_drill_may_say_what_the_drill_does(good, kind):
    good.say(105.55, "r0", kind, fault="kill", member="r0", subject="x")
    assert good.verdict("events") == "UNKNOWN"
    assert f"r0 may not say {kind}" in good.claim("events").message


def test_a_command_may_say_five_kinds_and_no_more(command):
    command.say(107.0, "c0", "isolated", member="c0")
    assert command.verdict("events") == "UNKNOWN"


def test_the_seven_fields_are_those_of_a_checkpoint():
    assert FIELDS == anatomy.FIELDS


# --- whatever a record holds, it is judged --------------------------------------------------------
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 14), st.floats(), st.text(max_size=3),
    st.sampled_from(["r0", "r1", "committed", "staged", "peer:r0", "file:///run/step-4"]),
    st.lists(st.integers(-1, 50), max_size=4), st.lists(st.text(max_size=2), max_size=2),
)  # fmt: skip
NAMES = st.sampled_from(
    "step member pid samples digest uri phase loss seconds participants fields shard code "
    "fault subject ours there verifies tier problem fired pids damages passed_over".split()
)
FIELD_SETS = st.dictionaries(NAMES, VALUES, max_size=6)
SAID = st.builds(
    Happening,
    at=st.floats(99.0, 121.0),
    who=st.sampled_from(["drill", "coordinator", "r0", "r1", "s0"]),
    kind=st.sampled_from(sorted(KINDS)),
    fields=FIELD_SETS,
    attempt=st.integers(1, 3),
)
FACTS = "died stopped thawed alive checkpoint final left-behind fired outcome full".split()
SEEN = st.builds(
    Fact,
    what=st.sampled_from(
        "died stopped thawed alive checkpoint final left-behind fired outcome full".split()
    ),
    fields=FIELD_SETS,
    course=st.sampled_from(["faulted", "clean1", "clean2", "replay"]),
    at=st.floats(99.0, 121.0),
)


FULL = "no space left on /data (0 bytes free)"


def test_what_a_full_disk_broke_is_unknown_and_said_first(good):
    good.drop("step", step=12).unfinished.add("faulted")
    good.resee("checkpoint", {"verifies": False}, step=8)
    assert good.judge().verdict is Verdict.FAIL
    good.saw("full", 110.0, why=FULL)
    assert good.claim("events").message.startswith(FULL)
    for name in ("reached", "checkpoints"):
        claim = good.claim(name)
        assert (str(claim.verdict), FULL in claim.message) == ("UNKNOWN", True)
    assert good.judge().verdict is Verdict.UNKNOWN


def test_no_full_disk_excuses_two_states_of_one_step(good):
    good.change("step", {"digest": "ab" * 32}, who="r0", step=9).saw("full", 110.0, why=FULL)
    assert good.verdict("digests") == "FAIL"
    assert good.judge().verdict is Verdict.FAIL


def test_of_a_record_that_is_not_whole_nobody_is_blamed(good):
    good.change("step", {"digest": "ab" * 32}, who="r0", step=9)
    good.problems.append("line 9: the record is not whole: it is number 10, and 9 should follow")
    assert judge(good.record).verdict is Verdict.FAIL
    found = judge(replace(good.record, whole=False))
    assert found.verdict is Verdict.UNKNOWN
    (claim,) = [claim for claim in found.claims if claim.id == "digests"]
    assert claim.message.startswith("the record is not whole: step 9 has several states")


def test_a_full_disk_under_a_run_without_a_fault_counts_as_well(good):
    good.saw("full", 110.0, why=FULL, course="clean1")
    assert good.judge().verdict is Verdict.UNKNOWN


def in_time(said):
    return sorted(said, key=lambda each: each.at)


@settings(max_examples=150, deadline=None)
@given(
    said=st.lists(SAID, max_size=30), seen=st.lists(SEEN, max_size=15), name=st.sampled_from("AC")
)
def test_whatever_stands_in_a_record_it_is_judged_and_never_passes(head_of, said, seen, name):
    courses = {
        course: Course(course, 100.0, 120.0, finished=True, happenings=in_time(said))
        for course in ("faulted", "clean1", "clean2", "replay")
    }
    record = DrillRecord(head_of(name), courses, seen)
    found = judge(record)
    assert found.verdict is not Verdict.PASS
    assert text_of(found) == text_of(judge(record))
    shares = found.as_json()["ledger"]
    assert not shares or sum(shares.values()) == 1.0


def test_the_cure_of_a_fault_for_which_there_was_no_space_is_space(good):
    good.drop("injected")
    assert "more steps or another seed" in good.claim("fault-fired").message
    good.saw("full", 104.0, why=FULL)
    assert good.claim("fault-fired").message == "nothing was injected; make room, and hold it again"
