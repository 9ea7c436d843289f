"""Judging files that people already have: readings in, a verdict on the machine and diagnoses out.

Events and readings get their meaning from the rules, become episodes and cases, and each case one
root diagnosis with its victims. FAIL: a root that is not the application's and asks for more than
watching. UNKNOWN: a root to watch or to test again, input that was cut or did no work, or nothing
recognised. PASS: something was looked at, and there is no sign of a fault.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackproof.diagnostics.because import because, names
from rackproof.diagnostics.cases import HARD, Case, cases
from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.episodes import Episode, coarse, episodes
from rackproof.diagnostics.followers import followed
from rackproof.diagnostics.jobs import jobs_of
from rackproof.diagnostics.machines import Machines, machines
from rackproof.diagnostics.meanings import said_by
from rackproof.diagnostics.overlap import distinct, once
from rackproof.diagnostics.remarks import remarked
from rackproof.diagnostics.repeats import own_fault
from rackproof.diagnostics.retest.files import conclude
from rackproof.diagnostics.retest.history import Ledger, Told
from rackproof.diagnostics.rules import kernel, signs
from rackproof.diagnostics.settling import directives, link_of, one_each, shared, with_directives
from rackproof.diagnostics.slots import stays, with_carriers
from rackproof.diagnostics.timeline import on_one_clock
from rackproof.diagnostics.verdict import Verdict, roll_up
from rackproof.harness.readers import UNRECOGNISED, Reading

MOST_EPISODES = 10_000  # of one machine: beyond, all of one place and family are one
IDLE = frozenset(("none", "watch", "retest"))
# Kinds of which only some fields tell of health: without any of those nothing was looked at.
_QUERIES = frozenset(("nvidia-smi-q", "nvidia-smi-xml", "nvidia-smi-table", "nvidia-smi-csv",
                      "dcgm-metrics"))  # fmt: skip

_ON_GPUS = frozenset(("hbm", "sram", "sm", "nvlink", "nvswitch"))
_BESIDE = frozenset(("nic", "storage", "host"))  # parts with an address of their own, and no GPU

# Metrics that tell which part it is, and not how it is.
_NAMES = frozenset(
    "gpu.serial gpu.uuid gpu.pci gpu.pci_id gpu.name driver.version vbios.version host.nics "
    "memory.total ib.port.layer ib.port.model pod.state fabric.switches".split()
)


def _entry(reading: Reading) -> dict[str, Any]:
    """Return an input's JSON object; bytes of a path that are no text are shown as escapes."""
    entry: dict[str, Any] = {
        "path": str(reading.path).encode("utf-8", "backslashreplace").decode(),
        "kind": reading.kind,
        "records": reading.records,
        "problems": list(reading.problems),
    }
    return entry | ({"host": reading.host} if reading.host else {})


@dataclass(frozen=True, slots=True)
class OfflineJudgement:
    """The verdict, the diagnoses by case, and what each input was."""

    verdict: Verdict
    diagnoses: tuple[Diagnosis, ...]
    inputs: tuple[Reading, ...]

    def as_json(self) -> dict[str, Any]:
        """Return the contract's JSON of `diagnose`."""
        return {
            "schema": "rackproof.diagnosis/1",
            "verdict": str(self.verdict),
            "inputs": [_entry(reading) for reading in self.inputs],
            "diagnoses": [diagnosis.as_json() for diagnosis in self.diagnoses],
        }  # fmt: skip


def _gpus(readings: Sequence[Reading], known: Machines) -> set[tuple[str, str]]:
    """Return every GPU that a query listed, as (machine, subject)."""
    found = {
        known.place(index, subject)
        for index, reading in enumerate(readings)
        for subject in (
            {m.subject for m in reading.measurements} | {m.subject for m in reading.missing}
        )
    }
    return {one for one in found if one[1].startswith(("pci:", "gpu")) and "/" not in one[1]}


def _subject(case: Case) -> str:
    """Return the root's subject: with its link, where all that was said is about one link."""
    link = link_of(case)
    return case.subject if link is None else f"{case.subject}/link{link:02d}"


def _began(case: Case) -> float | None:
    """Return when a case began, in seconds since 1970, where its clock says so."""
    times = [e.first for e in case.root if e.first is not None and e.lead.event.clock == "epoch"]
    return min(times, default=None)


def _told(case: Case, number: int, known: Machines) -> Told:
    """Return what a case tells of its part: which serial number, and when."""
    return known.serial(case.machine, case.subject), _began(case), f"case {number}"


@dataclass(frozen=True, slots=True)
class _Known:
    """What all diagnoses of a call share: the machines, and what each file is called."""

    machines: Machines
    files: Mapping[str, str]


def _diagnose(
    case: Case, number: int, context: _Known, past: tuple[int, float] | None
) -> list[Diagnosis]:
    known = context.machines
    subject = known.spelled(case.machine, _subject(case))
    said = conclude(case, past)
    root = Diagnosis(
        subject, case.rule.component, said.persistence, said.action, number,
        (*because(case, context.files), *(said.because if _burnable(case) else ())),
        confidence=said.confidence,
        serial=None if case.slot else known.serial(case.machine, case.subject),
    )  # fmt: skip
    return [root, *_victims(case, root, context)]


def _burnable(case: Case) -> bool:
    """Whether retests tell of a root: it is a GPU, a link or a switch, and no part beside them."""
    component = case.rule.component
    device = case.subject.startswith(("pci:", "gpu", "fabric"))
    return component in _ON_GPUS or (device and component not in _BESIDE)


def _victims(case: Case, root: Diagnosis, context: _Known) -> list[Diagnosis]:
    """Return an entry for each place that suffered from `root`, with what it told."""
    known = context.machines
    told: dict[tuple[str, str], list[Episode]] = defaultdict(list)
    for episode in case.tied:
        told[episode.machine, episode.subject].append(episode)
    found = []
    for machine, place in sorted(case.victims()):
        mine = told[machine, place]
        component = min(mine, key=Episode.order).lead.rule.component
        why = because(Case(machine, place, case.rule, mine), context.files)
        found.append(Diagnosis(
            known.spelled(machine, place), component, root.persistence, "none", root.case,
            (f"follows from {root.subject}", *why), "victim", root.confidence,
            known.serial(machine, place),
        ))  # fmt: skip
    return found


def _verdict(readings: Sequence[Reading], roots: Sequence[Diagnosis]) -> Verdict:
    told = []
    for root in roots:
        if root.component == "app":
            told.append(Verdict.PASS)
        else:
            told.append(Verdict.UNKNOWN if root.action in IDLE else Verdict.FAIL)
    told += [verdict for reading in readings if (verdict := _of_input(reading)) is not None]
    return roll_up(told)


def _of_input(reading: Reading) -> Verdict | None:
    """Return what an input says of the machine, were there no sign in it; None: nothing.

    What nobody named and nothing can be read from is neutral.
    """
    if reading.kind == UNRECOGNISED:
        return Verdict.UNKNOWN if reading.named else None
    if reading.cut or not reading.worked or not reading.records:
        return Verdict.UNKNOWN
    if reading.parts:
        told = [verdict for part in reading.parts if (verdict := _of_input(part)) is not None]
        silent = Verdict.UNKNOWN if reading.named else None
        return roll_up(told) if told else silent
    if _silent(reading):
        return Verdict.UNKNOWN if reading.named else None
    return Verdict.PASS


def _nothing_told(reading: Reading) -> bool:
    """Whether an input is UNKNOWN for what is in it, and its reader does not say why."""
    if reading.kind == UNRECOGNISED or reading.cut or not reading.worked:
        return False
    if reading.parts:
        return all(_nothing_told(part) for part in reading.parts)
    return (not reading.records and not reading.problems) or _silent(reading)


def _silent(reading: Reading) -> bool:
    """Whether nothing in an input tells of health: only names, or only what is never judged."""
    seen = {m.metric for m in reading.measurements} | {m.metric for m in reading.missing}
    if reading.kind in _QUERIES:
        return not seen & signs.judged_metrics()
    return bool(seen) and not reading.events and seen <= _NAMES


def _crowded(readings: Sequence[Reading], left_out: int) -> list[Reading]:
    """Say in the fullest inputs' problems that not all of their incidents could be judged."""
    problem = f"{left_out} of the incidents are not judged: they name too many places"
    most = min(MOST_EPISODES + 1, max(len(reading.events) for reading in readings))
    return [
        replace(r, problems=(*r.problems, problem)) if len(r.events) >= most else r
        for r in readings
    ]  # fmt: skip


def _settled(readings: Sequence[Reading]) -> tuple[list[Case], Machines, int]:
    readings = distinct([part for reading in readings for part in reading.parts or (reading,)])
    known = machines(readings)
    said = on_one_clock(said_by(readings, known), readings, known)
    said = once(with_carriers(said, readings, known))
    said.sort(key=lambda s: (*s.order(), s.machine, s.subject))
    sifted, left_out = coarse(kernel.sift(episodes(said)), MOST_EPISODES)
    found, outside = shared(sifted, _gpus(readings, known))
    found, told = directives(found)
    alone = followed(cases(found), jobs_of(readings, known))
    whole = one_each(own_fault(with_directives(alone, told)) + outside)
    for case in whole:
        stays(case)
    whole = [case for case in one_each(whole) if case.rule.action != "none"]
    whole.sort(key=lambda c: (c.rule.kind not in HARD, c.machine, _subject(c), c.rule.component))
    return whole, known, left_out


def settled(readings: Sequence[Reading]) -> tuple[list[Case], Machines]:
    """Return the cases of what was read, and the machines: all that is known before diagnosing."""
    found, known, _ = _settled(readings)
    return found, known


def judge_inputs(readings: Sequence[Reading], told: Sequence[Told] = ()) -> OfflineJudgement:
    """Judge what was read. The order of `readings` changes nothing but the order of `inputs`.

    `told` is what earlier runs tell of serial numbers.
    """
    found, known, left_out = _settled(readings)
    own = [_told(case, number, known) for number, case in enumerate(found, start=1)]
    ledger = Ledger.of([*told, *own])
    context = _Known(known, names(str(reading.path) for reading in readings))
    groups = [
        _diagnose(case, number, context, ledger.before(own[number - 1]))
        for number, case in enumerate(found, start=1)
    ]
    diagnoses = tuple(d for group in groups for d in group)
    verdict = _verdict(readings, [group[0] for group in groups])
    told_of = {said.file for case in found for e in (*case.root, *case.tied) for said in e.said}
    silent = [_nothing_told(r) and str(r.path) not in told_of for r in readings]
    readings = remarked(readings, silent)
    if left_out:
        verdict = roll_up((verdict, Verdict.UNKNOWN))
        readings = _crowded(readings, left_out)
    return OfflineJudgement(verdict, diagnoses, tuple(readings))
