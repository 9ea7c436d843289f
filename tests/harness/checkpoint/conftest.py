"""A small state of training, made from its step alone, and what can be asked of it."""

from collections.abc import Callable

import numpy as np
import pytest

from rackproof.harness.checkpoint.anatomy import Context, Snapshot

SHAPES = (("embed", (40, 4)), ("out", (4,)), ("scale", ()))


def make(step: int, *, seed: int = 0, dense: bool = True, **context: object) -> Snapshot:
    """Return a Snapshot; where it is not `dense`, steps differ in a few numbers only."""
    draw = np.random.default_rng(seed + (step if dense else 0))
    state = {
        f"{group}/{name}": draw.normal(size=shape).astype(np.float32)
        for group in ("weights", "m", "v")
        for name, shape in SHAPES
    }
    state["v/scale"] += np.float32(step)
    fields = {
        "rng": {"philox": [seed, step]},
        "data": {"offset": step * 32},
        "config": {"sha256": "ab" * 32},
        "topology": {"replicas": 2, "threads": 1, "blas": "b", "isa": "i"},
        "commit": {"sha": "cd" * 20, "dirty": False},
        **context,
    }
    weights = {name: value for name, value in state.items() if name.startswith("weights/")}
    rest = {name: value for name, value in state.items() if name not in weights}
    return Snapshot(step, weights, rest, Context(**fields))


def equal(one: Snapshot, other: Snapshot) -> bool:
    """Return whether two snapshots are the same, to the last bit."""
    return (one.step, one.context, list(one.tensors)) == (
        other.step,
        other.context,
        [*other.tensors],
    ) and all(
        tensor.dtype == other.tensors[name].dtype
        and tensor.shape == other.tensors[name].shape
        and tensor.tobytes() == other.tensors[name].tobytes()
        for name, tensor in one.tensors.items()
    )


@pytest.fixture(scope="session")
def snapshot() -> Callable[..., Snapshot]:
    return make


@pytest.fixture(scope="session")
def same() -> Callable[[Snapshot, Snapshot], bool]:
    return equal
