"""From failed checks to diagnoses: which component, how lasting, who is root and who is victim.

Failed checks of one GPU are grouped by component; a group that another one explains (a slow GPU
that is hot) is not a cause of its own. The same flag on every GPU of a tray is the tray's: the host
is the root, once, and its GPUs are victims. Persistence comes from the runs of the burns that
failed: all runs outside is persistent, one of several is transient, more than one is intermittent.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.evidence import Head, gpu_of, sort_of
from rackproof.diagnostics.rules.xid import cause_of
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Event

# Wald's log-likelihood ratios for a fail rate of 0.95 (persistent) against 0.02 (chance).
FAIL_LLR = math.log(0.95 / 0.02)
PASS_LLR = math.log(0.05 / 0.98)
FEWEST_FAILS = 2  # one failed run alone says nothing about persistence

# cause -> what it explains on the same GPU, by component or by metric
EXPLAINS: Mapping[str, frozenset[str]] = {
    "gone": frozenset({"*"}),
    "wrong-part": frozenset(
        {"memory.total", "nvlink.links", "nvlink.speed", "pcie.gen.max", "pcie.width.max"}
        | {"gemm.fp32.rate", "vbios.version", "temperature", "thermal.margin"}
    ),
    "power": frozenset({"gemm.fp32.rate"}),
    "thermal": frozenset({"gemm.fp32.rate"}),
}
GONE = frozenset({"gpu.present"})
WRONG_PART = frozenset({"gpu.name", "gpu.pci_id"})
FOLLOWS = frozenset({"xid.count", "recovery.action"})  # said of any cause on that GPU
SHARED = frozenset({"power", "thermal"})  # what a whole tray can have from outside
RANK = ("rma", "field-diag", "swap-to-spare", "reboot-node", "reset-gpu")


@dataclass(frozen=True, slots=True)
class Group:
    """The failed checks of one subject that one cause accounts for."""

    subject: str
    cause: str
    component: str
    checks: tuple[Check, ...]

    def runs(self) -> tuple[int, int]:
        """Return (failed, passed) runs over the burns in which it failed."""
        failed: dict[tuple[str, int], bool] = {}
        for check in self.checks:
            for number, outside in enumerate(check.failed):
                failed[check.id, number] = failed.get((check.id, number), False) or outside
        return sum(failed.values()), sum(not f for f in failed.values())


def persistence(failed: int, passed: int) -> str:
    """Name the persistence that `failed` and `passed` runs of the same burns show."""
    if not passed:
        return "persistent" if failed >= FEWEST_FAILS else "undetermined"
    return "transient" if failed == 1 else "intermittent"


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


def _cause(check: Check) -> str:
    if check.metric in GONE:
        return "gone"
    if check.metric in WRONG_PART:
        return "wrong-part"
    return metrics()[check.metric].component


def _groups(subject: str, checks: Sequence[Check], events: Sequence[Event]) -> list[Group]:
    by_cause: dict[str, list[Check]] = defaultdict(list)
    following: list[Check] = []
    for check in checks:
        (following if check.metric in FOLLOWS else by_cause[_cause(check)]).append(check)
    causes = list(by_cause)
    for cause in causes:
        for check in list(by_cause[cause]):
            for other in causes:
                reach = EXPLAINS.get(other, frozenset())
                if other != cause and by_cause[other] and (check.metric in reach or "*" in reach):
                    by_cause[cause].remove(check)
                    by_cause[other].append(check)
                    break
    groups = [
        Group(subject, cause, _component(cause, events), tuple(found))
        for cause, found in by_cause.items()
        if found
    ]
    if following and not groups:
        component = cause_of(e.code for e in events).component if events else "unknown"
        groups = [Group(subject, "said", component, tuple(following))]
    elif following:
        lead = groups[0]
        groups[0] = Group(subject, lead.cause, lead.component, (*lead.checks, *following))
    return groups


def _component(cause: str, events: Sequence[Event]) -> str:
    if cause == "gone":
        return "pcie" if any(e.code == "xid.79" for e in events) else "unknown"
    return "host" if cause == "wrong-part" else cause


def _action(group: Group, lasting: str) -> str:
    names = {c.metric for c in group.checks if any(c.failed)} - FOLLOWS
    if group.cause == "said":
        return "retest"
    if names and names <= {"remap.pending", "retired.pending", "ecc.uncorrected.volatile"}:
        return "reset-gpu"
    if "remap.failure" in names:
        return "rma"
    if group.cause == "gone":
        return "reboot-node"
    if lasting in ("transient", "intermittent"):
        return "watch"
    wanted = {metrics()[name].action for name in names}
    known = [action for action in RANK if action in wanted]
    return (known or sorted(wanted - {"watch"}) or ["retest"])[0]


def _because(group: Group, events: Sequence[Event]) -> tuple[str, ...]:
    lines = []
    for check in group.checks:
        runs = ", ".join("none" if v is None else f"{v:.6g}" if isinstance(v, float) else str(v)
                         for v in check.runs)
        count = f"in {sum(check.failed)} of {len(check.failed)} runs"
        lines.append(f"{check.id}: {check.metric} {runs} {count}")
    said = Counter(e.code for e in events)
    lines += [f"{code} x{count}" for code, count in sorted(said.items())]
    return tuple(lines)


@dataclass(frozen=True, slots=True)
class _Evidence:
    """What the diagnoses of one run rest on."""

    head: Head
    events: Mapping[str, Sequence[Event]]
    serials: Mapping[str, str]

    def root(self, group: Group, case: int) -> Diagnosis:
        failed, passed = group.runs()
        lasting = persistence(failed, passed)
        events = self.events.get(group.subject, ())
        return Diagnosis(
            subject=group.subject,
            component=group.component,
            persistence=lasting,
            action=_action(group, lasting),
            case=case,
            because=_because(group, events),
            confidence=confidence(failed, passed),
            serial=self.serials.get(gpu_of(group.subject)),
        )

    def victim(self, group: Group, root: str, case: int) -> Diagnosis:
        failed, passed = group.runs()
        return Diagnosis(
            subject=group.subject,
            component=group.component,
            persistence=persistence(failed, passed),
            action="none",
            case=case,
            because=(f"{root} is the root", *_because(group, ())),
            role="victim",
            confidence=confidence(failed, passed),
            serial=self.serials.get(group.subject),
        )


def _outside(head: Head, groups: Sequence[Group]) -> list[tuple[str, list[Group]]]:
    """Return (root subject, its victims' groups) for flags that whole trays or racks share."""
    members: dict[tuple[str, str], list[Group]] = defaultdict(list)
    for group in groups:
        if group.component in SHARED and sort_of(group.subject) == "gpu":
            members[group.component, group.subject.rpartition("/")[0]].append(group)
    gpus = Counter(gpu.rpartition("/")[0] for gpu in head.gpus)
    whole = {k: g for k, g in members.items() if len(g) == gpus[k[1]] and len(g) > 1}
    found = []
    trays_of = Counter(tray.partition("/")[0] for tray in gpus)
    racks: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for component, tray in whole:
        racks[component, tray.partition("/")[0]].append((component, tray))
    for (component, rack), keys in racks.items():
        if len(keys) == trays_of[rack] > 1:
            part = "power" if component == "power" else "cooling"
            found.append((f"{rack}/{part}", [g for key in keys for g in whole[key]]))
        else:
            found += [(f"{key[1]}/host", whole[key]) for key in keys]
    return found


def diagnose(
    head: Head, checks: Iterable[Check], events: Sequence[Event], serials: Mapping[str, str]
) -> list[Diagnosis]:
    """Return the diagnoses of a run's failed checks; waived ones conclude nothing."""
    failed: dict[str, list[Check]] = defaultdict(list)
    for check in checks:
        if any(check.failed) and check.waiver is None:
            failed[check.subject].append(check)
    by_subject: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        by_subject[event.subject].append(event)
    evidence = _Evidence(head, by_subject, serials)
    groups = [g for s, own in failed.items() for g in _groups(s, own, by_subject[s])]
    gone = {g.subject for g in groups if g.cause == "gone"}
    groups = [g for g in groups if g.subject in gone or gpu_of(g.subject) not in gone]
    shared = _outside(head, groups)
    taken = {id(g) for _, members in shared for g in members}
    found: list[Diagnosis] = []
    for case, (root, members) in enumerate(shared, 1):
        merged = Group(root, members[0].cause, members[0].component,
                       tuple(c for g in members for c in g.checks))
        lead = evidence.root(Group(root, merged.cause, merged.component, members[0].checks), case)
        found.append(lead)
        found += [evidence.victim(g, root, case) for g in members]
    alone = sorted((g for g in groups if id(g) not in taken), key=lambda g: (g.subject, g.cause))
    found += [evidence.root(g, case) for case, g in enumerate(alone, len(shared) + 1)]
    return found
