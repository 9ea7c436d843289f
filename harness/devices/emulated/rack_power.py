"""One emulated rack's power between its GPUs and the mains: its capacitors, and its breaker.

In: the exact power of its GPUs, on a grid of a millisecond, from the first reading in a run on.
Out: what the mains see of it now, how full the capacitors are, and the breaker's trip integral.
Nothing is worked out before somebody asks. The rack's battery (BBU) does not smooth, so it has no
part in this; the supplies' own hold-up is a part of the capacitors here.

The first reading of a run finds the capacitors at half charge and the breaker at rest, as a GPU
that begins a burn is settled. Every GPU has a time of its own; the rack is as far as the GPU that
is furthest, and one that is behind goes on as it was.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from rackproof.harness.devices.emulated.facility import Part
from rackproof.harness.devices.emulated.gpu import EmulatedGpu
from rackproof.harness.devices.emulated.house.breaker import Breaker, Curve
from rackproof.harness.devices.emulated.house.parameters import shipped
from rackproof.harness.devices.emulated.house.plan import RackPlan, plan
from rackproof.harness.devices.emulated.house.stores import Store
from rackproof.harness.devices.emulated.trail import Segment, Trail
from rackproof.harness.errors import SpecError, Unsupported
from rackproof.harness.model import Value
from rackproof.harness.spec import RackSpec

TICK_S = 0.001
"""The electrical grid."""
BLOCK = 20_000
"""Ticks that are worked out at once, so that a long time takes no more memory."""


def rating(built: RackPlan) -> float:
    """Return what a rack may draw, W: its own rating, and no more than its shelves give."""
    return min(built.rated, built.shelves * built.shelf) if built.shelves else built.rated


class RackPower(Part):
    """The power of one rack; `watts` is what the mains see now. `store` is None without one."""

    def __init__(
        self, seed: int, built: RackPlan, curve: Curve, gpus: Sequence[EmulatedGpu]
    ) -> None:
        super().__init__(built.feed, seed)
        self._built, self._curve, self._gpus = built, curve, gpus
        self.store: Store | None = None
        self.breaker = Breaker(rating(built), curve)
        self._begun: list[float] = []
        self._ticks = 0
        self.watts = 0.0

    def readings(self) -> Mapping[str, Callable[[], Value]]:
        """Return the power that the mains see in W, charge and strain (0 to 1)."""
        found: dict[str, Callable[[], Value]] = {
            "power.rack.input": self._input,
            "power.breaker.strain": self._strain,
        }
        return found if self._built.cbu is None else {**found, "power.store.charge": self._charge}

    def renew(self) -> None:
        """Stand as a run finds it: half charged, nothing forgotten that never was."""
        built = self._built
        self.store = Store(built.cbu) if built.cbu is not None else None
        self.breaker = Breaker(rating(built), self._curve)
        self._begun = []
        for gpu in self._gpus:
            gpu.die.follow()
            self._begun.append(gpu.die.seconds)
        self._ticks = 0
        self.watts = built.fixed + sum(gpu.die.power for gpu in self._gpus)
        self.noise.begin(*self._gpus[0].noise.run)

    def _input(self) -> float:
        self._catch_up()
        return self.watts * self.noise.factor("power.rack.input")

    def _strain(self) -> float:
        self._catch_up()
        return self.breaker.strain

    def _charge(self) -> float:
        self._catch_up()
        if self.store is None:
            msg = f"{self.subject} has no store"
            raise Unsupported(msg)
        return self.store.charge

    def _catch_up(self) -> None:
        """Come to the time of the GPU that is furthest."""
        if not self._begun or any(gpu.die.trail is None for gpu in self._gpus):
            self.renew()
        passed = max(g.die.seconds - b for g, b in zip(self._gpus, self._begun, strict=True))
        due = int(passed / TICK_S + 1e-6)
        while self._ticks < due:
            count = min(BLOCK, due - self._ticks)
            self._pass(count)
            self._ticks += count

    def _pass(self, count: int) -> None:
        """Let so many ticks pass."""
        load, alike = np.full(count, self._built.fixed), Counter[tuple[Segment, ...]]()
        first: dict[tuple[Segment, ...], tuple[Trail, float]] = {}
        for gpu, begun in zip(self._gpus, self._begun, strict=True):
            trail, after = gpu.die.trail, begun + self._ticks * TICK_S
            if trail is not None:
                trail.forget(after)
                shape = trail.shape(after)
                alike[shape] += 1  # GPUs in step draw the same, and are worked out once
                first.setdefault(shape, (trail, after))
        for shape, many in alike.items():
            trail, after = first[shape]
            load += many * trail.watts(after, TICK_S, count)
        seen = load if self.store is None else self.store.run(load, TICK_S)
        self.breaker.run(seen, TICK_S)
        self.watts = float(seen[-1])


def rack_powers(spec: RackSpec, seed: int, gpus: Mapping[str, EmulatedGpu]) -> list[RackPower]:
    """Return the power of each rack that has power of its own.

    None where its file leaves open what that is built of.
    """
    subjects = spec.of_sort("power")
    if not subjects:
        return []
    try:
        built = plan(spec, shipped())
    except SpecError:
        return []
    own = {
        rack.number: [gpus[gpu.subject] for gpu in spec.gpus if gpu.rack == rack.number]
        for rack in built.racks
    }
    return [
        RackPower(seed, rack, built.branch, own[rack.number])
        for rack in built.racks
        if rack.feed in subjects
    ]
