"""What is believed of a case before any retest: the code's prior x fleet rates x history.

In: Signs. Out: the log weight of every hypothesis (tables.py). What the case says of its past (how
often it came, who else shows it, earlier cases of the serial number) is evidence like any other.
"""

import functools
import math
from collections.abc import Mapping

import numpy as np

from rackproof.diagnostics.retest.model import Cause, Signs
from rackproof.diagnostics.retest.tables import (
    HIDDEN,
    PASSING,
    SOMETIMES,
    STEADY,
    Floats,
    hypotheses,
    table,
    value,
)

NAME = "priors.toml"
_HOUR = 1.0  # a past that is shorter says nothing
_SURE = 0.999  # no code says more than that of itself


def silent(signs: Signs) -> bool:
    """Whether the case is of wrong results that no error told of: a pass clears nothing there."""
    return signs.component in ("sm", "data") and signs.kind != "app" and signs.family != "slow"


def _missed(signs: Signs) -> float:
    """Return the share of a GPU's lasting faults that no burn shows; none once one did."""
    if silent(signs):
        return value("hits.toml", "silent", "missed")
    return 0.0 if signs.failed else value("hits.toml", "unseen", "missed")


def lasting(signs: Signs) -> float:
    """Return the chance that the fault outlasts a reset."""
    prior = signs.prior
    if signs.kind == "terminal":
        prior = max(prior, value(NAME, "outlasts", "terminal"))
    return min(max(prior, 1 - _SURE), _SURE)


def _repairs(signs: Signs) -> Mapping[str, float]:
    """Return who needs repair by what the signs point at: share of the fleet x chance to point.

    Terminal signs name the part itself.
    """
    component = signs.component
    points, fleet = table(NAME)["points"], table(NAME)["fleet"]
    rates = {
        name: row["value"] * points[name].get(component, points["other"])
        for name, row in fleet.items()
    }
    if signs.kind == "terminal":
        return {max(rates, key=rates.__getitem__): 1.0}
    total = sum(rates.values())
    return {name: rate / total for name, rate in rates.items()}


def _causes(signs: Signs) -> dict[tuple[Cause, str], float]:
    """Return the prior of each cause and sort of hit rate."""
    sticks = table("hits.toml")["waits" if signs.waits else "sticks"]
    outlasts, steady = lasting(signs), table(NAME)["steady"]
    passing = table(NAME)["passing"].get(signs.kind, table(NAME)["passing"]["hardware"])
    found: dict[tuple[Cause, str], float] = {}
    for word, share in passing.items():
        stays = sticks[word]["value"]
        found[Cause(word), STEADY] = (1 - outlasts) * share * stays
        found[Cause(word), SOMETIMES] = (1 - outlasts) * share * (1 - stays)
    software = table(NAME)["software"]
    for cause in (Cause.APP, Cause.DRIVER):
        if signs.component in software[cause] and signs.kind not in ("app", "driver"):
            for sort in (STEADY, SOMETIMES):
                found[cause, sort] *= software["value"]
    missed = _missed(signs)
    for word, share in _repairs(signs).items():
        always = 1.0 if signs.kind == "terminal" else float(steady[word])
        if word == "gpu":
            seen = outlasts * share * (1 - missed)
            found[Cause.PERSISTENT, STEADY] = seen * always
            found[Cause.INTERMITTENT, SOMETIMES] = seen * (1 - always)
            found[Cause.INTERMITTENT, HIDDEN] = outlasts * share * missed
        else:
            found[Cause(word), STEADY] = outlasts * share * always
            found[Cause(word), SOMETIMES] = outlasts * share * (1 - always)
    if signs.failed + signs.passed and signs.kind != "app":
        for sort in (STEADY, SOMETIMES):
            found[Cause.APP, sort] *= value(NAME, "burn", "app")
    return found


def prior(signs: Signs) -> Floats:
    """Return the log weight of each hypothesis, the case's past left out; not normalised."""
    every, found = hypotheses(), _causes(signs)
    pairs = zip(every.cause, every.sort, every.share, strict=True)
    weights = np.array([found.get((cause, sort), 0.0) * share for cause, sort, share in pairs])
    with np.errstate(divide="ignore"):
        logs: Floats = np.log(weights)
    return logs


def _geometric(count: int, hours: float, mean: float) -> float:
    """Return the log chance of `count` cases in `hours`: Poisson, its rate gamma of shape `a`."""
    a = value(NAME, "history", "shape")
    odds = mean * hours / a
    ways = math.lgamma(count + a) - math.lgamma(a) - math.lgamma(count + 1)
    return ways - a * math.log1p(odds) + count * (math.log(odds) - math.log1p(odds))


@functools.cache
def _history(earlier: int, hours: float) -> Floats:
    """Return the log likelihood of a serial number's history by hypothesis."""
    ordinary, lemon, app = (
        _geometric(earlier, hours, value(NAME, "history", word))
        for word in ("ordinary", "lemon", "app")
    )
    every, found = hypotheses(), []
    for cause, sort in zip(every.cause, every.sort, strict=True):
        older = value(NAME, "history", "steady" if sort == STEADY else "older")
        if cause is Cause.APP:
            found.append(app)
        elif cause in PASSING:
            found.append(ordinary)
        else:
            old, new = math.log(older) + lemon, math.log1p(-older) + ordinary
            found.append(float(np.logaddexp(old, new)))
    return np.array(found)


def past(signs: Signs) -> Floats:
    """Return the log likelihood of what the case says of its past, by hypothesis."""
    every = hypotheses()
    often, alike = table(NAME)["often"], table(NAME)["alike"]
    again = np.log(every.each({cause: often[cause] for cause in Cause}))
    shared = every.each({cause: alike[cause] for cause in Cause})
    found: Floats = again * max(0, signs.incidents - 1)
    found += np.log(shared) if signs.alike else np.log1p(-shared)
    if signs.earlier is not None and signs.hours >= _HOUR:
        found += _history(signs.earlier, signs.hours)
    return found
