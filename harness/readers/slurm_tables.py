"""Tables of sinfo and records of scontrol show node: headings tell the columns, in any width.

Lines come in, and go on to Nodes and Jobs. Only a reason has blanks in it, so the other columns are
found from both ends of a row; a time in a row parts the reason and its user from the nodes.
"""

import re

from rackproof.harness.readers.clues import moment
from rackproof.harness.readers.slurm_jobs import Jobs
from rackproof.harness.readers.slurm_nodes import Nodes

_HEADING = re.compile(r"\s{0,4}(?:REASON|NODELIST|PARTITION|HOSTNAMES|STATE)\b")
_BARRED = re.compile(r"reason\|[\w|]{0,80}\bnodelist\b", re.IGNORECASE)
_COLUMN = re.compile(r"[A-Z][A-Z_:/()%]{1,24}")
_TIME = re.compile(r"\s(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d|Unknown)(?=\s)")
_NODE = re.compile(r"NodeName=(\S{1,300})")
_STATE = re.compile(r"\bState=(\S{1,120})")
_REASON = re.compile(r"\bReason=(.{0,400}?)(?: \[([\w.\-]{1,64})@([\dT:\-]{4,32})\]|\Z)")
_PROMPT = re.compile(r"\S{0,80}.{0,80}[$#>] {0,4}(?:sudo )?(?:sinfo|scontrol|sacct|squeue)\b")
_LINE = 1 << 20


class Tables:
    """The table that is being read."""

    def __init__(self, nodes: Nodes, jobs: Jobs) -> None:
        self._nodes, self._jobs = nodes, jobs
        self._columns: list[str] = []
        self._starts: dict[str, int] = {}
        self._node = ""
        self._number = 0
        self._barred = False

    def take(self, line: str) -> None:
        """Look at one line."""
        self._number += 1
        line = line[:_LINE]
        if _PROMPT.match(line[:200]):
            self.end()
        elif self._jobs.heading(line):
            self._columns, self._node = [], ""
        elif self._jobs.open:
            self._jobs.take(line)
        elif (match := _NODE.match(line)) or self._node:
            self._node = match[1] if match else self._node
            self._record(line[:4000])
        elif _BARRED.match(line):
            self._columns, self._barred = line.upper().strip().split("|"), True
        elif _HEADING.match(line) and (columns := _COLUMN.findall(line)) and len(columns) > 1:
            self._columns = columns
            self._barred = False
            self._starts = {name: line.find(name) for name in columns}
        elif not line.strip():
            self._columns = []
        elif self._columns:
            self._row(line[:4000])

    def end(self) -> None:
        """Close whatever is open."""
        self._jobs.end()
        self._columns, self._node = [], ""

    def _record(self, line: str) -> None:
        """Read one line of a node's record, or a record of one line."""
        if not line.strip():
            self._node = ""
            return
        if match := _STATE.search(line):
            self._nodes.state(self._node, match[1], self._number)
        if match := _REASON.search(line):
            self._nodes.note(self._node, match[1].strip(), moment(match[3]), self._number)

    def _row(self, line: str) -> None:
        """Read one row; one that does not fit its heading is passed over."""
        columns = self._columns
        if not self._barred and "REASON" in columns and columns[-1] != "REASON":
            self._reasons(line)
            return
        cells = line.split("|") if self._barred else line.split(None, len(columns) - 1)
        row = dict(zip(columns, cells, strict=False))
        listed = row.get("NODELIST", "").strip() or row.get("HOSTNAMES", "")
        if row.get("NODES") == "0" or not listed:
            return
        if state := row.get("STATE"):
            self._nodes.state(listed, state, self._number)
        if reason := row.get("REASON", "").strip():
            self._nodes.note(listed, reason, moment(row.get("TIMESTAMP")), self._number)

    def _reasons(self, line: str) -> None:
        """Read a row of ``sinfo -R``: a reason, then who gave it and when, then the nodes."""
        match = _TIME.search(line)
        listed = line.rsplit(maxsplit=1)[-1]
        if match:
            head = line[: match.start()].rstrip()
            by = head.rpartition(" ")[0] if "USER" in self._columns else head
            self._nodes.note(listed, by.strip(), moment(match[1]), self._number)
            return
        after = [self._starts[c] for c in self._columns if self._starts[c] > self._starts["REASON"]]
        reason = line[self._starts["REASON"] : min(after, default=len(line))]
        self._nodes.note(listed, reason.strip(), None, self._number)
