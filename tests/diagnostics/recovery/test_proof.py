"""How far it is proven: bits, not losses; and nothing above what was shown."""

import pytest

from rackproof.diagnostics.verdict import Verdict

OTHER, ODD = "ab" * 32, "cd" * 32


def fails(scene, name, said):
    claim = scene.claim(name)
    assert (str(claim.verdict), said in claim.message) == ("FAIL", True), claim
    found = scene.judge()
    assert found.verdict is Verdict.FAIL
    return found


def changed(scene, **head):
    names = scene.head.__slots__
    scene.head = scene.head.__class__(**{n: getattr(scene.head, n) for n in names} | head)
    return scene


def elsewhere(scene, step, loss=None, digest=OTHER):
    """Have every process of the run that was hit claim another state, from a step on."""
    for later in range(step, 13):
        new = {"digest": digest[later:] + digest[:later] + str(later)}
        if loss is not None:
            new["loss"] = loss
        scene.change("step", new, step=later)
        scene.change("ended", {"digest": new["digest"]}, step=later)
        for what in ("checkpoint", "final"):
            scene.resee(what, {"digest": new["digest"]}, step=later)
    return scene


# --- L4 ------------------------------------------------------------------------------------------
def test_one_bit_in_one_step_and_the_losses_are_equal(good):
    found = fails(elsewhere(good, 9), "fault-free", "step 9: digests differ (faulted ")
    assert "the losses are equal to the last bit" in good.claim("fault-free").message
    assert found.proof == "L2"


@pytest.mark.parametrize(
    ("loss", "said"),
    [(4.0 / 9 + 1e-13, "agree to 12 digits"), (1.0, "the losses differ"), (0.45, "agree to 1 d")],
)
def test_losses_that_are_near_are_told_and_weigh_nothing(good, loss, said):
    fails(elsewhere(good, 9, loss), "fault-free", said)


def test_digests_that_are_copied_while_another_state_is_stored(good):
    good.resee("checkpoint", {"digest": OTHER}, step=12).resee("final", {"digest": OTHER})
    fails(good, "fault-free", "stored at the end is abababababab")
    fails(good, "final-state", "stored is abababababab")


def test_a_checkpoint_in_the_middle_that_is_another_without_the_fault(good):
    good.resee("checkpoint", {"digest": OTHER}, step=8)
    fails(good, "fault-free", "checkpoint of step 8 holds abababababab")


def test_a_step_that_was_done_twice_must_be_the_same_twice(telling_command):
    for what in telling_command.said["faulted"]:
        if what.kind == "step" and what.fields["step"] == 5 and what.attempt == 1:
            what.fields["digest"] = OTHER
    fails(telling_command, "fault-free", "step 5: digests differ")


def test_no_digests_are_unknown_with_a_cure(command):
    command.expect(proof="L4")
    assert command.verdict("fault-free") == "UNKNOWN"
    assert "emit `digest`" in command.claim("fault-free").message


def test_too_few_digests_are_unknown(telling_command):
    telling_command.change("step", {"digest": None}, step=12)
    assert telling_command.verdict("fault-free") == "UNKNOWN"
    assert telling_command.judge().proof != "L4"


def test_digests_of_some_steps_will_do_where_the_last_is_one_of_them(telling_command):
    for course in ("clean1", "clean2", "faulted"):
        for step in (2, 3, 6, 9, 10):
            telling_command.change("step", {"digest": None}, course=course, step=step)
    assert telling_command.judge().proof == "L4"
    assert "7 digests" in telling_command.claim("fault-free").message


def test_no_stored_state_is_no_l4(telling_command):
    telling_command.unsee("final", course="clean1").unsee("final", course="clean2")
    assert telling_command.verdict("fault-free") == "UNKNOWN"


def test_a_last_step_without_a_digest_in_any_run_is_no_l4(telling_command):
    for course in ("clean1", "clean2", "faulted"):
        telling_command.change("step", {"digest": None}, course=course, step=12)
    assert telling_command.verdict("determinism") == "UNKNOWN"
    assert telling_command.verdict("fault-free") == "UNKNOWN"
    assert "the last step told no digest" in telling_command.claim("fault-free").message


def test_without_digests_the_states_that_were_stored_last_tell_runs_apart(telling_command):
    for course in ("clean1", "clean2", "faulted"):
        telling_command.change("step", {"digest": None}, course=course)
    assert telling_command.verdict("determinism") == "PASS"
    assert telling_command.verdict("fault-free") == "UNKNOWN"
    telling_command.resee("final", {"digest": "cd" * 32}, course="faulted")
    assert telling_command.verdict("fault-free") == "FAIL"


def test_checkpoints_of_a_command_are_held_against_those_without_the_fault(telling_command):
    for course, text in (("clean1", ODD), ("clean2", ODD), ("faulted", OTHER)):
        telling_command.change("step", {"digest": None}, course=course, step=8)
        telling_command.saw("checkpoint", 119.0, course=course, uri="file:///c/8", step=8,
                            digest=text, verifies=True)  # fmt: skip
    fails(telling_command, "fault-free", "checkpoint of step 8 holds abababababab, cdcdcdcdcdcd")


# --- determinism ---------------------------------------------------------------------------------
def test_fault_free_runs_that_differ_make_l4_not_applicable(telling_command):
    telling_command.change("step", {"digest": ODD}, course="clean2", step=12)
    found = telling_command.judge()
    assert {telling_command.verdict(n) for n in ("determinism", "proof L4", "fault-free")} == {
        "SKIP"
    }
    assert (found.verdict, found.proof) == (Verdict.PASS, "L2")
    assert "step 12: digests differ" in telling_command.claim("determinism").message


def test_last_states_that_differ_without_a_fault_do_too(telling_command):
    telling_command.resee("final", {"digest": ODD}, course="clean2")
    assert telling_command.verdict("determinism") == "SKIP"
    assert telling_command.judge().proof == "L2"


@pytest.mark.parametrize("level", ["L3", "L4"])
def test_a_level_that_was_asked_for_and_does_not_apply_is_no_pass(telling_command, level):
    telling_command.change("step", {"digest": ODD}, course="clean2", step=12)
    assert str(telling_command.judge().verdict) == "PASS"
    telling_command.plan(require=level).expect(proof=level)
    found = telling_command.judge()
    assert (str(found.verdict), found.proof) == ("UNKNOWN", "L2")


def test_where_l4_was_insisted_on_that_is_unknown(telling_command):
    telling_command.change("step", {"digest": ODD}, course="clean2", step=12).plan(require="L4")
    assert telling_command.verdict("determinism") == "UNKNOWN"
    assert telling_command.judge().verdict is Verdict.UNKNOWN


def test_our_own_run_has_to_be_deterministic(good):
    good.change("step", {"digest": ODD}, course="clean2", step=12)
    assert good.verdict("determinism") == "UNKNOWN"
    found = good.judge()
    assert (found.verdict, found.proof) == (Verdict.UNKNOWN, "L3")


def test_one_fault_free_run_shows_no_determinism(good):
    del good.said["clean2"]
    assert good.verdict("clean-runs") == good.verdict("determinism") == "UNKNOWN"
    assert good.judge().verdict is Verdict.UNKNOWN
    elsewhere(good, 9)
    assert good.verdict("fault-free") == "UNKNOWN"


@pytest.mark.parametrize(
    "spoil",
    [
        lambda s: s.say(104.0, "coordinator", "lost", course="clean1", member="r1"),
        lambda s: s.say(104.0, "drill", "injected", course="clean1", fault="kill"),
        lambda s: s.drop("step", course="clean1", step=12),
        lambda s: s.say(111.5, "r0", "step", course="clean1", step=6),
        lambda s: s.unfinished.add("clean1"),
        lambda s: s.course_problems.update(clean1=["r0.1.jsonl line 3: no JSON"]),
    ],
)
def test_a_fault_free_run_that_was_none_is_unknown(good, spoil):
    spoil(good)
    assert good.verdict("clean-runs") == "UNKNOWN"
    assert good.judge().verdict is Verdict.UNKNOWN
    assert good.judge().proof == "L3"


# --- L3 ------------------------------------------------------------------------------------------
def dropping(scene):
    """A drill of drop-batch: the best that it can show is L3."""
    return changed(scene, mode="drop-batch").expect(proof="L3", best="L3")


def test_a_dropped_batch_is_held_against_its_replay_alone(good):
    found = elsewhere(dropping(good), 9).judge()
    assert found.proof == "L2"
    fails(good, "replay", "step 9: digests differ (faulted")
    for later in range(9, 13):
        (told,) = {h.fields["digest"] for h in good.said["faulted"]
                   if h.kind == "step" and h.fields["step"] == later}  # fmt: skip
        good.change("step", {"digest": told}, course="replay", step=later)
    found = good.judge()
    assert (found.verdict, found.proof) == (Verdict.PASS, "L3")
    assert good.verdict("proof L4") == good.verdict("determinism") == "SKIP"


def test_a_dropped_batch_may_differ_in_what_was_undone(good):
    dropping(good).expect(restarts=1, lost_steps=3)
    for at, step in ((105.05, 5), (105.1, 6)):
        good.say(at, "r0", "step", step=step, digest=OTHER[step:] + OTHER[:step] + str(step))
    good.said["faulted"] = [h for h in good.said["faulted"] if h.who != "s0" or h.kind != "step"]
    good.say(106.2, "r0", "restore", step=4, uri="file:///run/checkpoints/step-4", fields=[])
    good.say(106.2, "coordinator", "restarted", step=4, uri="")
    assert good.verdict("replay") == "PASS"
    good.head = changed(good, mode="keep-batch").head
    assert good.verdict("replay") == "FAIL"


def test_without_a_replay_a_dropped_batch_is_unknown(good):
    del dropping(good).said["replay"]
    assert good.verdict("replay") == "UNKNOWN"
    assert (good.judge().verdict, good.judge().proof) == (Verdict.UNKNOWN, "L2")


def test_without_a_replay_a_kept_batch_has_the_fault_free_run(good):
    del good.said["replay"]
    assert (good.judge().verdict, good.judge().proof) == (Verdict.PASS, "L4")
    good.say(102.9, "coordinator", "quarantine", shard=0, step=3, samples=[])
    assert good.verdict("replay") == "UNKNOWN"


def test_a_replay_of_other_samples(good):
    good.change("step", {"samples": [96, 97, 98, 99]}, course="replay", step=9)
    fails(good, "replay", "step 9: the replay used other samples")


def test_a_replay_that_ends_in_another_state_than_was_stored(good):
    dropping(good).resee("final", {"digest": OTHER}).unsee("checkpoint", step=12)
    good.drop("ckpt", step=12)
    fails(good, "replay", "stored at the end is abababababab, replayed")


def test_a_replay_that_did_not_come_to_its_end_is_unknown(good):
    dropping(good).drop("step", course="replay", step=12)
    assert good.verdict("replay") == "UNKNOWN"


# --- levels --------------------------------------------------------------------------------------
def test_nothing_is_shown_above_what_was_not(good):
    good.resee("checkpoint", {"verifies": False}, step=8)
    found = good.judge()
    assert (found.verdict, found.proof) == (Verdict.FAIL, "L1")
    assert [str(level.verdict) for level in found.levels] == [
        "PASS", "PASS", "FAIL", "UNKNOWN", "UNKNOWN",
    ]  # fmt: skip
    assert good.claim("proof L4").message == "rests on L2, which was not shown"


def test_what_was_found_wrong_above_the_level_that_was_asked_is_fail(telling_command):
    elsewhere(telling_command.expect(proof="L1"), 9)
    found = fails(telling_command, "fault-free", "step 9: digests differ")
    assert (found.required, found.proof) == ("L1", "L2")


def test_what_could_not_be_judged_above_the_level_that_was_asked_is_neutral(telling_command):
    for course in ("clean1", "clean2", "faulted"):
        telling_command.unsee("final", course=course)
    found = telling_command.expect(proof="L1").judge()
    assert (found.verdict, found.proof) == (Verdict.PASS, "L2")
    assert telling_command.verdict("final-state") == "SKIP"
    assert "not asked for" in telling_command.claim("final-state").message


def test_a_level_that_a_drill_cannot_show_is_not_required(good):
    found = good.expect(proof="L4", best="L3").judge()
    assert (found.required, found.proof, found.verdict) == ("L3", "L3", Verdict.PASS)
