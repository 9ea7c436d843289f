"""The trajectory of a run: which steps are committed, and whether its story can be true.

In: a course. Out: the steps that count, how often all of it went back, what was lost and repeated,
and every place where the story contradicts itself. When the whole job goes back, a new generation
begins; a step that was told in several counts as it was told in the last.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackproof.diagnostics.recovery.record import Course
from rackproof.diagnostics.recovery.segments import Segment, Source, segments
from rackproof.diagnostics.recovery.telling import Telling, digits, shorten


@dataclass(frozen=True, slots=True)
class Rollback:
    """The whole job went back to `to` when `top` was the newest committed step."""

    at: float
    to: int
    top: int

    @property
    def lost(self) -> int:
        """Committed steps that had to be done again."""
        return max(0, self.top - self.to)


@dataclass(frozen=True, slots=True)
class Commit:
    """A step, as one generation committed it: told first at `at`, by one or several processes."""

    at: float
    step: int
    generation: int
    again: bool
    told: tuple[Telling, ...]

    @property
    def digests(self) -> Mapping[str, str]:
        """Each digest that was told, and by whom first."""
        found: dict[str, str] = {}
        for each in self.told:
            if each.digest:
                found.setdefault(each.digest, each.who)
        return found

    @property
    def digest(self) -> str:
        """The digest on which all agree; an empty text where they do not, or none was told."""
        found = self.digests
        return next(iter(found)) if len(found) == 1 else ""

    @property
    def loss(self) -> float | None:
        """The first loss that was told."""
        return next((each.loss for each in self.told if each.loss is not None), None)

    @property
    def members(self) -> int | None:
        """How many took part, where it was told."""
        return next((each.members for each in self.told if each.members is not None), None)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """A course's steps. `commits` has all of them in the order of time, `steps` those that count.

    `claims` are all digests that were ever told of a step, `most` is the highest of those steps.
    `breaks` are contradictions, in words; `remarks` what could not be followed; `problems` lines.
    """

    name: str
    commits: Sequence[Commit] = ()
    steps: Mapping[int, Commit] = field(default_factory=dict)
    rollbacks: Sequence[Rollback] = ()
    breaks: Sequence[str] = ()
    remarks: Sequence[str] = ()
    problems: Sequence[str] = ()
    base: int = 1
    claims: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    most: int = 0

    @property
    def top(self) -> int:
        """The newest step that counts; one below the first where there is none."""
        return max(self.steps, default=self.base - 1)

    @property
    def lost(self) -> int:
        """Committed steps that were undone."""
        return sum(each.lost for each in self.rollbacks)

    @property
    def repeated(self) -> int:
        """Steps that were committed again."""
        return sum(each.again for each in self.commits)

    @property
    def missing(self) -> list[int]:
        """Steps below the newest that nobody told."""
        return [step for step in range(self.base, self.top) if step not in self.steps]

    def newest(self, at: float) -> int:
        """Return the newest step told up to a time, one below the first before any."""
        return max((c.step for c in self.commits if c.at <= at), default=self.base - 1)


class _Generation:
    """Segments from one going back to the next; what is asked of them is kept as they come."""

    def __init__(self, to: int) -> None:
        self.to = self.top = to
        self.segments: list[Segment] = []
        self._names: set[str] = set()
        self._latest = (-math.inf, "")  # the latest end, and whose it is
        self._other = -math.inf  # the latest end of all the others

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.top = max(self.top, segment.last)
        self._names.add(segment.who)
        end, who = self._latest
        if segment.who == who:
            self._latest = (max(end, segment.ends), who)
        elif segment.ends > end:
            self._latest, self._other = (segment.ends, segment.who), end
        else:
            self._other = max(self._other, segment.ends)

    def goes_on(self, after: Segment) -> bool:
        """Say whether another process was still telling steps when `after` began."""
        end, who = self._latest
        return (self._other if who == after.who else end) >= after.begins

    def has(self, who: str) -> bool:
        return who in self._names


class _Walk:
    """Lays segments into generations, and notes what cannot be."""

    def __init__(self) -> None:
        self.generations: list[_Generation] = []
        self.rollbacks: list[Rollback] = []
        self.breaks: list[str] = []
        self.remarks: list[str] = []
        self.base = 1
        self._top = -1
        self._before: dict[str, Segment] = {}

    def add(self, segment: Segment) -> None:
        if not self.generations:
            self.base = min(segment.first, 1)
        self._follow(segment)
        if not self.generations:
            self.generations.append(_Generation(segment.first - 1))
        generation = self.generations[-1]
        if not self._joins(generation, segment) and self._goes_back(generation, segment):
            top, to = generation.top, segment.first - 1
            self.rollbacks.append(Rollback(segment.begins, to, top))
            generation = _Generation(to)
            self.generations.append(generation)
        generation.add(segment)
        self._top = max(self._top, segment.last)
        self._before[segment.who] = segment

    def _joins(self, generation: _Generation, segment: Segment) -> bool:
        """Say whether others go on, so that this process only comes in, or is the next to tell."""
        if generation.goes_on(segment):
            return True
        if generation.has(segment.who):
            return False
        late = segment.source is not None and segment.source.peer
        return segment.first - 1 == generation.to or (late and segment.first >= generation.top)

    def _goes_back(self, generation: _Generation, segment: Segment) -> bool:
        stored = segment.source is not None and not segment.source.peer
        return bool(generation.segments) and (segment.first <= generation.top or stored)

    def _follow(self, segment: Segment) -> None:
        """Note where a segment cannot follow from what was before."""
        who, first, before = segment.who, segment.first, self._before.get(segment.who)
        top = max(self._top, self.base - 1)
        if before is not None and before.attempt > segment.attempt:
            said = f"the processes {before.attempt} and {segment.attempt} of {who}"
            self.breaks.append(f"{said} told steps at one time")
        elif segment.source is not None:
            self._took(who, segment.source, first)
        elif before is not None and before.attempt == segment.attempt:
            verb = "went back" if first <= before.last else "jumped"
            self.breaks.append(
                f"{who} {verb} from step {before.last} to step {first} and restored nothing"
            )
        elif first > top + 1:
            self.breaks.append(f"{who} began with step {first}, the newest was {top}")
        elif segment.attempt > 1 and first != self.base:
            self.remarks.append(f"{who} went on with step {first} and did not say from what")

    def _took(self, who: str, source: Source, first: int) -> None:
        if first != source.step + 1:
            said = f"{who} took over the state after step {source.step}"
            self.breaks.append(f"{said} and went on with step {first}")


def _commits(generations: Sequence[_Generation]) -> list[Commit]:
    found, reached = [], -1
    for number, generation in enumerate(generations):
        by_step: dict[int, list[Telling]] = {}
        for segment in generation.segments:
            for told in segment.tellings:
                by_step.setdefault(told.step, []).append(told)
        for step, told_of in by_step.items():
            told_of.sort(key=lambda each: (each.at, each.who))
            commit = Commit(told_of[0].at, step, number, step <= reached, tuple(told_of))
            found.append(commit)
        reached = max(reached, generation.top)
    return sorted(found, key=lambda each: (each.at, each.generation, each.step))


def trajectory(course: Course) -> Trajectory:
    """Return the trajectory of a course; an empty one where no step was told."""
    parts, problems = segments(course.happenings)
    walk = _Walk()
    for segment in sorted(parts, key=lambda each: each.begins):
        walk.add(segment)
    commits = _commits(walk.generations)
    newest: dict[int, Commit] = {}
    for commit in sorted(commits, key=lambda each: each.generation):
        newest[commit.step] = commit
    top = walk.generations[-1].top if walk.generations else 0
    steps = {step: newest[step] for step in sorted(newest) if step <= top}
    claims: dict[int, tuple[str, ...]] = {}
    for commit in commits:
        claims[commit.step] = tuple(dict.fromkeys((*claims.get(commit.step, ()), *commit.digests)))
    return Trajectory(
        course.name, commits, steps, walk.rollbacks, walk.breaks, walk.remarks, problems,
        walk.base, claims,
        max(claims, default=walk.base - 1),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Difference:
    """Where two trajectories part, and how."""

    step: int
    message: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two trajectories beside each other: `same` steps with equal digests, and the first that part.

    `unseen` are steps of the second of which the first has no digest, or no step at all.
    """

    same: int
    unseen: tuple[int, ...]
    first: Difference | None


def compare(one: Trajectory, other: Trajectory, *, every: bool = True) -> Comparison:
    """Compare the digests of `one` with those of `other`, step by step.

    With `every`, what was told and undone later must be equal too, as a kept batch promises.
    """
    same, unseen, first = 0, [], None
    counted = one.commits if every else tuple(one.steps.values())
    by_step: dict[int, list[Commit]] = {}
    for commit in counted:
        by_step.setdefault(commit.step, []).append(commit)
    for step, wanted in sorted(other.steps.items()):
        if not wanted.digests:
            continue
        found = by_step.get(step, [])
        if not any(commit.digests for commit in found):
            unseen.append(step)
            continue
        apart = next((each for each in found if set(each.digests) - {wanted.digest}), None)
        if apart is None:
            same += 1
        elif first is None:
            first = Difference(step, _said(one.name, apart, other.name, wanted))
    return Comparison(same, tuple(unseen), first)


def first_difference(one: Trajectory, other: Trajectory) -> Difference | None:
    """Return the first step at which two trajectories claim different states, None where none."""
    return compare(one, other).first


def _said(name: str, one: Commit, against: str, other: Commit) -> str:
    own = next((each for each in one.digests if each != other.digest), "")
    beside = other.digest or next(iter(other.digests))
    said = f"step {one.step}: digests differ ({name} {shorten(own)}, {against} {shorten(beside)})"
    if one.loss is None or other.loss is None:
        return said
    return f"{said}, {digits(one.loss, other.loss)}"
