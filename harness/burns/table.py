"""The burns that there are, and the plan that a level or a selection makes of them."""

from collections.abc import Sequence

from rackproof.harness.burns import gemm, health, inventory, memory
from rackproof.harness.burns.base import Burn
from rackproof.harness.errors import SpecError, nearest

LEVELS = ("quick", "acceptance", "soak")
PROBE = ("inventory", "health")
# ids of the contract that this version does not have yet: named, so that nobody takes them for run
LATER = (
    "platform memory.inversions8 memory.walking memory.modulo20 memory.fade memory.block "
    "hbm.bandwidth gemm.tf32 gemm.bf16 gemm.fp16 gemm.fp8 copy.h2d copy.d2h copy.both link.pair "
    "link.all link.collective power.steady power.step power.cap thermal.soak"
).split()


def _everywhere(quick: float, acceptance: float) -> dict[str, float]:
    return {"quick": quick, "acceptance": acceptance, "soak": acceptance}


def _memory(name: str, quick: float) -> Burn:
    test, _ = memory.TESTS[name]
    summary = (test.__doc__ or "").splitlines()[0]
    seconds = _everywhere(quick, quick)
    return Burn(f"memory.{name}", summary, memory.OWES, seconds, memory.burn(name))


_ALL = (
    Burn(
        "inventory",
        "GPUs, SKUs, memory, driver, VBIOS, PCIe, NVLinks, ECC and fabric, against the platform",
        inventory.OWES,
        _everywhere(1.0, 1.0),
        inventory.run,
        inventory.host,
    ),
    Burn(
        "health",
        "ECC, remapped rows, throttle reasons, thermal margin, recovery action, link errors",
        health.OWES,
        _everywhere(1.0, 1.0),
        health.run,
    ),
    _memory("address", 1.0),
    _memory("inversions", 4.0),
    _memory("march", 3.0),
    _memory("random", 1.0),
    Burn(
        "gemm.fp32",
        "fp32 matrix products back to back, each train checked by Freivalds' oracle",
        gemm.owes("fp32"),
        {level: gemm.ROUNDS[level] * gemm.SECONDS[level] for level in LEVELS},
        gemm.burn("fp32"),
    ),
)
BURNS: dict[str, Burn] = {burn.id: burn for burn in _ALL}


def plan(level: str, only: Sequence[str] = ()) -> list[Burn]:
    """Return the burns of `level`, narrowed to the ids or families in `only`, in table order.

    Raises SpecError for an unknown level or id, with the nearest known one.
    """
    if level not in LEVELS:
        msg = f"unknown level {level!r}{nearest(level, LEVELS)}: one of {', '.join(LEVELS)}"
        raise SpecError(msg)
    wanted: set[str] = set()
    for name in only:
        family = {id_ for id_ in BURNS if id_ == name or id_.startswith(f"{name}.")}
        if not family:
            families = {id_.partition(".")[0] for id_ in BURNS}
            if any(later == name or later.startswith(f"{name}.") for later in LATER):
                msg = f"burn {name!r} is not in this version; there are {', '.join(BURNS)}"
            else:
                msg = f"unknown burn {name!r}{nearest(name, {*BURNS, *families})}"
            raise SpecError(msg)
        wanted |= family
    return [b for b in _ALL if level in b.seconds and (not wanted or b.id in wanted)]
