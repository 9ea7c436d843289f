"""The order of a run, what fits into a budget, and how many rounds fill a time.

In: the burns of a level, a seed, and what each would cost. Out: which of them run, in what order.
Burns of the whole rack stand last in each round: they are one group of their own, on all GPUs.
"""

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from rackproof.harness.burns.base import Burn

LEADING = {
    "memory": "memory.march",
    "gemm": "gemm.bf16",
    "copy": "copy.both",
    "link": "link.all",
    "power": "power.steady",
}
"""Of each family the burn that sees most, which a short budget gets first."""


def order(ids: Iterable[str], seed: int, turn: int, *, first: Sequence[str]) -> list[str]:
    """Return burn ids in the order of round `turn`: `first` as they are, then the rest shuffled.

    The place of a burn against another depends on the seed, the round and these two alone, so
    that a narrower plan keeps its order.
    """
    found = list(ids)
    head = [name for name in first if name in found]
    return head + sorted((name for name in found if name not in head), key=_draw(seed, turn))


def _draw(seed: int, turn: int) -> Callable[[str], bytes]:
    def key(name: str) -> bytes:
        return hashlib.sha256(f"order/{seed}/{turn}/{name}".encode()).digest()

    return key


def arranged(burns: Sequence[Burn], seed: int, turn: int, first: Sequence[str]) -> list[Burn]:
    """Return the burns in the order of round `turn`: `first`, the others, those of the rack."""
    ids = order((burn.id for burn in burns), seed, turn, first=first)
    place = {name: n for n, name in enumerate(ids)}
    return sorted(burns, key=lambda burn: (burn.wide is not None, place[burn.id]))


def priority(ids: Sequence[str], first: Sequence[str]) -> list[str]:
    """Return burn ids, the most wanted first: `first`, then one of each family, then the rest.

    Of a family the one in LEADING comes first, the others as they come. Each further turn takes
    one more of every family.
    """
    depth: dict[str, int] = defaultdict(int)
    rank: dict[str, int] = {}
    led = [name for name in LEADING.values() if name in ids]
    for name in (*led, *(name for name in ids if name not in led)):
        family = name.partition(".")[0]
        rank[name] = depth[family]
        depth[family] += 1
    place = {name: n for n, name in enumerate(ids)}
    return sorted(ids, key=lambda name: (name not in first, rank[name], place[name]))


def fit(
    costs: dict[str, float], budget: float, first: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the burns that fit into `budget` seconds, and why each of the others was left out.

    `costs` are the seconds of each; they are taken by priority, and one that does not fit is
    passed over for those that do.
    """
    taken: list[str] = []
    left_out: dict[str, str] = {}
    left = budget
    for name in priority(list(costs), first):
        if costs[name] <= left:
            taken.append(name)
            left -= costs[name]
        else:
            left_out[name] = f"takes {costs[name]:g} s, and {left:g} s of the budget were left"
    return [name for name in costs if name in taken], left_out


def rounds(lasting: float, seconds: float) -> int:
    """Return how many rounds of `seconds` begin before `lasting` seconds are over; at least 1."""
    return max(1, math.ceil(lasting / seconds)) if seconds > 0 else 1
