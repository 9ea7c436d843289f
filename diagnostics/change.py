"""When a reading of one part got worse from one run to another, and when it is noise.

A rate is worse when it fell by more than 6 sigma of the changes that its peers show between the
same two runs, sigma being 1.4826 x MAD: that is the noise of both runs, since what makes one die
slower than another is in both of them. It is never taken for less than 3 % (our proposal; three
fifths of the margin against peers) nor for more than 7 % (baseline.py); with under eight peers it
is 5 %. Temperatures and ratios have bounds of their own. A count may rise by 6 sigma of Poisson's
law; from nothing to something outside its limit is a rise. A text or a state is worse when it was
within its limit, or what most have, and is no longer.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.baseline import FEWEST, MAD_TO_SIGMA, SIGMAS
from rackproof.harness.metrics import Metric
from rackproof.harness.model import Value

NOTHING = 1e-18  # what stands for a bit error rate of 0 where rates are compared by their decades


@dataclass(frozen=True, slots=True)
class Width:
    """How much a change may be: at least, with few peers, at most; `relative` to the old value."""

    least: float
    few: float
    most: float
    relative: bool = False


_RELATIVE = Width(0.03, 0.05, 0.07, relative=True)
_RATIO = Width(0.03, 0.05, 0.07)
_DECADES = Width(1.0, 1.0, 2.0)
WIDTHS: Mapping[str, Width] = {
    **dict.fromkeys(("GB/s", "Gb/s", "TFLOP/s", "W", "kW/s", "L/min", "MHz", "Hz"), _RELATIVE),
    "C": Width(5.0, 5.0, 10.0),  # K; our proposal, with the room's air and the coolant in it
    "C/min": Width(0.1, 0.1, 0.3),  # the limit of a steady slope itself
    "ratio": _RATIO,
    "s": Width(0.02, 0.05, 0.1),
}
# Noted over a GPU's life, and worth a look as soon as they rise: each step is a repair used up.
LIFELONG = frozenset(
    "ecc.uncorrected.aggregate remap.rows.corrected remap.rows.uncorrected remap.banks.low".split()
)
WORK = frozenset({"products"})  # how much was done in the time that was planned


def width_of(metric: Metric) -> Width | None:
    """Return the width of a quantity that varies by nature; None for counts, states and texts."""
    if metric.better == "equal":
        return None
    return _DECADES if metric.name.endswith(".ber") else WIDTHS.get(metric.unit)


def compared(metric: Metric) -> bool:
    """Say whether two runs are compared by this metric."""
    if metric.name in LIFELONG:
        return True
    return metric.judged and not (metric.unit in WORK and metric.better == "high")


def finite(value: Value) -> bool:
    """Say whether a value is a reading: a text, or a number that is neither NaN nor infinite."""
    return isinstance(value, str) or math.isfinite(value)


def value_of(metric: Metric, runs: Sequence[Value]) -> Value:
    """Return what stands for several runs: the median of a quantity, the worst of the others."""
    numbers = [v for v in runs if not isinstance(v, str)]
    if len(numbers) < len(runs) or metric.better == "equal":
        return runs[-1]
    if width_of(metric):
        return statistics.median(numbers)
    return max(numbers) if metric.better == "low" else min(numbers)


def change_of(metric: Metric, old: float, new: float) -> float:
    """Return the change: relative to the old value where its width is, in decades for a BER."""
    width = width_of(metric)
    if width is _DECADES:
        return math.log10(max(new, NOTHING) / max(old, NOTHING))
    if width is not None and width.relative and old:
        return (new - old) / abs(old)
    return new - old


def noise(metric: Metric, changes: Sequence[float]) -> float:
    """Return how large a change of one part may be, by the changes of all parts like it."""
    width = width_of(metric)
    if width is None:
        return 0.0
    found = [change for change in changes if math.isfinite(change)]
    if len(found) < FEWEST:
        return width.few
    middle = statistics.median(found)
    mad = statistics.median(abs(change - middle) for change in found)
    return min(max(width.least, SIGMAS * MAD_TO_SIGMA * mad), width.most)


def poisson(old: float) -> float:
    """Return how much a count of `old` events may rise by chance."""
    return SIGMAS * math.sqrt(old) if old > 0 else 0.0
