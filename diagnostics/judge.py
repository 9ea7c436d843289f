"""judge(record) -> Judgement: the one place where a run's verdict comes from. Pure.

Called by the controller when a run ends, and by `rackproof diagnose RUN` later: same record, same
judgement. It never reads what an earlier judgement concluded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackproof.diagnostics.checks import Check, all_checks, serials_of
from rackproof.diagnostics.classify import diagnose
from rackproof.diagnostics.diagnosis import Diagnosis
from rackproof.diagnostics.evidence import Record, gpu_of
from rackproof.diagnostics.limits import from_record
from rackproof.diagnostics.retest.outcomes import Retests
from rackproof.diagnostics.unheld import held
from rackproof.diagnostics.verdict import Verdict, roll_up
from rackproof.harness.model import Event


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict of a run, with all its checks and diagnoses.

    `left_out` maps the burns of `plan`, in words, that were not run to the reason; `burns` is how
    many were run. They weigh nothing in the verdict, and stand beside it wherever it is said.
    """

    verdict: Verdict
    checks: Sequence[Check]
    diagnoses: Sequence[Diagnosis]
    subjects: dict[str, Verdict]
    planned: int
    judged: int
    problems: Sequence[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    burns: int = 0
    plan: str = "the plan"

    @property
    def asked(self) -> frozenset[str]:
        """The GPUs of which something was to be looked at; their links count as theirs."""
        looked = {gpu_of(c.subject) for c in self.checks if c.verdict is not Verdict.SKIP}
        return frozenset(looked & self.subjects.keys())

    @property
    def counts(self) -> dict[str, int]:
        """How many GPUs are PASS, FAIL, UNKNOWN."""
        words = list(self.subjects.values())
        return {v: words.count(Verdict(v)) for v in ("PASS", "FAIL", "UNKNOWN")}

    def as_json(self, *, everything: bool = False) -> dict[str, Any]:
        """Return the judged part of the contract's JSON."""
        shown = [c for c in self.checks if everything or c.verdict is not Verdict.PASS]
        return {
            "verdict": str(self.verdict),
            "coverage": {"planned": self.planned, "judged": self.judged},
            "subjects": self.counts,
            "checks": [c.as_json() for c in shown if everything or c.verdict is not Verdict.SKIP],
            "diagnoses": [d.as_json() for d in self.diagnoses],
        }


def judge(record: Record) -> Judgement:
    """Return the judgement of a record.

    A record without its end is UNKNOWN at best. A waived FAIL stays FAIL in its check and does not
    count in the roll-up. Retests weigh nothing in the verdict. Raises SpecError when the record's
    limits make no sense.
    """
    plan = record.planned()
    limits = from_record(record.head.limits)
    checks = held(record.head, limits, all_checks(plan, limits))
    counted = [c for c in checks if c.waiver is None]
    verdicts = [c.verdict for c in counted]
    if not record.ended or record.problems:
        verdicts.append(Verdict.UNKNOWN)
    events = [e for e in plan.seen if isinstance(e, Event)]
    planned = [c for c in checks if c.verdict is not Verdict.SKIP]
    return Judgement(
        verdict=roll_up(verdicts),
        checks=checks,
        diagnoses=diagnose(
            record.head, checks, events, serials_of(plan), Retests.of(record, limits)
        ),
        subjects=_by_gpu(record, counted),
        planned=len(planned),
        judged=sum(c.verdict is not Verdict.UNKNOWN for c in planned),
        problems=[*record.problems, *([] if record.ended else ["the run has no end"])],
        left_out=record.head.left_out,
        burns=len(record.head.plan),
        plan=record.head.verb if record.head.verb == "probe" else f"level {record.head.level}",
    )


def _by_gpu(record: Record, checks: Sequence[Check]) -> dict[str, Verdict]:
    own: dict[str, list[Verdict]] = {gpu: [] for gpu in record.head.gpus}
    for check in checks:
        gpu = gpu_of(check.subject)
        if gpu in own:
            own[gpu].append(check.verdict)
    return {gpu: roll_up(verdicts) for gpu, verdicts in own.items()}
