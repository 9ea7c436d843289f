"""A step that was saved and not told: the checkpoint shows it, and nobody learns to leave out more.

The command is killed after it told step 5 and saved step 6, and goes on from there with step 7.
"""

import pytest

from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.checkpoint.anatomy import FIELDS
from rackproof.harness.happening import GONE

URI = "file:///run/checkpoints/step-6"
OTHER = "ab" * 32


@pytest.fixture
def hidden(telling_command, digest):
    """Judge a healthy run: step 6 is in its checkpoint, and in no line."""
    return saved(skipping(telling_command, 6), digest)


def skipping(scene, *steps):
    """Have the second attempt go on after `steps`, which nobody told, from the last of them."""
    scene.said["faulted"] = [
        h
        for h in scene.said["faulted"]
        if h.kind != "step" or h.attempt == 1 or h.fields["step"] > steps[-1]
    ]
    restored = {"step": steps[-1], "uri": URI, "fields": list(FIELDS)}
    return scene.say(107.5, "c0", "restore", attempt=2, **restored)


def saved(scene, state, step=6, course="faulted"):
    read = {"uri": URI, "step": step, "digest": state(step), "fields": list(FIELDS)}
    more = {"verifies": True, "problem": "", "tier": ""}
    return scene.saw("checkpoint", 119.0, course=course, **read, **more)


def test_the_checkpoint_from_which_it_went_on_shows_it(hidden):
    found = hidden.judge()
    assert (found.verdict, found.proof, found.steps.committed) == (Verdict.PASS, "L4", 12)
    said = "step 6 was not told, and is shown by the checkpoint from which the run went on"
    assert said in hidden.claim("steps").message
    assert "12 digests" in hidden.claim("fault-free").message
    assert "step 6 by its state" in hidden.claim("samples").message


def test_of_another_state_than_without_the_fault_it_fails(hidden):
    hidden.resee("checkpoint", {"digest": OTHER}, step=6)
    assert hidden.verdict("fault-free") == "FAIL"
    assert "step 6 was not told, its checkpoint holds abababababab" in (
        hidden.claim("fault-free").message
    )
    assert hidden.judge().verdict is Verdict.FAIL


def test_the_checkpoint_without_the_fault_will_do_where_no_digest_is_told_there(hidden, digest):
    for course in ("clean1", "clean2"):
        hidden.change("step", {"digest": None}, course=course, step=6)
        saved(hidden, digest, course=course)
    assert hidden.judge().verdict is Verdict.PASS


def test_a_state_of_another_kind_than_those_told_is_not_compared(hidden):
    for course in ("clean1", "clean2", "faulted"):
        hidden.resee("checkpoint", {"digest": OTHER}, course=course, step=12)
        hidden.resee("final", {"digest": OTHER}, course=course)
    hidden.resee("checkpoint", {"digest": "cd" * 32}, step=6)
    assert hidden.verdict("fault-free") == "UNKNOWN"
    assert hidden.verdict("samples") == "UNKNOWN"
    assert hidden.verdict("steps") == "PASS"


@pytest.mark.parametrize("said", [True, False])
def test_one_that_was_removed_since_is_unknown(hidden, said):
    if said:
        hidden.unsee("checkpoint", step=6)
        hidden.say(115.0, "c0", "ckpt", phase="removed", step=6, uri=URI, attempt=2)
    else:
        hidden.resee("checkpoint", {"verifies": False, "digest": "", "problem": GONE}, step=6)
    assert hidden.verdict("steps") == "UNKNOWN"
    assert hidden.verdict("restores") == "UNKNOWN"
    assert hidden.judge().verdict is Verdict.UNKNOWN


def test_one_that_was_written_again_since_is_unknown(hidden):
    hidden.say(104.0, "c0", "ckpt", phase="committed", step=3, uri=URI)
    hidden.say(112.0, "c0", "ckpt", phase="committed", step=12, uri=URI, attempt=2)
    hidden.unsee("checkpoint", step=6)
    hidden.resee("checkpoint", {"uri": URI}, step=12)
    assert (hidden.verdict("steps"), hidden.verdict("restores")) == ("UNKNOWN", "UNKNOWN")
    assert hidden.judge().verdict is Verdict.UNKNOWN


def test_one_that_lies_elsewhere_is_unknown(hidden):
    hidden.resee("checkpoint", {"looked": False, "verifies": False, "problem": "away"}, step=6)
    assert hidden.verdict("steps") == "UNKNOWN"
    assert "(away)" in hidden.claim("steps").message


def test_one_that_is_there_and_does_not_verify_fails(hidden):
    hidden.resee("checkpoint", {"verifies": False, "problem": "rotten"}, step=6)
    assert hidden.verdict("restores") == "FAIL"


# --- who lies -------------------------------------------------------------------------------------
def fails(scene, said):
    claim = scene.claim("steps")
    assert (str(claim.verdict), said in claim.message) == ("FAIL", True), claim
    assert scene.judge().verdict is Verdict.FAIL


def test_several_steps_are_not_hidden_by_one_death(telling_command, digest):
    saved(skipping(telling_command, 6, 7), digest, step=7)
    fails(telling_command, "never told: step 6, 7")


def test_a_restore_without_a_death_shows_nothing(hidden):
    hidden.drop("step", step=9)
    hidden.say(111.5, "c0", "restore", attempt=2, step=9, uri=f"{URI}x", fields=list(FIELDS))
    hidden.saw("checkpoint", 119.0, uri=f"{URI}x", step=9, verifies=True, digest=OTHER)
    fails(hidden, "never told: step 9")


def test_a_restore_from_a_peer_shows_nothing(hidden):
    hidden.change("restore", {"uri": "peer:c1"}, who="c0")
    fails(hidden, "never told: step 6")


def test_a_step_that_nobody_restored_is_missing(hidden):
    hidden.drop("restore")
    fails(hidden, "began with step 7")


def test_the_state_of_another_step_shows_nothing(hidden, digest):
    hidden.resee("checkpoint", {"digest": digest(5)}, step=6)
    fails(hidden, "never told: step 6")


# --- the last step --------------------------------------------------------------------------------
@pytest.fixture
def last(telling_command, digest):
    """Judge a run that was killed between its last save and its line; nothing was left to do."""
    scene = telling_command
    scene.said["faulted"] = [
        h for h in scene.said["faulted"] if h.attempt == 1 and h.kind not in {"injected", "exited"}
        and h.kind not in {"lost", "isolated", "restarted"}
    ]  # fmt: skip
    for place, step in enumerate(range(6, 12), 1):
        told = {"step": step, "digest": digest(step), "samples": samples(step), "loss": 0.1}
        scene.say(106.0 + place, "c0", "step", **told)
    scene.say(112.5, "drill", "injected", fault="kill", member="c0", pid=50, subject="")
    scene.unsee("died", pid=50).saw("died", 112.55, member="c0", pid=50, code=-9)
    scene.say(112.6, "drill", "exited", member="c0", pid=50, code=-9)
    restored = {"step": 12, "uri": URI.replace("6", "12"), "fields": list(FIELDS)}
    return scene.say(113.0, "c0", "restore", attempt=2, **restored)


def samples(step):
    return list(range((step - 1) * 4, step * 4))


def test_a_kill_after_the_last_save_leaves_nothing_to_recover(last):
    for name in ("survived", "reached", "timeline"):
        assert last.verdict(name) == "UNKNOWN", last.claim(name)
    assert "step 12, the last, was saved and not told" in last.claim("reached").message
    found = last.judge()
    assert found.verdict is Verdict.UNKNOWN, [c for c in found.claims if c.verdict is Verdict.FAIL]


def test_a_run_that_ends_before_its_last_step_and_restores_nothing_fails(last):
    last.drop("restore")
    assert last.verdict("reached") == "FAIL"
    assert last.judge().verdict is Verdict.FAIL
