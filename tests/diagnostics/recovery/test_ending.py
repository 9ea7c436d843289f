"""How a run ended is said as it was: an exit code, a signal, the drill's patience."""

from rackproof.diagnostics.verdict import Verdict


def fails(scene, name, said):
    claim = scene.claim(name)
    assert (str(claim.verdict), said in claim.message) == ("FAIL", True), claim
    assert scene.judge().verdict is Verdict.FAIL


def test_a_run_that_ends_with_an_error(good):
    good.unfinished.add("faulted")
    good.say(117.0, "drill", "exited", member="coordinator", pid=10, code=3).drop("ended")
    said = "it came to step 12, and then: coordinator ended with exit code 3"
    fails(good, "reached", said)


def test_how_a_job_was_given_up_is_said(command):
    command.unfinished.add("faulted")
    command.saw("outcome", 118.0, why="c0 ended with exit code 4, after 3 restarts")
    fails(command, "reached", "step 12, and then: c0 ended with exit code 4, after 3 restarts")


def test_an_end_before_the_last_step_is_said_and_fails(command):
    command.drop("step", step=12).saw("outcome", 118.0, why="the command ended at step 11 of 12")
    fails(command, "reached", "11 of 12 steps were committed: the command ended at step 11 of 12")


def test_who_was_still_there_after_the_last_step_was_ended(good):
    good.unfinished.add("faulted")
    good.resee("died", {"code": -9}, member="r0")
    fails(good, "reached", "then: r0 was still there after its last step, and ended by the drill")


def test_an_end_with_exit_code_0_is_called_so(command):
    command.unfinished.add("faulted")
    fails(command, "reached", "step 12, and then: c0 ended with exit code 0")


def test_an_end_that_nobody_saw_is_no_error(command):
    command.unsee("died", pid=51).unfinished.add("faulted")
    assert "nobody saw how it ended" in command.claim("reached").message
