"""Which retest is chosen: within the budget, of those allowed, and only where it pays."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.retest.belief import begin, likelihood, update
from rackproof.diagnostics.retest.choose import choose, expected_loss, gains, sizes
from rackproof.diagnostics.retest.model import Cause, Outcome, Signs, Test
from rackproof.diagnostics.retest.tables import After, cost, losses, seconds
from tests.diagnostics.retest.conftest import SIGNS, TRIES, believed

ALL = frozenset(Test)
few = settings(max_examples=25, deadline=None)


@few
@given(SIGNS, TRIES, st.floats(0, 20_000), st.sets(st.sampled_from(Test)))
def test_the_choice_is_allowed_and_fits_and_pays(signs, tried, budget, allowed):
    belief = believed(signs, tried)
    chosen = choose(belief, budget, frozenset(allowed))
    assert choose(belief, 0.0, ALL) is None
    if chosen is not None:
        assert chosen.test in allowed
        assert chosen.runs in sizes(chosen.test)
        ran = {outcome.test for outcome in tried if outcome.runs}
        assert chosen.test not in ran or chosen.test in (Test.AGAIN, Test.SOAK)
        assert 0 < chosen.seconds <= budget
        assert chosen.seconds == seconds(chosen.test, chosen.runs, signs.burn_seconds)
        assert chosen.cost == cost(chosen.test, chosen.runs, signs.burn_seconds)
        assert 0 < chosen.gain <= expected_loss(belief)
        assert chosen.why
    assert chosen == choose(belief, budget, frozenset(allowed))


@few
@given(SIGNS, TRIES)
def test_looking_ahead_never_makes_a_retest_worth_less(signs, tried):
    belief = believed(signs, tried)
    near, far = (gains(belief, 10_000.0, ALL, ahead=ahead) for ahead in (False, True))
    for one, other in zip(near, far, strict=True):
        assert (one.test, one.runs, one.cost) == (other.test, other.runs, other.cost)
        assert other.gain >= one.gain - 1e-9


@few
@given(SIGNS, st.sampled_from(Test))
def test_a_retest_that_costs_nothing_cannot_do_harm(signs, test):
    belief = begin(signs)
    found = gains(belief, float("inf"), {test}, ahead=False)
    assert all(retest.gain >= -retest.cost - 1e-6 for retest in found)


def test_a_gain_is_the_loss_now_less_the_loss_expected_after():
    belief = begin(Signs("hbm"))
    (alone,) = gains(belief, float("inf"), {Test.ELSEWHERE}, ahead=False)
    chances, later = [], 0.0
    for struck in (0, 1):
        outcome = Outcome(Test.ELSEWHERE, 1, struck)
        chances.append(float((belief.weights * np.exp(likelihood(outcome))).sum()))
        later += chances[-1] * expected_loss(update(belief, outcome))
    assert sum(chances) == pytest.approx(1.0)
    assert alone.gain == pytest.approx(expected_loss(belief) - later - alone.cost)


@pytest.mark.parametrize(
    ("signs", "tried", "tests"),
    [
        (Signs("hbm", prior=0.25), (), {Test.SOAK, Test.RESET}),
        (Signs("hbm", prior=0.21, failed=3), (), {Test.RESET}),
        (Signs("driver", kind="driver", waits=True), (), {Test.RESET, Test.REBOOT}),
        (Signs("app", kind="app", prior=0.03), (Outcome(Test.RESET, 1, 1),), {Test.ELSEWHERE}),
        (Signs("hbm", prior=0.25, failed=1, passed=2), (), {Test.SOAK}),
    ],
        ids=["once", "always", "a-hang", "a-jobs-own", "now-and-then"],
)  # fmt: skip
def test_the_retest_is_the_one_that_tells(signs, tried, tests):
    chosen = choose(believed(signs, tried), 7200.0, ALL)
    assert chosen is not None
    assert chosen.test in tests


def test_whether_it_is_the_slot_or_the_gpu_is_asked_by_a_swap():
    belief, asked = begin(Signs("pcie", prior=0.4, failed=3)), []
    while (chosen := choose(belief, 100_000.0, ALL)) is not None:
        asked.append(chosen.test)
        shows = 0 if chosen.test is Test.ELSEWHERE else chosen.runs
        belief = update(belief, Outcome(chosen.test, chosen.runs, shows))
    assert Test.SWAP in asked
    assert belief.posterior[Cause.PERSISTENT] > 0.95


def test_a_soak_is_one_choice_and_worth_more_than_a_single_pass():
    belief = begin(Signs("hbm", prior=0.25, failed=1, passed=2))
    (once,) = gains(belief, 7200.0, {Test.AGAIN}, ahead=False)
    chosen = choose(belief, 7200.0, frozenset((Test.AGAIN, Test.SOAK)))
    assert chosen is not None
    assert (chosen.test, chosen.runs >= 5) == (Test.SOAK, True)
    assert chosen.gain > 2 * once.gain > 0


def test_nothing_is_run_on_terminal_evidence():
    assert choose(begin(Signs("hbm", kind="terminal", prior=0.95)), 7200.0, ALL) is None


def test_retests_come_to_an_end():
    """Whatever they show, it is not worth testing for ever."""
    for outcome in (0, 1):
        belief, budget = begin(Signs("hbm", prior=0.25)), 100_000.0
        for _ in range(30):
            chosen = choose(belief, budget, ALL)
            if chosen is None:
                break
            stayed = 0
            belief = update(
                belief, Outcome(chosen.test, chosen.runs, chosen.runs * outcome, stayed)
            )
            budget -= chosen.seconds
        assert chosen is None


def test_every_decision_has_a_loss_for_every_cause():
    names, loss = losses(After.NOTHING)
    assert len(names) == loss.shape[1]
    assert (loss >= 0).all()
