"""What the sequential test makes of a case in files, where nothing can be run.

In: a case and its part's past. Out: persistence, action, confidence and reasons. Files show a fault
again after a boot, or hours later, or on a part that had cases before; beyond that a single fault
is undetermined, however its code is known to go. The action is the rule's: it is made graver only
where a boot has not helped, or where the part keeps coming back.
"""

import functools
from dataclasses import dataclass

from rackproof.diagnostics.cases import Case
from rackproof.diagnostics.repeats import persistence
from rackproof.diagnostics.retest.belief import Belief, begin
from rackproof.diagnostics.retest.decide import decide
from rackproof.diagnostics.retest.model import Cause, Decision, Signs
from rackproof.diagnostics.retest.signs import boots, of_case

SURE = 0.8
_TRIES = frozenset(("restart-app", "reset-gpu", "reboot-node"))
# which causes bear a component out; what passes may have struck any part
_BEARS = {
    Cause.APP: ("app", "data"),
    Cause.DRIVER: ("driver",),
    Cause.TRANSIENT: (
        "hbm sram sm nvlink nvswitch pcie power thermal nic fabric host storage".split()
    ),
    Cause.PERSISTENT: "hbm sram sm nvlink pcie power thermal data".split(),
    Cause.INTERMITTENT: "hbm sram sm nvlink pcie power thermal data".split(),
    Cause.LINK: ("nvlink", "nvswitch", "fabric", "pcie"),
    Cause.SWITCH: ("nvswitch", "fabric", "nvlink"),
    Cause.HOST: ("host", "power", "thermal", "pcie", "storage"),
    Cause.NIC: ("nic",),
}  # fmt: skip
_UNNAMED = 0.4
"""Confidence in the component ``unknown``: it names nothing that could be wrong."""


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What is said of a root beside where it is: words of the contract."""

    persistence: str
    action: str
    confidence: float
    because: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def _decided(signs: Signs) -> tuple[Belief, Decision]:
    belief = begin(signs)
    return belief, decide(belief)


def _confidence(belief: Belief) -> float:
    """Return the probability of the causes that bear the component out."""
    component = belief.signs.component
    if component == "unknown":
        return _UNNAMED
    return sum(chance for cause, chance in belief.posterior.items() if component in _BEARS[cause])


def _graver(case: Case, lasting: str, decision: Decision) -> str:
    """Return the rule's action, or a graver one where what it asks for was done and did not help.

    What the driver asks for itself stays.
    """
    rule = case.rule
    told = any(episode.family == "directive" for episode in (*case.root, *case.tied))
    if rule.action not in _TRIES or rule.component == "app" or told:
        return rule.action
    booted = len(boots(case)) > 1
    if lasting in ("persistent", "intermittent") and (
        booted or decision.choice in ("diagnose", "swap")
    ):
        return "field-diag"
    return rule.action


def conclude(case: Case, past: tuple[int, float] | None = None) -> Conclusion:
    """Return what is concluded of a case in files, before which its part had (cases, in hours)."""
    earlier, hours = past or (None, 0.0)
    belief, decision = _decided(of_case(case, earlier, hours))
    lasting = persistence(case)
    if lasting == "undetermined" and earlier and decision.sure >= SURE:
        lasting = decision.persistence
    action = _graver(case, lasting, decision)
    return Conclusion(lasting, action, _confidence(belief), decision.because)
