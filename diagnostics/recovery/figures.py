"""Figures beside the ledger: ETTR, MTTD, MTTR, lost steps, RPO, and how often to save.

In: windows, trajectory, ledger. Out: plain numbers, None where there is nothing to reckon with.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rackproof.diagnostics.recovery.ledger import Ledger
from rackproof.diagnostics.recovery.record import Course, Head
from rackproof.diagnostics.recovery.telling import real
from rackproof.diagnostics.recovery.timeline import DETECTED, Window, recoveries
from rackproof.diagnostics.recovery.trajectory import Trajectory

# Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 GPUs (arXiv:2407.21783, 3.3.4).
HOURS_OF_A_GPU = 54 * 24 * 16384 / 419
ASSUMED = "54 d × 16384 GPUs / 419 unexpected interruptions (arXiv:2407.21783), one GPU a replica"


@dataclass(frozen=True, slots=True)
class YoungDaly:
    """How often to save, in seconds: `used` against `optimal` = sqrt(2 · δ · MTBF).

    δ is the time that a save holds training up. Young 1974 (doi:10.1145/361147.361115), to first
    order as Daly 2006 (doi:10.1016/j.future.2004.11.016). `mtbf` is assumed, not measured.
    """

    used: float | None
    optimal: float | None
    delta: float | None
    mtbf: float
    source: str = ASSUMED

    def as_json(self) -> dict[str, Any]:
        """Return it with plain names."""
        body = asdict(self)
        return {"interval_used": body.pop("used"), "interval_optimal": body.pop("optimal"), **body}


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds and steps. ETTR: productive over wall time (arXiv:2410.21680).

    MTTD: from a fault to its detection; MTTR: from a fault to the first step after the recovery;
    means over the faults. `next_step`: from the first fault to the first step that was committed
    after its member was isolated, or after it was detected where nobody was. `rpo_steps`: the most
    committed steps that one fault undid.
    """

    ettr: float | None
    mttd: float | None
    mttr: float | None
    next_step: float | None
    rpo_steps: int
    lost_steps: int
    young_daly: YoungDaly

    def as_json(self) -> dict[str, Any]:
        """Return the further keys of the contract's object."""
        return {
            "ettr": self.ettr, "mttd": self.mttd, "mttr": self.mttr,
            "next_step": self.next_step,
            "rpo_steps": self.rpo_steps, "lost_steps": self.lost_steps,
            "young_daly": self.young_daly.as_json(),
        }  # fmt: skip


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), 6) if values else None


def _next(found: Sequence[Window], path: Trajectory) -> float | None:
    for window in found:
        at = window.when("isolated") or window.when(DETECTED)
        if at is not None:
            after = next((each.at for each in path.commits if each.at > at), None)
            return None if after is None else round(after - window.at, 6)
    return None


def young_daly(head: Head, course: Course, step: float | None) -> YoungDaly:
    """Return the interval used and the best one, of a run whose steps take `step` seconds."""
    told = [
        real(what.fields.get("seconds"))
        for what in course.happenings
        if what.kind == "ckpt" and what.text("phase") == "staged"
    ]
    costs = [cost for cost in told if cost is not None and math.isfinite(cost) and cost > 0]
    delta = statistics.median(costs) if costs else None
    mtbf = HOURS_OF_A_GPU * 3600 / max(head.replicas, 1)
    every = head.checkpoint_every
    used = round(every * step, 6) if every is not None and step is not None else None
    best = round(math.sqrt(2 * delta * mtbf), 3) if delta is not None else None
    return YoungDaly(used, best, delta, round(mtbf, 1))


def figures(
    head: Head, course: Course, found: Sequence[Window], path: Trajectory, book: Ledger | None
) -> Figures:
    """Return the figures of a drill."""
    detected = [window.found for window in found if window.found is not None]
    resumed = [end - begin for begin, end in recoveries(found) if end is not None]
    return Figures(
        book.shares["productive"] if book is not None else None,
        _mean(detected), _mean(resumed), _next(found, path),
        max((each.lost for each in path.rollbacks), default=0), path.lost,
        young_daly(head, course, book.step if book is not None else None),
    )  # fmt: skip
