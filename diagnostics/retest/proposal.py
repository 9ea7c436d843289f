"""What can be asked of choose() after a run: each root, the belief, the burn to run again.

In: a record and its judgement. Out: Proposals. They hold no choice yet: whoever has the hardware
knows the budget and what is allowed.
"""

from dataclasses import dataclass

from rackproof.diagnostics.checks import serials_of
from rackproof.diagnostics.classify import classify
from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.evidence import Head, Record
from rackproof.diagnostics.groups import Group
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.limits import from_record
from rackproof.diagnostics.retest.belief import Belief
from rackproof.diagnostics.retest.model import Signs
from rackproof.diagnostics.retest.outcomes import Retests
from rackproof.harness.model import Event


@dataclass(frozen=True, slots=True)
class Proposal:
    """One root that retests may tell more of.

    `root` is its diagnosis, `cause` the name of its group of failed checks (write both into
    Retested: root.subject and cause), `burn` the burn to run again: of those that failed most often
    the shortest. `belief` holds what is believed after all retests that are in the record: ask
    choose(belief, budget_s, allowed) for the next one. `signs` is what it began with.
    """

    root: Diagnosis
    cause: str
    burn: str
    belief: Belief
    signs: Signs


def _burn(head: Head, group: Group) -> str:
    """Return the planned burn that failed most often on a root, of those the shortest."""
    took = {planned.burn: planned.seconds for planned in head.plan}
    counts: dict[str, int] = {}
    for check in group.telling():
        if check.id in took:
            counts[check.id] = max(counts.get(check.id, 0), sum(check.failed))
    return min(counts, key=lambda burn: (-counts[burn], took[burn], burn), default="")


def proposals(record: Record, judgement: Judgement) -> list[Proposal]:
    """Return a Proposal for each root diagnosis of `judgement`, in its order.

    `judgement` is that of `record` as it is now: call judge again after each retest. Roots whose
    burn is not of the plan are left out.
    """
    plan, head = record.planned(), record.head
    events = [what for what in plan.seen if isinstance(what, Event)]
    retests = Retests.of(record, from_record(head.limits))
    found = classify(head, judgement.checks, events, serials_of(plan), retests)
    roots = [diagnosis for diagnosis in judgement.diagnoses if diagnosis.role == "root"]
    pairs = zip(roots, found.believed(lambda group: _burn(head, group)), strict=True)
    return [
        Proposal(root, group.cause, burn, belief, belief.signs)
        for root, (group, belief) in pairs if (burn := _burn(head, group))
    ]  # fmt: skip
