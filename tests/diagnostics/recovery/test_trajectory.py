"""Trajectories: what counts of what was told, and where two of them part."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.diagnostics.recovery.record import Course
from rackproof.diagnostics.recovery.telling import digits, ids_of, members_of, telling
from rackproof.diagnostics.recovery.trajectory import first_difference, trajectory
from rackproof.harness.happening import Happening


def line(at, who, kind="step", attempt=1, **fields):
    return Happening(at, who, kind, fields, attempt)


def told(who, steps, at, attempt=1, **more):
    """One line a second for each step."""
    return [line(at + n, who, attempt=attempt, step=s, **more) for n, s in enumerate(steps)]


def path(*lines, name="faulted"):
    ordered = sorted(lines, key=lambda each: each.at)
    return trajectory(Course(name, 0.0, 1000.0, finished=True, happenings=ordered))


def rollbacks(found):
    return [(each.to, each.top) for each in found.rollbacks]


def test_two_processes_tell_the_same_steps():
    found = path(*told("a", range(1, 6), 1), *told("b", range(1, 6), 1.1))
    assert (found.top, found.lost, found.repeated, rollbacks(found)) == (5, 0, 0, [])
    assert [len(each.told) for each in found.commits] == [2] * 5
    assert not found.breaks


def test_lines_that_are_read_file_by_file_are_the_same():
    found = path(*told("a", range(1, 6), 1), *told("b", range(1, 6), 50))
    assert (found.top, rollbacks(found), list(found.breaks)) == (5, [], [])


def test_a_joiner_takes_over_a_peers_state():
    found = path(
        *told("a", range(1, 9), 1),
        line(5.2, "c", "restore", step=5, uri="peer:a"),
        *told("c", (6, 7, 8), 6.1),
    )
    assert (found.top, rollbacks(found), list(found.breaks)) == (8, [], [])


def test_a_joiner_that_only_tells_the_last_step_is_no_restart():
    found = path(
        *told("a", range(1, 9), 1),
        line(7.2, "coordinator", "resynchronised", member="c", step=7),
        line(8.1, "c", step=8),
    )
    assert (found.top, rollbacks(found), list(found.breaks)) == (8, [], [])


def test_a_joiner_may_restore_a_checkpoint_while_others_go_on():
    found = path(
        *told("a", range(1, 9), 1),
        line(5.2, "c", "restore", step=4, uri="file:///x"),
        *told("c", (5, 6, 7, 8), 6.1),
    )
    assert (rollbacks(found), found.lost, list(found.breaks)) == ([], 0, [])


def test_the_whole_job_goes_back_to_a_checkpoint():
    found = path(
        *told("a", range(1, 6), 1),
        *told("b", range(1, 6), 1.1),
        line(7, "a", "restore", attempt=2, step=3, uri="file:///x"),
        line(7.1, "b", "restore", attempt=2, step=3, uri="peer:a"),
        *told("b", range(4, 8), 8, attempt=2),
        *told("a", range(4, 8), 8.1, attempt=2),
    )
    assert (rollbacks(found), found.lost, found.repeated) == ([(3, 5)], 2, 2)
    assert [each.step for each in found.commits if each.again] == [4, 5]
    assert list(found.breaks) == []


def test_a_restart_that_the_coordinator_tells_is_one():
    found = path(
        *told("coordinator", range(1, 6), 1),
        line(7, "coordinator", "restarted", step=3, uri="file:///x"),
        *told("coordinator", range(4, 8), 8),
    )
    assert (rollbacks(found), list(found.breaks)) == ([(3, 5)], [])


def test_a_restart_at_the_newest_step_loses_nothing_and_is_one():
    found = path(
        *told("a", range(1, 6), 1),
        line(7, "a", "restore", attempt=2, step=5, uri="file:///x"),
        *told("a", (6, 7), 8, attempt=2),
    )
    assert (rollbacks(found), found.lost, found.repeated) == ([(5, 5)], 0, 0)


def test_going_on_from_what_others_hold_is_no_restart():
    found = path(*told("a", range(1, 6), 1), *told("a", (6, 7), 8, attempt=2))
    assert (rollbacks(found), len(found.remarks)) == ([], 1)


def test_two_restarts_to_one_checkpoint_are_two():
    found = path(
        *told("a", range(1, 6), 1),
        *told("a", (4, 5), 10, attempt=2),
        *told("a", (4, 5, 6), 20, attempt=3),
    )
    assert (rollbacks(found), found.lost, found.repeated) == ([(3, 5), (3, 5)], 4, 4)
    assert found.commits[-2].again


def test_what_was_told_before_a_restart_does_not_count_where_it_is_told_again():
    found = path(
        *told("a", range(1, 6), 1, digest="old"), *told("a", (4, 5), 10, attempt=2, digest="new")
    )
    assert {s: c.digest for s, c in found.steps.items()} == {
        1: "old", 2: "old", 3: "old", 4: "new", 5: "new",
    }  # fmt: skip


def test_steps_that_were_undone_and_not_done_again_do_not_count():
    found = path(*told("a", range(1, 9), 1), *told("a", (4, 5), 10, attempt=2))
    assert (found.top, found.lost) == (5, 5)


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.integers(1, 3)), max_size=40)
)
def test_whatever_is_told_is_laid_out_whole(lines):
    found = path(*(line(float(at), who, step=s, attempt=t) for at, (who, s, t) in enumerate(lines)))
    assert sum(len(each.told) for each in found.commits) == len(lines)
    assert found.top <= max((step for _, step, _ in lines), default=0)
    assert found.lost >= 0
    assert [each.at for each in found.commits] == sorted(each.at for each in found.commits)
    again = path(*(line(float(at), who, step=s, attempt=t) for at, (who, s, t) in enumerate(lines)))
    assert again == found


def test_several_that_begin_in_the_middle_are_no_restart():
    found = path(line(5.0, "a", step=5), line(5.1, "b", step=5), line(5.2, "c", step=5))
    assert (rollbacks(found), len(found.commits), found.missing) == ([], 1, [1, 2, 3, 4])


def test_a_checkpoint_that_others_find_equal_is_still_a_checkpoint():
    found = path(
        *told("a", range(1, 6), 1),
        line(7, "a", "restore", attempt=2, step=5, uri="file:///x"),
        line(7.1, "coordinator", "resynchronised", member="a", step=5),
        *told("a", (6, 7), 8, attempt=2),
    )
    assert rollbacks(found) == [(5, 5)]


def test_while_anybody_goes_on_nobody_has_gone_back():
    found = path(
        *told("a", range(1, 9), 1),
        *told("b", range(1, 4), 1.1),
        *told("c", range(1, 4), 1.2),
        *told("b", range(2, 8), 4.5, attempt=2),
        *told("c", range(2, 7), 5.5, attempt=2),
        *told("a", (5, 6), 11.5, attempt=2),
    )
    assert rollbacks(found) == [(4, 8)]


def test_beginning_afresh_needs_no_word_of_what_was_restored():
    found = path(*told("a", range(1, 4), 1), *told("a", range(1, 6), 8, attempt=2))
    assert (rollbacks(found), list(found.remarks), list(found.breaks)) == ([(0, 3)], [], [])


# --- differences ---------------------------------------------------------------------------------
def digests(*texts, **more):
    return [line(n, "a", step=n, digest=text, **more) for n, text in enumerate(texts, 1)]


def test_the_first_step_that_differs_is_named():
    one = path(*digests("aa", "bb", "cc", loss=0.25))
    other = path(*digests("aa", "b2", "c2", loss=0.25 + 1e-12), name="clean1")
    found = first_difference(one, other)
    assert (found.step, found.message) == (
        2, "step 2: digests differ (faulted bb, clean1 b2), the losses agree to 11 digits",
    )  # fmt: skip


def test_equal_trajectories_do_not_differ():
    assert first_difference(path(*digests("aa", "bb")), path(*digests("aa", "bb"))) is None


def test_without_losses_only_the_digests_are_told():
    found = first_difference(path(*digests("aa")), path(*digests("ab"), name="replay"))
    assert found.message == "step 1: digests differ (faulted aa, replay ab)"


def test_a_reference_that_contradicts_itself_equals_nothing():
    other = path(*digests("aa"), line(1.5, "b", step=1, digest="ab"), name="clean1")
    assert first_difference(path(*digests("aa")), other) is not None


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (0.5, 0.5, "equal to the last bit"),
        (1.0, 1.0 + 2e-16, "agree to 15 digits"),
        (1.0, 2.0, "differ as well"),
        (1.0, float("nan"), "the losses are 1.0 and nan"),
        (0.0, 1.0, "differ as well"),
        (5e-324, 1e-323, "differ as well"),
    ],
)
def test_how_far_losses_agree(one, other, said):
    assert said in digits(one, other)


# --- lines ---------------------------------------------------------------------------------------
def test_a_line_is_read_without_belief():
    found = telling(
        line(
            1.0, "a", step=3, loss=2, samples=[[4, 1], [3]], participants=["a", "b", "a"], digest=7
        )
    )
    assert (found.step, found.loss, found.ids, found.count) == (3, 2.0, (1, 3, 4), 3)
    assert (found.members, found.digest) == (2, "")


@pytest.mark.parametrize(
    ("value", "found"),
    [([], ()), ([True], None), ([1 << 60], None), ("12", None), ([[1], 2], (1, 2))],
)
def test_sample_ids(value, found):
    assert ids_of(value) == found


@pytest.mark.parametrize(
    ("value", "found"), [(3, 3), (0, None), ([], None), ("a", None), (-1, None)]
)
def test_participants(value, found):
    assert members_of(value) == found


def test_a_loss_that_no_float_holds_is_infinite():
    assert telling(line(1.0, "a", step=3, loss=10**400)).loss == float("inf")
