"""DD8, DD12, DD13: stores within their ratings, a control that trips, sags that move nothing."""

import pytest

from tests.diagnostics.power.plant import FEEDS, RACK

CONTROL = {"run": "control"}


# --- DD8 -----------------------------------------------------------------------------------------
STORES = [(RACK, "bbu"), (RACK, "cbu"), (FEEDS[0], "bess")]


@pytest.mark.parametrize(("feed", "store"), STORES)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_dd8_a_store_that_gives_or_takes_more_than_it_can(scene, feed, store, sign):
    rated = scene.one("layout")["settings"][f"{feed}.{store}.power"]
    scene.trace(feed, f"out.{store}", lambda *_: sign * rated * 1.01, begin=900.0, end=900.1)
    assert scene.others() == {"DD8": "FAIL"}
    assert f"{feed}: its {store} gave" in scene.claims()["DD8"].message


@pytest.mark.parametrize(("feed", "store"), STORES)
def test_dd8_a_store_that_runs_empty(scene, feed, store):
    scene.trace(feed, f"charge.{store}", lambda *_: 0.0, begin=900.0, end=900.1)
    # The capacitors of a rack hold too little for a step of 2 s; to be empty is what they do.
    assert scene.others() == ({} if store == "cbu" else {"DD8": "FAIL"})
    scene.trace(feed, f"charge.{store}", lambda *_: -0.2, begin=900.0, end=900.1)
    assert scene.others() == {"DD8": "UNKNOWN"}


def test_dd8_a_battery_that_ends_too_low(scene):
    scene.trace(RACK, "charge.bbu", lambda *_: 0.49, begin=1000.0)
    assert scene.others() == {"DD8": "FAIL"}
    assert "ends at 49%" in scene.claims()["DD8"].message
    scene.trace(RACK, "charge.bbu", lambda *_: 0.50, begin=1000.0)
    assert scene.others() == {}


@pytest.mark.parametrize("column", ["charge.bbu", "out.cbu"])
@pytest.mark.parametrize("value", [None, float("inf"), 1e300])
def test_dd8_a_store_that_is_not_known(scene, column, value):
    scene.trace(RACK, column, lambda *_: value, begin=900.0, end=900.1)
    assert scene.others() == {"DD8": "UNKNOWN"}


@pytest.mark.parametrize("rated", [None, 0.0, -5.0])
def test_dd8_a_rating_that_is_not_known(scene, rated):
    scene.one("layout")["settings"][f"{RACK}.cbu.power"] = rated
    assert scene.others() == {"DD8": "UNKNOWN"}


def test_dd8_a_rack_without_its_battery(scene):
    for body in scene.of("trace", feed=RACK):
        body["charge"].pop("bbu")
        body["out"].pop("bbu")
    assert scene.others() == {"DD8": "UNKNOWN"}


def test_dd8_a_store_that_is_rated_and_has_no_trace(scene):
    for body in scene.of("trace", feed=RACK):
        body["charge"].pop("cbu")
        body["out"].pop("cbu")
    assert scene.verdicts()["DD8"] == "UNKNOWN"
    assert "rack0/power.cbu" in scene.claims()["DD8"].message


def test_dd8_mains_that_went_though_no_battery_gave(scene):
    scene.trace(RACK, "out.bbu", lambda *_: 0.0)
    assert scene.others("six-steps") == {"DD8": "UNKNOWN"}


# --- DD12 ----------------------------------------------------------------------------------------
def test_dd12_a_control_that_does_not_trip(scene):
    scene.drop("electric", what="breaker-tripped", **CONTROL)
    assert scene.others() == {"DD12": "FAIL"}
    assert "shows nothing" in scene.claims()["DD12"].message


@pytest.mark.parametrize("factor", [0.7, 1.45])
def test_dd12_a_trip_that_is_not_by_the_formula(scene, factor):
    begin = scene.one("event", **CONTROL)["at"]
    trip = scene.one("electric", what="breaker-tripped", **CONTROL)
    trip["at"] = begin + (trip["at"] - begin) * factor
    assert scene.others() == {"DD12": "FAIL"}


def test_dd12_a_control_in_which_the_dimmer_acted(scene):
    scene.add("act", run="control", at=30.0, what="dimmer-acts", ramp="normal")
    assert scene.others() == {"DD12": "FAIL"}


def test_dd12_another_breaker_tripped(scene):
    scene.change("electric", {"feed": "row0/power"}, what="breaker-tripped", **CONTROL)
    assert scene.others() == {"DD12": "FAIL"}


@pytest.mark.parametrize("share", [0.7, 0.85, 1.1])
def test_dd12_another_event_than_under_the_dimmer(scene, share):
    event = scene.one("event", **CONTROL)
    event["watts"] = event["asked"] = share * event["steady"]
    assert scene.verdicts()["DD12"] == "UNKNOWN"


def test_dd12_another_feed_than_under_the_dimmer(scene):
    for sort in ("event", "trace", "electric"):
        for body in scene.of(sort, feed=RACK, **CONTROL):
            body["feed"] = "row0/power"
    assert scene.others("power-record") == {"DD12": "UNKNOWN"}


def test_dd12_without_the_controls_load(scene):
    scene.drop("trace", feed=RACK, **CONTROL)
    assert scene.others("power-record") == {"DD12": "UNKNOWN"}


def test_dd12_a_hole_in_the_controls_load(scene):
    scene.trace(RACK, "mean", lambda *_: None, begin=40.0, end=40.1, run="control")
    assert scene.verdicts()["DD12"] == "UNKNOWN"


@pytest.mark.parametrize("key", ["k", "a", "decay"])
@pytest.mark.parametrize("value", [0.0, None])
def test_dd12_a_curve_that_cannot_be(scene, key, value):
    scene.one("layout")["settings"][f"breaker.{key}"] = value
    assert scene.others("DD1") == {"DD12": "UNKNOWN"}


# --- DD13 ----------------------------------------------------------------------------------------
LONG = {"what": "sag", "seconds": 0.300}


def test_dd13_a_gpu_that_is_reset(scene):
    scene.add("electric", run="dimmed", at=scene.one("event", **LONG)["at"] + 0.1, feed=RACK,
              what="gpu-reset")  # fmt: skip
    assert scene.others() == {"DD13": "FAIL"}


@pytest.mark.parametrize("seconds", [0.020, 0.300])
@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_dd13_a_load_that_moves(scene, seconds, factor):
    at = scene.one("event", what="sag", seconds=seconds)["at"]
    scene.trace(RACK, "mean", lambda v, _: factor * v, begin=at + seconds, end=at + 6.0)
    assert scene.verdicts()["DD13"] == "FAIL"


@pytest.mark.parametrize(("seconds", "verdict"), [(0.0041, "FAIL"), (0.004, "PASS")])
def test_dd13_a_battery_that_is_late(scene, seconds, verdict):
    event = scene.one("event", **LONG)
    (low,) = [e for e in scene.of("electric", what="bus-low") if e["at"] > event["at"]]
    (near,) = [e for e in scene.of("electric", what="bbu-carries") if e["at"] > event["at"]]
    near["seconds"], near["at"] = seconds, low["at"] + seconds
    assert scene.verdicts()["DD13"] == verdict
    near["at"] += 0.1  # it is told in two ways
    assert scene.verdicts()["DD13"] == "UNKNOWN"
    scene.bodies.remove(low)
    assert scene.verdicts()["DD13"] == "UNKNOWN"


def test_dd13_a_battery_that_does_not_come_or_is_not_timed(scene):
    event = scene.one("event", **LONG)
    (near,) = [e for e in scene.of("electric", what="bbu-carries") if e["at"] > event["at"]]
    near["seconds"] = None
    assert scene.others() == {"DD13": "UNKNOWN"}
    scene.bodies.remove(near)
    assert scene.others() == {"DD13": "FAIL"}


def test_dd13_a_battery_that_takes_a_short_one(scene):
    at = scene.one("event", what="sag", seconds=0.020)["at"]
    scene.add("electric", run="dimmed", at=at + 0.01, what="bbu-carries", feed=RACK, seconds=0.003)
    assert scene.others() == {"DD13": "FAIL"}


def test_dd13_what_happened_in_the_control_is_not_of_a_sag(scene):
    event = scene.one("event", **LONG)
    (near,) = [e for e in scene.of("electric", what="bbu-carries") if e["at"] > event["at"]]
    near["run"] = "control"
    assert scene.others() == {"DD13": "FAIL"}


@pytest.mark.parametrize("seconds", [0.020, 0.300])
def test_dd13_one_kind_of_sag_is_half_of_it(scene, seconds):
    scene.drop("event", what="sag", seconds=seconds)
    assert scene.others() == {"DD13": "UNKNOWN"}


@pytest.mark.parametrize("new", [{"left": 0.99}, {"left": None}, {"seconds": None}])
def test_dd13_a_sag_that_is_none(scene, new):
    scene.change("event", new, **LONG)
    assert scene.others() == {"DD13": "UNKNOWN"}


def test_dd13_a_load_around_it_that_is_not_known(scene):
    at = scene.one("event", **LONG)["at"]
    scene.trace(RACK, "mean", lambda *_: None, begin=at + 0.3, end=at + 0.5)
    assert scene.verdicts()["DD13"] == "UNKNOWN"


# --- what equipment did, at whatever time --------------------------------------------------------
@pytest.mark.parametrize(("what", "claim"), [("gpu-reset", "DD13"), ("bbu-empty", "DD8")])
def test_what_no_rack_may_do_fails_at_any_time_whatever_was_asked(scene, what, claim):
    scene.add("electric", run="dimmed", at=70.0, what=what, feed=RACK)
    assert scene.others() == {claim: "FAIL"}
    scene.due = ("DD1",)
    assert scene.verdicts()[claim] == "FAIL"
    scene.change("electric", {"run": "control"}, what=what)
    assert scene.verdicts()[claim] == "PASS"


@pytest.mark.parametrize(
    ("store", "feed", "word"),
    [("cbu", RACK, "bbu-cbu-respond"), ("bess", FEEDS[0], "bess-utility-coordinate")],
)
def test_a_step_that_nothing_is_built_for_is_not_missed(scene, store, feed, word):
    """What is built, and not in the record, is."""
    for body in scene.of("trace", feed=feed):
        body["charge"].pop(store)
        body["out"].pop(store)
    assert scene.verdicts()["six-steps"] != "PASS"
    settings = scene.one("layout")["settings"]
    for key in [key for key in settings if f".{store}." in key]:
        del settings[key]
    found = scene.claims()["six-steps"]
    assert str(found.verdict) == "PASS"
    assert f"no {store.upper()}" in found.message
    assert found.message.endswith(f"no {word})")
