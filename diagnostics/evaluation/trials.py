"""One world, one seed, many incidents: every policy at each, and what became of it.

Each incident has a seed of its own, from the seed, the world's name and its number; every policy
meets it afresh with the same answers in store, so that differences between policies are paired.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rackproof.diagnostics.evaluation import log
from rackproof.diagnostics.evaluation.answers import Answers
from rackproof.diagnostics.evaluation.baselines import BASELINES
from rackproof.diagnostics.evaluation.bench import Bench, Conclusion, Scene
from rackproof.diagnostics.evaluation.losses import HOSTS, LINKS, SWITCHES, deed, lost
from rackproof.diagnostics.evaluation.policies import Policy, classifier
from rackproof.diagnostics.evaluation.truth import Truth, draw
from rackproof.diagnostics.evaluation.worlds import OF_GPU, World
from rackproof.diagnostics.offline import settled
from rackproof.diagnostics.retest.model import Cause

CLASSIFIER = "classifier"
UNSEEN, OPEN = "unseen", "open"
"""Labels beside those of Cause: nothing was named at the true place; watched or to be tested on."""
_OUTSIDE = (
    (SWITCHES, Cause.SWITCH), (HOSTS, Cause.HOST), (frozenset(("nic",)), Cause.NIC),
)  # fmt: skip
_PRESUMES = {
    **dict.fromkeys(("leave", "watch"), OPEN),
    **dict.fromkeys(("reset", "reboot", "software", "app"), str(Cause.TRANSIENT)),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one policy made of one incident.

    `label` is the cause that it settled on (a word of Cause, OPEN or UNSEEN), `right` that the
    component is. `replaced` counts GPUs that it takes out, `healthy` those of them with no fault.
    `missed` says that a GPU with a fault of its own is neither swapped, diagnosed nor watched.
    `watched` is of the true place. `belief` is the posterior there.
    """

    label: str
    right: bool
    component: str
    replaced: int
    healthy: int
    missed: bool
    watched: bool
    tests: float
    asked: int
    loss: float
    belief: Mapping[Cause, float] | None = None


def policies() -> dict[tuple[str, str], Policy]:
    """Return every policy by (name, variant); the classifier has one."""
    own: dict[tuple[str, str], Policy] = {(CLASSIFIER, ""): classifier}
    return own | {
        (name, variant): policy
        for name, variants in BASELINES.items()
        for variant, policy in variants.items()
    }


def label(told: Conclusion) -> str:
    """Return the cause that a conclusion comes down to, by what it says and does.

    Persistence alone tells a transient, and persistent from intermittent; where it is left open,
    what is done presumes it: a reset presumes a transient, a swap a persistent fault.
    """
    component, done = told.component, deed(told)
    if component in ("app", "driver"):
        return component
    if told.persistence == "transient":
        return str(Cause.TRANSIENT)
    if told.persistence == "undetermined" and done in _PRESUMES:
        return _PRESUMES[done]
    for words, cause in _OUTSIDE:
        if component in words:
            return str(cause)
    if component in LINKS and done not in ("replace", "watch"):
        return str(Cause.LINK)
    sometimes = told.persistence == "intermittent"
    return str(Cause.INTERMITTENT if sometimes else Cause.PERSISTENT)


def _outcome(truth: Truth, world: World, told: Sequence[Conclusion], bench: Bench) -> Outcome:
    there = [c for c in told if c.place in truth.places]
    own = there[0] if there else None
    swaps = [c.place for c in told if deed(c) == "replace"]
    ill = truth.cause in OF_GPU
    after = {"stuck": bench.stuck, "cured": bench.cured}
    loss = lost(truth, world, told, **after)
    dealt = any(deed(c) in ("replace", "diagnose", "watch") for c in there)
    return Outcome(
        label(own) if own else UNSEEN,
        any(c.component in truth.components for c in there[:1]),
        own.component if own else UNSEEN,
        replaced=len(swaps),
        healthy=sum(not (ill and place == truth.home) for place in swaps),
        missed=ill and not dealt,
        watched=any(deed(c) == "watch" for c in there),
        tests=bench.hours, asked=bench.asked, loss=loss + bench.hours,
        belief=own.belief if own else None,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trial:
    """One incident with what each policy made of it."""

    truth: Truth
    outcomes: Mapping[tuple[str, str], Outcome]


def trials(world: World, seed: int, cases: int) -> Iterator[Trial]:
    """Yield `cases` incidents of a world; the same for the same world, seed and count."""
    number = zlib.crc32(world.name.encode())
    everyone = policies()
    for index in range(cases):
        own = (seed, number, index)
        rng = np.random.default_rng(own)
        truth = draw(rng, world)
        found, _ = settled(log.readings(truth, world, rng))
        known = {} if truth.earlier is None else {truth.home: truth.earlier}
        scene = Scene(found, truth.site, known, truth.hours)
        outcomes = {}
        for name, policy in everyone.items():
            bench = Bench(Answers(truth, world, own), truth.site)
            told = policy(scene, bench)
            outcomes[name] = _outcome(truth, world, told, bench)
        yield Trial(truth, outcomes)
