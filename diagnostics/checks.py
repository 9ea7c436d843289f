"""From readings to checks: Measurement x Limit -> Verdict, each with what decided it.

A check is (burn, subject, metric) over all its runs. A reading outside a limit is FAIL and a later
pass does not erase it; what was owed and not read, or read without any limit, is UNKNOWN; NOT
SUPPORTED is SKIP only where the platform's spec agrees.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from rackproof.diagnostics.baseline import FEWEST, baseline
from rackproof.diagnostics.evidence import Head, Record, gpu_of, sort_of
from rackproof.diagnostics.limits import Limit, Limits, Waiver
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.metrics import Metric, metrics
from rackproof.harness.model import Measurement, Missing, Value, Why

Key = tuple[str, str, str]  # burn, subject, metric
ALONE = 2  # fewest GPUs whose texts can be compared with one another


@dataclass(frozen=True, slots=True)
class Check:
    """One judged metric of one subject in one burn. `runs` holds the value of each attempt.

    `failed` says for each of the runs whether it was outside; `limit` and `decided_by` are those
    of the layer that decided; `cure` says what would make an UNKNOWN judgeable.
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
    is_float = isinstance(value, float)
    return str(value) if is_float and not abs(value) < float("inf") else value


@dataclass(slots=True)
class _Runs:
    """What was read of one key, by attempt."""

    values: dict[int, Measurement] = field(default_factory=dict)
    missing: dict[int, Missing] = field(default_factory=dict)


def gather(record: Record) -> dict[Key, _Runs]:
    """Return all readings by (burn, subject, metric) and attempt."""
    found: dict[Key, _Runs] = defaultdict(_Runs)
    for what in record.seen:
        if isinstance(what, Measurement):
            found[what.check, what.subject, what.metric].values[what.attempt] = what
        elif isinstance(what, Missing):
            found[what.check, what.subject, what.metric].missing[what.attempt] = what
    return found


def owed(head: Head) -> Iterable[Key]:
    """Yield every check that the plan owes, in the plan's order."""
    for planned in head.plan:
        for sort, names in planned.owes.items():
            for subject in head.subjects(sort):
                for name in names:
                    yield planned.burn, subject, name


def _peer_group(head: Head, metric: Metric, subject: str) -> str:
    """Name the group of like GPUs within which `metric` of `subject` is compared."""
    gpu = gpu_of(subject)
    if metric.name == "fabric.clique" and head.domain and head.domain < len(head.gpus):
        return gpu.rpartition("/")[0]  # domains that are smaller than the rack: the node's own
    return "" if metric.unit == "text" else head.gpus.get(gpu, "")


def peer_limits(head: Head, found: Mapping[Key, _Runs]) -> dict[tuple[str, str, str], Limit]:
    """Return the rack's own limits by (burn, metric, peer group), from each GPU's first run."""
    values: dict[tuple[str, str, str], list[Value]] = defaultdict(list)
    table = metrics()
    for (burn, subject, name), runs in found.items():
        if table[name].relative and runs.values:
            group = _peer_group(head, table[name], subject)
            values[burn, name, group].append(runs.values[min(runs.values)].value)
    return {
        key: limit
        for key, seen in values.items()
        if (limit := _peer_limit(table[key[1]], seen)) is not None
    }


def _peer_limit(metric: Metric, values: Sequence[Value]) -> Limit | None:
    if metric.unit == "text":
        (common, count), *others = Counter(values).most_common()
        if len(values) < ALONE or (others and len(values) < FEWEST):
            return None
        if others and others[0][1] == count:
            return None  # a tie: nobody can say who is wrong
        source = f"most common of {len(values)} like GPUs ({count} have it)"
        return Limit(metric.name, source, "median", equal=common)
    numbers = [float(v) for v in values if not isinstance(v, str)]
    base = baseline([n for n in numbers if n == n])  # noqa: PLR0124 - without NaN
    if base is None:
        return None
    low, high = (base.low, None) if metric.better == "high" else (None, base.high)
    return Limit(metric.name, base.source, "median", low=low, high=high)


@dataclass(frozen=True, slots=True)
class Scale:
    """Everything that values are held against: the limits by metric, and the rack's own."""

    head: Head
    by_metric: Mapping[str, Limits]
    peers: Mapping[tuple[str, str, str], Limit]
    waivers: Sequence[Waiver] = ()

    @classmethod
    def of(cls, head: Head, limits: Limits, peers: Mapping[tuple[str, str, str], Limit]) -> "Scale":
        """Index `limits` by metric."""
        grouped: dict[str, list[Limit]] = defaultdict(list)
        for limit in limits.limits:
            grouped[limit.metric].append(limit)
        return cls(head, {m: Limits(tuple(g)) for m, g in grouped.items()}, peers, limits.waivers)

    def layers(self, key: Key) -> list[Limit]:
        """Return the limits that apply to a check, strongest layer first."""
        burn, subject, name = key
        metric = metrics()[name]
        gpu = gpu_of(subject)
        own = self.by_metric.get(name, Limits()).of(name, subject, self.head.gpus.get(gpu))
        peer = self.peers.get((burn, name, _peer_group(self.head, metric, subject)))
        if peer is None or (peer.equal is not None and own):
            return own
        return [*own, peer]


def decide(key: Key, runs: _Runs, scale: Scale, settled: frozenset[int]) -> Check:
    """Return the check of one key. `settled` holds the attempts of its burn that are complete."""
    burn, subject, name = key
    metric = metrics()[name]
    if not runs.values:
        return _unread(key, runs, scale.head, metric)
    layers = scale.layers(key)
    attempts = sorted(runs.values.keys() | runs.missing.keys())
    values = tuple(runs.values[a].value if a in runs.values else None for a in attempts)
    breaking = [[m for m in layers if v is not None and not m.allows(v)] for v in values]
    failed = tuple(bool(b) for b in breaking)
    first = next((i for i, f in enumerate(failed) if f), None)
    check = Check(burn, subject, name, Verdict.PASS, "", metric.unit, values[0], values, failed)
    if first is not None:
        limit = breaking[first][0]
        return replace(
            check,
            verdict=Verdict.FAIL,
            value=values[first],
            limit=limit,
            decided_by=limit.layer,
            message=f"{_show(values[first], metric)} is outside {_bounds(limit, metric)}"
            f" ({limit.source}), {sum(failed)} of {len(values)} runs",
        )
    if not layers:
        return replace(check, verdict=Verdict.UNKNOWN, **_no_limit(metric))
    limit = layers[0]
    check = replace(check, limit=limit, decided_by=limit.layer)
    gap = next((runs.missing[a] for a in attempts if a not in runs.values), None)
    if gap is not None:
        return replace(check, verdict=Verdict.UNKNOWN, message=gap.reason, cure=gap.cure)
    if not settled & runs.values.keys():
        return replace(check, verdict=Verdict.UNKNOWN, message="cut short", cure="--resume the run")
    return replace(check, value=next(v for v in values if v is not None), message="within limits")


def _no_limit(metric: Metric) -> dict[str, str]:
    if metric.relative:
        cure = f"give one with --limits, or burn at least {FEWEST} like GPUs"
    elif metric.name == "gpu.count":
        cure = "say what ought to be there: --expect gpus=N, or --expect RACK"
    else:
        cure = "give one with --limits"
    if metric.unit == "text":
        cure = cure.replace("--limits", f"--limits ([[golden]] item = {metric.name!r})")
    return {"message": f"no limit is known for {metric.name} here", "cure": cure}


def _unread(key: Key, runs: _Runs, head: Head, metric: Metric) -> Check:
    burn, subject, name = key
    blank = Check(burn, subject, name, Verdict.UNKNOWN, "", metric.unit)
    if not runs.missing:
        return replace(blank, message="not run", cure="run it, or --resume the run")
    gap = runs.missing[max(runs.missing)]
    if gap.why is Why.NOT_SUPPORTED and name in head.absent:
        return replace(blank, verdict=Verdict.SKIP, message="the platform has no such reading")
    return replace(blank, message=gap.reason, cure=gap.cure)


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


def all_checks(record: Record, limits: Limits) -> list[Check]:
    """Return every check that is owed or was read, judged, in the plan's order."""
    found = gather(record)
    head = record.head
    scale = Scale.of(head, limits, peer_limits(head, found))
    settled: dict[tuple[str, str], set[int]] = defaultdict(set)
    for burn, subject, attempt in record.settled:
        settled[burn, subject].add(attempt)
    serials = {s: str(r.values[max(r.values)].value) for (_, s, m), r in found.items()
               if m == "gpu.serial" and r.values}
    table = metrics()
    keys = dict.fromkeys(owed(head))
    planned = {p.burn for p in head.plan}
    extra = [k for k in found if k not in keys and table[k[2]].judged and k[0] in planned]
    checks = []
    for key in (*keys, *sorted(extra)):
        if not table[key[2]].judged:
            continue
        owner = key[1] if sort_of(key[1]) != "link" else gpu_of(key[1])
        done = frozenset(settled.get((key[0], owner), ()))
        check = decide(key, found.get(key, _Runs()), scale, done)
        if check.verdict is Verdict.FAIL:
            waiver = _waived(check, scale.waivers, serials.get(owner), head.today)
            check = replace(check, waiver=waiver) if waiver else check
        checks.append(check)
    return checks


def _waived(check: Check, waivers: Sequence[Waiver], serial: str | None, on: str) -> Waiver | None:
    today = date.fromisoformat(on)
    names = (check.id, f"{check.id}.{check.metric}", check.metric)
    return next(
        (w for w in waivers for n in names if w.covers(n, check.subject, serial, today)), None
    )


def outside(head: Head, limits: Limits, seen: Iterable[Measurement]) -> list[Measurement]:
    """Return those measurements that fail by themselves, with no look at other subjects."""
    scale = Scale.of(head, limits, {})
    return [
        m
        for m in seen
        if metrics()[m.metric].judged
        and any(not limit.allows(m.value) for limit in scale.layers((m.check, m.subject, m.metric)))
    ]
