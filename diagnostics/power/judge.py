"""judge(record, claims) -> Judged: the claims DD1 to DD13, the six steps in time, the ledger.

In: a PowerRecord, which of the criteria are due, and what was judged of the training run. Out: what
the judge of recoveries puts in place of its own timeline and ledger.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np

from rackproof.diagnostics.power import claims, claims_job, claims_plant
from rackproof.diagnostics.power.claims_job import RESTS_ON
from rackproof.diagnostics.power.record import DIMMED, PowerRecord
from rackproof.diagnostics.power.whole import doubts, gaps
from rackproof.diagnostics.power.windows import Window, brief, seconds_under, span, windows
from rackproof.diagnostics.recovery.claims import Claim, broken, holds, left_out, some, unknown
from rackproof.diagnostics.recovery.ledger import SHARES, Ledger
from rackproof.diagnostics.recovery.timeline import Moment
from rackproof.diagnostics.verdict import Verdict

STEPS = (
    "overload-detected", "dimmer-acts", "bbu-cbu-respond", "bess-utility-coordinate",
    "power-ramped", "continued",
)  # fmt: skip
"""The six steps of a transient, in the contract's words."""
ANSWERS = 0.002
"""A store answers where it gives, or takes, more than this share of the feed's steady load."""
SUDDEN = frozenset({"DD2", "DD9", "cooling"})
"""A drill that is held for one of these has a sudden transient of its own, with all six steps."""
LASTING = {
    "DD8 stores": ("bbu-empty",), "DD13 sag": ("gpu-reset",), "cooling": ("slowdown",),
}  # fmt: skip
"""What equipment did, by the claim that it breaks: no missing line undoes it."""
ALL = tuple(f"DD{number}" for number in range(1, 14))


@dataclass(frozen=True, slots=True)
class Cut:
    """Why a record does not hold all that should be in it; none: an empty text.

    `lines`: some of it may be missing at whatever place. Else all is there until the run was cut.
    """

    why: str
    lines: bool


WHOLE = Cut("", lines=False)


@dataclass(frozen=True, slots=True)
class Judged:
    """What is said of a power run. Moments are in its virtual seconds."""

    claims: tuple[Claim, ...]
    timeline: tuple[Moment, ...]
    ledger: Ledger | None


def judge(
    record: PowerRecord,
    due: Collection[str],
    training: list[Claim],
    planned: int = 0,
    cut: Cut = WHOLE,
) -> Judged:
    """Return what is to be said; `due` are the criteria that the drill is held for.

    What of `due` is no criterion is the name of a sub-drill that has to be in the record. `planned`
    are the steps of the training run. `cut` says whether the record holds all that happened.
    """
    found = windows(record)
    moments = [_six(record, window) for window in found]
    made: list[tuple[str, Callable[[bool], Claim]]] = [
        ("DD1", lambda due: claims.no_trip(record, due=due)),
        ("DD2", lambda due: claims.in_time(record, found, due=due)),
        ("DD3", lambda due: claims.settles(record, found, due=due)),
        ("DD4", lambda due: claims.ramps(record, found, due=due)),
        ("DD5", lambda due: claims_job.training(record, training, found, planned=planned, due=due)),
        ("DD6", lambda due: claims_job.throughput(record, found, due=due)),
        ("DD7", lambda due: claims_job.spread(record, found, due=due)),
        ("DD8", lambda due: claims_plant.stores(record, due=due)),
        ("DD9", lambda due: claims.lost_telemetry(record, due=due)),
        ("DD10", lambda due: claims.priority(record, found, due=due)),
        ("DD11", lambda due: claims_job.put_back(record, due=due)),
        ("DD12", lambda due: claims_plant.control(record, due=due)),
        ("DD13", lambda due: claims_plant.sag(record, due=due)),
        ("cooling", lambda due: claims_job.cool(record, due=due)),
    ]
    said = [_asked(make(name in due), asked=name in due) for name, make in made]
    parts = {*due} - {name for name, _ in made}
    six = _asked(_steps(record, found, moments), asked=not SUDDEN.isdisjoint(due))
    counted = _counted(record, [six, *said], training, _lacks(record, parts, cut))
    return Judged(
        (_whole(record, parts), *counted),
        tuple(moment for group in moments for moment in group),
        _ledger(record),
    )


def _lacks(record: PowerRecord, parts: Collection[str], cut: Cut) -> Cut:
    """Return `cut`, or what else a record lacks: what cannot be read, or never came to its end."""
    found = [] if cut.lines else [*record.problems, *gaps(record, parts)]
    return Cut(found[0], lines=True) if found else cut


def _counted(
    record: PowerRecord, said: list[Claim], training: list[Claim], cut: Cut
) -> list[Claim]:
    """Return claims as they count: none may FAIL for what is missing of a record."""
    lasting = _lasting(record, training, cut)
    return [
        unknown(claim.id, f"{cut.why}: {claim.message}", "hold the drill again")
        if cut.why and claim.verdict is Verdict.FAIL and claim.id not in lasting
        else claim
        for claim in said
    ]


def _lasting(record: PowerRecord, training: list[Claim], cut: Cut) -> set[str]:
    """Return the claims that nothing that is missing can undo: what was seen, and happened."""
    found = {name for name, whats in LASTING.items() if record.happened(*whats)}
    if claims_plant.misused(record):
        found.add("DD8 stores")
    if any(c.id in RESTS_ON and c.verdict is Verdict.FAIL for c in training):
        found.add("DD5 training")
    return found | {"DD1 no trip"} | (set() if cut.lines else {"DD4 ramps", "DD13 sag"})


def _asked(claim: Claim, *, asked: bool) -> Claim:
    """Return a claim as it counts: what nobody asked for, and nobody can judge, is neutral."""
    if asked or claim.verdict is not Verdict.UNKNOWN:
        return claim
    return left_out(claim.id, f"not what this drill is held for: {claim.message}")


def _whole(record: PowerRecord, parts: Collection[str]) -> Claim:
    """Could all of the power record be read, and does it hold together?"""
    if record.problems:
        return unknown("power-record", some(record.problems), "read the one that was written")
    found = doubts(record, parts)
    if found:
        return unknown("power-record", some(found), "hold the drill again")
    return holds("power-record", f"{len(record.series)} traces over {record.end:.0f} s of the rack")


def _six(record: PowerRecord, window: Window) -> list[Moment]:
    """Return the six steps of one transient, those of them that were seen, in order."""
    event = window.event
    found: list[tuple[float | None, str]] = []
    seen = window.first("overload-detected")
    acts = window.first("dimmer-acts")
    found.append((None if seen is None else seen.at, STEPS[0]))
    found.append((None if acts is None else acts.at, STEPS[1]))
    begin = event.at if acts is None else acts.at
    racks = [name for name in record.feeds if name.startswith("rack")]
    near = _answer(record, racks, ("bbu", "cbu"), begin, window)
    found.append((near, STEPS[2]))
    # A site's store gives and takes all the time; of a transient is what comes after the rack's.
    far = _answer(record, list(record.feeds), ("bess",), begin, window)
    found.append((max(far, near) if far and near else far, STEPS[3]))
    took = seconds_under(record, window)
    at = None if took is None or took == np.inf else window.begin + took
    last = max([begin, *(t for t, _ in found if t is not None)])
    found.append((None if at is None else max(at, last), STEPS[4]))
    end = found[-1][0]
    found.append((_next_step(record, end, window), STEPS[5]))
    return [Moment(float(t), what, who=event.feed) for t, what in found if t is not None]


def _answer(
    record: PowerRecord, feeds: list[str], names: tuple[str, ...], begin: float, window: Window
) -> float | None:
    """Return when a store of those names first gave or took power after a moment."""
    least = ANSWERS * window.event.steady
    times = []
    for feed in feeds:
        series = record.series.get((DIMMED, feed))
        for name in names if series is not None else ():
            given = series.out.get(name) if series is not None else None
            if series is None or given is None:
                continue
            part = (series.at > begin) & (series.at <= window.until) & (np.abs(given) > least)
            times += [float(series.at[part][0])] if part.any() else []
    return min(times, default=None)


def _next_step(record: PowerRecord, at: float | None, window: Window) -> float | None:
    steps = record.steps.get(record.training)
    if at is None or steps is None:
        return None
    after = steps.end[(steps.end >= at) & (steps.end <= window.until + span(record))]
    return float(after[0]) if len(after) else None


def _steps(record: PowerRecord, found: list[Window], moments: list[list[Moment]]) -> Claim:
    """Were all six steps seen in each transient, in their order?"""
    name = "six-steps"
    own = [
        (w, m)
        for w, m in zip(found, moments, strict=True)
        if w.event.what != "ramp" and (w.possible or claims.bites(record, w))
    ]
    soon = [w.name for w, _ in own if brief(w, record)]
    own = [(w, m) for w, m in own if not brief(w, record)]
    if not own and found and not soon:
        return left_out(name, "no sudden transient in this drill")
    if not own:
        what = f"{soon[0]}: it was over too soon" if soon else "no transient is in the record"
        return unknown(name, what, "hold the drill again")
    for window, group in own:
        absent = _nobody(record, window)
        seen = {each.what for each in group} | absent.keys()
        missing = [word for word in STEPS if word not in seen]
        if missing and _blind(record, window, missing[0]):
            said = f"{window.name}: {missing[0]} cannot be seen in the record"
            return unknown(name, said, "hold the drill again")
        if missing:
            return broken(name, f"{window.name}: {', '.join(missing)} was not seen")
        order = [each.at for each in group]
        if order != sorted(order):
            said = ", ".join(f"{each.what} {each.at:.1f} s" for each in group)
            return broken(name, f"{window.name}: out of their order: {said}")
    without = {why for window, _ in own for why in _nobody(record, window).values()}
    beside = f" ({some(sorted(without))})" if without else ""
    return holds(name, f"{' → '.join(STEPS)}, in each of {len(own)} transients{beside}")


def _nobody(record: PowerRecord, window: Window) -> dict[str, str]:
    """Return the steps that nobody is there for, by what was built and recorded, and why."""
    built = {key.rpartition(".")[0].rpartition(".")[2] for key in record.settings}
    known = built | {store for series in record.series.values() for store in series.out}
    found = {}
    if "bbu" in known and "cbu" not in known and not window.emergency:
        found[STEPS[2]] = f"no CBU: but for lost mains no {STEPS[2]}"
    if "bbu" in known and "bess" not in known:
        found[STEPS[3]] = f"no BESS: no {STEPS[3]}"
    return found


def _blind(record: PowerRecord, window: Window, word: str) -> bool:
    """Say whether a record lacks what a word of the timeline is seen in."""
    if word == STEPS[5]:
        return record.training not in record.steps
    if word == STEPS[4]:
        return seconds_under(record, window) is None
    names = {STEPS[2]: ("bbu", "cbu"), STEPS[3]: ("bess",)}.get(word, ())
    known = {store for series in record.series.values() for store in series.out}
    return bool(names) and not known & {*names}


def _ledger(record: PowerRecord) -> Ledger | None:
    """Return the ledger in virtual time: of each step, what full power would have saved is dimmed.

    A step's time at full power is the median of the steps that ended before the first event.
    """
    steps = record.steps.get(record.training)
    if steps is None or not len(steps.end):
        return None
    seconds = steps.end - steps.begin
    if not np.isfinite([steps.begin, steps.end]).all() or (seconds <= 0.0).any():
        return None
    first = min((event.at for event in record.events if event.run == DIMMED), default=np.inf)
    before = seconds[steps.end <= first]
    usual = float(np.median(before if len(before) else seconds))
    wall = float(steps.end[-1] - steps.begin[0])
    dimmed = float(np.maximum(seconds - usual, 0.0).sum())
    if not 0.0 <= dimmed <= wall:
        return None
    shares = dict.fromkeys(SHARES, 0.0)
    shares["dimmed"], shares["productive"] = dimmed, wall - dimmed
    return Ledger(shares, wall, step=usual)
