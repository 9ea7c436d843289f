"""The parts of the Dimmer, each against its closed form."""

import dataclasses

import numpy as np
import pytest

from rackproof.harness.power.dimmer import Settings
from rackproof.harness.power.dimmer.bands import Bands
from rackproof.harness.power.dimmer.clockwork import Clockwork
from rackproof.harness.power.dimmer.history import Rows
from rackproof.harness.power.dimmer.past import Outlook
from rackproof.harness.power.dimmer.ramp import (
    NORMAL,
    STEP,
    URGENT,
    Way,
    emergency,
    jitters,
    pace,
)
from rackproof.harness.power.dimmer.shape import shape
from rackproof.harness.power.dimmer.words import Job
from rackproof.harness.power.zone import TOP, Layout, Sample


# --- history
def test_a_mean_weighs_rows_by_the_time_that_lies_in_the_window():
    rows = Rows(10.0, 0.4)
    for begin, end, watts in ((0.0, 1.0, 100.0), (1.0, 3.0, 200.0), (3.0, 4.0, np.nan)):
        rows.add(begin, end, np.array([watts, 1.0]))
    mean, known = rows.mean(np.array(3.5))
    assert mean == pytest.approx([(0.5 * 100 + 2 * 200) / 2.5, 1.0])
    assert known == pytest.approx([2.5, 3.5])
    each, _ = rows.mean(np.array([2.0, 4.0]))
    assert each == pytest.approx([200.0, 1.0])
    assert rows.peak(np.array(3.5)) == pytest.approx([200.0, 1.0])


def test_short_looks_are_joined_and_old_ones_forgotten():
    rows = Rows(4.0, 0.4)
    for n in range(1000):
        rows.add(0.1 * n, 0.1 * (n + 1), np.array([float(n % 4)]))
    assert len(rows.rows) <= 11
    mean, known = rows.mean(np.array(4.0))
    assert mean == pytest.approx([1.5], abs=0.02)
    assert known == pytest.approx([4.0])


def test_an_empty_history_knows_nothing():
    mean, known = Rows(4.0, 0.4).mean(np.array([4.0, 4.0]))
    assert np.isnan(mean).all()
    assert not known.any()


# --- shape
def test_sums_go_up_the_tree_and_jobs_are_sorted_by_priority():
    layout = Layout(tuple("abcdef"), ("top", "left", "right", "leaf"), np.array([1, 1, 2, 3, 3, 0]),
                    np.array([TOP, 0, 0, 2]), np.zeros(4))  # fmt: skip
    jobs = [Job("late", np.array([0, 2, 3]), 9, 0, 0), Job("soon", np.array([1, 4]), -1, 0, 0)]
    made = shape(layout, jobs)
    gpus = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    assert made.per_feed(gpus).tolist() == [63.0, 3.0, 28.0, 24.0]
    top = made.levels[-1]
    assert [jobs[j].name for j in top.job] == ["soon", "late"]
    assert made.beneath(np.array([1.0, 2.0])).tolist() == [2.0, 2.0, 2.0, 2.0]
    assert made.worst(np.array([0.0, 5.0, 1.0, 7.0])).tolist() == [7.0, 7.0]
    assert made.highest(np.array([3.0, np.nan, 9.0, 1.0, np.nan, 50.0])).tolist() == [9.0, -np.inf]


# --- ramp
def way(**more):
    """30 kW over, 60 W for each W of the caps: 25 s by the normal ramp, 5 s by the urgent one."""
    plain = {"over": 30e3, "slope": 60.0, "strain": 0.0, "hurry": 0.0, "trip_in": np.inf,
             "ac": True, "energy": np.inf, "power": np.inf}  # fmt: skip
    return Way(**{name: np.array([value]) for name, value in {**plain, **more}.items()})


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({}, NORMAL),
        ({"over": -1.0, "strain": 0.9}, NORMAL),  # it is not over
        ({"energy": 0.5 * 30e3 * 25.0 * 1.001}, NORMAL),
        ({"energy": 0.5 * 30e3 * 25.0 * 0.999}, URGENT),
        ({"energy": 0.5 * 30e3 * 5.0 * 0.999}, STEP),
        ({"power": 29e3}, STEP),
        ({"slope": 60.0 * 25.0 / 44.0}, NORMAL),
        ({"slope": 60.0 * 25.0 / 46.0}, URGENT),  # 46 s by the normal ramp are too long
        ({"hurry": 0.2 / 0.7 / 25.0 * 0.99}, NORMAL),
        ({"hurry": 0.2 / 0.7 / 25.0 * 1.01}, URGENT),
        ({"hurry": 0.2 / 0.7 / 5.0 * 1.01}, STEP),
        ({"strain": 0.51}, STEP),
        ({"trip_in": 9.9}, STEP),
        ({"ac": False}, STEP),
    ],
)
def test_the_slowest_pace_is_taken_that_stores_and_breaker_bear(more, wanted):
    assert pace(way(**more), Settings()).tolist() == [wanted]


def test_an_emergency_is_strain_a_near_trip_or_lost_mains():
    settings = Settings()
    assert not emergency(way(strain=0.5, trip_in=10.0), settings).any()
    for more in ({"strain": 0.501}, {"trip_in": 9.99}, {"ac": False}):
        assert emergency(way(**more), settings).all()


def test_racks_begin_to_rise_at_times_spread_evenly():
    names = tuple(f"rack{n}" for n in range(2000))
    late = jitters(names, 1, 30.0)
    assert 0.0 <= late.min() < 0.5
    assert 29.5 < late.max() < 30.0
    assert late.mean() == pytest.approx(15.0, abs=0.7)
    assert (jitters(names, 1, 30.0) == late).all()
    assert (jitters(names, 2, 30.0) != late).mean() > 0.99


# --- clock
def sample(at, seconds=0.5):
    nothing = np.zeros(1)
    return Sample(at, seconds, nothing, nothing, nothing, nothing, nothing > 0, nothing, nothing,
                  nothing)  # fmt: skip


def test_its_time_only_goes_on():
    clock = Clockwork(Settings())
    told = []
    for at in (100.0, 100.5, 101.0, 40.0, 40.5, 9e9, 9e9 + 1.0, np.nan, 9e9 + 2.0):
        before = clock.now
        _, jump = clock.pass_to(sample(at))
        assert 0.0 <= clock.now - before <= 1.0
        told.append(bool(jump))
    assert told == [False, False, False, True, False, True, False, True, False]


def test_it_is_due_by_tick_while_a_ramp_moves_and_by_cycle_otherwise():
    clock = Clockwork(Settings())
    clock.pass_to(sample(10.0))
    assert clock.cycle()
    clock.judged(cycle=True)
    assert not clock.cycle()
    assert clock.due(10.0, moving=False) == pytest.approx(13.0)
    assert clock.due(10.0, moving=True) == pytest.approx(10.5)
    clock.event = True
    assert clock.due(10.0, moving=False) == 10.0


# --- bands
def outlook(coming, calm=np.nan, spread=0.0, *, blurred=False):
    one = np.array([float(coming)])
    return Outlook(one, one, np.array([spread]), np.array([blurred]), np.array([calm]), one > 0)


NO, YES = np.zeros(1, bool), np.ones(1, bool)
LIMIT = np.array([1000.0])


@pytest.mark.parametrize(
    ("coming", "excess"), [(989.0, 0.0), (991.0, 41.0), (1200.0, 250.0), (500.0, 0.0)]
)
def test_over_the_upper_band_it_is_cut_to_the_target(coming, excess):
    assert Bands(1, Settings()).excess(outlook(coming), LIMIT, NO) == pytest.approx([excess])


def test_what_is_not_sure_starts_no_cut_unless_there_is_a_hurry():
    bands = Bands(1, Settings())
    assert bands.excess(outlook(1040.0, spread=400.0), LIMIT, NO) == 0.0
    assert bands.excess(outlook(1100.0, spread=400.0), LIMIT, NO) == pytest.approx(150.0)
    guess = outlook(1100.0, spread=400.0, blurred=True)
    assert bands.excess(guess, LIMIT, NO) == 0.0
    assert bands.excess(guess, LIMIT, YES) == pytest.approx(150.0)


def test_a_feed_without_a_limit_is_never_over():
    assert Bands(1, Settings()).excess(outlook(1e9), np.array([np.inf]), YES) == 0.0


def test_it_rises_after_three_quiet_cycles_and_not_soon_after_a_turn():
    bands = Bands(1, Settings())
    quiet = outlook(800.0)
    assert not bands.listen(quiet, LIMIT, YES, 0.0).any()
    bands.fell(YES, 0.0)
    began = [bool(bands.listen(quiet, LIMIT, YES, 3.0 * n)[0]) for n in range(4)]
    assert began == [False, False, True, False]
    bands.fell(YES, 20.0)  # a turn: up, then down
    again = [bool(bands.listen(quiet, LIMIT, YES, 20.0 + 3.0 * n)[0]) for n in range(30)]
    assert again.index(True) == 20  # 60 s later


def test_an_upper_cycle_that_is_not_quiet_begins_the_count_anew():
    bands = Bands(1, Settings())
    bands.fell(YES, 0.0)
    loads = [800.0, 800.0, 930.0, 800.0, 800.0, 800.0]
    began = [bool(bands.listen(outlook(w), LIMIT, YES, 0.0)[0]) for w in loads]
    assert began == [False] * 5 + [True]


def test_a_dimmed_feed_gives_up_to_its_target_only_while_it_rises():
    bands = Bands(1, Settings())
    assert bands.budget(outlook(900.0), LIMIT, YES) == pytest.approx([70.0])  # never cut for
    bands.fell(YES, 0.0)
    assert bands.budget(outlook(900.0), LIMIT, YES)[0] < 0.0
    bands.rising[:] = True
    assert bands.budget(outlook(900.0), LIMIT, YES) == pytest.approx([50.0])
    assert bands.budget(outlook(900.0), LIMIT, NO)[0] < 0.0
    assert bands.budget(outlook(np.nan), LIMIT, YES)[0] < 0.0


def test_settled_is_told_once_and_inside_its_band():
    bands = Bands(1, Settings())
    bands.fell(YES, 0.0)
    assert not bands.settle(outlook(980.0, calm=980.0), LIMIT).any()
    assert bands.settle(outlook(965.0, calm=965.0), LIMIT).all()
    assert not bands.settle(outlook(950.0, calm=950.0), LIMIT).any()
    assert not bands.settling.any()


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().above = 1.0


def test_a_plateau_is_the_largest_mean_of_two_looks_that_follow_each_other():
    rows = Rows(keep=10.0, grain=0.4)
    everything, short = np.array(10.0), np.array(0.9)
    assert np.isnan(rows.plateau(everything, 0.8)).all()
    for begin, end, watts in ((0.0, 0.5, 100.0), (0.5, 1.0, 140.0), (1.0, 1.5, 90.0)):
        rows.add(begin, end, np.array([watts, np.nan]))
    assert rows.plateau(everything, 0.8)[0] == 120.0
    assert rows.plateau(short, 0.8)[0] == 115.0
    assert np.isnan(rows.plateau(everything, 0.8)[1])
    rows.add(1.5, 1.6, np.array([900.0, 1.0]))  # too short to be believed, with the one before it
    assert rows.plateau(everything, 0.8)[0] == 120.0
    assert rows.plateau(everything, 0.6)[0] == pytest.approx((90.0 * 0.5 + 900.0 * 0.1) / 0.6)
    assert rows.peak(everything)[0] == 900.0
