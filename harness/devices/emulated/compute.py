"""Matrix products that are really computed, and may be given a wrong element.

In: operands, a precision, and the fault that this run strikes with, if any. Out: C in fp32, and
how many errors were put in. Inputs are rounded to the precision and sums run in fp32 (NumPy), so
the narrow formats add up better here than tensor cores do. What the result is judged by
(burns/oracle.py) is the same as on silicon.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rackproof.harness.devices.patterns import ALL
from rackproof.harness.devices.precisions import rounded

Matrix = npt.NDArray[np.float32]

LANES = 32  # of a warp; column j of C is computed by lane j modulo 32
ELEMENT = 0x5DC  # the Philox stream that draws the element
NONFINITE = {"nan": np.float32(np.nan), "inf": np.float32(np.inf)}


@dataclass(frozen=True, slots=True)
class OutputFault:
    """One element of C is off by the share `relative` of itself, or is `nonfinite`.

    relative: the size of the error, e.g. 0.1; a flipped exponent bit is 1.0 or -0.5, a mantissa
    bit 2**-k. nonfinite: "nan" or "inf" instead. lane: the lane (0 to 31) that errs; None draws
    one. steady: the first of the repeats errs in the same way, so that comparing repeats is blind.
    """

    relative: float = 0.1
    nonfinite: str | None = None
    lane: int | None = None
    steady: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError for a fault that no lane can have."""
        if self.nonfinite not in (None, *NONFINITE) or not 0 <= (self.lane or 0) < LANES:
            msg = f"{self}: nonfinite is nan or inf, a lane is one of {LANES}"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The last C (m, p), how many errors were put in, and in how many elements repeats differ."""

    c: Matrix
    applied: int = 0
    repeats_differ: int = 0


def multiply(
    a: Matrix, b: Matrix, precision: str, fault: OutputFault | None = None, key: int = 0
) -> Outcome:
    """Multiply a (m, n) by b (n, p), with the fault's error in the element that `key` draws.

    Raises Unsupported for an unknown precision. An error that fp32 cannot show on the element
    drawn (it is zero, or the error is below half a unit in the last place) moves to the next
    element of the lane; where none shows it, nothing is applied.
    """
    c = rounded(np, a, precision) @ rounded(np, b, precision)
    if fault is None:
        return Outcome(c)
    draw = np.random.Generator(np.random.Philox(key=[key & ALL, ELEMENT]))
    lane = int(draw.integers(min(LANES, c.shape[1]))) if fault.lane is None else fault.lane
    mine = c[:, lane::LANES]
    if mine.size == 0:
        return Outcome(c)
    start = int(draw.integers(mine.size))
    if fault.nonfinite:
        wrong = np.full(mine.size, NONFINITE[fault.nonfinite])
    else:
        wrong = (mine * np.float32(1 + fault.relative)).ravel()
    shows = np.flatnonzero(np.roll(wrong != mine.ravel(), -start))
    if shows.size == 0:
        return Outcome(c)
    at = (start + int(shows[0])) % mine.size
    row, column = divmod(at, mine.shape[1])
    mine[row, column] = wrong[at]
    return Outcome(c, applied=1, repeats_differ=0 if fault.steady else 1)
