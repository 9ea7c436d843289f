"""Where the time of a run went: spans, of which every moment belongs to exactly one.

In: commits, and what happened between them. Out: spans of one share each, side by side from begin
to end. Time between two commits in which nothing happened is the work of the second step. Where
something did happen:

- up to the first of it: the attempt that was under way. It is recomputed where it was discarded or
  undone, and the step's own work otherwise;
- from then on waiting: `detect` after a fault until it is detected, `isolate` until it is isolated
  where that comes, `restore` after that;
- at the end the step's own work, as long as a step of this run usually takes, and never longer than
  since the last thing that happened.

A step that was committed before, in a generation that is gone, is `recompute`.
"""

import bisect
import itertools
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

PRODUCTIVE, RECOMPUTE, DETECT = "productive", "recompute", "detect"
ISOLATE, RESTORE = "isolate", "restore"
UNDOES = frozenset(("discarded", "restarted"))
FOUND = frozenset(("detected", "isolated", "spare-active", "restored", "resynchronised"))
ACTED = FOUND - {"detected"}


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened: a word of the timeline, or discarded, or restarted."""

    at: float
    what: str


@dataclass(frozen=True, slots=True)
class Work:
    """A commit: at which time, whether it was committed before, and n of N members."""

    at: float
    again: bool = False
    part: float = 1.0


@dataclass(frozen=True, slots=True)
class Span:
    """From `begin` to `end`, seconds of one share; `part` is n/N of those who worked."""

    begin: float
    end: float
    share: str
    part: float = 1.0

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.begin


def usual(works: Sequence[Work], marks: Sequence[Mark]) -> float | None:
    """Return the median time between two commits with nothing between, None without any."""
    times = [mark.at for mark in marks]
    quiet = [
        after.at - before.at
        for before, after in itertools.pairwise(works)
        if bisect.bisect_left(times, before.at) == bisect.bisect_left(times, after.at)
    ]
    return statistics.median(quiet) if quiet else None


class _State:
    """What is being waited for, by the last fault and what was seen since."""

    def __init__(self) -> None:
        self.struck = False
        self._since: set[str] = set()

    def see(self, what: str) -> None:
        if what == "fault":
            self.struck, self._since = True, set()
        else:
            self._since.add(what)

    def waits(self, *, isolated_comes: bool) -> str:
        """Return detect, isolate or restore."""
        if not self.struck:
            return RESTORE
        if not FOUND & self._since:
            return DETECT
        return ISOLATE if isolated_comes and not ACTED & self._since else RESTORE


def _coming(own: Sequence[Mark]) -> list[bool]:
    """Return for each mark whether an isolation comes after it, before the next fault."""
    found, comes = [], False
    for mark in reversed(own):
        found.append(comes)
        comes = mark.what == "isolated" or (comes and mark.what != "fault")
    return found[::-1]


def spans(
    begin: float, end: float, works: Sequence[Work], marks: Sequence[Mark], step: float | None
) -> Iterator[Span]:
    """Yield the spans of [begin, end]; works and marks in the order of time.

    `step` is how long a step usually takes, None where that is not known.
    """
    inside = [mark for mark in marks if begin < mark.at < end]
    times, before, state = [mark.at for mark in inside], begin, _State()
    for work in works:
        at = min(max(work.at, before), end)
        own = inside[bisect.bisect_left(times, before) : bisect.bisect_left(times, at)]
        yield from _until(Span(before, at, "", work.part), own, state, (work.again, step))
        before = at
    own = inside[bisect.bisect_left(times, before) :]
    head = own[0].at if own else end
    waits = state.waits(isolated_comes="isolated" in {mark.what for mark in own})
    yield Span(before, head, waits if state.struck else DETECT)
    yield from _waiting(head, end, own, state)


def _until(
    whole: Span, own: Sequence[Mark], state: _State, of: tuple[bool, float | None]
) -> Iterator[Span]:
    """Yield the spans from one commit to the next; `of`: is it done again, how long is a step."""
    again, step = of
    share = RECOMPUTE if again else PRODUCTIVE
    if not own:
        yield Span(whole.begin, whole.end, share, whole.part)
        return
    undone = again or any(mark.what in UNDOES for mark in own)
    first, last = own[0].at, own[-1].at
    yield Span(whole.begin, first, RECOMPUTE if undone else share, whole.part)
    begins = last if step is None else min(whole.end, max(last, whole.end - step))
    yield from _waiting(first, begins, own, state)
    yield Span(begins, whole.end, share, whole.part)


def _waiting(begin: float, end: float, own: Sequence[Mark], state: _State) -> Iterator[Span]:
    """Yield what was waited for, from one thing that happened to the next."""
    edges = [*(mark.at for mark in own), end]
    for place, (mark, comes) in enumerate(zip(own, _coming(own), strict=True)):
        state.see(mark.what)
        if edges[place + 1] > max(edges[place], begin):
            yield Span(
                max(edges[place], begin), edges[place + 1], state.waits(isolated_comes=comes)
            )
