"""memory.*: write all free memory, read it back, and see whether a bit or a counter moved.

With ECC on, a single stuck bit never miscompares: only the corrected counter moves. So a run
reports both the words that differed and the growth of the ECC counters in its own window.
"""

from collections.abc import Callable, Mapping

from rackproof.harness.burns.base import LEVELS, Burn, Run
from rackproof.harness.burns.ecc import EccWindow
from rackproof.harness.devices.bench import Bench
from rackproof.harness.devices.protocol import DataPlane, Device, Pattern, Verified
from rackproof.harness.errors import DeviceError

OWES = {
    "gpu": (
        "memory.miscompares",
        "memory.coverage",
        "ecc.corrected.delta",
        "ecc.uncorrected.delta",
        "xid.count",
    )
}
ZERO = Pattern("constant", 0)
ONES = Pattern("constant", 0, invert=True)
MIB = 2.0**20


class _Passes:
    """Passes over [0, size) of a plane; sums what differed and what was verified."""

    def __init__(self, plane: DataPlane, size: int) -> None:
        self._plane, self._size = plane, size
        self.miscompares = 0
        self.verified = 0  # bytes, over all passes
        self.moved = 0  # bytes written or read

    def _count(self, outcome: Verified) -> None:
        self.miscompares += outcome.miscompares
        self.verified += outcome.words * 8
        self.moved += self._size

    def write(self, pattern: Pattern) -> None:
        self._plane.write(0, self._size, pattern)
        self.moved += self._size

    def verify(self, pattern: Pattern) -> None:
        self._count(self._plane.verify(0, self._size, pattern))

    def march(self, expect: Pattern, write: Pattern, *, up: bool) -> None:
        self._count(self._plane.march(0, self._size, up, expect, write))
        self.moved += self._size

    @property
    def passes(self) -> float:
        """How often the whole size was verified."""
        return self.verified / self._size if self._size else 0.0


def address(passes: _Passes, seed: int) -> None:
    """Each word holds its own address, then the inverse: finds lines that answer for others."""
    for invert in (False, True):
        pattern = Pattern("address", seed, invert)
        passes.write(pattern)
        passes.verify(pattern)


def inversions(passes: _Passes, _seed: int) -> None:
    """Moving inversions with zeros and ones, up and then down."""
    passes.write(ZERO)
    passes.march(ZERO, ONES, up=True)
    passes.march(ONES, ZERO, up=False)
    passes.verify(ZERO)
    passes.write(ONES)
    passes.march(ONES, ZERO, up=True)
    passes.march(ZERO, ONES, up=False)
    passes.verify(ONES)


def march(passes: _Passes, _seed: int) -> None:
    """March C-: any(w0) up(r0,w1) up(r1,w0) down(r0,w1) down(r1,w0) any(r0).

    Source: A. J. van de Goor, Testing Semiconductor Memories, 1991.
    """
    passes.write(ZERO)
    passes.march(ZERO, ONES, up=True)
    passes.march(ONES, ZERO, up=True)
    passes.march(ZERO, ONES, up=False)
    passes.march(ONES, ZERO, up=False)
    passes.verify(ZERO)


def random(passes: _Passes, seed: int) -> None:
    """Random words by seed, then their inverse."""
    for invert in (False, True):
        pattern = Pattern("random", seed, invert)
        passes.write(pattern)
        passes.verify(pattern)


# name -> (the test, how often it verifies everything)
TESTS: Mapping[str, tuple[Callable[[_Passes, int], None], int]] = {
    "address": (address, 2),
    "inversions": (inversions, 6),
    "march": (march, 5),
    "random": (random, 2),
}


def burn(name: str) -> Callable[[Device, Bench, Run], None]:
    """Return the run function of memory test `name` (a key of TESTS)."""
    test, whole = TESTS[name]

    def run(device: Device, _bench: Bench, notes: Run) -> None:
        plane = device.plane
        free = float(device.telemetry.read("memory.free")) * MIB
        window = EccWindow(device, notes)
        size = plane.claim()
        try:
            if not (free > 0 and size > 0):
                msg = f"no memory could be claimed, of {free:.0f} bytes that are free"
                raise DeviceError(msg)
            passes = _Passes(plane, size)
            start = device.clock.now()
            try:
                test(passes, notes.settings.seed + notes.settings.attempt)
            finally:
                if passes.miscompares:  # what was seen stays seen, whatever comes after it
                    notes.note("memory.miscompares", passes.miscompares)
            took = device.clock.now() - start
        finally:
            plane.release()
        window.close()
        if not passes.miscompares:
            notes.note("memory.miscompares", 0)
        notes.note("memory.coverage", passes.passes / whole * size / free)
        if took > 0:
            notes.note("memory.rate", passes.moved / took / 1e9)

    run.__doc__ = test.__doc__
    return run


def _burn(name: str, seconds: float) -> Burn:
    test, _ = TESTS[name]
    summary = (test.__doc__ or "").splitlines()[0]
    return Burn(f"memory.{name}", summary, OWES, dict.fromkeys(LEVELS, seconds), burn(name))


BURNS = (
    _burn("address", 1.0),
    _burn("inversions", 4.0),
    _burn("march", 3.0),
    _burn("random", 1.0),
)
