"""The fixture `dimmer`, and the leave that real GPUs need, under pytest and the CLI in children.

Emulated racks, and a node that is emulated below its driver, which is a real one to all of us.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

OWN = """
import signal
import numpy as np
import pytest
from rackproof.harness.power.dimmer import Job

FEED = "rack0/power"


def limits(rack):
    read = [device.telemetry.power_limits() for device in rack.devices.values()]
    return [(each.requested, each.default) for each in read]


def loaded(rack, dimmer):
    for device in rack.devices.values():
        device.plane.load(1.0)
    dimmer.run(4.0)
    return dimmer.load(FEED)


def test_a_feed_is_brought_under_a_limit(rack, dimmer):
    goal = loaded(rack, dimmer) * 0.85
    dimmer.limit(FEED, goal)
    said = {act.what for tick in dimmer.run(60.0) for act in tick.acts}
    assert {"overload-detected", "dimmer-acts", "settled"} <= said
    assert 0.9 * goal < dimmer.load(FEED) <= goal
    assert any(requested < default for requested, default in limits(rack))


def test_the_test_before_left_nothing(rack):
    assert all(requested == default for requested, default in limits(rack))


def test_jobs_of_ones_own(rack, dimmer):
    half = len(dimmer.layout.gpus) // 2
    low, high = np.arange(half), np.arange(half, 2 * half)
    dimmer.begin([Job("low", low, 1, 200.0, 0.0), Job("high", high, 2, 200.0, 0.0)])
    dimmer.limit(FEED, loaded(rack, dimmer) * 0.9)
    orders = [order for tick in dimmer.run(10.0) for order in tick.orders]
    assert {order.job for order in orders} == {"low"}


def test_what_makes_no_sense_is_refused(dimmer):
    for act in (dimmer.load, lambda feed: dimmer.limit(feed, 1000.0)):
        with pytest.raises(ValueError, match="no feed is called 'rack0'.* rack0/power"):
            act("rack0")
    for watts in (float("nan"), float("inf"), -1.0, "x"):
        with pytest.raises(ValueError, match="watts must be a finite number"):
            dimmer.limit(FEED, watts)
    for seconds in (-1.0, float("nan"), float("inf")):
        for act in (dimmer.tick, dimmer.run):
            with pytest.raises(ValueError, match="time cannot pass"):
                act(seconds)
    begin, *_, end = (tick.at for tick in (dimmer.tick(0.0), *dimmer.run(1.2)))
    assert end - begin == pytest.approx(1.2)


def test_one_that_is_killed(rack, dimmer):
    dimmer.limit(FEED, loaded(rack, dimmer) * 0.8)
    dimmer.run(20.0)
    dimmer.kill()
    assert any(requested < default for requested, default in limits(rack))


def test_the_killed_one_left_nothing(rack):
    assert all(requested == default for requested, default in limits(rack))
"""
REAL = """
def test_looks(rack, dimmer):
    dimmer.limit("rack0/power", 400.0)
    for _ in range(6):
        dimmer.tick(0.15)
    print("LOAD", dimmer.load("rack0/power"))
    assert dimmer.load("rack0/power") > 400.0
    assert dimmer.keeper.status()["ticks"] == 6
    assert not any(tick.unread or tick.refused for tick in dimmer.ticks)


def test_after(rack):
    after = [d.telemetry.power_limits().requested for d in rack.devices.values()]
    print("AFTER", min(after))
"""


def pytest_words(file, *more):
    return [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file), *more]


@pytest.fixture
def outcomes(tmp_path):
    """Run tests of ours under pytest; return outcome by test and what was printed."""

    def run(text, *more, inside=(), env=None):
        file = tmp_path / "test_own.py"
        file.write_text(text)
        report = tmp_path / "junit.xml"
        words = pytest_words(file, f"--junitxml={report}", *more)
        done = subprocess.run(
            [*inside, *words], cwd=tmp_path, env={**os.environ, **(env or {})}, text=True,
            capture_output=True, timeout=300, check=False,
        )  # fmt: skip
        found = {}
        for case in ET.parse(report).iter("testcase"):  # noqa: S314 - written a moment ago
            kinds = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            found[case.get("name")] = kinds[0] if kinds else "passed"
        return found, done.stdout

    return run


@pytest.mark.parametrize("rack", ["gb200-nvl72", "hgx-h100"])
def test_a_dimmer_holds_a_rack_and_lets_it_go(outcomes, rack):
    found, said = outcomes(OWN, "--rack", rack, "--rack-out", "run", "--rack-seed", "1")
    assert set(found.values()) == {"passed"}, said
    assert len(found) == 6


def test_the_example_of_the_documentation_runs(outcomes):
    page = Path(__file__).parents[2] / "docs" / "howto" / "use-the-dimmer.md"
    text = page.read_text("utf-8").partition("```python\n")[2].partition("```")[0]
    found, said = outcomes(text, "--rack", "gb300-nvl72", "--rack-out", "run", "--rack-seed", "1")
    assert found == {"test_two_thirds": "passed"}, said
    assert "no burn was run, so that the record says nothing of the rack (UNKNOWN)" in said


def test_real_gpus_are_touched_only_with_leave(outcomes, command, tmp_path):
    inside = [*command, "emulate", "hgx-h100", "--"]
    home = {"XDG_STATE_HOME": str(tmp_path / "state")}
    found, said = outcomes(REAL, "--rack", "local", "--rack-out", "a", inside=inside, env=home)
    assert found == {"test_looks": "error", "test_after": "passed"}
    assert "allow it: --rack-allow power.cap" in said
    assert not (tmp_path / "state" / "rackproof" / "controllers").exists()
    words = ("--rack", "local", "--rack-out", "b", "--rack-allow", "power.cap", "-s")
    found, said = outcomes(REAL, *words, inside=inside, env=home)
    assert set(found.values()) == {"passed"}, said
    assert "AFTER 700.0" in said
    assert (tmp_path / "state" / "rackproof" / "controllers").exists()
    assert not list((tmp_path / "state").rglob("*.*"))


@pytest.mark.parametrize(
    ("words", "allowed"),
    [((), []), (("--allow-power-cap",), ["power.cap"]), (("--allow", "power.cap"), ["power.cap"]),
     (("--allow-power-cap", "--allow", "power.cap"), ["power.cap"])],
)  # fmt: skip
def test_a_plain_flag_gives_the_leave(cli, tmp_path, words, allowed):
    only = ("--only", "inventory", "--out", "run")
    assert cli("burn", "hgx-h100", *only, *words).code == 0
    (line,) = (tmp_path / "run" / "record.jsonl").read_text().splitlines()[:1]
    assert json.loads(line)["allowed"] == allowed


def test_the_flag_is_in_the_help(cli):
    assert "--allow-power-cap" in cli("burn", "--help").out
    assert cli("probe", "hgx-h100", "--allow-power-cap").code == 2
