"""From readings to checks: Measurement x Limit -> Verdict, each with what decided it.

A check is (burn, subject, metric) over all its runs. A reading outside a limit is FAIL and a later
pass does not erase it; what was owed and not read, or read without any limit, is UNKNOWN; NOT
SUPPORTED is SKIP only where the platform's spec agrees. A run that was not finished can fail a
check and never pass it.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from datetime import date
from typing import Any

from rackproof.diagnostics.baseline import FEWEST
from rackproof.diagnostics.criteria import criterion
from rackproof.diagnostics.evidence import Head, Record, gpu_of
from rackproof.diagnostics.limits import Limit, Limits, Waiver
from rackproof.diagnostics.peers import Key, Runs, Scale, gather, peer_limits
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.metrics import Metric, metrics
from rackproof.harness.model import Measurement, Missing, Value, Why, item_of

OURS = ("platform", "spec")
"""Layers that are there without anybody's doing."""


@dataclass(frozen=True, slots=True)
class Check:
    """One judged metric of one subject in one burn. `runs` holds the value of each attempt.

    `attempts` numbers the runs; `failed` says for each whether it was outside; a run without a
    reading is None in `runs` and neither failed nor passed. `limit` and `decided_by` are those of
    the layer that decided; `cure` says what would make an UNKNOWN judgeable.
    """

    id: str
    subject: str
    metric: str
    verdict: Verdict
    message: str
    unit: str
    value: Value | None = None
    runs: tuple[Value | None, ...] = ()
    failed: tuple[bool, ...] = ()
    limit: Limit | None = None
    decided_by: str | None = None
    cure: str = ""
    waiver: Waiver | None = None
    attempts: tuple[int, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the contract's JSON object."""
        body: dict[str, Any] = {
            "id": self.id,
            "subject": self.subject,
            "metric": self.metric,
            "verdict": str(self.verdict),
            "value": _finite(self.value),
            "unit": self.unit,
            "limit": self.limit.as_json() if self.limit else None,
            "decided_by": self.decided_by,
            "runs": [_finite(v) for v in self.runs],
            "message": self.message,
        }
        if self.cure:
            body["cure"] = self.cure
        if self.waiver:
            body["waived"] = {
                "until": str(self.waiver.until),
                "owner": self.waiver.owner,
                "reason": self.waiver.reason,
            }
        return body


def _finite(value: Value | None) -> Value | None:
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value


def owed(head: Head) -> Iterator[Key]:
    """Yield every check that the plan owes, in the plan's order."""
    for planned in head.plan:
        for sort, names in planned.owes.items():
            for subject in head.subjects(sort):
                for name in names:
                    yield planned.burn, subject, name


@dataclass(frozen=True, slots=True)
class _Read:
    """The attempts of one key, and in each the worst reading and the limits that it breaks."""

    attempts: tuple[int, ...]
    values: tuple[Value | None, ...]
    breaking: tuple[Sequence[Limit], ...]


def _worst(values: Sequence[Value], layers: Sequence[Limit]) -> tuple[Value, list[Limit]]:
    for value in values:
        broken = [limit for limit in layers if not limit.allows(value)]
        if broken:
            return value, broken
    return values[0], []


def _read(runs: Runs, layers: Sequence[Limit], due: AbstractSet[int]) -> _Read:
    attempts = sorted(runs.values.keys() | runs.missing.keys() | due)
    worst = [_worst(runs.values[a], layers) if a in runs.values else (None, []) for a in attempts]
    return _Read(tuple(attempts), tuple(v for v, _ in worst), tuple(b for _, b in worst))


def decide(
    key: Key, runs: Runs, scale: Scale, settled: AbstractSet[int], *, due: bool = True
) -> Check:
    """Return the check of one key.

    `settled` holds the attempts of its burn that are complete; `due` says that the plan owes it, so
    that each of them must have read it.
    """
    metric = metrics()[key[2]]
    must = settled if due else frozenset[int]()
    if not runs.values:
        return _unread(key, runs, scale.head, must)
    layers = scale.layers(key)
    read = _read(runs, layers, must)
    failed = tuple(bool(broken) for broken in read.breaking)
    limit = layers[0] if layers else None
    value: Value | None = next(v for v in read.values if v is not None)
    if any(failed):
        decided = failed.index(True)
        limit, value = read.breaking[decided][0], read.values[decided]
        verdict, message, cure = Verdict.FAIL, _says(read, decided, metric), ""
    else:
        odd = _impossible(runs, metric)
        doubt = odd or (_doubt(runs, settled, must) if layers else _no_limit(metric))
        verdict = Verdict.UNKNOWN if doubt else Verdict.PASS
        message, cure = doubt or ("within limits", "")
    return Check(
        *key,
        verdict,
        message,
        metric.unit,
        value=value,
        runs=read.values,
        failed=failed,
        limit=limit,
        decided_by=limit.layer if limit else None,
        cure=cure,
        attempts=read.attempts,
    )


def _doubt(runs: Runs, settled: AbstractSet[int], due: AbstractSet[int]) -> tuple[str, str] | None:
    """Return why readings within limits make no PASS, and the cure; None where they do."""
    for attempt in sorted(due | (runs.missing.keys() & settled)):
        missing = runs.missing.get(attempt)
        if missing is not None:
            return missing.reason, missing.cure
        if attempt not in runs.values:
            return f"run {attempt} ended without a reading", "run it again"
    if settled.isdisjoint(runs.values):
        return "cut short", "--resume the run"
    return None


def _impossible(runs: Runs, metric: Metric) -> tuple[str, str] | None:
    """Return what is said of a reading that cannot be, though it is within limits, and the cure."""
    for attempt, values in sorted(runs.values.items()):
        for value in values:
            if not metric.possible(value):
                said = f"run {attempt} read {_show(value, metric)}, which cannot be"
                return said, "look at what was read: the driver, or an edited record"
    return None


def _no_limit(metric: Metric) -> tuple[str, str]:
    if metric.relative:
        cure = f"give one with --limits, or burn at least {FEWEST} like GPUs"
    elif metric.name == "gpu.count":
        cure = "say what ought to be there: --expect gpus=N, or --expect RACK"
    else:
        cure = "give one with --limits"
    if metric.unit == "text":
        cure = cure.replace("--limits", f"--limits ([[golden]] item = {metric.name!r})")
    return f"no limit is known for {metric.name} here", cure


def _unread(key: Key, runs: Runs, head: Head, due: AbstractSet[int]) -> Check:
    burn, subject, name = key
    unit = metrics()[name].unit
    gaps = [runs.missing[a] for a in sorted(runs.missing)]
    verdict = Verdict.UNKNOWN
    if not gaps:
        message, cure = (
            ("no reading", "run it again") if due else ("not run", "run it, or --resume")
        )
    elif name in head.absent and all(gap.why is Why.NOT_SUPPORTED for gap in gaps):
        verdict, message, cure = Verdict.SKIP, "the platform has no such reading", ""
    else:
        message, cure = _told(gaps).reason, _told(gaps).cure
    return Check(burn, subject, name, verdict, message, unit, cure=cure)


def _told(gaps: Sequence[Missing]) -> Missing:
    """Return the latest gap that says more than that there is no such reading."""
    telling = [gap for gap in gaps if gap.why is not Why.NOT_SUPPORTED]
    return (telling or gaps)[-1]


def _show(value: Value | None, metric: Metric) -> str:
    shown = f"{value:.6g}" if isinstance(value, float) else str(value)
    return shown if metric.unit in ("text", "flag") else f"{shown} {metric.unit}"


def _bounds(limit: Limit, metric: Metric) -> str:
    if limit.equal is not None:
        return f"= {_show(limit.equal, metric)}"
    parts = [
        f"{sign} {_show(bound, metric)}"
        for sign, bound in ((">=", limit.low), ("<=", limit.high))
        if bound is not None
    ]
    return " and ".join(parts)


def _says(read: _Read, decided: int, metric: Metric) -> str:
    limit = read.breaking[decided][0]
    failed = sum(bool(broken) for broken in read.breaking)
    runs = sum(value is not None for value in read.values)
    return (
        f"{_show(read.values[decided], metric)} is outside {_bounds(limit, metric)}"
        f" ({limit.source}), {failed} of {runs} runs"
    )


def serials_of(record: Record) -> dict[str, str]:
    """Return the serial number of each GPU that said it, the latest where it said several."""
    latest: dict[str, tuple[int, str]] = {}
    for what in record.seen:
        if isinstance(what, Measurement) and what.metric == "gpu.serial":
            said = (what.attempt, str(what.value))
            latest[what.subject] = max(said, latest.get(what.subject, said))
    return {subject: serial for subject, (_, serial) in latest.items()}


def all_checks(record: Record, limits: Limits) -> list[Check]:
    """Return every check that is owed or was read, judged, in the plan's order."""
    found = gather(record)
    head = record.head
    scale = Scale.of(head, limits, peer_limits(head, found))
    settled = record.finished()
    judged = {name for name, metric in metrics().items() if metric.judged}
    due = dict.fromkeys(key for key in owed(head) if key[2] in judged)
    extra = [
        key
        for key, runs in found.items()
        if key not in due
        and (key[2] in judged or silent(runs) or _impossible(runs, metrics()[key[2]]))
    ]
    none, never = Runs(), set[int]()
    wide = {planned.burn for planned in head.plan if planned.wide}
    serials = serials_of(record)
    today = date.fromisoformat(head.today)
    checks = []
    for key in (*due, *sorted(extra)):
        item = item_of(key[1], wide=key[0] in wide)
        done = settled.get((key[0], item), never)
        if metrics()[key[2]].optional and _spared(found.get(key, none), scale, key):
            continue
        check = decide(key, found.get(key, none), scale, done, due=key in due)
        named = criterion(key[0], key[2])
        check = replace(check, message=f"{named}: {check.message}") if named else check
        if check.verdict is Verdict.FAIL and scale.waivers:
            waiver = _waived(check, scale.waivers, serials.get(gpu_of(key[1])), today)
            check = replace(check, waiver=waiver) if waiver else check
        checks.append(check)
    return checks


def _spared(runs: Runs, scale: Scale, key: Key) -> bool:
    """Say whether an optional metric is not judged.

    Nobody limits it, or nobody but us does and there is no such reading here, which a platform that
    has none says itself (SKIP). A reading that cannot be is not spared.
    """
    if _impossible(runs, metrics()[key[2]]):
        return False
    layers = scale.layers(key)
    if not layers or runs.values or key[2] in scale.head.absent:
        return not layers
    nowhere = all(gap.why is Why.NOT_SUPPORTED for gap in runs.missing.values())
    return bool(runs.missing) and nowhere and all(limit.layer in OURS for limit in layers)


def silent(runs: Runs) -> bool:
    """Say whether a reading that is only noted failed to come: a sensor that does not answer.

    A driver that says it has no such reading is not silent.
    """
    return any(gap.why is not Why.NOT_SUPPORTED for gap in runs.missing.values())


def _waived(
    check: Check, waivers: Sequence[Waiver], serial: str | None, today: date
) -> Waiver | None:
    names = (check.id, f"{check.id}.{check.metric}", check.metric)
    return next(
        (w for w in waivers for n in names if w.covers(n, check.subject, serial, today)), None
    )


def outside(head: Head, limits: Limits, seen: Iterable[Measurement]) -> list[Measurement]:
    """Return those measurements that fail by themselves, with no look at other subjects."""
    return beyond(Scale.of(head, limits, {}), seen)


def beyond(scale: Scale, seen: Iterable[Measurement]) -> list[Measurement]:
    """Return those measurements that a scale does not allow."""
    return [
        m
        for m in seen
        if metrics()[m.metric].judged
        and any(not limit.allows(m.value) for limit in scale.layers((m.check, m.subject, m.metric)))
    ]
