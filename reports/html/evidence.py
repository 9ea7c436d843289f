"""The evidence of every part, as JSON that lies in the page and that page.js shows as text.

In: a record and its judgement. Out: a str that is safe inside <script>. Names of burns, metrics and
limits are written once and then by number; what passed is one short row, and what passed on a
GPU's links is one row for all of them.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.evidence import Record, gpu_of
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.limits import Limit
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event, Measurement, Value, sort_of
from rackproof.reports.html.power_traces import TRACES
from rackproof.reports.words import ACTIONS, COMPONENTS, PERSISTENCES, bounds, shown, visible

MOST_EVENTS = 50  # of one part; the record holds them all
MOST_BAD = 200
IDENTITY: Mapping[str, str] = {"gpu.serial": "Serial", "gpu.uuid": "UUID", "gpu.pci": "PCI"}
UNTOLD = TRACES | IDENTITY.keys()
"""What has a place of its own on the page."""


class _Numbered:
    """Gives each distinct thing a number, in the order in which it came."""

    def __init__(self) -> None:
        self.numbers: dict[Any, int] = {}

    def __call__(self, thing: Any) -> int:
        return self.numbers.setdefault(thing, len(self.numbers))


def identities(record: Record) -> dict[str, dict[str, str]]:
    """Return serial, UUID and PCI address by GPU, as they were read last."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for what in record.seen:
        if isinstance(what, Measurement) and what.metric in IDENTITY:
            found[what.subject][what.metric] = visible(str(what.value), 100)
    return found


def _in_words(diagnosis: Diagnosis) -> str:
    part = COMPONENTS.get(diagnosis.component, diagnosis.component)
    lasting = PERSISTENCES.get(diagnosis.persistence, diagnosis.persistence)
    return f"{diagnosis.subject}: {part}, {lasting} ({diagnosis.role} of case {diagnosis.case})"


def _text(value: Value | None, unit: str) -> str:
    return visible(shown(value, "flag" if unit == "flag" else ""), 100)


def _runs(check: Check) -> str:
    return ", ".join(_text(v, check.unit) for v in check.runs)


class Evidence:
    """Collects what is known of each part."""

    def __init__(self, record: Record, judgement: Judgement) -> None:
        """Sort the judgement's checks and diagnoses and the record's events by part."""
        self.burns, self.metrics, self.limits = _Numbered(), _Numbered(), _Numbered()
        self.parts: dict[str, dict[str, Any]] = {}
        for gpu, own in identities(record).items():
            facts = [[IDENTITY[m], own[m]] for m in IDENTITY if m in own]
            self._part(gpu)["facts"] = [["SKU", visible(record.head.gpus.get(gpu, "–"))], *facts]
        links: dict[str, dict[tuple[str, str], list[Check]]] = defaultdict(dict)
        for check in judgement.checks:
            self._add(check, links)
        for gpu, groups in links.items():
            self._part(gpu)["links"] = [self._links(*key, group) for key, group in groups.items()]
        self._noted(record)
        self._said(event for event in record.seen if isinstance(event, Event))
        for diagnosis in judgement.diagnoses:
            body = [
                _in_words(diagnosis),
                ACTIONS.get(diagnosis.action, diagnosis.action),
                *diagnosis.because,
            ]
            part = self._part(gpu_of(diagnosis.subject))
            part.setdefault("diagnoses", []).append([visible(line) for line in body])
        for gpu, verdict in judgement.subjects.items():
            self._part(gpu)["verdict"] = str(verdict)

    def _part(self, subject: str) -> dict[str, Any]:
        return self.parts.setdefault(visible(subject), {})

    def _limit(self, limit: Limit | None) -> int:
        return -1 if limit is None else self.limits(limit)

    def _add(self, check: Check, links: dict[str, dict[tuple[str, str], list[Check]]]) -> None:
        is_link = sort_of(check.subject) == "link"
        if is_link:
            groups = links[gpu_of(check.subject)]
            groups.setdefault((check.id, check.metric), []).append(check)
        part = self._part(gpu_of(check.subject))
        burn, metric = self.burns(check.id), self.metrics(check.metric)
        if check.verdict is Verdict.PASS:
            if not is_link:
                row = [burn, metric, _runs(check), self._limit(check.limit)]
                part.setdefault("pass", []).append(row)
            return
        bad = part.setdefault("bad", [])
        if len(bad) >= MOST_BAD:
            part["more"] = part.get("more", 0) + 1
            return
        verdict = f"{check.verdict}, waived" if check.waiver else str(check.verdict)
        place = visible(check.subject.rpartition("/")[2]) if is_link else ""
        reason = check.message + (f"; cure: {check.cure}" if check.cure else "")
        reason = "" if check.verdict is Verdict.FAIL else visible(reason)
        bad.append([verdict, place, burn, metric, _runs(check), self._limit(check.limit), reason])

    def _links(self, burn: str, metric: str, checks: list[Check]) -> list[Any]:
        """Return how many of a GPU's links pass one check, and the range of their values."""
        unit = metrics()[metric].unit
        numbers = [c.value for c in checks if isinstance(c.value, int | float)]
        low, high = min(numbers, default=None), max(numbers, default=None)
        span = _text(low, unit) if low == high else f"{_text(low, unit)} to {_text(high, unit)}"
        passed = sum(c.verdict is Verdict.PASS for c in checks)
        return [self.burns(burn), self.metrics(metric), passed, len(checks), span]

    def _noted(self, record: Record) -> None:
        table = metrics()
        for what in record.seen:
            if not isinstance(what, Measurement) or what.metric in UNTOLD:
                continue
            if not table[what.metric].judged and sort_of(what.subject) != "link":
                row = [self.burns(what.check), self.metrics(what.metric),
                       _text(what.value, what.unit)]  # fmt: skip
                self._part(what.subject).setdefault("noted", []).append(row)

    def _said(self, events: Iterable[Event]) -> None:
        for event in events:
            said = self._part(gpu_of(event.subject)).setdefault("said", [])
            when = "" if event.at is None else f"{event.at:.3f} s ({event.clock})"
            if len(said) < MOST_EVENTS:
                said.append([visible(event.code), visible(event.text), visible(when)])

    def tables(self) -> dict[str, Any]:
        """Return the plain tables, each burn, metric and limit written once."""
        table = metrics()
        return {
            "burns": [visible(burn) for burn in self.burns.numbers],
            "metrics": [[m, table[m].unit, table[m].about] for m in self.metrics.numbers],
            "limits": [
                [visible(bounds(m)), m.layer, visible(m.source)] for m in self.limits.numbers
            ],
            "parts": self.parts,
        }


def embedded(tables: Mapping[str, Any]) -> str:
    """Return JSON that cannot end the <script> that it stands in: ASCII, without < > and &."""
    text = json.dumps(tables, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
