"""Meters of feeds: told, or summed from shelves, and the strain of their breakers."""

import math

import numpy as np
import pytest

from rackproof.harness.errors import DeviceError
from rackproof.harness.power.meter import ShelfMeter, Strain, ToldMeter, curves
from rackproof.harness.power.zone import TOP, Layout

K, A, DECAY = 9.22, 2.04, 120.0
RATED = 10_000.0


def layout(*feeds):
    count = len(feeds)
    parent = np.array([TOP, *range(count - 1)])
    return Layout((), feeds, np.zeros(0, dtype=np.intp), parent, np.zeros(count))


class Shelves:
    """A Host that knows the output of some shelves."""

    def __init__(self, **outputs):
        self.outputs, self.begun, self.ended = outputs, [], 0

    def begin(self, check, attempt, at=0.0):
        self.begun.append((check, attempt, at))

    def end(self):
        self.ended += 1

    def read(self, metric, subject):
        assert metric == "shelf.output"
        found = self.outputs[subject.rpartition("/")[2]]
        if isinstance(found, Exception):
            raise found
        return found


@pytest.fixture
def one():
    return Strain(layout("rack0/power"), np.array([RATED]))


# --- the breaker's formula -----------------------------------------------------------------------
@pytest.mark.parametrize("over", [0.05, 0.1, 0.17, 0.4, 1.0, 3.0])
def test_a_constant_load_trips_after_the_time_of_the_curve(one, over):
    due = K / over**A
    watts = np.array([RATED * (1.0 + over)])
    assert one.trips_after(watts) == pytest.approx(due)
    left = one.add(watts, due / 4)
    assert one.strain == pytest.approx(0.25)
    assert left == pytest.approx(due * 0.75)
    one.add(watts, due)
    assert one.strain == 1.0
    assert one.add(watts, 0.0) == 0.0


@pytest.mark.parametrize("watts", [0.0, RATED / 2, RATED])
def test_a_load_that_is_carried_cools_the_breaker(one, watts):
    one.add(np.array([RATED * 1.4]), 10.0)
    before = float(one.strain[0])
    assert before > 0.0
    assert one.add(np.array([watts]), 60.0) == math.inf
    assert one.strain == pytest.approx(before * math.exp(-60.0 / DECAY))


def test_a_main_board_has_a_curve_of_its_own():
    both = Strain(layout("main/power", "row0/power"), np.array([RATED, RATED]))
    found = both.trips_after(np.array([RATED, RATED]) * 1.4)
    assert found == pytest.approx([18.1 / 0.4**0.63, K / 0.4**A])


@pytest.mark.parametrize(("rated", "watts"), [(np.nan, 9e3), (RATED, np.nan), (np.nan, np.nan)])
def test_what_is_not_known_is_not_made_up(rated, watts):
    strain = Strain(layout("rack0/power"), np.array([rated]))
    assert np.isnan(strain.add(np.array([watts]), 5.0)).all()
    assert np.isnan(strain.strain[0]) == np.isnan(rated)


def test_a_load_that_cannot_be_read_leaves_the_strain_as_it_is(one):
    one.add(np.array([RATED * 1.4]), 10.0)
    before = float(one.strain[0])
    one.add(np.array([np.nan]), 1000.0)
    assert one.strain == before


def test_every_constant_says_where_it_is_from():
    assert curves()["feed"] == {"k": K, "a": A, "decay": DECAY}


# --- meters --------------------------------------------------------------------------------------
def test_shelves_are_summed_for_the_feed_above_them():
    host = Shelves(shelf0=3000.0, shelf1=4000, shelf2=500.0)
    feeds = layout("main/power", "rack0/power", "rack1/power")
    shelves = ["rack0/power/shelf0", "rack0/power/shelf1", "rack1/power/shelf2"]
    meter = ShelfMeter(feeds, host, shelves, np.array([np.nan, 5000.0, np.nan]))
    meters = meter.read(10.0)
    assert meters.feed[1:].tolist() == [7000.0, 500.0]
    assert np.isnan(meters.feed[0])
    assert meters.limit[1] == 5000.0
    assert meters.strain[1] == pytest.approx(10.0 / (K / 0.4**A))
    assert np.isnan([meters.strain[2], meters.trip_in[2], meters.limit[2]]).all()
    assert meters.ac.all()
    meter.read(0.0)
    assert [attempt for _, attempt, _ in host.begun] == [1, 2]  # each look asks anew
    assert host.ended == 2


@pytest.mark.parametrize("wrong", [DeviceError("silence"), "much", float("nan")])
def test_a_shelf_that_does_not_answer_is_no_zero(wrong):
    host = Shelves(shelf0=3000.0, shelf1=wrong)
    shelves = ["rack0/power/shelf0", "rack0/power/shelf1"]
    meter = ShelfMeter(layout("rack0/power"), host, shelves, np.array([RATED]))
    assert np.isnan(meter.read(1.0).feed[0])
    if not isinstance(wrong, float):
        assert list(meter.problems) == ["rack0/power/shelf1"]
    host.outputs["shelf1"] = 1000.0
    assert meter.read(1.0).feed.tolist() == [4000.0]
    assert meter.problems == {}


def test_nobody_tells_nothing_is_known():
    meters = ToldMeter(2).read(1.0)
    assert np.isnan([meters.feed, meters.strain, meters.trip_in, meters.limit]).all()
    assert meters.ac.tolist() == [True, True]
