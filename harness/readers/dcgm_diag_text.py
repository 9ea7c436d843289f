"""The table of `dcgmi diag`, DCGM 2 to 4, whole or as somebody copied a part of it.

A cell that is too long goes on in rows without a name, broken where the cell ends, also inside a
word; a blank that fell on the break is put back between DCGM's words and sentences. DCGM 2 and 3
list the GPUs behind the word (``Fail - GPU: 0``), DCGM 4 gives each a row (``GPU0: Fail``). A table
that begins or ends in the middle is cut.
"""

import re

from rackproof.harness.readers.dcgm_results import (
    HIGHEST_GPU,
    STATUSES,
    Diagnostic,
    Reason,
    Result,
    reading,
)
from rackproof.harness.readers.dcgm_words import joined
from rackproof.harness.readers.places import plain
from rackproof.harness.readers.reading import Reader, Reading
from rackproof.harness.readers.source import Source

KIND = "dcgm-diag-text"
LIMIT = 16 << 20
LINE_LIMIT, REASON_LIMIT = 1024, 4000
CELL = 45  # characters of a value before the cell goes on in the next row
_WORDS = r"(pass(?:ed)?|fail(?:ed)?|error|warn(?:ing)?|skip(?:ped)?|not run)"
_STATUS = re.compile(_WORDS + r"(?: ?- ?(?:all|gpus?: ?([\d, ]{1,200})))?\Z", re.IGNORECASE)
_ENTITY = re.compile(r"(gpu|cpu|nvswitch) ?(\d{1,4}): ?" + _WORDS + r"\Z", re.IGNORECASE)
_SECTION = re.compile(r"[|+]-{3,8} {1,4}([A-Z][A-Za-z ]{2,20}?) {1,4}-{2,20}\+-{8,120}[|+]\Z")
_RULE = re.compile(r"\+[-=]{8,80}\+[-=]{8,120}\+\Z")
_REASON = re.compile(r"(warning|info|error)s?(?:: ?(?:gpu|cpu) ?(\d{1,4}))?\Z", re.IGNORECASE)
_HEAD = re.compile(rb"^\| Diagnostic {8,40}\| Result {20,80}\|", re.MULTILINE)
_SECTIONS = re.compile(
    rb"^[|+]-----  (?:Deployment|Integration|Hardware|Stress|Metadata)  -{2,20}\+-{8,120}[|+]",
    re.MULTILINE,
)
_REFUSED = re.compile(
    rb"Error: unable to establish a connection to the specified host", re.IGNORECASE
)


def likeness(head: bytes) -> float:
    """Return 0.95 where the head of the table stands, 0.9 where one of its sections does."""
    if head.lstrip()[:1] == b"<":
        return 0.0
    if _HEAD.search(head):
        return 0.95
    if _SECTIONS.search(head):
        return 0.9
    return 0.8 if _REFUSED.match(head.lstrip()) else 0.0


class _Table:
    """The walk over the rows."""

    def __init__(self) -> None:
        self.found = Diagnostic()
        self._inside = self._headed = False
        self._category = ""
        self._test: list[Result] = []
        self._told: tuple[tuple[int, ...], str] | None = None
        self._metadata = ""

    def line(self, line: str) -> None:
        """Take one line; what is no part of a table is passed over."""
        line = line.strip()[:LINE_LIMIT]
        if section := _SECTION.match(line):
            self._enter()
            self._close()
            self._category = section[1].strip()
        elif _RULE.match(line):
            self._rule(line)
        elif line.startswith("|"):
            self._row(line)
        elif line.lower().startswith("error:"):
            self.found.note(plain(line))

    def _enter(self) -> None:
        if not self._inside and not self._headed:
            self.found.note("the table begins in the middle")
            self.found.cut = True
        self._inside = True

    def _rule(self, line: str) -> None:
        if "=" in line:
            return
        if self._inside:  # the last line of a table
            self._close()
            self._inside = self._headed = False
            self._category = ""
        self._headed = not self._inside

    def _row(self, line: str) -> None:
        name, bar, value = line[1:].partition("|")
        if not bar or not value.endswith("|"):
            self.found.note("a row of the table is cut")
            self.found.cut = True
            self._inside = True
            return
        name, value = name.strip(), value[:-1]
        if name == "Diagnostic" and value.strip() == "Result":
            self._headed = self._inside = True
            return
        self._enter()
        if name:
            self._named(name, value)
        else:
            self._continued(value)

    def _named(self, name: str, value: str) -> None:
        self._end_reason()
        self._metadata = ""
        reason = _REASON.match(name)
        if reason:
            gpus = (int(reason[2]),) if reason[2] else ()
            self._told = gpus, _cell(value)
            return
        if self._category == "Metadata":
            self._metadata = name
            if name.startswith("Driver Version"):
                self.found.driver = value.strip()
            return
        self._close()
        if not self._status(name, value):
            self.found.results.append(Result(self._category, plain(name, 40), "skip"))
            self.found.note(
                plain(f"{name}: {value.strip() or 'nothing'} is no result that we know")
            )

    def _continued(self, value: str) -> None:
        bare = " ".join(value.split())
        listed = _STATUS.match(bare) if "-" in bare else None
        if self._told is not None and (_ENTITY.match(bare) or listed):
            self._end_reason()  # DCGM 4 may go on with the next GPU, DCGM 3 with other GPUs
        if self._told is not None:
            gpus, text = self._told
            if len(text) < REASON_LIMIT:
                self._told = gpus, joined(text, _cell(value))
        elif self._metadata:
            return
        elif not self._test or not self._status(self._test[0].test, value):
            self.found.note("a row that continues nothing is passed over")

    def _status(self, test: str, value: str) -> bool:
        """Add the result that a cell holds, where it holds one."""
        text = " ".join(value.split())
        status, entity = _STATUS.match(text), _ENTITY.match(text)
        if entity:
            numbers, word = [entity[2]] if entity[1].lower() == "gpu" else [], entity[3]
        elif status:
            numbers, word = (status[2] or "").replace(",", " ").split(), status[1]
        else:
            return False
        gpus = tuple(int(n) for n in numbers if int(n) <= HIGHEST_GPU)
        self._test.append(Result(self._category, plain(test, 40), STATUSES[word.lower()], gpus))
        return True

    def _end_reason(self) -> None:
        """Give what was told to the results that it can be about."""
        if self._told is None:
            return
        gpus, text = self._told
        self._told = None
        reason = Reason(plain(" ".join(text.split())))
        bad = [one for one in self._test if one.status in ("fail", "warn")]
        named = [one for one in bad if not gpus or set(gpus) & set(one.gpus)]
        for one in named or bad or self._test:
            one.reasons.append(reason)
        if not self._test and text.strip():
            self.found.note("a reason without its test is passed over")

    def _close(self) -> None:
        self._end_reason()
        detailed = [one for one in self._test if one.gpus]
        whole = [one for one in self._test if not one.gpus]
        # DCGM 4 sums up in the first row what the rows of the GPUs say; then those count.
        summed = {one.status for one in detailed} >= {one.status for one in whole}
        self.found.results += detailed if detailed and summed else self._test
        self._test = []

    def end(self) -> Diagnostic:
        """Return all that was found."""
        if self._inside:
            self._close()
            self.found.note("the table breaks off before its last line")
            self.found.cut = True
        self._close()
        return self.found


def _cell(value: str) -> str:
    """Return a cell's text as it goes on: without the margin, filled where it was not full."""
    text = value.removeprefix(" ").rstrip()
    return text if len(text) >= CELL else text + " "


def read(source: Source) -> Reading:
    """Read every table in the file."""
    table = _Table()
    for line in source.whole(LIMIT).decode("utf-8", "replace").splitlines():
        table.line(line)
    return reading(KIND, source, table.end())


READER = Reader(KIND, "dcgmi diag, its table", likeness, read)
