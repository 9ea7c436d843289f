"""The failed checks of one subject, grouped by the cause that accounts for them.

A check points at a component; what another cause on the same subject explains (a slow GPU that is
hot, whatever a GPU that is gone no longer shows) joins that cause and is none of its own.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.effects import (
    FOLLOWS,
    ORDER,
    TRACES,
    cause_of_metric,
    component_of,
    explains,
    matches,
)
from rackproof.diagnostics.rules.xid import cause_of
from rackproof.harness.metrics import metrics
from rackproof.harness.model import WIDE, Event

# Wrong products are looked for alike in every precision, so all gemm burns are one burn here.
ALIKE = ("gemm.*.wrong",)
# Any burn with traffic on a link counts its errors alike: one that saw none is a run that passed.
COUNTED = ("nvlink.errors.delta", "nvlink.recoveries.delta")


@dataclass(frozen=True, slots=True)
class Group:
    """The failed checks of one subject that one cause accounts for.

    `clear` are checks of the subject that look for the same as a failed one and found nothing.
    """

    subject: str
    cause: str
    component: str
    checks: tuple[Check, ...]
    clear: tuple[Check, ...] = ()

    def telling(self) -> Sequence[Check]:
        """Return the failed checks that tell how lasting the cause is.

        What only follows from a cause (an XID that is said once), or is left behind by it, does
        not, where there is anything else.
        """
        told = [check for check in self.checks if check.metric not in FOLLOWS]
        return [check for check in told if check.metric not in TRACES] or told or self.checks

    def runs(self) -> list[tuple[int, int]]:
        """Return (failed, passed) runs of each burn in which it failed.

        A run that read none of its telling checks did neither. Burns that look for the same and
        found nothing count where they are the most.
        """
        failed: dict[str, dict[tuple[str, int], bool]] = defaultdict(dict)
        for check in self.telling():
            own = failed[_pool(check)]
            for attempt, value, out in zip(check.attempts, check.runs, check.failed, strict=True):
                if value is not None:
                    own[check.id, attempt] = own.get((check.id, attempt), False) or out
        for pool, own in failed.items():
            clear = [check for check in self.clear if _pool(check) == pool]
            if len(clear) > len({burn for burn, _ in own}):
                own.update(((check.id, n), False) for check in clear for n in check.attempts)
        return [(sum(own.values()), len(own) - sum(own.values())) for own in failed.values()]

    @property
    def metrics(self) -> set[str]:
        """The metrics that failed."""
        return {check.metric for check in self.checks}

    @property
    def signs(self) -> set[str]:
        """Those of them that are signs of its own cause, and not explained by it."""
        return {name for name in self.metrics if _cause(self.subject, name) == self.cause}


def _pool(check: Check) -> str:
    """Name the burn that a check's runs count for: burns that look for the same are one."""
    if matches(check.metric, COUNTED):
        return "link"
    return "gemm" if matches(check.metric, ALIKE) else check.id


def _cause(subject: str, metric: str) -> str:
    return "fabric" if subject == WIDE else cause_of_metric(metric, metrics()[metric].component)


def _component(cause: str, events: Iterable[Event]) -> str:
    if cause == "gone" and any(event.code == "xid.79" for event in events):
        return "pcie"
    return component_of(cause)


def _reason(metric: str, own: str, signs: Mapping[str, Sequence[str]]) -> str:
    """Return the cause that explains a metric whose own cause is `own`; `own` where none does."""
    if "gone" in signs:
        return "gone"
    others = [cause for cause in ORDER if cause in signs and cause != own]
    if own == "unknown" and others:  # work that was not done, on a GPU whose fault is known
        return others[0]
    return next((cause for cause in others if explains(cause, signs[cause], metric)), own)


def _settled(signs: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the cause that each metric belongs to in the end.

    A cause whose every sign another one explains takes what it explained along.
    """
    reasons = {m: _reason(m, cause, signs) for cause, own in signs.items() for m in own}
    stands = {cause for cause, own in signs.items() if any(reasons[m] == cause for m in own)}
    for _ in signs:
        for metric, cause in reasons.items():
            if cause not in stands:
                reasons[metric] = reasons[signs[cause][0]]
    return reasons


def is_clear(check: Check) -> bool:
    """Say whether a check looked for what other burns look for too, and found nothing."""
    return matches(check.metric, ALIKE) and bool(check.runs) and not any(check.failed)


def groups_of(
    subject: str, checks: Sequence[Check], events: Sequence[Event], clear: Sequence[Check] = ()
) -> list[Group]:
    """Return the groups of a subject's failed checks; `events` and `clear` checks are its own."""
    signs: dict[str, list[str]] = defaultdict(list)
    following = [check for check in checks if check.metric in FOLLOWS]
    own = [check for check in checks if check.metric not in FOLLOWS]
    for name in dict.fromkeys(check.metric for check in own):
        signs[_cause(subject, name)].append(name)
    reasons = _settled(signs)
    found: dict[str, list[Check]] = defaultdict(list)
    for check in own:
        found[reasons[check.metric]].append(check)
    said = cause_of(event.code for event in events).component
    if following and not found:
        return [Group(subject, "said", said, tuple(following))]
    lead = next((c for c in found if _component(c, events) == said), next(iter(found), ""))
    return [
        Group(
            subject,
            cause,
            _component(cause, events),
            (*each, *(following if cause == lead else ())),
            tuple(clear),
        )
        for cause, each in found.items()
    ]
