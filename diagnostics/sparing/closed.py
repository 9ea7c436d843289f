"""Closed forms for spares and for useful time. Rates are per hour, times are in hours.

Units that fail and are repaired independently are up or down as in an alternating renewal process;
the number that waits for a replacement is Poisson (Palm's theorem); a job that loses its work since
the last checkpoint at each failure is a renewal process, too.
"""

import math
from collections.abc import Callable

MOST = 1_000_000
"""Largest stock that is searched for."""


def unavailability(rate: float, repair: float) -> float:
    """Return the share of time that a unit is down: λτ / (1 + λτ); whatever τ's distribution."""
    load = rate * repair
    return load / (1.0 + load)


def binomial_at_most(k: int, n: int, p: float) -> float:
    """Return P(X ≤ k) for X binomial(n, p), by sums of logarithms, exact to about 1e-12."""
    if k < 0:
        return 0.0
    if k >= n or p <= 0.0:
        return 1.0
    if p >= 1.0:
        return 0.0
    terms = (
        math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1)
        + i * math.log(p) + (n - i) * math.log1p(-p)
        for i in range(k + 1)
    )  # fmt: skip
    return min(1.0, math.fsum(map(math.exp, terms)))


def poisson_at_most(k: int, mean: float) -> float:
    """Return P(X ≤ k) for X Poisson(mean)."""
    if k < 0:
        return 0.0
    if mean <= 0.0:
        return 1.0
    terms = (i * math.log(mean) - mean - math.lgamma(i + 1) for i in range(k + 1))
    return min(1.0, math.fsum(map(math.exp, terms)))


def usable(units: int, spare: int, down: float) -> float:
    """Return the share of time that at least `units` - `spare` of a rack's units are up."""
    return binomial_at_most(spare, units, down)


def stock_for(mean: float, confidence: float) -> int:
    """Return the fewest spares with P(demand ≤ spares) ≥ `confidence`, demand Poisson(mean).

    For a window without replenishment `mean` is N λ T; with a steady lead time L it is N λ L.
    ValueError for a confidence outside of (0, 1), or a demand beyond MOST.
    """
    if not 0.0 < confidence < 1.0:
        msg = f"confidence {confidence}: it lies between 0 and 1"
        raise ValueError(msg)
    return _fewest(lambda stock: poisson_at_most(stock, mean) >= confidence)


def _fewest(enough: Callable[[int], bool]) -> int:
    """Return the smallest number that is `enough`, which larger ones are too."""
    high = 1
    while not enough(high):
        high *= 2
        if high > MOST:
            msg = f"more than {MOST} spares"
            raise ValueError(msg)
    low = -1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def interval(write: float, failures: float) -> float:
    """Return Young's and Daly's checkpoint interval √(2w/Λ), Λ failures per hour of the job."""
    return math.sqrt(2.0 * write / failures)


def useful(gap: float, write: float, restart: float, failures: float) -> float:
    """Return the share of time that adds to the result: exact, by renewal.

    `gap` hours of work between checkpoints of `write` hours, `restart` hours to begin again after a
    failure, Λ = `failures` per hour, exponential: Δt / ((e^{Λ(Δt+w)} - 1)(1/Λ + u0)).
    """
    if failures <= 0.0:
        return gap / (gap + write)
    try:
        grown = math.expm1(failures * (gap + write))
    except OverflowError:
        return 0.0
    return gap / (grown * (1.0 / failures + restart))
