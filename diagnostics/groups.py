"""The failed checks of one subject, grouped by the cause that accounts for them.

A check points at a component; what another cause on the same subject explains (a slow GPU that is
hot, whatever a GPU that is gone no longer shows) joins that cause and is none of its own.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.rules.xid import cause_of
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event

GONE = frozenset({"gpu.present"})
WRONG_PART = frozenset({"gpu.name", "gpu.pci_id"})
FOLLOWS = frozenset({"xid.count", "recovery.action"})  # said of any cause on that GPU
# what a part of another SKU has in another size or number, and its links with it
OF_THE_PART = frozenset(
    "memory.total nvlink.links nvlink.speed pcie.gen.max pcie.width.max vbios.version "
    "temperature thermal.margin".split()
)


@dataclass(frozen=True, slots=True)
class Group:
    """The failed checks of one subject that one cause accounts for."""

    subject: str
    cause: str
    component: str
    checks: tuple[Check, ...]

    def runs(self) -> tuple[int, int]:
        """Return (failed, passed) runs over the burns in which it failed.

        A run that read none of its checks did neither. What only follows from a cause (an XID
        that is said once) does not tell how lasting the cause is.
        """
        failed: dict[tuple[str, int], bool] = {}
        telling = [check for check in self.checks if check.metric not in FOLLOWS]
        for check in telling or self.checks:
            for attempt, value, out in zip(check.attempts, check.runs, check.failed, strict=True):
                if value is not None:
                    failed[check.id, attempt] = failed.get((check.id, attempt), False) or out
        return sum(failed.values()), sum(not out for out in failed.values())

    @property
    def metrics(self) -> set[str]:
        """The metrics that failed."""
        return {check.metric for check in self.checks}


def explains(cause: str, metric: str) -> bool:
    """Say whether a GPU with `cause` needs no other reason for `metric` to be outside."""
    if cause == "gone":
        return True
    slow = metric.endswith(".rate") or metric == "hbm.bandwidth"
    if cause == "wrong-part":
        return slow or metric in OF_THE_PART
    return slow and cause in ("power", "thermal")


def _cause(check: Check) -> str:
    if check.metric in GONE:
        return "gone"
    if check.metric in WRONG_PART:
        return "wrong-part"
    return metrics()[check.metric].component


def _component(cause: str, events: Iterable[Event]) -> str:
    if cause == "gone":
        return "pcie" if any(event.code == "xid.79" for event in events) else "unknown"
    return "host" if cause == "wrong-part" else cause


def groups_of(subject: str, checks: Sequence[Check], events: Sequence[Event]) -> list[Group]:
    """Return the groups of a subject's failed checks; `events` are its own."""
    by_cause: dict[str, list[Check]] = defaultdict(list)
    following: list[Check] = []
    for check in checks:
        (following if check.metric in FOLLOWS else by_cause[_cause(check)]).append(check)
    causes = list(by_cause)
    found: dict[str, list[Check]] = defaultdict(list)
    for cause in causes:
        for check in by_cause[cause]:
            reason = next((c for c in causes if c != cause and explains(c, check.metric)), cause)
            found["gone" if "gone" in causes else reason].append(check)
    said = cause_of(event.code for event in events).component
    if following and not found:
        return [Group(subject, "said", said, tuple(following))]
    lead = next((c for c in found if _component(c, events) == said), next(iter(found), ""))
    return [
        Group(
            subject,
            cause,
            _component(cause, events),
            (*own, *(following if cause == lead else ())),
        )
        for cause, own in found.items()
    ]
