"""A telling: one line in which a process says that a step is committed, read without belief.

In: happenings of kind `step`. Out: Tellings, or in words why a line is none. Samples are a list of
ids (also a list for each micro-shard), or only their number.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rackproof.harness.happening import Happening

LARGEST = 1 << 53  # of a step, a sample's id or a count: exact in every JSON reader


@dataclass(frozen=True, slots=True)
class Telling:
    """Who told when that `step` is committed, with what evidence.

    `ids` are the sample ids, sorted (None: not told); `count` their number (None: not told);
    `members` how many took part (None: not told). An empty `digest` is none.
    """

    at: float
    who: str
    attempt: int
    step: int
    digest: str = ""
    loss: float | None = None
    ids: tuple[int, ...] | None = None
    count: int | None = None
    members: int | None = None


def whole(value: Any) -> int | None:
    """Return a whole number from 0 on, or None."""
    good = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST
    return value if good else None


def real(value: Any) -> float | None:
    """Return a number, NaN and the infinities included, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value)
    except OverflowError:
        return math.inf


def ids_of(value: Any) -> tuple[int, ...] | None:
    """Return the sample ids of a list, or of a list of lists, sorted; None for anything else."""
    if not isinstance(value, list | tuple):
        return None
    flat: list[Any] = []
    for each in value:
        flat += each if isinstance(each, list | tuple) else [each]
    found = [whole(each) for each in flat]
    kept = [each for each in found if each is not None]
    return tuple(sorted(kept)) if len(kept) == len(found) else None


def members_of(value: Any) -> int | None:
    """Return how many members a field `participants` names (a list), or counts (a number)."""
    if isinstance(value, list | tuple):
        return len({str(each) for each in value}) or None
    return whole(value) or None


def telling(what: Happening) -> Telling | str:
    """Return the telling of a `step` line, or why it is none."""
    step = whole(what.fields.get("step"))
    if step is None:
        return f"{what.who} told a step without a number"
    said = what.fields.get("samples")
    ids = ids_of(said)
    count = len(ids) if ids is not None else whole(said)
    if said is not None and count is None:
        return f"{what.who} told samples of step {step} that are neither ids nor a number"
    loss, members = real(what.fields.get("loss")), members_of(what.fields.get("participants"))
    return Telling(
        what.at, what.who, what.attempt, step, what.text("digest"), loss,
        ids or None, count or None, members,
    )  # fmt: skip


def digits(one: float, other: float) -> str:
    """Return in words how far two losses agree."""
    if one == other:
        return "the losses are equal to the last bit"
    if not (math.isfinite(one) and math.isfinite(other)):
        return f"the losses are {one} and {other}"
    apart = abs(one - other) / max(abs(one), abs(other))
    agree = math.floor(-math.log10(apart)) if apart else 17
    return f"the losses agree to {agree} digits" if agree > 0 else "the losses differ as well"


def shorten(digest: str) -> str:
    """Return the beginning of a digest, as far as a person compares."""
    return digest[:12]


def listed(steps: Sequence[int]) -> str:
    """Return steps in words: the first few, and how many there are."""
    head = ", ".join(str(step) for step in steps[:3])
    return head if len(steps) <= 3 else f"{head}, … ({len(steps)} steps)"  # noqa: PLR2004
