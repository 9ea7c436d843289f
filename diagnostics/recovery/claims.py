"""A claim: one thing that a drill has to show, its verdict, and the evidence in plain words.

In: what another module found. Out: claims, in the one verdict algebra. What could not be looked at
is UNKNOWN and says what would cure it; what does not apply is SKIP.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rackproof.diagnostics.recovery.record import PROOFS
from rackproof.diagnostics.verdict import Verdict

SHOWN = 3  # pieces of evidence of one sort that a message quotes


@dataclass(frozen=True, slots=True)
class Claim:
    """One line of the verdict. `level` is the proof level that rests on it; none: always asked."""

    id: str
    verdict: Verdict
    message: str
    level: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the contract's object."""
        return {"id": self.id, "verdict": str(self.verdict), "message": self.message}


def holds(name: str, evidence: str, level: str = "") -> Claim:
    """Looked at, and right."""
    return Claim(name, Verdict.PASS, evidence, level)


def broken(name: str, evidence: str, level: str = "") -> Claim:
    """Looked at, and wrong."""
    return Claim(name, Verdict.FAIL, evidence, level)


def unknown(name: str, why: str, cure: str, level: str = "") -> Claim:
    """Could not be looked at: why, and what would cure it."""
    return Claim(name, Verdict.UNKNOWN, f"{why}; {cure}", level)


def left_out(name: str, why: str, level: str = "") -> Claim:
    """Does not apply to this drill."""
    return Claim(name, Verdict.SKIP, why, level)


def some(words: Sequence[str]) -> str:
    """Return the first few of them, equal ones once and counted, and how many more there are."""
    counts = Counter(words)
    said = [word if n == 1 else f"{word} ({n} alike)" for word, n in counts.items()]
    more = len(said) - SHOWN
    return "; ".join(said[:SHOWN]) + (f"; and {more} more" if more > 0 else "")


def soften(claims: Iterable[Claim], required: str) -> list[Claim]:
    """Return the claims as they count when `required` is the level that must be shown.

    What only a higher level rests on, and could not be judged, is neutral. What was looked at and
    found wrong stays FAIL, whatever was asked.
    """
    found = []
    for claim in claims:
        above = claim.level and PROOFS.index(claim.level) > PROOFS.index(required)
        if above and claim.verdict is Verdict.UNKNOWN:
            said = f"not asked for (required is {required}): {claim.message}"
            found.append(replace(claim, verdict=Verdict.SKIP, message=said))
        else:
            found.append(claim)
    return found
