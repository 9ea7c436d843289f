"""The classifier as a policy: the cases of the product, its signs, its tests and its decisions.

In: a Scene and a Bench. Out: a Conclusion for each case. Each case may use what is left of the
budget; the retest, its size and the moment to stop are the classifier's own choice.
"""

import functools
from collections.abc import Callable, Sequence

from rackproof.diagnostics.evaluation.bench import Bench, Conclusion, Scene
from rackproof.diagnostics.retest.belief import Belief, begin, update
from rackproof.diagnostics.retest.choose import choose
from rackproof.diagnostics.retest.decide import decide
from rackproof.diagnostics.retest.model import Decision, Outcome, Retest, Signs, Test
from rackproof.diagnostics.retest.signs import of_case

Policy = Callable[[Scene, Bench], Sequence[Conclusion]]
_ALLOWED = frozenset(Test)


@functools.lru_cache(maxsize=200_000)
def _belief(signs: Signs, outcomes: tuple[Outcome, ...]) -> Belief:
    if not outcomes:
        return begin(signs)
    return update(_belief(signs, outcomes[:-1]), outcomes[-1])


# The same signs and outcomes come many times over; the classifier is pure, so its answers are kept.
@functools.lru_cache(maxsize=200_000)
def _next(signs: Signs, outcomes: tuple[Outcome, ...], left: float) -> Retest | None:
    return choose(_belief(signs, outcomes), left, _ALLOWED)


@functools.lru_cache(maxsize=200_000)
def _decision(signs: Signs, outcomes: tuple[Outcome, ...]) -> Decision:
    return decide(_belief(signs, outcomes))


def classifier(scene: Scene, bench: Bench) -> list[Conclusion]:
    """Judge each case by the sequential test."""
    told = []
    for case in scene.cases:
        place = scene.place(case)
        outcomes: tuple[Outcome, ...] = ()
        signs = of_case(case, scene.earlier.get(place), scene.hours)
        while (retest := _next(signs, outcomes, bench.left)) is not None:
            bench.left -= retest.seconds
            outcomes = (*outcomes, bench.run(place, retest.test, retest.runs))
        said = _decision(signs, outcomes)
        told.append(
            Conclusion(place, said.component, said.persistence, said.action, said.posterior)
        )
    return told
