"""`campus`, as a user runs it."""

import pytest

from rackproof.harness.power.campus import LARGEST_CUT, LEAST_CUT
from rackproof.harness.power.campus_plan import LEAST, MOST

WORDS = ("campus", "--gpus", "1440", "--seed", "3")


def test_a_person_reads_the_plan_first_and_the_verdict_last(cli):
    done = cli(*WORDS)
    lines = done.out.splitlines()
    assert done.code == 0, done.err
    assert lines[0].startswith("SIMULATED campus of 1,440 GPUs, seed 3")
    assert any(line.startswith("event: the utility asks for 20 % less") for line in lines)
    assert lines[-1].startswith("PASS  no breaker trips")


def test_json_is_one_object_and_the_same_for_the_same_seed(cli):
    first, again = cli(*WORDS, "--json"), cli(*WORDS, "--json")
    assert first.out == again.out
    body = first.json
    assert (body["schema"], body["verdict"], body["gpus"]) == ("rackproof.campus/1", "PASS", 1440)
    assert {row["priority"] for row in body["classes"]} <= {0, 1, 2, 3}
    assert "SIMULATED" in first.err


def test_no_event_loses_nothing(cli):
    body = cli(*WORDS, "--event", "none", "--json").json
    assert (body["verdict"], body["limit"], body["under"]) == ("PASS", None, None)


def test_a_cut_that_cannot_be_held_is_fail(cli):
    done = cli(*WORDS, "--cut", "0.6")
    assert done.code == 1
    assert done.out.splitlines()[-1].startswith("FAIL  ")
    assert "cannot come under its limit" in " ".join(done.out.split())


def test_a_reserve_that_is_not_reached_stands_in_the_verdict(cli):
    done = cli("campus", "--gpus", "245", "--seed", "1", "--cut", "0.25")
    said = " ".join(done.out.split())
    assert done.code == 0, done.err
    assert "cannot come to its target, 95% of its limit" in said
    assert "cannot come under its limit" not in said
    assert "PASS no breaker trips" in said
    assert "its reserve was not reached: 97.4 % of it at the end, 95 % wanted" in said


def test_a_small_campus_is_told_in_kw(cli):
    done = cli("campus", "--gpus", "72", "--seed", "1", "--cut", "0.155")
    said = " ".join(done.out.split())
    assert "built for 119 kW at the utility" in said
    assert "asks for 15.5 % less" in said
    assert "0.0 MW" not in said
    assert "reserve" not in said


def test_help_says_the_bounds(cli):
    said = " ".join(cli("campus", "--help").out.split())
    assert f"{LEAST} to {MOST}" in said
    assert f"{LEAST_CUT}<=x<={LARGEST_CUT}" in said
    assert "None" not in said


def test_a_seed_is_drawn_and_shown(cli):
    first, other = cli("campus", "--gpus", "72", "--json"), cli("campus", "--gpus", "72", "--json")
    assert first.json["seed"] != other.json["seed"]
    assert f"seed {first.json['seed']}" in " ".join(first.err.split())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--gpus", "10"), "--gpus: 10: a campus has 72"),
        (("--gpus", "many"), "--gpus"),
        (("--gpus", "2000001"), "72 (one rack) to 2000000"),
        (("--cut", "0"), "0.001<=x<=0.6"),
        (("--cut", "1e-9"), "0.001<=x<=0.6"),
        (("--cut", "0.61"), "0.001<=x<=0.6"),
        (("--cut", "nan"), "is no number"),
        (("--event", "demand"), "did you mean demand-response"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_what_makes_no_sense_is_exit_2_and_one_line(cli, words, said):
    done = cli("campus", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert len(done.err.splitlines()) == 1
