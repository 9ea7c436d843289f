"""What a checkpoint is made of: seven fields, none of which may be missing.

weights and optimizer are tensors; rng, data, config, topology and commit are the context. At a step
boundary gradients need no field; a save inside gradient accumulation stores the accumulated ones
beside the optimizer's tensors, and says so (`accumulating`).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

FIELDS = ("weights", "optimizer", "rng", "data", "config", "topology", "commit")
CONTEXT = FIELDS[2:]
WEIGHTS = "weights/"  # how the name of every tensor of that field begins, and of no other
ORDER = (WEIGHTS, "m/", "v/")

Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Context:
    """Five of the seven fields, as plain JSON values.

    rng: seeds and states of python, numpy, torch, cupy and the Philox key, those that are in use ·
    data: training.data.DataState as JSON · config: ``{"sha256": …}`` of the canonical config ·
    topology: replicas, threads, blas, isa, versions, gpus (UUIDs), domains · commit:
    ``{"sha": …, "dirty": bool}``. An empty field is a missing one.
    """

    rng: Mapping[str, Any]
    data: Mapping[str, Any]
    config: Mapping[str, Any]
    topology: Mapping[str, Any]
    commit: Mapping[str, Any]
    accumulating: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state of a training run after `step` committed steps."""

    step: int
    weights: Tensors
    optimizer: Tensors
    context: Context
    remarks: tuple[str, ...] = field(default=())

    @property
    def tensors(self) -> Tensors:
        """All tensors in the order of storing: weights, then m/, v/, and the others as given."""
        named = {**self.weights, **self.optimizer}
        return {name: named[name] for name in sorted(named, key=_rank)}

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        tensors = (*self.weights.values(), *self.optimizer.values())
        return sum(int(tensor.nbytes) for tensor in tensors)


def _rank(name: str) -> int:
    """Return where a tensor is stored; `sorted` keeps the order of those of one kind."""
    return next((at for at, start in enumerate(ORDER) if name.startswith(start)), len(ORDER))


def present(snapshot: Snapshot) -> tuple[str, ...]:
    """Return those of the seven fields that are there; an empty one is not."""
    return tuple(
        name
        for name in FIELDS
        if (getattr(snapshot, name) if name not in CONTEXT else getattr(snapshot.context, name))
    )


def digest(step: int, tensors: Tensors) -> str:
    """Return the sha256 (hex) over the step in ASCII and the bytes of the tensors, in order.

    It equals the digest of the optimizer's state, whose tensors are stored in the same order.
    """
    total = hashlib.sha256(b"%d" % step)
    for tensor in tensors.values():
        total.update(tensor.reshape(-1).view("u1").data)
    return total.hexdigest()
