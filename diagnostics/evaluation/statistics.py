"""The statistics of the evaluation: intervals of shares and of paired differences, calibration.

Arrays come in, plain numbers go out. Small enough to be written here; held against published values
in the tests.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Z = 1.959963984540054  # the normal quantile of 0.975
RESAMPLES = 2000


def wilson(hits: int, of: int, z: float = Z) -> tuple[float, float]:
    """Return Wilson's score interval of a share; (0, 1) of nothing.

    E. B. Wilson, J. Am. Stat. Assoc. 22 (1927) 209. Raises ValueError unless 0 <= hits <= of.
    """
    if not 0 <= hits <= of:
        msg = f"{hits} of {of} is no share"
        raise ValueError(msg)
    if not of:
        return 0.0, 1.0
    share, square = hits / of, z * z
    middle = share + square / (2 * of)
    half = z * math.sqrt(share * (1 - share) / of + square / (4 * of * of))
    low, high = (middle - half) / (1 + square / of), (middle + half) / (1 + square / of)
    return (0.0 if not hits else low), (1.0 if hits == of else high)


@dataclass(frozen=True, slots=True)
class Paired:
    """A mean difference with its 95 % percentile interval."""

    mean: float
    low: float
    high: float

    @property
    def excludes_tie(self) -> bool:
        """Whether 0 lies outside of the interval."""
        return self.low > 0 or self.high < 0


def paired(first: Floats, second: Floats, seed: int, resamples: int = RESAMPLES) -> Paired:
    """Return the mean of ``first - second`` with a bootstrap over the pairs.

    B. Efron, Ann. Stat. 7 (1979) 1: percentile interval. Both (n,); raises ValueError otherwise.
    """
    if first.shape != second.shape or first.ndim != 1 or not first.size:
        msg = "paired figures are two rows of one length, and not none"
        raise ValueError(msg)
    difference = first - second
    rng = np.random.default_rng(seed)
    size = difference.size
    # counts of each pair in a resample, a block at a time: memory stays bounded
    means = np.concatenate([
        difference[rng.integers(size, size=(min(100, resamples - at), size))].mean(axis=1)
        for at in range(0, resamples, 100)
    ])  # fmt: skip
    low, high = np.quantile(means, (0.025, 0.975))
    return Paired(float(difference.mean()), float(low), float(high))


def brier(beliefs: Floats, truths: NDArray[np.int64]) -> float:
    """Return the mean squared error of beliefs (n, k) against the true column (n,), in 0..2.

    G. W. Brier, Mon. Weather Rev. 78 (1950) 1: the sum over all classes.
    """
    wanted = np.zeros_like(beliefs)
    wanted[np.arange(len(truths)), truths] = 1.0
    return float(((beliefs - wanted) ** 2).sum(axis=1).mean())


@dataclass(frozen=True, slots=True)
class Bin:
    """Conclusions of one range of confidence: how many, how many right, how sure on average."""

    low: float
    high: float
    count: int
    hits: int
    sure: float


def reliability(sure: Floats, right: NDArray[np.bool_], bins: int = 10) -> list[Bin]:
    """Return the bins of confidence in 0..1 that hold something."""
    where = np.clip((sure * bins).astype(int), 0, bins - 1)
    found = []
    for at in range(bins):
        mine = where == at
        if count := int(mine.sum()):
            hits, mean = int(right[mine].sum()), float(sure[mine].mean())
            found.append(Bin(at / bins, (at + 1) / bins, count, hits, mean))
    return found
