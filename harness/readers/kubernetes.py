"""Kubernetes: nodes and events as kubectl prints them (describe, get, JSON, YAML), daemons' logs.

A node's conditions, events, taints and counts of GPUs are read; pods say nothing of hardware. The
time of a condition is when it last changed: however long ago, it stands.
"""

import re
from typing import Any

from rackproof.harness.model import Event, Measurement
from rackproof.harness.readers.clues import moment
from rackproof.harness.readers.documents import documents
from rackproof.harness.readers.kube_signs import Condition, Signs
from rackproof.harness.readers.kube_text import Text
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.source import Source

KIND = "kubernetes"
LIMIT = 16 << 20
LINE_LIMIT = 4096
_HOST = re.compile(r"[\w.\-]{1,253}\Z")
_NUMBER = re.compile(r"[0-9]{1,4}\Z")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _table(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


class _Documents:
    """Nodes, events and bare conditions of JSON documents."""

    def __init__(self, signs: Signs) -> None:
        self.signs = signs
        self.records = 0
        self.counts: dict[str, dict[str, int]] = {}

    def take(self, document: object) -> None:
        """Look at one document: a list of others, a node, an event, or a condition alone."""
        for one in document if isinstance(document, list) else [document]:
            table = _table(one)
            for item in _list(table.get("items")) or [table]:
                self._item(_table(item))

    def _item(self, item: dict[str, Any]) -> None:
        meta, status = _table(item.get("metadata")), item.get("status")
        if "involvedObject" in item or item.get("kind") == "Event":
            self._event(item)
        elif isinstance(status, dict) and item.get("kind", "Node") == "Node":
            name = _text(meta.get("name"))
            node = name if _HOST.match(name) else ""
            for each in _list(status.get("conditions")):
                self._condition(node, _table(each))
            label = _table(meta.get("labels")).get("nvidia.com/gpu.count")
            if _NUMBER.match(str(label)):
                self.counts.setdefault(node, {})["label gpu"] = int(str(label))
            for section in ("capacity", "allocatable"):
                for key, value in _table(status.get(section)).items():
                    if key.startswith("nvidia.com/") and _NUMBER.match(str(value)):
                        kept = self.counts.setdefault(node, {})
                        kept[f"{section} {key.removeprefix('nvidia.com/')}"] = int(str(value))
        elif isinstance(status, str) and "type" in item:
            self._condition("", item)

    def _condition(self, node: str, one: dict[str, Any]) -> None:
        self.records += 1
        self.signs.condition(
            Condition(node, _text(one.get("type"))[:80], _text(one.get("status")),
                      _text(one.get("lastTransitionTime")), _text(one.get("reason"))[:400],
                      _text(one.get("message"))[:2000])
        )  # fmt: skip

    def _event(self, item: dict[str, Any]) -> None:
        self.records += 1
        about = _table(item.get("involvedObject"))
        at = moment(item.get("lastTimestamp") or item.get("eventTime"))
        of_node = about.get("kind") == "Node"
        where = about.get("name") if of_node else _table(item.get("source")).get("host")
        node = name if _HOST.match(name := _text(where)) else ""
        take = self.signs.event if of_node else self.signs.pod
        take(node, _text(item.get("reason"))[:80], _text(item.get("message"))[:2000], at, 0)


def _counted(signs: Signs, counts: dict[str, dict[str, int]]) -> list[Measurement]:
    """Say where a node offers fewer GPUs than it has; return what each node has."""
    found = []
    for node, kept in counts.items():
        _labelled(signs, node, kept)
        for key, total in kept.items():
            section, _, sort = key.partition(" ")
            if section != "capacity":
                continue
            subject = f"host:{node}" if node else "host"
            found.append(Measurement(KIND, subject, "gpu.count", total, "gpus"))
            offered = kept.get(f"allocatable {sort}")
            if offered is not None and offered < total:
                code = "kube.unallocatable" if offered else "kube.noplugin"
                signs.say(
                    node, code, f"{offered} of {total} nvidia.com/{sort} can be allocated", None, 0
                )
    return found


def _labelled(signs: Signs, node: str, kept: dict[str, int]) -> None:
    """Say where a node has fewer GPUs to give than its label counts; MIG divides them otherwise."""
    label, total = kept.pop("label gpu", None), kept.get("capacity gpu")
    if label is None or total is None or total >= label or any("mig-" in key for key in kept):
        return
    words = f"capacity nvidia.com/gpu {total}, label nvidia.com/gpu.count {label}"
    signs.say(node, "kube.unlisted" if total else "kube.noplugin", words, None, 0)


def _placed(event: Event, *, several: bool) -> Event:
    """Return an event with its node before its subject, where the file tells of several."""
    node = str(event.detail.get("node", ""))
    detail = {key: value for key, value in event.detail.items() if key != "node" and value != 0}
    subject = event.subject
    if several and node:
        subject = f"host:{node}" if subject == "host" else f"host:{node}/{subject}"
    return Event(subject, event.code, event.text, event.at, event.clock, detail)


def read(source: Source) -> Reading:
    """Read text, YAML and JSON; several outputs in one file."""
    signs = Signs()
    whole = source.whole(LIMIT).decode("utf-8", "replace")
    tree, text = _Documents(signs), Text(signs)
    problems: list[str] = []
    if _JSON.search(source.head.lstrip()[:64]):
        found, problems = documents(whole)
        for document in found:
            tree.take(document)
    else:
        for line in whole.splitlines():
            text.take(line[:LINE_LIMIT].rstrip())
        text.end()
    measured = _counted(signs, tree.counts | text.counts)
    nodes = {str(e.detail.get("node", "")) for e in signs.events()} | {n for n, _ in signs.fine}
    nodes = {n for n in nodes | set(tree.counts) | set(text.counts) if n}
    several = len(nodes) > 1
    measured += [Measurement(KIND, f"host:{node}" if several else "host", "node.state",
        "listed", "text")
                 for node in sorted(nodes)]  # fmt: skip
    here = next(iter(nodes)) if len(nodes) == 1 else ""
    broken = bool(problems)
    if text.pods.measured:
        problems.append("a table of pods says which programs run, and not how a machine is")
    records = tree.records + text.records + len(text.pods.measured)
    return Reading(
        source.path, KIND, records, tuple(map(plain, (*source.problems, *problems))),
        tuple(_placed(e, several=several) for e in signs.events() if not _over(e, signs)),
        (*measured, *text.pods.measured), cut=source.cut or broken, worked=bool(records),
        aliases={} if several else _joined(signs.aliases),
        uuids={} if several else _joined(signs.uuids), host=here or None,
    )  # fmt: skip


def _over(event: Event, signs: Signs) -> bool:
    """Whether an event tells of a past that the node's condition has left behind."""
    return (
        event.code == "kube.wasdown" and (str(event.detail.get("node", "")), "Ready") in signs.fine
    )


def _joined(by_node: dict[str, dict[str, str]]) -> dict[str, str]:
    return {key: value for names in by_node.values() for key, value in names.items()}


_JSON = re.compile(rb"\A[{\[]")
_STAMPED = (
    rb"(?:[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{4} [\d:]{8} [+-]\d{4}"
    rb"|\d{4}-\d\d-\d\dT[\d:.]{8,18}Z)"
)
_MARKS = tuple(
    re.compile(mark, re.MULTILINE)
    for mark in (
        rb"^ {0,8}[A-Za-z][\w./\-]{1,80} {1,60}(?:True|False|Unknown) {1,20}"
        + _STAMPED + rb" {1,20}" + _STAMPED,
        rb"^ {0,20}(?:- )?lastTransitionTime: ",
        rb'"lastTransitionTime"\s{0,4}:|"kubernetes\.io/hostname"\s{0,4}:',
        rb'"involvedObject"\s{0,4}:',
        rb"^NAME {1,80}STATUS {1,80}ROLES {1,80}AGE",
        rb"^(?:NAMESPACE {1,60})?LAST SEEN {1,60}TYPE {1,60}REASON {1,60}OBJECT",
        rb"^ {0,4}Type {1,40}Reason {1,40}Age {1,40}From {1,60}Message\s*$",
        rb"^ {0,4}(?:- )?kind: (?:Node|NodeList)\s*$",
        (rb"^[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{6} {1,8}\d{1,8} [\w.\-]{1,60}:\d{1,6}\] [^\n]{0,400}"
        rb"(?:nvidia\.com/gpu|Node condition|device plugin|XidCriticalError|[Uu]nhealthy"
        rb"|[Pp]roblem detector|kernel-monitor)"),
    )
)  # fmt: skip
_PODS = re.compile(
    rb"^(?:NAMESPACE {1,60})?NAME {1,80}READY {1,30}STATUS {1,40}RESTARTS {1,40}AGE", re.MULTILINE
)
_OPERATORS_POD = re.compile(
    rb"^(?:[\w\-]{1,60} {1,60})?(?:nvidia|gpu)-[\w\-]{1,60} {1,80}\d{1,3}/\d", re.MULTILINE
)
_NODE = re.compile(
    rb"node|gpu|xid|kube|heartbeat|ready|pressure|problem.detector|nvidia", re.IGNORECASE
)


def likeness(head: bytes) -> float:
    """Return 0.9 for the tables, keys and log lines that only Kubernetes has, else 0."""
    head = head[: 1 << 17]
    pods = _PODS.search(head) and _OPERATORS_POD.search(head)
    told = any(mark.search(head) for mark in _MARKS) and _NODE.search(head)
    return 0.9 if pods or told else 0.0


READER = Reader(
    KIND, "kubectl describe node, get node or events, node-problem-detector", likeness, read
)
