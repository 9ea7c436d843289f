"""DD5 to DD7, DD11, cooling: what a training run may feel, and that every setting is put back."""

from dataclasses import replace

import pytest

from rackproof.diagnostics.recovery.claims import broken, left_out, unknown
from tests.diagnostics.power.plant import RACK, TOP
from tests.diagnostics.power.scene import RUN

NO_TRAINING = {"DD5": "UNKNOWN", "DD6": "UNKNOWN", "DD7": "UNKNOWN"}


def under(scene, name, column, make):
    """Change a column of the training steps under a limit."""
    begin, end = scene.at("limit", name), scene.at("lift", name)
    for body in scene.of("steps", job="training"):
        for place, at in enumerate(body["begin"]):
            if begin + 8.0 < at < end:
                body[column][place] = make(body[column][place])


# --- DD5 -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", RUN)
@pytest.mark.parametrize(("make", "verdict"), [(broken, "FAIL"), (left_out, "UNKNOWN")])
def test_dd5_rests_on_the_claims_of_the_run(scene, name, make, verdict):
    at = RUN.index(name)
    scene.training[at] = make(name, "a step was repeated")
    assert scene.others() == {"DD5": verdict}
    scene.training[at] = unknown(name, "not seen", "again")
    assert scene.others() == {"DD5": "UNKNOWN"}
    del scene.training[at]
    assert scene.others() == {"DD5": "UNKNOWN"}


def test_dd5_a_step_that_comes_again(scene):
    scene.of("steps", job="training")[3]["number"][5] -= 1
    assert scene.others() == {"DD5": "FAIL"}


def test_dd5_a_run_that_stands(scene):
    for body in scene.of("steps", job="training")[5:]:
        for column in ("begin", "end"):
            body[column] = [at + 3.0 for at in body[column]]
    assert "it stood for 3.0 s" in scene.claims()["DD5"].message
    assert scene.others("DD6", "DD7") == {"DD5": "FAIL"}


def test_dd5_steps_that_are_missing(scene):
    steps = scene.of("steps", job="training")
    scene.bodies.remove(steps[-1])
    assert scene.others() == {"DD5": "UNKNOWN"}
    scene.bodies.append(steps[-1])
    scene.bodies.remove(steps[4])
    assert scene.verdicts()["DD5"] != "PASS"


def test_dd5_fewer_steps_than_the_run_has(scene):
    scene.steps += 1
    assert scene.others() == {"DD5": "UNKNOWN"}


def test_dd5_the_steps_of_another_job(scene):
    for job, name in (("training", "none"), ("batch", "training")):
        scene.change("steps", {"job": name}, job=job)
    assert scene.verdicts()["DD5"] != "PASS"
    assert scene.verdicts()["power-record"] == "UNKNOWN"
    scene.drop("steps", job="training")
    assert scene.others("power-record") == {**NO_TRAINING, "six-steps": "UNKNOWN"}


@pytest.mark.parametrize("column", ["number", "begin", "end", "watts", "spread"])
def test_dd5_to_dd7_a_step_that_is_not_known(scene, column):
    scene.of("steps", job="training")[2][column][3] = None
    assert scene.others() == NO_TRAINING


# --- DD6 -----------------------------------------------------------------------------------------
def longer(scene, name, by):
    """Make the training steps under a limit take longer, and all later ones come later."""
    begin, end = scene.at("limit", name), scene.at("lift", name)
    moved = 0.0
    for body in scene.of("steps", job="training"):
        for place, at in enumerate(body["begin"]):
            took = body["end"][place] - at
            more = by * took if begin + 8.0 < at < end else 0.0
            body["begin"][place] = at + moved
            moved += more
            body["end"][place] = at + took + moved


@pytest.mark.parametrize(("name", "cut"), [("limit -20 %", 0.75), ("limit -40 %", 1.0)])
def test_dd6_what_it_cost(scene, name, cut):
    words = scene.claims()["DD6"].message
    saved = 0.189 if name == "limit -20 %" else 0.652
    assert f"{saved:.1%} of the job" in words
    base = 0.048 if name == "limit -20 %" else 0.226
    most = (1 - base) / (1 - cut * saved) - 1
    longer(scene, name, most - 0.02)
    assert scene.verdicts()["DD6"] == "PASS"
    longer(scene, name, 0.04)
    assert scene.others("DD5", "DD7", "power-record") == {"DD6": "FAIL"}


def test_dd6_a_job_that_is_told_to_save_more_than_there_was(scene):
    under(scene, "limit -20 %", "watts", lambda watts: 0.3 * watts)
    assert scene.others("power-record") == {"DD6": "UNKNOWN"}


def test_dd6_a_job_that_was_slow_before(scene):
    first, second = scene.at("limit", "limit -20 %"), scene.at("limit", "limit -40 %")
    for body in scene.of("steps", job="training"):
        for place, at in enumerate(body["begin"]):
            if second - 25.0 < at < second and at > first:
                body["end"][place] += 0.2
    assert scene.verdicts()["DD6"] == "UNKNOWN"
    assert "full speed" in scene.claims()["DD6"].message


# --- DD7 -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["limit -20 %", "limit -40 %", "sensor-loss"])
def test_dd7_ranks_that_drift_apart(scene, name):
    under(scene, name, "spread", lambda spread: spread + 0.06)
    assert scene.others() == {"DD7": "FAIL"}
    under(scene, name, "spread", lambda spread: spread - 0.02)
    assert scene.others() == {}


def test_dd7_a_part_of_the_time_is_enough(scene):
    counts = iter(range(10_000))
    under(scene, "limit -20 %", "spread", lambda s: s + (0.14 if next(counts) % 5 < 2 else 0.0))
    assert scene.others() == {"DD7": "FAIL"}


def test_dd7_caps_that_differ_inside_of_a_job(scene):
    lift = scene.at("lift", "limit -20 %")
    last = [c for c in scene.of("caps", job="training") if c["at"] < lift][-1]
    last["differ"] = 1
    assert scene.others() == {"DD7": "FAIL", "DD10": "FAIL"}


# --- DD11 ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("moment", ["end", "after-kill"])
def test_dd11_one_gpu_that_keeps_a_cap(scene, moment):
    scene.one("limits", moment=moment)["now"][17] = TOP - 20.0
    assert scene.others() == {"DD11": "FAIL"}
    assert "GPU 17" in scene.claims()["DD11"].message


def test_dd11_smoothing_that_is_not_put_back(scene):
    scene.change("limits", {"other": ["rack0/tray00/gpu0: smoothing floor 80 %"]}, moment="end")
    assert scene.others() == {"DD11": "FAIL"}
    scene.change("limits", {"other": None}, moment="end")
    assert scene.others() == {"DD11": "UNKNOWN"}


@pytest.mark.parametrize("moment", ["end", "after-kill", "dimmed"])
def test_dd11_a_moment_at_which_nobody_looked(scene, moment):
    scene.drop("limits", moment=moment)
    assert scene.others() == {"DD11": "UNKNOWN"}


@pytest.mark.parametrize("which", ["was", "now"])
def test_dd11_a_gpu_that_nobody_looked_at(scene, which):
    scene.one("limits", moment="end")[which][3] = None
    assert scene.others() == {"DD11": "UNKNOWN"}


def test_dd11_gpus_that_are_left_out(scene):
    for body in scene.of("limits"):
        body["was"], body["now"] = body["was"][:40], body["now"][:40]
    assert scene.others() == {"DD11": "UNKNOWN"}
    for body in scene.of("limits"):
        body["was"] = body["now"] = []
    assert scene.verdicts()["DD11"] == "UNKNOWN"


def test_dd11_a_before_that_was_read_while_dimmed(scene):
    body = scene.one("limits", moment="end")
    body["was"] = body["now"] = [800.0] * 72
    assert scene.verdicts()["DD11"] == "UNKNOWN"


def test_dd11_a_doubled_look_hides_nothing(scene):
    body = scene.one("limits", moment="end")
    scene.bodies.append({**body, "now": body["now"][:]})
    body["now"][0] = 500.0
    assert scene.others() == {"DD11": "FAIL"}


def test_dd11_a_kill_that_met_no_cap(scene):
    body = scene.one("limits", moment="dimmed")
    body["now"] = body["was"]
    assert scene.others() == {"DD11": "UNKNOWN"}


def test_dd11_a_run_that_ends_before_the_caps_are_back(scene):
    lift = scene.at("coolant-back")
    scene.bodies = [b for b in scene.bodies if not (b["sort"] == "caps" and b["at"] > lift + 10.0)]
    assert scene.others() == {"DD11": "UNKNOWN"}


# --- cooling -------------------------------------------------------------------------------------
def test_cooling_a_hot_gpu(scene):
    scene.trace(RACK, "margin", lambda *_: 2.9, begin=800.0, end=800.1)
    assert scene.others() == {"cooling": "FAIL"}


def test_cooling_a_slowdown(scene):
    scene.add("electric", run="dimmed", at=900.0, what="slowdown", feed=RACK)
    assert scene.others() == {"cooling": "FAIL"}


def test_cooling_a_margin_that_is_not_whole(scene):
    scene.trace(RACK, "margin", lambda *_: None, begin=800.0, end=800.1)
    assert scene.others() == {"cooling": "UNKNOWN"}
    scene.trace(RACK, "margin", lambda *_: None)
    assert scene.others() == {"cooling": "UNKNOWN"}


def test_cooling_that_lost_nothing(scene):
    scene.change("event", {"share": 1.0}, what="coolant-lost")
    assert scene.others() == {"cooling": "UNKNOWN"}


def test_a_claim_names_what_it_is_made_of(scene):
    scene.training[3] = replace(scene.training[3], message="bit-identical over all steps")
    assert "bit-identical over all steps" in scene.claims()["DD5"].message
