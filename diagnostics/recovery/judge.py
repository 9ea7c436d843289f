"""judge(record) -> Recovery: the one place where a drill's verdict comes from. Pure.

Called when a drill ends, and again for whoever judges its record later: same record, same Recovery.
The verdict is the worst claim. What was not looked at is UNKNOWN and never PASS; claims above the
level that is asked for are neutral where they could not be judged, and FAIL where they are wrong.
What was planted is passed on, and weighs nothing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rackproof.diagnostics.power import judge as power
from rackproof.diagnostics.power import record as powered
from rackproof.diagnostics.power.least import LEAST, lacks
from rackproof.diagnostics.recovery import expectations, honesty, outside, samples, storage
from rackproof.diagnostics.recovery import proof as proofs
from rackproof.diagnostics.recovery.claims import Claim, soften, unknown
from rackproof.diagnostics.recovery.figures import Figures, figures
from rackproof.diagnostics.recovery.ledger import Ledger
from rackproof.diagnostics.recovery.record import DrillRecord
from rackproof.diagnostics.recovery.timeline import Moment, flat
from rackproof.diagnostics.recovery.view import View, no_space, view
from rackproof.diagnostics.verdict import Verdict, roll_up

SCHEMA = "rackproof.drill/1"
WHATEVER = frozenset(("digests", "fault-free", "replay", "processes", "no-process-left"))
"""Claims that no full disk excuses: wrong states, and processes that are not as they should be."""
AGAIN = "hold it again, or read the record that was written"
NOT_WHOLE = "the record is not whole"
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Steps:
    """Steps: planned; committed and not undone; lost (undone); repeated; discarded attempts.

    `from_nothing`: it went back to before its first step.
    """

    planned: int
    committed: int
    lost: int
    repeated: int
    discarded: int
    from_nothing: bool = False

    def as_json(self) -> dict[str, int | bool]:
        """Return the contract's object."""
        return {
            "planned": self.planned, "committed": self.committed, "lost": self.lost,
            "repeated": self.repeated, "discarded": self.discarded,
            "from_nothing": self.from_nothing,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Recovery:
    """What is said of a drill. `proof` is the highest level shown, `none` where not even L0 was.

    `required` is the level that had to be shown; `ledger` is None where no time passed.
    """

    drill: str
    verdict: Verdict
    proof: str
    required: str
    claims: tuple[Claim, ...]
    levels: tuple[proofs.Level, ...]
    timeline: tuple[Moment, ...]
    ledger: Ledger | None
    figures: Figures
    steps: Steps
    restarts: int
    fault_fired: bool
    began: float = 0.0
    planted: Sequence[Mapping[str, Any]] = field(default=())

    def as_json(self) -> dict[str, Any]:
        """Return the contract's JSON of `drill`, with more keys. Same record, same bytes."""
        book = self.ledger
        return {
            "schema": SCHEMA,
            "drill": self.drill,
            "verdict": str(self.verdict),
            "proof": self.proof,
            "required": self.required,
            "fault_fired": self.fault_fired,
            "restarts": self.restarts,
            "steps": self.steps.as_json(),
            "timeline": [moment.as_json(self.began) for moment in self.timeline],
            "ledger": {} if book is None else book.as_json(),
            "wall": None if book is None else book.times(),
            **self.figures.as_json(),
            "proofs": [level.as_json() for level in self.levels],
            "claims": [claim.as_json() for claim in self.claims],
            "planted": [dict(each) for each in self.planted],
        }


def _claims(found: View) -> list[Claim]:
    clean = proofs.clean_runs(found)
    equal = proofs.determinism(found, clean)
    free = proofs.fault_free(found, equal)
    first = (
        honesty.events, expectations.fault_fired, expectations.detected, expectations.isolated,
        expectations.evicted, expectations.timeline, expectations.kinds, expectations.diagnosis,
        expectations.survived, expectations.reached, expectations.restarts,
        expectations.lost_steps, expectations.budget_detect, expectations.budget_resume,
        honesty.steps, honesty.digests, honesty.processes,
        expectations.no_process_left, samples.samples, samples.quarantine,
        storage.checkpoints, storage.restores, storage.passed_over, storage.final_state,
    )  # fmt: skip
    alone = outside.undisturbed(found.facts("died", "stopped"))
    rest = [*(make(found) for make in first), clean, equal, free, proofs.replay(found, free)]
    return [_meant(found, claim) for claim in outside.excused([alone, *rest], found.hits)]


def _meant(found: View, claim: Claim) -> Claim:
    """Return a claim whose cure is one for who reads it: of our own training, nobody's to change.

    What it did not tell or store was not written, or is in the record no more.
    """
    if found.head.layer == "C":
        return claim
    message = claim.message
    for cure in (proofs.EMIT, storage.EMIT, storage.LOOK, samples.CURE):
        message = message.replace(cure, AGAIN)
    return replace(claim, message=message)


def _excused(found: View, claims: list[Claim]) -> list[Claim]:
    """Return the claims of a run whose disk was full, or whose record is not whole.

    What is missing then is not its own fault.
    """
    full, cure, kept = no_space(found.record), "make room, and hold it again", WHATEVER
    if not found.record.whole:
        full, cure, kept = [NOT_WHOLE], "read the one that was written", NOTHING
    return [
        unknown(claim.id, f"{full[0]}: {claim.message}", cure, claim.level)
        if full and claim.verdict is Verdict.FAIL and claim.id not in kept
        else claim
        for claim in claims
    ]


def judge(record: DrillRecord) -> Recovery:
    """Return what is to be said of a drill. Raises nothing for a record that could be read."""
    found = view(record)
    claims, needed = _excused(found, _claims(found)), proofs.required(found)
    levels = proofs.levels(found, claims)
    zone = _power(found, claims)
    more = () if zone is None else zone.claims
    counted = soften([*claims, *more, *(level.claim for level in levels)], needed)
    book = found.book() if zone is None else zone.ledger
    path = found.path
    return Recovery(
        drill=record.head.drill,
        verdict=roll_up(claim.verdict for claim in counted),
        proof=proofs.highest(levels),
        required=needed,
        claims=tuple(counted),
        levels=tuple(levels),
        timeline=tuple(flat(found.windows)) if zone is None else zone.timeline,
        ledger=book,
        figures=figures(record.head, found.faulted.course, found.windows, path, book),
        steps=Steps(
            record.head.steps, len({*path.steps, *found.untold}), path.lost, path.repeated,
            sum(1 for _ in found.faulted.of("discarded")), expectations.from_nothing(found),
        ),
        restarts=found.restarts,
        fault_fired=found.fired,
        began=found.faulted.course.began if zone is None else 0.0,
        planted=tuple(record.planted),
    )  # fmt: skip


def _power(found: View, claims: list[Claim]) -> power.Judged | None:
    """Return what is said of the power zone, None where the drill has none."""
    record = found.record
    due = record.head.expected.power
    if not due and not powered.present(record.facts) and record.head.drill not in LEAST:
        return None
    facts = powered.read(record.facts)
    said = power.judge(facts, due, claims, record.head.steps, _cut(found))
    missing = lacks(record.head.drill, due)
    if not missing:
        return said
    less = f"its header does not ask for {', '.join(missing)}, and {record.head.drill} does"
    header = unknown("power-header", less, "read the one that was written")
    return replace(said, claims=(header, *said.claims))


def _cut(found: View) -> power.Cut:
    """Return why a record does not hold all that happened, if so."""
    if not found.record.whole:
        return power.Cut(NOT_WHOLE, lines=True)
    if found.gaps or found.hits:
        return power.Cut([*found.gaps, *found.hits][0], lines=True)
    if not found.faulted.course.finished:
        return power.Cut("the training run did not come to its end", lines=False)
    return power.WHOLE
