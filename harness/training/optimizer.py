"""AdamW on flat vectors, and the state of a training run at a step.

In: a State and the mean gradient. Out: the next State; the one before is left as it is, so a vote
that fails costs nothing. The digest is the identity of a state: two runs are bit-identical where
their digests are. m and v are the first and second moments of the gradient.
"""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackproof.harness.errors import DrillError
from rackproof.harness.training import plan
from rackproof.harness.training.model import Model

Vectors = dict[str, Any]


def on_host(array: Any) -> Any:
    """Return a numpy array: the same one, or a copy of what lies on a GPU."""
    return array.get() if hasattr(array, "get") else array


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """After `step` committed steps: weights, m and v, each [P] and contiguous."""

    step: int
    weights: Any
    m: Any
    v: Any

    @classmethod
    def initial(cls, model: Model, seed: int) -> "State":
        """Return the state before the first step."""
        weights = model.initial(seed)
        return cls(0, weights, model.xp.zeros_like(weights), model.xp.zeros_like(weights))

    def empty(self) -> "State":
        """Return a state of the same size whose vectors hold zeros, to be written over."""
        xp = _module(self.weights)
        return State(self.step, *(xp.zeros_like(each) for each in (self.weights, self.m, self.v)))

    def digest(self) -> str:
        """Return sha256 (hex) over the step in decimal and the three as little-endian float32."""
        found = hashlib.sha256(b"%d" % self.step)
        for vector in (self.weights, self.m, self.v):
            found.update(np.ascontiguousarray(on_host(vector), "<f4").data)
        return found.hexdigest()


class AdamW:
    """Algorithm 2 of arXiv:1711.05101 with a constant rate, in the dtype of the state."""

    __slots__ = ("optimizer",)

    def __init__(self, optimizer: plan.Optimizer) -> None:
        self.optimizer = optimizer

    def advance(self, state: State, grad: Any, into: State | None = None) -> State:
        """Return the state one step on. `grad` [P] is the mean gradient.

        `into` lends its vectors, which may be none of `state`'s; without it there are new ones.
        """
        lent = state.empty() if into is None else into
        for name in ("weights", "m", "v"):
            if getattr(lent, name) is getattr(state, name):
                msg = "a state cannot be advanced into itself"
                raise DrillError(msg)
        mine, step = self.optimizer, state.step + 1
        xp, spare = _module(state.weights), lent.weights
        xp.multiply(grad, 1 - mine.beta1, out=spare)
        xp.multiply(state.m, mine.beta1, out=lent.m)
        xp.add(lent.m, spare, out=lent.m)
        xp.multiply(grad, grad, out=spare)
        xp.multiply(spare, 1 - mine.beta2, out=spare)
        xp.multiply(state.v, mine.beta2, out=lent.v)
        xp.add(lent.v, spare, out=lent.v)
        xp.sqrt(lent.v, out=spare)
        xp.multiply(spare, 1 / math.sqrt(1 - mine.beta2**step), out=spare)
        xp.add(spare, mine.epsilon, out=spare)
        xp.divide(lent.m, spare, out=spare)
        xp.multiply(spare, -mine.rate / (1 - mine.beta1**step), out=spare)
        xp.add(spare, state.weights * (1 - mine.rate * mine.decay), out=spare)
        return State(step, spare, lent.m, lent.v)


def _module(array: Any) -> Any:
    """Return numpy or cupy, whichever the array is of; cupy is there only if it made one."""
    if isinstance(array, np.ndarray):
        return np
    import cupy  # noqa: PLC0415  heavy, and absent where there is no GPU

    return cupy


def to_tensors(model: Model, state: State) -> tuple[Vectors, Vectors]:
    """Return views of the weights, and of the optimizer's m and v, by checkpoint name.

    ``weights/NAME``, and ``m/NAME`` and ``v/NAME``, in the model's order.
    """
    weights = {f"weights/{name}": each for name, each in model.tensors(state.weights).items()}
    moments = {
        f"{which}/{name}": each
        for which, flat in (("m", state.m), ("v", state.v))
        for name, each in model.tensors(flat).items()
    }
    return weights, moments


def from_tensors(
    model: Model, step: int, weights: Mapping[str, Any], moments: Mapping[str, Any]
) -> State:
    """Return the state of which `to_tensors` made these; the arrays are copied.

    Raises DrillError where a name, a shape or a dtype is not that of the model.
    """
    wanted = {f"{which}/{part.name}" for which in ("m", "v") for part in model.names}
    if set(moments) != wanted or set(weights) != {f"weights/{part.name}" for part in model.names}:
        msg = "these tensors are not those of this model: their names differ"
        raise DrillError(msg)
    flat = []
    for which, given in (("weights", weights), ("m", moments), ("v", moments)):
        vector = np.empty(model.size, model.dtype)
        for part in model.names:
            tensor = on_host(given[f"{which}/{part.name}"])
            if tensor.shape != part.shape or tensor.dtype != model.dtype:
                msg = (
                    f"{which}/{part.name} is {tensor.dtype} {list(tensor.shape)}, "
                    f"and should be {model.dtype} {list(part.shape)}"
                )
                raise DrillError(msg)
            vector[part.where] = tensor.reshape(-1)
        flat.append(model.xp.asarray(vector))
    return State(step, *flat)
