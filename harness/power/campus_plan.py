"""The plan of a campus: feeds from the utility down to racks, and jobs placed over the racks.

In: how many GPUs, a seed, and the parameters of campus.toml. Out: a Layout of all levels, its
limits, and jobs with their draws. Everything is drawn from the seed.
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from rackproof.harness.errors import SpecError
from rackproof.harness.power.dimmer import Job
from rackproof.harness.power.zone import TOP, Array, Layout, Places

LEVELS = ("utility", "substation", "main", "row", "rack")
LEAST, MOST = 72, 2_000_000
"""One rack, and what a laptop's memory holds."""


@functools.cache
def table() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return campus.toml: group -> name -> value, unit, mark, source."""
    text = resources.files("rackproof.harness.power").joinpath("campus.toml").read_text("utf-8")
    return MappingProxyType(tomllib.loads(text))


def figure(group: str, name: str) -> float:
    """Return one value, in the unit that campus.toml gives."""
    return float(table()[group][name]["value"])


@dataclass(frozen=True, slots=True)
class Draws:
    """What the GPUs of each job do (shape: jobs): s of an iteration, its share that computes, W."""

    period: Array
    compute: Array
    high: Array
    low: Array


@dataclass(frozen=True, slots=True)
class Plan:
    """A campus. `level` is the place in LEVELS of each feed; `limit` what it is built for, W.

    `job_of` is the place in `jobs` of each GPU, -1 where it idles; `scale` its die's share of the
    draw.
    """

    layout: Layout
    level: npt.NDArray[np.intp]
    limit: Array
    jobs: tuple[Job, ...]
    draws: Draws
    job_of: Places
    scale: Array


def _feeds(racks: int) -> tuple[list[str], list[int], list[int]]:
    """Return names, parents and levels, parents first."""
    sizes = [int(figure("level", name)) for name in
             ("mains_on_substation", "rows_on_main", "racks_in_row")]  # fmt: skip
    counts = [racks]
    for size in reversed(sizes):
        counts.insert(0, -(-counts[0] // size))
    names, parents, levels = ["utility"], [TOP], [0]
    begin = 0
    for depth, count in enumerate(counts, start=1):
        size = counts[0] if depth == 1 else sizes[depth - 2]
        first = len(names)
        names += [f"{LEVELS[depth]}{n}" for n in range(count)]
        parents += [begin + n // size for n in range(count)]
        levels += [depth] * count
        begin = first
    return names, parents, levels


def _limits(parents: list[int], levels: list[int]) -> Array:
    """Return what each feed is built for: a share of the sum of what hangs on it."""
    limit = np.zeros(len(parents))
    limit[np.array(levels) == len(LEVELS) - 1] = figure("rack", "limit")
    for feed in range(len(parents) - 1, -1, -1):
        if levels[feed] < len(LEVELS) - 1:
            limit[feed] *= figure("level", LEVELS[levels[feed]])
        if parents[feed] != TOP:
            limit[parents[feed]] += limit[feed]
    return limit


def _sizes(gpus: int, draw: np.random.Generator) -> list[int]:
    """Return the sizes of jobs that fill the campus as far as it is occupied."""
    least = figure("job", "smallest")
    most = max(least, figure("job", "largest") * gpus)
    left, sizes = int(figure("job", "occupied") * gpus), []
    while left >= least:
        size = round(float(np.exp(draw.uniform(np.log(least), np.log(most)))))
        sizes.append(min(size, left))
        left -= sizes[-1]
    return sizes or [gpus]


def _jobs(gpus: int, draw: np.random.Generator) -> tuple[tuple[Job, ...], Draws]:
    sizes = _sizes(gpus, draw)
    count, top = len(sizes), figure("gpu", "high")
    shortest, longest = figure("job", "period_low"), figure("job", "period_high")
    period = np.exp(draw.uniform(np.log(shortest), np.log(longest), count))
    compute = draw.uniform(figure("job", "compute_low"), figure("job", "compute_high"), count)
    high = top * draw.uniform(figure("job", "draw_low"), figure("job", "draw_high"), count)
    priority = draw.integers(0, int(figure("job", "classes")), count)
    ends = np.cumsum(sizes)
    jobs = tuple(
        Job(f"job{n}", np.arange(ends[n] - sizes[n], ends[n]), int(priority[n]),
            figure("job", "floor") * top, float(period[n]))
        for n in range(count)
    )  # fmt: skip
    return jobs, Draws(period, compute, high, np.full(count, figure("job", "quiet_draw") * top))


def plan(gpus: int, seed: int) -> Plan:
    """Return a campus of so many GPUs; a SpecError for a number that is none of a campus."""
    if not LEAST <= gpus <= MOST:
        msg = f"--gpus: {gpus}: a campus has {LEAST} (one rack) to {MOST} GPUs"
        raise SpecError(msg)
    draw = np.random.default_rng(seed)
    in_rack = int(figure("rack", "gpus"))
    racks = -(-gpus // in_rack)
    names, parents, levels = _feeds(racks)
    fixed = np.zeros(len(names))
    fixed[-racks:] = figure("rack", "fixed")
    first = len(names) - racks
    layout = Layout(
        tuple(f"gpu{n}" for n in range(gpus)), tuple(names),
        first + np.arange(gpus) // in_rack, np.array(parents, np.intp), fixed,
    )  # fmt: skip
    jobs, draws = _jobs(gpus, draw)
    job_of = np.full(gpus, -1, np.intp)
    for number, job in enumerate(jobs):
        job_of[job.gpus] = number
    scale = np.clip(draw.normal(1.0, figure("gpu", "spread"), gpus), 0.9, 1.1)
    return Plan(layout, np.array(levels, np.intp), _limits(parents, levels), jobs, draws, job_of,
                scale)  # fmt: skip
