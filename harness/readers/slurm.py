"""Slurm: sinfo, scontrol show node, sacct and the daemons' logs; what they say of nodes.

Jobs that failed, ran out of time or were cancelled say nothing of hardware. A node's state is what
counts at the end, and its reason is somebody's note, often cut short. Any delimiter and column
width, records over several lines, prompts between the outputs of several commands.
"""

import re

from rackproof.harness.readers import slurm_jobs, slurm_log, slurm_tables
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.slurm_nodes import Nodes
from rackproof.harness.readers.source import Source

KIND = "slurm"
LIMIT = 32 << 20


def _is_log(head: bytes) -> bool:
    return len(_LOG.findall(head[: 1 << 15])) >= 2  # noqa: PLR2004


def read(source: Source) -> Reading:
    """Read tables of nodes, accounts of jobs, or a daemon's log."""
    nodes = Nodes()
    jobs = slurm_jobs.Jobs()
    lines = 0
    if _is_log(source.head):
        lines = slurm_log.read(source, nodes)
    else:
        tables = slurm_tables.Tables(nodes, jobs)
        for line in source.whole(LIMIT).decode("utf-8", "replace").split("\n"):
            tables.take(line.rstrip("\r"))
        tables.end()
    problems = [*source.problems, *nodes.problems, *jobs.problems]
    events = [*nodes.events(), *jobs.events()]
    records = lines or nodes.count() + jobs.records
    return Reading(
        source.path, KIND, records, tuple(map(plain, problems)), tuple(events),
        tuple(nodes.measured()), cut=source.cut or jobs.cut, worked=bool(records),
        host=nodes.home(),
    )  # fmt: skip


_LOG = re.compile(
    rb"^\[?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?\]? (?:\[\S{1,40}\] )?(?:error: |fatal:"
    rb" |debug\d?: |"
    rb"sched: |backfill: |slurm(?:ctld|d|stepd|dbd)\b|_slurm_rpc|_job_complete|update_node|Nod"
    rb"e |Nodes |"
    rb"node |_sync_nodes|validate_node_specs|"
    rb"drain_nodes|cleanup_completing|Launching batch|launch task|\*\*"
    rb"\* )", re.MULTILINE,
)  # fmt: skip
_TABLES = (
    re.compile(rb"^ {0,4}REASON {1,60}(?:USER|NODELIST|TIMESTAMP)\b", re.MULTILINE),
    re.compile(rb"^(?:REASON|Reason)\|(?:USER|User|TIMESTAMP|Timestamp|NODELIST|Nodelist|NodeList)\b",
               re.MULTILINE),
    re.compile(rb"^ {0,4}NODELIST {1,60}(?:NODES|PARTITION|STATE|REASON)\b", re.MULTILINE),
    re.compile(rb"^ {0,4}PARTITION {1,60}AVAIL {1,60}TIMELIMIT\b", re.MULTILINE),
    re.compile(rb"^ {0,4}HOSTNAMES {1,60}STATE\b", re.MULTILINE),
    re.compile(rb"^NodeName=\S{1,300} (?:Arch=|CoresPerSocket=|State=|NodeAddr=)", re.MULTILINE),
    re.compile(rb"^(?=[^\n]{0,4000}\bJobID(?:Raw)?\b)(?=[^\n]{0,4000}\bState\b)"
               rb"(?=[^\n]{0,4000}\b(?:Elapsed|ExitCode|AllocCPUS|Partition|Account|End)\b)"
               rb"[^\n\"'{}]{10,4000}$", re.MULTILINE),
)  # fmt: skip


def likeness(head: bytes) -> float:
    """Return 0.9 for a heading that only Slurm writes, or for two lines of its daemons' logs."""
    head = head[: 1 << 15]
    if _is_log(head):
        return 0.85
    return 0.9 if any(mark.search(head) for mark in _TABLES) else 0.0


READER = Reader(
    KIND, "sinfo, scontrol show node, sacct, logs of slurmctld and slurmd", likeness, read
)
