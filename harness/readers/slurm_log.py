"""Logs of slurmctld and slurmd: what they say of nodes, of any length.

Only lines that hold one of a few words are looked at. A node that answers again was only silent
for a while; a job's end is no sign. An error that names GPUs, or ends the daemon, in words that no
rule knows is told as it stands.
"""

import functools
import re

from rackproof.harness.model import Event
from rackproof.harness.readers.clues import device, moment, xids
from rackproof.harness.readers.nvml_words import nvml_code
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.slurm_nodes import Nodes
from rackproof.harness.readers.slurm_notes import code_of
from rackproof.harness.readers.source import Source

_LITERALS = re.compile(
    rb"not responding|now responding|reason set to|lower than configured|real_memory|RealMemory|"
    rb"DRAIN|Kill task failed|unexpectedly re|oom_kill|Xid|XID|setting DOWN|state to DOWN|is DOWN|"
    rb"[Pp]rolog|[Ee]pilog|fallen off|NVML|error: |fatal: "
)
_STAMP = re.compile(
    r"\[?(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?)\]? (?:\[\S{1,40}\] )?(.{1,600})"
)
_LIST = r"([A-Za-z][\w.\-]{0,63}(?:\[[0-9,\-]{1,2000}\])?(?:,[A-Za-z][\w.\-\[\],]{0,2000})?)"
_SILENT = re.compile(r"(?:error: )?Nodes? " + _LIST + r" not responding")
_SPEAKS = re.compile(
    r"(?:error: )?(?:Nodes? |node_did_resp:? )" + _LIST + r" (?:now responding|returned to service)"
)
_STUCK = re.compile(
    r"error: \*\*\* (?:JOB|STEP) \S{1,40} STEPD TERMINATED ON ([A-Za-z][\w.\-]{0,63}) "
)
_DRAINED = re.compile(r"(?:error: )?(?:\w{1,40}: )?(.{1,200}) on node " + _LIST + r", draining")
_REASON = re.compile(
    r"(?:update_node: |drain_nodes: )?[Nn]odes? " + _LIST + r" reason set to: (.{1,200})"
)
_RAISED = re.compile(r"(?:error: )?(?:Setting node |[Nn]ode |_slurm_rpc_node_registration node=|"
                     r"validate_node_specs: [Nn]ode |drain_nodes: node |Validating nod"
                     r"e )" + _LIST + r"\b[: ](.{1,300})")  # fmt: skip
_SAYS = re.compile(r"lower than configured|real_memory|RealMemory|unexpectedly re|Kill task failed"
                   r"|[Pp]rolog|[Ee]pilog")  # fmt: skip
# Lines that tell of GPUs, of what runs before a job, or of a health check; a host or a partition
# that is called gpu is none.
_NAMES = re.compile(
    r"(?i:nvml|prolog|epilog|health.?check|/dev/nvidia|\bgres\b|_gres|\bnhc\b"
    r"|(?<![\w\-.])nvidia\b(?![\-.]))|\bgpu/|\bGPUs?\b(?![\-.\d])"
    r"|(?<![\w\-./=])(?<!artition )(?<!queue )gpus?(?![\w\-./=\[])",
)
_OF_JOB = re.compile(
    r"[Ii]nvalid generic resource|[Ii]nvalid gres|[Ii]nvalid TRES|could ?n[o']t chdir|CANCELLED"
    r"|[Rr]equested (?:node|gres|GRES)|[Uu]nable to satisfy"
)
_DEVICE_FILE = re.compile(r"gres\.conf file (/dev/\S{1,60})")
_OOM = re.compile(r"error: Detected \d{1,6} oom_kill event")
_LOUD = re.compile(r"(error|fatal): ")
LINE_LIMIT = 4096


def read(source: Source, nodes: Nodes) -> int:
    """Read a log into `nodes`; return the number of its lines."""
    number = 0
    for chunk in source.chunks():
        done = 0
        for match in _LITERALS.finditer(chunk):
            if match.start() < done:
                continue
            start = chunk.rfind(b"\n", 0, match.start()) + 1
            end = chunk.find(b"\n", match.end())
            end = len(chunk) if end < 0 else end
            number += chunk.count(b"\n", done, start)
            done = start
            _line(
                chunk[start : min(end, start + LINE_LIMIT)].decode("utf-8", "replace"),
                number + 1,
                nodes,
            )
            number += chunk.count(b"\n", start, end)
            done = end
        number += chunk.count(b"\n", done) + (not chunk.endswith(b"\n"))
    return number


def _line(line: str, number: int, nodes: Nodes) -> None:
    """Look at one line."""
    match = _STAMP.match(line)
    if match is None:
        return
    at, said = moment(match[1]), match[2].rstrip()
    if found := _SILENT.match(said):
        nodes.note(found[1], "Not responding", at, number)
    elif found := _SPEAKS.match(said):
        nodes.speaks(found[1])
    elif found := _REASON.match(said):
        nodes.note(found[1], found[2].strip(), at, number)
    elif (found := _RAISED.match(said)) and _SAYS.search(found[2]):
        nodes.note(found[1], _reason(found[2]), at, number)
    else:
        _own(said, at, number, nodes)


def _own(said: str, at: float | None, number: int, nodes: Nodes) -> None:
    """Look at what a daemon says of the node that it runs on."""
    if _OOM.search(said):
        nodes.own(_event("slurm.job.memory", said, at, number))
    elif found := _STUCK.match(said):
        nodes.lives(found[1])
        nodes.own(_event("slurm.kill", said, at, number))
    elif (found := _DRAINED.match(said)) and code_of(found[1]):
        nodes.note(found[2], found[1], at, number)
    elif found := _LOUD.match(said):
        for code in xids(said) or [_loud(said, fatal=found[1] == "fatal")]:
            nodes.own(_event(code, said, at, number))


@functools.lru_cache(maxsize=4096)
def _loud(said: str, *, fatal: bool) -> str:
    """Return the code of an error in a daemon's log, or "" for one that is no sign.

    A daemon that ends, and an error that names GPUs or a check of the node, is never passed over.
    """
    if _DEVICE_FILE.search(said):
        return "slurm.gres.device"
    if (not fatal and not _NAMES.search(said) and not _SAYS.search(said)) or _OF_JOB.search(said):
        return ""
    if code := nvml_code(said):
        return code
    code = code_of(said)
    own = code and not code.startswith("slurm.note.")
    return code if own else "slurm.fatal" if fatal else "slurm.error"


def _reason(words: str) -> str:
    """Return a log's words for a low memory or a missing GPU in the words of a reason."""
    if "real_memory" in words:
        return f"Low RealMemory: {words.strip()}"
    return words.strip(" :")


def _event(code: str, said: str, at: float | None, number: int) -> Event:
    subject, _, _ = device(said)
    clock = "epoch" if at is not None else "none"
    return Event(subject, code, plain(said), at, clock, {"line": number})
