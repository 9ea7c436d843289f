"""The packaged tables of the sequential test as arrays: hypotheses, hit rates, costs, losses.

A hypothesis is a cause with a hit rate: steady, or one cell of the grid of those that come now and
then. Every array here runs over the same hypotheses, in one order. What a figure is, its unit and
its source stand in the TOML files beside this one.
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackproof.diagnostics.retest.model import Cause, Test

Floats = NDArray[np.float64]
STEADY, SOMETIMES, HIDDEN = "steady", "sometimes", "hidden"
PASSING = (Cause.APP, Cause.DRIVER, Cause.TRANSIENT)
"""Causes that are no part which would have to be repaired."""
STICKING = (Cause.DRIVER, Cause.TRANSIENT)
"""Causes that may stay until a reset, and are over then."""
ALWAYS = (Cause.LINK, Cause.SWITCH, Cause.HOST, Cause.NIC)


class After(Enum):
    """What the last retest that resets the GPU left behind."""

    NOTHING = "nothing"  # there was none
    CLEARED = "cleared"  # nothing showed after it: what was stuck does not come back by itself
    HELD = "held"  # it showed again: what a reset did not clear, the next will not either


@functools.cache
def table(name: str) -> Mapping[str, Any]:
    """Return a packaged TOML file of this room."""
    text = resources.files("rackproof.diagnostics.retest").joinpath(name).read_text("utf-8")
    return tomllib.loads(text)


def value(name: str, group: str, key: str) -> float:
    """Return the figure of `key` in [group] of a file."""
    return float(table(name)[group][key]["value"])


@dataclass(frozen=True, slots=True, eq=False)
class Hypotheses:
    """All hypotheses. `cause`, `sort` (steady, sometimes, hidden) and `rate` run over them.

    `share` is the weight of a hypothesis within its cause and sort.
    """

    cause: tuple[Cause, ...]
    sort: tuple[str, ...]
    rate: Floats
    share: Floats

    def where(self, cause: Cause, sort: str | None = None) -> NDArray[np.bool_]:
        """Return which hypotheses are of a cause, and of a sort where one is named."""
        pairs = zip(self.cause, self.sort, strict=True)
        return np.array([c is cause and sort in (None, s) for c, s in pairs])

    def each(self, by_cause: Mapping[str, float]) -> Floats:
        """Return a figure that is given by cause for every hypothesis."""
        return np.array([by_cause[cause] for cause in self.cause], dtype=np.float64)


@functools.cache
def grid() -> tuple[Floats, Floats]:
    """Return (hit rates, weights) of what comes now and then: Beta(1.2, 4) in equal cells."""
    cells = int(value("hits.toml", "now-and-then", "cells"))
    alpha = value("hits.toml", "now-and-then", "alpha")
    beta = value("hits.toml", "now-and-then", "beta")
    rates = (np.arange(cells) + 0.5) / cells
    density = rates ** (alpha - 1) * (1 - rates) ** (beta - 1)
    return rates, density / density.sum()


@functools.cache
def hypotheses() -> Hypotheses:
    """Return the hypotheses of all causes, in the order of Cause."""
    rows: list[tuple[Cause, str, float, float]] = []
    steady = value("hits.toml", "rate", "steady")
    rates, weights = grid()
    for cause in Cause:
        if cause is not Cause.INTERMITTENT:
            rows.append((cause, STEADY, steady, 1.0))
        if cause is Cause.TRANSIENT:
            rows.append((cause, SOMETIMES, 0.0, 1.0))  # it is over
        elif cause is not Cause.PERSISTENT:
            rows += [(cause, SOMETIMES, q, w) for q, w in zip(rates, weights, strict=True)]
        if cause is Cause.INTERMITTENT:
            rows.append((cause, HIDDEN, 0.0, 1.0))
    causes, sorts, rate, share = zip(*rows, strict=True)
    return Hypotheses(causes, sorts, np.array(rate), np.array(share))


@functools.cache
def sticking() -> NDArray[np.bool_]:
    """Return which hypotheses are of something that stays until a reset."""
    every = hypotheses()
    pairs = zip(every.cause, every.sort, strict=True)
    return np.array([sort == STEADY and cause in STICKING for cause, sort in pairs])


@functools.cache
def hits(what: str, after: After = After.NOTHING) -> Floats:
    """Return the chance that a run of a retest shows the fault; `stayed`: a swap's old place."""
    keeps = table("hits.toml")["keeps"]
    every = hypotheses()
    kept = every.each({cause: keeps[cause][what] for cause in Cause})
    if after is After.CLEARED:
        kept = np.where(sticking(), 0.0, kept)
    elif after is After.HELD and what == Test.RESET:
        kept = np.where(sticking(), 1.0, kept)
    low, high = value("hits.toml", "rate", "background"), value("hits.toml", "rate", "most")
    return np.clip(every.rate * kept, low, high)


@functools.cache
def losses(after: After) -> tuple[tuple[str, ...], Floats]:
    """Return (decisions, GPU-hours of each hypothesis by decision).

    Where a reset helped, what was stuck is over.
    """
    loss = table("losses.toml")["loss"]
    rows = {name: row for name, row in loss.items() if isinstance(row, dict)}
    every = hypotheses()
    now = Cause.TRANSIENT if after is After.CLEARED else "stuck"
    columns = [np.where(sticking(), row[now], every.each(row)) for row in rows.values()]
    return tuple(rows), np.stack(columns, axis=1)


def seconds(test: Test, runs: int, burn_seconds: float) -> float:
    """Return the device seconds of a retest."""
    row = table("costs.toml")[test]
    return float(row["fixed"]["value"] + runs * row["burns"]["value"] * burn_seconds)


def cost(test: Test, runs: int, burn_seconds: float) -> float:
    """Return the GPU-hours that a retest costs."""
    row = table("costs.toml")[test]
    took = seconds(test, runs, burn_seconds)
    return float(took * row["gpus"]["value"] / 3600 + row["hands"]["value"])
