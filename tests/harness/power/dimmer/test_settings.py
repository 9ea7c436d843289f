"""Nonsense is refused in words; the table holds all constants, each with unit, mark and source."""

import dataclasses
import math

import numpy as np
import pytest

from rackproof.harness.power.dimmer import Bridge, Dimmer, Job, Settings
from rackproof.harness.power.dimmer.settings import table
from rackproof.harness.power.zone import TOP, Bounds, Layout


def test_every_constant_stands_in_the_table_with_unit_mark_and_source():
    names = {f.name for f in dataclasses.fields(Settings)} - {"bridges", "advises"}
    assert names | {"upper_cycle"} == set(table())
    for name, row in table().items():
        assert set(row) == {"value", "unit", "mark", "source"}, name
        assert row["mark"] in ("seen", "computed", "assumed"), name
    assert all(getattr(Settings(), name) == float(table()[name]["value"]) for name in names)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"above": 1.2}, "at or under the limit"),
        ({"target": 0.99, "settled_high": 0.97}, "must not fall"),
        ({"below": 0.96}, "below 0.96, settled_low 0.93"),
        ({"cycle": 0.0}, "cycle must be above 0"),
        ({"window": math.nan}, "window is nan"),
        ({"down": -20.0}, "down is -20.0"),
        ({"urgent": 10.0}, "down 20, urgent 10"),
        ({"tick": 5.0}, "tick 5, cycle 3"),
        ({"strain_step": 1.0}, "shares, under 1"),
        ({"missing": 1.5}, "shares, under 1"),
        ({"strain_ramp": 0.6}, "strain_ramp 0.6"),
    ],
)
def test_nonsense_is_refused_by_name(given, said):
    with pytest.raises(ValueError, match=said):
        Settings(**given)


@pytest.mark.parametrize("store", [(-1.0, 5.0), (5.0, -1.0), (math.nan, 1.0)])
def test_a_store_that_can_be_none_is_refused(store):
    with pytest.raises(ValueError, match="a store holds"):
        Bridge(*store)


@pytest.mark.parametrize(
    ("period", "window"), [(0.0, 4.0), (0.3, 4.2), (1.0, 4.0), (2.0, 4.0), (3.0, 6.0), (5.0, 10.0)]
)
def test_a_window_is_at_least_4_s_and_2_iterations_and_whole_ones(period, window):
    assert Settings().span(period) == pytest.approx(window)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"gpus": np.array([], int)}, "has no GPU"),
        ({"floor": -1.0}, "its floor is -1.0"),
        ({"floor": math.inf}, "its floor is inf"),
        ({"period": -2.0}, "its period is -2.0"),
    ],
)
def test_a_job_that_can_be_none_is_refused(given, said):
    with pytest.raises(ValueError, match=said):
        Job(**{"name": "a", "gpus": np.arange(2), "priority": 0, "floor": 200.0, "period": 2.0,
               **given})  # fmt: skip


def made(jobs, parent=(TOP, 0)):
    layout = Layout(("a", "b"), ("main", "rack"), np.array([1, 1]), np.array(parent), np.zeros(2))
    full = np.full(2, 1200.0)
    return Dimmer(layout, Bounds(full / 6, full, full, full, full), jobs, Settings(), 1)


def job(name, *gpus):
    return Job(name, np.array(gpus), 0, 200.0, 2.0)


@pytest.mark.parametrize(
    ("jobs", "parent", "said"),
    [
        ([], (TOP, 0), "needs a job"),
        ([job("x", 0, 2)], (TOP, 0), "at place 2, of 2"),
        ([job("x", 0), job("y", 0, 1)], (TOP, 0), "'y' has a GPU that a job has already"),
        ([job("x", 0), job("x", 1)], (TOP, 0), "same name"),
        ([job("x", 0)], (1, TOP), "stands before its parent"),
    ],
)
def test_jobs_that_do_not_fit_the_layout_are_refused(jobs, parent, said):
    with pytest.raises(ValueError, match=said):
        made(jobs, parent)


def test_a_limit_of_nothing_is_refused():
    dimmer = made([job("x", 0, 1)])
    with pytest.raises(KeyError, match="no feed"):
        dimmer.limit("hall", 5.0, at=0.0, why="")
    for watts in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="can be none"):
            dimmer.limit("main", watts, at=0.0, why="")
