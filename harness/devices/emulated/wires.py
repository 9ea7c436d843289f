"""One emulated GPU's NVLinks as wires: what is up at either end, how fast, and what acts on them.

In: planted faults, which hold links down or slow them, and the fabric, which sends data. Out: the
share of its rate that each link has left, and the counters of the switch's ports. The GPU's own
end is in the driver's row (state, speed, counters); the far end, which no GPU's driver shows, is
here. A link is up when both ends are, and a fault that takes one down takes both.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from rackproof.harness.model import Gpu
from rackproof.harness.spec import RackSpec
from rackproof.harness.topology import switch_of


class Crossed(Protocol):
    """A planted fault of a GPU's links, as the fabric sees it. Nothing happens while it rests."""

    def crossing(self, peers: Sequence[Any]) -> None:
        """Data is about to cross the GPU's links, to and from `peers` (EmulatedGpu)."""

    def crossed(self) -> None:
        """It has."""

    def refused(self) -> None:
        """The GPU was asked to exchange data, and cannot."""


@dataclass(frozen=True, slots=True)
class Port:
    """A switch's end of one link: the switch's subject, and data received from and sent to it."""

    switch: str | None
    up: bool
    rx_kib: int
    tx_kib: int


class Wires:
    """The links of one GPU, by number.

    `alive` says which of them nothing holds down, `quality` what share of its rate each has left.
    `spoils` is how many of the words that are compared leave this GPU wrong (fabric.py); no kind of
    fault sets it, tests do.
    """

    def __init__(self, spec: RackSpec, gpu: Gpu) -> None:
        """Begin with links that are up at both ends."""
        self.switches = tuple(switch_of(spec, gpu, link) for link in range(spec.links))
        self.alive: npt.NDArray[np.bool_] = np.ones(spec.links, bool)
        self.quality: npt.NDArray[np.float64] = np.ones(spec.links)
        self.faults: list[Crossed] = []
        self.spoils = 0
        self._held = [0] * spec.links

    def hold(self, link: int) -> None:
        """Hold a link down; each call wants a `release`."""
        self._held[link] += 1
        self.alive[link] = False

    def release(self, link: int) -> None:
        """Let go of it; it comes up when nobody else holds it."""
        self._held[link] -= 1
        self.alive[link] = not self._held[link]
