"""What a node's conditions and events in Kubernetes say: a condition in, a code out.

Whether True is good depends on the type: Ready ought to be True, a pressure ought not. Types that a
daemon of somebody's own adds are told by their words, and by their reason where that is plain. A
message that names an Xid gives ``xid.N``, so that the kernel log's rules judge it.
"""

import re
from dataclasses import dataclass

from rackproof.harness.model import Event
from rackproof.harness.readers.clues import device, moment, xids
from rackproof.harness.readers.nvml_words import nvml_code
from rackproof.harness.readers.places import plain

_KNOWN = {
    "MemoryPressure": "kube.pressure", "DiskPressure": "kube.pressure",
    "PIDPressure": "kube.pressure",
    "NetworkUnavailable": "kube.network", "KernelDeadlock": "kube.deadlock",
    "ReadonlyFilesystem": "kube.readonly", "FrequentKubeletRestart": "kube.restarts",
    "FrequentDockerRestart": "kube.restarts", "FrequentContainerdRestart": "kube.restarts",
    "FrequentUnregisterNetDevice": "kube.restarts", "CorruptDockerOverlay2": "kube.restarts",
    "ContainerRuntimeUnhealthy": "kube.restarts", "KubeletUnhealthy": "kube.restarts",
    "OutOfDisk": "kube.pressure",
}  # fmt: skip
_GOOD_WHEN_TRUE = re.compile(
    r"(?:Ready|Healthy|Ok|OK|Available|Passed|Up|Valid|Success|Succeeded|Active)\Z"
)
_NEGATED = re.compile(
    r"(?:Not|Un|In|Non|No)(?:Ready|Healthy|Available|Valid|Ok|Active)\Z", re.IGNORECASE
)
_SAYS_ILL = re.compile(r"NotHealthy|Unhealthy|NotReady|Fail|Error|Fault|Critical|Degraded|Down"
                       r"\b|Lost|Xid",
                       re.IGNORECASE)  # fmt: skip
_SAYS_WELL = re.compile(
    r"(?<!Not)Healthy\Z|(?:^|Has)No[A-Z]\w{2,40}\Z|NoProblem|IsReady\Z|\AOK\Z|Passed\Z"
)
_AREAS = (
    ("nvlink", r"nvlink|nvswitch|fabric|sxid"),
    ("memory", r"gpumem|gpu_?mem|hbm|ecc|dbe|remap|retired"),
    ("thermal", r"therm|temperature|cool|leak|hot"),
    ("power", r"power|psu"),
    ("nic", r"infiniband|\bib|mlx|roce|rdma|nic\b|nic[A-Z]|network|ethernet"),
    ("pcie", r"pci|falloff|fallenoff|offbus"),
    ("driver", r"driver|nvml|gsp|cuda"),
    ("storage", r"disk|filesystem|nvme|storage|mount"),
    ("gpu", r"gpu|xid|nvidia|dcgm|accelerator|inforom"),
    ("host", r"kernel|cpu|dimm|memory|bios|mce|host"),
)
_EVENTS = {"NodeNotReady": "kube.wasdown", "SystemOOM": "kube.oom", "OOMKilling": "kube.oom",
           "KernelOops": "kube.oops", "TaskHung": "kube.oops"}  # fmt: skip
_REFUSED = re.compile(
    r"requested number of devices unavailable for nvidia\.com/[\w.\-]{2,24}\. Requested: \d{1,4}, "
    r"Available: (\d{1,4})"
)
_NUMBERS = re.compile(r'\{"(\d{1,5})":\s{0,4}true')
_NO_ACTION = re.compile(r"Recommended ?Action ?= ?NONE\b", re.IGNORECASE)
_HARMLESS = re.compile(
    r"Readiness probe|Liveness probe|Startup probe|Back-?off|ImagePull|FailedScheduling|FailedMount"
    r"|Evict|NodeHasSufficient|NodeHasNo|NodeReady|Starting|RegisteredNode|NodeAllocatable|Rebooted"
    r"|NodeSchedulable|NodeNotSchedulable|Cordon|Uncordon|Drain"
)


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition of a node. `changed` is its last transition as it is written."""

    node: str
    sort: str
    status: str
    changed: str = ""
    reason: str = ""
    message: str = ""
    line: int = 0


def area_of(words: str) -> str:
    """Return the area that a type or message speaks of, or ``unknown``."""
    lower = words.lower()
    return next((area for area, pattern in _AREAS if re.search(pattern, lower)), "unknown")


def bad(one: Condition) -> bool:
    """Whether a condition's status is the bad one for its type."""
    true = one.status == "True"
    if one.sort in _KNOWN:
        return true
    if one.sort != "Ready":
        if _SAYS_ILL.search(one.reason):
            return not _SAYS_WELL.search(one.reason)
        if _SAYS_WELL.search(one.reason):
            return False
    return true != (bool(_GOOD_WHEN_TRUE.search(one.sort)) and not _NEGATED.search(one.sort))


def codes(one: Condition) -> list[str]:
    """Return the codes of a condition; none where it is well."""
    if one.status not in ("True", "False"):
        return ["kube.silent"]
    if not bad(one):
        return []
    known = "kube.notready" if one.sort == "Ready" else _KNOWN.get(one.sort)
    return [known] if known else _own_codes(one)


def _own_codes(one: Condition) -> list[str]:
    """Return the codes of a condition in its bad state, of a type that a daemon has added."""
    said = f"{one.message} {one.reason}"
    named = xids(said)
    if not named and "xid" in one.sort.lower() and "sxid" not in one.sort.lower():
        named = [f"xid.{int(n)}" for n in _NUMBERS.findall(said[:2000])]
    if named:
        return list(dict.fromkeys(named))
    if _NO_ACTION.search(said):
        return ["kube.noted"]
    area = area_of(one.sort)
    return [f"kube.{area if area not in ('unknown', 'gpu') else _finer(said, area)}"]


def _finer(said: str, area: str) -> str:
    """Return the area of a message where its type says no more than that it is about GPUs."""
    found = area_of(said)
    return found if found not in ("unknown", "host", "nic") else area


class Signs:
    """The events made so far, each once: one condition may stand in a file in two forms."""

    def __init__(self) -> None:
        self.aliases: dict[str, dict[str, str]] = {}
        self.uuids: dict[str, dict[str, str]] = {}
        self.conditions = 0
        self.fine: set[tuple[str, str]] = set()
        self._found: dict[tuple[str, str, str], Event] = {}

    def events(self) -> list[Event]:
        """Return the events."""
        return list(self._found.values())

    def condition(self, one: Condition) -> None:
        """Take one condition in."""
        self.conditions += 1
        found = codes(one)
        if not found:
            self.fine.add((one.node, one.sort))
        words = ": ".join(
            filter(None, (f"{one.sort}={one.status} {one.reason}".strip(), one.message))
        )
        for code in found:
            self.say(one.node, code, words, moment(one.changed), one.line)

    def say(self, node: str, code: str, words: str, at: float | None, line: int) -> None:
        """Add an event at the device that its words name, or at the node."""
        subject, aliases, uuids = device(words)
        if not code.startswith(("xid.", "sxid.")) and subject.startswith("gpu"):
            subject = "host" if not code.startswith("kube.gpu") else subject
        self.aliases.setdefault(node, {}).update(aliases)
        self.uuids.setdefault(node, {}).update(uuids)
        key = (node, subject, code)
        if key not in self._found and len(self._found) < 5000:  # noqa: PLR2004
            clock = "epoch" if at is not None else "none"
            self._found[key] = Event(
                subject, code, plain(words), at, clock, {"line": line, "node": node}
            )

    def pod(self, node: str, reason: str, message: str, at: float | None, line: int) -> bool:
        """Take in what an event says of GPUs, be it a pod's or a node's; whether it says any.

        A pod that cannot have its GPUs, or whose container cannot open one, tells of the node.
        """
        named = xids(f"{reason} {message}")
        if not named and (code := nvml_code(message)):
            named = [code]
        if not named and (match := _REFUSED.search(message)):
            named = ["kube.refused" if match[1] != "0" else "kube.noplugin"]
        for code in named:
            self.say(node, code, f"{reason}: {message}", at, line)
        return bool(named)

    def event(self, node: str, reason: str, message: str, at: float | None, line: int) -> None:
        """Take in an event of a node: one that tells of an Xid, or a problem in plain words."""
        if self.pod(node, reason, message, at, line):
            return
        if reason in _EVENTS:
            self.say(node, _EVENTS[reason], f"{reason}: {message}", at, line)
        elif (
            not _HARMLESS.search(reason)
            and re.search(r"GPU|Xid|NVLink|InfiniBand|DeviceUnhealthy", reason)
            and _SAYS_ILL.search(reason)
            and not _HARMLESS.search(message)
        ):
            area = area_of(reason)
            self.say(node, f"kube.{area}", f"{reason}: {message}", at, line)
