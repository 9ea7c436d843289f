"""What to do about a root of a run: the rule's own action, the sequential test's, or both.

In: a group of failed checks, what was said there, and the decision of the sequential test. Out: a
word of the contract. What a driver asks for, or what waits for a reset, is done in any case.
Without retests the runs decide between watching and repair; with them the least expected loss does,
and of a GPU that is to be taken out the rule says how. Retests never make a lasting fault's action
milder, and what they tried in vain is not advised again.
"""

from collections.abc import Sequence

from rackproof.diagnostics.effects import FOLLOWS
from rackproof.diagnostics.groups import Group
from rackproof.diagnostics.retest.model import Decision, Outcome, Test
from rackproof.diagnostics.rules.xid import cause_of
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event

RANK = ("rma", "field-diag", "swap-to-spare", "reboot-node", "reset-gpu")
# what the driver itself asks for decides where nothing else failed
ASKED = {
    "reset": "reset-gpu",
    "drain-p2p": "reset-gpu",
    "drain-and-reset": "reset-gpu",
    "reboot": "reboot-node",
}
WAITS_FOR_RESET = frozenset({"remap.pending", "retired.pending", "ecc.uncorrected.volatile"})
IDLE = frozenset(("none", "watch", "retest"))
_REPAIR = frozenset(("diagnose", "swap", "link", "switch", "host", "nic"))


def action(
    group: Group, decision: Decision, events: Sequence[Event], outcomes: Sequence[Outcome]
) -> str:
    """Return the action for a root; `events` are those of its subject, `outcomes` its retests.

    What is there in every run is never only watched, and what was tried is not advised again.
    """
    wanted = _fixed(group, events) or _chosen(group, decision, retested=bool(outcomes))
    if outcomes and decision.persistence == "persistent" and wanted in IDLE:
        own = _own(group)
        wanted = "field-diag" if own in IDLE else own
    return _untried(wanted, outcomes)


def _chosen(group: Group, decision: Decision, *, retested: bool) -> str:
    """Return the action by the runs, or after retests by the least expected loss."""
    own = _own(group)
    if not retested:
        return "watch" if decision.persistence in ("transient", "intermittent") else own
    at_place = decision.choice in ("swap", "diagnose") or own.startswith("check-")
    return own if decision.choice in _REPAIR and at_place else decision.action


def _untried(wanted: str, outcomes: Sequence[Outcome]) -> str:
    """Return what to do after what was tried: nothing where it helped, else what goes further."""
    if wanted == "reset-gpu":
        helped = _helped(Test.RESET, outcomes)
        wanted = wanted if helped is None else "none" if helped else "reboot-node"
    if wanted == "reboot-node":
        helped = _helped(Test.REBOOT, outcomes)
        if helped is None:
            return wanted
        stayed = any(outcome.stayed and not outcome.struck for outcome in outcomes)
        wanted = "watch" if helped else "check-cabling" if stayed else "field-diag"
    return wanted


def _helped(test: Test, outcomes: Sequence[Outcome]) -> bool | None:
    """Say whether a reset or a reboot ended it; None where it was not tried."""
    tried = [n for n, outcome in enumerate(outcomes) if outcome.test is test and outcome.runs]
    if not tried:
        return None
    since = [o for o in outcomes[tried[-1] :] if o.test in (test, Test.AGAIN, Test.SOAK)]
    return not any(outcome.struck for outcome in since)


def _fixed(group: Group, events: Sequence[Event]) -> str | None:
    """Return the action that no retest changes; None where there is none."""
    names = group.metrics - FOLLOWS
    if group.cause == "said":
        return _asked(group, events)
    if "remap.failure" in names:
        return "rma"
    if names and names <= WAITS_FOR_RESET:
        return "reset-gpu"
    return "reboot-node" if group.cause == "gone" else None


def _own(group: Group) -> str:
    """Return the gravest action of the group's own metrics.

    What the cause explains (the rate of a GPU whose power is short) has no say in what to do.
    """
    names = group.metrics - FOLLOWS
    own = {name for name in names if metrics()[name].component == group.component}
    wanted = {metrics()[name].action for name in own or names}
    if group.cause == "nvswitch":
        wanted = {"field-diag"}
    known = [word for word in RANK if word in wanted]
    return (known or sorted(wanted - {"watch"}) or ["retest"])[0]


def _asked(group: Group, events: Sequence[Event]) -> str:
    """Return the action where only the driver spoke: what it asks for, or what its Xid means."""
    for check in group.checks:
        if check.metric == "recovery.action" and check.value in ASKED:
            return ASKED[str(check.value)]
    rule = cause_of(event.code for event in events)
    return rule.action if rule.kind in ("terminal", "hardware", "driver") else "retest"
