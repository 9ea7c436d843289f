"""The controller's own side, in this process, with deciders that order what a test wants."""

import json

import numpy as np
import pytest

from rackproof.harness.devices.emulated.driver_state import Flag
from rackproof.harness.power.controller import Controller, reckoned
from rackproof.harness.power.dimmer import Act, Orders
from rackproof.harness.power.zone import TOP, Layout, Sample

GPUS, HIGH = 8, 700.0


class Scripted:
    """Orders `caps`, and keeps what it was told; `fault` is raised instead."""

    def __init__(self):
        self.caps = np.full(GPUS, np.nan)
        self.fault = None
        self.acts = ()
        self.heard, self.samples, self.answers = [], [], []

    def step(self, sample):
        self.samples.append(sample)
        if self.fault is not None:
            raise self.fault
        return Orders(self.caps, self.acts, np.inf)

    def answer(self, back, *, at):
        self.answers.append(back)
        return Orders(np.full(GPUS, np.nan), (), at + 3.0)

    def limit(self, feed, watts, *, at, why):
        self.heard.append(("limit", feed, watts, at, why))

    def contract(self, feed, watts, *, at):
        self.heard.append(("contract", feed, watts, at))


class Desk:
    """A controller of a node, spoken to in lines."""

    def __init__(self, node, **how):
        self.decider = Scripted()
        self.node = node
        self.controller = Controller(lambda *_: self.decider)
        begun = self.ask("begin", assignment=node.assignment(**how).to_json())
        assert "problem" not in begun, begun

    def ask(self, do, **more):
        line = json.dumps({"do": do, "number": 7, **more}, allow_nan=False).encode()
        answer = json.loads(json.dumps(self.controller.answer(line), allow_nan=False))
        assert answer.pop("number") == 7
        return answer

    def tick(self, **more):
        self.node.passes(0.5)
        return self.ask("tick", at=self.node.at, **more)


@pytest.fixture
def desk(node):
    made = Desk(node)
    yield made
    made.controller.end()


def test_what_was_ordered_is_done_told_and_handed_back(desk):
    desk.decider.caps = np.array([400.0] * 4 + [np.nan, 500.0, 600.0, np.nan])
    desk.decider.acts = (Act(1.0, "raise", "rack0/power", "low", "text", {"a": np.nan, "b": 2.0}),)
    answer = desk.tick()
    assert answer["orders"] == [
        {"job": "low", "low": 400.0, "high": 400.0, "gpus": 4, "held": 4},
        {"job": "high", "low": 500.0, "high": 600.0, "gpus": 2, "held": 2},
    ]
    assert answer["acts"][0]["fields"] == {"a": None, "b": 2.0}
    assert answer["due"] == desk.node.at + 3.0  # the sooner of the two
    assert np.array_equal(desk.decider.answers[0], desk.decider.caps, equal_nan=True)
    assert desk.node.requested()[:4].tolist() == [400.0] * 4
    assert desk.ask("stop") == {"restored": 6}
    assert (desk.node.requested() == HIGH).all()


def test_gpus_of_no_job_are_told_apart(node):
    desk = Desk(node, jobs=node.assignment().jobs[:1])
    desk.decider.caps = np.full(GPUS, 300.0)
    assert [(each["job"], each["gpus"]) for each in desk.tick()["orders"]] == [("low", 4), ("", 4)]
    desk.controller.end()


@pytest.mark.parametrize(
    "fault", [ValueError("odd"), KeyError("odd"), ZeroDivisionError("odd"), TypeError("odd"),
              FloatingPointError("odd"), IndexError("odd")],
)  # fmt: skip
def test_a_decider_that_errs_changes_nothing_and_ends_nothing(desk, fault):
    desk.decider.fault = fault
    assert "odd" in desk.tick()["problem"]
    desk.decider.fault = None
    assert "problem" not in desk.tick()


def test_troubles_are_said_once_until_they_are_over(desk):
    flags = desk.node.rows["flags"]
    desk.decider.caps = np.full(GPUS, 400.0)
    flags[2:5] = Flag.NO_PERMISSION
    flags[6] = Flag.LOST
    first, second = desk.tick(), desk.tick()
    assert [(each["gpus"], each["first"]) for each in first["unread"]] == [(1, desk.node.gpus[6])]
    refused = {each["first"]: each["gpus"] for each in first["refused"]}
    assert refused[desk.node.gpus[2]] == 3
    assert second["unread"] == second["refused"] == []
    flags[:] = 0
    assert desk.tick()["unread"] == []
    desk.decider.caps = np.full(GPUS, 410.0)
    flags[3] = Flag.NO_PERMISSION
    assert [each["first"] for each in desk.tick()["refused"]] == [desk.node.gpus[3]]
    flags[:] = 0


def test_limits_and_contracts_are_passed_on(desk):
    assert desk.ask("limit", feed="rack0/power", watts=5000, at=101.5, why="x" * 9999) == {}
    assert desk.ask("contract", feed="rack0/power", watts=None, at=102.0) == {}
    (limit, contract) = desk.decider.heard
    assert limit[:4] == ("limit", "rack0/power", 5000.0, 101.5)
    assert len(limit[4]) < 1000
    assert contract == ("contract", "rack0/power", None, 102.0)


def test_there_is_one_rack_at_a_time(desk, node):
    assert "already" in desk.ask("begin", assignment=node.assignment().to_json())["problem"]
    desk.ask("stop")
    assert "no rack" in desk.tick()["problem"]
    assert desk.ask("stop") == {"restored": 0}
    assert set(desk.ask("status")) == {"pid"}
    assert "problem" not in desk.ask("begin", assignment=node.assignment().to_json())


# --- feeds that nobody meters --------------------------------------------------------------------
def sample(gpu, feed):
    none = np.full(len(feed), np.nan)
    gpus = np.full(len(gpu), HIGH)
    return Sample(0.0, 1.0, np.array(gpu), np.array(feed), none, none, none > 0, gpus, gpus, none)


@pytest.mark.parametrize(
    ("gpu", "feed", "due"),
    [
        ([1.0, 2.0, 4.0], [np.nan] * 3, [10 + 20 + 1 + 2 + 30 + 4.0, 23.0, 34.0]),
        ([1.0, 2.0, 4.0], [np.nan, 100.0, np.nan], [10 + 100 + 34.0, 100.0, 34.0]),
        ([1.0, 2.0, 4.0], [7.0, 8.0, 9.0], [7.0, 8.0, 9.0]),
        ([np.nan, 2.0, 4.0], [np.nan] * 3, [np.nan, np.nan, 34.0]),
        ([np.nan, 2.0, 4.0], [np.nan, 50.0, np.nan], [10 + 50 + 34.0, 50.0, 34.0]),
    ],
)
def test_a_feed_that_nobody_meters_carries_what_hangs_on_it(gpu, feed, due):
    layout = Layout(
        ("a", "b", "c"), ("row", "one", "two"), np.array([1, 1, 2]), np.array([TOP, 0, 0]),
        np.array([10.0, 20.0, 30.0]),
    )  # fmt: skip
    assert reckoned(layout, sample(gpu, feed)).feed == pytest.approx(np.array(due), nan_ok=True)


@pytest.mark.parametrize("reckon", [True, False])
def test_feeds_are_reckoned_only_where_it_is_asked_for(node, reckon):
    desk = Desk(node, reckon=reckon)
    load = desk.tick()["load"]
    assert load == ([2000.0 + GPUS * HIGH] if reckon else [None])
    desk.controller.end()
