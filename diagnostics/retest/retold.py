"""The retests of a run with what they showed, for reports: one row each, in the order they ran.

In: a record and its judgement. Out: Retold. One that was cut short showed nothing; its time is
counted all the same.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.diagnostics.checks import serials_of
from rackproof.diagnostics.classify import classify
from rackproof.diagnostics.evidence import Record, Retested
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.limits import from_record
from rackproof.diagnostics.retest.model import Outcome, Test
from rackproof.diagnostics.retest.outcomes import Retests
from rackproof.harness.model import Event


@dataclass(frozen=True, slots=True)
class Retold:
    """One retest of `subject`, a root: in `struck` of `runs` runs its fault showed.

    `runs` counts those that read anything. `other` is the other GPU, of a swap the one whose place
    was taken: `struck` is what showed there, `stayed` what showed at the old place.
    """

    test: str
    subject: str
    burn: str
    runs: int
    struck: int
    stayed: int
    seconds: float
    why: str
    other: str = ""
    finished: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object of `burn` and `diagnose`."""
        body: dict[str, Any] = {
            "test": self.test,
            "subject": self.subject,
            "burn": self.burn,
            "runs": self.runs,
            "struck": self.struck,
            "stayed": self.stayed,
            "seconds": round(self.seconds, 3),
            "why": self.why,
        }
        if self.other:
            body["other"] = self.other
        if not self.finished:
            body["finished"] = False
        return body


def _row(retest: Retested, outcome: Outcome, *, finished: bool) -> Retold:
    return Retold(
        retest.test,
        retest.root,
        retest.burn,
        outcome.runs,
        outcome.struck,
        outcome.stayed,
        retest.seconds,
        retest.why,
        retest.other,
        finished,
    )


def retold(record: Record, judgement: Judgement) -> Sequence[Retold]:
    """Return the retests of a record; `judgement` is that of the record."""
    plan, limits = record.planned(), from_record(record.head.limits)
    retests = Retests.of(record, limits)
    cut = [_row(each, Outcome(Test(each.test), 0), finished=False) for each in record.begun]
    if retests is None:
        return cut
    events = [what for what in plan.seen if isinstance(what, Event)]
    found = classify(record.head, judgement.checks, events, serials_of(plan), retests)
    groups = {(group.subject, group.cause): group for group, _ in found.believed(lambda _: "")}
    rows = []
    for each in record.retests:
        group = groups.get((each.root, each.cause))
        outcome = retests.outcome(group, each) if group else Outcome(Test(each.test), 0)
        rows.append(_row(each, outcome, finished=True))
    return [*rows, *cut]
