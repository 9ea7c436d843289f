"""What is stored, as we read it again, against what was said of it."""

import pytest

from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.checkpoint.anatomy import FIELDS

OTHER = "ab" * 32
STEP4, STEP8 = "file:///run/checkpoints/step-4", "file:///run/checkpoints/step-8"


def fails(scene, name, said):
    claim = scene.claim(name)
    assert (str(claim.verdict), said in claim.message) == ("FAIL", True), claim
    assert scene.judge().verdict is Verdict.FAIL


def damage(scene, what, at=105.4):
    scene.say(at, "drill", "injected", fault="bit-rot", damages=[what])
    return scene.saw("fired", at, fault="bit-rot", fired=1)


def restored(scene, **changes):
    """Have all of it go back to the checkpoint of step 4 by a restart of the job."""
    said = {"step": 4, "uri": STEP4, "fields": list(FIELDS), **changes}
    return scene.drop("restore", who="s0").say(106.0, "s0", "restore", **said)


# --- checkpoints ---------------------------------------------------------------------------------
def test_a_checkpoint_that_does_not_verify(good):
    good.resee("checkpoint", {"verifies": False, "problem": "sha256 of part-0"}, step=8)
    fails(good, "checkpoints", "step-8 does not verify (sha256 of part-0)")
    assert good.judge().proof == "L1"


def test_a_checkpoint_that_is_not_there(good):
    good.unsee("checkpoint", step=8)
    fails(good, "checkpoints", "step-8 was said to be committed, is not there")


def test_a_checkpoint_that_was_removed_and_said_so(good):
    good.unsee("checkpoint", step=4).say(112.0, "r0", "ckpt", phase="removed", step=4, uri=STEP4)
    assert str(good.claim("checkpoints").verdict) == "PASS"


def test_a_checkpoint_that_lies_where_we_do_not_look_is_unknown(good):
    good.resee("checkpoint", {"verifies": False, "looked": False, "problem": "on s3"}, step=8)
    assert str(good.claim("checkpoints").verdict) == "UNKNOWN"
    assert "on s3" in good.claim("checkpoints").message


def test_a_checkpoint_that_was_written_again_after_it_was_removed(good):
    good.unsee("checkpoint", step=8).say(104.0, "r0", "ckpt", phase="removed", step=8, uri=STEP8)
    fails(good, "checkpoints", "step-8 was said to be committed, is not there")


def test_a_checkpoint_of_another_step(good):
    good.resee("checkpoint", {"step": 7, "digest": ""}, step=8)
    fails(good, "checkpoints", "is of step 7, and was said to be of step 8")


def test_a_checkpoint_with_another_state_than_was_told(good):
    good.resee("checkpoint", {"digest": OTHER}, step=8)
    fails(good, "checkpoints", "holds the state abababababab, step 8 was told as")


@pytest.mark.parametrize("name", FIELDS)
def test_a_checkpoint_that_lacks_a_field(good, name):
    good.resee("checkpoint", {"fields": [each for each in FIELDS if each != name]}, step=8)
    fails(good, "checkpoints", f"lacks {name}")


def test_a_checkpoint_of_a_step_that_was_never_committed(good):
    good.saw("checkpoint", 119.0, uri="file:///run/checkpoints/step-90", step=90, verifies=True,
             digest=OTHER, fields=list(FIELDS))  # fmt: skip
    fails(good, "checkpoints", "is of step 90, which was never committed")


def test_no_checkpoint_that_was_read_again_is_unknown(good):
    good.unsee("checkpoint")
    assert good.verdict("checkpoints") == "UNKNOWN"
    assert good.judge().proof == "L1"


def test_a_checkpoint_that_was_not_hashed_is_unknown(good):
    good.resee("checkpoint", {"digest": ""}, step=8)
    assert good.verdict("checkpoints") == "UNKNOWN"


def test_what_the_drill_damaged_is_excused(good):
    good.resee("checkpoint", {"verifies": False, "problem": "rotten"}, step=4)
    assert good.verdict("checkpoints") == "FAIL"
    assert damage(good, STEP4).verdict("checkpoints") == "PASS"


def test_what_the_drill_damaged_before_it_was_written_anew_is_not(good):
    good.resee("checkpoint", {"verifies": False, "problem": "rotten"}, step=8)
    assert damage(good, STEP8).verdict("checkpoints") == "FAIL"


@pytest.mark.parametrize("named", ["file:///run/checkpoints", "/run/checkpoints/"])
def test_a_whole_tier_may_be_damaged(good, named):
    good.unsee("checkpoint", step=4)
    assert damage(good, named).verdict("checkpoints") == "PASS"


@pytest.mark.parametrize("named", ["file:///run/check", "file:///run/checkpoints/step-40"])
def test_damage_elsewhere_excuses_nothing(good, named):
    good.unsee("checkpoint", step=4)
    assert damage(good, named).verdict("checkpoints") == "FAIL"


def test_a_tier_that_cannot_be_read_is_unknown_unless_the_drill_took_it(good):
    good.saw(
        "checkpoint", 119.0, uri="", tier="T2=/run/far", step=0, verifies=False, problem="gone"
    )
    assert good.verdict("checkpoints") == "UNKNOWN"
    assert "gone" in good.claim("checkpoints").message
    assert damage(good, "/run/far").verdict("checkpoints") == "PASS"


def test_a_torn_checkpoint_that_nobody_called_committed_is_no_fault(good):
    good.saw("checkpoint", 119.0, uri="/run/checkpoints/step-6", step=6, verifies=False)
    assert good.verdict("checkpoints") == "PASS"


def test_none_is_due_in_a_short_run(command):
    command.head = command.head.__class__(
        **{name: getattr(command.head, name) for name in command.head.__slots__}
        | {"checkpoint_every": 50}
    )
    assert command.verdict("checkpoints") == "SKIP"


def test_digests_of_a_command_may_be_of_another_kind_and_are_then_not_compared(telling_command):
    for course in ("clean1", "clean2", "faulted"):
        for what in ("checkpoint", "final"):
            telling_command.resee(what, {"digest": OTHER}, course=course)
    assert telling_command.verdict("checkpoints") == "UNKNOWN"
    assert telling_command.verdict("final-state") == "UNKNOWN"
    assert telling_command.judge().proof == "L1"


def test_a_command_whose_digests_are_ours_without_the_fault_lies_with_it(telling_command):
    for what in ("checkpoint", "final"):
        telling_command.resee(what, {"digest": OTHER})
    fails(telling_command, "checkpoints", "holds the state abababababab")
    fails(telling_command, "final-state", "stored is abababababab")


# --- restores ------------------------------------------------------------------------------------
def test_a_restore_from_a_whole_checkpoint(good):
    assert restored(good).verdict("restores") == "PASS"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"uri": "file:///run/checkpoints/step-5"}, "step-5, which is not there"),
        ({"uri": ""}, "a checkpoint without a URI, which is not there"),
        ({"uri": STEP8}, "as step 4"),
        ({"step": 40}, "restored step 40, which was never committed"),
        ({"fields": ["weights"]}, "without optimizer, rng, data, config, topology, commit"),
        ({"fields": None}, "restored step 4 without weights"),
    ],
)
def test_a_restore_that_cannot_be(good, changes, said):
    fails(restored(good, **changes), "restores", said)


def test_a_restore_from_what_does_not_verify(good):
    good.resee("checkpoint", {"verifies": False}, step=4)
    fails(restored(good), "restores", "which does not verify")


def test_a_restore_from_what_the_drill_had_damaged(good):
    damage(restored(good), STEP4, at=105.4)
    fails(good, "restores", "which the drill had damaged")


def test_a_restore_from_what_the_drill_damaged_later_is_sound(good):
    assert damage(restored(good), STEP4, at=108.4).verdict("restores") == "PASS"


def test_a_restore_that_nobody_read_again_is_unknown(good):
    good.unsee("checkpoint")
    assert restored(good).verdict("restores") == "UNKNOWN"


def written_again(scene):
    """Have the address of step 4 hold step 12 in the end, as one that is always the newest."""
    scene.say(112.0, "r0", "ckpt", phase="committed", step=12, uri=STEP4)
    return scene.resee("checkpoint", {"step": 12}, step=4)


def test_a_restore_from_an_address_that_was_written_again_is_unknown(good):
    found = restored(written_again(good)).claim("restores")
    assert str(found.verdict) == "UNKNOWN"
    assert "step-4 was written again since it was restored" in found.message


def test_a_restore_from_it_of_another_step_than_it_held_cannot_be(good):
    fails(restored(written_again(good), step=3), "restores", "as step 3, and it was of 4")


# --- passed over ---------------------------------------------------------------------------------
def test_bad_checkpoints_must_be_passed_over(good):
    good.expect(passed_over=1).resee("checkpoint", {"verifies": False}, step=4)
    damage(good, STEP4)
    fails(good, "passed-over", "0 bad checkpoints were passed over, 1 had to be")
    good.say(105.95, "s0", "fault", uri=STEP4, why="rotten", passed_over=True)
    assert good.verdict("passed-over") == "PASS"


def test_a_good_checkpoint_must_not_be_passed_over(good):
    good.say(105.95, "s0", "fault", uri=STEP4, why="I say so", passed_over=True)
    fails(good, "passed-over", "step-4 is whole, and was passed over")


def test_nothing_that_was_restored_is_left_out(good):
    assert good.verdict("restores") == "SKIP"


def test_without_a_fault_nothing_had_to_be_passed_over(good):
    good.expect(passed_over=1).drop("injected")
    assert good.verdict("passed-over") == "UNKNOWN"


# --- the final state -----------------------------------------------------------------------------
def test_a_last_state_that_is_not_the_one_that_was_told(good):
    good.resee("final", {"digest": OTHER})
    fails(good, "final-state", "step 12: stored is abababababab, told was")


def test_a_last_state_of_an_earlier_step(good):
    good.resee("final", {"step": 8})
    fails(good, "final-state", "is of step 8, not of step 12")


def test_a_last_state_that_was_stored_without_the_fault_alone_shows_no_more_than_l1(
    telling_command,
):
    assert telling_command.judge().proof == "L4"
    for fault in ("resee", "unsee"):
        getattr(telling_command, fault)("final", *([{"step": 8}] if fault == "resee" else []))
        assert telling_command.verdict("final-state") == "UNKNOWN"
        said = telling_command.claim("final-state").message
        assert said.startswith("the last state, of step 12, is not stored; without the fault it")
        assert telling_command.judge().proof == "L1"
    telling_command.expect(proof="L1")
    assert str(telling_command.judge().verdict) == "PASS"


def test_a_last_state_that_is_of_a_later_step_still_fails(telling_command):
    telling_command.resee("final", {"step": 13})
    fails(telling_command, "final-state", "is of step 13, not of step 12")


def test_a_command_that_saved_earlier_is_unknown(telling_command):
    for course in ("clean1", "clean2", "faulted"):
        telling_command.resee("final", {"step": 8}, course=course)
    assert telling_command.verdict("final-state") == "UNKNOWN"
    assert "save after the last step" in telling_command.claim("final-state").message


def test_no_last_state_is_unknown(good):
    good.unsee("final")
    assert good.verdict("final-state") == "UNKNOWN"
    assert good.judge().proof == "L2"


def test_a_last_step_without_a_digest_is_unknown(good):
    good.change("step", {"digest": None}, step=12)
    assert good.verdict("final-state") == "UNKNOWN"
    assert good.claim("final-state").message.endswith("or read the record that was written")


def test_a_command_is_told_to_emit_one(telling_command):
    telling_command.change("step", {"digest": None}, step=12)
    assert "emit `digest`" in telling_command.claim("final-state").message
