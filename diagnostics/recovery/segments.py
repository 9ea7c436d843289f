"""Segments: unbroken runs of steps by one process, and from what each of them went on.

In: the happenings of one course, in the order of time. Out: segments in the order in which they
begin. A process tells k, k+1, k+2, …; a new segment begins where it does not, where it took over a
state (a checkpoint, a peer's, a restart of the whole job), and with every new attempt.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rackproof.diagnostics.recovery.telling import Telling, telling, whole
from rackproof.harness.happening import Happening

PEER = "peer:"


@dataclass(frozen=True, slots=True)
class Source:
    """A state that was taken over: at which time, and after which step; `peer`: a live member's."""

    at: float
    step: int
    peer: bool


@dataclass(slots=True)
class Segment:
    """Steps of one process, one after the other; never empty. `source` is None where none told."""

    who: str
    attempt: int
    source: Source | None
    tellings: list[Telling] = field(default_factory=list)

    @property
    def first(self) -> int:
        """The first step."""
        return self.tellings[0].step

    @property
    def last(self) -> int:
        """The last step."""
        return self.tellings[-1].step

    @property
    def begins(self) -> float:
        """When its first step was told."""
        return self.tellings[0].at

    @property
    def ends(self) -> float:
        """When its last step was told."""
        return self.tellings[-1].at


class _Reader:
    def __init__(self) -> None:
        self.segments: list[Segment] = []
        self.problems: list[str] = []
        self._open: dict[str, Segment] = {}
        self._taken: dict[str, Source] = {}
        self._restarted: Source | None = None

    def read(self, what: Happening) -> None:
        if what.kind == "step":
            found = telling(what)
            if isinstance(found, str):
                self.problems.append(found)
            else:
                self._told(found)
        elif what.kind == "restore":
            peer = what.text("uri").startswith(PEER)
            self._takes(what.who, what, peer=peer)
        elif what.kind == "resynchronised":
            self._takes(what.text("member"), what, peer=True)
        elif what.kind == "restarted":
            step = whole(what.fields.get("step"))
            if step is not None:
                self._restarted = Source(what.at, step, peer=False)

    def _takes(self, who: str, what: Happening, *, peer: bool) -> None:
        step = whole(what.fields.get("step"))
        if step is None:
            self.problems.append(f"{what.who} told a {what.kind} without a step")
            return
        before = self._taken.get(who)
        # A checkpoint that was taken and then found equal to the others' is still a checkpoint.
        stored = before is not None and not before.peer and before.step == step
        self._taken[who] = Source(what.at, step, peer=peer and not stored)

    def _told(self, told: Telling) -> None:
        segment, source = self._open.get(told.who), self._taken.pop(told.who, None)
        whole_job = self._restarted
        if source is None and whole_job and segment and whole_job.at > segment.ends:
            source = whole_job
        follows = segment is not None and told.step == segment.last + 1
        if segment is None or source or told.attempt != segment.attempt or not follows:
            segment = Segment(told.who, told.attempt, source)
            self._open[told.who] = segment
            self.segments.append(segment)
        segment.tellings.append(told)


def segments(happenings: Iterable[Happening]) -> tuple[Sequence[Segment], Sequence[str]]:
    """Return the segments, and the lines that could not be read, in words."""
    reader = _Reader()
    for what in happenings:
        reader.read(what)
    return reader.segments, reader.problems
