"""Time that passes on an emulated rack by itself, as long as somebody else watches it.

In: the rack's GPUs and a seed. Out: a thread that ties each GPU's time to the machine's, under a
slight load that the seed draws, so that what a program reads moves.
"""

import threading
import time
from collections.abc import Sequence

from rackproof.harness.devices.emulated import draw
from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.errors import Lost

TICK_S = 0.1
"""How often the readings move."""
MOOD_S = 5.0
"""How long a GPU keeps its load."""
BUSY_SHARE = 1 / 3
"""How many of the GPUs have one."""
MOST = 0.3
"""The largest of these loads."""


class Life(threading.Thread):
    """Ties the rack's time to the machine's until it is stopped."""

    def __init__(self, gpus: Sequence[EmulatedGpu], seed: int) -> None:
        super().__init__(name="emulated-rack", daemon=True)
        self._gpus = gpus
        self._seed = seed
        self._over = threading.Event()

    def run(self) -> None:
        """Advance every GPU by the time that passed."""
        for gpu in self._gpus:
            gpu.begin("emulate", 1)
        last = time.monotonic()
        while not self._over.wait(TICK_S):
            now = time.monotonic()
            for gpu in self._gpus:
                self._advance(gpu, now - last)
            last = now

    def stop(self) -> None:
        """End it, and wait for its last tick."""
        self._over.set()
        self.join()

    def _advance(self, gpu: EmulatedGpu, seconds: float) -> None:
        mood = int(gpu.clock.now() / MOOD_S)
        name = ("activity", self._seed, gpu.gpu.subject, mood)
        busy = draw.uniform(*name, "busy") < BUSY_SHARE
        try:
            gpu.advance(seconds, MOST * draw.uniform(*name) if busy else 0.0)
        except Lost:
            return
