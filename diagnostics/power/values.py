"""Plain values of an untrusted record: text, numbers, lists of them; or an error that says why.

In: what JSON holds. Out: Python values; a number that is null, or not finite, is NaN. Raises
TypeError, ValueError and OverflowError.
"""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
MOST = 1 << 20  # values of one list
FAR = 1e12  # no time, power or share is so large


def as_text(value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str):
        msg = f"{str(value)[:40]!r} is no text"
        raise TypeError(msg)
    return value


def as_table(value: Any) -> Mapping[Any, Any]:
    """Return a table."""
    if not isinstance(value, Mapping):
        msg = f"{str(value)[:40]!r} is no table"
        raise TypeError(msg)
    return value


def as_number(value: Any) -> float:
    """Return a number; null is NaN, since JSON has none, and so is what is not finite."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, int | float):
        msg = f"{str(value)[:40]!r} is no number"
        raise TypeError(msg)
    return float(value) if math.isfinite(value) else math.nan


def as_moment(value: Any) -> float:
    """Return a number that has to be there."""
    found = as_number(value)
    if not abs(found) < FAR:
        msg = f"{str(value)[:40]!r} is no number that can be"
        raise ValueError(msg)
    return found


def as_array(value: Any, length: int | None = None) -> Array:
    """Return a list of numbers, of a length where one is given."""
    if not isinstance(value, list | tuple) or len(value) > MOST:
        msg = "a list of numbers is due"
        raise TypeError(msg)
    if length is not None and len(value) != length:
        msg = f"{len(value)} values, and {length} are due"
        raise ValueError(msg)
    plain = {*map(type, value)} <= {float, int, type(None)}  # numpy makes null NaN
    found = np.array(value if plain else [as_number(v) for v in value], dtype=np.float64)
    found[~(np.abs(found) < FAR)] = np.nan
    return found
