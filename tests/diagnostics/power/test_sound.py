"""A record that somebody edited: what one column says, another has to bear out."""

import pytest

from tests.diagnostics.power.plant import BBU_J, BESS_J, FEEDS, RACK
from tests.diagnostics.power.scene import ALL, Scene

KILLED = "controller-killed"


@pytest.fixture
def told(scene):
    """A record that tells the energy of its stores, as ours do."""
    more = {f"{RACK}.bbu.energy": BBU_J, f"{FEEDS[0]}.bess.energy": BESS_J}
    scene.one("layout")["settings"].update(more)
    assert scene.others() == {}
    return scene


def unshown(scene, *words):
    """The record is doubted, in these words."""
    found = scene.claims()["power-record"]
    assert str(found.verdict) == "UNKNOWN"
    for word in words:
        assert word in found.message


# --- loads ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("seconds", [6.0, 60.0])
def test_a_rack_is_not_dark_while_its_jobs_take_steps(scene, seconds):
    for feed in FEEDS:
        for column in ("mean", "peak", "seen"):
            scene.trace(feed, column, lambda *_: 0.0, begin=700.0, end=700.0 + seconds)
    unshown(scene, "of GPUs, their steps drew")


@pytest.mark.parametrize("factor", [0.8, 1.3])
def test_feeds_carry_what_their_gpus_draw(scene, factor):
    for feed in FEEDS:
        for column in ("mean", "seen"):
            scene.trace(feed, column, lambda v, _: v * factor, begin=700.0, end=760.0)
    unshown(scene, "their steps drew")


@pytest.mark.parametrize("job", ["batch", "training"])
def test_a_job_whose_steps_are_not_told(scene, job):
    unshown(scene.drop("steps", job=job), f"no step of {job}")


def test_two_parts_of_a_trace_exchanged(scene):
    own = scene.of("trace", feed=RACK, run="dimmed")
    low = min(own, key=lambda b: sum(b["mean"]))
    high = max(own, key=lambda b: sum(b["mean"]) if len(b["mean"]) == len(low["mean"]) else 0)
    low["from"], high["from"] = high["from"], low["from"]
    assert {"power-record", "DD1"} & {*scene.others()}
    assert scene.verdicts()["power-record"] != "PASS"


def test_two_parts_of_a_trace_that_overlap(scene):
    scene.of("trace", feed=RACK, run="dimmed")[2]["from"] -= 10.0
    unshown(scene, "has a gap")


# --- trip integrals ------------------------------------------------------------------------------
@pytest.mark.parametrize("feed", FEEDS)
@pytest.mark.parametrize("value", [-0.1, -5.0, 0.2])
def test_a_trip_integral_that_no_load_makes(scene, feed, value):
    scene.trace(feed, "strain", lambda *_: value, begin=20.0, end=25.0)
    assert scene.others() == {"DD1": "UNKNOWN"}


def test_a_trip_integral_that_stays_0_over_its_limit(scene):
    scene.trace(RACK, "strain", lambda *_: 0.0)
    assert "its load makes" in scene.claims()["DD1"].message
    assert scene.others() == {"DD1": "UNKNOWN"}


def test_a_load_above_its_limit_that_the_trip_integral_does_not_show(scene):
    """Outside of all events, and of a feed on which none happened."""
    scene.trace(FEEDS[0], "mean", lambda *_: 190_000.0, begin=20.0, end=40.0)
    scene.trace(FEEDS[0], "seen", lambda *_: 190_000.0, begin=20.0, end=40.0)
    assert scene.verdicts()["DD1"] == "UNKNOWN"


# --- stores --------------------------------------------------------------------------------------
def test_a_battery_that_gives_while_its_charge_stands(told):
    told.trace(RACK, "charge.bbu", lambda *_: 1.0)
    assert told.others() == {"DD8": "UNKNOWN"}
    assert "its charge moved by +0.000" in told.claims()["DD8"].message


def test_a_battery_that_lost_more_than_it_gave(told):
    begin = told.at("ac-lost")
    told.trace(RACK, "charge.bbu", lambda v, _: v - 0.1, begin=begin + 20.0)
    assert told.others() == {"DD8": "UNKNOWN"}


def test_a_store_of_a_site_too(told):
    told.trace(FEEDS[0], "charge.bess", lambda *_: 0.5)
    assert told.others() == {"DD8": "UNKNOWN"}


def test_losses_are_no_doubt(told):
    """A tenth is lost each way: the charge moves more than what was given, less than was taken."""
    begin, start = told.at("ac-lost"), 1.0
    for body in told.of("trace", feed=RACK, run="dimmed"):
        for place, watts in enumerate(body["out"]["bbu"]):
            if body["from"] + 0.1 * (place + 1) > begin:
                start -= 0.1 * (watts / 0.9 if watts > 0.0 else watts * 0.9) / BBU_J
                body["charge"]["bbu"][place] = start
    assert told.others() == {}


def test_a_battery_below_a_half_fails_whatever_else_is_doubted(told):
    told.trace(RACK, "charge.bbu", lambda *_: 0.4, begin=800.0)
    assert told.others() == {"DD8": "FAIL"}


# --- caps ----------------------------------------------------------------------------------------
def test_gpus_of_one_job_with_several_caps(scene):
    cap = scene.of("caps", job="batch")[5]
    cap["differ"] = 3
    assert scene.others() == {"DD10": "FAIL"}
    assert "3 GPUs of batch" in scene.claims()["DD10"].message
    act = {"run": "dimmed", "feed": RACK, "text": "", "ramp": ""}
    scene.add("act", at=cap["at"], what="refused", job="training", **act)
    assert scene.others() == {"DD10": "FAIL"}
    scene.add("act", at=cap["at"], what="foreign-cap", job="batch", **act)
    assert scene.others() == {}


# --- layout, courses and parts -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("feed", "parent", "said"),
    [
        ("site/power", RACK, "hangs on itself"),
        ("row0/power", "row0/power", "hangs on itself"),
        (RACK, "", "hang on none"),
        (RACK, "row7/power", "is no feed"),
    ],
)
def test_a_layout_that_is_no_tree(scene, feed, parent, said):
    next(f for f in scene.one("layout")["feeds"] if f["name"] == feed)["parent"] = parent
    unshown(scene, said)


@pytest.mark.parametrize("what", [KILLED, "controller-back"])
@pytest.mark.parametrize("due", [(*ALL, KILLED), ALL])
def test_a_controller_that_nobody_killed(scene, what, due):
    scene.due = due
    unshown(scene.drop("event", what=what))
    scene.drop("event", what={KILLED: "controller-back"}.get(what, KILLED))
    unshown(scene)
    if due == ALL:
        scene.drop("limits", moment="dimmed")
        unshown(scene, "settings were looked at (after-kill)")


def test_a_part_without_what_is_done_in_it():
    whole = Scene()
    whole.due = (*ALL, "sensor-loss", "sag", "utility-ramp")
    assert whole.others() == {}
    unshown(whole.drop("event", what="sensors-back"), "sensor-loss is in it without its sensors-b")
