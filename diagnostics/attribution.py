"""Whether a judgement is right about what was planted: the tester, tested. Pure.

In: the faults that were planted, with how often each fired, and the judgement of the run, which
knew nothing of them. Out: for each fault whether it was detected, attributed to its subject, and
named with the right component and persistence; and who was accused though nothing was planted
there. What is right stands in faults.toml. A run is right when all its faults are, and nobody else
is accused.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.diagnostics.checks import Check
from rackproof.diagnostics.diagnosis import PERSISTENCES, Diagnosis
from rackproof.diagnostics.evidence import gpu_of
from rackproof.diagnostics.judge import Judgement
from rackproof.diagnostics.verdict import Verdict, roll_up
from rackproof.harness.faults import Fault, Kind, kinds
from rackproof.harness.model import WIDE, item_of, sort_of

TWICE = 2
"""Strikes from which on an intermittent fault can be told from a transient one."""
SHARED = ("switch", "cooling", "power", "shelf")
"""Sorts of subject that the GPUs of a whole rack hang on."""


@dataclass(frozen=True, slots=True)
class Planted:
    """One fault as the account has it.

    `struck` and `passed` count runs of the burns that it ever fired in: those in which it did and
    those in which it did not. They matter for a fault with a rate, and may be left out for others.
    """

    fault: Fault
    fired: int
    struck: int = 0
    passed: int = 0

    @property
    def kind(self) -> Kind:
        """Its row of faults.toml."""
        return kinds()[self.fault.kind]

    @property
    def rate(self) -> float:
        """The chance that one run of one burn is affected."""
        return float(self.fault.parameters.get("rate", 1.0))

    @property
    def settled(self) -> bool:
        """Whether it struck and passed often enough to be told from one that does only either."""
        return self.rate >= 1.0 or (self.struck >= TWICE and self.passed > 0)

    @property
    def persistences(self) -> frozenset[str]:
        """The words that are right for it."""
        lasts = self.fault.parameters.get("lasts")
        if self.rate < 1.0:
            early = () if self.settled else ("transient", "undetermined")
            return frozenset(("intermittent", *early))
        if self.kind.persistence == "any" or (lasts is not None and lasts != "once"):
            return frozenset(PERSISTENCES)
        if lasts == "once":
            return frozenset(("transient",))
        return frozenset(("persistent",))


@dataclass(frozen=True, slots=True)
class Finding:
    """What a judgement made of one planted fault.

    `by` names the burns that its diagnosis rests on; `wrong` says in words what is not as the table
    of faults has it; `verdict` is UNKNOWN where the fault did not fire, or what it acts on could
    not be judged.
    """

    planted: Planted
    verdict: Verdict
    detected: bool
    attributed: bool
    component_right: bool
    persistence_right: bool
    by: tuple[str, ...] = ()
    wrong: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return it with plain values; the flags as 0 and 1, as the matrix counts them."""
        return {
            "fault": self.planted.fault.kind,
            "subject": self.planted.fault.subject,
            "verdict": str(self.verdict),
            "detected": int(self.detected),
            "attributed": int(self.attributed),
            "component_right": int(self.component_right),
            "persistence_right": int(self.persistence_right),
            "by": list(self.by),
            "wrong": list(self.wrong),
        }


@dataclass(frozen=True, slots=True)
class Attribution:
    """What a judgement made of all that was planted, and the subjects accused though innocent."""

    findings: Sequence[Finding]
    innocents: Sequence[str]

    @property
    def verdict(self) -> Verdict:
        """PASS when every fault was found for what it is and nobody else was accused."""
        blamed = [Verdict.FAIL] if self.innocents else []
        return roll_up([*(finding.verdict for finding in self.findings), *blamed])


def accused(judgement: Judgement) -> list[str]:
    """Return who is accused: the roots, and whose check is FAIL without being a victim.

    Nor is a link accused whose GPU is a victim. A waived check accuses nobody.
    """
    roots = {d.subject for d in judgement.diagnoses if d.role == "root"}
    victims = {d.subject for d in judgement.diagnoses if d.role == "victim"}
    failed = {c.subject for c in judgement.checks if _failed(c)}
    innocent = {s for s in failed if s in victims or gpu_of(s) in victims}
    return sorted(roots | (failed - innocent))


def attribute(planted: Sequence[Planted], judgement: Judgement) -> Attribution:
    """Return what `judgement` made of what was planted in its run."""
    guilty = {entry.fault.subject for entry in planted if entry.kind.verdict == Verdict.FAIL.value}
    findings = [
        _silent(entry, judgement, guilty)
        if entry.kind.verdict == Verdict.UNKNOWN.value
        else _loud(entry, planted, judgement)
        for entry in planted
    ]
    return Attribution(findings, [s for s in accused(judgement) if s not in guilty])


def in_reach(fault: str, subject: str) -> bool:
    """Say whether a fault on the subject `fault` can show on `subject`.

    On itself, on its parts and on what it is a part of; a host's on all of its tray; what a rack
    shares on all of the rack; any on the NVLink domain as a whole.
    """
    if WIDE in (fault, subject) or fault == subject:
        return True
    if sort_of(fault) in SHARED:
        return fault.partition("/")[0] == subject.partition("/")[0]
    if sort_of(fault) == "host":
        return subject.startswith(f"{fault.removesuffix('/host')}/")
    if sort_of(fault) == "nic":
        return subject == item_of(fault)
    return subject.startswith(f"{fault}/") or fault.startswith(f"{subject}/")


def _failed(check: Check) -> bool:
    return check.verdict is Verdict.FAIL and check.waiver is None


def _subjects_of(checks: Iterable[Check]) -> list[str]:
    return list(dict.fromkeys(check.subject for check in checks))


def _loud(entry: Planted, planted: Sequence[Planted], judgement: Judgement) -> Finding:
    """Judge what was made of a fault that ought to be a FAIL."""
    subject = entry.fault.subject
    roots = [d for d in judgement.diagnoses if d.role == "root" and d.subject == subject]
    own = [d for d in roots if d.component in entry.kind.component]
    near = [c for c in judgement.checks if in_reach(subject, c.subject)]
    failing = [check for check in near if _failed(check)]
    detected = bool(entry.fired and failing and judgement.verdict is Verdict.FAIL)
    others = [p.kind.component for p in planted if p.fault.subject == subject]
    odd = [d.component for d in roots if not any(d.component in right for right in others)]
    lasting = [d.persistence for d in own]
    component_right = detected and bool(own) and not odd
    persistence_right = component_right and set(lasting) <= entry.persistences
    actions = [d.action for d in own if entry.kind.action and d.action not in entry.kind.action]
    wrong = []
    if detected and not roots:
        seen = ", ".join(_named(d) for d in judgement.diagnoses if d.role == "root")
        wrong.append(f"is no root; roots: {seen or 'none'}")
    elif detected and not component_right:
        wrong.append(f"component {', '.join(odd or [d.component for d in roots])}")
    elif detected:
        wrong += [] if persistence_right else [f"persistence {', '.join(lasting)}"]
        wrong += [f"action {action}" for action in actions]
    verdict = Verdict.FAIL if wrong else Verdict.PASS
    if not detected:
        verdict, reason = _unseen(entry, near)
        wrong.append(reason)
    return Finding(
        entry,
        verdict,
        detected,
        detected and bool(roots),
        component_right,
        persistence_right,
        by=_burns(roots, failing, judgement) if detected else (),
        wrong=tuple(wrong),
    )


def _unseen(entry: Planted, near: Sequence[Check]) -> tuple[Verdict, str]:
    """Say why a fault was not detected: a miss, unless there was nothing to see or to judge."""
    if not entry.fired:
        return Verdict.UNKNOWN, "the fault did not fire"
    unjudged = [check for check in near if check.verdict is Verdict.UNKNOWN]
    if unjudged or not near:
        said = f"; {unjudged[0].id}: {unjudged[0].message}" if unjudged else ""
        return Verdict.UNKNOWN, f"{len(unjudged)} checks in its reach could not be judged{said}"
    return Verdict.FAIL, "no burn saw it"


def _silent(entry: Planted, judgement: Judgement, guilty: set[str]) -> Finding:
    """Judge what was made of a fault that takes a reading away: UNKNOWN there, nobody accused."""
    subject = entry.fault.subject
    unknown = [c for c in judgement.checks if c.verdict is Verdict.UNKNOWN]
    own = [c for c in unknown if in_reach(subject, c.subject)]
    blamed = [s for s in accused(judgement) if s not in guilty]
    detected = bool(entry.fired and own and judgement.verdict is not Verdict.PASS)
    alone = guilty or len(own) == len(unknown)
    clean = detected and not blamed and bool(alone)
    wrong = [] if detected else ["no reading was missed"]
    if detected and not alone:
        elsewhere = [s for s in _subjects_of(unknown) if not in_reach(subject, s)]
        wrong.append(f"UNKNOWN also on {', '.join(elsewhere[:3])}")
    if detected and blamed:
        wrong.append(f"accused {', '.join(blamed[:3])}")
    verdict = Verdict.FAIL if wrong else Verdict.PASS
    if not entry.fired:
        verdict, wrong = Verdict.UNKNOWN, ["the fault did not fire"]
    by = tuple(dict.fromkeys(check.id for check in own)) if detected else ()
    return Finding(entry, verdict, detected, clean, clean, clean, by=by, wrong=tuple(wrong))


def _named(diagnosis: Diagnosis) -> str:
    return f"{diagnosis.subject} ({diagnosis.component})"


def _burns(
    roots: Sequence[Diagnosis], failing: Sequence[Check], judgement: Judgement
) -> tuple[str, ...]:
    """Return the burns that the diagnosis rests on; where there is none, those that failed."""
    cases = {root.case for root in roots}
    lines = [line for d in judgement.diagnoses if d.case in cases for line in d.because]
    named = {line.partition(":")[0] for line in lines}
    ran = dict.fromkeys(check.id for check in judgement.checks)
    found = tuple(burn for burn in ran if burn in named)
    return found or tuple(dict.fromkeys(check.id for check in failing))
