"""From failed checks to diagnoses: which component, how lasting, who is root and who is victim.

Failed checks are grouped by cause (groups.py), and what several subjects share is the fault of what
they share (shared.py), or of another that they follow from (distant.py): that is the root, once,
and they are victims. Persistence comes from the runs of the burns that failed. A burn that was
outside in all its runs shows a persistent cause, also where other burns see it now and then; else
one run outside of several is transient, and more than one is intermittent.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.distant import distant
from rackproof.diagnostics.effects import FOLLOWS
from rackproof.diagnostics.evidence import Head, gpu_of
from rackproof.diagnostics.groups import Group, groups_of, is_clear
from rackproof.diagnostics.rules.xid import cause_of
from rackproof.diagnostics.shared import Shared, shared
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event

# Wald's log-likelihood ratios for a fail rate of 0.95 (persistent) against 0.02 (chance).
FAIL_LLR = math.log(0.95 / 0.02)
PASS_LLR = math.log(0.05 / 0.98)
FEWEST_FAILS = 2  # one failed run alone says nothing about persistence
RANK = ("rma", "field-diag", "swap-to-spare", "reboot-node", "reset-gpu")
# what the driver itself asks for decides where nothing else failed
ASKED = {
    "reset": "reset-gpu",
    "drain-p2p": "reset-gpu",
    "drain-and-reset": "reset-gpu",
    "reboot": "reboot-node",
}
WAITS_FOR_RESET = frozenset({"remap.pending", "retired.pending", "ecc.uncorrected.volatile"})


def persistence(failed: int, passed: int) -> str:
    """Name the persistence that `failed` and `passed` runs of the same burns show."""
    if not passed:
        return "persistent" if failed >= FEWEST_FAILS else "undetermined"
    return "transient" if failed == 1 else "intermittent"


def telling(runs: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return the (failed, passed) runs that tell how lasting a cause is; `runs` are by burn.

    Where as many burns or more were outside in all of several runs as were so in some, those: the
    others cannot see it every time. Otherwise all of them together.
    """
    always = [failed for failed, passed in runs if failed >= FEWEST_FAILS and not passed]
    mixed = sum(bool(failed and passed) for failed, passed in runs)
    if always and len(always) >= mixed:
        return sum(always), 0
    return sum(failed for failed, _ in runs), sum(passed for _, passed in runs)


def confidence(failed: int, passed: int) -> float:
    """Return how sure the persistence is, in 0..1.

    Persistent: Wald's likelihood ratio at even odds. Transient: 1/(1 + 0.7^passed), since an
    intermittent that strikes with 0.3 passes so often too. Intermittent: it did both.
    """
    word = persistence(failed, passed)
    if word == "persistent":
        return 1 / (1 + math.exp(-(failed * FAIL_LLR + passed * PASS_LLR)))
    if word == "transient":
        return 1 / (1 + 0.7**passed)
    return 0.95 if word == "intermittent" else 0.5


def _action(group: Group, lasting: str, events: Sequence[Event]) -> str:
    names = group.metrics - FOLLOWS
    if group.cause == "said":
        return _asked(group, events)
    fixed = "reboot-node" if group.cause == "gone" else None
    if "remap.failure" in names:
        fixed = "rma"
    elif names and names <= WAITS_FOR_RESET:
        fixed = "reset-gpu"
    if fixed is not None:
        return fixed
    if lasting in ("transient", "intermittent"):
        return "watch"
    # what the cause explains (the rate of a GPU whose power is short) has no say in what to do
    own = {name for name in names if metrics()[name].component == group.component}
    wanted = {metrics()[name].action for name in own or names}
    if group.cause == "nvswitch":
        wanted = {"field-diag"}
    known = [action for action in RANK if action in wanted]
    return (known or sorted(wanted - {"watch"}) or ["retest"])[0]


def _asked(group: Group, events: Sequence[Event]) -> str:
    """Return the action where only the driver spoke: what it asks for, or what its Xid means."""
    for check in group.checks:
        if check.metric == "recovery.action" and check.value in ASKED:
            return ASKED[str(check.value)]
    rule = cause_of(event.code for event in events)
    return rule.action if rule.kind in ("terminal", "hardware", "driver") else "retest"


def _because(group: Group, events: Sequence[Event]) -> tuple[str, ...]:
    lines = []
    for check in group.checks:
        runs = ", ".join(_shown(v) for v in check.runs)
        read = sum(v is not None for v in check.runs)
        lines.append(f"{check.id}: {check.metric} {runs} in {sum(check.failed)} of {read} runs")
    said = Counter(event.code for event in events)
    lines += [f"{code} x{count}" for code, count in sorted(said.items())]
    return tuple(lines)


def _shown(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _together(case: Shared) -> tuple[str, ...]:
    """Say of each check on how many of the members it failed."""
    subjects = {member.subject for member in case.members}
    counted: dict[tuple[str, str], set[str]] = defaultdict(set)
    for member in case.members:
        for check in member.checks:
            counted[check.id, check.metric].add(member.subject)
    return tuple(
        f"{burn}: {metric} on {len(on)} of {len(subjects)} ({min(on)} to {max(on)})"
        for (burn, metric), on in counted.items()
    )


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What the diagnoses of one run rest on."""

    head: Head
    events: Mapping[str, Sequence[Event]]
    serials: Mapping[str, str]

    def root(self, group: Group, case: int) -> Diagnosis:
        """Return the diagnosis of a group that is its own cause."""
        events = self.events.get(group.subject, ())
        return self._root(group, case, _because(group, events))

    def lead(self, case: Shared, number: int) -> Diagnosis:
        """Return the diagnosis of what the members of a case share."""
        checks = tuple(check for member in case.members for check in member.checks)
        group = Group(case.subject, case.cause, case.component, checks)
        events = self.events.get(case.subject, ())
        return self._root(group, number, (*_together(case), *_because(_NOTHING, events)))

    def _root(self, group: Group, case: int, because: tuple[str, ...]) -> Diagnosis:
        failed, passed = telling(group.runs())
        lasting = persistence(failed, passed)
        return Diagnosis(
            subject=group.subject,
            component=group.component,
            persistence=lasting,
            action=_action(group, lasting, self.events.get(group.subject, ())),
            case=case,
            because=because,
            confidence=confidence(failed, passed),
            serial=self.serials.get(gpu_of(group.subject)),
        )

    def victim(self, group: Group, root: str, case: int) -> Diagnosis:
        """Return the entry of a group whose cause is elsewhere."""
        failed, passed = telling(group.runs())
        return Diagnosis(
            subject=group.subject,
            component=group.component,
            persistence=persistence(failed, passed),
            action="none",
            case=case,
            because=(f"{root} is the root", *_because(group, ())),
            role="victim",
            confidence=confidence(failed, passed),
            serial=self.serials.get(gpu_of(group.subject)),
        )


_NOTHING = Group("", "", "", ())


def diagnose(
    head: Head, checks: Iterable[Check], events: Sequence[Event], serials: Mapping[str, str]
) -> list[Diagnosis]:
    """Return the diagnoses of a run's failed checks; waived ones conclude nothing."""
    failed: dict[str, list[Check]] = defaultdict(list)
    clear: dict[str, list[Check]] = defaultdict(list)
    for check in checks:
        if any(check.failed) and check.waiver is None:
            failed[check.subject].append(check)
        elif is_clear(check):
            clear[check.subject].append(check)
    by_subject: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_subject[event.subject].append(event)
    evidence = _Evidence(head, by_subject, serials)
    groups = [g for s, own in failed.items() for g in groups_of(s, own, by_subject[s], clear[s])]
    cases = shared(head, groups)
    cases += distant(head, groups, cases, by_subject)
    return _told(evidence, groups, cases)


def _told(evidence: _Evidence, groups: Sequence[Group], cases: Sequence[Shared]) -> list[Diagnosis]:
    """Return the roots, each with its victims' entries; a victim stands once in a case."""
    case_of = {id(member): case for case in cases for member in case.members}
    roots: list[Shared | Group] = [case for case in cases if case.lead is None]
    alone = (g for g in groups if id(g) not in case_of)
    roots += sorted(alone, key=lambda g: (g.subject, g.cause))
    members: dict[int, dict[str, list[Group]]] = defaultdict(lambda: defaultdict(list))
    for group in groups:
        root = _root_of(group, case_of)
        if root is not group and root.subject != group.subject:
            members[id(root)][group.subject].append(group)
    found: list[Diagnosis] = []
    for number, root in enumerate(roots, 1):
        if isinstance(root, Shared):
            found.append(evidence.lead(root, number))
        else:
            found.append(evidence.root(root, number))
        victims = members[id(root)].values()
        found += [evidence.victim(_joined(own), root.subject, number) for own in victims]
    return found


def _root_of(group: Group, case_of: Mapping[int, Shared]) -> Shared | Group:
    """Return what a group comes from in the end: a shared case, another group, or itself."""
    seen = set[int]()
    while (case := case_of.get(id(group))) is not None and id(group) not in seen:
        seen.add(id(group))
        if case.lead is None:
            return case
        group = case.lead
    return group


def _joined(groups: Sequence[Group]) -> Group:
    first = groups[0]
    checks = tuple(check for group in groups for check in group.checks)
    return Group(first.subject, first.cause, first.component, checks)
