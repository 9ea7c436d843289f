"""Kubernetes in text: kubectl's describe, get nodes and get events; YAML of nodes.

Lines come in; conditions, events and counts of GPUs go out. YAML is read line by line, for the few
keys that a node's conditions have: no more of the language is needed.
"""

import re

from rackproof.harness.readers.kube_log import Pods, said
from rackproof.harness.readers.kube_signs import Condition, Signs

_STAMP = (
    r"(?:[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}"
    r"|\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d)|<unknown>|<nil>)"
)
_CONDITION = re.compile(
    r" {0,8}([A-Za-z][\w./\-]{1,80}) {1,60}(True|False|Unknown) {1,20}"
    f"({_STAMP}) {{1,20}}({_STAMP})"
    r"(?: {1,20}(\S{1,200}))?(?: {1,80}(\S.{0,1500}))?\Z"
)
_NAME = re.compile(r"Name: {1,30}([\w.\-]{1,253})\s*\Z")
_SECTION = re.compile(r"([A-Z][A-Za-z ]{2,30}):(?:\s|\Z)")
_GPUS = re.compile(
    r" {1,8}\"?nvidia\.com/(gpu|mig-[\w.\-]{2,24})\"?: {1,20}['\"]?(\d{1,4})['\"]?,?\s*\Z",
    re.ASCII,
)
_AGE = r"(?:\d{1,6}[smhdy][\w ()]{0,40}?|<unknown>|<invalid>)"
_EVENT = re.compile(
    r" {0,4}(Normal|Warning) {1,20}([A-Z]\w{2,60}) {1,40}" + _AGE + r" {1,40}"
    r"([\w.\-]{1,80})(?:, [\w.\-]{1,253})? {1,40}(\S.{0,1000})\Z"
)
_GET_EVENT = re.compile(
    r"(?:[\w\-]{1,63} {1,30})?(?:\d{1,6}[smhdy]\w{0,16}|<unknown>) {1,30}(Normal|Warning) {1,30}"
    r"([A-Z]\w{2,60}) {1,40}(node|pod|[a-z]{3,30})/([\w.\-]{1,253}) {1,60}(\S.{0,1000})\Z"
)
_GET_NODE = re.compile(
    r"([a-z0-9][\w.\-]{0,252}) {1,60}((?:Not)?Ready|Unknown)(,[\w,]{1,60})? {1,60}"
    r"\S{1,120} {1,60}\d{1,6}[smhdy]"
)
_YAML = re.compile(r"( {0,24})(- )?([A-Za-z]{4,24}):(?: (.{0,1500}))?\Z")
_KEYS = frozenset("type status reason message lastTransitionTime lastHeartbeatTime".split())
_TAINT = re.compile(
    r"(?:Taints: {1,30}| {10,30})([\w./\-]{3,120})(?:=[\w.\-]{0,60})?:(?:NoSchedule|NoExecute)\s*\Z"
)
_LABEL = re.compile(
    r"(?:Labels: {1,30}| {1,40})\"?nvidia\.com/gpu\.count(?:=|\"?: {1,20}['\"]?)(\d{1,3})"
    r"['\"]?,?\s*\Z"
)


class Text:
    """The text that is being read."""

    def __init__(self, signs: Signs) -> None:
        self.signs = signs
        self.records = 0
        self.counts: dict[str, dict[str, int]] = {}
        self._node = ""
        self._section = ""
        self._number = 0
        self._yaml: dict[str, str] = {}
        self._indent = -1
        self._meta = ""
        self._labelled: int | None = None
        self.pods = Pods()
        self._last: Condition | None = None

    def take(self, line: str) -> None:
        """Look at one line."""
        self._number += 1
        if match := _CONDITION.match(line):
            self._flush()
            self._last = Condition(self._node, match[1], match[2], match[4], match[5] or "",
                                   match[6] or "", self._number)  # fmt: skip
            return
        if self._last is not None and self._wrapped(line):
            return
        self._flush()
        if self.pods.take(line, self._number, self.signs):
            return
        if said(line, self._node, self._number, self.signs):
            self.records += 1
        elif not (self._named(line) or self._rows(line)):
            self._key(line)

    def end(self) -> None:
        """Close what is open."""
        self._flush()
        self._close()

    def _wrapped(self, line: str) -> bool:
        """Whether a line goes on with the message of the condition above, wrapped by a terminal."""
        last = self._last
        if (
            last is None
            or last.message
            or not line.strip()
            or line[:1] == " "
            or _SECTION.match(line)
        ):
            return False
        self._last = Condition(last.node, last.sort, last.status, last.changed, last.reason,
                               line.strip()[:1500], last.line)  # fmt: skip
        return True

    def _flush(self) -> None:
        if self._last is not None:
            self.records += 1
            self.signs.condition(self._last)
            self._last = None

    def _named(self, line: str) -> bool:
        if match := _NAME.match(line):
            self._node, self._section = match[1], ""
        elif match := _TAINT.match(line):
            self._taint(match[1])
        elif match := _LABEL.match(line):
            self._label(int(match[1]))
        elif (match := _SECTION.match(line)) and line[:1] != " ":
            self._section = match[1]
        elif match := _GPUS.match(line):
            kept = self.counts.setdefault(self._node, {})
            kept[f"{self._section.lower()} {match[1]}"] = int(match[2])
        else:
            return False
        return True

    def _label(self, count: int) -> None:
        """Take in how many GPUs a label counts; in YAML the node's name stands after its labels."""
        if self._meta:
            self._labelled = count
        else:
            self.counts.setdefault(self._node, {})["label gpu"] = count

    def _taint(self, key: str) -> None:
        """A taint that names a fault is a sign; one that keeps others off, or a cordon, is none."""
        if re.search(r"unhealthy|fault|error|fail|degraded|xid", key, re.IGNORECASE):
            self.signs.say(self._node, "kube.taint", f"taint {key}", None, self._number)

    def _rows(self, line: str) -> bool:
        if match := _EVENT.match(line):
            self.records += 1
            self.signs.event(self._node, match[2], match[4], None, self._number)
        elif match := _GET_EVENT.match(line):
            self.records += 1
            if match[3] == "node":
                self.signs.event(match[4], match[2], match[5], None, self._number)
            else:
                self.signs.pod("", match[2], match[5], None, self._number)
        elif match := _GET_NODE.match(line):
            self.records += 1
            if match[2] == "Ready":
                self.signs.condition(Condition(match[1], "Ready", "True", line=self._number))
            else:  # Ready is False, or Unknown: the table does not tell which
                words = f"STATUS {match[2]}{match[3] or ''}"
                self.signs.say(match[1], "kube.notready", words, None, self._number)
        else:
            return False
        return True

    def _key(self, line: str) -> None:
        """Look at a line of YAML: a condition is a list item with the keys of one."""
        match = _YAML.match(line)
        if match is None:
            return
        indent, item, key = len(match[1]), match[2], match[3]
        value = (match[4] or "").strip()
        if value[:1] in "\"'" and len(value) > 1 and value[-1] == value[0]:
            value = value[1:-1].replace('\\"', '"') if value[0] == '"' else value[1:-1]
        if key == "metadata" and not item:
            self._meta, self._labelled = "metadata", None
        elif key == "name" and self._meta == "metadata" and re.fullmatch(r"[\w.\-]{1,253}", value):
            self._node, self._meta = value, ""
            if self._labelled is not None:
                self._label(self._labelled)
        elif key in ("capacity", "allocatable", "spec", "status") and not value:
            self._close()
            self._section = key
        if item and key in _KEYS:
            self._close()
            self._indent = indent + 2
            self._yaml = {key: value}
        elif self._yaml and indent == self._indent and key in _KEYS:
            self._yaml[key] = value
        elif self._yaml and indent < self._indent:
            self._close()

    def _close(self) -> None:
        """Take in the YAML item that ends here, where it is a condition."""
        item, self._yaml = self._yaml, {}
        if item.keys() >= {"type", "status"} and item["status"] in ("True", "False", "Unknown"):
            self.records += 1
            self.signs.condition(
                Condition(self._node, item["type"], item["status"],
                    item.get("lastTransitionTime", ""),
                          item.get("reason", ""), item.get("message", ""), self._number)
            )  # fmt: skip
