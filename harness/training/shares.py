"""Who computes how many micro-shards: re-slotting. Pure.

In: how long each member takes for a micro-shard, and how long its answers are under way. Out: how
many micro-shards each has, so that the last is done as early as can be. Bits do not depend on it:
gradients are summed in the order of micro-shards, whoever computed them.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

WINDOW = 5  # steps of which the median counts: two slow ones among them are noise
PATIENCE = 2  # steps in a row that must say the same
GAIN = 0.8  # a new way of sharing must take at most this share of the time of the old one
FACTOR = 3.0  # times the median of the others: slow
LEAST = 0.01  # s; less than this behind the others is noise of the machine


@dataclass(slots=True)
class Pace:
    """One member: seconds a micro-shard, and seconds that its answers are under way."""

    steps: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=WINDOW))
    compute: float = 0.0
    link: float = 0.0

    def learn(self, compute: float, link: float) -> None:
        """Take in one step."""
        self.steps.append((compute, link))
        self.compute = median(each[0] for each in self.steps)
        self.link = median(each[1] for each in self.steps)


def even(members: Sequence[str], shards: int) -> dict[str, int]:
    """Return equal shares, the first members one more where it does not divide."""
    base, more = divmod(shards, len(members))
    return {name: base + (place < more) for place, name in enumerate(members)}


def blocks(counts: Mapping[str, int], members: Sequence[str]) -> dict[str, list[int]]:
    """Return the micro-shards of each member: consecutive ones, in the order of `members`."""
    found, start = {}, 0
    for name in members:
        found[name] = list(range(start, start + counts[name]))
        start += counts[name]
    return found


def _span(pace: Pace, count: int) -> float:
    return pace.link + count * pace.compute


class Shares:
    """The shares in force, and what was learnt of each member's pace."""

    def __init__(self, shards: int) -> None:
        """Begin with equal shares."""
        self.shards = shards
        self.paces: dict[str, Pace] = {}
        self._counts: dict[str, int] = {}
        self._better = 0
        self._slow: dict[str, tuple[str, int]] = {}

    def of(self, members: Sequence[str]) -> dict[str, int]:
        """Return how many micro-shards each member has; equal ones after a change of membership."""
        if set(self._counts) != set(members):
            known = all(name in self.paces for name in members)
            self._counts = self._best(members) if known else even(members, self.shards)
            self._better = 0
        return self._counts

    def forget(self, member: str) -> None:
        """A member is lost, and with it what was known of it."""
        self.paces.pop(member, None)
        self._slow.pop(member, None)

    def learn(self, member: str, compute: float, link: float) -> None:
        """Take in how one member did one step: seconds a micro-shard, seconds under way."""
        self.paces.setdefault(member, Pace()).learn(compute, link)

    def slow(self, members: Sequence[str]) -> list[tuple[str, str, float]]:
        """Return who is newly behind the others: (member, link or compute, times the median)."""
        found = []
        for name in members:
            others = [self.paces[o] for o in members if o != name and o in self.paces]
            own = self.paces.get(name)
            if own is None or not others:
                continue
            why, factor = _behind(own, others)
            before, count = self._slow.get(name, ("", 0))
            count = count + 1 if why and why == before else int(bool(why))
            self._slow[name] = (why, count)
            if count == PATIENCE:
                found.append((name, why, factor))
        return found

    def improve(self, members: Sequence[str]) -> bool:
        """Share anew where that has been clearly better for a while; say whether it was done."""
        if len(members) < 2 or any(name not in self.paces for name in members):  # noqa: PLR2004
            return False
        best = self._best(members)
        now = max(_span(self.paces[name], self._counts[name]) for name in members)
        then = max(_span(self.paces[name], best[name]) for name in members)
        eased = any(best[n] < self._counts[n] for n in members if self._late(n))
        better = (then < GAIN * now and now - then > LEAST) or (eased and then < now)
        self._better = self._better + 1 if better else 0
        if self._better < PATIENCE:
            return False
        self._counts, self._better = best, 0
        return True

    def _late(self, name: str) -> bool:
        return self._slow.get(name, ("", 0))[1] >= PATIENCE

    def _best(self, members: Sequence[str]) -> dict[str, int]:
        counts = dict.fromkeys(members, 1)
        for _ in range(self.shards - len(members)):
            name = min(members, key=lambda m: _span(self.paces[m], counts[m] + 1))
            counts[name] += 1
        return counts


def _behind(own: Pace, others: Sequence[Pace]) -> tuple[str, float]:
    """Return in what a member is far behind the median of the others, and by which factor."""
    for why in ("link", "compute"):
        usual = max(median(getattr(pace, why) for pace in others), 1e-4)
        mine = getattr(own, why)
        if mine > FACTOR * usual and mine - usual > LEAST:
            return why, round(mine / usual, 1)
    return "", 1.0
