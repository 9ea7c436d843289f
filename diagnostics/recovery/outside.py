"""Did something else hit the run as well? Signals that neither the drill nor an order of it sent.

In: facts that say who sent the signal of which a process died, or by which it was stopped (`by`).
Out: the claim `undisturbed`, and which claims a foreign hit excuses: what did not happen, or
happened too often, may be its doing. Wrong states never are. A process that crashed is no
stranger's victim, and a record that does not say who sent its signals says nothing here.
"""

from collections.abc import Iterable, Sequence

from rackproof.diagnostics.recovery.claims import Claim, holds, left_out, some, unknown
from rackproof.diagnostics.recovery.record import Fact
from rackproof.diagnostics.verdict import Verdict

CRASHES = frozenset((4, 5, 6, 7, 8, 11, 31))
"""Signals that a process brings on itself, signal(7): ILL, TRAP, ABRT, BUS, FPE, SEGV, SYS."""
EXCUSED = frozenset(
    (
        "detected", "isolated", "evicted", "timeline", "kinds", "survived", "reached", "restarts",
        "lost-steps", "budget detect", "budget resume",
    )
)  # fmt: skip
"""Claims of which a foreign hit may be the reason, whatever they say."""
CURE = "hold the drill again, where nothing else ends or stops its processes"


def foreign(fact: Fact) -> bool:
    """Say whether somebody else ended, or stopped, the process of a fact."""
    if fact.fields.get("by") != "":  # none: the record does not say
        return False
    return fact.what == "stopped" or (fact.what == "died" and _signal(fact) not in CRASHES | {0})


def _signal(fact: Fact) -> int:
    """Return the signal of which a process died, 0 where it ended by itself."""
    code = fact.fields.get("code")
    return -code if isinstance(code, int) and not isinstance(code, bool) and code < 0 else 0


def hits(facts: Iterable[Fact]) -> list[str]:
    """Return in words what somebody else did to the processes of these facts."""
    found = []
    for fact in facts:
        if foreign(fact):
            how = f"died of signal {_signal(fact)}, which the drill did not send"
            how = "was stopped, and not by the drill" if fact.what == "stopped" else how
            found.append(f"{fact.fields.get('member')} {how}")
    return list(dict.fromkeys(found))


def spoilt(facts: Iterable[Fact]) -> str:
    """Return which process of a fault-free run was ended or stopped, an empty text where none."""
    told = [fact for fact in facts if "by" in fact.fields]
    crashed = [
        f"{fact.fields.get('member')} died of signal {_signal(fact)}"
        for fact in told
        if fact.what == "died" and fact.fields["by"] == "" and _signal(fact)
    ]
    return next(iter([*hits(told), *crashed]), "")


def undisturbed(facts: Sequence[Fact]) -> Claim:
    """Was the run hit by nothing but the drill?"""
    if not any(fact.what == "died" and "by" in fact.fields for fact in facts):
        return left_out("undisturbed", "nobody noted who ended its processes")
    found = hits(facts)
    if found:
        said = f"{some(found)}: something else hit the run as well"
        return unknown("undisturbed", said, CURE)
    return holds("undisturbed", "no process died, or was stopped, of a signal of somebody else's")


def excused(claims: Iterable[Claim], found: Sequence[str]) -> list[Claim]:
    """Return the claims of a run that something else hit as well: `found` says what, in words."""
    return [
        unknown(claim.id, f"{claim.message}, but {found[0]}", CURE, claim.level)
        if found and claim.verdict is Verdict.FAIL and claim.id in EXCUSED
        else claim
        for claim in claims
    ]
