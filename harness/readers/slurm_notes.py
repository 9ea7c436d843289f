"""Why a node is out of service: the reason that Slurm or somebody gave, in words, as a code.

A reason goes in, ``slurm.*`` or ``xid.N`` goes out, "" for one that tells of plans. ``sinfo -R``
cuts a reason at twenty characters, so the beginnings are enough. What a person wrote is a note, and
no measurement: it has the codes ``slurm.note.AREA``.
"""

import re
from collections.abc import Sequence

from rackproof.harness.readers.clues import xids

_PLANNED = re.compile(
    r"maint|reboot (?:asap|requested|issued)|scheduled|planned|upgrade|reserv|benchmark|install"
    r"|decommission|testing|new node|power(?:ed|ing)?[ _](?:down|off|save|up)|image|firmware update"
)
_GRES = re.compile(r"count reported lower than configured \((\d{1,4}) < (\d{1,4})\)")
_OWN: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (code, re.compile(words))
    for code, words in (
        ("slurm.gres.count", r"gres/gpu count (?:repor|too low)|gres/\w{1,16} count repor"),
        ("slurm.gres.config", r"gres/\w{1,16}(?::\w{1,32})? (?:gres|core|cores|has|file|type)"),
        ("slurm.memory", r"low real_?memory|low real memory"),
        ("slurm.disk", r"low tmp_?disk"),
        ("slurm.cpus", r"low (?:socket|cpu|core)|cpu count|low sockets"),
        ("slurm.silent", r"not responding|no response|node not respon|lost connection"),
        ("slurm.rebooted", r"node unexpectedly re|unexpected(?:ly)? reboot|node rebooted"),
        ("slurm.kill", r"kill task failed|kill task fail"),
        ("slurm.prolog", (r"prolog error|epilog error|prolog failed|epilog failed|prolog/epilog"
                         r"|batch job complete f|slurmd prolog|launch failed"
                         r"|(?:prolog|epilog)\b.{0,60}fail"
                         r"|fail.{0,60}\b(?:prolog|epilog)\b")),
        ("slurm.slurmd", r"duplicate jobid|slurmd (?:version|fail)|health check fail|healthcheck"),
    )
)  # fmt: skip
_NAMED_CHECK = re.compile(r"\bcheck_\w{2,24}")
_CHECK = re.compile(r"\bnhc\b|check_\w{2,24}|health ?check")
_AREAS: Sequence[tuple[str, re.Pattern[str]]] = tuple(
    (area, re.compile(words))
    for area, words in (
        ("gpu", r"\bgpus?\b|nvidia|nvml|dcgm|\becc\b|retired|remap|\bsxm|cuda"),
        ("nvlink", r"nvlink|nvswitch|fabric ?manager"),
        ("nic", (r"infiniband|\bib\d?\b|mlx\d|\bhca\b|\bnic\b|link (?:down|flap)|\broce\b|ibsta"
                r"t|cable")),
        ("power", r"\bpsus?\d?\b|power suppl|voltage|\bpdu\b"),
        ("thermal", r"thermal|temperature|overheat|\bhot\b|\bfans?\b|cool|leak"),
        ("storage", (r"\bdisks?\b|\bdrive|nvme|ssd|lustre|gpfs|weka|\bnfs\b|mount|check fs|file"
                    r"system|raid")),
        ("host", (r"dimm|memory|\bmem\b|\bcpu|\bmce\b|physmem|kernel|panic|bios|\bbmc\b|hang|hu"
                 r"ng|crash")),
        ("pcie", r"pcie?\b|bus|riser|slot"),
    )
)  # fmt: skip


def area_of(reason: str) -> str:
    """Return the area that a reason speaks of, or ``unknown``."""
    lower = reason.lower().replace("_", " ")
    return next((area for area, words in _AREAS if words.search(lower)), "unknown")


def code_of(reason: str) -> str:
    """Return the code of a reason, or "" for one that speaks of plans, or for none."""
    lower = reason.strip().lower()
    if lower in ("", "none", "(null)", "n/a", "unknown"):
        return ""
    if named := xids(reason):
        return named[0]
    if (code := _own_code(lower)) or _PLANNED.search(lower):
        return code
    return f"slurm.{'check' if _CHECK.search(lower) else 'note'}.{area_of(reason)}"


def _own_code(lower: str) -> str:
    """Return the code of a reason that Slurm or a health check gives itself, or ""."""
    if match := _GRES.search(lower):
        lost = 0 < int(match[1]) < int(match[2])
        return "slurm.gres.lost" if lost else "slurm.gres.none"
    if named := _NAMED_CHECK.search(lower):
        return f"slurm.check.{area_of(lower[named.start() :])}"
    return next((code for code, words in _OWN if words.search(lower)), "")
