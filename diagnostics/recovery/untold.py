"""Steps that were saved and not told: a trainer was killed between its save and its line.

In: a course, its trajectory, and what was looked at. Out: the steps that nobody told and from whose
checkpoint the run went on, each with the state that was read again, or why it could not be. One
death can hide one step and no more: who was killed once and lacks two steps has left steps out. A
checkpoint that holds the state of another step shows nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.recovery.record import Course, Fact
from rackproof.diagnostics.recovery.segments import PEER
from rackproof.diagnostics.recovery.strikes import DRILL, place
from rackproof.diagnostics.recovery.telling import whole
from rackproof.diagnostics.recovery.trajectory import Trajectory
from rackproof.harness.happening import Happening

LATE = 1.0  # s; a line that gives no time has that of its reading
NOT_READ = "the checkpoint from which the run went on was not looked at"
NOT_WHOLE = "the checkpoint from which the run went on could not be read again"
HIDDEN = "and is shown by the checkpoint from which the run went on"


@dataclass(frozen=True, slots=True)
class Untold:
    """A step that was saved and not told.

    `digest` is that of its checkpoint, read again; `problem` says why it is not shown by that one.
    """

    step: int
    digest: str = ""
    problem: str = ""

    @property
    def shown(self) -> bool:
        """Whether a checkpoint that verifies shows it."""
        return not self.problem


def untold(course: Course, path: Trajectory, facts: Sequence[Fact]) -> Mapping[int, Untold]:
    """Return the steps of a course that were saved and not told, by their numbers."""
    own = [fact for fact in facts if fact.course == course.name]
    deaths, found = _deaths(course, own), {}
    for restore in _candidates(course, path):
        step = whole(restore.fields.get("step")) or 0
        before = path.steps.get(step - 1)
        since = course.began if before is None else before.told[-1].at - LATE
        free = [place_ for place_, at in enumerate(deaths) if since <= at <= restore.at]
        if free:
            del deaths[: free[-1] + 1]
            one = _looked_at(step, restore, own)
            if not one.digest or one.digest not in _others(path, own, step):
                found[step] = one
    return found


def _candidates(course: Course, path: Trajectory) -> Iterator[Happening]:
    """Yield the first restore of each step that is missed alone, in the order of time.

    Either the run went on with the step after it, or there was nothing to go on with.
    """
    missed = set(path.missing)
    back = {each.to for each in path.rollbacks if each.to == each.top + 1}
    alone = {step for step in missed & back if step - 1 not in missed}
    last = max((each.at for each in path.commits), default=course.began)
    for what in course.happenings:
        step = whole(what.fields.get("step")) if what.kind == "restore" else None
        if step is None or what.text("uri").startswith(PEER):
            continue
        if step in alone or (step == path.top + 1 and step - 1 not in missed and what.at > last):
            alone.discard(step)
            last = max(last, what.at)
            yield what


def _deaths(course: Course, facts: Sequence[Fact]) -> list[float]:
    """Return when processes ended; what follows within a second is one end of one job."""
    ends = [fact.at for fact in facts if fact.what == "died"]
    acts = {"injected", "exited"}
    ends += [each.at for each in course.happenings if each.who == DRILL and each.kind in acts]
    found: list[float] = []
    for at in sorted(ends):
        if not found or at - found[-1] > LATE:
            found.append(at)
    return found


def _looked_at(step: int, restore: Happening, facts: Sequence[Fact]) -> Untold:
    uri = place(restore.fields.get("uri"))
    read = [fact.fields for fact in facts if fact.what == "checkpoint"]
    of_step = [fields for fields in read if whole(fields.get("step")) == step]
    good = [fields for fields in of_step if fields.get("verifies") is True]
    if good:
        return Untold(step, str(good[0].get("digest") or ""))
    tried = [fields for fields in read if uri and place(fields.get("uri")) == uri]
    why = next((str(each["problem"]) for each in tried if each.get("problem")), "")
    return Untold(step, problem=f"{NOT_WHOLE} ({why})" if why else NOT_READ)


def _others(path: Trajectory, facts: Sequence[Fact], step: int) -> set[str]:
    """Return the states of all other steps, as they were told and as they are stored."""
    told = {digest for other, each in path.claims.items() if other != step for digest in each}
    stored = {
        str(fact.fields.get("digest") or "")
        for fact in facts
        if fact.what == "checkpoint" and whole(fact.fields.get("step")) != step
    }
    return told | stored


def states(path: Trajectory, facts: Sequence[Fact], step: int) -> frozenset[str]:
    """Return the states that a course told of a step, or stored as it and that verify."""
    told = path.steps[step].digests if step in path.steps else {}
    stored = {
        str(fact.fields.get("digest") or "")
        for fact in facts
        if fact.what == "checkpoint" and fact.course == path.name
        if fact.fields.get("verifies") is True and whole(fact.fields.get("step")) == step
    }
    return frozenset(told) | (stored - {""})
