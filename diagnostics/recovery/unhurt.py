"""A command that was killed and goes on as if nothing had been: then another process trains.

In: a View. Out: in words, that a kill did not strike who trains. What was killed says no step any
more: whoever speaks for it must be another process, which says hello, restores or is a new attempt.
Ranks that were not hit may go on, so only the words of who was hit count.
"""

import math
from collections.abc import Iterator
from itertools import pairwise

from rackproof.diagnostics.recovery.strikes import DRILL, SLACK, Strike
from rackproof.diagnostics.recovery.telling import listed, whole
from rackproof.diagnostics.recovery.view import View
from rackproof.harness.happening import Happening

OTHER = "the process that was killed is not the one that trains"
SEVERAL = "several processes said hello as {who}"
CURE = "say hello once, in the process that trains"
RENEWED = frozenset(("lost", "isolated", "spare-active", "restarted"))
PAUSE = 2.0  # times the longest other pause between two steps: somebody was started again

Life = tuple[str, int]
"""Who speaks, and in which attempt."""


def unhurt(view: View) -> str:
    """Return why a kill struck nobody who trains; an empty text where nothing shows that."""
    if view.head.layer != "C":
        return ""
    kills = [strike for strike in view.struck if strike.fault == "kill" and strike.fired]
    for strike in kills:
        later = [each.at for each in kills if each.at > strike.at and _one_copy(each, strike)]
        said = _goes_on(view, strike, min(later, default=math.inf))
        if said:
            return said
    return ""


def doubled(view: View, course: str = "faulted") -> str:
    """Return in words that several living processes said hello as one rank."""
    facts = view.facts("doubled", course=course)
    return SEVERAL.format(who=facts[0].fields.get("member")) if facts else ""


def _goes_on(view: View, strike: Strike, until: float) -> str:
    lives = _lives(view, strike)
    died = [f.at for f in view.facts("died") if whole(f.fields.get("pid")) == strike.pid]
    dead = min((at for at in died if at >= strike.at - SLACK), default=strike.at)
    if any(_renews(view, each, strike) for each in _between(view, strike, until)):
        return ""
    said = [w for w in _steps(view, lives) if dead + SLACK < w.at <= until]
    if not said or (not _hellos(view, strike) and _paused(view, strike, lives)):
        return ""
    steps = sorted({whole(what.fields.get("step")) or 0 for what in said})
    told = f"{strike.member} told step {listed(steps)} after process {strike.pid} was killed"
    return f"{told}, and nothing was started again: {doubled(view) or OTHER}"


def _copy(member: str) -> str:
    return member.partition(".")[0]


def _one_copy(one: Strike, other: Strike) -> bool:
    return _copy(one.member) == _copy(other.member)


def _hellos(view: View, strike: Strike) -> list[Happening]:
    """Return the lines that named the process that was killed."""
    named = (w for w in view.faulted.of("hello") if whole(w.fields.get("pid")) == strike.pid)
    return [what for what in named if what.at <= strike.at]


def _lives(view: View, strike: Strike) -> set[Life]:
    """Return whose words would be those of the process: as it named itself, else of its copy."""
    named = _hellos(view, strike)
    if named:
        return {(named[-1].who, named[-1].attempt)}
    known = {
        (what.who, what.attempt)
        for what in view.faulted.of("step")
        if what.at <= strike.at and _copy(what.who) == _copy(strike.member)
    }
    newest = max((attempt for _, attempt in known), default=0)
    return {life for life in known if life[1] == newest}


def _steps(view: View, lives: set[Life]) -> Iterator[Happening]:
    return (what for what in view.faulted.of("step") if (what.who, what.attempt) in lives)


def _between(view: View, strike: Strike, until: float) -> Iterator[Happening]:
    return (what for what in view.faulted.course.happenings if strike.at < what.at <= until)


def _renews(view: View, what: Happening, strike: Strike) -> bool:
    """Say whether somebody of the copy was started again, or went back."""
    if what.who == DRILL:
        member = what.text("member")
        return what.kind in RENEWED and (not member or _copy(member) == _copy(strike.member))
    if _copy(what.who) != _copy(strike.member):
        return False
    attempts = [attempt for _, attempt in _lives(view, strike)]
    newer = bool(attempts) and what.attempt > max(attempts)
    fresh = what.kind == "hello" and what.fields.get("pid") != strike.pid
    return newer or fresh or what.kind == "restore"


def _paused(view: View, strike: Strike, lives: set[Life]) -> bool:
    """Say whether steps paused over the kill, as where a launcher starts who said no hello."""
    times = sorted(what.at for what in _steps(view, lives))
    gaps = [(end - begin, begin <= strike.at < end) for begin, end in pairwise(times)]
    over = max((gap for gap, across in gaps if across), default=0.0)
    return over > PAUSE * max((gap for gap, across in gaps if not across), default=0.0)
