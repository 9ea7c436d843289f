"""Trainers that lie: each lie is a FAIL of its claim, and of the drill."""

import math
from dataclasses import replace

import pytest

from rackproof.diagnostics.verdict import Verdict

OTHER = "ab" * 32


def fails(scene, name, said):
    claim = scene.claim(name)
    assert (str(claim.verdict), said in claim.message) == ("FAIL", True), claim
    found = scene.judge()
    assert found.verdict is Verdict.FAIL
    return found


# --- steps ---------------------------------------------------------------------------------------
def test_steps_that_go_back_without_a_restore(good):
    good.say(111.5, "r0", "step", step=6, loss=1.0)
    found = fails(good, "steps", "r0 went back from step 9 to step 6 and restored nothing")
    assert found.proof == "L0"


def test_a_step_that_jumps(good):
    good.drop("step", who="r0", step=7)
    fails(good, "steps", "r0 jumped from step 6 to step 8")


def test_a_step_that_nobody_told(good):
    good.drop("step", step=7)
    fails(good, "steps", "jumped from step 6 to step 8")


def test_a_run_that_begins_in_the_middle(command):
    command.said["faulted"] = [h for h in command.said["faulted"] if h.fields.get("step") != 1]
    fails(command, "steps", "c0 began with step 2, the newest was 0")


def test_more_steps_than_were_planned(good):
    good.say(116.0, "r0", "step", step=13, loss=1.0)
    fails(good, "steps", "step 13 was told, and 12 were planned")


def test_a_state_that_was_taken_over_and_another_step_that_follows(good):
    good.change("restore", {"step": 3}, who="s0").change("resynchronised", {"step": 3})
    fails(good, "steps", "s0 took over the state after step 3 and went on with step 5")


def test_a_restart_that_continues_as_if_nothing_had_been_lost(command):
    command.say(107.5, "c0", "restore", attempt=2, step=2, uri="file:///x", fields=[])
    fails(command, "steps", "took over the state after step 2 and went on with step 4")


def test_a_restart_that_skips_steps(command):
    command.said["faulted"] = [
        h
        for h in command.said["faulted"]
        if not (h.attempt == 2 and h.fields.get("step") in {4, 5, 6})
    ]
    fails(command, "steps", "c0 began with step 7, the newest was 5")


def test_two_processes_under_one_name_at_one_time(command):
    command.say(108.5, "c0", "step", attempt=1, step=6)
    fails(command, "steps", "told steps at one time")


def test_a_loss_that_is_no_number(good):
    good.change("step", {"loss": math.nan}, who="r0", step=8)
    fails(good, "steps", "the loss of step 8 is nan")


def test_a_command_may_have_such_a_loss_where_the_fault_free_run_has_it(command):
    for course in ("clean1", "clean2", "faulted"):
        command.change("step", {"loss": math.inf}, course=course, step=2)
    assert command.verdict("steps") == "PASS"
    command.change("step", {"loss": 1.0}, course="clean1", step=2)
    fails(command, "steps", "the loss of step 2 is inf")


def test_steps_may_be_counted_from_zero(command):
    for course in ("clean1", "clean2", "faulted"):
        for at, step in enumerate(range(1, 13)):
            command.change("step", {"step": step - 1}, course=course, step=step)
            assert at + 1 == step
    found = command.judge()
    assert (found.verdict, found.proof, found.steps.committed) == (Verdict.PASS, "L1", 12)


def test_no_step_at_all_is_unknown(command):
    command.drop("step")
    assert command.verdict("steps") == "UNKNOWN"
    assert "RP_EVENTS" in command.claim("steps").message
    assert command.judge().proof == "none"


@pytest.mark.parametrize("step", [None, -1, "7", 7.5, True])
def test_a_step_without_a_number_is_a_line_that_cannot_be_read(command, step):
    command.say(109.5, "c0", "step", attempt=2, step=step)
    assert command.verdict("events") == "UNKNOWN"


# --- digests -------------------------------------------------------------------------------------
def test_two_states_of_one_step(good):
    good.change("step", {"digest": OTHER}, who="s0", step=9)
    found = fails(good, "digests", "step 9 has several states: coordinator")
    assert found.proof == "L0"


def test_a_state_that_never_changes(telling_command):
    for course in ("clean1", "clean2", "faulted"):
        telling_command.change("step", {"digest": OTHER}, course=course)
    fails(telling_command, "digests", "nothing is trained")


def test_the_first_step_may_leave_the_state_as_it_is(telling_command):
    for course in ("clean1", "clean2", "faulted"):
        first = telling_command.said[course][0].fields["digest"]
        telling_command.change("step", {"digest": first}, course=course, step=2)
    assert telling_command.verdict("digests") == "PASS"


# --- processes -----------------------------------------------------------------------------------
def test_a_process_that_is_not_ours(good):
    good.resee("alive", {"ours": False}, member="r0")
    fails(good, "processes", "r0 named process 20, which is not ours")


def test_a_process_that_is_not_ours_by_the_word_of_its_parent(command):
    command.say(101.0, "c0", "hello", pid=4242).saw(
        "alive", 101.1, member="c0", pid=4242, ours=False
    )
    fails(command, "processes", "c0 named process 4242, which is not ours")


def test_a_process_that_was_not_there_and_yet_tells_steps(command):
    command.say(101.0, "c0", "hello", pid=4242)
    command.saw("alive", 101.1, member="c0", pid=4242, there=False, ours=False)
    fails(command, "processes", "which was not there, and told steps")


def test_a_process_that_nobody_could_look_at_is_unknown(good):
    good.unsee("alive", member="r0").unsee("died", member="r0")
    assert good.verdict("processes") == "UNKNOWN"
    assert good.judge().verdict is Verdict.UNKNOWN


def test_no_process_that_named_itself_is_unknown_of_our_own_run(good):
    good.drop("hello")
    assert good.verdict("processes") == "UNKNOWN"


@pytest.mark.parametrize("kind", ["step", "ckpt", "restore"])
def test_words_of_the_dead(good, kind):
    good.say(105.6, "r1", kind, step=5, uri="peer:r0", phase="staged")
    fails(good, "processes", f"r1 told {kind} 5 0.09 s after it had died")


def test_steps_of_a_process_that_was_dead_by_then(command):
    for at, step in ((107.6, 6), (107.8, 7)):
        command.say(at, "c0", "step", attempt=1, step=step)
    fails(command, "processes", "c0 told step 6 1.05 s after it had died")


def started_again_by_its_launcher(command):
    """Have c0 be one attempt, of which a launcher replaced the process that was killed."""
    command.said["faulted"] = [replace(h, attempt=1) for h in command.said["faulted"]]
    for at, pid in ((101.0, 50), (107.9, 51)):
        command.say(at, "c0", "hello", pid=pid, rank=0, world=1)
        command.saw("alive", at, member="c0", pid=pid, there=True, ours=True)
    return command


def test_a_process_that_its_launcher_replaced_lives(command):
    started_again_by_its_launcher(command)
    assert command.verdict("processes") == "PASS"


def test_steps_between_the_death_of_one_process_and_the_hello_of_the_next(command):
    started_again_by_its_launcher(command).say(107.8, "c0", "step", step=6)
    fails(command, "processes", "c0 told step 6 1.25 s after it had died")


def test_a_dead_process_that_says_hello_again(command):
    started_again_by_its_launcher(command).say(107.8, "c0", "hello", pid=50, rank=0, world=1)
    fails(command, "processes", "c0 told hello 1.25 s after it had died")


def test_a_line_that_is_read_a_little_later_is_none_of_the_dead(command):
    command.change("step", {"at": 106.9}, step=5, who="c0")
    assert command.verdict("processes") == "SKIP"


def test_the_next_attempt_of_a_name_lives(command):
    command.say(101.0, "c0", "hello", pid=50).saw("alive", 101.1, member="c0", pid=50, ours=True)
    command.say(107.5, "c0", "hello", attempt=2, pid=51)
    command.saw("alive", 107.6, member="c0", pid=51, ours=True)
    assert command.verdict("processes") == "PASS"


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ({"digest": OTHER}, "ended with the state abababababab of step 12, which was told as"),
        ({"step": 11}, "of step 11, which was told as"),
    ],
)
def test_the_last_word_of_a_run_is_held_against_its_last_step(good, new, said):
    fails(good.change("ended", new), "digests", said)


def test_a_last_word_about_an_earlier_step_is_none(good, digest):
    good.change("ended", {"step": 11, "digest": digest(11)})
    fails(good, "digests", "of step 11, and step 12 was told")


def test_a_fault_free_run_that_ends_with_another_state_is_none(good):
    good.change("ended", {"digest": OTHER}, course="clean2")
    assert "clean2: coordinator ended with the state" in good.claim("clean-runs").message
    assert good.judge().verdict is Verdict.UNKNOWN
