"""Daemons of Kubernetes that watch GPUs, and the pods of NVIDIA's operator: lines in, signs out.

The device plugin and node-problem-detector write klog lines (``I0502 11:02:10 1 health.go:159]``).
A table of pods tells which programs run, and not how a machine is.
"""

import re

from rackproof.harness.model import Measurement
from rackproof.harness.readers.clues import moment, xids
from rackproof.harness.readers.kube_signs import Condition, Signs
from rackproof.harness.readers.nvml_words import nvml_code
from rackproof.harness.readers.places import plain

KIND = "kubernetes"
_LOG = re.compile(
    r"(?:[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{1,6} {1,8}\d{1,8} [\w.\-]{1,60}:\d{1,6}\] "
    r"|(\d{4}[/\-]\d\d[/\-]\d\d[T ]\d\d:\d\d:\d\d)\S{0,12} )(.{1,3000})\Z"
)
_MARKED = re.compile(
    r"marking device as unhealthy|device marked unhealthy|marked (?:it )?unhealthy"
    r"|Node condition (\w{2,60}) is now: (True|False|Unknown)",
    re.IGNORECASE,
)
# node-problem-detector prints its conditions as Go prints a structure.
_STRUCTURE = re.compile(
    r"\{Type:(\w{2,60}) Status:(True|False|Unknown) Transition:([^{}]{0,80}?) Reason:(\w{0,80})"
    r" Message:([^{}]{0,400})\}"
)
_PODS = re.compile(r"(?:NAMESPACE {1,60})?NAME {1,80}READY {1,30}STATUS {1,40}RESTARTS {1,40}AGE")
_POD = re.compile(
    r"(?:[a-z0-9][\w.\-]{0,62} {1,60})??([a-z0-9][\w.\-]{0,252}) {1,80}(\d{1,3})/(\d{1,3}) {1,30}"
    r"([A-Z][\w:/]{1,60}) {1,40}(\d{1,6})"
)
_OPERATOR = re.compile(
    r"nvidia-(?:driver|device-plugin|container-toolkit|dcgm|operator-validator|cuda-validator"
    r"|mig-manager|fabricmanager)|gpu-feature-discovery"
)
_ENDING = re.compile(r"CrashLoopBackOff|Error|OOMKilled")


def said(line: str, node: str, number: int, signs: Signs) -> bool:
    """Look at a line of a daemon's log; whether it is one."""
    match = _LOG.match(line)
    if match is None:
        return False
    at, words = moment((match[1] or "").replace("/", "-")), match[2]
    marked = _MARKED.search(words)
    told = xids(words) or [code for code in (nvml_code(words),) if code]
    for code in told:
        signs.say(node, code, words, at, number)
    for one in _STRUCTURE.finditer(words):
        signs.condition(Condition(node, one[1], one[2], one[3], one[4], one[5], number))
    if marked and marked[1]:
        signs.condition(Condition(node, marked[1], marked[2], line=number, message=words))
    elif marked and not told:
        signs.say(node, "kube.gpu", words, at, number)
    return True


class Pods:
    """A table of ``kubectl get pods``."""

    def __init__(self) -> None:
        self.measured: list[Measurement] = []
        self._open = False

    def take(self, line: str, number: int, signs: Signs) -> bool:
        """Look at one line; whether it is a row or the heading of a table of pods."""
        if _PODS.match(line):
            self._open = True
            return True
        match = _POD.match(line) if self._open else None
        if match is None:
            self._open = False
            return False
        name, state = match[1], match[4]
        if len(self.measured) < 20_000:  # noqa: PLR2004
            self.measured.append(Measurement(KIND, "host", "pod.state", plain(state), "text"))
        if _OPERATOR.search(name) and _ENDING.search(state):
            words = f"{name} {match[2]}/{match[3]} {state}, {match[5]} restarts"
            signs.say("", "kube.pod", words, None, number)
        return True
