"""The power that a GPU drew lately, as the exact pieces that it was made of, on any grid of time.

In: pieces ``level + slope x t + lag x exp(-t / tau_p) + moving x exp(-t / tau_cap)``, as the die
integrates them. Out: W at given moments, worked out only when somebody asks. A piece that goes on
with the curve of the one before makes that one longer, so samples taken on the way add nothing.
"""

from math import exp

import numpy as np
import numpy.typing as npt

from rackproof.harness.devices.emulated.governor import TAU_CAP_S, TAU_POWER_S

Array = npt.NDArray[np.float64]
Segment = tuple[float, float, float, float, float, float]
"""Start (s), seconds, level (W), slope (W/s), lag (W), moving (W)."""

SAME_W = 1e-6
GONE = 40.0
"""After so many of its time constants nothing of a lag is left."""
SNAP = 1e-6
"""Moments of a grid that are meant to be the end of a piece may miss it by so much of a step."""


class Trail:
    """The pieces of one GPU since `begun` (s, on its own time), in order."""

    def __init__(self, begun: float, watts: float) -> None:
        """Begin at a steady power."""
        self._segments: list[Segment] = [(begun, 0.0, watts, 0.0, 0.0, 0.0)]

    def add(self, segment: Segment) -> None:
        """Add what followed."""
        begun, seconds, level, slope, _, moving = segment
        last = self._segments[-1]
        # A steady drive whose lag runs on is one curve, however often it was looked at.
        if not slope and not moving and last[2] == level and not last[3] and not last[5]:
            start, before, _, _, lag, _ = last
            if before > 0.0 and abs(lag * exp(-before / TAU_POWER_S) - segment[4]) < SAME_W:
                self._segments[-1] = (start, begun + seconds - start, level, 0.0, lag, 0.0)
                return
        self._segments.append(segment)

    def watts(self, begun: float, step: float, count: int) -> Array:
        """Return the W at begun + step, begun + 2 step, ... (`count` moments, in order).

        Before the first piece the power was as it began; after the last one its curve runs on.
        """
        found = np.empty(count)
        at = 0
        for number, segment in enumerate(self._segments):
            last = number == len(self._segments) - 1
            end = segment[0] + segment[1]
            until = count if last else min(count, int(np.floor((end - begun) / step + SNAP)))
            if until > at:
                first = begun + step * (at + 1) - segment[0]
                found[at:until] = _curve(segment, first, step, until - at)
                at = until
        return found

    def shape(self, begun: float) -> tuple[Segment, ...]:
        """Return the pieces as seen from `begun`, by which GPUs that did the same are alike."""
        return tuple(
            (round(at - begun, 7), round(end, 7), round(a, 6), b, round(c, 6), round(d, 6))
            for at, end, a, b, c, d in self._segments
        )

    def forget(self, before: float) -> None:
        """Let go of the pieces that ended by then; the last one stays."""
        kept, last = 0, len(self._segments) - 1
        while kept < last and self._segments[kept][0] + self._segments[kept][1] <= before:
            kept += 1
        del self._segments[:kept]


def _curve(segment: Segment, first: float, step: float, count: int) -> Array:
    """Return one piece's W at `count` moments, the first so many seconds after its start."""
    _, seconds, level, slope, lag, moving = segment
    found = np.full(count, level)
    if slope:
        after = np.minimum(first + step * np.arange(count), seconds)
        found += slope * np.maximum(after, 0.0)
    for part, tau in ((lag, TAU_POWER_S), (moving, TAU_CAP_S)):
        if part:
            felt = min(count, max(1, int((GONE * tau - first) / step) + 1))
            after = np.maximum(first + step * np.arange(felt), 0.0)
            found[:felt] += part * np.exp(-after / tau)
    return found
