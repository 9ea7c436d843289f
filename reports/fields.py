"""Fields of one record line: the value in its type, or a TypeError or ValueError that says which.

Comes in: what JSON gave, which is anything. Nothing is converted that was of another type.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

MOST = 2**53  # a JSON number beyond it has lost digits somewhere
SEED = 2**63 - 1  # the largest; ours are written and read as whole numbers, exactly
PAIR = 2


def bad(key: str, value: object, wanted: str) -> TypeError:
    """Return the error for a value that is not what was wanted."""
    return TypeError(f"{key} is {repr(value)[:40]}, and not {wanted}")


def text(body: Mapping[str, Any], key: str) -> str:
    """Return a text; a missing one is a KeyError."""
    value = body[key]
    if not isinstance(value, str):
        raise bad(key, value, "a text")
    return value


def whole(body: Mapping[str, Any], key: str, *, low: int = 0, high: int = MOST) -> int:
    """Return a whole number within low and high."""
    value = body[key]
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise bad(key, value, f"a whole number from {low} to {high}")
    return value


def number(value: object, key: str) -> float | int:
    """Return a number; NaN and the infinities may be written as texts."""
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise bad(key, value, "a number")
    float(value)  # an OverflowError for one that no reading can have
    return value


def finite(value: object, key: str) -> float:
    """Return a finite number as a float."""
    found = float(number(value, key))
    if not math.isfinite(found):
        raise bad(key, value, "a finite number")
    return found


def texts(value: object, key: str) -> list[str]:
    """Return a list of texts."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise bad(key, value, "a list of texts")
    return value


def runs(value: object, key: str) -> list[tuple[str, int]]:
    """Return a list of items, each with the number of a run, from 1."""
    found = []
    for pair in value if isinstance(value, list) else [value]:
        if not isinstance(pair, list) or len(pair) != PAIR or not isinstance(pair[0], str):
            raise bad(key, pair, "an item and a number")
        found.append((pair[0], whole({key: pair[1]}, key, low=1)))
    return found


def table(value: object, key: str) -> dict[str, Any]:
    """Return a JSON object."""
    if not isinstance(value, dict):
        raise bad(key, value, "an object")
    return value


def words(value: object, key: str) -> dict[str, str]:
    """Return an object whose values are texts."""
    found = table(value, key)
    texts(list(found.values()), key)
    return found


def rows(value: object, key: str) -> Sequence[dict[str, Any]]:
    """Return a list of JSON objects."""
    if not isinstance(value, list):
        raise bad(key, value, "a list")
    return [table(item, key) for item in value]
