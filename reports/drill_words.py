"""What every report of a drill says in the same words: proof, timeline, ledger, the last line.

In: the contract's JSON of `drill`, and the record that it was judged from. Out: short plain text.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from rackproof.diagnostics.recovery.record import Expected, Head
from rackproof.harness.happening import Happening
from rackproof.reports.words import counted

PROOFS: Mapping[str, str] = {
    "L0": "survived",
    "L1": "reached the last step within its budgets",
    "L2": "checkpoints are intact and every sample is accounted for",
    "L3": "bit-identical to the replay of its own log of membership and quarantine",
    "L4": "bit-identical to the fault-free run",
}
LAYERS: Mapping[str, str] = {
    "A": "our own run in NumPy",
    "B": "torchft",
    "C": "a command",
}
COURSES: Mapping[str, str] = {
    "rehearsal": "once, to count its steps",
    "clean1": "without a fault",
    "clean2": "without a fault, again",
    "faulted": "with the fault",
    "replay": "computed again by one process, from its log",
}
WORDS: Mapping[str, str] = {
    "injected": "fault",
    "detected": "detected",
    "lost": "detected",
    "isolated": "isolated",
    "spare-active": "spare-active",
    "restore": "restored",
    "resynchronised": "resynchronised",
    **{word: f"({word})" for word in ("diagnosed", "decided", "told", "restarted")},
}
"""The timeline's word for a kind of happening; in brackets, what explains it."""
NOTHING = "fault-fired: nothing was injected"
POWER = (
    "power-record", "power-header", "DD1 no trip", "DD13 sag", "DD8 stores", "cooling",
    "DD2 in time", "DD4 ramps", "DD9 lost telemetry", "DD10 priority", "DD3 settles", "six-steps",
    "DD11 put back", "DD12 negative control",
)  # fmt: skip
"""Claims of a power drill: they lead, since training can only feel what power did."""
FELT = ("DD5 training", "DD6 throughput", "DD7 spread")
"""What training felt of it, after the claims of the run itself."""
CRITERIA: Mapping[str, str] = {
    "DD1": "no breaker trips, and no trip integral comes above 0.25",
    "DD2": "the load is under a new limit in 1, 10, 20 or 60 s, by how it may be cut",
    "DD3": "it settles in 0.93 to 0.97 of the limit, and does not hunt",
    "DD4": "no cap moves faster than configured, down or up",
    "DD5": "training never exits, and takes the same steps, bit for bit",
    "DD6": "it loses less throughput than its GPUs save power",
    "DD7": "the spread of its ranks' times grows by 5 % at most",
    "DD8": "stores stay within their ratings, a battery ends at a half at least",
    "DD9": "lost telemetry raises the alarm, and never a cap",
    "DD10": "a job is cut only where those of lower priority are at their floors",
    "DD11": "every limit is what it was afterwards, also after the controller was killed",
    "DD12": "without the Dimmer the same event trips the breaker",
    "DD13": "a short sag moves no load, a battery carries a longer one within 4 ms",
    "cooling": "no GPU comes near its slowdown temperature",
}
ROOTS = (
    "undisturbed",
    "fault-fired", *POWER,
    "processes", "steps", "digests", "restores", "reached", "survived", "detected",
    "isolated", "evicted", "diagnosis", "kinds", "timeline", "restarts", "lost-steps",
    "budget detect", "budget resume", "passed-over", "quarantine", "checkpoints", "samples",
    "final-state", "clean-runs", "determinism", "fault-free", "replay", *FELT, "no-process-left",
)  # fmt: skip
"""Claims, the nearest to the root first: what a run did wrong before what then came too late."""
LEDGER: Mapping[str, str] = {
    "productive": "steps that count",
    "detect": "until the fault was seen",
    "isolate": "until nothing waited for it any more",
    "restore": "until the state was back",
    "recompute": "steps that were done again",
    "checkpoint": "waiting for a checkpoint",
    "degraded": "going on with less than all replicas",
    "dimmed": "at less than full power",
}


def of_power(body: Mapping[str, Any]) -> bool:
    """Say whether a drill was one of the power zone: its seconds are virtual."""
    return any(claim["id"] == POWER[0] and claim["verdict"] != "SKIP" for claim in body["claims"])


def proven(body: Mapping[str, Any]) -> str:
    """Return the level that was shown, with its meaning."""
    level = str(body.get("proof"))
    return f"{level}, {PROOFS[level]}" if level in PROOFS else "no level of proof"


def unshown(body: Mapping[str, Any]) -> list[str]:
    """Return each level above the proof that was not shown, with the reason, lowest first."""
    shown = list(PROOFS).index(body["proof"]) if body.get("proof") in PROOFS else -1
    return [
        f"{level['level']} was not shown: {level['message']}"
        for level in body.get("proofs", ())
        if level["level"] in PROOFS and list(PROOFS).index(level["level"]) > shown
    ]


def resumed_after(body: Mapping[str, Any]) -> float | None:
    """Return the seconds from the fault until training went on, None where it is not known."""
    first: dict[str, float] = {}
    for entry in body["timeline"]:
        first.setdefault(entry["what"], entry["at"])
    if "fault" not in first or "resumed" not in first:
        return None
    return first["resumed"] - first["fault"]


def _reasons(body: Mapping[str, Any]) -> list[str]:
    """Return why a drill is not PASS, the cause first: the record, the fault, then by `ROOTS`."""
    claims: Sequence[Mapping[str, Any]] = body["claims"]
    bad = [claim for claim in claims if claim["verdict"] == body["verdict"]]
    own = [claim for claim in bad if not claim["id"].startswith("proof ")] or bad
    own.sort(key=lambda claim: ROOTS.index(claim["id"]) if claim["id"] in ROOTS else len(ROOTS))
    reasons = [f"{claim['id']}: {claim['message']}" for claim in own if claim["id"] != "events"]
    record, steps = _record(body), body["steps"]
    if record and any(f"{each['id']}: {each['message']}".startswith(NOTHING) for each in own):
        return record  # of a run that was never hit nothing could hold
    if steps.get("from_nothing") and reasons:
        reasons[0] = f"it began at step 1 again and lost {steps['lost']} steps; {reasons[0]}"
    return [*record, *reasons]


def _record(body: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the record itself, where that decides."""
    events = next((claim for claim in body["claims"] if claim["id"] == "events"), None)
    if body["verdict"] != "UNKNOWN" or events is None or events["verdict"] != "UNKNOWN":
        return []
    problems = [str(each) for each in body.get("problems", ())]
    whole = next((each for each in problems if events["message"].startswith(each)), "")
    return [whole or events["message"].partition("; ")[0]]


def _no_more(body: Mapping[str, Any]) -> str:
    """Return why a drill that could show more did not, in brackets."""
    levels = body.get("proofs", ())
    first = next((each for each in levels if each["verdict"] == "UNKNOWN"), None)
    return "" if first is None else f" (no more: {first['message'].partition('; ')[0]})"


def headline(body: Mapping[str, Any]) -> str:
    """Return the sentence beside the verdict."""
    if body["verdict"] != "PASS":
        reasons = _reasons(body)
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        why = reasons[0] if reasons else "nothing could be judged"
        return f"{body['drill']}: {why}{more}; shown: {proven(body)}"
    if of_power(body):
        return _dimmed(body)
    after = resumed_after(body)
    text = f"{body['drill']}: {proven(body)}{_no_more(body)}"
    text += f"; resumed {after:.2f} s after the fault" if after is not None else ";"
    text = f"{text.removesuffix(';')}, {counted(body['restarts'], 'restart')}"
    steps = body["steps"]
    if steps.get("from_nothing"):
        text += f"; it began at step 1 again and lost all of {steps['lost']} steps"
    return text


def _dimmed(body: Mapping[str, Any]) -> str:
    """Return the sentence of a power drill that held."""
    trip = next((c for c in body["claims"] if c["id"] == "DD1 no trip"), {"message": ""})
    held = trip["message"].partition("; ")[0] or "no trip"
    same = "bit-identical" if body.get("proof") == "L4" else f"shown {proven(body)}"
    text = f"{body['drill']}: {held}; training {same}{_no_more(body)} over"
    text += f" {counted(body['steps']['committed'], 'step')}"
    share = body["ledger"].get("dimmed")
    return text if share is None else f"{text}; dimmed {share:.1%} of its time"


def expectations(head: Head) -> list[str]:
    """Return in words what must hold."""
    wanted = head.expected
    found = [f"{wanted.proof}: {PROOFS[wanted.proof]}"]
    found.append(_restarts(wanted))
    found += [f"{name}: {CRITERIA.get(name, 'is held')}" for name in wanted.power]
    if wanted.timeline:
        found.append(f"seen, in this order: {', '.join(wanted.timeline)}")
    if wanted.absent:
        found.append(f"not seen: {', '.join(wanted.absent)}")
    if wanted.kinds:
        found.append(f"said by the run: {', '.join(wanted.kinds)}")
    if wanted.unseen:
        found.append(f"not said by the run: {', '.join(wanted.unseen)}")
    if wanted.evicted is not None:
        found.append(f"isolated, and nobody else: {', '.join(wanted.evicted) or 'nobody'}")
    if wanted.components:
        found.append(f"telemetry finds a fault of {' or '.join(wanted.components)}")
    if wanted.passed_over:
        found.append(f"{counted(wanted.passed_over, 'bad checkpoint')} found and passed over")
    return [*found, *_budgets(wanted)]


def _restarts(wanted: Expected) -> str:
    if not wanted.restarts:
        return "no restart of the whole job"
    most = f"at most {counted(wanted.restarts, 'restart')} of the whole job"
    return f"{most}, and at least one" if wanted.must_restart else most


def _budgets(wanted: Expected) -> list[str]:
    found = []
    if wanted.detect is not None:
        found.append(f"detected within {wanted.detect:g} s")
    if wanted.resume is not None:
        steps = f" and {wanted.resume_steps:g} clean steps" if wanted.resume_steps else ""
        found.append(f"resumed within {wanted.resume:g} s{steps} of the fault")
    found.append(f"at most {counted(wanted.lost_steps, 'committed step')} repeated")
    return found


def told(what: Happening) -> str:
    """Return in a few words what a happening of the timeline says."""
    member, subject = what.text("member") or what.who, what.text("subject")
    at = f" on {subject}" if subject else ""
    step = what.number("step")
    texts = {
        "injected": f"{what.text('fault')} of {member}{at}"
        if what.text("member")
        else what.text("fault"),
        "detected": f"{subject} by {what.text('by')}",
        "lost": f"{member}: {what.text('why')}",
        "diagnosed": f"{subject}: {what.text('component') or 'nothing'}",
        "decided": f"{subject}: {what.text('decision')}",
        "told": f"{member} is to hand over to {subject}",
        "restarted": f"the whole job, from step {step}",
        "spare-active": f"{member}{at} instead of {what.text('instead')}",
        "restore": f"{member} at step {step}, from {what.text('uri')}",
        "resynchronised": f"{member} at step {step}",
    }
    return texts.get(what.kind, member)


def run_of(head: Head) -> str:
    """Return in words what training run a drill is held on."""
    words = [LAYERS[head.layer], counted(head.replicas, "replica"), counted(head.steps, "step")]
    if head.layer == "A":
        words.append(head.mode)
    if head.checkpoint_every is not None:
        words.append(f"a checkpoint every {counted(head.checkpoint_every, 'step')}")
    return ", ".join(words)
