"""What reports say of retests: each in a line, what they took, and of how much.

In: a record and its judgement. Out: Retesting, plain text in rows; nothing where nobody gave a
budget for retests, so that such a report is as it would be without them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.evidence import Record
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.retest.retold import Retold, retold
from rackproof.reports.words import counted, spoken

WHAT: Mapping[str, str] = {
    "again": "burnt again",
    "reset": "reset, then burnt",
    "reboot": "host rebooted, then burnt",
    "elsewhere": "the same burn on {other}",
    "swap": "exchanged with {other}, then both burnt",
    "soak": "burnt many times",
}


@dataclass(frozen=True, slots=True)
class Retesting:
    """The retests of a run, and the budget that was given for them, in seconds."""

    rows: Sequence[Retold]
    budget: float

    @property
    def total(self) -> str:
        """How many there were, and how much they took of the budget."""
        took = round(sum(row.seconds for row in self.rows), 1)
        count = counted(len(self.rows), "retest") if self.rows else "no retest"
        return f"{count}, {spoken(took)} of {spoken(self.budget)}"


def retesting(record: Record, judgement: Judgement) -> Retesting | None:
    """Return what is to be said of retests; None where no budget was given."""
    if record.head.retest_budget is None:
        return None
    return Retesting(retold(record, judgement), record.head.retest_budget)


def what(row: Retold) -> str:
    """Return what was done, and with which burn."""
    return f"{WHAT[row.test].format(other=row.other)} ({row.burn}, {spoken(row.seconds)})"


def showed(row: Retold) -> str:
    """Return what it showed."""
    if not row.finished:
        return "cut short: it proves nothing"
    if not row.runs:
        return "no reading came: it proves nothing"
    runs = counted(row.runs, "run")
    if row.test == "swap":
        return (
            f"the fault showed in {row.struck} of {runs} in the new place"
            f" and in {row.stayed} of {row.runs} at the old one"
        )
    where = "there" if row.test == "elsewhere" else ""
    return f"the fault showed {where} in {row.struck} of {runs}".replace("  ", " ")
