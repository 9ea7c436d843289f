"""The lines of a rack's power under a square wave, and how fast it changes.

In: for each GPU the times (seconds after the wave's start) and readings (W) of a wave that was
sampled at evenly spread phases. Out: the amplitude of each harmonic of the sum, in W. GPUs are
added as complex amplitudes, each at its own times, so what is out of phase cancels as it does on
the busbar.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

LOWEST_HZ, HIGHEST_HZ = 0.1, 20.0
EQUAL = 0.02
Trace = Sequence[tuple[float, float]]
"""(seconds, W) in order."""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a spectrum: `frequency` in Hz, `amplitude` (half of peak to peak) in W."""

    frequency: float
    amplitude: float


def lines(traces: Sequence[Trace], frequency: float) -> list[Line]:
    """Return the harmonics of `frequency` in LOWEST_HZ to HIGHEST_HZ of the sum of `traces`.

    With n samples a period, harmonics up to n/2 can be told; what is above falls onto them: of an
    ideal square wave 1/(n - 1) of the first line (6 % of it with 16 samples, 14 % with 8), less of
    one that the GPUs' own lag has rounded.
    """
    if not traces:
        return []
    found = []
    most = min(len(trace) for trace in traces) // 2
    for harmonic in range(1, most):
        hertz = harmonic * frequency
        if LOWEST_HZ * (1 - 1e-9) <= hertz <= HIGHEST_HZ * (1 + 1e-9):
            found.append(Line(hertz, abs(sum(_amplitude(trace, hertz) for trace in traces))))
    return found


def largest(found: Sequence[Line]) -> Line | None:
    """Return the line of the largest amplitude; None where there is none.

    Of those that are as large but for noise (EQUAL), the lowest: waves of two frequencies and one
    swing give lines of one size, and the answer must not change from run to run.
    """
    most = max((line.amplitude for line in found), default=0.0)
    near = [line for line in found if line.amplitude >= (1.0 - EQUAL) * most]
    return min(near, key=lambda line: line.frequency, default=None)


def _amplitude(trace: Trace, hertz: float) -> complex:
    times, watts = _columns(trace)
    turns = np.exp(-2j * np.pi * hertz * times)
    return complex(2.0 * np.mean((watts - np.mean(watts)) * turns))


def fastest(traces: Sequence[Trace]) -> float:
    """Return the fastest change of the sum of `traces`, W/s: each of as many samples, in order.

    The traces show one edge, sampled at times that grow; two samples of one time are one.
    """
    if not traces or min(len(trace) for trace in traces) < 2:  # noqa: PLR2004 - a change wants two
        return 0.0
    count = min(len(trace) for trace in traces)
    columns = [_columns(trace[:count]) for trace in traces]
    times = np.mean([t for t, _ in columns], axis=0)
    watts = np.sum([w for _, w in columns], axis=0)
    steps = np.diff(times)
    kept = steps > 0.0
    if not np.any(kept):
        return 0.0
    return float(np.max(np.abs(np.diff(watts)[kept] / steps[kept])))


def by_rack(traces: Mapping[str, Trace], rack: str) -> list[Trace]:
    """Return the traces of the GPUs of one rack, such as ``rack0``."""
    return [trace for subject, trace in traces.items() if subject.startswith(f"{rack}/")]


def _columns(trace: Trace) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    table = np.asarray(trace, dtype=np.float64)
    return table[:, 0], table[:, 1]
