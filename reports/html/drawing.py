"""The rack as it stands: which trays, GPUs and switches to draw, in which order, with what verdict.

In: a record and its judgement. Out: racks of rows, top row first. Rack units count from the bottom,
so tray 00 is the lowest; in a rack of 18 compute trays the NVSwitch trays sit between the 8th and
the 9th, two ASICs in each. A rack of one tray is a node, with its switches beneath its GPUs. Power
shelves and cooling stand beneath the trays, wherever they are in the rack; a host's cell speaks for
its NICs too.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.evidence import Head, gpu_of
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.verdict import Verdict, roll_up
from rackproof.harness.errors import SpecError
from rackproof.harness.model import item_of, sort_of
from rackproof.harness.spec import load, shipped
from rackproof.reports.words import waived

BELOW = 8 / 18  # share of the compute trays under the switch trays: the usual NVL72 layout
ASICS_PER_TRAY = 2
MANY_ROWS = 40  # from here on the rows are laid out in several columns
WORSE = ("", "SKIP", "PASS", "UNKNOWN", "FAIL")
MARKS: Mapping[str, str] = {"PASS": "✓", "FAIL": "✕", "UNKNOWN": "?", "SKIP": "–", "": "·"}


@dataclass(frozen=True, slots=True)
class Part:
    """One GPU, host or switch. `verdict` is empty where it was not judged by itself."""

    subject: str
    label: str
    verdict: str
    role: str = ""
    waived: bool = False

    @property
    def said(self) -> str:
        """The part in words, for a screen reader."""
        words = [self.verdict or "not judged by itself"]
        words += [f"{self.role} of a diagnosis"] if self.role else []
        words += ["a FAIL is waived"] if self.waived else []
        return f"{self.subject}: {', '.join(words)}"

    @property
    def mark(self) -> str:
        """The sign that says the verdict without colour."""
        return MARKS[self.verdict]


@dataclass(frozen=True, slots=True)
class Row:
    """One tray: compute (GPUs and a host) or switch (ASICs)."""

    name: str
    kind: str
    parts: tuple[Part, ...]
    host: Part | None = None


@dataclass(frozen=True, slots=True)
class Drawing:
    """One rack, its rows from the top down."""

    name: str
    rows: tuple[Row, ...]
    node: bool

    @property
    def many(self) -> bool:
        """Whether the rows are too many for one column."""
        return len(self.rows) > MANY_ROWS


class Verdicts:
    """The verdict and the role in a diagnosis of every subject."""

    def __init__(self, judgement: Judgement) -> None:
        """Roll up the checks of what is no GPU; a switch that is a root is FAIL without checks."""
        own: dict[str, list[Verdict]] = defaultdict(list)
        for check in judgement.checks:
            if check.waiver is None and sort_of(check.subject) not in ("gpu", "link"):
                own[check.subject].append(check.verdict)
        self.found = {subject: str(roll_up(v)) for subject, v in own.items()}
        self.found |= {subject: str(v) for subject, v in judgement.subjects.items()}
        self.roles: dict[str, str] = {}
        self.waived = {gpu_of(c.subject) for c in waived(judgement)}
        for diagnosis in judgement.diagnoses:
            if self.roles.get(diagnosis.subject) != "root":
                self.roles[diagnosis.subject] = diagnosis.role
            if diagnosis.role == "root" and sort_of(diagnosis.subject) not in ("gpu", "link"):
                self.found[diagnosis.subject] = "FAIL"

    def part(self, subject: str, label: str) -> Part:
        """Return the part as it is drawn."""
        verdict, role = self.found.get(subject, ""), self.roles.get(subject, "")
        return Part(subject, label, verdict, role, subject in self.waived)


def switches(head: Head, verdicts: Verdicts) -> list[str]:
    """Return the switches to draw: those of the shipped rack, and any that were spoken of."""
    known: Sequence[str] = ()
    if head.rack in {name for name, _ in shipped()}:
        try:
            spec = load(head.rack)
        except SpecError:
            spec = None
        if spec is not None and {gpu.subject for gpu in spec.gpus} >= set(head.gpus):
            known = spec.switches
    seen = {s for s in (*verdicts.found, *verdicts.roles) if sort_of(s) == "switch" and "/" in s}
    return sorted({*known, *seen})


def _trays(head: Head) -> dict[str, dict[str, list[str]]]:
    """Return GPUs by rack and tray; what is not written in a rack's way stands in one row."""
    racks: dict[str, dict[str, list[str]]] = {}
    for gpu in head.gpus:
        tray, _, _ = gpu.rpartition("/")
        rack, _, _ = tray.partition("/")
        racks.setdefault(rack or "machine", {}).setdefault(tray, []).append(gpu)
    return racks


def _switch_rows(names: Sequence[str], verdicts: Verdicts, size: int) -> list[Row]:
    parts = [verdicts.part(name, name.rpartition("/switch")[2]) for name in names]
    chunks = [tuple(parts[at : at + size]) for at in range(0, len(parts), size)]
    return [
        Row(f"sw {number}" if len(chunks) > 1 else "switches", "switch", chunk)
        for number, chunk in enumerate(chunks)
    ]


def _compute_row(tray: str, gpus: Iterable[str], verdicts: Verdicts, head: Head) -> Row:
    name = tray.rpartition("/")[2] or "machine"
    return Row(
        name.replace("tray", "tray "),
        "compute",
        tuple(verdicts.part(gpu, gpu.rpartition("/")[2].replace("gpu", "")) for gpu in gpus),
        _host(f"{tray}/host", verdicts, head),
    )


def _host(host: str, verdicts: Verdicts, head: Head) -> Part | None:
    """Return the host's part, or that of its NIC where one stands worse."""
    if host not in head.hosts:
        return None
    nics = [nic for nic in head.subjects("nic") if item_of(nic) == host]
    parts = [verdicts.part(host, "host")]
    parts += [verdicts.part(nic, nic.rpartition("/")[2]) for nic in nics]
    return max(parts, key=lambda part: WORSE.index(part.verdict))


def _site_rows(rack: str, verdicts: Verdicts, head: Head) -> list[Row]:
    """Return the rows of a rack's power shelves and of its cooling, where they were planned."""
    shelves = [s for s in head.subjects("shelf") if s.startswith(f"{rack}/")]
    cooling = [s for s in head.subjects("cooling") if s.startswith(f"{rack}/")]
    rows = []
    if shelves:
        parts = [verdicts.part(shelf, shelf.rpartition("/shelf")[2]) for shelf in shelves]
        rows.append(Row("shelves", "switch", tuple(parts)))
    if cooling:
        rows.append(Row("cooling", "switch", tuple(verdicts.part(c, "") for c in cooling)))
    return rows


def drawings(head: Head, judgement: Judgement) -> list[Drawing]:
    """Return the racks to draw."""
    verdicts = Verdicts(judgement)
    all_switches = switches(head, verdicts)
    found = []
    for rack, trays in _trays(head).items():
        own = [s for s in all_switches if s.startswith(f"{rack}/")]
        compute = [_compute_row(tray, gpus, verdicts, head) for tray, gpus in trays.items()]
        if len(trays) == 1:
            rows = [*compute, *_switch_rows(own, verdicts, max(len(own), 1))]
        else:
            below = round(len(compute) * BELOW)
            between = _switch_rows(own, verdicts, ASICS_PER_TRAY)
            rows = [*compute[:below], *between, *compute[below:]][::-1]
        rows += _site_rows(rack, verdicts, head)
        found.append(Drawing(rack, tuple(rows), node=len(trays) == 1))
    return found
