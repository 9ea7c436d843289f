"""sacct's accounts of jobs, in any delimiter: which were ended by a node that failed.

FAILED, TIMEOUT, CANCELLED and OUT_OF_MEMORY are the jobs' own. A comment may hold line ends, so a
record goes on over lines until it has as many fields as the heading.
"""

import re

from rackproof.harness.model import Event
from rackproof.harness.readers.clues import moment
from rackproof.harness.readers.hostlist import hosts

KIND = "slurm"
LONGEST = 1 << 20
_DELIMITERS = ("|#", "|", ";", ",", "\t", "!", "^")
_CODES = {"NODE_FAIL": "slurm.job.node", "BOOT_FAIL": "slurm.job.boot",
    "OUT_OF_ME": "slurm.job.memory",
          "OUT_OF_MEMORY": "slurm.job.memory"}  # fmt: skip
_STEP = re.compile(r"\d{1,12}(?:_\d{1,9})?\.")


class Jobs:
    """The jobs met so far."""

    def __init__(self) -> None:
        self.records = 0
        self.cut = False
        self.problems: list[str] = []
        self._delimiter = ""
        self._columns: list[str] = []
        self._spans: list[tuple[int, int]] = []
        self._pending = ""
        self._found: dict[tuple[str, str], Event] = {}
        self._line = 0
        self._odd = 0

    @property
    def open(self) -> bool:
        """Whether a heading was met."""
        return bool(self._columns)

    def heading(self, line: str) -> bool:
        """Take a heading in; whether it is one."""
        words = re.findall(r"\b(?:JobID|JobIDRaw|State|Elapsed|ExitCode|Partition|Account)\b", line)
        if not {"State"} < set(words) or "=" in line:
            return False
        self.end()
        self._delimiter = next((d for d in _DELIMITERS if d in line), "")
        self._columns = (
            [c.strip() for c in line.split(self._delimiter)] if self._delimiter else line.split()
        )
        self._spans = []
        return True

    def take(self, line: str) -> None:
        """Look at one line below a heading."""
        self._line += 1
        if not self._delimiter:
            self._fixed(line)
            return
        whole = f"{self._pending}\n{line}" if self._pending else line
        if not whole.strip():
            return
        wanted = len(self._columns)
        fields = whole.split(self._delimiter)
        if len(fields) < wanted and len(whole) < LONGEST:
            self._pending = whole
            return
        self._pending = ""
        if len(fields) not in (wanted, wanted + 1):
            self._odd += 1
        self._record(dict(zip(self._columns, fields, strict=False)))

    def _fixed(self, line: str) -> None:
        """Read a row of fixed columns, whose widths the dashes below the heading show."""
        if re.fullmatch(r"[- ]{8,}", line):
            self._spans = [m.span() for m in re.finditer(r"-{1,4000}", line)]
        elif self._spans and line.strip():
            cells = (line[start:end].strip() for start, end in self._spans)
            self._record(dict(zip(self._columns, cells, strict=False)))

    def _record(self, fields: dict[str, str]) -> None:
        state = fields.get("State", "").strip().split(" ")[0].rstrip("+").upper()
        self.records += 1
        code = _CODES.get(state)
        if code is None or _STEP.match(fields.get("JobID", "")):
            return  # a step repeats what its job says
        listed = fields.get("NodeList", "").strip()
        names, more = hosts("" if listed.lower().startswith("none") else listed)
        alone = names[0] if len(names) == 1 and not more else ""
        job = re.sub(r"\W", "", fields.get("JobIDRaw", "") or fields.get("JobID", ""))[:20]
        at = moment(fields.get("End", "").strip())
        words = f"job {job or 'unknown'} ended as {state} on {alone or 'one of its nodes'}"
        subject = f"host:{alone}" if alone else "host"
        if len(self._found) < 1000:  # noqa: PLR2004
            clock = "epoch" if at is not None else "none"
            self._found.setdefault((subject, code + job), Event(subject, code, words, at, clock))

    def end(self) -> None:
        """Close what is open: a record without its last fields was broken off."""
        if self._pending.strip():
            missing = len(self._columns) - len(self._pending.split(self._delimiter))
            self.problems.append(f"the last record lacks {missing} of its fields")
            self.cut = True
        if self._odd:
            self.problems.append(f"{self._odd} records have more fields than the heading names")
        self._pending, self._columns, self._delimiter, self._odd = "", [], "", 0

    def events(self) -> list[Event]:
        """Return the jobs that a node ended."""
        return list(self._found.values())
