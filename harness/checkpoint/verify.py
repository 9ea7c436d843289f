"""Verify: reads a checkpoint again as a judge does, and believes nothing that was said about it.

In: a tier and a step, or tiers. Out: Verified, whose digest is that of the optimizer's state.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rackproof.harness.checkpoint import load, manifest
from rackproof.harness.checkpoint.lane import reason
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Verified:
    """What became of reading it: `problem` is empty where it verifies, with all seven fields.

    `digest` is given as soon as files are what the manifest says, though fields may be missing.
    """

    uri: str
    step: int
    verifies: bool
    fields: tuple[str, ...] = ()
    digest: str = ""
    problem: str = ""
    tier: str = ""
    kind: str = ""


def verify(tier: Tier, step: int) -> Verified:
    """Return how the newest checkpoint of a step fares; one that is not there does not verify."""
    try:
        names = [
            name for name in tier.store().names() if (manifest.place(name) or (-1,))[0] == step
        ]
    except (OSError, CheckpointError) as error:
        return Verified(tier.url, step, verifies=False, problem=reason(error), tier=tier.name)
    if not names:
        why = "there is no such checkpoint"
        return Verified(tier.url, step, verifies=False, problem=why, tier=tier.name)
    return look(tier, max(names, key=lambda name: manifest.place(name) or (0, 0)))


def look(tier: Tier, directory: str) -> Verified:
    """Return how one directory fares."""
    uri, step = tier.uri(directory), (manifest.place(directory) or (0, 0))[0]
    try:
        found = load.load(tier.store(), directory)
    except CheckpointError as error:
        return Verified(uri, step, verifies=False, problem=str(error), tier=tier.name)
    kind = "delta" if found.manifest.parent else "full"
    return Verified(
        uri, step, not found.problem, found.fields, found.digest, found.problem, tier.name, kind
    )


def everything(tiers: Sequence[Tier]) -> list[Verified]:
    """Return how all checkpoints of all tiers fare; a tier that cannot be asked is one row."""
    rows = []
    for tier in tiers:
        try:
            names = tier.store().names()
        except (OSError, CheckpointError) as error:
            rows.append(
                Verified(tier.url, 0, verifies=False, problem=reason(error), tier=tier.name)
            )
            continue
        rows += [look(tier, name) for name in names]
    return rows
