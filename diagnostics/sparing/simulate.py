"""Monte Carlo of racks with spares: units fail, wait for a repair, and come back. Vectorised.

Each unit is an alternating renewal process: up for an exponential time, down for a repair time. All
units of a block of trials take their k-th failure at once, as arrays. Then outages are sorted: in
time, just before a rack's k-th return, k - 1 units have come back, so more than s are down exactly
from its (k + s)-th failure on. The answers agree with closed.py within their standard error.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
BLOCK = 1 << 16
"""Units that are simulated at once: what fits into a core's cache."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """`racks` of `units`, of which `spare` may be down; rates per unit-hour, times in hours.

    A failure takes a unit out for `repair` hours on average (exponential), or, with `fixed`, for
    just so long. `hours` is the window.
    """

    racks: int
    units: int
    spare: int
    rate: float
    repair: float
    hours: float
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Simulated:
    """What came out: means over trials, each with its standard error, and how much was simulated.

    usable: share of rack-hours with enough units up · all_usable: share of time that all racks have
    · outages: how often a rack fell below, for each rack and window · failures: all units' for each
    window · events: failures and returns.
    """

    usable: float
    usable_error: float
    all_usable: float
    all_usable_error: float
    outages: float
    failures: float
    failures_error: float
    events: int


def simulate(scenario: Scenario, trials: int, draw: np.random.Generator) -> Simulated:
    """Run `trials` windows, all units up at the start, in blocks: memory stays flat."""
    size = max(1, BLOCK // (scenario.racks * scenario.units))
    parts = [
        _block(scenario, min(size, trials - first), draw) for first in range(0, trials, size)
    ]  # fmt: skip
    lost, merged, failures, outages = (
        np.concatenate(column) for column in zip(*parts, strict=True)
    )
    usable = 1.0 - lost / (scenario.racks * scenario.hours)
    whole = 1.0 - merged / scenario.hours
    return Simulated(
        usable=float(usable.mean()),
        usable_error=_error(usable),
        all_usable=float(whole.mean()),
        all_usable_error=_error(whole),
        outages=float(outages.mean()) / scenario.racks,
        failures=float(failures.mean()),
        failures_error=_error(failures),
        events=2 * int(failures.sum()),
    )


def demand(mean_rate: float, hours: float, trials: int, draw: np.random.Generator) -> Floats:
    """Return how many spares each trial asks for: arrivals at `mean_rate` an hour, one by one.

    Sums of exponential gaps, not a Poisson draw: it is the check on the Poisson form.
    """
    most = int(mean_rate * hours + 12.0 * np.sqrt(mean_rate * hours + 1.0) + 20.0)
    found = np.empty(trials)
    step = max(1, 4_000_000 // most)
    for first in range(0, trials, step):
        count = min(step, trials - first)
        at = np.cumsum(draw.exponential(1.0 / mean_rate, (count, most)), axis=1)
        found[first : first + count] = (at < hours).sum(axis=1)
    return found


def _error(values: Floats) -> float:
    return float(values.std(ddof=1) / np.sqrt(values.size)) if values.size > 1 else float("inf")


def _block(
    scenario: Scenario, trials: int, draw: np.random.Generator
) -> tuple[Floats, Floats, Floats, Floats]:
    """Return by trial: rack-hours below, hours in which any rack is, failures, falls below."""
    span = 2.0 ** np.ceil(np.log2(scenario.hours + 1.0))  # a rack's time never reaches the next's
    start, end = _outages(scenario, trials, span, draw)
    failures = np.bincount(_whole(start, span * scenario.racks), minlength=trials)
    start.sort()
    end.sort()
    begin, until, falls = _below(start, end, scenario.spare)
    rack = np.floor(begin / span)
    trial = _whole(begin, span * scenario.racks)
    lost = np.bincount(trial, weights=until - begin, minlength=trials)
    shift = (trial - rack) * span  # all racks of a trial on one clock
    first, last, _ = _below(np.sort(begin + shift), np.sort(until + shift), 0)
    merged = np.bincount(_whole(first, span), weights=last - first, minlength=trials)
    outages = np.bincount(trial[falls], minlength=trials)
    return _floats(lost), _floats(merged), _floats(failures), _floats(outages)


def _floats(values: NDArray[Any]) -> Floats:
    return values.astype(np.float64)


def _whole(at: Floats, span: float) -> NDArray[np.int64]:
    return np.floor(at / span).astype(np.int64)


def _outages(
    scenario: Scenario, trials: int, span: float, draw: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return start and end of each outage inside the window, each rack on a span of its own."""
    up, hours = 1.0 / scenario.rate, scenario.hours
    base = np.repeat(np.arange(trials * scenario.racks) * span, scenario.units)
    clock = np.zeros(base.size)
    starts, ends = [np.empty(0)], [np.empty(0)]
    while base.size:
        clock += draw.standard_exponential(base.size) * up
        inside = np.flatnonzero(clock < hours)
        base, clock = base[inside], clock[inside]
        starts.append(base + clock)
        if scenario.fixed:
            clock = clock + scenario.repair
        else:
            clock = clock + draw.standard_exponential(base.size) * scenario.repair
        ends.append(base + np.minimum(clock, hours))
    return np.concatenate(starts), np.concatenate(ends)


def _below(start: Floats, end: Floats, spare: int) -> tuple[Floats, Floats, NDArray[np.bool_]]:
    """Return (begin, until, is it a fall) of the times in which more than `spare` are down.

    `start` and `end` are sorted, place by place. What runs over into the next place has a negative
    length, and falls away.
    """
    count = max(0, end.size - spare)
    until, later = end[:count], start[spare:]
    before = np.concatenate((np.full(min(1, count), -1.0), until[:-1]))
    begin = np.maximum(later, before)
    some = np.flatnonzero(until > begin)
    return begin[some], until[some], later[some] > before[some]
