"""Which criterion of the power-step burn a check stands for: PS1 to PS11.

In: a burn and a metric. Out: the criterion's name, with which the check's message begins; an empty
text for a check that stands for none. docs/howto/read-a-power-step.md says what each one asks.
"""

from collections.abc import Mapping

_STEP: Mapping[str, str] = {
    "power.steady": "PS1",
    "throttled.thermal.share": "PS2",
    "throttled.brake.share": "PS2",
    "power.step.capped": "PS3",
    "power.step.peak": "PS4",
    "power.step.mean": "PS4",
    "power.step.phase": "PS6",
    "power.step.edges": "PS6",
    "power.step.seen.instant": "PS6",
    "power.step.seen.average": "PS6",
    "power.step.ramp": "PS7",
    "power.step.mains.ramp": "PS7",
    "power.step.line": "PS8",
    "power.step.mains.line": "PS8",
    "power.step.mains.left": "PS8",
    "xid.count": "PS9",
    "ecc.corrected.delta": "PS9",
    "ecc.uncorrected.delta": "PS9",
    "thermal.margin": "PS10",
    "power.store.charge": "PS11",
}
CRITERIA: Mapping[tuple[str, str], str] = {
    **{("power.step", metric): name for metric, name in _STEP.items()},
    ("power.steady", "power.agreement"): "PS5",
    ("power.smoothing", "power.smoothing.excess"): "PS7",
}
"""(burn, metric) -> criterion."""


def criterion(burn: str, metric: str) -> str:
    """Return the criterion that a check of a burn stands for, or an empty text."""
    return CRITERIA.get((burn, metric), "")
