"""parameters.toml as numbers with a unit and a source, and what a rack's file makes of them.

In: the table, and changes to it by name (``bbu.ride``). Out: Parameters. What is not in the table
is no parameter: a wrong name is a SpecError that names the nearest.
"""

import functools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

from rackproof.harness.errors import SpecError, nearest

MARKS = ("seen", "computed", "assumed")
_KEYS = {"value", "unit", "mark", "source"}


@dataclass(frozen=True, slots=True)
class Known:
    """One figure: `value` in `unit`, how well it is known (`mark`, of MARKS), and from where."""

    value: float
    unit: str
    mark: str
    source: str


class Parameters:
    """All figures by name; `number` gives one, `but` a copy with others in their places."""

    def __init__(self, known: Mapping[str, Known]) -> None:
        self.known = MappingProxyType(dict(known))

    def number(self, name: str) -> float:
        """Return a figure in the unit that the table states; SpecError for an unknown name."""
        if name not in self.known:
            msg = f"no parameter is called {name!r}{nearest(name, self.known)}"
            raise SpecError(msg)
        return self.known[name].value

    def but(self, changes: Mapping[str, float]) -> "Parameters":
        """Return these with other values, marked assumed. SpecError for a name or a number."""
        made = dict(self.known)
        for name, value in changes.items():
            self.number(name)
            made[name] = _checked(name, value, made[name].unit, "assumed", "set by the caller")
        return Parameters(made)


@functools.cache
def shipped() -> Parameters:
    """Return the table that comes with rackproof."""
    folder = resources.files("rackproof.harness.devices.emulated.house")
    return read(folder.joinpath("parameters.toml").read_text("utf-8"))


def read(text: str) -> Parameters:
    """Return the parameters of a table of tables; SpecError where an entry is not as it must be."""
    try:
        tables: dict[str, Any] = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        msg = f"parameters.toml: {error}"
        raise SpecError(msg) from None
    known = {}
    for table, entries in tables.items():
        for key, entry in entries.items():
            name = f"{table}.{key}"
            if not isinstance(entry, dict) or set(entry) != _KEYS:
                msg = f"parameters.toml: {name}: needs value, unit, mark and source, and no more"
                raise SpecError(msg)
            known[name] = _checked(name, **entry)
    return Parameters(known)


def _checked(name: str, value: Any, unit: str, mark: str, source: str) -> Known:
    """Return an entry. Everything in the table is a size, so none is below 0."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"{name}: a number is due, not {value!r}"
        raise SpecError(msg)
    if not (math.isfinite(value) and value >= 0.0):
        msg = f"{name}: a number of 0 or more is due, not {value!r}"
        raise SpecError(msg)
    if mark not in MARKS or not unit or not source:
        msg = f"{name}: needs a unit, a source, and a mark of {', '.join(MARKS)}"
        raise SpecError(msg)
    return Known(float(value), unit, mark, source)
