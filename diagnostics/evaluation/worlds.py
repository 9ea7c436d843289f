"""The worlds of worlds.toml as objects: what a fault does, how often, and what is seen of it.

`matched` is [base] as it stands; every other world differs from it in a few named parameters. A
Sort is what an incident looks like, with the weights of what may lie behind it.
"""

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from importlib import resources
from typing import Any

from rackproof.diagnostics.retest.model import Cause

MATCHED = "matched"
LASTING = frozenset((Cause.PERSISTENT, Cause.INTERMITTENT, Cause.LINK, Cause.SWITCH, Cause.HOST,
                     Cause.NIC))  # fmt: skip
"""The causes that outlast a reset."""
OF_GPU = frozenset((Cause.PERSISTENT, Cause.INTERMITTENT))


@dataclass(frozen=True, slots=True)
class Sort:
    """One [[sort]]: its `share` of incidents and the weight of each cause.

    `components` are the words that are right for a fault of the GPU, `link` and `host` those for a
    fault of the link or slot, and of the host.
    """

    name: str
    share: float
    causes: Mapping[Cause, float]
    components: tuple[str, ...]
    link: tuple[str, ...] = ("nvlink", "pcie")
    host: tuple[str, ...] = ("host", "power", "thermal")

    def right(self, cause: Cause) -> tuple[str, ...]:
        """Return the component words that are right where `cause` lies behind it."""
        fixed = {
            Cause.APP: ("app",), Cause.DRIVER: ("driver",), Cause.LINK: self.link,
            Cause.HOST: self.host, Cause.NIC: ("nic",), Cause.SWITCH: ("nvswitch", "fabric"),
        }  # fmt: skip
        return fixed.get(cause, self.components)


@dataclass(frozen=True, slots=True)
class World:
    """The parameters of worlds.toml, [base] overlaid with those of one world."""

    name: str
    sorts: tuple[Sort, ...] = field(repr=False)
    chance: float
    persistent_hit: float
    hit_a: float
    hit_b: float
    fixed_hit: float
    flapping: float
    switch_wide: float
    app_hit: float
    app_racy: float
    racy_hit: float
    stuck: float
    reset_clears: float
    reboot_clears: float
    driver_reset_clears: float
    driver_again: float
    driver_elsewhere: float
    reseat_cures: float
    host_reboot_cures: float
    unseen_silent: float
    unseen: float
    lost: float
    skew: float
    storms: float
    noise: float
    channel: bool
    incidents_again: float
    history_known: float
    history_hours: float
    healthy_rate: float
    defect_cases: float
    lemons: float
    lemon_times: float
    outlast_times: float

    def causes(self, sort: Sort) -> dict[Cause, float]:
        """Return the chance of each cause behind a sort of incident in this world."""
        odds = {
            c: w * (self.outlast_times if c in LASTING else 1.0) for c, w in sort.causes.items()
        }
        whole = sum(odds.values())
        return {cause: weight / whole for cause, weight in odds.items()}


@functools.cache
def _tables() -> Mapping[str, Any]:
    file = resources.files("rackproof.diagnostics.evaluation").joinpath("worlds.toml")
    return tomllib.loads(file.read_text("utf-8"))


def _sort(row: Mapping[str, Any]) -> Sort:
    lists = {key: tuple(row[key]) for key in ("components", "link", "host") if key in row}
    causes = {Cause(name): float(weight) for name, weight in row["causes"].items()}
    return Sort(row["name"], row["share"], causes, **lists)


def names() -> tuple[str, ...]:
    """Return the names of all worlds, `matched` first."""
    return tuple(_tables()["world"])


@functools.cache
def world(name: str) -> World:
    """Return a world by name. Raises KeyError for one that is not there, or a stray parameter."""
    tables = _tables()
    own = tables["world"][name]
    stray = set(own) - {f.name for f in fields(World)}
    if stray:
        msg = f"worlds.toml: world {name} names {sorted(stray)}, which [base] has not"
        raise KeyError(msg)
    sorts = tuple(_sort(row) for row in tables["sort"])
    return World(name=name, sorts=sorts, **{**tables["base"], **own})
