"""A record that is hurt: UNKNOWN with words, never an exception; its order does not matter."""

import json
import random
from dataclasses import asdict

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.diagnostics.power.plant import FEEDS, RACK
from tests.diagnostics.power.scene import ALL, Scene, copied

SORTS = ("layout", "event", "electric", "act", "caps", "trace", "steps", "limits")
NEEDED = {
    "layout": ("feeds", "jobs", "settings"), "event": ("at",), "electric": ("at",),
    "act": ("at", "what"), "caps": ("at", "job", "watts"), "limits": ("was", "now", "moment"),
    "trace": ("every", "from", "mean", "seen", "strain", "charge", "out", "feed"),
    "steps": ("number", "begin", "end", "spread", "watts", "job"),
}  # fmt: skip
WRONG = (None, True, "x", [], {}, [[]], float("nan"), float("inf"), 10**400, -1e300, ["a"], -1)


def words(judged):
    return json.dumps([asdict(claim) for claim in judged.claims]) + repr(judged.timeline)


def test_the_same_record_gives_the_same_bytes_in_whatever_order_it_is_read(scene):
    first = words(scene.judge())
    assert words(scene.judge()) == first
    random.Random(3).shuffle(scene.bodies)
    assert words(scene.judge()) == first


@pytest.mark.parametrize("sort", SORTS)
def test_a_doubled_line_is_told(scene, sort):
    scene.bodies.append(scene.of(sort)[0])
    found = scene.claims()["power-record"]
    if sort in ("act", "electric", "limits"):  # twice the same says no more than once
        assert scene.others() == {}
        return
    assert str(found.verdict) == "UNKNOWN"
    assert any(word in found.message for word in ("twice", "gap", "one before it"))


@pytest.mark.parametrize(("sort", "key"), [(s, key) for s, keys in NEEDED.items() for key in keys])
def test_a_key_that_is_gone_is_told(scene, sort, key):
    del scene.one(sort)[key]
    found = scene.claims()["power-record"]
    assert str(found.verdict) == "UNKNOWN"
    assert f"({sort}) cannot be read" in found.message or "doubted" in found.message


@pytest.mark.parametrize("sort", ["layout", "trace", "caps"])
def test_without_a_sort_there_is_no_pass_of_the_record(scene, sort):
    scene.drop(sort)
    assert scene.verdicts()["power-record"] == "UNKNOWN"


def test_nothing_at_all_is_unknown_of_all(scene):
    scene.bodies = []
    assert set(scene.verdicts().values()) == {"UNKNOWN"}
    scene.due = ()
    found = scene.verdicts()
    assert found.pop("power-record") == "UNKNOWN"
    assert set(found.values()) == {"SKIP"}


@pytest.mark.parametrize("feed", FEEDS)
def test_a_trace_that_is_missing_ends_early_or_has_a_gap(feed):
    scene = Scene()
    parts = scene.of("trace", feed=feed, run="dimmed")
    scene.bodies.remove(parts[3])
    assert "has a gap" in scene.claims()["power-record"].message
    for part in parts[3:]:
        scene.bodies = [b for b in scene.bodies if b is not part]
    assert "goes from 0 to 120 s" in scene.claims()["power-record"].message
    scene.drop("trace", feed=feed, run="dimmed")
    assert f"no trace of {feed}" in scene.claims()["power-record"].message


def test_a_part_of_the_drill_that_was_not_held(scene):
    scene.due = (*ALL, "limit -20 %", "limit -30 %")
    assert scene.others() == {"power-record": "UNKNOWN"}
    assert "nothing of limit -30 %" in scene.claims()["power-record"].message


def test_a_load_that_is_another_than_the_trace_shows(scene):
    event = scene.one("event", id="limit -20 %", what="limit")
    for key in ("watts", "asked", "steady"):
        event[key] *= 1.15
    found = scene.claims()["power-record"]
    assert "the trace of rack0/power shows" in found.message
    assert str(found.verdict) == "UNKNOWN"


def test_the_trace_of_another_feed(scene):
    parts = scene.of("trace", run="dimmed")
    for part in parts:
        part["feed"] = {RACK: "row0/power", "row0/power": RACK}.get(part["feed"], part["feed"])
    assert scene.verdicts()["power-record"] == "UNKNOWN"


def test_a_limit_that_is_not_as_low_as_it_was_asked_for(scene):
    event = scene.one("event", id="limit -40 %", what="limit")
    event["watts"] *= 1.2
    assert "can be kept" in scene.claims()["power-record"].message


def test_a_floor_that_is_made_higher_to_excuse_it(scene):
    event = scene.one("event", id="limit -40 %", what="limit")
    event["watts"] *= 1.2
    feed = next(f for f in scene.one("layout")["feeds"] if f["name"] == RACK)
    feed["floors"] = event["watts"] / 1.05 - feed["fixed"]
    assert "are above those of all jobs" in scene.claims()["power-record"].message


def test_a_rack_that_cannot_go_so_low_is_no_failure_and_is_told(scene):
    event = scene.one("event", id="limit -40 %", what="limit")
    event["asked"] -= 10_000.0
    layout = scene.one("layout")
    rack = next(f for f in layout["feeds"] if f["name"] == RACK)
    rack["fixed"] = event["watts"] / 1.05 - rack["floors"]
    assert scene.others() == {}
    found = scene.claims()
    for name in ("DD2", "DD3"):
        assert "not as low as wanted" in found[name].message
    assert "limit -40 %" in found["DD6"].message


@pytest.mark.parametrize("what", ["lift", "ac-back", "coolant-back"])
def test_an_event_that_nothing_ends(scene, what):
    scene.drop("event", what=what)
    assert "nothing ends the" in scene.claims()["power-record"].message


@pytest.mark.parametrize("new", [{"what": "magic"}, {"feed": "rack9/power"}, {"at": 1e7}])
def test_an_event_that_cannot_be(scene, new):
    scene.change("event", new, what="sensors-back")
    assert scene.verdicts()["power-record"] == "UNKNOWN"


def test_the_drill_of_a_ramp_alone_holds():
    scene = Scene(parts=("utility-ramp",), due=("DD1", "DD2", "DD4", "DD5", "DD8", "DD10", "DD11"))
    found = scene.others()
    assert found.pop("six-steps") == "SKIP"
    assert set(found.values()) <= {"SKIP", "UNKNOWN"}
    assert not {*scene.due} & {*found}


def places(body, path=()):
    """Yield the way to every value of a body, a few of each list."""
    if isinstance(body, dict):
        for key, value in body.items():
            yield (*path, key)
            yield from places(value, (*path, key))
    elif isinstance(body, list):
        for place, value in list(enumerate(body))[:2]:
            yield (*path, place)
            yield from places(value, (*path, place))


def put(body, path, value):
    for key in path[:-1]:
        body = body[key]
    body[path[-1]] = value


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_hurt_record_raises_or_gains_a_pass(data):
    scene = Scene(parts=("limit -20 %", "sag"))
    before = {name for name, verdict in scene.verdicts().items() if verdict == "PASS"}
    for _ in range(data.draw(st.integers(1, 3))):
        sort = data.draw(st.sampled_from(SORTS))
        body = data.draw(st.sampled_from(scene.of(sort) or scene.bodies))
        if data.draw(st.integers(0, 4)) == 0:
            scene.bodies.remove(body)
            continue
        path = data.draw(st.sampled_from(list(places(body))))
        put(body, path, copied(data.draw(st.sampled_from(WRONG))))
    after = {name for name, verdict in scene.verdicts().items() if verdict == "PASS"}
    assert after <= before
