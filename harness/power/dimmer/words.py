"""The nouns of the Dimmer: jobs in, orders and acts out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from rackproof.harness.power.zone import Array, Places

ACTS = (
    "overload-detected",
    "dimmer-acts",
    "hold",
    "resume-telemetry",
    "alarm",
    "raise",
    "settled",
    "refused",
    "foreign-cap",
    "clock-jump",
)
"""What an Act can be."""


@dataclass(frozen=True, slots=True)
class Job:
    """GPUs that step together: places in `Layout.gpus`, one cap for all of them.

    A job of a higher `priority` is cut later. No cap goes under `floor` (W a GPU). `period` is the
    time of one iteration in s, 0 where it is not known.
    """

    name: str
    gpus: Places
    priority: int
    floor: float
    period: float

    def __post_init__(self) -> None:
        """Refuse nonsense; a ValueError that names the job."""
        if not len(self.gpus):
            msg = f"job {self.name!r} has no GPU"
            raise ValueError(msg)
        if not (math.isfinite(self.floor) and self.floor >= 0.0):
            msg = f"job {self.name!r}: its floor is {self.floor} W; it must be 0 or more"
            raise ValueError(msg)
        if not (math.isfinite(self.period) and self.period >= 0.0):
            msg = f"job {self.name!r}: its period is {self.period} s; it must be 0 or more"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True)
class Act:
    """Something that the Dimmer saw or did: `what` of ACTS, on a feed or a job ("" where none)."""

    at: float
    what: str
    feed: str
    job: str
    text: str
    fields: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Orders:
    """What is to be asked of the GPUs now: `caps` in W (shape: GPUs; NaN leaves one alone).

    `due` is the time at which the Dimmer wants its next look, at the latest.
    """

    caps: Array
    acts: tuple[Act, ...]
    due: float
