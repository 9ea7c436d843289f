"""A limit of the user's that held nothing: no check of a run met it, though its burn ran.

In: a record's first line, the limits in force, and the checks of the run. Out: one UNKNOWN for each
such limit, which says why and what to do, so that no run passes by a limit that nobody looked at.
What the user narrowed to subjects or an SKU that the rack does not have is meant for another rack.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.evidence import Head, Planned, gpu_of
from rackproof.diagnostics.limits import Limit, Limits
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.metrics import Metric, metrics
from rackproof.harness.model import WIDE

NOTHING = "your limit held nothing"
"""Stands in the message of such a check."""
RACKS = ("power", "shelf", "cooling")
"""Sorts that stand around all the GPUs of a rack, and are looked at only with all of them."""


def held(head: Head, limits: Limits, checks: Iterable[Check]) -> list[Check]:
    """Return the checks with the limits of the user's that would else have been silent."""
    found = list(checks)
    for limit in limits.limits:
        metric = metrics()[limit.metric]
        if limit.layer != "user" or (limit.sku is not None and limit.sku not in head.gpus.values()):
            continue
        met = [c for c in found if c.metric == limit.metric and _reaches(head, limit, c.subject)]
        if not met:
            found += _unmet(head, limit, metric)
        elif metric.optional:
            found = [_asked(c, limit) if c in met and c.verdict is Verdict.SKIP else c
                     for c in found]  # fmt: skip
    return found


def _unmet(head: Head, limit: Limit, metric: Metric) -> Iterator[Check]:
    """Yield the UNKNOWN of a limit that no check met, in the first planned burn that owes it."""
    for planned in head.plan:
        sort = _sort(planned, limit.metric)
        if sort is None:
            continue
        subjects = head.subjects(sort)
        if subjects and not any(map(limit.on, subjects)):
            return  # it names others: a remark says so where the run begins
        subject = next(filter(limit.on, subjects), WIDE)
        reason = f"no {sort} of this run has such a reading: {NOTHING}"
        cure = f"narrow the limit to what has it (subject, sku), or measure {limit.metric} here"
        if sort in RACKS and not subjects:
            reason = f"{NOTHING}: nothing of the sort {sort} is known here, or not all GPUs of"
            reason += " the rack were burnt"
            cure = f"burn the whole rack, with its {sort} in the rack's file; else take the limit"
            cure += " out, or give it the sku of the racks that it is for"
        yield Check(planned.burn, subject, limit.metric, Verdict.UNKNOWN, reason, metric.unit,
                    limit=limit, decided_by=limit.layer, cure=cure)  # fmt: skip
        return


def _reaches(head: Head, limit: Limit, subject: str) -> bool:
    """Say whether a limit is one of `subject`: an SKU is that of a GPU, and of its links."""
    return limit.on(subject) and limit.sku in (None, head.gpus.get(gpu_of(subject)))


def _sort(planned: Planned, name: str) -> str | None:
    return next((sort for sort, names in planned.owes.items() if name in names), None)


def _asked(check: Check, limit: Limit) -> Check:
    """Return what was left aside as UNKNOWN, since the user asks for it."""
    return replace(
        check,
        verdict=Verdict.UNKNOWN,
        message=f"{check.message}: {NOTHING}",
        limit=limit,
        decided_by=limit.layer,
        cure="narrow the limit to the racks that have it (subject, sku), or take it out",
    )


def unheld(checks: Iterable[Check]) -> list[str]:
    """Return the metrics of the user's limits that held nothing."""
    return list(dict.fromkeys(c.metric for c in checks if NOTHING in c.message))
