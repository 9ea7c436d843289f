"""A power drill in a terminal, as a page, JUnit and CSV: virtual seconds, six words, pictures."""

import csv
import io
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest

from rackproof.diagnostics.power.judge import STEPS
from rackproof.diagnostics.power.record import read
from rackproof.diagnostics.power.windows import windows
from rackproof.diagnostics.recovery.judge import judge
from rackproof.reports import render
from rackproof.reports.drill import Watching, conclusion
from rackproof.reports.drill_forms import as_json
from rackproof.reports.drill_read import read_drill
from rackproof.reports.drill_words import CRITERIA, FELT, POWER, expectations, headline
from rackproof.reports.html.dimming_drawing import (
    FEW,
    POINTS,
    drawn_feeds,
    limits,
    name_of,
    pictures,
    thinned,
)
from rackproof.reports.html.drill_drawing import NARROW, WIDE, recoveries
from tests.diagnostics.power.drill import drill, recorded, write
from tests.diagnostics.power.plant import RACK
from tests.diagnostics.power.scene import ALL, Scene

PARTS = ("limit -20 %", "ac-loss", "sag", "utility-ramp")
DUE = tuple(name for name in ALL if name not in ("DD9", "cooling"))


@pytest.fixture(scope="module")
def made():
    """A power drill that held, as the run and the scene that make its record."""
    return drill(PARTS, DUE)


@pytest.fixture(scope="module")
def run(made, tmp_path_factory):
    return write(tmp_path_factory.mktemp("power") / "run", recorded(*made))


@pytest.fixture(scope="module")
def found(run):
    record = read_drill(run)
    return as_json(record, judge(record), run), record


def told(body, record):
    file = io.StringIO()
    conclusion(body, record, file)
    return file.getvalue()


def hurt(made, change):
    """Return the JSON and the record of the same drill, after a change of its scene."""
    run, scene = made
    other = Scene(parts=scene.parts, due=scene.due)
    change(other)
    record = recorded(run, other)
    return as_json(record, judge(record), Path("run")), record


# --- words ---------------------------------------------------------------------------------------
def test_the_last_line_says_what_held(found):
    body, _ = found
    assert body["verdict"] == "PASS"
    share = body["ledger"]["dimmed"]
    assert 0.0 < share < 0.1
    assert headline(body) == (
        "power-own: no trip at -15 %, -20 %; training bit-identical over"
        f" {body['steps']['committed']} steps; dimmed {share:.1%} of its time"
    )


def test_the_timeline_has_the_six_words_in_virtual_seconds(found):
    body, record = found
    text = told(body, record)
    assert "Timeline, in virtual seconds" in text
    assert "Ledger, of virtual time" in text
    words = re.findall(r"^ +([\d.]+) s  (\S+) +rack0/power$", text, re.MULTILINE)
    assert [word for _, word in words] == [*STEPS] * 3
    assert float(words[0][0]) == windows(read(record.facts))[0].event.at
    assert "resumed" not in text
    assert re.search(r"[\d.]+%  dimmed ", text)


def test_a_trip_leads_whatever_came_of_it(made):
    def trip(scene):
        scene.bodies = [*scene.bodies, {"sort": "electric", "run": "dimmed", "at": 50.0,
                        "what": "breaker-tripped", "feed": RACK}]  # fmt: skip

    body, record = hurt(made, trip)
    assert body["verdict"] == "FAIL"
    assert headline(body).startswith("power-own: DD1 no trip: rack0/power tripped at 50.0 s; shown")
    assert told(body, record).rstrip().splitlines()[-1].startswith("FAIL  power-own: DD1 no trip")


def test_a_record_without_its_traces_is_unknown(made):
    def blind(scene):
        scene.bodies = [body for body in scene.bodies if body["sort"] != "trace"]

    body, record = hurt(made, blind)
    assert body["verdict"] == "UNKNOWN"
    assert headline(body).startswith("power-own: power-record: it holds no traces")
    assert "dimmed" in told(body, record)


def test_the_plan_says_what_must_hold_and_that_seconds_are_virtual(found, tmp_path):
    _, record = found
    lines = expectations(record.head)
    assert [name for name in DUE if f"{name}: {CRITERIA[name]}" in lines] == [*DUE]
    file = io.StringIO()
    with Watching(file, tmp_path) as watching:
        watching.begins(record.head)
        watching.course("faulted", again=False)
        for what in record.faulted.happenings:
            watching.said("faulted", what)
    assert "virtual" in file.getvalue()
    assert "next step" not in file.getvalue()
    assert file.getvalue().count(" s  fault ") == len(PARTS)


def test_every_criterion_is_worded_and_placed():
    assert set(CRITERIA) == set(ALL)
    placed = {name.split()[0] for name in (*POWER, *FELT)}
    assert placed == {*ALL, "power-record", "power-header", "six-steps"}


def test_junit_and_csv_carry_every_claim(found, run, capsys):
    body, _ = found
    names = [claim["id"] for claim in body["claims"]]
    assert {name.split()[0] for name in names} >= {*ALL, "six-steps", "power-record"}
    assert render.report(run, "csv", "-") is None
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["claim"] for row in rows] == names
    assert render.report(run, "junit", "-") is None
    suite = ET.fromstring(capsys.readouterr().out).find("testsuite")  # noqa: S314 - our own
    assert [case.get("name") for case in suite.findall("testcase")] == names


# --- pictures ------------------------------------------------------------------------------------
@pytest.mark.parametrize("width", [WIDE, NARROW])
def test_what_is_drawn_lies_within_the_drawing(found, width):
    _, record = found
    drawn = pictures(read(record.facts), width)
    assert [one.feed for one in drawn] == [RACK, "row0/power", "site/power"]
    titles = [panel.title for panel in drawn[0].panels]
    assert titles == ["kW", "W, cap of a GPU", "trip integral", "%, charge"]
    assert [p.title for p in drawn[2].panels] == ["kW", "trip integral", "%, charge"]
    for one in drawn:
        for panel in one.panels:
            assert 0 < panel.top < panel.base < one.height
            for line in panel.lines:
                for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", line.path):
                    assert one.left <= float(x) <= one.right <= width
                    assert panel.top - 0.1 <= float(y) <= panel.base + 0.1
                assert line.path.count("L") <= (POINTS if width > NARROW else FEW)
                assert line.path.startswith("M")
                assert "nan" not in line.path


def test_the_events_are_numbered_and_named(found):
    _, record = found
    (one, *_) = pictures(read(record.facts), WIDE)
    own = [sign for sign in one.signs if sign.number]
    assert [sign.number for sign in own] == [1, 2, 3, 4, 5]
    assert "limit -20 %: limit lowered, 93.3 kW at most, 20% below the load" in own[0].text
    assert "mains lost" in own[1].text
    assert "sag to 70% for 20 ms" in own[2].text
    assert own[0].until > own[0].x
    assert [text for _, text in one.numbers][:2] == ["1", "2"]
    assert any("–" in text for _, text in one.numbers)


def test_the_limit_falls_and_comes_back(found):
    _, record = found
    zone = read(record.facts)
    steps = limits(zone, RACK)
    (low,) = zone.of("limit")
    assert steps[:3] == [(0.0, 142_000.0), (low.at, low.watts), (low.at + 105.0, 142_000.0)]
    (ramp,) = zone.of("ramp")
    down = [watts for at, watts in steps if ramp.at < at <= ramp.at + 45.0]
    assert down == sorted(down, reverse=True)
    assert down[-1] == pytest.approx(ramp.watts)
    assert limits(zone, "site/power") == [(0.0, 142_000.0)]


def test_a_line_keeps_its_least_and_its_most():
    at = np.arange(100_000.0)
    values = np.sin(at)
    values[[77, 50_001]] = 9.0, -9.0
    times, kept = thinned(at, values, POINTS)
    assert len(kept) <= POINTS
    assert (max(kept), min(kept)) == (9.0, -9.0)
    assert times == sorted(times)
    assert [t for t, v in zip(times, kept, strict=True) if abs(v) > 2] == [77.0, 50_001.0]
    assert thinned(at[:5], values[:5], POINTS) == (at[:5].tolist(), values[:5].tolist())


def test_a_hole_is_no_line(found):
    scene = Scene(parts=("limit -20 %",))
    scene.trace(RACK, "mean", lambda *_: None, begin=100.0, end=160.0)
    scene.trace("row0/power", "strain", lambda *_: None)
    drawn = {one.feed: one for one in pictures(read(scene.facts), WIDE)}
    band, load, *_ = drawn[RACK].panels[0].lines
    assert band.path.count("M") == band.path.count("Z") == 2
    assert "nan" not in band.path + load.path
    assert [p.title for p in drawn["row0/power"].panels] == ["kW"]


def test_a_store_that_swings_with_every_step_is_a_band_below_the_lines():
    scene = Scene(parts=("limit -20 %",))
    scene.trace(RACK, "charge.cbu", lambda _, at: 0.5 + 0.4 * np.sin(3.0 * at))
    charge = pictures(read(scene.facts), WIDE)[0].panels[-1]
    named = [(line.name, line.style) for line in charge.lines]
    assert named == [("CBU: least to most", "band"), ("BBU", "one")]


def test_the_six_steps_of_each_transient_are_drawn_with_their_name(found):
    body, record = found
    zone = read(record.facts)
    drawn = recoveries(body, WIDE, lambda at: name_of(zone, at))
    assert [one.name for one in drawn] == [
        "limit -20 %, rack0/power", "ac-loss, rack0/power", "utility-ramp, rack0/power",
    ]  # fmt: skip
    assert all([m.word for m in one.moments] == [*STEPS] for one in drawn)
    narrow = recoveries(body, NARROW)
    assert all(one.left < one.right < NARROW for one in narrow)


def test_only_what_was_hit_and_what_is_above_it_is_drawn(found):
    scene = Scene(parts=("sag",))
    for body in scene.of("event"):
        body["feed"] = "row0/power"
    assert drawn_feeds(read(scene.facts)) == ["row0/power", "site/power"]
    assert pictures(read([]), WIDE) == []


def test_the_page_shows_it_and_names_nothing_outside(run, capsys):
    render.report(run, "html", "-")
    page = capsys.readouterr().out
    assert "script-src" not in page
    assert "<script" not in page
    assert page.count('class="drawn dimming"') == 6
    for text in ("in virtual seconds", "0.25 allowed", "Virtual time of training", "its end, or"):
        assert text in page
    assert "MTTR" not in page
    assert len(page) < 1_500_000


def test_hostile_names_stay_text(made, evil, tmp_path, capsys):
    run, scene = made
    other = Scene(parts=scene.parts, due=scene.due)
    for body in other.of("event"):
        body["id"] += evil
    folder = write(tmp_path / "run", recorded(run, other))
    render.report(folder, "html", "-")
    page = capsys.readouterr().out
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
