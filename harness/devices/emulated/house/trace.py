"""The power of each rack, tick by tick, from the exact solutions of its GPUs.

In: pieces in which each GPU's power is ``level + lag exp(-t / tau_p) + moving exp(-t / tau_cap)``
from one moment of a block to another. Out: the mean of each tick, summed over the GPUs of each rack
(W, shape: ticks x racks), so that no energy is lost between ticks. GPUs whose pieces begin and end
together are one sum, which is why a rack under one job costs no more than one GPU.
"""

import numpy as np

from rackproof.harness.devices.emulated.governor import TAU_CAP_S, TAU_POWER_S
from rackproof.harness.power.zone import Array, Places


class Trace:
    """The powers of the racks over one block of `ticks`, each `dt` s."""

    def __init__(self, racks: Places, ticks: int, dt: float) -> None:
        self._racks = racks
        self._count = int(racks.max()) + 1
        self._dt = dt
        self._edges = np.arange(ticks + 1) * dt
        self._energy = np.zeros((ticks + 1, self._count))

    def add(self, begin: Array, seconds: Array, terms: tuple[Array, Array, Array]) -> None:
        """Add a piece of each GPU: `begin` in the block, `seconds`, (level, lag, moving) in W."""
        if _same(begin) and _same(seconds):
            self._sum(float(begin[0]), float(seconds[0]), terms, self._racks)
            return
        pairs, which = np.unique(begin + 1j * seconds, return_inverse=True)
        for number, pair in enumerate(pairs):
            if pair.imag > 0.0:
                of = which == number
                level, lag, moving = terms
                part = level[of], lag[of], moving[of]
                self._sum(float(pair.real), float(pair.imag), part, self._racks[of])

    def _sum(
        self, begin: float, seconds: float, terms: tuple[Array, Array, Array], racks: Places
    ) -> None:
        t = np.clip(self._edges - begin, 0.0, seconds) if begin else self._edges
        if seconds < t[-1]:
            t = np.minimum(t, seconds)
        level, lag, moving = (np.bincount(racks, term, self._count) for term in terms)
        self._energy += t[:, None] * level
        if lag.any():
            self._energy += (-TAU_POWER_S * np.expm1(t / -TAU_POWER_S))[:, None] * lag
        if moving.any():
            self._energy += (-TAU_CAP_S * np.expm1(t / -TAU_CAP_S))[:, None] * moving

    def watts(self) -> Array:
        """Return the mean power of each tick and rack, W."""
        return np.diff(self._energy, axis=0) / self._dt


def _same(values: Array) -> bool:
    return bool((values == values[0]).all())
