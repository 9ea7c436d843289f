"""Drills under pytest, in a child: those of rackproof, and one of a team's own."""

import os
import re
import subprocess
import sys
from xml.etree import ElementTree as ET

import pytest

from rackproof.diagnostics.drills.table import DRILLS

OWN = """
import pytest
from rackproof.fixtures.training import Expected, Plan

PLAN = Plan(steps=24, replicas=2, spares=1)


def hold(training_run, expected):
    plan = training_run.sized(PLAN)
    training_run.expect(expected)
    training_run.clean(plan)
    with training_run.run(plan) as job:
        job.reach(8)
        job.kill("r0")
        job.finish()


@pytest.mark.drill("acme.one-gone")
def test_one_gone(training_run):
    hold(training_run, Expected(proof="L4", timeline=("fault", "detected", "resumed")))
    assert training_run.judge().proof == "L4"


@pytest.mark.drill("acme.too-much")
def test_what_does_not_hold_fails(training_run):
    hold(training_run, Expected(proof="L4", kinds=("quarantine",)))


@pytest.mark.drill("acme.nothing-broken")
def test_a_fault_that_never_struck_proves_nothing(training_run):
    training_run.expect(Expected(proof="L4"))
    training_run.clean(PLAN)
    with training_run.run(PLAN) as job:
        job.finish()


@pytest.mark.drill("acme.in-the-rack")
def test_the_rack_takes_part(training_run, plant):
    plan = training_run.sized(Plan(steps=60, replicas=2, spares=1, auto=False))
    training_run.expect(Expected(proof="L3", components=("pcie", "host", "unknown")))
    training_run.clean(plan)
    with training_run.run(plan) as job, training_run.watch(job):
        job.reach(8)
        plant("gpu-lost@" + training_run.place(job, "r1"))
        job.kill("r1")
        training_run.quiet()
        job.finish()


@pytest.mark.drill("acme.by-a-name-of-ours")
def test_hold_is_for_ours(training_run):
    training_run.hold()


def test_that_runs_nothing(training_run):
    assert training_run.spec.name == "gb300-nvl72"
"""
UNKNOWN_NAME = """
import pytest

@pytest.mark.drill("gpu-los")
def test_it(training_run):
    pass
"""


@pytest.fixture
def tests(tmp_path):
    """Run pytest on a test file of somebody's own, with a rack; returns what it said, and cases."""

    def call(text, *words):
        (tmp_path / "test_own.py").write_text(text, "utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--junitxml=j.xml",
             "--rack", "gb300-nvl72", "--rack-seed", "7", "--rack-out", "run", *words],
            cwd=tmp_path, env={**os.environ, "PYTEST_ADDOPTS": ""}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        cases = ET.parse(tmp_path / "j.xml").iter("testcase")  # noqa: S314 - our own
        found = {case.get("name"): {child.tag for child in case} for case in cases}
        return done.stdout + done.stderr, done.returncode, found

    return call


@pytest.mark.slow
def test_a_teams_own_drills_are_held_and_judged(tests, tmp_path):
    said, code, cases = tests(OWN, "test_own.py")
    assert code == 1, said
    named = {re.sub(r"\[.*", "", name): tags - {"properties"} for name, tags in cases.items()}
    assert named["test_one_gone"] == set(), said
    assert named["test_that_runs_nothing"] == set()
    assert named["test_the_rack_takes_part"] == set(), said
    assert named["test_what_does_not_hold_fails"] == {"failure"}
    assert named["test_a_fault_that_never_struck_proves_nothing"] == {"error"}
    assert "UNKNOWN" in said
    assert "quarantine" in said
    drills = {path.name for path in (tmp_path / "run" / "drills").iterdir()}
    assert {"acme.one-gone", "acme.too-much", "acme.nothing-broken"} <= drills
    assert (tmp_path / "run" / "drills" / "acme.one-gone" / "drill.jsonl").is_file()


def test_the_shipped_drills_are_items_of_their_own(tests):
    said, code, cases = tests(
        "", "--pyargs", "rackproof.diagnostics.drills", "-k", "coordinator-loss"
    )
    assert code == 0, said
    assert set(cases) == {"test_drill[coordinator-loss]"}
    assert f"{len(DRILLS) - 1} deselected" in said


def test_a_name_that_is_none_is_told(tests):
    said, code, _ = tests(UNKNOWN_NAME, "test_own.py")
    assert code == 1
    assert "did you mean gpu-loss?" in said


def test_burns_do_not_collect_drills(cli):
    answer = cli("burn", "hgx-h100", "--only", "inventory", "--seed", "1", "--out", "run")
    assert answer.code == 0, answer.err
    assert "drill" not in answer.out
