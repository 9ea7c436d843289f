"""A kill that struck nobody who trains is UNKNOWN; one that did is judged as ever."""

import pytest

from rackproof.diagnostics.recovery.unhurt import OTHER


@pytest.fixture
def untouched(command):
    """A command that named a helper as its rank: it goes on when that one is killed."""
    command.drop("step")
    for kind in ("exited", "lost", "isolated", "restarted"):
        command.drop(kind)
    command.say(101.0, "c0", "hello", pid=50, rank=0, world=1)
    command.saw("alive", 101.01, member="c0", pid=50, there=True, ours=True)
    for step in range(1, 13):
        command.say(101.0 + step, "c0", "step", step=step, loss=1.0 / (step + 1))
    return command


def test_a_command_that_goes_on_as_if_nothing_had_been_shows_nothing(untouched):
    assert untouched.verdict("fault-fired") == "UNKNOWN"
    said = untouched.claim("fault-fired").message
    assert said.startswith("c0 told step 6, 7, 8, … (7 steps) after process 50 was killed")
    assert OTHER in said
    assert untouched.verdict("survived") == "UNKNOWN"
    assert untouched.judge().proof == "none"
    assert untouched.verdict("processes") == "FAIL"  # words of the dead, long after their death


def test_the_steps_may_come_as_fast_as_they_like(untouched):
    for step in range(6, 13):
        untouched.change("step", {"at": 106.61 + step * 1e-3}, step=step)
    assert untouched.verdict("fault-fired") == "UNKNOWN"
    found = untouched.judge()
    assert (str(found.verdict), found.proof) == ("UNKNOWN", "none")


def test_several_who_said_hello_are_the_reason(untouched):
    untouched.saw("doubled", 101.1, member="c0", pids=[49, 50])
    assert "several processes said hello as c0" in untouched.claim("fault-fired").message
    assert "say hello once, in the process that trains" in untouched.claim("fault-fired").message


@pytest.mark.parametrize(
    ("who", "kind", "fields", "attempt"),
    [
        ("c0", "hello", {"pid": 51, "rank": 0}, 1),
        ("c0.rank1", "hello", {"pid": 52, "rank": 1}, 1),
        ("c0", "restore", {"step": 5, "uri": "/x"}, 1),
        ("c0", "fault", {"text": "a new attempt"}, 2),
        ("drill", "restarted", {"step": 5, "why": "by itself"}, 1),
        ("drill", "spare-active", {"member": "c0"}, 1),
    ],
)
def test_whoever_was_started_again_was_hit(untouched, who, kind, fields, attempt):
    untouched.say(106.7, who, kind, attempt=attempt, **fields)
    assert untouched.verdict("fault-fired") == "PASS"
    assert untouched.verdict("survived") == "PASS"


def test_a_rank_that_tells_nothing_may_be_killed_while_another_goes_on(untouched):
    untouched.change("hello", {"rank": 1})
    untouched.said["faulted"] = [
        h if h.kind != "hello" else type(h)(h.at, "c0.rank1", h.kind, h.fields, h.attempt)
        for h in untouched.said["faulted"]
    ]
    assert untouched.verdict("fault-fired") == "PASS"


def test_a_copy_beside_it_that_is_started_again_excuses_nothing(untouched):
    untouched.say(106.7, "drill", "spare-active", member="c1")
    assert untouched.verdict("fault-fired") == "UNKNOWN"


def test_what_comes_after_a_second_kill_does_not_speak_for_the_first(untouched):
    untouched.say(109.5, "drill", "injected", fault="kill", member="c0", pid=60, subject="")
    untouched.saw("died", 109.55, member="c0", pid=60, code=-9)
    untouched.say(109.6, "drill", "restarted", step=8, why="ended with signal 9")
    assert untouched.verdict("fault-fired") == "UNKNOWN"


def test_who_said_no_hello_was_hit_where_its_steps_paused(untouched):
    untouched.drop("hello")
    assert untouched.verdict("fault-fired") == "UNKNOWN"
    for step in range(6, 13):
        untouched.change("step", {"at": 104.0 + step}, step=step)
    assert untouched.verdict("fault-fired") == "PASS"


def test_one_that_was_hit_and_came_back_passes(command):
    assert command.verdict("fault-fired") == "PASS"
    assert str(command.judge().verdict) == "PASS"


def test_one_that_was_hit_and_never_came_back_still_fails(untouched):
    for step in range(7, 13):
        untouched.drop("step", step=step)
    assert str(untouched.judge().verdict) == "FAIL"
    assert untouched.verdict("reached") == "FAIL"


def test_a_second_kill_that_could_not_be_placed_is_unknown_and_says_why(command):
    why = "c0 was killed, and its command did not come back"
    command.saw("fired", 110.0, fault="the second kill", fired=0, why=why)
    assert command.verdict("fault-fired") == "UNKNOWN"
    assert command.claim("fault-fired").message.startswith(f"the second kill: {why}")
    assert command.verdict("reached") == "PASS"
    assert str(command.judge().verdict) == "UNKNOWN"
