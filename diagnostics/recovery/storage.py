"""Is what was said to be stored there, whole, and the state that was claimed?

In: a View, with every checkpoint read again by us. Out: the claims `checkpoints`, `restores`,
`passed-over` and `final-state`. What a drill damaged on purpose (`damages` of its injection: URIs
of checkpoints, or of the tiers that hold them) is excused from then on, and nothing else.
"""

import bisect
import math
from collections.abc import Collection, Mapping, Sequence

from rackproof.diagnostics.recovery.claims import Claim, broken, holds, left_out, some, unknown
from rackproof.diagnostics.recovery.record import Fact
from rackproof.diagnostics.recovery.segments import PEER
from rackproof.diagnostics.recovery.strikes import place
from rackproof.diagnostics.recovery.telling import shorten, whole
from rackproof.diagnostics.recovery.trajectory import Trajectory
from rackproof.diagnostics.recovery.view import FIELDS, View
from rackproof.harness.happening import GONE, Happening

EMIT = "emit `digest` in step events, or ask for less: --require L1"
LOOK = "have RP_CKPT_URL hold checkpoints that can be read again, or ask for less: --require L1"


OTHER_KIND = "the digests that were told are of another kind than those of what is stored"
KIND_CURE = "tell the digest that docs/checkpoint-format.md defines, or ask for less: --require L1"


def damaged(view: View, uri: str, since: float, until: float = math.inf) -> bool:
    """Say whether the drill itself damaged a checkpoint, or its tier, between two times."""
    return any(
        uri == each or uri.startswith(f"{each}/")
        for strike in view.struck
        if since <= strike.at <= until
        for each in strike.damages
    )


Saves = Sequence[tuple[float, int | None]]


def saves(view: View) -> Mapping[str, Saves]:
    """Return when each checkpoint was said to be committed, and of which step, by URI."""
    found: dict[str, list[tuple[float, int | None]]] = {}
    for what in view.faulted.of("ckpt"):
        if what.text("phase") == "committed":
            one = (what.at, whole(what.fields.get("step")))
            found.setdefault(place(what.fields.get("uri")), []).append(one)
    return found


def removed(view: View) -> Mapping[str, float]:
    """Return when each checkpoint was last said to be removed, by URI: who keeps the newest few."""
    told = (what for what in view.faulted.of("ckpt") if what.text("phase") == "removed")
    return {place(what.fields.get("uri")): what.at for what in told}


def newest(told: Saves, until: float) -> tuple[float, int | None] | None:
    """Return the last save up to a time, None before the first."""
    at = bisect.bisect_right([at for at, _ in told], until)
    return told[at - 1] if at else None


def reread(view: View) -> Mapping[str, Fact]:
    """Return what was read again, by URI; not what lies where we do not look."""
    return {
        uri: fact
        for fact in view.facts("checkpoint")
        if (uri := place(fact.fields.get("uri"))) and fact.fields.get("looked") is not False
    }


def elsewhere(view: View) -> list[str]:
    """Return what was not looked at, because of where it lies, and why."""
    return [
        f"{fact.fields.get('uri')} {fact.fields.get('problem')}"
        for fact in view.facts("checkpoint")
        if fact.fields.get("looked") is False
    ]


def checkpoints(view: View) -> Claim:
    """Does every checkpoint that was said to be committed verify, with the state of its step?"""
    away = elsewhere(view)
    return unknown("checkpoints", away[0], LOOK, "L2") if away else _checkpoints(view)


def _checkpoints(view: View) -> Claim:
    said = saves(view)
    found = reread(view)
    blind = [f for f in view.facts("checkpoint") if not place(f.fields.get("uri"))]
    gone = removed(view)
    wrong, absent = [], []
    for uri, told in said.items():
        at, step = told[-1]
        if damaged(view, uri, at):
            continue
        if uri in found:
            wrong += _faults(view, uri, found[uri], step)
        elif (found or blind) and gone.get(uri, at) <= at:
            absent.append(f"{uri or 'one without a URI'} was said to be committed, is not there")
    for uri, fact in found.items():
        if uri not in said and fact.fields.get("verifies") is True:
            wrong += _faults(view, uri, fact, None)
        if (whole(fact.fields.get("step")) or 0) > view.most:
            absent.append(f"{uri} is of step {fact.fields['step']}, which was never committed")
    if wrong or (absent and not view.gaps):
        return broken("checkpoints", some([*wrong, *absent]), "L2")
    if absent:
        return view.absent("checkpoints", absent[0], "L2")
    return _enough(view, said, found, blind)


def _enough(
    view: View, said: Collection[str], found: Mapping[str, Fact], blind: Sequence[Fact]
) -> Claim:
    """Say that nothing was wrong, if enough was looked at."""
    lost = [f for f in blind if not _tier_damaged(view, f)]
    if lost:
        why = f"tier {lost[0].fields.get('tier')}: {lost[0].fields.get('problem')}"
        return unknown("checkpoints", why, "let that tier be read again", "L2")
    good = [uri for uri, fact in found.items() if fact.fields.get("verifies") is True]
    every = view.head.checkpoint_every
    if not said and not found and every is not None and every > view.head.steps:
        said_so = f"none was due: one every {every} steps, of {view.head.steps}"
        return left_out("checkpoints", said_so, "L2")
    if not good:
        return unknown("checkpoints", "no checkpoint was read again", LOOK, "L2")
    told = [uri for uri in good if claims_of(view.path, whole(found[uri].fields.get("step")))]
    if told and not one_kind(view):
        return unknown("checkpoints", OTHER_KIND, KIND_CURE, "L2")
    bare = [uri for uri in good if not found[uri].fields.get("digest")]
    if bare:
        return unknown("checkpoints", f"{bare[0]} has no digest of its tensors", LOOK, "L2")
    return holds("checkpoints", f"{len(good)} read again, each whole and of its step's state", "L2")


def _tier_damaged(view: View, fact: Fact) -> bool:
    tier = str(fact.fields.get("tier", ""))
    names = {place(tier), place(tier.partition("=")[2])} - {""}
    return any(names & set(strike.damages) for strike in view.struck)


def _faults(view: View, uri: str, fact: Fact, step: int | None) -> list[str]:
    """Return what is wrong with a checkpoint that was read again."""
    fields, found = fact.fields, whole(fact.fields.get("step"))
    if fields.get("verifies") is not True:
        return [f"{uri} does not verify ({fields.get('problem') or 'no reason given'})"]
    wrong = []
    if step is not None and found != step:
        wrong.append(f"{uri} is of step {found}, and was said to be of step {step}")
    names = fields.get("fields")
    held = names if isinstance(names, list | tuple) else []
    missing = [name for name in FIELDS if name not in held]
    if missing and (view.own or held):
        wrong.append(f"{uri} lacks {', '.join(missing)}")
    claimed = claims_of(view.path, found)
    digest = str(fields.get("digest") or "")
    if digest and claimed and digest not in claimed and one_kind(view):
        own = ", ".join(shorten(each) for each in claimed)
        wrong.append(f"{uri} holds the state {shorten(digest)}, step {found} was told as {own}")
    return wrong


def one_kind(view: View) -> bool:
    """Say whether the digests that are told are those of what is stored, as we hash it.

    Ours are, torchft's layer included. Those of a command are taken to be, once one of them is
    equal, in whatever course.
    """
    if view.head.layer != "C":
        return True
    paths = {told.course.name: told.path for told in (*view.clean, view.faulted)}
    return any(
        fact.fields.get("digest") in claims_of(paths[fact.course], whole(fact.fields.get("step")))
        for fact in view.record.facts
        if fact.what in {"checkpoint", "final"} and fact.course in paths
    )


def claims_of(path: Trajectory, step: int | None) -> list[str]:
    """Return the digests that were told of a step, in whatever generation."""
    return list(path.claims.get(step, ())) if step is not None else []


def restores(view: View) -> Claim:
    """Was state taken only from checkpoints that are whole, and all of their fields?"""
    taken = [w for w in view.faulted.of("restore") if not w.text("uri").startswith(PEER)]
    if not taken:
        return left_out("restores", "nothing was restored from a checkpoint", "L2")
    away = elsewhere(view)
    return unknown("restores", away[0], LOOK, "L2") if away else _restores(view, taken)


def _restores(view: View, taken: Sequence[Happening]) -> Claim:
    found, told = reread(view), saves(view)
    each = [_Restore(view, what, found, told) for what in taken]
    wrong = [said for one in each for said in one.wrong()]
    absent = [said for one in each for said in one.absent()]
    if wrong or (absent and not view.gaps):
        return broken("restores", some([*wrong, *absent]), "L2")
    if absent:
        return view.absent("restores", some(absent), "L2")
    if not found:
        return unknown("restores", "what was restored was not read again", LOOK, "L2")
    gone = [one.uri for one in each if one.gone]
    if gone:
        cure = "keep it to the end, or ask for less: --require L1"
        return unknown("restores", f"{gone[0]} is not there any more", cure, "L2")
    late = [one.uri for one in each if one.rewritten]
    if late:
        cure = "give each checkpoint an address of its own, or ask for less: --require L1"
        return unknown("restores", f"{late[0]} was written again since it was restored", cure, "L2")
    return holds("restores", f"{len(taken)} from checkpoints that verify", "L2")


class _Restore:
    """One state that was taken from a checkpoint, and what is known of that checkpoint."""

    def __init__(
        self, view: View, what: Happening, found: Mapping[str, Fact], told: Mapping[str, Saves]
    ) -> None:
        self.uri, self.step = place(what.fields.get("uri")), whole(what.fields.get("step"))
        self._view, self._what, self._looked = view, what, bool(found)
        self._fact = found.get(self.uri)
        own = told.get(self.uri, ())
        self._save = newest(own, what.at)
        self.rewritten = self._save is not None and own[-1][0] > what.at
        hidden = None if self.step is None else view.untold.get(self.step)
        self._hidden = hidden is not None  # the save, and the step, were not told
        self.gone = (hidden is not None and self._absent(GONE)) or (
            self._fact is None and removed(view).get(self.uri, -math.inf) > what.at
        )

    def _absent(self, why: str) -> bool:
        fields = {} if self._fact is None else self._fact.fields
        return fields.get("verifies") is not True and fields.get("problem") == why

    def _spoilt(self, until: float = math.inf) -> bool:
        """Say whether the drill damaged it after it had been written."""
        since = -math.inf if self._save is None else self._save[0]
        return damaged(self._view, self.uri, since, until)

    def wrong(self) -> list[str]:
        """Return what contradicts it."""
        names, who = self._what.fields.get("fields"), self._what.who
        held = names if isinstance(names, list | tuple) else []
        missing = [name for name in FIELDS if name not in held]
        found = []
        if missing and self._view.own:
            found.append(f"{who} restored step {self.step} without {', '.join(missing)}")
        if self._spoilt():
            if self._spoilt(self._what.at):
                found.append(f"{who} restored {self.uri}, which the drill had damaged")
        elif self.rewritten:
            then = self._save[1] if self._save is not None else None
            if then != self.step and not self._hidden:
                found.append(f"{who} restored {self.uri} as step {self.step}, and it was of {then}")
        elif self._fact is not None and self._fact.fields.get("verifies") is not True:
            if self.gone:
                return found
            found.append(f"{who} restored {self.uri}, which does not verify")
        elif self._fact is not None and whole(self._fact.fields.get("step")) != self.step:
            found.append(f"{who} restored {self.uri} as step {self.step}")
        return found

    def absent(self) -> list[str]:
        """Return what of it is not there: its checkpoint, its step."""
        found, who = [], self._what.who
        if self.step is not None and self.step > self._view.most:
            found.append(f"{who} restored step {self.step}, which was never committed")
        if self._looked and self._fact is None and not (self.gone or self._spoilt()):
            named = self.uri or "a checkpoint without a URI"
            found.append(f"{who} restored {named}, which is not there")
        return found


def passed_over(view: View) -> Claim:
    """Were as many bad checkpoints found and passed over as the drill made, and no good one?"""
    wanted = view.expected.passed_over
    skipped = {
        place(what.fields.get("uri"))
        for what in view.faulted.of("fault")
        if what.fields.get("passed_over") is True
    } - {""}
    found = reread(view)
    good = [
        uri
        for uri in sorted(skipped)
        if not damaged(view, uri, -math.inf)
        and uri in found
        and found[uri].fields.get("verifies") is True
    ]
    if good:
        return broken("passed-over", f"{good[0]} is whole, and was passed over", "L2")
    if not wanted:
        return left_out("passed-over", "no bad checkpoint was to be found")
    if not view.fired:
        return view.unfired("passed-over")
    if len(skipped) < wanted:
        said = f"{len(skipped)} bad checkpoints were passed over, {wanted} had to be"
        return view.absent("passed-over", said)
    return holds("passed-over", f"{some(sorted(skipped))} passed over, and recorded")


def final_state(view: View) -> Claim:
    """Is the last stored state that of the last step, and the one that was claimed for it?"""
    facts = view.facts("final")
    fields = facts[-1].fields if facts else {}
    step, digest = whole(fields.get("step")), str(fields.get("digest") or "")
    earlier = step is None or step < view.last
    if view.head.layer == "C" and earlier and _stored_without_fault(view):
        said = f"the last state, of step {view.last}, is not stored; without the fault it was"
        return unknown("final-state", said, "save after the last step", "L2")
    if step is None or not digest:
        return unknown("final-state", "no state was stored that could be hashed", LOOK, "L4")
    if step != view.last:
        said = f"the last stored state is of step {step}, not of step {view.last}"
        if view.own or step > view.last:
            return view.absent("final-state", said, "L4")
        return unknown("final-state", said, "save after the last step", "L4")
    return _as_told(view, step, digest)


def _stored_without_fault(view: View) -> bool:
    """Say whether every fault-free run stored the state of its last step."""
    facts = [view.facts("final", course=told.course.name)[-1:] for told in view.clean]
    steps = {whole(fact.fields.get("step")) for each in facts for fact in each}
    return steps == {view.last} and all(facts)


def _as_told(view: View, step: int, digest: str) -> Claim:
    claimed = claims_of(view.path, step)
    if not claimed:
        return unknown("final-state", f"no digest was told of step {step}", EMIT, "L4")
    if not one_kind(view):
        return unknown("final-state", OTHER_KIND, KIND_CURE, "L4")
    if claimed != [digest]:
        said = f"stored is {shorten(digest)}, told was {', '.join(map(shorten, claimed))}"
        return broken("final-state", f"step {step}: {said}", "L4")
    return holds("final-state", f"step {step}: stored is {shorten(digest)}, as was told", "L4")
