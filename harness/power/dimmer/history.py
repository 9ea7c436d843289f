"""A window of the past: rows of values, each the mean over its own stretch of time.

In: looks, of any length and with holes (NaN). Out: means and peaks over the last seconds, and how
much of that time was looked at. Looks that are shorter than a grain are joined to the one before.
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from rackproof.harness.power.zone import Array

_NEAR = 1e-9


@dataclass(slots=True)
class Row:
    """Values that hold from `begin` to `end`, s; `whole` where none of them is NaN."""

    begin: float
    end: float
    values: Array
    whole: bool


def _joined(old: Row, begin: float, end: float, values: Array) -> Array:
    first, second = old.end - old.begin, end - begin
    mean = (old.values * first + values * second) / (first + second)
    return np.where(np.isnan(old.values), values, np.where(np.isnan(values), old.values, mean))


class Rows:
    """The last `keep` seconds of some values."""

    def __init__(self, keep: float, grain: float) -> None:
        self.keep, self.grain = keep, grain
        self.rows: list[Row] = []

    def add(self, begin: float, end: float, values: Array) -> None:
        """Take the means over begin..end, and forget what lies before the last `keep` seconds."""
        last = self.rows[-1] if self.rows else None
        if last is not None and last.end - last.begin < self.grain - _NEAR:
            last.values = _joined(last, begin, end, values)
            last.end, last.whole = end, bool(np.isfinite(last.values).all())
        else:
            self.rows.append(Row(begin, end, values, bool(np.isfinite(values).all())))
        while self.rows[0].end <= end - self.keep + _NEAR:
            del self.rows[0]

    def clear(self) -> None:
        """Forget all of it."""
        self.rows.clear()

    def weights(self, windows: Array) -> Array:
        """Return the seconds of each row inside the last `windows` s (rows x shape of windows)."""
        if not self.rows:
            return np.zeros((0, *windows.shape))
        lie = (-1, *(1,) * windows.ndim)
        begin = np.array([row.begin for row in self.rows]).reshape(lie)
        end = np.array([row.end for row in self.rows]).reshape(lie)
        inside: Array = np.maximum(end - np.maximum(begin, self.rows[-1].end - windows), 0.0)
        return inside

    def _within(self, windows: Array) -> Iterator[tuple[Array, Row]]:
        """Give the rows of which something lies inside the last `windows` s, and how much."""
        weights = self.weights(windows)
        for place in np.flatnonzero(weights.any(axis=tuple(range(1, weights.ndim)))):
            yield weights[place], self.rows[place]

    def mean(self, windows: Array, columns: np.ndarray | None = None) -> tuple[Array, Array]:
        """Return the mean over the last `windows` s, and the seconds of it that have a value.

        `windows` is one number (shape ()), or one for each value; with `columns`, one for each of
        several sorts, and `columns` says the sort of each value. NaN where there is no value.
        """
        total: Array | float = 0.0
        known: Array | float = 0.0
        for weight, row in self._within(windows):
            each = weight if columns is None else weight[columns]
            if row.whole:
                total, known = total + row.values * each, known + each
            else:
                there = np.isfinite(row.values)
                total = total + np.where(there, row.values, 0.0) * each
                known = known + there * each
        found = np.asarray(total, float)
        seconds = np.broadcast_to(np.asarray(known, float), found.shape)
        mean = np.full(found.shape, np.nan)
        np.divide(found, seconds, out=mean, where=seconds > _NEAR)
        return mean, seconds

    def peak(self, windows: Array, columns: np.ndarray | None = None) -> Array:
        """Return the largest row inside the last `windows` s; NaN where there is none."""
        rows = self._within(windows)
        return _largest(((weight, row.values) for weight, row in rows), windows, columns)

    def plateau(self, windows: Array, least: float, columns: np.ndarray | None = None) -> Array:
        """Return the largest mean of two rows that follow each other and last `least` s together.

        What one look counts too much, since a counter moved at its end, the other counts too
        little. NaN where there is no such pair.
        """
        pairs = itertools.pairwise(self._within(windows))
        means = (
            (weight, _together(one, two))
            for (weight, one), (_, two) in pairs
            if two.end - one.begin >= least - _NEAR
        )
        return _largest(means, windows, columns)


def _together(one: Row, two: Row) -> Array:
    first, second = one.end - one.begin, two.end - two.begin
    return np.asarray((one.values * first + two.values * second) / (first + second))


def _largest(
    parts: Iterable[tuple[Array, Array]], windows: Array, columns: np.ndarray | None
) -> Array:
    """Return the largest values, of those whose weight says that they are inside their window."""
    found: Array | None = None
    for weight, part in parts:
        values = part
        if windows.ndim:
            each = weight if columns is None else weight[columns]
            values = np.where(each > _NEAR, part, np.nan)
        found = values if found is None else np.fmax(found, values)
    return np.full(1, np.nan) if found is None else found
