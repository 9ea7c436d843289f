"""The judge itself, tested: trainers that do something wrong must fail their drill."""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill
from rackproof.diagnostics.drills.table import DRILLS
from rackproof.diagnostics.recovery.record import Expected
from rackproof.fixtures.drill import hold
from rackproof.fixtures.stage import Asked, Silence
from rackproof.harness.checkpoint.anatomy import FIELDS
from rackproof.harness.spec import load
from rackproof.harness.training import model, replay
from rackproof.harness.training.dataset import DataSet
from rackproof.harness.training.plan import Plan

BASE = Plan(steps=24, replicas=1, spares=1, every=6)
WANTED = Expected(proof="L4", restarts=1, must_restart=True, lost_steps=13)


def held(folder, plan, hit, expected=WANTED):
    """Hold a drill of ours on a plan; `hit` is handed the job."""

    def body(stage):
        stage.expect(expected)
        stage.clean(stage.sized(replace(plan, defect="")))
        with stage.run(stage.sized(plan)) as job:
            hit(job)
            job.finish()

    drill = Drill("gpu-loss", "a control", body)
    return hold(Asked(drill, load("gb300-nvl72"), 5, folder), Silence()).recovery


def lose(job):
    """Kill the only replica once a checkpoint is there: the spare goes on from it."""
    acts.stored(job, 6)
    job.reach(9)
    job.kill("r0")


def failed(recovery):
    return {claim.id: claim.message for claim in recovery.claims if claim.verdict == "FAIL"}


def test_the_sound_trainer_passes(tmp_path):
    recovery = held(tmp_path / "run", BASE, lose)
    assert (str(recovery.verdict), recovery.proof) == ("PASS", "L4"), recovery.claims
    assert recovery.restarts == 1


@pytest.mark.parametrize("name", FIELDS)
def test_a_trainer_that_forgets_a_field_fails(tmp_path, name):
    recovery = held(tmp_path / "run", replace(BASE, defect=f"forget:{name}"), lose)
    assert str(recovery.verdict) == "FAIL"
    assert recovery.proof in {"none", "L0", "L1"}
    assert "checkpoints" in failed(recovery)
    if name in {"weights", "optimizer", "data"}:  # these change the bits as well
        assert {"fault-free", "replay"} & set(failed(recovery))


def test_a_trainer_that_claims_steps_it_does_not_take_fails(tmp_path):
    def lie(job):
        job.order("r0", "lie")
        lose(job)

    recovery = held(tmp_path / "run", BASE, lie)
    assert str(recovery.verdict) == "FAIL"
    assert "fault-free" in failed(recovery)


def test_a_restart_with_another_thread_count_fails(tmp_path):
    plan = replace(BASE, shape=model.THREADED, defect="threads:2")
    DataSet.write(tmp_path / "data", plan)
    if not replay.matters(plan, tmp_path / "data", (1, 2)):
        pytest.skip("optional: threads change no bits on this machine")
    recovery = held(tmp_path / "run", plan, lose)
    assert str(recovery.verdict) == "FAIL"
    assert "fault-free" in failed(recovery)
    assert "loss" in failed(recovery)["fault-free"]  # they agree, and prove nothing


def test_a_fault_that_never_strikes_is_unknown(tmp_path):
    recovery = held(tmp_path / "run", BASE, lambda job: None, Expected())
    assert str(recovery.verdict) == "UNKNOWN"
    assert not recovery.fault_fired


def test_a_flipped_bit_that_nobody_looks_for_fails(tmp_path):
    plan = replace(BASE, replicas=2)

    def flip(job):
        job.order("r0", "flip-bit")

    recovery = held(tmp_path / "run", plan, flip, Expected())
    assert str(recovery.verdict) == "FAIL"
    assert {"fault-free", "replay"} <= set(failed(recovery))


def somebody_kills(job, member):
    """Kill a member as somebody does who is not the drill."""
    (pid,) = [each.pid for each in job.members() if each.name == member]
    os.kill(pid, signal.SIGKILL)
    assert job.until(lambda what: what.kind == "isolated" and what.text("member") == member)


def test_a_run_that_somebody_else_hits_as_well_is_unknown(tmp_path):
    def hit(job):
        job.reach(3)
        somebody_kills(job, "r1")
        lose(job)

    recovery = held(tmp_path / "run", replace(BASE, replicas=2), hit, Expected(evicted=("r0",)))
    assert (str(recovery.verdict), failed(recovery)) == ("UNKNOWN", {}), recovery.claims
    found = {claim.id: claim.message for claim in recovery.claims if claim.verdict == "UNKNOWN"}
    assert "r1 died of signal 9, which the drill did not send" in found["undisturbed"]
    assert "r1 was isolated, and had no fault, but r1 died" in found["evicted"]


def test_a_wrong_bit_fails_whoever_else_hits_the_run(tmp_path):
    def flip(job):
        job.reach(3)
        somebody_kills(job, "r1")
        job.order("r0", "flip-bit")

    recovery = held(tmp_path / "run", replace(BASE, replicas=2), flip, Expected())
    assert str(recovery.verdict) == "FAIL"
    assert {"fault-free", "replay"} <= set(failed(recovery))


COMMAND = """
import json, os, sys, time
again = os.environ["RP_RESUME"] == "1"
def say(kind, **fields):
    with open(os.environ["RP_EVENTS"], "a") as file:
        file.write(json.dumps({"kind": kind, **fields}) + "\\n")
say("hello", pid=os.getpid(), rank=0, world=1)
for step in range(1, eval(sys.argv[1]) + 1):
    time.sleep(0.01)  # the work
    say("step", step=step)
"""
PLANNED = 30


def commanded(folder, length):
    """Hold gpu-loss on a command that makes so many steps; `again` in it is true after a fault."""
    words = (sys.executable, "-c", COMMAND, length)
    drill, rack = DRILLS["gpu-loss"], load("gb300-nvl72")
    return hold(Asked(drill, rack, 5, folder, "C", command=words, steps=PLANNED), Silence())


def test_a_command_that_makes_what_was_planned_passes(tmp_path):
    recovery = commanded(tmp_path / "run", f"{PLANNED}").recovery
    assert (str(recovery.verdict), recovery.proof) == ("PASS", "L1"), failed(recovery)


def test_a_command_that_has_no_end_is_ended_before_anything_is_broken(tmp_path, monkeypatch):
    monkeypatch.setattr("rackproof.harness.launch.crew.OVER", 0.1)
    held_ = commanded(tmp_path / "run", "10**9")
    assert str(held_.recovery.verdict) == "UNKNOWN"
    assert f"was told, and {PLANNED} were planned" in held_.remark
    assert list(held_.record.courses) == ["clean1"]


@pytest.mark.parametrize("length", [f"{PLANNED} + again", f"10**9 if again else {PLANNED}"])
def test_a_command_that_goes_on_too_far_after_the_fault_fails(tmp_path, monkeypatch, length):
    monkeypatch.setattr("rackproof.harness.launch.crew.OVER", 1.0)
    recovery = commanded(tmp_path / "run", length).recovery
    assert str(recovery.verdict) == "FAIL"
    assert f"was told, and {PLANNED} were planned" in failed(recovery)["steps"]


EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "train.sh"
ODD = ("a b", "a%20b", "a?b#c", "ä é", "a'b$(c)")


@pytest.mark.parametrize("name", ODD)
def test_a_run_directory_may_have_any_name(tmp_path, name):
    regex = next(line for line in EXAMPLE.read_text("utf-8").splitlines() if "(?P<step>" in line)
    asked = Asked(
        DRILLS["gpu-loss"], load("gb300-nvl72"), 5, tmp_path / name / "run", "C",
        command=("bash", str(EXAMPLE), "24"), steps=24, require="L4",
        log_regex=regex.strip("#\\ '"),
    )  # fmt: skip
    recovery = hold(asked, Silence()).recovery
    assert (str(recovery.verdict), recovery.proof) == ("PASS", "L4"), recovery.claims
    assert [path.name for path in tmp_path.iterdir()] == [name]
