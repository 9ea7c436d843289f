"""Limits, waivers, and which of them apply to one metric of one subject."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from fnmatch import fnmatchcase
from typing import Any

from rackproof.diagnostics.evidence import gpu_of
from rackproof.harness.metrics import metrics
from rackproof.harness.model import Value

LAYERS = ("user", "achieved", "median", "platform", "spec")  # strongest first


def _names(pattern: str, subject: str) -> bool:
    if pattern == "*" or fnmatchcase(subject, pattern):
        return True
    gpu = gpu_of(subject)
    return gpu != subject and fnmatchcase(gpu, pattern)


@dataclass(frozen=True, slots=True)
class Limit:
    """Bounds of one metric, in the metric's own unit. `layer` says who set it (LAYERS).

    `subject` is a glob; `sku` narrows to one SKU; exactly one of low, high, equal or a pair of
    low and high is set.
    """

    metric: str
    source: str
    layer: str
    low: float | None = None
    high: float | None = None
    equal: Value | None = None
    subject: str = "*"
    sku: str | None = None

    def allows(self, value: Value) -> bool:
        """Say whether `value` (in the metric's unit) is within. NaN is not."""
        if self.equal is not None:
            return value == self.equal
        if isinstance(value, str) or (isinstance(value, float) and math.isnan(value)):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def on(self, subject: str) -> bool:
        """Say whether it is a limit of `subject`: what names a GPU holds for its links too."""
        return _names(self.subject, subject)

    @property
    def narrow(self) -> int:
        """How much of subject and SKU it names."""
        return (self.subject != "*") + (self.sku is not None)

    def as_json(self) -> dict[str, Any]:
        """Return the contract's JSON: the bounds that are set, the unit and the source."""
        bounds = {"low": self.low, "high": self.high, "equal": self.equal}
        kept = {key: value for key, value in bounds.items() if value is not None}
        return {**kept, "unit": metrics()[self.metric].unit, "source": self.source}


@dataclass(frozen=True, slots=True)
class Waiver:
    """A FAIL that its owner accepts until a date: it stays in the record and does not count."""

    check: str
    until: date
    owner: str
    reason: str
    subject: str | None = None
    serial: str | None = None

    def covers(self, check: str, subject: str, serial: str | None, today: date) -> bool:
        """Say whether it holds today for this check (a glob) on this subject or serial."""
        if today > self.until or not fnmatchcase(check, self.check):
            return False
        if self.serial is not None:
            return serial == self.serial
        return self.subject is not None and _names(self.subject, subject)


@dataclass(frozen=True, slots=True)
class Limits:
    """All limits and waivers that are in force for a run."""

    limits: Sequence[Limit] = ()
    waivers: Sequence[Waiver] = ()

    def of(self, metric: str, subject: str, sku: str | None) -> list[Limit]:
        """Return the bounds that apply, strongest layer first.

        The user's replace the others, and the platform's those of the spec. Within a layer one
        that names the SKU or the subject takes the place of one that does not.
        """
        found = [
            limit
            for limit in self.limits
            if limit.metric == metric
            and (limit.sku is None or limit.sku == sku)
            and limit.on(subject)
        ]
        layers = {limit.layer for limit in found}
        if "user" in layers:
            layers = {"user"}
        elif "platform" in layers:
            layers -= {"spec"}
        kept: list[Limit] = []
        for layer in LAYERS:
            own = [limit for limit in found if limit.layer == layer and layer in layers]
            most = max((limit.narrow for limit in own), default=0)
            kept += [limit for limit in own if limit.narrow == most]
        return kept

    def as_json(self) -> dict[str, Any]:
        """Return plain tables for a record's first line."""
        return {
            "limit": [
                {
                    k: v
                    for k, v in asdict(limit).items()
                    if v is not None and (k, v) != ("subject", "*")
                }
                for limit in self.limits
            ],
            "waiver": [
                {k: str(v) for k, v in asdict(w).items() if v is not None} for w in self.waivers
            ],
        }
