"""Bayes on logs: what holds of every belief, and Wald's test as the check on the arithmetic."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.diagnostics.retest.belief import begin, likelihood, update
from rackproof.diagnostics.retest.model import TOUCHING, Cause, Outcome, Signs, Test
from rackproof.diagnostics.retest.tables import hypotheses
from tests.diagnostics.retest.conftest import SIGNS, TRIES, believed, outcomes

few = settings(max_examples=60, deadline=None)


@few
@given(SIGNS, TRIES)
def test_a_belief_is_a_probability(signs, tried):
    belief = believed(signs, tried)
    assert math.isclose(sum(belief.posterior.values()), 1.0, abs_tol=1e-9)
    assert all(0.0 <= chance <= 1.0 for chance in belief.posterior.values())
    words = [belief.word(word) for word in ("transient", "intermittent", "persistent")]
    assert math.isclose(sum(words), 1.0, abs_tol=1e-9)
    assert list(belief.posterior) == list(Cause)


@few
@given(SIGNS, st.lists(outcomes([t for t in Test if t not in TOUCHING]), max_size=5), st.randoms())
def test_the_order_of_what_changes_nothing_does_not_matter(signs, tried, chance):
    shuffled = list(tried)
    chance.shuffle(shuffled)
    one, other = believed(signs, tried), believed(signs, shuffled)
    assert np.allclose(one.weights, other.weights, atol=1e-9)


@few
@given(SIGNS, st.sampled_from([Test.AGAIN, Test.RESET, Test.REBOOT]))
def test_a_failure_more_never_makes_persistent_less_likely_than_transient(signs, test):
    def odds(belief):
        logs, every = belief.logs, hypotheses()
        return np.logaddexp.reduce(logs[every.where(Cause.PERSISTENT)]) - np.logaddexp.reduce(
            logs[every.where(Cause.TRANSIENT)]
        )

    belief = begin(signs)
    for _ in range(3):
        more = update(belief, Outcome(test, 1, 1))
        assert odds(more) >= odds(belief) - 1e-9
        belief = more


@few
@given(SIGNS, TRIES)
def test_no_runs_say_nothing(signs, tried):
    belief = believed(signs, tried)
    assert np.allclose(update(belief, Outcome(Test.AGAIN, 0)).logs, belief.logs, equal_nan=True)


def test_what_the_files_hold_counts_as_what_was_run():
    booted = Outcome(Test.REBOOT, 1, 1)
    told = begin(Signs("hbm", known=(booted,)))
    assert np.allclose(told.logs, update(begin(Signs("hbm")), booted).logs)
    assert told.outcomes == (booted,)


def test_what_a_reset_cleared_does_not_come_back_by_itself():
    signs = Signs("driver", kind="driver", failed=3)
    cured = update(begin(signs), Outcome(Test.RESET, 1, 0))
    soaked = update(cured, Outcome(Test.SOAK, 13, 0))
    assert soaked.posterior[Cause.DRIVER] > 0.9
    assert (soaked.before, soaked.after) == ((3, 0), (0, 14))


def test_an_intermittents_hit_rate_is_learnt():
    belief = update(begin(Signs("hbm")), Outcome(Test.SOAK, 44, 22))
    every = hypotheses()
    own = every.where(Cause.INTERMITTENT)
    rate = np.average(every.rate[own], weights=belief.weights[own])
    assert belief.posterior[Cause.INTERMITTENT] > 0.8
    assert rate == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("outcome", "cause"),
    [
        (Outcome(Test.SWAP, 3, 3, 0), Cause.PERSISTENT),
        (Outcome(Test.SWAP, 3, 0, 3), Cause.LINK),
        (Outcome(Test.ELSEWHERE, 3, 3), Cause.APP),
        (Outcome(Test.RESET, 3, 0), Cause.TRANSIENT),
    ],
    ids=["goes-with-the-gpu", "stays-with-the-slot", "shows-on-another-gpu", "reset-helps"],
)
def test_each_retest_tells_its_own_cause(outcome, cause):
    before = begin(Signs("nvlink", prior=0.35))
    after = update(before, outcome)
    ratios = {c: after.posterior[c] / before.posterior[c] for c in Cause}
    assert max(ratios, key=ratios.__getitem__) in (cause, Cause.INTERMITTENT, Cause.NIC)
    assert ratios[cause] > 1


@pytest.mark.parametrize(
    ("more", "cause", "grows"),
    [
        ({"alike": 7}, Cause.SWITCH, True),
        ({"alike": 7}, Cause.PERSISTENT, False),
        ({"incidents": 4}, Cause.INTERMITTENT, True),
        ({"incidents": 4}, Cause.TRANSIENT, False),
        ({"earlier": 3, "hours": 720.0}, Cause.INTERMITTENT, True),
        ({"earlier": 0, "hours": 20_000.0}, Cause.INTERMITTENT, False),
    ],
    ids=["many-switch", "many-gpu", "often", "once-is-over", "lemon", "good-for-years"],
)
def test_the_past_of_a_case_is_evidence(more, cause, grows):
    signs = Signs("nvlink", prior=0.35)
    before, after = begin(signs).posterior, begin(replace(signs, **more)).posterior
    assert (after[cause] > before[cause]) is grows


# --- Wald's test, the check on the arithmetic ----------------------------------------------------

HIGH, LOW = math.log((1 - 0.005) / 0.01), math.log(0.005 / (1 - 0.01))


def steps():
    """Return what a failed and a passed run add to the log odds of persistent over transient."""
    every = hypotheses()
    lasts = every.where(Cause.PERSISTENT)
    over = every.where(Cause.TRANSIENT, "sometimes")
    return [
        (row[lasts] - row[over]).item()
        for row in (likelihood(Outcome(Test.AGAIN, 1, n)) for n in (1, 0))
    ]


def test_the_log_odds_are_walds():
    fail, cleared = steps()
    assert (fail, cleared) == (pytest.approx(3.86, abs=0.005), pytest.approx(-2.98, abs=0.005))
    assert pytest.approx(4.60, abs=0.005) == HIGH
    assert pytest.approx(-5.29, abs=0.005) == LOW
    assert fail < HIGH < 2 * fail
    assert 2 * cleared < LOW < cleared


def wald(rate):
    """Return (chance to be cleared, expected runs) of what strikes with `rate`."""
    fail, cleared = steps()
    open_states, gone, runs = {(0, 0): 1.0}, 0.0, 0.0
    for _ in range(200):
        then = {}
        for (fails, passes), chance in open_states.items():
            runs += chance
            after = ((fails + 1, passes), chance * rate), ((fails, passes + 1), chance * (1 - rate))
            for state, share in after:
                odds = state[0] * fail + state[1] * cleared
                if odds <= LOW:
                    gone += share
                elif odds < HIGH:
                    then[state] = then.get(state, 0.0) + share
        open_states = then
    return gone, runs


def test_walds_test_is_short_and_clears_most_intermittents():
    assert wald(0.95)[1] == pytest.approx(2.1, abs=0.05)
    assert wald(0.02)[1] == pytest.approx(2.1, abs=0.06)
    assert wald(0.95)[0] < 0.01
    assert 1 - wald(0.02)[0] < 0.01
    assert wald(0.3)[0] == pytest.approx(0.73, abs=0.01)


@pytest.mark.parametrize(("rate", "passes"), [(0.3, 13), (0.1, 44)])
def test_passes_that_catch_an_intermittent_with_99_percent(rate, passes):
    enough = next(n for n in itertools.count(1) if (1 - rate) ** n <= 0.01)
    assert enough == passes
