"""How far is the recovery proven? L0 to L4, the highest that was shown with all below it.

In: a View and the claims that were made. Out: a claim for each level, and the claims that only
they rest on: `clean-runs`, `determinism`, `fault-free`, `replay`. States are compared by digests of
their tensors, never by losses: a loss can agree to sixteen digits where the weights do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.recovery.claims import Claim, broken, holds, left_out, some, unknown
from rackproof.diagnostics.recovery.honesty import last_words
from rackproof.diagnostics.recovery.outside import spoilt
from rackproof.diagnostics.recovery.record import PROOFS
from rackproof.diagnostics.recovery.storage import LOOK, one_kind
from rackproof.diagnostics.recovery.telling import shorten, whole
from rackproof.diagnostics.recovery.trajectory import (
    Commit,
    Comparison,
    Difference,
    Trajectory,
    compare,
)
from rackproof.diagnostics.recovery.untold import states
from rackproof.diagnostics.recovery.view import Told, View
from rackproof.diagnostics.verdict import Verdict, roll_up

NONE = "none"
AGAIN = "run it again, on a machine that is quiet"
EMIT = "emit `digest` in step events, or ask for less: --require L2"
DECIDES = {"L3": "replay", "L4": "fault-free"}  # where this does not apply, the level does not
SHOWS = {
    "L0": "survived",
    "L1": "reached the last step within its budgets",
    "L2": "checkpoints intact, every sample accounted for",
    "L3": "bit-identical to the replay of its own log",
    "L4": "bit-identical to the fault-free run",
}


def required(view: View) -> str:
    """Return the level that must be shown: what the drill asks, as far as it can apply."""
    return min(view.expected.proof, view.expected.best)


def applies(view: View, level: str) -> bool:
    """Say whether a level can be shown in this drill at all."""
    return PROOFS.index(level) <= PROOFS.index(view.expected.best)


# --- the fault-free runs ------------------------------------------------------------------------
def clean_runs(view: View) -> Claim:
    """Are there two fault-free runs, and was nothing wrong with them?"""
    if not applies(view, "L4"):
        return left_out("clean-runs", _not_best(view), "L4")
    if len(view.clean) < 2:  # noqa: PLR2004 - one run shows no determinism
        said = f"{len(view.clean)} of 2 fault-free runs are in the record"
        return unknown("clean-runs", said, AGAIN, "L4")
    for told in view.clean:
        why = _spoilt(view, told)
        if why:
            return unknown("clean-runs", f"{told.course.name}: {why}", AGAIN, "L4")
    return holds("clean-runs", f"{len(view.clean)} runs to step {view.last}, nothing wrong", "L4")


def _spoilt(view: View, told: Told) -> str:
    """Return why a course is no fault-free run, an empty text where it is one."""
    path, course = told.path, told.course
    found = [*course.problems, *told.forged, *path.problems, *path.breaks]
    if found:
        return found[0]
    if path.top != view.last or path.missing or path.base != view.path.base:
        return f"{len(path.steps)} of {view.head.steps} steps were committed"
    if not course.finished:
        return "it did not end by itself"
    event = next(told.of("injected", "lost", "isolated", "restarted"), None)
    if event is not None:
        return f"it was not free of faults ({event.kind} {event.text('member')})".replace(" )", ")")
    hit = spoilt(view.facts("died", "stopped", course=course.name))
    wrong = [hit] if hit else last_words(told)
    if wrong:
        return wrong[0]
    return "it went back to a checkpoint" if path.rollbacks else ""


def _not_best(view: View) -> str:
    return f"not applicable: the best that this drill can show is {view.expected.best}"


def determinism(view: View, clean: Claim) -> Claim:
    """Are two fault-free runs equal, bit for bit? Else L4 does not apply."""
    if not applies(view, "L4"):
        return left_out("determinism", _not_best(view), "L4")
    if clean.verdict is not Verdict.PASS:
        return unknown("determinism", "there are no two fault-free runs", clean.message, "L4")
    said = _apart(view)
    if said:
        if view.own or view.head.plan.get("require") == "L4":
            cure = "pin threads and seeds, or ask for less: --require L3"
            return unknown("determinism", f"two fault-free runs differ: {said}", cure, "L4")
        return left_out("determinism", f"two fault-free runs differ: {said}", "L4")
    both = compare(view.clean[1].path, view.clean[0].path)
    said = f"two fault-free runs are equal in {both.same} digests"
    if not both.same and _stored_alike(view):
        said = "two fault-free runs stored the same last state"
    elif not both.same or both.unseen or not view.clean[0].path.steps[view.last].digests:
        return unknown("determinism", "the fault-free runs told too few digests", EMIT, "L4")
    return holds("determinism", said, "L4")


def _stored_alike(view: View) -> bool:
    """Say whether two fault-free runs that told no digests stored one and the same last state."""
    states = {_stored(view, told.course.name) for told in view.clean[:2]}
    return len(states) == 1 and bool(next(iter(states))[1])


def _apart(view: View) -> str:
    """Return how two fault-free runs differ, an empty text where nothing shows that they do."""
    if len(view.clean) < 2:  # noqa: PLR2004 - nothing to compare
        return ""
    both = compare(view.clean[1].path, view.clean[0].path)
    return both.first.message if both.first is not None else _stored_apart(view)


def _stored(view: View, course: str) -> tuple[int | None, str]:
    facts = view.facts("final", course=course)
    fields: Mapping[str, object] = facts[-1].fields if facts else {}
    return whole(fields.get("step")), str(fields.get("digest") or "")


def _stored_apart(view: View) -> str:
    """Return how the last stored states of the fault-free runs differ."""
    states = {told.course.name: _stored(view, told.course.name) for told in view.clean[:2]}
    if len(set(states.values())) < 2 or not all(digest for _, digest in states.values()):  # noqa: PLR2004
        return ""
    return "stored are " + ", ".join(
        f"{shorten(digest)} (step {step}, {name})" for name, (step, digest) in states.items()
    )


def fault_free(view: View, equal: Claim) -> Claim:
    """Is the run equal to the fault-free one: at every step, and in what it stored last?"""
    if not applies(view, "L4"):
        return left_out("fault-free", _not_best(view), "L4")
    if _apart(view):
        return left_out("fault-free", "not applicable: two fault-free runs differ", "L4")
    reference = next((told for told in view.clean if not _spoilt(view, told)), None)
    if reference is None:
        return unknown("fault-free", "there is no fault-free run to compare with", AGAIN, "L4")
    seen = _with_untold(view, compare(view.path, reference.path), reference.path)
    wrong = [] if seen.first is None else [seen.first.message]
    own, wanted = _stored(view, "faulted"), _stored(view, reference.course.name)
    if own[1] and wanted[1] and own[0] == wanted[0] and own != wanted:
        wrong.append(f"stored at the end is {shorten(own[1])}, without fault {shorten(wanted[1])}")
    wrong += _checkpoints_apart(view, reference)
    if wrong:
        if equal.verdict is Verdict.PASS:
            return broken("fault-free", some(wrong), "L4")
        return unknown("fault-free", f"{wrong[0]}, and {equal.message}", AGAIN, "L4")
    return _alike(view, seen, own[1], wanted[1])


def _with_untold(view: View, seen: Comparison, path: Trajectory) -> Comparison:
    """Return a comparison with the steps that were saved and not told, as they were read again."""
    same, unseen, first = seen.same, [], seen.first
    for step in seen.unseen:
        one = view.untold.get(step)
        digest = "" if one is None else one.digest
        known = states(path, view.record.facts, step)
        if digest and digest in known:
            same += 1
        elif digest and one_kind(view):
            other = shorten(path.steps[step].digest)
            said = f"step {step} was not told, its checkpoint holds {shorten(digest)}, {other} is"
            first = first or Difference(step, f"{said} that of {path.name}")
        else:
            unseen.append(step)
    return Comparison(same, tuple(unseen), first)


def _checkpoints_apart(view: View, reference: Told) -> list[str]:
    """Return checkpoints, read again, that hold another state than the fault-free run's step."""
    paths = reference.path.steps
    kept = {
        whole(fact.fields.get("step")): str(fact.fields.get("digest") or "")
        for fact in view.facts("checkpoint", course=reference.course.name)
        if fact.fields.get("verifies") is True
    }
    wrong = []
    for fact in view.facts("checkpoint"):
        step, digest = whole(fact.fields.get("step")), str(fact.fields.get("digest") or "")
        if fact.fields.get("verifies") is not True or not digest or step is None:
            continue
        told = paths[step].digest if view.own and step in paths else ""
        other = kept.get(step) or told
        if other and other != digest:
            wrong.append(f"checkpoint of step {step} holds {shorten(digest)}, {shorten(other)} is")
    return wrong


def _alike(view: View, seen: Comparison, own: str, wanted: str) -> Claim:
    """Nothing differs: say whether enough was compared."""
    if not seen.same or seen.unseen:
        count = len(seen.unseen)
        said = f"{count} steps told no digest" if count else "no digest was told"
        return unknown("fault-free", said, EMIT, "L4")
    last = view.path.steps.get(view.last)
    if last is None or not last.digests:
        return unknown("fault-free", "the last step told no digest", EMIT, "L4")
    if not own or not wanted:
        said = "the last state was not stored, here and without the fault"
        return unknown("fault-free", said, LOOK, "L4")
    said = f"{seen.same} digests and the stored state {shorten(own)} are those without the fault"
    return holds("fault-free", said, "L4")


# --- the replay ---------------------------------------------------------------------------------
def replay(view: View, free: Claim) -> Claim:
    """Is the run equal to one that one process computed from its log?"""
    if not applies(view, "L3"):
        return left_out("replay", _not_best(view), "L3")
    if view.replay is None:
        return _without_replay(view, free)
    path = view.replay.path
    if path.problems or path.breaks or path.top < view.last or path.missing:
        found = (*path.problems, *path.breaks, f"it came to step {path.top} of {view.last}")
        return unknown("replay", f"the replay cannot be used: {found[0]}", AGAIN, "L3")
    return _replayed(view, path)


def _replayed(view: View, path: Trajectory) -> Claim:
    seen = compare(view.path, path, every=view.head.mode == "keep-batch")
    seen = _with_untold(view, seen, path)
    wrong = [] if seen.first is None else [seen.first.message]
    wrong += [
        f"step {step}: the replay used other samples"
        for step, commit in view.path.steps.items()
        if step in path.steps
        and _ids(commit)
        and _ids(path.steps[step]) not in {None, _ids(commit)}
    ]
    own, last = _stored(view, "faulted"), path.steps[view.last].digest
    if own[1] and last and view.own and own != (view.last, last):
        wrong.append(f"stored at the end is {shorten(own[1])}, replayed {shorten(last)}")
    if wrong:
        return broken("replay", some(wrong), "L3")
    if seen.unseen or seen.same < view.head.steps:
        said = f"{view.head.steps - seen.same} steps could not be compared"
        return unknown("replay", said, EMIT, "L3")
    if not own[1]:
        return unknown("replay", "the last state was not stored", LOOK, "L3")
    return holds("replay", f"{seen.same} digests are those of a replay by one process", "L3")


def _ids(commit: Commit) -> tuple[int, ...] | None:
    return next((told.ids for told in commit.told if told.ids), None)


def _without_replay(view: View, free: Claim) -> Claim:
    """A kept batch does not depend on who took part: a fault-free run is its replay."""
    quarantined = any(True for _ in view.faulted.of("quarantine"))
    if view.head.mode == "keep-batch" and not quarantined and free.level == "L4":
        if free.verdict is Verdict.PASS:
            return holds(
                "replay", "the fault-free run is its replay, since the batch is kept", "L3"
            )
        if free.verdict is Verdict.SKIP:
            return left_out("replay", "not applicable: there is no log to replay", "L3")
    return unknown("replay", "there is no replay of its log", "hold the drill again", "L3")


# --- levels -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Level:
    """A proof level: whether it was shown, and on what that rests."""

    name: str
    verdict: Verdict
    message: str

    @property
    def claim(self) -> Claim:
        """Return it as a claim."""
        return Claim(f"proof {self.name}", self.verdict, self.message, self.name)

    def as_json(self) -> dict[str, str]:
        """Return it with plain values."""
        shown = {"level": self.name, "verdict": str(self.verdict)}
        return {**shown, "shows": SHOWS[self.name], "message": self.message}


def levels(view: View, claims: Sequence[Claim]) -> list[Level]:
    """Return the five levels; each rests on the claims of its own level and on the levels below."""
    found: list[Level] = []
    for name in PROOFS:
        own = [claim for claim in claims if claim.level == name]
        if not applies(view, name):
            found.append(Level(name, Verdict.SKIP, _not_best(view)))
            continue
        first = next((claim for claim in own if claim.id == DECIDES.get(name)), None)
        bad = any(claim.verdict is Verdict.FAIL for claim in own)
        if first is not None and first.verdict is Verdict.SKIP and not bad:
            asked = view.head.plan.get("require") == name  # in so many words, so silence is no pass
            found.append(Level(name, Verdict.UNKNOWN if asked else Verdict.SKIP, first.message))
            continue
        below = next((each for each in found if each.verdict in _SHORT), None)
        verdict = roll_up(claim.verdict for claim in own)
        why = [claim for claim in own if claim.verdict is verdict]
        message = SHOWS[name] if verdict is Verdict.PASS else _rests_on(why)
        if verdict is Verdict.PASS and below is not None:
            verdict, message = Verdict.UNKNOWN, f"rests on {below.name}, which was not shown"
        found.append(Level(name, verdict, message))
    return found


def _rests_on(claims: Sequence[Claim]) -> str:
    """Return which claims decide, and the message of the first."""
    return f"{', '.join(claim.id for claim in claims)}: {claims[0].message}" if claims else ""


_SHORT = frozenset((Verdict.FAIL, Verdict.UNKNOWN))


def highest(found: Sequence[Level]) -> str:
    """Return the highest level shown with all below it, `none` where not even L0 was.

    A level that does not apply is no hindrance to those above it.
    """
    best = NONE
    for level in found:
        if level.verdict in _SHORT:
            break
        if level.verdict is Verdict.PASS:
            best = level.name
    return best
