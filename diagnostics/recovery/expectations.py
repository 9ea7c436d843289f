"""Did the recovery happen as the drill says it must? What was seen, beside what is expected.

In: a View. Out: claims from `fault-fired` to `no-process-left`. Without a fault there was nothing
to recover from, and what did not happen may only be unread where the record has gaps: UNKNOWN.
"""

from collections.abc import Sequence

from rackproof.diagnostics.recovery.claims import Claim, broken, holds, left_out, some, unknown
from rackproof.diagnostics.recovery.ending import ending
from rackproof.diagnostics.recovery.record import Fact
from rackproof.diagnostics.recovery.strikes import akin, place
from rackproof.diagnostics.recovery.telling import whole
from rackproof.diagnostics.recovery.timeline import (
    DETECTED,
    FAULT,
    RESUMED,
    flat,
    follows,
    recoveries,
)
from rackproof.diagnostics.recovery.unhurt import CURE, OTHER, unhurt
from rackproof.diagnostics.recovery.view import View, no_space

TELEMETRY = frozenset(("detected", "diagnosed", "decided", "told"))
"""What none but the watch over the rack says."""


def fault_fired(view: View) -> Claim:
    """Did every injection strike? A drill without a fault shows nothing."""
    cure = "hold the drill again, with more steps or another seed"
    cure = "make room, and hold it again" if no_space(view.record) else cure
    if not view.struck:
        return unknown("fault-fired", "nothing was injected", cure)
    other = unhurt(view)
    if other:
        return unknown("fault-fired", other, CURE)
    if view.idle:
        why = _unplaced(view)
        said = f"{view.idle[0]} was injected, and nothing shows that it struck"
        return unknown("fault-fired", why or said, cure)
    return holds("fault-fired", some([f"{s.on}: {s.evidence}" for s in view.struck]))


def _unplaced(view: View) -> str:
    """Return why a fault of the drill could not be placed at all, where that is known."""
    facts = [f.fields for f in view.facts("fired") if f.fields.get("why")]
    return next((f"{each.get('fault')}: {each['why']}" for each in facts), "")


def detected(view: View) -> Claim:
    """Was the fault found, and on the member that had it?"""
    wanted = DETECTED in view.expected.timeline or view.expected.detect is not None
    if not view.fired:
        return view.unfired("detected") if wanted else left_out("detected", "not asked for")
    first = view.first(DETECTED)
    if first is None:
        if wanted:
            return view.unseen("detected", f"{view.windows[0].strikes[0].on} was not detected")
        return left_out("detected", "nobody detected it, and nobody had to")
    named = [each.who for each in view.words if each.what == DETECTED and each.who]
    struck = [strike for strike in view.struck if strike.member]
    right = any(strike.concerns(each) for strike in struck for each in named)
    if wanted and struck and named and not right:
        said = f"{first.strikes[0].on} struck, and {', '.join(dict.fromkeys(named))} was detected"
        return broken("detected", said)
    return holds("detected", f"{first.found or 0.0:.3f} s after the fault")


def isolated(view: View) -> Claim:
    """Was the fault kept to its replica: nothing waits for it, and for nobody else?"""
    wanted = "isolated" in view.expected.timeline
    if not wanted:
        return left_out("isolated", "not asked for")
    if not view.fired:
        return view.unfired("isolated")
    window = view.first("isolated")
    if window is None:
        return view.unseen("isolated", f"{view.windows[0].strikes[0].on} was not isolated")
    named = _isolated(view)
    struck = [strike for strike in view.struck if strike.member]
    if struck and not any(strike.concerns(each) for strike in struck for each in named):
        said = f"{window.strikes[0].on} struck, and {', '.join(named)} was isolated"
        return broken("isolated", said)
    took = (window.when("isolated") or window.at) - window.at
    return holds("isolated", f"{', '.join(named)}, {took:.3f} s after the fault")


def _isolated(view: View) -> list[str]:
    return list(dict.fromkeys(what.text("member") for what in view.faulted.of("isolated")))


def evicted(view: View) -> Claim:
    """Were those members isolated that had to be, and no others?"""
    wanted = view.expected.evicted
    if wanted is None:
        return left_out("evicted", "not asked for")
    named = _isolated(view)
    more = [each for each in named if each not in wanted]
    if more:
        return broken("evicted", f"{', '.join(more)} was isolated, and had no fault")
    if not view.fired:
        return view.unfired("evicted")
    less = [each for each in wanted if each not in named]
    if less:
        return view.unseen("evicted", f"{', '.join(less)} was not isolated")
    return holds("evicted", f"isolated: {', '.join(named) or 'nobody'}, as it had to be")


def timeline(view: View) -> Claim:
    """Did every step of the recovery happen, in its order, and nothing that must not?"""
    wanted, absent = view.expected.timeline, view.expected.absent
    if not (wanted or absent):
        return left_out("timeline", "not asked for")
    moments = flat(view.windows)
    seen = {moment.what for moment in moments} | {moment.what for moment in view.words}
    wrong = [word for word in absent if word in seen]
    if wrong:
        return broken("timeline", f"{', '.join(wrong)}: must not happen, and did")
    if not view.fired:
        return view.unfired("timeline")
    missing = [word for word in wanted if word not in seen]
    if missing:
        lacks = view.unresumed if missing == [RESUMED] else view.unseen
        return lacks("timeline", f"did not happen: {', '.join(missing)}")
    late = follows(moments, wanted)
    if late:
        order = ", ".join(moment.what for moment in moments)
        return broken("timeline", f"{late} came out of its order: {order}")
    return holds("timeline", " → ".join(wanted) or f"without {', '.join(absent)}")


def restarts(view: View) -> Claim:
    """Did the whole job go back to a checkpoint no oftener than allowed?"""
    count, most = view.restarts, view.expected.restarts
    if count > most:
        return broken("restarts", f"the whole job went back {count} times, {most} allowed", "L1")
    if view.expected.must_restart and not count:
        if not view.fired:
            return view.unfired("restarts", "L1")
        return view.absent("restarts", "the whole job had to go back to a checkpoint", "L1")
    return holds("restarts", f"the whole job went back {count} times, {most} allowed", "L1")


def lost_steps(view: View) -> Claim:
    """Were no more committed steps undone than allowed?"""
    lost, most = view.path.lost, view.expected.lost_steps
    said = f"{lost} committed steps had to be done again, {most} allowed"
    if from_nothing(view):
        said += "; it began at step 1 again, with nothing of what it had done"
    return (broken if lost > most else holds)("lost-steps", said, "L1")


def from_nothing(view: View) -> bool:
    """Say whether a run went back to its very beginning though steps had been committed."""
    return any(back.to < view.path.base for back in view.path.rollbacks)


def kinds(view: View) -> Claim:
    """Was all of it said that must be, and nothing that must not?"""
    wanted, unwanted = view.expected.kinds, view.expected.unseen
    if not (wanted or unwanted):
        return left_out("kinds", "not asked for")
    seen = {what.kind for what in view.faulted.course.happenings}
    wrong = [kind for kind in unwanted if kind in seen]
    if wrong:
        return broken("kinds", f"{', '.join(wrong)}: must not happen, and did")
    missing = [kind for kind in wanted if kind not in seen]
    if missing:
        if not view.fired:
            return view.unfired("kinds")
        dark = view.blind and set(missing) <= TELEMETRY
        lacks = view.unwatched if dark else view.unseen
        return lacks("kinds", f"did not happen: {', '.join(missing)}")
    return holds("kinds", ", ".join(wanted) or f"without {', '.join(unwanted)}")


def diagnosis(view: View) -> Claim:
    """Did telemetry find it, and diagnostics name the right part?"""
    wanted = view.expected.components
    if not wanted:
        return left_out("diagnosis", "the rack takes no part in this drill")
    if not view.fired:
        return view.unfired("diagnosis")
    found = list(view.faulted.of("diagnosed"))
    if not found or (view.blind and not any(what.text("component") for what in found)):
        lacks = view.unwatched if view.blind else view.absent
        return lacks("diagnosis", "telemetry found nothing")
    struck = [strike.subject for strike in view.struck]
    right = [w for w in found if w.text("component") in wanted]
    if not right:
        said = ", ".join(dict.fromkeys(what.text("component") or "nothing" for what in found))
        return broken("diagnosis", f"{said} was diagnosed, {' or '.join(wanted)} it is")
    places = [what.text("subject") for what in right]
    if all(struck) and not any(akin(one, other) for one in places for other in struck):
        said = f"{places[0]} was accused, {struck[0]} had the fault"
        return broken("diagnosis", said)
    action = f", action {right[0].text('action')}" if right[0].text("action") else ""
    return holds("diagnosis", f"{right[0].text('component')} of {places[0]}{action}")


def budget_detect(view: View) -> Claim:
    """Was each fault detected in time?"""
    most = view.expected.detect
    if most is None:
        return left_out("budget detect", "no budget", "L1")
    if not view.fired:
        return view.unfired("budget detect", "L1")
    found = [window.found for window in view.windows]
    known = [each for each in found if each is not None]
    if not known:
        return view.unseen("budget detect", f"not detected, {most:g} s allowed", "L1")
    said = f"detected {max(known):.3f} s after the fault, {most:g} s allowed"
    return (broken if max(known) > most else holds)("budget detect", said, "L1")


def budget_resume(view: View) -> Claim:
    """Was a step committed again in time?"""
    most = view.expected.resume
    if most is None:
        return left_out("budget resume", "no budget", "L1")
    if not view.fired:
        return view.unfired("budget resume", "L1")
    spans = recoveries(view.windows)
    if any(end is None for _, end in spans):
        return view.unresumed("budget resume", "no step was committed after the recovery", "L1")
    step = view.step
    if view.expected.resume_steps and step is None:
        cure = "hold it with fault-free runs"
        return unknown("budget resume", "how long a step takes is not known", cure, "L1")
    allowed = most + view.expected.resume_steps * (step or 0.0)
    took = max(end - begin for begin, end in spans if end is not None)
    said = f"{took:.3f} s from fault to {RESUMED}, {allowed:.3f} s allowed"
    return (broken if took > allowed else holds)("budget resume", said, "L1")


def survived(view: View) -> Claim:
    """Was a new step committed after the fault?"""
    if not view.fired:
        return view.unfired("survived", "L0")
    if unhurt(view):
        return unknown("survived", OTHER, "see the claim fault-fired", "L0")
    at = view.windows[0].at
    before = view.path.newest(at)
    if before >= view.last:
        cure = "hold the drill again, with more steps"
        return unknown("survived", f"the {FAULT} came after the last step", cure, "L0")
    if view.path.top <= before:
        return view.unresumed("survived", f"no step after step {before}, the {FAULT}'s", "L0")
    return holds("survived", f"steps {before + 1} to {view.path.top} came after the fault", "L0")


def reached(view: View) -> Claim:
    """Did the run come to its last step, and to its end by itself?"""
    path, course = view.path, view.faulted.course
    if path.top < view.last:
        done = len(path.steps)
        how = f": {ending(view)}" if view.facts("outcome", "died") else ""
        said = f"{done} of {view.head.steps} steps were committed{how}{_from_another(view)}"
        return view.unresumed("reached", said, "L1")
    if not course.finished:
        return view.absent("reached", f"it came to step {path.top}, and then: {ending(view)}", "L1")
    return holds("reached", f"{view.head.steps} of {view.head.steps} steps, and its end", "L1")


def _from_another(view: View) -> str:
    """Return in words that it went on from a checkpoint of another run, where it did."""
    own = {place(what.fields.get("uri")) for what in view.faulted.of("ckpt")}
    for what in view.faulted.of("restore"):
        step, uri = whole(what.fields.get("step")), what.text("uri")
        if step is not None and step > view.most and uri and place(uri) not in own:
            return f"; it restored step {step} from {uri}, which this run did not write"
    return ""


def no_process_left(view: View) -> Claim:
    """Was nothing of the run still there after its end? Nor of one of a command without a fault?"""
    facts = view.facts("left-behind")
    judged = view.head.layer == "C" and view.record.faulted is not None
    for told in view.clean if judged else ():
        if told.course.finished:
            facts += view.facts("left-behind", course=told.course.name)
    left = [_named(view, pid, fact) for fact in facts for pid in _pids(fact.fields.get("pids"))]
    if left:
        said = f"{len(left)} were still there, and were ended: {some(left)}"
        return broken("no-process-left", said)
    ours = {
        pid
        for fact in view.facts("alive")
        if fact.fields.get("ours") is True and (pid := whole(fact.fields.get("pid")))
    }
    gone = {whole(fact.fields.get("pid")) for fact in view.facts("died", "gone")}
    if ours - gone:
        said = f"nobody saw the end of {_named(view, min(ours - gone))}"
        return unknown("no-process-left", said, "hold the drill again")
    if not facts and not gone:
        return unknown("no-process-left", "nobody looked for processes", "hold the drill again")
    return holds("no-process-left", f"{len(gone)} processes, all of them gone")


def _named(view: View, pid: object, fact: Fact | None = None) -> str:
    """Return a process in words: its pid, and whose it is, as far as that is known."""
    told = [(what.fields.get("pid"), what.who) for what in view.faulted.of("hello")]
    told += [(f.fields.get("pid"), str(f.fields.get("member"))) for f in view.facts("alive")]
    there = fact is None or fact.course == "faulted"
    who = next((name for number, name in told if number == pid and there), "")
    below = fact.fields.get("member") if fact is not None else None
    if not who and isinstance(below, str) and below:
        who = f"started by {below}" if there or fact is None else f"{below} of {fact.course}"
    return f"process {pid} ({who})" if who else f"process {pid}"


def _pids(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else []
