"""What a checkpoint is made of: seven fields, none of which may be missing.

weights and optimizer are tensors; rng, data, config, topology and commit are the context. At a step
boundary gradients need no field; a save inside gradient accumulation stores the accumulated ones
beside the optimizer's tensors, and says so (`accumulating`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

FIELDS = ("weights", "optimizer", "rng", "data", "config", "topology", "commit")
CONTEXT = FIELDS[2:]

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
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        tensors = (*self.weights.values(), *self.optimizer.values())
        return sum(int(tensor.nbytes) for tensor in tensors)
