"""The rack as its own reference: a GPU far under the median of its like is an outlier.

Low by more than max(5 %, 6 sigma), where sigma = 1.4826 x MAD. The estimate of sigma from a few
GPUs is itself noisy (with eight, up to twice too large), so the margin is capped at 7 %: 1.5 x the
4.7 % that is the widest published spread of GEMM rates inside one healthy node.

The median speaks for the rack only while most of it is alike. Where more than an eighth stands
above it by more than any healthy spread, and nobody below, it is itself among the slow ones: there
is no baseline.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

FEWEST = 8  # like GPUs that a rack has
LEFT = 6  # of them that answered: a GPU that is lost takes no reference from the others
LEAST = 0.05
MOST = 0.07
SIGMAS = 6.0
MAD_TO_SIGMA = 1.4826  # of a normal distribution


@dataclass(frozen=True, slots=True)
class Baseline:
    """The median of like GPUs, and the bound on the side that is worse, in the metric's unit."""

    median: float
    low: float
    high: float
    count: int

    @property
    def source(self) -> str:
        """How the bound came about, in words."""
        margin = 1 - self.low / self.median if self.median else 0.0
        return f"median {self.median:.6g} of {self.count} like GPUs, less or more {margin:.1%}"


def baseline(values: Sequence[float], planned: int = 0) -> Baseline | None:
    """Return the baseline of at least eight finite values that are alike enough, else None.

    `planned` is how many like GPUs there are; where they are eight or more, six values will do.
    """
    values = [v for v in values if math.isfinite(v)]
    if len(values) < (LEFT if planned >= FEWEST else FEWEST):
        return None
    median = statistics.median(values)
    mad = statistics.median(abs(v - median) for v in values)
    spread = SIGMAS * MAD_TO_SIGMA * mad / abs(median) if median else 0.0
    width = min(max(LEAST, spread), MOST) * abs(median)
    above = sum(v > median + MOST * abs(median) for v in values)
    if above > len(values) / FEWEST and min(values) >= median - width:
        return None
    return Baseline(median, median - width, median + width, len(values))
