"""What the readings and words of other tools mean, by the tables of TABLES; and peers in one file.

Measurements and events of one file come in; signs go out in the shape of events with rules, so
that they go through the same episodes and cases as a kernel log's. A table has [[rule]] for the
readings that are signs when a test strikes, and [event."code"] for what a tool says in words; each
row names component, action, kind (as in xid.csv) and source. `family` may be named too.
"""

import functools
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.diagnostics.rules import bandwidth, dcgm, job, links, ports, published
from rackproof.diagnostics.rules.tables import Rule, toml
from rackproof.harness.model import Event, Measurement, Value

TABLES = ("smi.toml", "dcgm.toml", "tools.toml", "site.toml", "training.toml")
_ACTIONS = {"reset": "reset-gpu", "drain-and-reset": "reset-gpu", "drain-p2p": "reset-gpu",
            "reboot": "reboot-node"}  # fmt: skip
Sign = tuple[Event, Rule]


@dataclass(frozen=True, slots=True)
class _Test:
    """One [[rule]] of a table."""

    metric: str
    component: str
    action: str
    kind: str
    source: str
    above: float | None = None
    below: float | None = None
    not_in: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    shared: str = ""
    family: str = ""

    def strikes(self, value: Value) -> bool:
        """Whether `value` is outside."""
        if isinstance(value, str):
            return bool(self.not_in) and value.lower() not in self.not_in
        return (self.above is not None and value > self.above) or (
            self.below is not None and value < self.below
        )


@functools.cache
def _tests() -> tuple[_Test, ...]:
    lists = ("not_in", "unless")
    return tuple(
        _Test(**{**row, **{name: tuple(row.get(name, ())) for name in lists}})
        for table in TABLES
        for row in toml(table).get("rule", ())
    )


@functools.cache
def _words() -> Mapping[str, Mapping[str, Any]]:
    """Return the [event] rows of all tables by code."""
    return {code: row for table in TABLES for code, row in toml(table).get("event", {}).items()}


def judged_metrics() -> frozenset[str]:
    """Return the metrics by which a GPU's health can be judged here."""
    return frozenset((*(test.metric for test in _tests()), *links.LEAST, "xid.last"))


def meaning(event: Event) -> Rule | None:
    """Return what one event means, or None for a code that is in no table."""
    if event.code.startswith(dcgm.PREFIX):
        return dcgm.meaning(event)
    row = _words().get(event.code)
    if row is None:
        return None
    family = str(row.get("family", f"sign-{row['component']}"))
    return Rule(row["component"], row["action"], family, row["kind"],
                name=event.code, source=row["source"])  # fmt: skip


def shared_by(code: str) -> str:
    """Return who is the root where every GPU of a machine shows `code`: host, fabric or ""."""
    if code.startswith(dcgm.PREFIX):
        return dcgm.shared_by(code)
    row = _words().get(code)
    if row is not None:
        return str(row.get("shared", ""))
    return next((test.shared for test in _tests() if test.metric == code), "")


LIKE = 3  # GPUs without a name beside one: fewer do not say what is usual


def _sign(one: Measurement, test: _Test) -> Sign:
    action, kind = test.action, test.kind
    if one.metric == "recovery.action":
        action = _ACTIONS.get(str(one.value), "watch")
        kind = "directive" if action != "watch" else "watch"
    family = "directive" if kind == "directive" else test.family or f"sign-{test.component}"
    text = f"{one.metric} {one.value}" + ("" if one.unit in ("flag", "text") else f" {one.unit}")
    event = Event(one.subject, one.metric, text, clock="none")
    return event, Rule(test.component, action, family, kind, name=one.metric, source=test.source)


def _peers(
    of: Mapping[tuple[str, str], Value], subject: str, now: str, most: str
) -> tuple[list[float], bool]:
    """Return what like GPUs have, and whether that tells that more is usual.

    Like are GPUs of one name; where no name is told, those with the same limit, and then most of at
    least LIKE of them have to have all of it.
    """
    name, limit = of.get((subject, "gpu.name")), of.get((subject, most))
    same = ("gpu.name", name) if name else (most, limit)
    peers = [
        float(value)
        for (other, metric), told in of.items()
        if (metric, told) == same and other != subject
        and isinstance(value := of.get((other, now)), int | float)
    ]  # fmt: skip
    mine = of.get((subject, now))
    if not isinstance(mine, int | float) or not isinstance(limit, int | float):
        return peers, False
    if name:
        return peers, any(value > mine for value in peers)
    return peers, len(peers) >= LIKE and 2 * sum(p >= limit for p in peers) > len(peers)


def _links(measurements: Sequence[Measurement]) -> Iterable[Sign]:
    """Yield narrow links: a fault beside full ones of the same card; alone, it may be built so."""
    of: dict[tuple[str, str], Value] = {(m.subject, m.metric): m.value for m in measurements}
    for subject in sorted({m.subject for m in measurements}):
        for now, most, unit in (("pcie.width", "pcie.width.max", "lanes"),
                                ("pcie.gen", "pcie.gen.max", "gen")):  # fmt: skip
            value, limit = of.get((subject, now)), of.get((subject, most))
            if not isinstance(value, int | float) or not isinstance(limit, int | float):
                continue
            if not 0 < value < limit:
                continue
            peers, full = _peers(of, subject, now, most)
            if peers and unit == "lanes" and not any(value < peer for peer in peers):
                continue  # built so
            kind, action = ("hardware", "check-cabling") if full else ("watch", "watch")
            event = Event(subject, now, f"{now} {value} of {limit} {unit}", clock="none")
            source = "NVML: the link could do more"
            yield event, Rule("pcie", action, "sign-pcie", kind, name=now, source=source)


# A GPU with as many corrected errors as this is not healthy, though none was uncorrected: our own
# bounds, from a fleet in which one GPU had 54 billion of them beside peers with none.
CORRECTED_MANY, CORRECTED_SOME, TIMES_PEERS = 1_000_000, 1_000, 100


def _corrected(measurements: Sequence[Measurement]) -> Iterable[Sign]:
    """Yield GPUs with far more corrected errors than their peers, or with very many alone."""
    metric = "ecc.corrected.volatile"
    counts = {
        m.subject: m.value
        for m in measurements if m.metric == metric and isinstance(m.value, int | float)
    }  # fmt: skip
    for subject, count in counts.items():
        peers = [other for place, other in counts.items() if place != subject]
        above = count > TIMES_PEERS * max(1, statistics.median(peers)) if peers else False
        if count >= CORRECTED_MANY or (above and count >= CORRECTED_SOME):
            event = Event(subject, metric, f"{metric} {count} errors", clock="none")
            source = "corrected errors far beyond the peers'"
            yield event, Rule("hbm", "watch", "sign-hbm", "watch", name=metric, source=source)


def signs(measurements: Sequence[Measurement], events: Sequence[Event]) -> list[Sign]:
    """Return the signs among one file's readings and events."""
    found = [(event, rule) for event in events if (rule := meaning(event)) is not None]
    told = {e.subject for e in events if e.code.startswith("smi.ecc.")}
    struck = {
        (one.subject, one.metric)
        for one in measurements
        for test in _tests()
        if test.metric == one.metric and test.strikes(one.value)
    }
    for one in measurements:
        if one.metric == "ecc.uncorrected.volatile" and one.subject in told:
            continue  # the events say which memory it was
        for test in _tests():
            if test.metric != one.metric or not test.strikes(one.value):
                continue
            if not any((one.subject, other) in struck for other in test.unless):
                found.append(_sign(one, test))
    found += [*_links(measurements), *_corrected(measurements), *ports.signs(measurements)]
    found += links.signs(measurements)
    found += bandwidth.signs(measurements) + published.signs(measurements)
    return job.settle(found)
