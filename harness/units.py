"""Units and their dimensions: a number without its unit is not compared with anything."""

import math

from rackproof.harness.errors import SpecError, nearest

# unit -> (dimension, factor to that dimension's first unit)
UNITS: dict[str, tuple[str, float]] = {
    "B/s": ("bytes per second", 1.0),
    "MB/s": ("bytes per second", 1e6),
    "GB/s": ("bytes per second", 1e9),
    "TB/s": ("bytes per second", 1e12),
    "MiB/s": ("bytes per second", 2.0**20),
    "GiB/s": ("bytes per second", 2.0**30),
    "Gb/s": ("bits per second", 1e9),
    "B": ("bytes", 1.0),
    "MB": ("bytes", 1e6),
    "GB": ("bytes", 1e9),
    "MiB": ("bytes", 2.0**20),
    "GiB": ("bytes", 2.0**30),
    "GFLOP/s": ("arithmetic per second", 1e9),
    "TFLOP/s": ("arithmetic per second", 1e12),
    "mW": ("power", 1e-3),
    "W": ("power", 1.0),
    "kW": ("power", 1e3),
    "J": ("energy", 1.0),
    "W/s": ("change of power", 1.0),
    "kW/s": ("change of power", 1e3),
    "C": ("temperature", 1.0),
    "C/min": ("change of temperature", 1.0),
    "L/min": ("flow", 1.0),
    "Hz": ("frequency", 1.0),
    "MHz": ("frequency", 1e6),
    "GHz": ("frequency", 1e9),
    "s": ("time", 1.0),
    "ms": ("time", 1e-3),
    "ratio": ("ratio", 1.0),
    "%": ("ratio", 0.01),
    "gen": ("PCIe generation", 1.0),
    "lanes": ("lanes", 1.0),
    "links": ("links", 1.0),
    "gpus": ("GPUs", 1.0),
    "switches": ("switches", 1.0),
    "errors": ("errors", 1.0),
    "events": ("events", 1.0),
    "words": ("words", 1.0),
    "products": ("products", 1.0),
    "rows": ("rows", 1.0),
    "banks": ("banks", 1.0),
    "supplies": ("power supplies", 1.0),
    "pumps": ("pumps", 1.0),
    "pages": ("pages", 1.0),
    "flag": ("flag", 1.0),
    "text": ("text", 1.0),
}


def convert(value: float, unit: str, to: str) -> float:
    """Return `value` of `unit` in unit `to`; a SpecError when they are of two dimensions."""
    for name in (unit, to):
        if name not in UNITS:
            msg = f"unknown unit {name!r}{nearest(name, UNITS)}"
            raise SpecError(msg)
    (dimension, factor), (wanted, per) = UNITS[unit], UNITS[to]
    if dimension != wanted:
        msg = f"{unit} is {dimension}, and {to} is {wanted}: they cannot be compared"
        raise SpecError(msg)
    return value if factor == per else value * factor / per


COUNTED = frozenset(
    "gen lanes links gpus switches errors events words products rows banks supplies pumps"
    " pages".split()
)
"""Units of what is counted: one by one, unless a metric says that it is a mean."""
MOST = {
    "bytes per second": 1e15,
    "bits per second": 1e16,
    "bytes": 1e18,
    "arithmetic per second": 1e19,
    "power": 1e9,
    "energy": 1e15,
    "change of power": 1e9,
    "temperature": 1e3,
    "change of temperature": 1e6,
    "flow": 1e6,
    "frequency": 1e12,
    "time": 1e10,
    "PCIe generation": 16.0,
    "lanes": 128.0,
    "links": 1e6,
    "GPUs": 1e7,
    "switches": 1e6,
    "power supplies": 1e6,
    "pumps": 1e6,
    "errors": 2.0**64,
    "events": 2.0**64,
    "words": 2.0**64,
    "products": 1e24,
    "rows": 2.0**64,
    "banks": 2.0**64,
    "pages": 2.0**64,
    "flag": 1.0,
}
"""The most of a dimension that one part, or a whole rack, can have, in its first unit.

Assumed: a hundred times and more of what the largest rack of today has; a counter has
64 bits. A ratio is bounded by its metric alone.
"""
SIGNED = frozenset({"ratio", "change of power", "change of temperature"})
"""Dimensions that may be negative; a temperature may, down to ABSOLUTE_ZERO."""
ABSOLUTE_ZERO = -273.15  # C, the definition of the kelvin


def possible(value: float | str, unit: str) -> bool:
    """Say whether a reading of `unit` can be: finite, no less than nothing, no more than `MOST`.

    A text always can.
    """
    if isinstance(value, str):
        return True
    if not math.isfinite(value):
        return False
    dimension, factor = UNITS[unit]
    most = MOST.get(dimension, math.inf)
    least = ABSOLUTE_ZERO if dimension == "temperature" else 0.0
    return (-most if dimension in SIGNED else least) <= value * factor <= most
