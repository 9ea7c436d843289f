"""Can the story be true? Steps that go back or jump, two states of one step, words of the dead.

In: a View. Out: the claims `events`, `steps`, `digests` and `processes`. A trainer is believed
where nothing contradicts it, and FAILs where something does; where nobody could look it is UNKNOWN.
"""

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass

from rackproof.diagnostics.recovery.claims import Claim, broken, holds, left_out, some, unknown
from rackproof.diagnostics.recovery.record import Fact
from rackproof.diagnostics.recovery.telling import listed, shorten, whole
from rackproof.diagnostics.recovery.trajectory import Commit
from rackproof.diagnostics.recovery.untold import HIDDEN
from rackproof.diagnostics.recovery.view import Told, View

LATE_OWN = 0.02  # s; our own processes stamp their lines themselves
LATE_OTHER = 1.0  # s; a line that gives no time has that of its reading
FEW = 3  # steps below which a digest that does not change says nothing


def events(view: View) -> Claim:
    """Could all that was said be read, to the end of the record?"""
    if view.gaps:
        return unknown("events", some(view.gaps), "hold the drill again, in a new directory")
    count = len(view.faulted.course.happenings)
    return holds("events", f"{count} lines of the run were read, and the record has its end")


def steps(view: View) -> Claim:
    """Does every step follow from the one before it, once, up to the planned number?"""
    path = view.path
    if not path.steps:
        if view.gaps:
            return unknown("steps", "no step was told", "see the claim events", "L1")
        return unknown(
            "steps", "no step was told",
            "have the command write {kind: step, step: N} lines to RP_EVENTS", "L1",
        )  # fmt: skip
    most = path.most
    wrong = [f"step {most} was told, and {view.head.steps} were planned"] * (most > view.last)
    wrong += _not_finite(view)
    left_over = [step for step in path.missing if step not in view.untold]
    holes = list(path.breaks)
    if left_over:
        holes.append(f"never told: step {listed(left_over)}")
    if wrong or (holes and not view.unread):
        return broken("steps", some([*holes, *wrong]), "L1")
    if holes:
        return unknown("steps", f"{holes[0]}, but {view.unread[0]}", "hold the drill again", "L1")
    saved = [view.untold[step] for step in sorted(view.untold)]
    dark = next((each for each in saved if not each.shown), None)
    if dark is not None:
        cure = "keep the checkpoint from which a run goes on, below RP_CKPT_URL"
        return unknown("steps", f"step {dark.step} was not told, and {dark.problem}", cure, "L1")
    said = f"steps {path.base} to {path.top}, each after the one before it"
    hidden = [f"step {each.step} was not told, {HIDDEN}" for each in saved]
    return holds("steps", "; ".join([said, *hidden[:2], *path.remarks[:2]]), "L1")


def _not_finite(view: View) -> list[str]:
    """Return the steps with a loss that is no number, where the fault-free run has one."""
    clean = view.clean[0].path.steps if view.clean else {}
    found = []
    for step, commit in view.path.steps.items():
        losses = [told.loss for told in commit.told if told.loss is not None]
        bad = next((loss for loss in losses if not math.isfinite(loss)), None)
        other = clean[step].loss if step in clean else None
        if bad is not None and (view.own or (other is not None and math.isfinite(other))):
            found.append(f"the loss of step {step} is {bad}")
    return found


def digests(view: View) -> Claim:
    """Do all processes claim one state for one step, and another for another step?"""
    told = [commit for commit in view.path.commits if commit.digests]
    if not told:
        return left_out("digests", "no digest of a state was told", "L1")
    wrong = [_two(commit) for commit in told if len(commit.digests) > 1]
    wrong += last_words(view.faulted)
    different = {digest for commit in told for digest in commit.digests}
    count = len({commit.step for commit in told})
    if count >= FEW and len(different) * 2 < count:
        wrong.append(f"{len(different)} states were claimed for {count} steps: nothing is trained")
    if wrong:
        return broken("digests", some(wrong), "L1")
    who = max(len({each.who for each in commit.told}) for commit in told)
    said = f"one digest for each of {count} steps"
    return holds("digests", said + (f", told by up to {who} processes" if who > 1 else ""), "L1")


def _two(commit: Commit) -> str:
    both = [f"{who} {digest[:12]}" for digest, who in commit.digests.items()]
    return f"step {commit.step} has several states: {', '.join(both[:3])}"


def last_words(told: Told) -> list[str]:
    """Return what is wrong with the last word of a run: the state with which it says that it ended.

    Of a step that was not read nothing is known.
    """
    found = []
    for what in told.of("ended"):
        step, digest = whole(what.fields.get("step")), what.text("digest")
        commit = told.path.steps.get(step) if step is not None else None
        if commit is None or not digest:
            continue
        own = f"{what.who} ended with the state {shorten(digest)} of step {step}"
        if commit.digests and digest not in commit.digests:
            found.append(f"{own}, which was told as {', '.join(map(shorten, commit.digests))}")
        elif step != told.path.top:
            found.append(f"{own}, and step {told.path.top} was told")
    return found


@dataclass(frozen=True, slots=True)
class _Named:
    """A process as a hello named it."""

    at: float
    who: str
    attempt: int
    pid: int


def _named(view: View) -> list[_Named]:
    found = [(h, whole(h.fields.get("pid"))) for h in view.faulted.of("hello")]
    return [_Named(h.at, h.who, h.attempt, pid) for h, pid in found if pid]


def _pid(fact: Fact) -> int | None:
    return whole(fact.fields.get("pid"))


def processes(view: View) -> Claim:
    """Were the processes that named themselves ours, and silent once they were dead?"""
    named = _named(view)
    wrong = [*_of_the_dead(view, named), *_strangers(view, named)]
    if wrong:
        return broken("processes", some(wrong), "L1")
    if not named:
        if view.own:
            return unknown("processes", "no process named itself", "hold the drill again", "L1")
        return left_out("processes", "no process named itself (hello)", "L1")
    looked = view.facts("alive", "died", "stopped")
    seen = {_pid(f) for f in looked if f.what != "alive" or f.fields.get("ours") is True}
    pids = list(dict.fromkeys(each.pid for each in named))
    unseen = [pid for pid in pids if pid not in seen]
    if unseen:
        said = f"process {listed(unseen)} named itself and was not there to be looked at"
        cure = "have it say hello first, and live until it was seen"
        return unknown("processes", said, cure, "L1")
    return holds("processes", f"{len(pids)} processes named themselves, and were ours", "L1")


def _strangers(view: View, named: Sequence[_Named]) -> list[str]:
    """Return who named a process that is not ours, or one that was not there and yet went on."""
    late = LATE_OWN if view.own else LATE_OTHER
    by_pid = {each.pid: each for each in named}
    newest: dict[tuple[str, int], float] = {}
    for what in view.faulted.of("step"):
        newest[what.who, what.attempt] = what.at
    gone = {_pid(f) for f in view.facts("died")}
    gone |= {_pid(f) for f in view.facts("alive") if f.fields.get("there") is False}
    found = []
    for fact in view.facts("alive"):
        each = by_pid.get(_pid(fact) or 0)
        if each is None or fact.fields.get("ours") is True:
            continue
        there = fact.fields.get("there")
        if there is True or (there is None and each.pid not in gone):
            found.append(f"{each.who} named process {each.pid}, which is not ours")
        elif newest.get((each.who, each.attempt), -math.inf) > fact.at + late:
            found.append(
                f"{each.who} named process {each.pid}, which was not there, and told steps"
            )
    return found


Life = tuple[str, int, int | None]
"""Who, in which attempt, as which process: a launcher may start a rank again within an attempt."""


def _of_the_dead(view: View, named: Sequence[_Named]) -> list[str]:
    """Return what was said by processes that were dead by then."""
    late = LATE_OWN if view.own else LATE_OTHER
    deaths = _deaths(view, named)
    process: dict[tuple[str, int], int] = {}  # whose words they are: of who said hello last
    for each in named:
        process.setdefault((each.who, each.attempt), each.pid)
    found: dict[tuple[str, int], str] = {}
    for what in view.faulted.of("step", "ckpt", "restore", "hello"):
        key, pid = (what.who, what.attempt), whole(what.fields.get("pid"))
        if what.kind == "hello" and pid:
            process[key] = pid
        died = deaths.get((*key, process.get(key)), math.inf)
        if what.at > died + late:
            step = what.fields.get("step")
            said = f"{what.kind} {step}" if step is not None else what.kind
            said = f"{what.who} told {said} {what.at - died:.2f} s after it had died"
            found.setdefault(key, said)
    return list(found.values())


def _deaths(view: View, named: Sequence[_Named]) -> dict[Life, float]:
    """Return when each life ended: that of the process it named, else of who has its name."""
    by_pid: dict[int, list[_Named]] = {}
    for each in named:
        by_pid.setdefault(each.pid, []).append(each)
    greeted = {each.who for each in named}
    spoke: dict[str, list[tuple[float, int]]] = {}
    for what in view.faulted.of("step"):
        if what.who not in greeted:
            spoke.setdefault(what.who, []).append((what.at, what.attempt))
    found: dict[Life, float] = {}
    for fact in view.facts("died"):
        own = [n for n in by_pid.get(_pid(fact) or 0, []) if n.at <= fact.at]
        lines = spoke.get(str(fact.fields.get("member")), [])
        place = bisect.bisect_right([at for at, _ in lines], fact.at)
        key: Life | None = (own[-1].who, own[-1].attempt, own[-1].pid) if own else None
        if key is None and place:
            key = (str(fact.fields.get("member")), max(turn for _, turn in lines[:place]), None)
        if key is not None:
            found[key] = min(found.get(key, math.inf), fact.at)
    return found
