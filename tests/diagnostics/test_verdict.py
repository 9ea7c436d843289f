"""The algebra: the worst wins, SKIP is neutral, and nothing looked at is UNKNOWN."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rackproof.diagnostics.verdict import Verdict, roll_up

PASS, FAIL, UNKNOWN, SKIP = Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN, Verdict.SKIP
ORDER = [PASS, UNKNOWN, FAIL]


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([], UNKNOWN),
        ([SKIP], UNKNOWN),
        ([SKIP, SKIP], UNKNOWN),
        ([PASS], PASS),
        ([PASS, SKIP], PASS),
        ([PASS, UNKNOWN], UNKNOWN),
        ([UNKNOWN, SKIP], UNKNOWN),
        ([PASS, FAIL], FAIL),
        ([UNKNOWN, FAIL], FAIL),
        ([FAIL, SKIP], FAIL),
        ([FAIL, UNKNOWN, PASS, SKIP], FAIL),
    ],
)
def test_the_worst_wins(verdicts, expected):
    for order in itertools.permutations(verdicts):
        assert roll_up(order) is expected


@given(st.lists(st.sampled_from(Verdict)), st.lists(st.sampled_from(Verdict)))
def test_rolling_up_in_steps_changes_nothing_and_skip_is_neutral(first, second):
    whole = roll_up([*first, *second])
    assert roll_up([*first, *second, SKIP]) is whole
    if any(v is not SKIP for v in first) and any(v is not SKIP for v in second):
        assert roll_up([roll_up(first), roll_up(second)]) is whole


@given(st.lists(st.sampled_from(Verdict), min_size=1), st.sampled_from(Verdict))
def test_one_more_verdict_never_improves_what_was_looked_at(verdicts, more):
    before = roll_up(verdicts)
    after = roll_up([*verdicts, more])
    if any(v is not SKIP for v in verdicts):
        assert ORDER.index(after) >= ORDER.index(before)


def test_exit_codes():
    assert {v: v.exit_code for v in Verdict} == {PASS: 0, FAIL: 1, UNKNOWN: 3, SKIP: 3}


def test_a_verdict_is_written_as_its_word():
    assert [str(v) for v in Verdict] == ["PASS", "FAIL", "UNKNOWN", "SKIP"]
