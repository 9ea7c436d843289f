"""A record that was cut, or has lost lines: nothing fails for what is missing, what was seen does.

Whoever interrupts a drill has shown nothing against a rack.
"""

import random
from dataclasses import replace

import pytest

from rackproof.diagnostics.power.judge import Cut
from rackproof.diagnostics.power.judge import judge as judge_power
from rackproof.diagnostics.power.record import read
from rackproof.diagnostics.recovery.claims import broken
from rackproof.diagnostics.recovery.judge import judge
from rackproof.diagnostics.recovery.record import Fact
from rackproof.reports.drill_read import read_drill
from tests.diagnostics.power.drill import drill, recorded, write
from tests.diagnostics.power.plant import PARTS, RACK
from tests.diagnostics.power.scene import ALL, Scene

DUE = ("DD1", "DD2", "DD4", "DD5", "DD8", "DD10", "DD11")
TRIP = {"sort": "electric", "run": "dimmed", "what": "breaker-tripped", "at": 40.0, "feed": RACK}
RESET = {**TRIP, "what": "gpu-reset", "at": 300.0}


@pytest.fixture(scope="module")
def made():
    return drill(("utility-ramp",), DUE)


@pytest.fixture(scope="module")
def lines(made, tmp_path_factory):
    folder = write(tmp_path_factory.mktemp("cut") / "run", recorded(*made))
    return (folder / "drill.jsonl").read_text().splitlines()


def bad(recovery):
    return [c.id for c in recovery.claims if str(c.verdict) == "FAIL"]


def judged(tmp_path, lines):
    (tmp_path / "drill.jsonl").write_text("\n".join(lines) + "\n")
    return judge(read_drill(tmp_path))


def test_the_whole_of_it_passes(tmp_path, lines):
    found = judged(tmp_path, lines)
    assert [c for c in found.claims if str(c.verdict) not in ("PASS", "SKIP")] == []


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["cut", "dropped", "garbage"])
def test_a_record_that_lost_lines_fails_nobody(tmp_path, lines, how, seed):
    place = random.Random(f"{how} {seed}").randrange(1, len(lines))
    if how == "cut":
        lines = lines[:place]
    else:
        lines = [*lines[:place], *(["}{"] if how == "garbage" else []), *lines[place + 1 :]]
    found = judged(tmp_path, lines)
    assert bad(found) == []
    if place < len(lines) - 1:
        assert str(found.verdict) == "UNKNOWN"


@pytest.mark.parametrize("body", [TRIP, RESET])
def test_what_equipment_did_stays_done_in_a_record_that_was_cut(made, body):
    run, _ = made
    scene = Scene(parts=("utility-ramp",), due=DUE)
    scene.bodies.insert(3, dict(body))
    record = replace(recorded(run, scene), ended=False)
    assert bad(judge(record)) == [{"breaker-tripped": "DD1 no trip"}.get(body["what"], "DD13 sag")]


@pytest.mark.parametrize(
    "change",
    [{"ended": False}, {"whole": False}, {"unfinished": True}],
    ids=["no end", "not whole", "unfinished"],
)
def test_a_job_that_was_cut_before_another_is_unknown_where_the_run_was_cut(made, change):
    """As a drill leaves it that was interrupted on the way down; in a whole one it is a fault."""
    run, _ = made
    scene = Scene(parts=("utility-ramp",), due=DUE)
    begin = scene.at("ramp")
    scene.bodies = [b for b in scene.bodies if b["sort"] != "caps" or b["at"] <= begin + 60.0]
    for job, watts in (("batch", 590.0), ("training", 1000.0)):
        scene.add("caps", at=begin + 60.1, job=job, watts=watts, differ=0)
    record = recorded(run, scene)
    assert "DD10 priority" in bad(judge(record))
    missing = change.pop("unfinished", False)
    if missing:
        courses = {**record.courses, "faulted": replace(record.courses["faulted"], finished=False)}
        change = {"courses": courses}
    found = judge(replace(record, **change))
    own = ["reached", "DD4 ramps", "DD5 training", "proof L1"]
    assert bad(found) == (own if missing else [])
    said = next(c for c in found.claims if c.id == "DD10 priority")
    assert str(said.verdict) == "UNKNOWN"
    assert "still had 590 W" in said.message


def test_a_controller_that_somebody_else_ended_is_not_blamed_for_what_it_puts_back(made):
    run, _ = made
    scene = Scene(parts=("utility-ramp",), due=DUE)
    scene.add("caps", at=scene.at("ramp") + 60.1, job="batch", watts=1000.0, differ=0)
    record = recorded(run, scene)
    assert "DD4 ramps" in bad(judge(record))
    ended = Fact("died", {"member": "dimmer", "pid": 4711, "code": -15, "by": ""}, "faulted", 1.0)
    found = judge(replace(record, facts=[*record.facts, ended]))
    assert bad(found) == []
    assert str(found.verdict) == "UNKNOWN"


def test_events_that_are_missing_fail_nobody_and_neither_does_a_trace_that_ends_early():
    scene = Scene(parts=tuple(PARTS), due=(*ALL, *PARTS))
    scene.drop("event", id="ac-loss")
    found = scene.verdicts()
    assert found["power-record"] == "UNKNOWN"
    assert "FAIL" not in found.values()
    scene = Scene(parts=("utility-ramp",), due=DUE)
    last = max(body["from"] for body in scene.of("trace"))
    scene.bodies = [b for b in scene.bodies if b["sort"] != "trace" or b["from"] < last - 60.0]
    found = scene.claims()["power-record"]
    assert str(found.verdict) == "UNKNOWN"
    assert "its traces end at" in found.message


def test_training_that_died_of_itself_fails_though_the_run_was_cut_by_it():
    scene = Scene(parts=("utility-ramp",), due=DUE)
    scene.training[0] = broken("reached", "r1 exited with 1")
    cut = Cut("it was cut", lines=True)
    found = judge_power(read(scene.facts), DUE, scene.training, scene.steps, cut)
    assert {c.id: str(c.verdict) for c in found.claims}["DD5 training"] == "FAIL"


def test_a_fact_that_cannot_be_read_excuses_what_rests_on_it():
    scene = Scene(parts=tuple(PARTS), due=ALL)
    part = scene.of("trace", feed=RACK, run="dimmed")[2]
    part["mean"] = "gone"
    assert "FAIL" not in scene.verdicts().values()
