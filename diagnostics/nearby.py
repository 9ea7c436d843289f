"""Who stands near an episode and could be its root, found without looking at all of the others.

Episodes that can be roots come in; for any other episode the weightiest root goes out that lies
near it and that a rule ties to it. Minutes are bins, so that 100,000 incidents of 1,000 machines
take a time in proportion to their number, as long as they are spread over places or time.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence

from rackproof.diagnostics.episodes import CASE, Episode, near

# Clocks of two machines may differ by this much; a node without NTP drifts some seconds a day.
SKEW = 60.0
_BIN = 120.0
_LONG = 32  # an episode that fills more bins than this is looked at from all of them
Tie = Callable[[Episode, Episode], bool]
Key = tuple[Hashable, ...]


def _bins(episode: Episode, seconds: float) -> range | None:
    """Return the bins within `seconds` of an episode; None: it has no times, or a great many."""
    if episode.first is None or episode.last is None:
        return None
    low = math.floor((episode.first - seconds) / _BIN)
    return range(low, math.floor((episode.last + seconds) / _BIN) + 1)


class Nearby:
    """Roots by place and time; `weight` orders them, the smallest first."""

    def __init__(self, weight: Callable[[Episode], tuple[object, ...]]) -> None:
        self._weight = weight
        self._ranks: dict[int, int] = {}
        self._timed: dict[tuple[Key, int], list[Episode]] = defaultdict(list)
        self._always: dict[Key, list[Episode]] = defaultdict(list)

    def rank(self, found: Sequence[Episode]) -> None:
        """Put all roots in order, once: the weightiest first."""
        ordered = sorted(found, key=self._weight)
        self._ranks = {id(episode): rank for rank, episode in enumerate(ordered)}

    def add(self, key: Key, roots: Iterable[Episode]) -> None:
        """Take roots in, to be looked up under `key`; the weightiest come first."""
        for episode in sorted(roots, key=lambda e: self._ranks[id(e)]):
            bins = _bins(episode, 0.0)
            if bins is None or len(bins) > _LONG:
                self._always[key].append(episode)
                continue
            for one in bins:
                self._timed[key, one].append(episode)

    def first(self, key: Key, episode: Episode, tie: Tie, seconds: float = CASE) -> Episode | None:
        """Return the weightiest root under `key` within `seconds` that `tie` makes its root."""
        bins = _bins(episode, seconds)
        rows = [self._always.get(key, [])]
        if bins is not None and len(bins) <= len(self._timed):
            rows += [self._timed.get((key, one), []) for one in bins]
        elif bins is not None:
            rows += [row for (own, one), row in self._timed.items() if own == key and one in bins]
        best = None
        for row in rows:
            for root in row:
                if best is not None and self._ranks[id(root)] >= self._ranks[id(best)]:
                    break
                if root is not episode and near(root, episode, seconds) and tie(root, episode):
                    best = root
                    break
        return best

    def lightest(self, options: Iterable[Episode | None]) -> Episode | None:
        """Return the weightiest of some roots, or None where there is none."""
        given = [root for root in options if root is not None]
        return min(given, key=lambda root: self._ranks[id(root)], default=None)
