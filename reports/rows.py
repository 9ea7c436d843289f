"""Checks that are not PASS as rows for a page or a terminal, every finding once.

In: checks. Out: plain rows: value beside limit, layer and source; what could not be judged, by
reason and cure. Rows that differ in their place alone become one, with the places in short.
"""

from collections.abc import Iterable
from typing import Any

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.evidence import gpu_of
from rackproof.harness.metrics import metrics
from rackproof.harness.model import sort_of
from rackproof.reports.words import bounds, places, shown

LAYERS = {
    "user": "your limits file",
    "achieved": "achieved by this SKU",
    "platform": "this rack's description",
    "median": "this rack's own median",
    "spec": "specification",
}
Row = dict[str, Any]


def _values(check: Check) -> str:
    return ", ".join(shown(v, "flag" if check.unit == "flag" else "") for v in check.runs)


def findings(checks: Iterable[Check]) -> list[Row]:
    """Return rows of FAIL checks: value beside limit and source; equal links in one row."""
    same: dict[tuple[object, ...], list[Check]] = {}
    for check in checks:
        own = gpu_of(check.subject) if sort_of(check.subject) == "link" else check.subject
        key = (check.id, own, check.metric, check.value, check.runs, check.limit)
        same.setdefault(key, []).append(check)
    rows = []
    for group in same.values():
        check = group[0]
        rows.append({
            "verdict": str(check.verdict),
            "burn": check.id,
            "subject": gpu_of(check.subject),
            "place": places(c.subject for c in group)[0],
            "metric": check.metric,
            "about": metrics()[check.metric].about,
            "value": shown(check.value, check.unit),
            "runs": _values(check),
            "failed": f"{sum(check.failed)} of {len(check.failed)}",
            "limit": bounds(check.limit) if check.limit else "–",
            "layer": LAYERS.get(check.decided_by or "", check.decided_by or ""),
            "source": check.limit.source if check.limit else "",
            "waiver": check.waiver,
        })  # fmt: skip
    return rows


def gaps(checks: Iterable[Check]) -> list[Row]:
    """Return rows of what could not be judged, by burn, reason and cure."""
    same: dict[tuple[str, str, str], list[Check]] = {}
    for check in checks:
        same.setdefault((check.id, check.message, check.cure), []).append(check)
    return [
        {
            "burn": burn,
            "reason": reason,
            "cure": cure,
            "places": places(c.subject for c in group),
            "metrics": list(dict.fromkeys(c.metric for c in group)),
            "count": len(group),
        }
        for (burn, reason, cure), group in same.items()
    ]
