"""What a scheduler is told of a node: Slurm's drain reasons, Kubernetes' node conditions.

In: a judged run, or the JSON body of `diagnose`; out: text. We recommend and never act: what is
written here does nothing until a person, or their tooling, runs it. A node is False or drained only
for a root; a node of victims is Unknown, with the root's name.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackproof.diagnostics.attribution import accused
from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.evidence import Record
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.verdict import Verdict
from rackproof.harness.errors import SpecError, nearest
from rackproof.reports.words import visible

CONDITION = "RackproofHealthy"
NAMING = ("slurm", "kubernetes")
"""Forms that name nodes."""
ONLY_NAMING = f"--node: only with --as {' or --as '.join(NAMING)}"
LEAVES_NODE = frozenset(("none", "watch", "retest", "restart-app", "update-software"))
"""Actions for which a node need not be drained."""
LONGEST_REASON, LONGEST_MESSAGE = 240, 4000
UNNAMED = "unknown"
"""What a machine is called that no file names."""
SILENT = "its files hold no sign of a fault; nothing was burnt"
UNSURE = "its files could not all be judged"
_TRAY = re.compile(r"(rack\d+/tray\d+)(?:/|\Z)")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_UNSAFE = re.compile(r"[^A-Za-z0-9 _.,:;/=+()#-]")  # shells and scontrol give others a meaning
_STATUS = {Verdict.PASS: "True", Verdict.FAIL: "False"}


@dataclass(slots=True)
class Node:
    """One node: its verdict, the roots in it, and in words what else speaks against it."""

    name: str
    verdict: Verdict = Verdict.PASS
    roots: list[Diagnosis] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Handover:
    """The nodes of one judgement in order, and the roots that stand outside of every node."""

    nodes: Sequence[Node]
    outside: Sequence[Diagnosis]
    at: str | None = None


def check(form: str | None, nodes: Sequence[str], *, as_json: bool) -> None:
    """Raise SpecError where the options of `diagnose` make no sense together."""
    if form is not None and form not in NAMING:
        msg = f"--as: unknown form {form!r}{nearest(form, NAMING)}: one of {', '.join(NAMING)}"
        raise SpecError(msg)
    if form and as_json:
        msg = "--as and --json: one of the two"
        raise SpecError(msg)
    if nodes and not form:
        raise SpecError(ONLY_NAMING)


def text(form: str, handover: "Handover") -> str:
    """Return the text of a form of NAMING."""
    return slurm(handover) if form == "slurm" else kubernetes(handover)


def renames(pairs: Iterable[str]) -> dict[str, str]:
    """Return the node names that were given as ``rack0/tray03=NAME`` or ``NAME`` alone (key "").

    Raises SpecError for what is no node name.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        place, _, name = pair.rpartition("=")
        if not _NAME.fullmatch(name) or (place and not _TRAY.fullmatch(place)):
            msg = f"--node: {pair!r}: write rack0/tray03=NAME, or NAME where there is one node"
            raise SpecError(msg)
        found[place] = name
    return found


def of_run(
    record: Record, judgement: Judgement, names: Mapping[str, str], at: str | None = None
) -> Handover:
    """Return a run's nodes: its trays, named by `names` or as ``rack0-tray03``.

    Raises SpecError for a name of a tray that the run does not have.
    """
    trays = [match[1] for host in record.head.hosts if (match := _TRAY.match(host))]
    _known(names, trays)
    alone = names.get("") if len(trays) == 1 else None
    nodes = {tray: Node(names.get(tray) or alone or tray.replace("/", "-")) for tray in trays}
    for check in judgement.checks:
        match = _TRAY.match(check.subject)
        if match and check.verdict is Verdict.UNKNOWN and match[1] in nodes:
            node = nodes[match[1]]
            node.verdict = Verdict.UNKNOWN
            node.notes.append(f"{check.subject}: {check.metric} not judged: {check.message}")
    outside = _sorted_in(nodes, judgement.diagnoses)
    named = {d.subject for d in judgement.diagnoses if d.role == "root"}
    for subject in accused(judgement):
        match = _TRAY.match(subject)
        if subject not in named and match and match[1] in nodes:
            nodes[match[1]].verdict = Verdict.FAIL
            nodes[match[1]].notes.append(f"{subject}: outside of its limits")
    if judgement.problems:
        for node in nodes.values():
            node.verdict = max((node.verdict, Verdict.UNKNOWN), key=_rank)
            node.notes.append("the record is not whole")
    return Handover(list(nodes.values()), outside, at)


def of_files(body: Mapping[str, Any], names: Mapping[str, str]) -> Handover:
    """Return the nodes that the JSON body of `diagnose` speaks of, by their ``host:`` names.

    One machine is called what its files call it, or as `names` says; SpecError where neither does,
    or where one name is given for several machines. Files show no more than that they hold no sign:
    no node of theirs is called healthy.
    """
    _no_run(body["inputs"])
    _known(names, ())
    found = [_diagnosis(entry) for entry in body["diagnoses"]]
    hosts = {host for entry in body["inputs"] if (host := entry.get("host"))}
    hosts |= {host for one in found if (host := _host(one.subject)) not in ("", UNNAMED)}
    hosts = {label if (label := host.partition(".")[0]) in hosts else host for host in hosts}
    if names.get("") and len(hosts) > 1:
        msg = f"--node: {names['']} names one node, and the files are of {', '.join(sorted(hosts))}"
        raise SpecError(msg)
    only = names.get("") or (next(iter(hosts)) if len(hosts) == 1 else "")
    nodes: dict[str, Node] = {}
    places: dict[str, list[Diagnosis]] = defaultdict(list)
    for diagnosis in found:
        host = _host(diagnosis.subject)
        places["fabric" if diagnosis.subject == "fabric" else host].append(diagnosis)
    outside = places.pop("fabric", [])
    for host, own in sorted(places.items()):
        name = only or ("" if host == UNNAMED else host)
        if not name:
            msg = "the files do not name their machine: say --node NAME"
            raise SpecError(msg)
        node = nodes.setdefault(name, Node(name))
        for diagnosis in own:
            _take(node, diagnosis, found)
    for name in [only] if only else sorted(hosts):
        nodes.setdefault(name, Node(name))
    for node in nodes.values():
        if node.verdict is Verdict.PASS:
            node.verdict = Verdict.UNKNOWN
            node.notes.append(SILENT if body["verdict"] != "UNKNOWN" else UNSURE)
    return Handover(list(nodes.values()), [d for d in outside if d.role == "root"])


def _no_run(inputs: Sequence[Mapping[str, Any]]) -> None:
    runs = [entry["path"] for entry in inputs if entry.get("kind") == "rackproof-run"]
    if runs:
        msg = f"{runs[0]} is a run: rackproof report {runs[0]} --as says it to a scheduler"
        raise SpecError(msg)


def _known(names: Mapping[str, str], trays: Sequence[str]) -> None:
    strange = [place for place in names if place and place not in trays]
    if strange:
        msg = f"--node: there is no {strange[0]} in it"
        raise SpecError(msg)


def _host(subject: str) -> str:
    return subject[5:].partition("/")[0] if subject.startswith("host:") else ""


def _diagnosis(entry: Mapping[str, Any]) -> Diagnosis:
    subject, component, persistence = (entry[n] for n in ("subject", "component", "persistence"))
    return Diagnosis(subject, component, persistence, entry["action"], entry["case"],
                     tuple(entry["because"]), entry["role"], serial=entry["serial"])  # fmt: skip


def _rank(verdict: Verdict) -> int:
    return (Verdict.PASS, Verdict.SKIP, Verdict.UNKNOWN, Verdict.FAIL).index(verdict)


def _sorted_in(nodes: Mapping[str, Node], found: Sequence[Diagnosis]) -> list[Diagnosis]:
    """Give each diagnosis to its node; return the roots that are in none."""
    outside = []
    for diagnosis in found:
        match = _TRAY.match(diagnosis.subject)
        if match and match[1] in nodes:
            _take(nodes[match[1]], diagnosis, found)
        elif diagnosis.role == "root":
            outside.append(diagnosis)
    return outside


def _take(node: Node, diagnosis: Diagnosis, everyone: Sequence[Diagnosis]) -> None:
    if diagnosis.role == "root":
        node.roots.append(diagnosis)
        idle = diagnosis.component == "app" or diagnosis.action == "none"
        mild = diagnosis.action in ("watch", "retest")
        own = Verdict.PASS if idle else Verdict.UNKNOWN if mild else Verdict.FAIL
    else:
        roots = [d.subject for d in everyone if d.case == diagnosis.case and d.role == "root"]
        node.notes.append(f"{diagnosis.subject} suffers from {', '.join(roots) or 'another part'}")
        own = Verdict.UNKNOWN
    node.verdict = max((node.verdict, own), key=_rank)


def _safe(text: str, longest: int) -> str:
    return _UNSAFE.sub("?", visible(text))[:longest].rstrip()


def _short(subject: str) -> str:
    """Return the last parts of a subject, for 20 columns: ``gpu1``, ``gpu1/link07``."""
    rest = _TRAY.sub("", subject, count=1) if _TRAY.match(subject) else subject
    return rest.partition("/")[2] if rest.startswith("host:") else rest


def slurm(handover: Handover) -> str:
    """Return a line for each node that ought to be drained, as scontrol takes it.

    The first 20 characters of the reason say most, since `sinfo -R` shows no more.
    """
    lines = []
    for node in handover.nodes:
        graves = [d for d in node.roots if d.component != "app" and d.action not in LEAVES_NODE]
        if node.verdict is Verdict.UNKNOWN:
            why = node.notes or [f"{_short(d.subject)} {d.action}" for d in node.roots]
            lines.append(f"# {_safe(node.name, 80)}, no drain: {_safe(why[0], LONGEST_REASON)}")
        if node.verdict is not Verdict.FAIL or not (graves or not node.roots):
            continue
        words = ((d.component, _short(d.subject), d.action) for d in graves)
        told = [" ".join(filter(None, each)) for each in words]
        serials = [f"serial {d.serial}" for d in graves if d.serial]
        more = [f"{d.persistence}, case {d.case}" for d in graves]
        reason = "; ".join((*(told or ["out of limits"]), *more, *serials, "rackproof"))
        reason = _safe(reason, LONGEST_REASON)
        if _NAME.fullmatch(node.name):
            lines.append(f'scontrol update NodeName={node.name} State=DRAIN Reason="{reason}"')
        else:  # a name from a log is no text for a shell
            lines.append(f"# {_safe(node.name, 80)} is no node name: {reason}")
    for root in handover.outside:
        said = f"{root.component} {root.subject} {root.persistence}: {root.action}"
        lines.append(f"# {_safe(said, LONGEST_REASON)} (outside of every node; no node to drain)")
    return "".join(f"{line}\n" for line in lines)


def kubernetes(handover: Handover) -> str:
    """Return a v1 List of nodes, each with one condition: True, False or Unknown.

    Each item is the body of ``kubectl patch node NAME --subresource=status``.
    """
    items = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node.name.lower().replace("_", "-")},
            "status": {"conditions": [_condition(node, handover)]},
        }
        for node in handover.nodes
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items}, indent=1) + "\n"


def _facts(diagnosis: Diagnosis) -> list[str]:
    """Return what a diagnosis rests on, without what was believed and might be tested next."""
    return [line for line in diagnosis.because if not line.startswith(("belief", "what would"))]


def _condition(node: Node, handover: Handover) -> dict[str, str]:
    if node.roots:
        worst = max(node.roots, key=lambda d: (d.action not in LEAVES_NODE, d.component != "app"))
        reason = f"{worst.component.capitalize()}{worst.persistence.capitalize()}"
    elif node.verdict is Verdict.PASS:
        reason = "WithinLimits"
    else:
        reason = "OutOfLimits" if node.verdict is Verdict.FAIL else "NotJudged"
    roots = [f"{d.subject}: {d.component}, {d.persistence}; {d.action}; {'; '.join(_facts(d))}"
             for d in node.roots]  # fmt: skip
    outside = [f"outside of the node: {d.subject} ({d.component})" for d in handover.outside]
    told = [*roots, *node.notes, *outside] or ["looked at, and within limits"]
    condition = {
        "type": CONDITION,
        "status": _STATUS.get(node.verdict, "Unknown"),
        "reason": reason,
        "message": visible("; ".join(told), LONGEST_MESSAGE),
    }
    if handover.at:
        condition["lastHeartbeatTime"] = handover.at.replace("+00:00", "Z")
    return condition
