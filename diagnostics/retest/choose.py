"""Which retest is worth its cost: the one that is expected to save the most loss beyond it.

In: a belief, the device seconds that are left, the tests that are allowed. Out: a Retest, or None
where none pays. Looked ahead two steps, since one pass may change no decision and two may: a second
test is valued only where it would pay after the first. Soaks of several lengths are single choices.
"""

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from rackproof.diagnostics.retest.belief import Belief, left_by, likelihood
from rackproof.diagnostics.retest.model import TOUCHING, Outcome, Retest, Test
from rackproof.diagnostics.retest.tables import After, Floats, cost, losses, seconds, table

LEAST = 0.01
"""GPU-hours that a retest must be expected to save beyond its cost: below that it is noise."""
_TIE = 1e-9
_LATER = (5, 13)
"""Soaks that are looked at as the second of two steps: the others are like one of them."""
WORDS: Mapping[Test, str] = {
    Test.AGAIN: "the burn once more",
    Test.RESET: "reset the GPU and burn",
    Test.REBOOT: "reboot the node and burn",
    Test.ELSEWHERE: "the same job on another GPU",
    Test.SWAP: "swap the GPU with a neighbour and burn both",
    Test.SOAK: "a soak of {runs} runs",
}


@functools.cache
def sizes(test: Test) -> tuple[int, ...]:
    """Return how many runs a retest may have, fewest first."""
    row = table("costs.toml")["sizes"].get(test)
    return tuple(row["value"]) if row else (1,)


@dataclass(frozen=True, slots=True, eq=False)
class _Choice:
    """A test with its runs.

    `chances` (outcomes, hypotheses) holds P(outcome | hypothesis); `lost` (hypotheses, outcomes x
    decisions) the loss of each decision with that chance. `states` says of each outcome what it
    leaves behind.
    """

    test: Test
    runs: int
    chances: Floats
    lost: Floats
    states: tuple[After, ...]


def _ways(runs: int, struck: int) -> float:
    """Return the log of the binomial coefficient."""
    return math.lgamma(runs + 1) - math.lgamma(struck + 1) - math.lgamma(runs - struck + 1)


@functools.cache
def choices(after: After) -> tuple[_Choice, ...]:
    """Return every retest of every size, with the chances of its outcomes.

    `after` says what an earlier retest left behind.
    """
    return tuple(_choice(test, runs, after) for test in Test for runs in sizes(test))


def _choice(test: Test, runs: int, after: After) -> _Choice:
    rows, states = [], []
    for struck in range(runs + 1):
        for stayed in range(runs + 1) if test is Test.SWAP else (0,):
            ways = _ways(runs, struck) + (_ways(runs, stayed) if stayed else 0.0)
            outcome = Outcome(test, runs, struck, stayed)
            rows.append(np.exp(likelihood(outcome, after) + ways))
            states.append(left_by(outcome) if test in TOUCHING else after)
    chances = np.stack(rows)
    loss = np.stack([losses(state)[1] for state in states])
    lost = (chances[:, :, None] * loss).transpose(1, 0, 2).reshape(chances.shape[1], -1)
    return _Choice(test, runs, chances, lost, tuple(states))


def expected_loss(belief: Belief) -> float:
    """Return the least expected loss in GPU-hours of any decision."""
    return float((belief.weights @ losses(belief.state)[1]).min())


@dataclass(frozen=True, slots=True)
class _Fit:
    """A choice that is allowed and fits, with its device seconds and its GPU-hours."""

    choice: _Choice
    seconds: float
    cost: float


def _fits(
    burn_seconds: float, budget_s: float, allowed: Collection[Test], after: After
) -> list[_Fit]:
    found = []
    for choice in choices(after):
        took = seconds(choice.test, choice.runs, burn_seconds)
        if choice.test in allowed and 0 < took <= budget_s:
            found.append(_Fit(choice, took, cost(choice.test, choice.runs, burn_seconds)))
    return found


def _after(weights: Floats, loss: Floats, seconds_left: float, fits: Sequence[_Fit]) -> float:
    """Return the least loss with at most one more test, its cost included, over all rows.

    `weights` (rows, hypotheses) need not be normalised; the result scales with them. `loss`
    (hypotheses, decisions) is that without another test.
    """
    mass = weights.sum(axis=1)
    best: Floats = (weights @ loss).min(axis=1)
    for fit in fits:
        if fit.seconds <= seconds_left:
            shape = (len(weights), len(fit.choice.chances), loss.shape[1])
            lost = (weights @ fit.choice.lost).reshape(shape).min(axis=2).sum(axis=1)
            best = np.minimum(best, lost + fit.cost * mass)
    return float(best.sum())


def gains(
    belief: Belief, budget_s: float, allowed: Collection[Test], *, ahead: bool = True
) -> list[Retest]:
    """Return every retest that fits with its gain in GPU-hours beyond its cost, also below 0.

    `ahead` looks a second step ahead, with what the first leaves of the budget.
    """
    weights, burn = belief.weights, belief.signs.burn_seconds
    now, found = expected_loss(belief), []
    fits = {after: _fits(burn, budget_s, allowed, after) for after in After}
    later = {
        after: [f for f in own if f.choice.test is not Test.SOAK or f.choice.runs in _LATER]
        for after, own in fits.items()
    }
    for fit in fits[belief.state]:
        choice, joint = fit.choice, weights * fit.choice.chances
        left = 0.0
        for after in After:
            rows = joint[[state is after for state in choice.states]]
            then, loss = later[after] if ahead else (), losses(after)[1]
            left += _after(rows, loss, budget_s - fit.seconds, then) if len(rows) else 0.0
        gain = now - left - fit.cost
        found.append(Retest(choice.test, choice.runs, fit.seconds, fit.cost, gain))
    return found


def worded(retest: Retest) -> str:
    """Return a retest in words: what, how long, what it costs and saves."""
    what = WORDS[retest.test].format(runs=retest.runs)
    return (
        f"{what}: {retest.seconds:.0f} s and {retest.cost:.2g} GPU-hours of cost, "
        f"{retest.gain:.2g} GPU-hours of expected loss saved beyond it"
    )


def best(found: Sequence[Retest]) -> Retest | None:
    """Return the retest with the largest gain, of equals the first; None where none pays."""
    paying = [retest for retest in found if retest.gain > LEAST]
    if not paying:
        return None
    most = max(retest.gain for retest in paying)
    chosen = next(retest for retest in paying if retest.gain >= most - _TIE)
    return replace(chosen, why=worded(chosen))


def spent(belief: Belief) -> frozenset[Test]:
    """Return the tests that were run and would tell nothing new.

    What changes something is tried once: the same hands at the same places tell the same again. The
    burn as it is may be run as often as it pays. A reboot resets the GPU as well.
    """
    ran = {outcome.test for outcome in belief.outcomes if outcome.runs}
    more = {Test.RESET} if Test.REBOOT in ran else set[Test]()
    return frozenset(ran | more) - {Test.AGAIN, Test.SOAK}


def choose(belief: Belief, budget_s: float, allowed: frozenset[Test]) -> Retest | None:
    """Return the retest to run next within `budget_s` device seconds, or None where none pays."""
    if belief.signs.kind == "terminal":
        return None
    return best(gains(belief, budget_s, allowed - spent(belief)))
