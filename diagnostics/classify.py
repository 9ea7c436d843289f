"""From failed checks to diagnoses: which component, how lasting, who is root and who is victim.

Failed checks are grouped by cause (groups.py), and what several subjects share is the fault of what
they share (shared.py), or of another that they follow from (distant.py): that is the root, once,
and they are victims. Persistence comes from the runs of the burns that failed, and from retests
(retest/). A burn that was outside in all its runs shows a persistent cause, also where other burns
see it now and then; else one run outside of several is transient, and more than one intermittent.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.distant import distant
from rackproof.diagnostics.evidence import Head, gpu_of
from rackproof.diagnostics.groups import Group, groups_of, is_clear
from rackproof.diagnostics.remedy import action
from rackproof.diagnostics.retest.belief import Belief, begin, update
from rackproof.diagnostics.retest.decide import EVERY, FEWEST_FAILS, OF_NO_GPU, decide
from rackproof.diagnostics.retest.outcomes import Retests
from rackproof.diagnostics.retest.signs import of_group
from rackproof.diagnostics.shared import Shared, shared
from rackproof.harness.model import Event, sort_of

RACKS = frozenset(("power", "shelf", "cooling"))
"""Sorts of what stands around the GPUs of a rack."""
SITE = frozenset(f"power.step.{part}{what}" for part in ("", "mains.") for what in ("line", "ramp"))
OF_SITE = (
    "with healthy stores it is the load's own: another iteration period, power smoothing, or more"
    " storage"
)


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
    retests: Retests | None = None

    def root(self, group: Group, case: int) -> Diagnosis:
        """Return the diagnosis of a group that is its own cause."""
        events = self.events.get(group.subject, ())
        return self._root(group, case, _because(group, events))

    def lead(self, case: Shared, number: int) -> Diagnosis:
        """Return the diagnosis of what the members of a case share."""
        events = self.events.get(case.subject, ())
        because = (*_together(case), *_because(_NOTHING, events))
        return self._root(_whole(case), number, because)

    def _root(self, group: Group, case: int, because: tuple[str, ...]) -> Diagnosis:
        events = self.events.get(group.subject, ())
        belief = self.belief(group)
        sort = sort_of(group.subject)
        decision = decide(belief, OF_NO_GPU if sort in RACKS else EVERY)
        return Diagnosis(
            subject=group.subject,
            component=decision.component if belief.outcomes else group.component,
            persistence=decision.persistence,
            action=action(group, decision, events, belief.outcomes),
            case=case,
            because=(*because, *_site(group), *decision.because),
            confidence=decision.sure,
            serial=self.serials.get(gpu_of(group.subject)),
        )

    def belief(self, group: Group, burn: str = "") -> Belief:
        """Return what is believed of a root, after its runs and its retests."""
        events = self.events.get(group.subject, ())
        signs = of_group(self.head, group, telling(group.runs()), events, burn)
        serial = self.serials.get(gpu_of(group.subject), "")
        if self.retests and serial in self.retests.pasts:
            earlier, hours = self.retests.pasts[serial]
            signs = replace(signs, earlier=earlier, hours=hours)
        belief = begin(signs)
        for outcome in self.retests.outcomes(group) if self.retests else ():
            belief = update(belief, outcome)
        return belief

    def victim(self, group: Group, root: str, case: int) -> Diagnosis:
        """Return the entry of a group whose cause is elsewhere."""
        failed, passed = telling(group.runs())
        lasting = persistence(failed, passed)
        return Diagnosis(
            subject=group.subject,
            component=group.component,
            persistence=lasting,
            action="none",
            case=case,
            because=(f"{root} is the root", *_because(group, ())),
            role="victim",
            confidence=begin(of_group(self.head, group, (failed, passed))).word(lasting),
            serial=self.serials.get(gpu_of(group.subject)),
        )


def _site(group: Group) -> tuple[str, ...]:
    """Say what helps against what a rack does to its mains, where its own supply may be well."""
    lines = group.metrics & SITE
    return (OF_SITE,) if lines and sort_of(group.subject) == "power" else ()


_NOTHING = Group("", "", "", ())


def _whole(case: Shared) -> Group:
    """Return the checks of all members of a case as those of what they share."""
    checks = tuple(check for member in case.members for check in member.checks)
    return Group(case.subject, case.cause, case.component, checks)


@dataclass(frozen=True, slots=True)
class Classified:
    """What the failed checks of a run come from: their groups, and the cases that they share."""

    evidence: _Evidence
    groups: Sequence[Group]
    case_of: Mapping[int, Shared]
    roots: Sequence[Shared | Group]

    def believed(self, burn_of: Callable[[Group], str]) -> list[tuple[Group, Belief]]:
        """Return each root, in the order of its diagnosis, with what is believed of it.

        `burn_of` names the burn that would be run again.
        """
        wholes = [_whole(r) if isinstance(r, Shared) else r for r in self.roots]
        return [(root, self.evidence.belief(root, burn_of(root))) for root in wholes]


def diagnose(
    head: Head,
    checks: Iterable[Check],
    events: Sequence[Event],
    serials: Mapping[str, str],
    retests: Retests | None = None,
) -> list[Diagnosis]:
    """Return the diagnoses of a run's failed checks; waived ones conclude nothing."""
    return _told(classify(head, checks, events, serials, retests))


def classify(
    head: Head,
    checks: Iterable[Check],
    events: Sequence[Event],
    serials: Mapping[str, str],
    retests: Retests | None = None,
) -> Classified:
    """Return the groups of a run's failed checks and the roots among them."""
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
    evidence = _Evidence(head, by_subject, serials, retests)
    groups = [g for s, own in failed.items() for g in groups_of(s, own, by_subject[s], clear[s])]
    cases = shared(head, groups)
    cases += distant(head, groups, cases, by_subject)
    case_of = {id(member): case for case in cases for member in case.members}
    roots: list[Shared | Group] = [case for case in cases if case.lead is None]
    alone = (g for g in groups if id(g) not in case_of)
    roots += sorted(alone, key=lambda g: (g.subject, g.cause))
    return Classified(evidence, groups, case_of, roots)


def _told(found_out: Classified) -> list[Diagnosis]:
    """Return the roots, each with its victims' entries; a victim stands once in a case."""
    evidence, roots = found_out.evidence, found_out.roots
    members: dict[int, dict[str, list[Group]]] = defaultdict(lambda: defaultdict(list))
    for group in found_out.groups:
        root = _root_of(group, found_out.case_of)
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
