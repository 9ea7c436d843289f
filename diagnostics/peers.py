"""What values are held against: the limits in force, and those that the rack gives itself.

Comes in: the limits of a record's first line, and everything that was read. Goes out: for one
check the bounds that apply, strongest layer first. The rack's own are the median of eight like
GPUs or more and, for a text, the value that most GPUs have. A steady temperature is held against
the GPUs of the same tray, which share its coolant or its air.
"""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rackproof.diagnostics.baseline import FEWEST, baseline
from rackproof.diagnostics.evidence import Head, Record, gpu_of
from rackproof.diagnostics.limits import LAYERS, Limit, Limits, Waiver
from rackproof.harness.metrics import Metric, metrics
from rackproof.harness.model import Measurement, Missing, Value

Key = tuple[str, str, str]  # burn, subject, metric
Peer = tuple[str, str, str]  # burn, metric, group of like GPUs
ALONE = 2  # fewest GPUs whose texts can be compared with one another
NEIGHBOURS = 4  # fewest GPUs of a tray whose temperatures give a median; else those of the rack
# rackproof's proposal, in K over the median: healthy dies differ by up to 5.7 % in energy (B200,
# public file), 3 K of the 50 K over the coolant; mounting and the place in the air stream may add
# as much again. A die whose heat is not carried off reaches its slowdown, 20 K and more above.
WARMER: Mapping[str, float] = {"thermal.soak.temperature": 10.0}


@dataclass(slots=True)
class Runs:
    """What was read of one key, by attempt. Two readings of one attempt stand side by side."""

    values: dict[int, list[Value]] = field(default_factory=dict)
    missing: dict[int, Missing] = field(default_factory=dict)


def gather(record: Record) -> dict[Key, Runs]:
    """Return all readings by (burn, subject, metric) and attempt."""
    found: dict[Key, Runs] = defaultdict(Runs)
    for what in record.seen:
        if isinstance(what, Measurement):
            runs = found[what.check, what.subject, what.metric]
            runs.values.setdefault(what.attempt, []).append(what.value)
        elif isinstance(what, Missing):
            found[what.check, what.subject, what.metric].missing[what.attempt] = what
    return dict(found)


def peer_limits(head: Head, found: Mapping[Key, Runs]) -> dict[Peer, Limit]:
    """Return the rack's own limits by (burn, metric, group), from each planned GPU's first run."""
    values: dict[Peer, list[Value]] = defaultdict(list)
    table = metrics()
    relative = {name for name, metric in table.items() if metric.relative}
    for (burn, subject, name), runs in found.items():
        if name in relative and runs.values and gpu_of(subject) in head.gpus:
            group = _group(head, table[name], subject)
            values[burn, name, group].append(runs.values[min(runs.values)][0])
    like = Counter(head.gpus.values())
    limits = {key: _peer_limit(table[key[1]], seen, like[key[2]]) for key, seen in values.items()}
    return {key: limit for key, limit in limits.items() if limit is not None}


def _group(head: Head, metric: Metric, subject: str) -> str:
    """Name the group of like GPUs within which `metric` of `subject` is compared."""
    gpu = gpu_of(subject)
    if metric.name in WARMER:
        tray = gpu.rpartition("/")[0]
        beside = sum(other.rpartition("/")[0] == tray for other in head.gpus)
        return tray if beside >= NEIGHBOURS else gpu.partition("/")[0]
    if metric.name == "fabric.clique" and head.domain and head.domain < len(head.gpus):
        return gpu.rpartition("/")[0]  # domains that are smaller than the rack: the node's own
    return "" if metric.unit == "text" else head.gpus.get(gpu, "")


def _peer_limit(metric: Metric, values: Sequence[Value], planned: int) -> Limit | None:
    """Return the limit that `values` of like GPUs give, of which `planned` are in the rack."""
    if metric.unit == "text":
        (common, count), *others = Counter(values).most_common()
        if len(values) < ALONE or (others and len(values) < FEWEST):
            return None
        if others and others[0][1] == count:
            return None  # a tie: nobody can say who is wrong
        source = f"most common of {len(values)} like GPUs ({count} have it)"
        return Limit(metric.name, source, "median", equal=common)
    if metric.name in WARMER:
        return _warmer(metric, [float(v) for v in values if not isinstance(v, str)])
    base = baseline([float(v) for v in values if not isinstance(v, str)], planned)
    if base is None:
        return None
    low, high = (base.low, None) if metric.better == "high" else (None, base.high)
    return Limit(metric.name, base.source, "median", low=low, high=high)


def _warmer(metric: Metric, values: Sequence[float]) -> Limit | None:
    values = [v for v in values if math.isfinite(v)]
    if len(values) < NEIGHBOURS:
        return None
    median, more = statistics.median(values), WARMER[metric.name]
    source = f"median {median:.6g} {metric.unit} of {len(values)} GPUs beside it, and {more:g} K"
    return Limit(metric.name, source, "median", high=median + more)


@dataclass(frozen=True, slots=True)
class Scale:
    """Everything that values are held against: the limits by metric, and the rack's own."""

    head: Head
    by_metric: Mapping[str, Limits]
    peers: Mapping[Peer, Limit]
    waivers: Sequence[Waiver] = ()
    _known: dict[tuple[str, str | None], list[Limit]] = field(default_factory=dict)

    @classmethod
    def of(cls, head: Head, limits: Limits, peers: Mapping[Peer, Limit]) -> "Scale":
        """Index `limits` by metric."""
        grouped: dict[str, list[Limit]] = defaultdict(list)
        for limit in limits.limits:
            grouped[limit.metric].append(limit)
        return cls(head, {m: Limits(tuple(g)) for m, g in grouped.items()}, peers, limits.waivers)

    def layers(self, key: Key) -> list[Limit]:
        """Return the limits that apply to a check, strongest layer first.

        The rack's own stands before what the platform and the spec say, and gives way to nobody
        but, for a text, to anybody who says what it must be.
        """
        burn, subject, name = key
        own = self._own(subject, name)
        metric = metrics()[name]
        if not metric.relative:
            return own
        peer = self.peers.get((burn, name, _group(self.head, metric, subject)))
        if peer is None or (peer.equal is not None and own):
            return own
        return sorted([*own, peer], key=lambda limit: LAYERS.index(limit.layer))

    def _own(self, subject: str, name: str) -> list[Limit]:
        limits = self.by_metric.get(name)
        if limits is None:
            return []
        sku = self.head.gpus.get(gpu_of(subject))
        if any(limit.subject != "*" for limit in limits.limits):
            return limits.of(name, subject, sku)
        known = self._known.get((name, sku))
        if known is None:
            known = self._known[name, sku] = limits.of(name, subject, sku)
        return known
