"""The ledger: every moment has one share, and the shares add up to exactly 1."""

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.recovery.ledger import SHARES, Run, ledger, rounded
from rackproof.diagnostics.recovery.record import Course, Head
from rackproof.diagnostics.recovery.spans import Mark, Work, spans, usual
from rackproof.diagnostics.recovery.strikes import Strike
from rackproof.diagnostics.recovery.timeline import words
from rackproof.diagnostics.recovery.trajectory import trajectory
from rackproof.diagnostics.recovery.view import view
from rackproof.harness.happening import Happening


def line(at, kind, who="coordinator", **fields):
    return Happening(at, who, kind, fields)


def steps(*times, first=1, **more):
    return [line(at, "step", step=first + n, **more) for n, at in enumerate(times)]


def book(*lines, last=10, members=2, began=0.0, ended=20.0, fault=None):
    said = sorted(lines, key=lambda each: each.at)
    course = Course("faulted", began, ended, finished=True, happenings=said)
    struck = [] if fault is None else [Strike(fault, "kill", "r1", evidence="it died")]
    path = trajectory(course)
    run = Run(path, last, members, None, struck, words(course, "A", struck))
    return ledger(course, run)


def seconds(found):
    return {name: round(value, 6) for name, value in found.seconds.items() if value > 1e-12}


EVEN = [float(at) for at in range(1, 11)]


def test_a_run_in_which_nothing_happens_is_productive():
    found = book(line(0.0, "epoch"), *steps(*EVEN))
    assert (found.wall, seconds(found)) == (10.0, {"productive": 10.0})
    assert found.shares["productive"] == 1.0


def test_start_and_end_are_no_share():
    found = book(line(2.0, "hello", "r0"), *steps(*[at + 2 for at in EVEN]), ended=14.0)
    assert (found.start, found.wall, found.end) == (2.0, 10.0, 2.0)


def recovery(*lines, late=3.0):
    """Have a fault at 5.5 in the sixth step, which is committed `late` later than it should."""
    times = [at if at < 6 else at + late for at in EVEN]
    return book(line(0.0, "epoch"), *steps(*times), *lines, fault=5.5)


def test_waiting_is_shared_by_what_was_seen():
    found = recovery(
        line(6.0, "lost", member="r1"),
        line(6.5, "isolated", member="r1"),
        line(7.5, "spare-active", member="s0"),
        line(7.8, "resynchronised", member="s0", step=5),
    )
    # From 7.8 to 9.0 there is 1.2 s, of which the step itself takes its usual second.
    assert seconds(found) == {"productive": 10.5, "detect": 0.5, "isolate": 0.5, "restore": 1.5}


def test_an_attempt_that_is_thrown_away_is_recomputed():
    found = recovery(line(6.0, "discarded", step=6), line(6.0, "lost", member="r1"))
    assert seconds(found) == {"productive": 10.0, "recompute": 0.5, "detect": 0.5, "restore": 2.0}


def test_a_wait_that_nobody_noticed_is_detect():
    assert seconds(recovery()) == {"productive": 10.5, "detect": 2.5}


def test_training_that_goes_on_meanwhile_is_work():
    found = book(
        line(0.0, "epoch"), *steps(*EVEN), line(5.6, "lost", member="r1"),
        line(8.5, "resynchronised", member="s0", step=8), fault=5.5,
    )  # fmt: skip
    waits = {"detect": 0.1, "restore": 0.0}
    assert found.seconds["detect"] == pytest.approx(waits["detect"])
    assert found.seconds["productive"] == pytest.approx(9.9)


def test_steps_that_are_done_again_are_recomputed():
    found = book(
        line(0.0, "epoch"), *steps(1, 2, 3, 4, 5), line(5.6, "lost", member="r1"),
        line(6.0, "restarted", step=3), *steps(7, 8, 9, 10, 11, 12, 13, first=4), fault=5.5,
    )  # fmt: skip
    assert seconds(found) == {"productive": 10.0, "recompute": 2.5, "detect": 0.1, "restore": 0.4}


def test_fewer_members_are_degraded():
    told = [
        line(at, "step", step=n, participants=["r0"] if n in {4, 5} else ["r0", "r1"])
        for n, at in enumerate(EVEN, 1)
    ]
    found = book(line(0.0, "epoch"), *told)
    assert seconds(found) == {"productive": 9.0, "degraded": 1.0}


def test_an_epoch_says_who_takes_part_where_the_step_does_not():
    found = book(
        line(0.0, "epoch", participants=["r0", "r1"]), *steps(*EVEN),
        line(5.1, "epoch", participants=["r0"]), line(7.1, "epoch", participants=["r0", "s0"]),
    )  # fmt: skip
    assert seconds(found) == {"productive": 9.0, "degraded": 1.0}


def test_more_members_than_there_are_do_not_help():
    found = book(line(0.0, "epoch"), *steps(*EVEN, participants=9))
    assert found.shares["productive"] == 1.0


def staged(at, took):
    return line(at, "ckpt", "r0", phase="staged", step=1, seconds=took)


def test_staging_a_checkpoint_is_a_stall_and_counts_once():
    found = book(line(0.0, "epoch"), *steps(*EVEN), staged(4.4, 0.3), staged(4.5, 0.3))
    assert seconds(found) == {"productive": 9.6, "checkpoint": 0.4}


def test_what_is_written_beside_the_training_is_no_stall():
    other = line(4.4, "ckpt", "r0", phase="committed", step=1, seconds=3.0)
    assert seconds(book(line(0.0, "epoch"), *steps(*EVEN), other)) == {"productive": 10.0}


@pytest.mark.parametrize("took", [-1, math.nan, math.inf, "1", None, True])
def test_a_stall_that_cannot_be_is_none(took):
    assert book(line(0.0, "epoch"), *steps(*EVEN), staged(4.4, took)).shares["productive"] == 1.0


def test_a_stall_is_no_longer_than_the_run():
    found = book(line(0.0, "epoch"), *steps(*EVEN), staged(4.5, 1e9))
    assert seconds(found) == {"productive": 5.5, "checkpoint": 4.5}


def test_a_run_that_never_goes_on_waits_to_its_end():
    found = book(line(0.0, "epoch"), *steps(1, 2, 3), line(4.0, "lost", member="r1"),
                 fault=3.5, ended=8.0)  # fmt: skip
    assert found.wall == 8.0
    assert seconds(found) == {"productive": 3.0, "detect": 1.0, "restore": 4.0}


def test_a_run_that_stands_still_by_itself_is_not_detected():
    found = book(line(0.0, "epoch"), *steps(1, 2, 3), ended=8.0)
    assert seconds(found) == {"productive": 3.0, "detect": 5.0}


def test_where_no_time_passed_there_is_no_ledger():
    assert book(ended=0.0) is None
    assert book(*steps(5.0), last=1, began=5.0, ended=5.0) is None


def test_a_step_that_takes_its_usual_time():
    works = [Work(float(at)) for at in (1, 2, 3, 13, 14)]
    assert usual(works, [Mark(5.0, "fault")]) == 1.0
    assert usual(works[:1], []) is None


# --- whatever happens ----------------------------------------------------------------------------
WHAT = "fault detected isolated spare-active restored resynchronised discarded restarted".split()
TIME = st.floats(-5.0, 30.0, allow_nan=False)
MARKS = st.lists(st.builds(Mark, TIME, st.sampled_from(WHAT)), max_size=12)
WORKS = st.lists(st.builds(Work, TIME, st.booleans(), st.floats(0.0, 1.0)), max_size=15)


@settings(deadline=None)
@given(MARKS, WORKS, st.one_of(st.none(), st.floats(0.0, 9.0)))
def test_every_moment_has_exactly_one_span(marks, works, step):
    found = list(
        spans(0.0, 20.0, sorted(works, key=lambda w: w.at), sorted(marks, key=lambda m: m.at), step)
    )
    edge = 0.0
    for span in found:
        assert span.begin == edge
        assert span.end >= span.begin
        edge = span.end
    assert edge == 20.0


KIND = st.sampled_from(
    "epoch intent step hello lost isolated spare-active restore resynchronised discarded "
    "restarted ckpt injected".split()
)
LINES = st.lists(
    st.builds(
        lambda at, kind, who, step, number: Happening(
            at, who, kind,
            {"step": step, "participants": number, "seconds": number / 2, "phase": "staged",
             "member": "r1", "uri": "x", "fault": "kill", "pid": 21},
        ),
        st.floats(90.0, 130.0), KIND, st.sampled_from(["coordinator", "r0", "drill"]),
        st.integers(0, 12), st.integers(0, 3),
    ),
    max_size=40,
)  # fmt: skip


@settings(deadline=None, max_examples=150)
@given(LINES, st.floats(100.0, 125.0), st.integers(1, 4))
def test_the_shares_of_any_run_add_up_to_one(lines, ended, members):
    said = sorted(lines, key=lambda each: each.at)
    course = Course("faulted", 100.0, ended, finished=False, happenings=said)
    fired = [
        Strike(each.at, "kill", "r1", evidence="yes") for each in said if each.kind == "injected"
    ]
    run = Run(trajectory(course), 12, members, 1.0, fired, words(course, "A", fired))
    found = ledger(course, run)
    if found is None:
        done = run.path.top >= 12 and run.path.commits[-1].at <= 100.0
        assert done or ended <= 100.0 or ended <= max((h.at for h in said), default=ended)
        return
    assert set(found.shares) == set(SHARES)
    assert all(share >= 0 for share in found.shares.values())
    assert sum(found.shares.values()) == sum(reversed(found.shares.values())) == 1.0
    assert math.fsum(found.seconds.values()) == pytest.approx(found.wall)
    for name, share in found.shares.items():
        assert share == pytest.approx(found.seconds[name] / found.wall, abs=2e-6)


@given(st.dictionaries(st.sampled_from(SHARES), st.floats(0.0, 1e6), min_size=1))
def test_rounded_shares_are_near_and_add_up(parts):
    if not math.fsum(parts.values()) > 0:
        return
    total, found = math.fsum(parts.values()), rounded(parts)
    assert sum(found.values()) == 1.0
    for name, share in found.items():
        assert share == pytest.approx(parts[name] / total, abs=2e-6)
        assert parts[name] > 0 or share <= 1e-6


# --- figures -------------------------------------------------------------------------------------
def test_the_figures_of_a_recovery(good):
    found = good.judge().figures
    assert (found.mttd, found.mttr, found.next_step) == (0.2, 1.6, 1.6)
    assert (found.rpo_steps, found.lost_steps) == (0, 0)
    assert found.ettr == good.judge().ledger.shares["productive"]


def test_the_figures_of_a_restart(command):
    found = command.judge().figures
    assert (found.rpo_steps, found.lost_steps) == (2, 2)


def test_young_and_daly(good):
    found = good.judge().figures.young_daly
    assert (found.delta, found.used) == (0.04, 4.0)
    assert found.mtbf == pytest.approx(54 * 24 * 3600 * 16384 / 419 / 2, rel=1e-6)
    assert found.optimal == pytest.approx(math.sqrt(2 * 0.04 * found.mtbf), rel=1e-6)
    assert "2407.21783" in good.judge().as_json()["young_daly"]["source"]


def test_young_and_daly_know_nothing_of_a_run_without_checkpoints(command):
    found = command.judge().figures.young_daly
    assert (found.used, found.optimal, found.delta) == (None, None, None)


def test_a_view_without_a_run_has_no_step(good):
    empty = view(replace(good.record, courses={}))
    assert (empty.step, empty.book()) == (None, None)
    assert isinstance(empty.head, Head)
