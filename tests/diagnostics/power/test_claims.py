"""DD1 to DD4, DD9, DD10: a good drill holds each; one wrong thing breaks that one, and no other."""

import pytest

from tests.diagnostics.power.plant import EVERY, RACK, TICK, TOP

TRIP = {"sort": "electric", "run": "dimmed", "what": "breaker-tripped"}


def raise_cap(scene, job, at, by):
    """Ask for a higher cap at a moment, and for the one that was there a tick later."""
    before = [c["watts"] for c in scene.of("caps", job=job) if c["at"] <= at][-1]
    scene.add("caps", at=at, job=job, watts=before + by, differ=0)
    scene.add("caps", at=at + TICK, job=job, watts=before, differ=0)
    return scene


def test_a_good_drill_holds_all(scene):
    assert scene.others() == {}
    assert len(scene.verdicts()) == 16


def test_what_a_drill_is_not_held_for_and_does_not_hold_is_left_out(scene):
    scene.due = ("DD1",)
    scene.drop("event", what="sag").drop("limits", moment="end")
    scene.drop("event", run="control")
    left = scene.others()
    assert left == {"DD13": "SKIP", "DD11": "SKIP", "DD12": "SKIP", "DD5": "SKIP"}


# --- DD1 -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("feed", [RACK, "row0/power", "site/power"])
def test_dd1_a_trip_anywhere(scene, feed):
    scene.add(**TRIP, at=40.0, feed=feed)
    assert scene.others() == {"DD1": "FAIL"}
    assert f"{feed} tripped at 40.0 s" in scene.claims()["DD1"].message


@pytest.mark.parametrize("feed", ["row0/power", "site/power"])
def test_dd1_the_trip_integral_at_every_level(scene, feed):
    scene.trace(feed, "strain", lambda *_: 0.26, begin=40.0, end=40.2)
    assert scene.others() == {"DD1": "FAIL"}
    scene.trace(feed, "strain", lambda *_: 0.24, begin=40.0, end=40.2)
    assert scene.others() == {"DD1": "UNKNOWN"}  # no load of it makes that
    scene.trace(feed, "strain", lambda *_: 0.02, begin=40.0, end=40.2)
    assert scene.others() == {}


def test_dd1_a_meter_that_never_moves_is_no_evidence(scene):
    scene.trace(RACK, "strain", lambda *_: 0.0)
    assert scene.others() == {"DD1": "UNKNOWN"}
    assert "its load makes" in scene.claims()["DD1"].message


def test_dd1_a_curve_that_is_not_known_is_no_evidence(scene):
    del scene.one("layout")["settings"]["breaker.a"]
    assert scene.others("DD12") == {"DD1": "UNKNOWN"}


@pytest.mark.parametrize("value", [None, float("nan")])
def test_dd1_a_hole_in_the_trip_integral(scene, value):
    scene.trace("row0/power", "strain", lambda *_: value, begin=500.0, end=500.1)
    assert scene.others() == {"DD1": "UNKNOWN"}


# --- DD2 -----------------------------------------------------------------------------------------
CASES = [
    ("limit -20 %", "step", 10.0), ("limit -20 %", "urgent", 20.0),
    ("limit -20 %", "normal", 60.0), ("ac-loss", "", 1.0),
]  # fmt: skip


def later(scene, name, by):
    """Have the load of before stay for a while after an event."""
    event = scene.one("event", id=name)
    scene.trace(RACK, "mean", lambda *_: event["steady"], begin=event["at"], end=event["at"] + by)


@pytest.mark.parametrize(("name", "said", "most"), CASES)
def test_dd2_late_by_mode(scene, name, said, most):
    at = scene.one("event", id=name)["at"]
    scene.change("act", {"ramp": said}, what="dimmer-acts", at=at)
    later(scene, name, max(most - 2.0, 0.2))
    assert scene.verdicts()["DD2"] == "PASS"
    later(scene, name, most + 2.0)
    assert f"{most:g} s allowed" in scene.claims()["DD2"].message
    own = scene.others("DD1", "DD3", "DD4", "DD6", "power-record")
    assert own == {"DD2": "FAIL"}


def test_dd2_of_an_event_that_was_over_too_soon(scene):
    begin = scene.at("limit", "limit -20 %")
    scene.change("event", {"at": begin + 9.0}, what="lift", id="limit -20 %")
    later(scene, "limit -20 %", 30.0)
    assert scene.verdicts()["DD2"] == "UNKNOWN"
    assert "not so for 20 s that can be judged" in scene.claims()["DD2"].message


def test_dd2_of_a_load_that_nobody_sees_any_more(scene):
    """Who is blind before the time is over cannot trim; what was late before that is late."""
    begin = scene.at("limit", "limit -20 %")
    later(scene, "limit -20 %", 30.0)
    assert scene.verdicts()["DD2"] == "FAIL"
    scene.add("event", at=begin + 9.0, what="sensors-lost", id="x", feed=RACK, share=0.4)
    scene.add("event", at=begin + 60.0, what="sensors-back", id="x", feed=RACK)
    assert scene.verdicts()["DD2"] == "UNKNOWN"
    later(scene, "limit -40 %", 30.0)
    assert scene.verdicts()["DD2"] == "FAIL"


@pytest.mark.parametrize(("late", "wrong"), [(12.0, {}), (25.0, {"DD2": "FAIL"})])
def test_dd2_behind_a_ramp_that_ended(scene, late, wrong):
    """By the normal ramp it may take 60 s since the limit began to fall, and 10 s after its end."""
    begin = scene.at("ramp") + 45.0
    steady = scene.one("event", what="ramp")["steady"]
    scene.trace(RACK, "mean", lambda *_: steady, begin=begin - 5.0, end=begin + late)
    assert scene.others("power-record", "DD1") == wrong


def test_dd2_a_limit_above_the_load_shows_nothing(scene):
    event = scene.one("event", id="limit -20 %", what="limit")
    event["watts"] = event["asked"] = 1.01 * event["steady"]
    found = scene.claims()["DD2"]
    assert str(found.verdict) == "UNKNOWN"
    assert "not below the load" in found.message


def test_dd2_without_a_limit_that_falls(scene):
    for what in ("limit", "lift", "ac-lost", "ac-back", "ramp", "coolant-lost", "coolant-back"):
        scene.drop("event", what=what, run="dimmed")
    found = scene.verdicts()
    for name in ("DD2", "DD3", "DD6", "DD7", "DD10", "six-steps", "cooling"):
        assert found[name] == "UNKNOWN", name


# --- DD3 -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("share", [0.90, 0.99])
def test_dd3_settles_elsewhere(scene, share):
    begin = scene.at("limit", "limit -20 %")
    watts = scene.one("event", id="limit -20 %", what="limit")["watts"]
    scene.trace(RACK, "mean", lambda *_: share * watts, begin=begin + 8.0, end=begin + 80.0)
    assert scene.others() == {"DD3": "FAIL"}


def test_dd3_it_may_come_down_to_its_band_in_its_time(scene):
    begin = scene.at("limit", "limit -20 %")
    watts = scene.one("event", id="limit -20 %", what="limit")["watts"]
    scene.trace(RACK, "mean", lambda *_: 0.985 * watts, begin=begin + 8.0, end=begin + 38.0)
    assert scene.others() == {}
    scene.trace(RACK, "mean", lambda *_: 0.985 * watts, begin=begin + 8.0, end=begin + 50.0)
    assert scene.others() == {"DD3": "FAIL"}


def test_dd3_an_undershoot_before_it_settles(scene):
    begin = scene.at("limit", "limit -20 %")
    watts = scene.one("event", id="limit -20 %", what="limit")["watts"]
    scene.trace(RACK, "mean", lambda *_: 0.8 * watts, begin=begin + 6.0, end=begin + 12.0)
    assert scene.others() == {"DD3": "FAIL"}


def test_dd3_hunting(scene):
    begin = scene.at("limit", "limit -20 %")
    low = [c for c in scene.of("caps", job="training") if c["at"] < begin + 80.0][-1]["watts"]
    for number in range(6):
        way = 5.0 if number % 2 == 0 else 0.0
        scene.add("caps", at=begin + 20.0 + 9.0 * number, job="training", watts=low + way, differ=0)
    assert scene.others() == {"DD3": "FAIL"}
    assert "turns of a cap" in scene.claims()["DD3"].message


def test_dd3_a_window_that_is_cut_short(scene):
    begin = scene.at("limit", "limit -20 %")
    scene.change("event", {"at": begin + 12.0}, id="limit -20 %", what="lift")
    assert scene.verdicts()["DD3"] == "UNKNOWN"


# --- DD4 -----------------------------------------------------------------------------------------
def test_dd4_a_cap_that_rises_too_fast(scene):
    lift = scene.at("lift", "limit -20 %")
    (first, *_) = [c for c in scene.of("caps", job="batch") if c["at"] > lift]
    first["watts"] += 30.0
    assert scene.others() == {"DD4": "FAIL"}


@pytest.mark.parametrize(("said", "verdict"), [("urgent", "FAIL"), ("step", "PASS")])
def test_dd4_a_dimmer_that_does_otherwise_than_it_says(scene, said, verdict):
    begin, end = scene.at("limit", "limit -20 %"), scene.at("lift", "limit -20 %")
    for job in ("batch", "training"):
        own = [c for c in scene.of("caps", job=job) if begin <= c["at"] < end]
        for cap in own[:-1]:
            scene.bodies.remove(cap)
        own[-1]["at"] = begin
    scene.change("act", {"ramp": said}, what="dimmer-acts", at=begin)
    assert scene.verdicts()["DD4"] == verdict


@pytest.mark.parametrize("ramp", ["", "normal"])
def test_dd4_a_dimmer_that_says_less_than_it_does(scene, ramp):
    begin = scene.at("limit", "limit -20 %")
    scene.change("act", {"ramp": ramp}, what="dimmer-acts", at=begin)
    assert scene.others() == {"DD4": "FAIL"}
    wanted = "did not say" if not ramp else "20 configured"
    assert wanted in scene.claims()["DD4"].message


def test_dd4_a_word_that_comes_after_the_cut(scene):
    begin = scene.at("limit", "limit -20 %")
    scene.change("act", {"at": begin + 30.0}, what="dimmer-acts", at=begin)
    assert scene.others("six-steps") == {"DD4": "FAIL"}


@pytest.mark.parametrize(("ramp", "verdict"), [("normal", "PASS"), ("urgent", "FAIL")])
def test_dd4_a_word_within_a_tick_of_a_normal_cut(scene, ramp, verdict):
    name = "controller-killed" if ramp == "normal" else "limit -20 %"
    begin = scene.at("limit", name)
    scene.change("act", {"at": begin + TICK, "ramp": ramp}, what="dimmer-acts", at=begin)
    assert scene.verdicts()["DD4"] == verdict


def test_dd4_the_first_cap_that_is_told_is_a_cut_as_well(scene):
    for job in ("batch", "training"):
        scene.bodies.remove(scene.of("caps", job=job)[0])
        first, second = scene.of("caps", job=job)[:2]
        second["at"], first["watts"] = first["at"], second["watts"]
        scene.bodies.remove(second)
    found = scene.claims()
    assert str(found["DD4"].verdict) == "FAIL"
    assert str(found["power-record"].verdict) == "UNKNOWN"


@pytest.mark.parametrize("key", ["ramp.down", "ramp.urgent", "ramp.up", "tick", "cycle"])
@pytest.mark.parametrize("value", [0.0, "gone"])
def test_dd4_without_what_was_configured(scene, key, value):
    settings = scene.one("layout")["settings"]
    settings[key] = value
    if value == "gone":
        del settings[key]
    assert scene.others() == {"DD4": "UNKNOWN"}


def earlier(scene, by):
    """Have the Dimmer say that it acts some seconds before the limit of 20 % less falls."""
    at = scene.at("limit", "limit -20 %")
    scene.change("act", {"at": at - by}, what="dimmer-acts", at=at)
    return at


def said(scene, what, at, job=""):
    scene.add("act", run="dimmed", at=at, what=what, feed=RACK, job=job, text="", ramp="")


def test_dd4_a_word_of_before_the_window_holds(scene):
    earlier(scene, 3.0)
    assert scene.verdicts()["DD4"] == "PASS"


@pytest.mark.parametrize(("what", "job"), [("settled", ""), ("raise", "batch"), ("raise", "")])
def test_dd4_a_word_holds_until_it_is_done_with(scene, what, job):
    at = earlier(scene, 3.0)
    said(scene, what, at - 1.0, job)
    assert "did not say that it acts" in scene.claims()["DD4"].message
    assert scene.verdicts()["DD4"] == "FAIL"


def test_dd4_a_word_for_another_job_is_none(scene):
    at = earlier(scene, 3.0)
    scene.change("act", {"job": "training"}, what="dimmer-acts", at=at - 3.0)
    assert scene.verdicts()["DD4"] == "FAIL"


def test_dd4_who_is_on_the_way_down_may_go_on_though_another_has_room(scene):
    """A word of room ends no cut that is under way at its rate; it does end the next one."""
    at = earlier(scene, 3.0)
    caps = [c for c in scene.of("caps", job="batch") if at <= c["at"] < at + 100.0]
    low, first = caps[-1]["watts"], TOP
    scene.bodies = [b for b in scene.bodies if not any(b is c for c in caps)]
    rows = [(at + TICK * n, max(low, first - 10.0 * (n + 1))) for n in range(101)]
    for when, watts in rows:
        scene.add("caps", at=round(when, 6), job="batch", watts=watts, differ=0)
    said(scene, "raise", at + 10.2)
    assert scene.verdicts()["DD4"] == "PASS"
    for body in scene.of("caps", job="batch"):
        if at + 20.0 < body["at"] < at + 60.0:
            body["at"] += 5.0  # it rests for 5 s, and goes on
    assert scene.verdicts()["DD4"] == "FAIL"


# --- DD9 -----------------------------------------------------------------------------------------
def test_dd9_a_cap_that_rises_while_blind(scene):
    raise_cap(scene, "training", scene.at("sensors-lost") + 20.0, 6.0)
    assert scene.others("DD3", "DD4") == {"DD9": "FAIL"}
    assert "raised by 6 W" in scene.claims()["DD9"].message


def test_dd9_a_raise_in_the_cycle_of_the_loss_is_none_yet(scene):
    raise_cap(scene, "training", scene.at("sensors-lost") + 1.0, 6.0)
    assert scene.verdicts()["DD9"] == "PASS"


@pytest.mark.parametrize("late", [None, 32.0])
def test_dd9_no_alarm_or_a_late_one(scene, late):
    for what in ("hold", "alarm"):
        if late is None:
            scene.drop("act", what=what)
        else:
            scene.change("act", {"at": scene.at("sensors-lost") + late}, what=what)
    assert scene.others() == {"DD9": "FAIL"}


def test_dd9_a_late_alarm_does_not_excuse_what_came_before(scene):
    lost = scene.at("sensors-lost")
    for what in ("hold", "alarm"):
        scene.change("act", {"at": lost + 28.0}, what=what)
    raise_cap(scene, "training", lost + 10.0, 6.0)
    assert scene.verdicts()["DD9"] == "FAIL"


def test_dd9_without_a_cap_that_could_rise(scene):
    scene.change("event", {"at": 10.0}, what="sensors-lost")
    scene.change("event", {"at": 20.0}, what="sensors-back")
    scene.change("act", {"at": 12.0}, what="alarm")
    assert scene.verdicts()["DD9"] == "UNKNOWN"


# --- DD10 ----------------------------------------------------------------------------------------
def test_dd10_the_high_priority_first(scene):
    scene.one("layout")["jobs"][0]["priority"] = 3
    assert scene.others() == {"DD10": "FAIL"}
    assert "training still had" in scene.claims()["DD10"].message


def test_dd10_a_job_of_which_no_cap_is_told(scene):
    scene.drop("caps", job="batch")
    found = scene.verdicts()
    assert (found["DD10"], found["power-record"]) == ("UNKNOWN", "UNKNOWN")


def test_dd10_one_priority_is_no_order(scene):
    scene.one("layout")["jobs"][0]["priority"] = 2
    assert scene.others() == {"DD10": "UNKNOWN"}


def test_dd10_where_nobody_was_cut(scene):
    scene.change("caps", {"watts": TOP})
    assert scene.verdicts()["DD10"] == "UNKNOWN"


def test_the_grain_of_a_trace_is_that_of_the_house():
    assert pytest.approx(0.1) == EVERY
