"""The data plane of an emulated GPU: memory that may be wrong, products that are computed.

In: the DataPlane seam. Out: what the GPU's memory (hbm.py) and arithmetic (compute.py) really
give, and the time and heat that the work takes on the GPU's own clock. Streams go through the
memory of the GPU; what is copied from and to the host is a small buffer of real data. The rates
are what the SKU reaches, times this die's speed, its clocks, its faults and the noise of a reading.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from rackproof.harness.devices.emulated import compute
from rackproof.harness.devices.emulated.bus import TRANSFER_UTILISATION
from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.devices.patterns import COPY_STEP, Words, check_copy, check_steps, words
from rackproof.harness.devices.protocol import Moved, Pattern, Product, Verified, Watch
from rackproof.harness.errors import DeviceError, Unsupported

ORDER = 256
"""Order of the matrices that are really multiplied; the time is that of a large product."""
WATCHES = 2
"""How often work lets itself be watched."""
COPY_UTILISATION = 0.54
"""Share of the dynamic power that memory traffic takes: 628 W of 190 to 1000 W, on B200 [s]."""


TRIAD = 2.97 / 2.90
"""The triad's rate over the copy's: BabelStream on H100 (Azure ND H100 v5); 1.035 on H200."""
LEAST_STREAM = 1 << 20
"""Bytes without which there is no array to stream through."""
Spoil = Callable[[Words], None]
"""What happens to data on their way to or from the host."""
BUFFER = 1 << 16
"""Bytes that are really copied from or to the host."""


class EmulatedPlane:
    """Work on one emulated GPU; raises Lost once the GPU has fallen off the bus."""

    def __init__(self, gpu: EmulatedGpu) -> None:
        self._gpu = gpu
        self._claimed = 0
        self.spoil: Spoil | None = None

    def claim(self) -> int:
        """Claim all memory that NVML says is free, in pages of 2 MiB; return its size in bytes."""
        self._gpu.check()
        self.release()
        self._claimed = min(self._gpu.free(), self._gpu.hbm.size)
        self._gpu.row["memory_used"] += self._claimed
        return self._claimed

    def release(self) -> None:
        """Give the claimed memory back."""
        self._gpu.row["memory_used"] -= self._claimed
        self._claimed = 0

    def write(self, lo: int, hi: int, pattern: Pattern) -> None:
        """Write `pattern` to [lo, hi)."""
        self._pass(lo, hi, 1)
        self._gpu.hbm.write(lo, hi, pattern)
        self._gpu.collect()

    def verify(self, lo: int, hi: int, pattern: Pattern) -> Verified:
        """Read [lo, hi) and compare it with `pattern`."""
        self._pass(lo, hi, 1)
        verified = self._gpu.hbm.verify(lo, hi, pattern)
        self._gpu.collect()
        return verified

    def march(self, lo: int, hi: int, up: bool, expect: Pattern, write: Pattern) -> Verified:  # noqa: FBT001 - the seam's signature
        """Word by word in address order (`up` or down): read, compare with `expect`, write."""
        self._pass(lo, hi, 2)
        verified = self._gpu.hbm.march(lo, hi, up, expect, write)
        self._gpu.collect()
        return verified

    @property
    def xp(self) -> Any:
        """Return numpy."""
        return np

    def order(self, precision: str) -> int:
        """Return 256; Unsupported for a precision that this GPU does not have."""
        self._rate(precision)
        return ORDER

    def multiply(
        self, a: Any, b: Any, precision: str, seconds: float, watch: Watch = None
    ) -> Product:
        """Multiply once, for real, and let `seconds` of back-to-back products pass.

        Raises Lost where the GPU gets lost on the way; there is no product then.
        """
        gpu = self._gpu
        rate = self._rate(precision) * gpu.noise.factor("multiply")
        speed = self._under(1.0, seconds, watch)
        errs = gpu.errs
        if errs is None:
            outcome = compute.multiply(a, b, precision)
        else:
            key = gpu.noise.key("product")
            outcome = compute.multiply(a, b, precision, errs.fault_of_output, key)
            errs.count(outcome.applied)
        return Product(outcome.c, seconds, rate * speed * seconds, outcome.repeats_differ)

    def copy(self, to: int, lo: int, hi: int) -> None:
        """Copy within the claimed memory, in steps of 32 bytes as the kernels of a GPU do."""
        check_steps(to, lo, hi)
        if self._claimed:
            check_copy(to, lo, hi, self._claimed)
        self._pass(lo, hi, 2)
        self._gpu.hbm.copy(to, lo, hi)
        self._gpu.collect()

    def stream(self, kind: str, seconds: float, watch: Watch = None) -> Moved:
        """Stream through the memory that is not claimed; DeviceError where none is left.

        One round of the data's way is done, and the time of many passes. The triad's sum is not
        computed: its goal takes the words of the first array.
        """
        arrays = {"copy": 2, "triad": 3}.get(kind)
        if arrays is None:
            msg = f"a stream is copy or triad, not {kind!r}"
            raise ValueError(msg)
        gpu = self._gpu
        rate = gpu.rates.memory * (TRIAD if kind == "triad" else 1.0) * gpu.noise.factor(kind)
        self._under(COPY_UTILISATION, seconds, watch)
        wrong = self._streamed(arrays)
        return Moved(round(rate * seconds), seconds, wrong)

    def _streamed(self, arrays: int) -> int:
        """Write random words to all arrays but the last, copy the first there, verify all."""
        hbm, lo = self._gpu.hbm, self._claimed
        part = (hbm.size - lo) // arrays // COPY_STEP * COPY_STEP
        if part < LEAST_STREAM:
            msg = f"{self._gpu.gpu.subject}: {hbm.size - lo} bytes are free: too little to stream"
            raise DeviceError(msg)
        sources = [(lo + n * part, self._fresh()) for n in range(arrays - 1)]
        for at, pattern in sources:
            hbm.write(at, at + part, pattern)
        goal = lo + (arrays - 1) * part
        hbm.copy(goal, lo, lo + part)
        wrong = hbm.verify(goal, goal + part, replace(sources[0][1], origin=goal - lo)).miscompares
        wrong += sum(hbm.verify(at, at + part, own).miscompares for at, own in sources[1:])
        self._gpu.collect()
        return wrong

    def _fresh(self) -> Pattern:
        return Pattern("random", self._gpu.noise.key("stream"))

    def transfer(self, way: str, seconds: float, seed: int, watch: Watch = None) -> Moved:
        """Copy from and to the host; the link leaves its rest for as long as that takes."""
        if way not in ("h2d", "d2h", "both"):
            msg = f"a way is h2d, d2h or both, not {way!r}"
            raise ValueError(msg)
        bus = self._gpu.bus
        rate = bus.rate(way) * self._gpu.noise.factor(way)
        bus.moving = True
        try:
            self._under(TRANSFER_UTILISATION, seconds, watch)
        finally:
            bus.moving = False
        ways = ("h2d", "d2h") if way == "both" else (way,)
        wrong = sum(self._arrived_wrong(seed + n) for n in range(len(ways)))
        return Moved(round(rate * seconds), seconds, wrong)

    def _arrived_wrong(self, seed: int) -> int:
        """Copy one buffer of random words; return how many are others at its goal."""
        sent = words(Pattern("random", seed), 0, BUFFER)
        arrived = sent.copy()
        if self.spoil is not None:
            self.spoil(arrived)
        return int(np.count_nonzero(arrived != sent))

    def load(self, share: float) -> None:
        """Set the load under which time passes."""
        self._gpu.check()
        self._gpu.load = share

    def _under(self, utilisation: float, seconds: float, watch: Watch) -> float:
        """Let time pass under a load; return the mean speed. `watch` is called WATCHES times."""
        if watch is None:
            return self._gpu.advance(seconds, utilisation)
        part, done = seconds / WATCHES, 0.0
        for _ in range(WATCHES):
            done += self._gpu.advance(part, utilisation)
            watch()
        return done / WATCHES

    def _rate(self, precision: str) -> float:
        rate = self._gpu.rates.arithmetic.get(precision)
        if rate is None:
            msg = f"{self._gpu.gpu.subject}: no products in {precision[:20]!r} here"
            raise Unsupported(msg)
        return rate

    def _pass(self, lo: int, hi: int, accesses: int) -> None:
        """Let the time of one pass over [lo, hi) go by."""
        if not 0 <= lo <= hi <= self._claimed:
            self._gpu.check()
            msg = f"[{lo:#x}, {hi:#x}) is not within the {self._claimed:#x} bytes that are claimed"
            raise DeviceError(msg) if not self._claimed else ValueError(msg)
        rate = self._gpu.rates.memory * self._gpu.noise.factor("memory")
        self._gpu.advance(accesses * (hi - lo) / rate, COPY_UTILISATION)
