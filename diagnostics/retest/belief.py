"""The belief over causes, and how a retest's outcome changes it: Bayes, on logs.

In: the signs of a case and outcomes. Out: a Belief, the weight of each hypothesis: a cause with a
hit rate, so that the unknown hit rate of what comes now and then is learnt with the cause. The
order of like outcomes does not matter. Source of the figures: the TOML files beside this one.
"""

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from rackproof.diagnostics.retest.model import TOUCHING, Cause, Outcome, Signs, Test
from rackproof.diagnostics.retest.priors import past, prior
from rackproof.diagnostics.retest.tables import (
    PASSING,
    STEADY,
    After,
    Floats,
    hits,
    hypotheses,
)


@dataclass(frozen=True, slots=True, eq=False)
class Belief:
    """What is believed of a case. `logs` holds a log weight for each hypothesis, normalised.

    `outcomes` are the retests that were run, those that the evidence itself held among them.
    """

    signs: Signs
    logs: Floats
    outcomes: tuple[Outcome, ...] = ()

    @property
    def weights(self) -> Floats:
        """The probability of each hypothesis; they sum to 1."""
        weights: Floats = np.exp(self.logs)
        return weights

    @property
    def posterior(self) -> Mapping[Cause, float]:
        """The probability of each cause, in the order of Cause; they sum to 1."""
        weights, every = self.weights, hypotheses()
        return {cause: min(1.0, float(weights[every.where(cause)].sum())) for cause in Cause}

    @property
    def state(self) -> After:
        """What the last retest that reset the GPU left behind."""
        last = [outcome for outcome in self.outcomes if outcome.test in TOUCHING and outcome.runs]
        return left_by(last[-1]) if last else After.NOTHING

    @property
    def before(self) -> tuple[int, int]:
        """(failed, passed) runs of the burns until something was reset."""
        failed, passed = _count(itertools.takewhile(_plain, self.outcomes))
        return self.signs.failed + failed, self.signs.passed + passed

    @property
    def after(self) -> tuple[int, int]:
        """(failed, passed) runs from the first reset, reboot or swap on."""
        return _count(itertools.dropwhile(_plain, self.outcomes))

    def word(self, persistence: str) -> float:
        """Return the probability that a word for how lasting it is, is right.

        Of what no reset clears, steady is ``persistent``, the rest ``intermittent``.
        """
        every, weights = hypotheses(), self.weights
        passing = np.array([cause in PASSING for cause in every.cause])
        steady = np.array([sort == STEADY for sort in every.sort])
        of = {"transient": passing, "persistent": steady & ~passing}
        chosen = of.get(persistence, ~steady & ~passing)
        return min(1.0, float(weights[chosen].sum()))


def _plain(outcome: Outcome) -> bool:
    return outcome.test not in TOUCHING


def _count(outcomes: Iterable[Outcome]) -> tuple[int, int]:
    """Return (failed, passed) runs; of a swap a run failed that showed it in either place."""
    failed = runs = 0
    for one in outcomes:
        if one.test is not Test.ELSEWHERE:
            failed += min(one.runs, one.struck + one.stayed)
            runs += one.runs
    return failed, runs - failed


def _normal(logs: Floats) -> Floats:
    top = float(logs.max())
    found: Floats = logs - (top + np.log(np.exp(logs - top).sum()))
    return found


def left_by(outcome: Outcome) -> After:
    """Return what a retest that resets the GPU leaves behind."""
    return After.HELD if outcome.struck + outcome.stayed else After.CLEARED


def likelihood(outcome: Outcome, after: After = After.NOTHING) -> Floats:
    """Return the log likelihood of an outcome under each hypothesis, but for a constant.

    `after` says what an earlier retest left behind.
    """
    chance = hits(outcome.test, after)
    passed = outcome.runs - outcome.struck
    found: Floats = outcome.struck * np.log(chance) + passed * np.log1p(-chance)
    if outcome.test is Test.SWAP:
        chance, passed = hits("stayed", after), outcome.runs - outcome.stayed
        found = found + outcome.stayed * np.log(chance) + passed * np.log1p(-chance)
    return found


def begin(signs: Signs) -> Belief:
    """Return the belief before any retest.

    The first failed run is what opened the case, and says nothing more than that; each run beyond
    it is evidence, and so are the outcomes that the signs know of.
    """
    logs = prior(signs) + past(signs)
    more = max(0, signs.failed - 1)
    if more or signs.passed:
        logs = logs + likelihood(Outcome(Test.AGAIN, more + signs.passed, more))
    belief = Belief(signs, _normal(logs))
    for outcome in signs.known:
        belief = update(belief, outcome)
    return belief


def update(belief: Belief, outcome: Outcome) -> Belief:
    """Return the belief after a retest; one of no runs changes nothing."""
    logs = _normal(belief.logs + likelihood(outcome, belief.state))
    return replace(belief, logs=logs, outcomes=(*belief.outcomes, outcome))
