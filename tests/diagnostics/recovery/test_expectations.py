"""What a drill says must happen, against what was seen: each claim has something that breaks it."""

import pytest

from rackproof.diagnostics.verdict import Verdict

GPU0, GPU1 = "rack0/tray00/gpu0", "rack0/tray00/gpu1"


def fails(scene, name, said):
    claim = scene.claim(name)
    assert (str(claim.verdict), said in claim.message) == ("FAIL", True), claim
    assert scene.judge().verdict is Verdict.FAIL


def changed(scene, **head):
    names = scene.head.__slots__
    scene.head = scene.head.__class__(**{n: getattr(scene.head, n) for n in names} | head)
    return scene


# --- the fault -----------------------------------------------------------------------------------
AFTER_THE_FAULT = (
    "detected", "isolated", "timeline", "kinds", "evicted", "survived", "budget detect",
    "budget resume",
)  # fmt: skip


def unfired(scene):
    """Have the injection strike nothing: the process lives to the end of the run."""
    return scene.resee("died", {"code": 0}, member="r1")


@pytest.mark.parametrize("name", AFTER_THE_FAULT)
def test_what_follows_a_fault_is_unknown_where_none_struck(good, name):
    good.said["faulted"] = [h for h in good.said["faulted"] if h.kind not in {"lost", "injected"}]
    found = good.judge()
    assert (found.fault_fired, found.verdict, found.proof) == (False, Verdict.UNKNOWN, "none")
    assert good.verdict(name) == good.verdict("fault-fired") == "UNKNOWN"


def test_the_word_of_the_injector_is_not_enough(good):
    unfired(good).drop("lost")
    assert good.judge().fault_fired is False
    assert "nothing shows that it struck" in good.claim("fault-fired").message
    assert good.judge().verdict is Verdict.UNKNOWN


def test_a_process_that_ends_at_its_end_was_not_killed(good):
    good.drop("lost").unsee("died", member="r1")
    good.saw("died", 118.0, member="r1", pid=21, code=None)
    assert good.judge().fault_fired is False


def test_another_process_that_dies_shows_nothing(good):
    good.drop("lost").unsee("died", member="r1").saw("died", 105.51, member="r1", pid=99, code=-9)
    assert good.judge().fault_fired is False


def test_a_death_before_the_injection_shows_nothing(good):
    good.drop("lost").unsee("died", member="r1").saw("died", 105.1, member="r1", pid=21, code=-9)
    assert good.judge().fault_fired is False


def test_our_own_coordinator_feels_a_fault(good):
    assert unfired(good).judge().fault_fired
    assert "lost r1" in good.claim("fault-fired").message
    assert changed(good, layer="B").judge().fault_fired is False


def test_a_count_of_strikes_shows_it(good):
    unfired(good).drop("lost").saw("fired", 105.6, fault="kill", fired=2)
    assert good.judge().fault_fired
    assert "2 times" in good.claim("fault-fired").message


def test_a_count_of_nothing_shows_that_it_did_not(good):
    good.saw("fired", 105.6, fault="bit-rot", fired=0)
    assert good.judge().fault_fired is False
    assert "bit-rot" in good.claim("fault-fired").message


def test_every_injection_must_strike(good):
    good.say(108.3, "drill", "injected", fault="kill", member="s0", pid=30)
    assert good.verdict("fault-fired") == "UNKNOWN"
    assert "kill of s0" in good.claim("fault-fired").message


def test_a_planted_fault_is_shown_by_telemetry(good):
    good.drop("injected").say(105.5, "drill", "injected", fault=f"gpu-lost@{GPU1}", subject=GPU1)
    assert good.judge().fault_fired is False
    good.say(105.6, "drill", "detected", subject=GPU1, by="xid.79")
    assert good.judge().fault_fired


def test_a_count_under_the_drills_name_stands_for_what_has_none(good):
    unfired(good).drop("lost").drop("injected")
    good.say(105.5, "drill", "injected", fault="storage", member="r1", under="/x")
    assert good.judge().fault_fired is False
    good.saw("fired", 105.6, fault="gpu-loss", fired=0)
    assert good.judge().fault_fired is False
    assert (
        "gpu-loss" in good.unsee("fired").saw("fired", 105.6, fault="gpu-loss", fired=1).head.drill
    )
    assert good.judge().fault_fired


def test_a_count_under_the_drills_name_shows_no_kill(good):
    unfired(good).drop("lost").saw("fired", 105.6, fault="gpu-loss", fired=1)
    assert good.judge().fault_fired is False


def test_a_process_that_was_stopped_was_hit(good):
    good.change("injected", {"fault": "freeze"}).unsee("died", member="r1").drop("lost")
    assert good.judge().fault_fired is False
    good.saw("stopped", 105.5, member="r1", pid=21)
    assert good.judge().fault_fired


def test_a_member_that_is_named_is_the_one_whatever_sits_there(good):
    changed(good, placement={"r0": GPU0, "r1": GPU1}).change("injected", {"subject": GPU0})
    assert good.judge().timeline[0].who == "r1"
    good.change("injected", {"member": None, "pid": None}).saw("fired", 1.0, fault="kill", fired=1)
    assert good.judge().timeline[0].who == "r0"


# --- detected, isolated, evicted -----------------------------------------------------------------
def test_a_fault_that_nobody_detected(good):
    good.drop("lost")
    fails(good, "detected", "kill of r1 was not detected")


def test_another_member_was_detected(good):
    good.change("lost", {"member": "r0"})
    fails(good, "detected", "kill of r1 struck, and r0 was detected")


def test_what_is_detected_before_the_fault_is_no_detection_of_it(good):
    good.change("lost", {"at": 105.3})
    fails(good, "detected", "was not detected")


def test_a_detection_that_two_clocks_put_just_before_the_fault_counts(good):
    good.change("lost", {"at": 105.4995})
    assert good.verdict("detected") == "PASS"
    assert good.judge().figures.mttd == 0.0


def test_a_fault_that_was_not_isolated(good):
    good.drop("isolated")
    fails(good, "isolated", "kill of r1 was not isolated")


def test_another_member_was_isolated(good):
    good.change("isolated", {"member": "r0"}).expect(evicted=None)
    fails(good, "isolated", "kill of r1 struck, and r0 was isolated")


def test_more_members_were_evicted_than_had_to_be(good):
    good.say(106.4, "coordinator", "isolated", member="r7")
    fails(good, "evicted", "r7 was isolated, and had no fault")


def test_a_member_that_had_to_be_evicted_was_not(good):
    good.expect(evicted=("r1", "r2"))
    fails(good, "evicted", "r2 was not isolated")


def test_nobody_may_be_evicted(good):
    good.expect(evicted=())
    fails(good, "evicted", "r1 was isolated, and had no fault")


def test_what_is_not_asked_for_is_left_out(good):
    good.expect(evicted=None, timeline=(), detect=None, resume=None, kinds=())
    names = ("evicted", "isolated", "timeline", "kinds", "budget detect", "budget resume")
    assert {good.verdict(name) for name in names} == {"SKIP"}


# --- timeline, kinds -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("lost", "detected"),
        ("isolated", "isolated"),
        ("spare-active", "spare-active"),
        ("restore", "restored"),
        ("resynchronised", "resynchronised"),
    ],
)
def test_a_word_that_did_not_happen(good, kind, word):
    good.drop(kind)
    fails(good, "timeline", f"did not happen: {word}")


def test_training_that_does_not_go_on(good):
    good.said["faulted"] = [
        h for h in good.said["faulted"] if h.at < 105.5 or h.kind not in {"step", "ckpt"}
    ]
    good.unfinished.add("faulted")
    fails(good, "timeline", "did not happen: resumed")
    fails(good, "survived", "no step after step 4")
    fails(good, "reached", "4 of 12 steps were committed")
    assert good.judge().proof == "none"


def test_a_word_out_of_its_order(good):
    good.change("isolated", {"at": 106.3})
    fails(good, "timeline", "came out of its order")


def test_a_word_that_must_not_happen(good):
    good.expect(timeline=(), absent=("isolated",))
    fails(good, "timeline", "isolated: must not happen, and did")


def test_a_kind_that_must_be_said(good):
    good.expect(kinds=("reslot",))
    fails(good, "kinds", "did not happen: reslot")


def test_a_kind_that_must_not(good):
    good.expect(unseen=("lost",))
    fails(good, "kinds", "lost: must not happen, and did")


# --- restarts, lost steps, budgets ---------------------------------------------------------------
def test_a_restart_that_was_not_allowed(good, command):
    good.say(106.0, "coordinator", "restarted", step=4, uri="")
    fails(good, "restarts", "the whole job went back 1 times, 0 allowed")
    command.expect(restarts=0)
    fails(command, "restarts", "went back 1 times, 0 allowed")


def test_a_restart_that_nobody_told_is_seen_by_its_steps(command):
    command.drop("restarted").expect(restarts=0)
    fails(command, "restarts", "went back 1 times, 0 allowed")


def test_a_restart_that_had_to_be(good):
    good.expect(restarts=1, must_restart=True)
    fails(good, "restarts", "had to go back to a checkpoint")


def test_more_steps_lost_than_allowed(command):
    command.expect(lost_steps=1)
    fails(command, "lost-steps", "2 committed steps had to be done again, 1 allowed")


def test_a_detection_that_took_too_long(good):
    good.expect(detect=0.1)
    fails(good, "budget detect", "detected 0.200 s after the fault, 0.1 s allowed")
    assert good.judge().proof == "L0"


def test_a_recovery_that_took_too_long(good):
    good.expect(resume_steps=1.0)
    fails(good, "budget resume", "1.600 s from fault to resumed, 1.500 s allowed")


def test_clean_steps_of_which_nothing_is_known_are_unknown(good):
    for course in ("clean1", "clean2", "faulted"):
        steps = (5,) if course == "faulted" else ()
        good.said[course] = [
            h for h in good.said[course] if h.kind != "step" or h.fields["step"] in steps
        ]
    assert good.verdict("budget resume") == "UNKNOWN"


# --- diagnosis -----------------------------------------------------------------------------------
def with_rack(scene, **said):
    scene.expect(components=("pcie", "host"))
    changed(scene, placement={"r0": GPU0, "r1": GPU1})
    if said:
        scene.say(105.75, "drill", "diagnosed", **said)
    return scene


def test_the_right_part_is_diagnosed(good):
    assert with_rack(good, subject=GPU1, component="pcie").verdict("diagnosis") == "PASS"


@pytest.mark.parametrize("subject", ["rack0/tray00", f"{GPU1}/link03"])
def test_a_part_of_it_or_what_it_is_a_part_of_will_do(good, subject):
    assert with_rack(good, subject=subject, component="host").verdict("diagnosis") == "PASS"


def test_another_component_is_diagnosed(good):
    with_rack(good, subject=GPU1, component="hbm")
    fails(good, "diagnosis", "hbm was diagnosed, pcie or host it is")


@pytest.mark.parametrize("subject", [GPU0, "rack0/tray01", "rack0/tray00/gpu11"])
def test_another_subject_is_accused(good, subject):
    with_rack(good, subject=subject, component="pcie")
    fails(good, "diagnosis", f"{subject} was accused, {GPU1} had the fault")


def test_telemetry_that_finds_nothing(good):
    fails(with_rack(good), "diagnosis", "telemetry found nothing")


# --- L0, L1, processes ---------------------------------------------------------------------------
def test_a_fault_after_the_last_step_shows_nothing(good):
    good.change("injected", {"at": 116.0}).unsee("died", member="r1")
    good.saw("died", 116.1, member="r1", pid=21, code=-9)
    assert good.verdict("survived") == "UNKNOWN"
    assert good.judge().proof == "none"


def test_a_run_that_does_not_come_to_its_last_step(good):
    good.drop("step", step=12).unfinished.add("faulted")
    fails(good, "reached", "11 of 12 steps were committed")
    assert good.judge().proof == "L0"


def test_a_process_that_is_left_behind(good):
    good.saw("left-behind", 117.0, pids=[4242])
    fails(good, "no-process-left", "1 were still there, and were ended: process 4242")


def test_who_is_left_behind_is_named_where_that_is_known(good):
    good.saw("left-behind", 117.0, member="r0", pids=[21, 4242])
    fails(good, "no-process-left", "process 21 (r1); process 4242 (started by r0)")


def test_an_end_that_nobody_saw_is_unknown(good):
    good.unsee("died", member="s0")
    assert good.verdict("no-process-left") == "UNKNOWN"
    assert "process 30 (s0)" in good.claim("no-process-left").message


def test_processes_that_nobody_looked_for_are_unknown(command):
    command.unsee("died")
    assert command.verdict("no-process-left") == "UNKNOWN"
    command.saw("left-behind", 118.0, pids=[])
    assert command.verdict("no-process-left") == "PASS"


def test_one_that_was_seen_and_is_not_there_any_more_has_gone(command):
    command.saw("alive", 108.0, member="c0", pid=52, there=True, ours=True)
    assert command.verdict("no-process-left") == "UNKNOWN"
    command.saw("gone", 118.5, member="c0", pid=52)
    assert command.verdict("no-process-left") == "PASS"
    command.saw("left-behind", 118.0, member="c0", pids=[52])
    assert command.verdict("no-process-left") == "FAIL"


@pytest.mark.parametrize("course", ["clean1", "clean2"])
def test_what_a_command_leaves_behind_without_a_fault_is_its_own_fault(command, course):
    command.saw("left-behind", 116.0, course=course, member="c0", pids=[77])
    fails(command, "no-process-left", f"process 77 (c0 of {course})")


def test_what_is_left_of_a_run_that_broke_by_itself_is_not_the_reason(command):
    command.saw("left-behind", 116.0, course="clean1", member="c0", pids=[77])
    command.unfinished.add("clean1")
    assert command.verdict("no-process-left") == "PASS"
    command.unfinished.clear()
    del command.said["faulted"]
    assert command.verdict("no-process-left") != "FAIL"


def test_a_run_that_goes_on_from_another_ones_checkpoint_is_told_so(command):
    for step in range(6, 13):
        command.drop("step", step=step)
    command.unfinished.add("faulted")
    command.say(107.5, "c0", "restore", attempt=2, step=5, uri="/shared/step-5")
    fails(command, "reached", "5 of 12 steps were committed")
    assert "did not write" not in command.claim("reached").message
    command.change("restore", {"step": 12, "uri": "/shared/step-12"})
    said = "; it restored step 12 from /shared/step-12, which this run did not write"
    fails(command, "reached", said)
