"""Judging files that people already have: readings in, a verdict on the machine and diagnoses out.

Events and readings get their meaning from the rules, become episodes and cases, and each case one
root diagnosis with its victims. FAIL: a root that is not the application's and asks for more than
watching. UNKNOWN: a root to watch or to test again, input that was cut or did no work, or nothing
recognised. PASS: something was looked at, and there is no sign of a fault.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackproof.diagnostics.because import because
from rackproof.diagnostics.cases import HARD, Case, cases
from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.episodes import Episode, Said, coarse, episodes, near, places
from rackproof.diagnostics.machines import Machines, machines
from rackproof.diagnostics.repeats import own_fault, persistence
from rackproof.diagnostics.rules import kernel, signs, sxid, xid
from rackproof.diagnostics.rules.tables import Rule
from rackproof.diagnostics.verdict import Verdict, roll_up
from rackproof.harness.model import Event
from rackproof.harness.readers import UNRECOGNISED, Reading

MOST_EPISODES = 2000
IDLE = frozenset(("none", "watch", "retest"))


def _entry(reading: Reading) -> dict[str, Any]:
    """Return an input's JSON object; bytes of a path that are no text are shown as escapes."""
    return {
        "path": str(reading.path).encode("utf-8", "backslashreplace").decode(),
        "kind": reading.kind,
        "records": reading.records,
        "problems": list(reading.problems),
    }


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


def _code(event: Event) -> int | None:
    head, _, digits = event.code.rpartition(".")
    return int(digits) if head in ("xid", "sxid") and digits.isdecimal() else None


def _meaning(event: Event) -> Rule | None:
    number = _code(event)
    if number is not None and event.code.startswith("xid."):
        return xid.meaning(number, event.detail, event.text)
    if number is not None:
        return sxid.meaning(number, event.detail)
    return kernel.meaning(event)


def _causes(said: Sequence[Said]) -> list[Said]:
    """Return the Xids that an Xid 45 names as its cause, where the log has lost them."""
    told = {(s.machine, s.subject, s.event.code) for s in said}
    found = []
    for one in said:
        cause = one.event.detail.get("cause")
        if one.event.code != "xid.45" or not isinstance(cause, int) or cause == 45:  # noqa: PLR2004
            continue
        code = f"xid.{cause}"
        if (one.machine, one.subject, code) not in told:
            rule = xid.meaning(cause, {}, "")
            found.append(replace(one, event=replace(one.event, code=code), rule=rule))
    return found


def _said(readings: Sequence[Reading], known: Machines) -> list[Said]:
    """Return all that was said, with its meaning; what means nothing is left out."""
    found = []
    for index, reading in enumerate(readings):
        pairs = [(e, rule) for e in reading.events if (rule := _meaning(e)) is not None]
        pairs += signs.signs(reading.measurements, reading.events)
        for event, rule in pairs:
            machine, subject = known.place(index, event.subject)
            found.append(Said(event, rule, machine, subject, str(reading.path)))
    found += _causes(found)
    return [s for s in found if s.rule.kind != "ignore" or s.rule.family == "nic-link"]


def _gpus(readings: Sequence[Reading], known: Machines) -> set[tuple[str, str]]:
    """Return every GPU that a query listed, as (machine, subject)."""
    return {
        known.place(index, subject)
        for index, reading in enumerate(readings)
        for subject in (
            {m.subject for m in reading.measurements} | {m.subject for m in reading.missing}
        )
        if subject.startswith(("pci:", "gpu"))
    }


def _shared(found: list[Episode], listed: set[tuple[str, str]]) -> tuple[list[Episode], list[Case]]:
    """Take out what every GPU of a machine shows alike: that is the host's, or the fabric's."""
    taken: list[Case] = []
    groups: dict[tuple[str, str, str], list[Episode]] = {}
    for episode in found:
        where = signs.shared_by(episode.lead.event.code)
        if where:
            groups.setdefault((episode.machine, where, episode.family), []).append(episode)
    for (machine, where, _), members in groups.items():
        everyone = {place for place in listed if place[0] == machine}
        if len(everyone) > 1 and places(members) == everyone:
            subject = "fabric" if where == "fabric" else "host"
            home = "" if where == "fabric" else machine
            lead = min(members, key=Episode.order).lead
            taken.append(Case(home, subject, lead.rule, [], members, where))
            found = [e for e in found if not any(e is member for member in members)]
    return found, taken


def _directives(found: Sequence[Episode]) -> tuple[list[Episode], list[Episode]]:
    told = [e for e in found if e.family == "directive"]
    return [e for e in found if e.family != "directive"], told


def _heed(case: Case, told: Sequence[Episode]) -> Case:
    """Let the driver's own directive decide the immediate action, except against the final one."""
    mine = [d for d in told if (d.machine, d.subject) == (case.machine, case.subject)]
    if not mine or case.rule.kind == "terminal":
        return case
    said = [s for d in mine for s in d.said]
    gravest = max(said, key=lambda s: xid.SEVERITY.index(s.rule.action))
    component = case.rule.component
    if case.rule.kind in ("app", "watch") and component in ("app", "unknown"):
        component = gravest.rule.component
    case.rule = replace(case.rule, action=gravest.rule.action, component=component, kind="hardware")
    case.tied += mine
    return case


def _with_directives(found: list[Case], told: Sequence[Episode]) -> list[Case]:
    """Give each directive to the cases of its GPU nearby; one without any is a case of its own."""
    alone = []
    for directive in told:
        place = (directive.machine, directive.subject)
        owners = [
            case for case in found
            if not case.outside and (case.machine, case.subject) == place
            and any(near(e, directive, 60.0) or e.clock != directive.clock for e in case.root)
        ]  # fmt: skip
        suffering = any(place in case.victims() for case in found)
        for case in owners:
            _heed(case, [directive])
        if not owners and not suffering:
            rule = replace(directive.lead.rule, kind="hardware")
            alone.append(Case(directive.machine, directive.subject, rule, [directive]))
        elif not owners:
            for case in found:
                if place in case.victims():
                    case.tied.append(directive)
    return found + alone


def _one_each(found: Iterable[Case]) -> list[Case]:
    """Join the cases of one root: what comes again is one diagnosis, told more often."""
    joined: dict[tuple[str, str, str], Case] = {}
    for case in found:
        key = (case.machine, case.subject, case.rule.component)
        if key not in joined:
            joined[key] = case
            continue
        first = joined[key]
        first.root += case.root
        first.tied += case.tied
        graver = xid.SEVERITY.index(case.rule.action) > xid.SEVERITY.index(first.rule.action)
        first.rule = case.rule if graver else first.rule
    return list(joined.values())


def _subject(case: Case) -> str:
    """Return the root's subject: with its link, where all that was said is about one link."""
    links = {s.event.detail.get("link") for e in case.root for s in e.said}
    link = links.pop() if len(links) == 1 else None
    if case.rule.component in ("nvlink", "nvswitch") and isinstance(link, int):
        return f"{case.subject}/link{link:02d}"
    return case.subject


def _confidence(case: Case) -> float:
    """How sure the component is: by the kind of its evidence, and by how much of it there is."""
    base = {"terminal": 0.9, "hardware": 0.7, "driver": 0.6, "app": 0.7}.get(case.rule.kind, 0.4)
    codes = {s.event.code for e in (*case.root, *case.tied) for s in e.said}
    base = base - 0.2 if case.rule.component == "unknown" else base
    return min(0.97, base + 0.04 * (len(codes) - 1))


def _diagnose(case: Case, number: int, known: Machines) -> list[Diagnosis]:
    subject = known.spelled(case.machine, _subject(case))
    lasting = persistence(case)
    root = Diagnosis(
        subject, case.rule.component, lasting, case.rule.action, number, because(case),
        confidence=_confidence(case), serial=known.serial(case.machine, case.subject),
    )  # fmt: skip
    found = [root]
    for machine, place in sorted(case.victims()):
        mine = [e for e in case.tied if (e.machine, e.subject) == (machine, place)]
        component = min(mine, key=Episode.order).lead.rule.component
        told = because(Case(machine, place, case.rule, mine))
        found.append(Diagnosis(
            known.spelled(machine, place), component, lasting, "none", number,
            (f"follows from {subject}", *told), "victim", _confidence(case),
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
    for reading in readings:
        if reading.kind == UNRECOGNISED:
            told += [Verdict.UNKNOWN] if reading.named else []
        else:
            told.append(Verdict.UNKNOWN if _unjudged(reading) else Verdict.PASS)
    return roll_up(told)


def _unjudged(reading: Reading) -> bool:
    """Whether nothing can be said for the machine from this input, were there no sign in it."""
    if reading.cut or not reading.worked or not reading.records:
        return True
    if reading.kind not in ("nvidia-smi-q", "nvidia-smi-xml"):
        return False
    seen = {m.metric for m in reading.measurements} | {m.metric for m in reading.missing}
    return not seen & signs.judged_metrics()


def _crowded(reading: Reading, left_out: int) -> Reading:
    """Say in an input's problems that not all of its incidents could be judged."""
    if len(reading.events) <= MOST_EPISODES:
        return reading
    problem = f"{left_out} of the incidents are not judged: they name too many places"
    return replace(reading, problems=(*reading.problems, problem))


def judge_inputs(readings: Sequence[Reading]) -> OfflineJudgement:
    """Judge what was read. The order of `readings` changes nothing but the order of `inputs`."""
    known = machines(readings)
    said = sorted(_said(readings, known), key=lambda s: (*s.order(), s.machine, s.subject))
    sifted, left_out = coarse(kernel.sift(episodes(said)), MOST_EPISODES)
    found, outside = _shared(sifted, _gpus(readings, known))
    found, told = _directives(found)
    settled = own_fault(_with_directives(cases(found), told)) + outside
    settled = [case for case in _one_each(settled) if case.rule.action != "none"]
    settled.sort(key=lambda c: (c.rule.kind not in HARD, c.machine, c.subject, c.rule.component))
    groups = [_diagnose(case, number, known) for number, case in enumerate(settled, start=1)]
    diagnoses = tuple(d for group in groups for d in group)
    verdict = _verdict(readings, [group[0] for group in groups])
    if left_out:
        verdict = roll_up((verdict, Verdict.UNKNOWN))
        readings = [_crowded(reading, left_out) for reading in readings]
    return OfflineJudgement(verdict, diagnoses, tuple(readings))
