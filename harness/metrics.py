"""metrics.toml as objects: every metric once, with its unit and which way is better."""

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `better` is high, low or equal.

    What is not `judged` is only noted, and so is what is `optional` where nobody gives a limit;
    what is `relative` is also held against the rack's own median or most common value.
    """

    name: str
    unit: str
    subject: str
    better: str
    judged: bool
    relative: bool
    component: str
    action: str
    about: str
    optional: bool = False


def _walk(table: dict[str, Any], path: tuple[str, ...]) -> list[Metric]:
    if isinstance(table.get("unit"), str):
        own = {key: value for key, value in table.items() if not isinstance(value, dict)}
        found = [Metric(name=".".join(path), **{"judged": True, "relative": False, **own})]
    else:
        found = []
    for key, value in table.items():
        if isinstance(value, dict):
            found += _walk(value, (*path, key))
    return found


@functools.cache
def metrics() -> dict[str, Metric]:
    """Return all metrics by name, in the file's order."""
    text = resources.files("rackproof.harness").joinpath("metrics.toml").read_text("utf-8")
    return {m.name: m for m in _walk(tomllib.loads(text), ())}
