"""Which steps led to the state at the end of a run, and who took part in each: from its log.

In: happenings of all replicas. Out: one Taken for each step, from the first on. Replicas heal from
each other, so we walk backwards from the one that finished: its own steps to where it was restored,
then those of the peer that it was restored from, or of who wrote that checkpoint.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rackproof.harness.errors import DrillError
from rackproof.harness.happening import Happening

PEER = "peer:"


@dataclass(frozen=True, slots=True)
class Taken:
    """A committed step: numbers of those whose gradients are in it, and the digest told."""

    step: int
    participants: tuple[int, ...]
    digest: str


def lineage(said: Sequence[Happening]) -> list[Taken]:
    """Return the steps 1, 2, … of the run; DrillError where the log has a gap."""
    ordered = sorted(said, key=lambda what: what.at)
    end = next((what for what in reversed(ordered) if what.kind == "ended"), None)
    if end is None:
        msg = "the log does not say that the run came to its end"
        raise DrillError(msg)
    who, wanted, at = end.who, end.number("step") or 0, end.at
    found: list[Taken] = []
    for what in reversed(ordered):
        if what.who != who or what.at > at:
            continue
        if what.kind == "step" and what.number("step") == wanted:
            found.append(_taken(what))
            wanted -= 1
        elif what.kind == "restore" and what.number("step") == wanted:
            who, at = _source(ordered, what), what.at
    if wanted:
        msg = f"the log has a gap: nobody tells of step {wanted} on the way to the end"
        raise DrillError(msg)
    return found[::-1]


def _source(ordered: Sequence[Happening], restored: Happening) -> str:
    """Return whose steps a restored state comes from."""
    uri = restored.text("uri")
    if uri.startswith(PEER):
        return uri.removeprefix(PEER)
    for what in ordered:
        same = what.number("step") == restored.number("step")
        if what.kind == "ckpt" and same and what.text("phase") == "committed":
            return what.who
    msg = f"the log does not say who wrote {uri or 'the checkpoint'}, which {restored.who} took"
    raise DrillError(msg)


def _taken(what: Happening) -> Taken:
    names = what.fields.get("participants")
    step = what.number("step") or 0
    if not isinstance(names, list) or not names:
        msg = f"{what.who} does not say who took part in step {step}"
        raise DrillError(msg)
    numbers = [str(name).removeprefix("r") for name in names]
    if not all(number.isdecimal() for number in numbers):
        msg = f"{what.who} names in step {step} who is no replica"
        raise DrillError(msg)
    return Taken(step, tuple(int(number) for number in numbers), what.text("digest"))
