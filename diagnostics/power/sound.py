"""Could equipment have done what is told? Loads, trip integrals and stores against each other.

In: a PowerRecord. Out: doubts in words. Each is made by an equation that ties two columns of the
record together, so that whoever changes one of them has to change the others alike.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from rackproof.diagnostics.power.breaker import curve, strain
from rackproof.diagnostics.power.record import CONTROL, Array, Feed, PowerRecord, Series
from rackproof.diagnostics.power.windows import LONG, LOWERS, inside, span

DRAWN = 0.3
"""How far what GPUs draw by their steps may lie from what the feeds carry, as a share."""
STRAIN_OFF, STRAIN_NEAR = 0.3, 0.03
"""How far a told trip integral may lie from the one that its load makes: a share, and this more."""
WORST = 0.8
"""The least efficiency of a store, each way."""
ENERGY_OFF = 0.1
"""How far the energy that a store gave may lie from what its charge lost, as a share."""
CHARGE_GRAIN, OUT_GRAIN_W = 2e-5, 0.1
"""What may be lost where numbers are rounded as they are written."""
PIECE_S = 30.0
"""A store's charge is held against its power over so many seconds."""


def drawn(record: PowerRecord) -> Iterator[str]:
    """The feeds at the bottom carry what cannot be capped, and what the steps of all jobs drew."""
    leaves = [f for f in record.feeds.values() if all(e.parent != f.name for e in _feeds(record))]
    series = [s for f in leaves if (s := record.feed(f.name)) is not None]
    if not series or len({len(s.mean) for s in series}) > 1:
        return
    carried = np.sum([s.mean for s in series], axis=0) - math.fsum(f.fixed for f in leaves)
    gpus = np.zeros(len(carried))
    for job in record.jobs.values():
        gpus += job.gpus * _of_steps(record, job.name, series[0])
    count = max(1, round(LONG * span(record) / series[0].every))
    wide = min(count, len(gpus))
    sums = [np.convolve(each, np.full(wide, 1.0 / wide), "valid") for each in (carried, gpus)]
    off = np.abs(sums[0] - sums[1]) > DRAWN * sums[1]
    if off.any():
        place = int(np.flatnonzero(off)[0])
        yield (f"from {series[0].at[place] - series[0].every:.0f} s on the feeds carry"
               f" {sums[0][place] / 1e3:.1f} kW of GPUs, their steps drew"
               f" {sums[1][place] / 1e3:.1f}")  # fmt: skip


def _feeds(record: PowerRecord) -> list[Feed]:
    return list(record.feeds.values())


def _of_steps(record: PowerRecord, job: str, series: Series) -> Array:
    """Return the W of a GPU of a job over time, by its steps; NaN where none is told."""
    steps, found = record.steps.get(job), np.full(len(series.at), np.nan)
    if steps is None or not len(steps.end) or not np.isfinite([steps.begin, steps.end]).all():
        return found
    middle = series.at - series.every / 2.0
    place = np.searchsorted(steps.end, middle)
    known = place < len(steps.end)
    own = np.where(known, place, 0)
    known &= steps.begin[own] <= middle + series.every
    return np.where(known, steps.watts[own], np.nan)


def strains(record: PowerRecord) -> Iterator[str]:
    """A breaker's trip integral is what its load makes of its limit, over the whole run."""
    of = curve(record.settings)
    if not of.known:
        yield "the curve of the breakers is not in the record"
        return
    for feed in record.feeds.values():
        series = record.feed(feed.name)
        if series is None or not np.isfinite([series.mean, series.seen, series.strain]).all():
            continue  # said elsewhere
        limits = _limits(record, feed, series)
        made = [strain(w / limits, series.every, 1.0, of) for w in (series.mean, series.seen)]
        low = np.minimum(*made) * (1.0 - STRAIN_OFF) - STRAIN_NEAR
        high = np.maximum(*made) * (1.0 + STRAIN_OFF) + STRAIN_NEAR
        odd = np.flatnonzero((series.strain < np.maximum(low, 0.0)) | (series.strain > high))
        if len(odd):
            at = odd[0]
            told, most = series.strain[at], np.maximum(*made)[at]
            yield (f"{feed.name}: a trip integral of {told:.3f} is told at {series.at[at]:.1f} s,"
                   f" its load makes {most:.3f}")  # fmt: skip


def _limits(record: PowerRecord, feed: Feed, series: Series) -> Array:
    """Return a feed's limit over time, as the events set it; W."""
    found = np.full(len(series.at), feed.rated)
    for event in record.of("limit", "ac-lost", "ramp"):
        if event.feed != feed.name:
            continue
        over = [e.at for e in record.of(*LOWERS[event.what]) if e.at > event.at]
        part = inside(series.at, event.at + series.every / 2.0, min(over, default=math.inf))
        found[part] = event.watts
        if event.what == "ramp" and event.seconds > 0.0:
            share = np.minimum(np.ceil(series.at[part] - event.at) / event.seconds, 1.0)
            found[part] = event.steady + (event.watts - event.steady) * share
    return found


def energies(record: PowerRecord) -> Iterator[str]:
    """What a store gives, its charge loses: over pieces of the run, and over all of it."""
    for (run, feed), series in record.series.items():
        for store, charge in series.charge.items() if run != CONTROL else ():
            energy = record.settings.get(f"{feed}.{store}.energy", math.nan)
            out = series.out.get(store, np.empty(0))
            if not 0.0 < energy < math.inf or len(out) != len(charge):
                continue  # not told
            piece = max(1, round(PIECE_S / series.every))
            marks = sorted({*range(0, len(charge), piece), len(charge) - 1})
            steps = [(0, len(charge) - 1), *itertools.pairwise(marks)]
            for begin, end in steps:
                joules, moved = out[begin + 1 : end + 1] * series.every, charge[end] - charge[begin]
                near = CHARGE_GRAIN * energy + OUT_GRAIN_W * len(joules) * series.every
                if _off(moved * energy, joules, near):
                    yield (f"{feed}: its {store} gave {joules.sum() / 1e3:.1f} kJ from"
                           f" {series.at[begin]:.0f} to {series.at[end]:.0f} s, and its charge"
                           f" moved by {moved:+.3f}")  # fmt: skip
                    break


def _off(gained: float, joules: Array, near: float) -> bool:
    """Say whether a charge gained another energy than a store took, less losses; J."""
    gave, took = float(joules[joules > 0.0].sum()), -float(joules[joules < 0.0].sum())
    near += ENERGY_OFF * (gave + took)
    return not WORST * took - gave / WORST - near <= gained <= took - gave + near
