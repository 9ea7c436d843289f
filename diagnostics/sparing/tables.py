"""The figures of sparing.toml, by name. Reading package data is no I/O of ours."""

import functools
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any


@functools.cache
def _table() -> Mapping[str, Any]:
    text = resources.files("rackproof.diagnostics.sparing").joinpath("sparing.toml").read_text()
    return tomllib.loads(text)


def figure(group: str, name: str) -> float:
    """Return the value of one figure, in the unit that the file gives."""
    return float(_table()[group][name]["value"])


def rates() -> Mapping[str, tuple[float, str]]:
    """Return (failures per GPU-hour, source) by name."""
    return {
        name: (float(row["value"]), str(row["source"])) for name, row in _table()["rate"].items()
    }


def rate_of(sku: str) -> tuple[float, str, str]:
    """Return (rate, source, name) that GPUs of a SKU are planned with; the worst for an unknown."""
    default = _table()["default"]
    key = next((key for key in default if key != "source" and sku.startswith(key)), "gb200")
    name = str(default[key])
    value, source = rates()[name]
    return value, source, name
