"""The burns that there are, and the plan that a level or a selection makes of them."""

from collections.abc import Sequence

from rackproof.harness.burns import (
    copies,
    gemm,
    health,
    inventory,
    links,
    memory,
    platform,
    power,
    thermal,
)
from rackproof.harness.burns.base import LEVELS, Burn
from rackproof.harness.errors import SpecError, nearest

PROBE = ("inventory", "health")


_ALL: tuple[Burn, ...] = (
    *inventory.BURNS,
    *health.BURNS,
    *platform.BURNS,
    *memory.BURNS,
    *copies.BURNS,
    *gemm.BURNS,
    *links.BURNS,
    *power.BURNS,
    *thermal.BURNS,
)
BURNS: dict[str, Burn] = {burn.id: burn for burn in _ALL}


def add(burn: Burn) -> None:
    """Add a burn that does not come with rackproof; the same again is fine.

    Raises SpecError for an id that is taken, or lies in a family of ours.
    """
    families = {shipped.id.partition(".")[0] for shipped in _ALL}
    if burn.id.partition(".")[0] in families or BURNS.get(burn.id, burn) != burn:
        msg = f"burn {burn.id!r}: is taken; begin its id with a word of your own"
        raise SpecError(msg)
    BURNS[burn.id] = burn


def plan(level: str, only: Sequence[str] = ()) -> list[Burn]:
    """Return the burns of `level`, narrowed to the ids or families in `only`, in table order.

    Raises SpecError for an unknown level or id, with the nearest known one, and for what is asked
    for and is not of the level.
    """
    if level not in LEVELS:
        msg = f"unknown level {level!r}{nearest(level, LEVELS)}: one of {', '.join(LEVELS)}"
        raise SpecError(msg)
    wanted: set[str] = set()
    for name in only:
        family = {id_ for id_ in BURNS if id_ == name or id_.startswith(f"{name}.")}
        if not family:
            families = {id_.partition(".")[0] for id_ in BURNS}
            msg = f"unknown burn {name!r}{nearest(name, {*BURNS, *families})}"
            raise SpecError(msg)
        if not any(level in BURNS[id_].seconds for id_ in family):
            levels = [each for each in LEVELS if any(each in BURNS[i].seconds for i in family)]
            msg = f"burn {name!r} is not of level {level}, only of {', '.join(levels)}"
            raise SpecError(msg)
        wanted |= family
    return [b for b in BURNS.values() if level in b.seconds and (not wanted or b.id in wanted)]
