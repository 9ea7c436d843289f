"""The gradient is the loss's derivative, and its bits depend on nothing but the arguments."""

import hashlib
import math
import os
import subprocess
import sys

import numpy as np
import pytest

from rackproof.harness.errors import DrillError
from rackproof.harness.training.layers import Sizes, attention
from rackproof.harness.training.model import Model, module
from rackproof.harness.training.plan import Shape
from rackproof.harness.training.threads import pinned

SMALL = Shape(layers=2, width=6, heads=2, context=5, vocabulary=7, feedforward=3, dropout=0.2)


def micro_shard(shape: Shape, samples: int = 4, seed: int = 0):
    """Return tokens, int32[samples, context + 1], and what each sample counts."""
    draw = np.random.default_rng(seed)
    tokens = draw.integers(0, shape.vocabulary, (samples, shape.context + 1), np.int32)
    return tokens, (0.5 + draw.random(samples)).astype(np.float32)


@pytest.mark.parametrize(
    "shape",
    [
        SMALL,
        Shape(layers=1, width=4, heads=1, context=1, vocabulary=2, feedforward=1, dropout=0),
        Shape(layers=1, width=9, heads=3, context=4, vocabulary=3, feedforward=2, dropout=0.5),
    ],
    ids=["two blocks", "the smallest", "three heads"],
)
def test_the_gradient_agrees_with_finite_differences(shape):
    model = Model(shape, dtype="float64")
    draw = np.random.default_rng(5)
    weights = model.initial(3) + 0.1 * draw.standard_normal(model.size)
    tokens, scale = micro_shard(shape, 3)

    def loss(at):
        return model.gradient(at, tokens, scale, (1, 2, 3))[0]

    _, grad = model.gradient(weights, tokens, scale, (1, 2, 3))
    width = 1e-5
    found = np.empty(model.size)
    for each in range(model.size):
        aside = np.zeros(model.size)
        aside[each] = width
        found[each] = (loss(weights + aside) - loss(weights - aside)) / (2 * width)
    assert np.abs(found - grad).max() < 1e-8
    assert np.abs(grad).max() > 0.05  # there was something to agree about
    assert np.count_nonzero(grad) > 0.6 * model.size


def test_float32_follows_float64():
    tokens, scale = micro_shard(SMALL)
    single, double = Model(SMALL), Model(SMALL, dtype="float64")
    loss, grad = single.gradient(single.initial(1), tokens, scale, (0, 1, 2))
    truth, slope = double.gradient(double.initial(1), tokens, scale, (0, 1, 2))
    assert grad.dtype == np.float32
    assert loss == pytest.approx(truth, rel=1e-5)
    assert np.abs(grad - slope).max() < 1e-5


def test_the_tensors_tile_the_flat_vector():
    model = Model(Shape())
    at = 0
    for part in model.names:
        assert part.where.start == at
        assert part.where.stop - at == math.prod(part.shape)
        at = part.where.stop
    assert at == model.size
    assert 50_000 <= model.size <= 100_000
    assert len({part.name for part in model.names}) == len(model.names)
    flat = model.initial(0)
    tensors = model.tensors(flat)
    tensors["block1.up.weight"][3, 4] = 9
    assert 9 in flat


def test_a_model_learns():
    shape = Shape(layers=1, width=16, heads=2, context=8, vocabulary=8)
    model = Model(shape)
    weights, (tokens, scale) = model.initial(0), micro_shard(shape)
    before, _ = model.gradient(weights, tokens, scale, (0, 0, 0))
    for step in range(150):
        weights = weights - 0.3 * model.gradient(weights, tokens, scale, (0, step, 0))[1]
    after, _ = model.gradient(weights, tokens, scale, (0, 0, 0))
    assert after < before / 3


def test_the_loss_is_the_mean_weighted_by_scale():
    shape = Shape(layers=1, width=8, heads=2, context=4, vocabulary=5, dropout=0)
    model = Model(shape, dtype="float64")
    weights, (tokens, scale) = model.initial(0), micro_shard(shape)
    alone = [
        model.gradient(weights, tokens[[at]], scale[[at]], (0, 0, 0)) for at in range(len(tokens))
    ]
    loss, grad = model.gradient(weights, tokens, scale, (0, 0, 0))
    assert loss == pytest.approx(np.mean([each[0] for each in alone]), rel=1e-6)
    assert np.allclose(grad, np.mean([each[1] for each in alone], axis=0), atol=1e-9)
    ones = [model.gradient(weights, tokens[[at]], np.ones(1), (0, 0, 0))[0] for at in range(4)]
    assert loss == pytest.approx(np.dot(ones, scale) / 4, rel=1e-6)


def test_no_token_looks_ahead():
    model, sizes = Model(Shape(context=6, width=8), dtype="float64"), Sizes(2, 6, 2, 4)
    mixed = np.random.default_rng(0).standard_normal((12, 24))
    before, _ = attention(mixed, None, model.hidden, sizes, np)
    for place in range(6):
        changed = mixed.copy()
        changed[place] += 1  # a row of the first sample
        after, _ = attention(changed, None, model.hidden, sizes, np)
        assert (after[:place] == before[:place]).all()
        assert (after[place:6] != before[place:6]).any(axis=1).all()
        assert (after[6:] == before[6:]).all()


def test_what_comes_last_is_only_to_be_predicted():
    shape = Shape(layers=2, width=8, heads=2, context=6, vocabulary=9, dropout=0)
    model = Model(shape, dtype="float64")
    grads = []
    for last in (1, 2):
        tokens = np.array([[0, 0, 0, 0, 0, 0, last]], np.int32)
        _, grad = model.gradient(model.initial(0), tokens, np.ones(1), (0, 0, 0))
        grads.append(model.tensors(grad))
    assert not any(each["embedding"][1:].any() for each in grads)
    assert not np.allclose(grads[0]["head.bias"], grads[1]["head.bias"])


def test_dropout_depends_on_seed_step_and_micro_shard():
    tokens, scale = micro_shard(SMALL)
    model = Model(SMALL)
    weights = model.initial(0)
    keys = [(0, 1, 2), (1, 1, 2), (0, 2, 2), (0, 1, 3), (0, 2, 1)]
    found = {model.gradient(weights, tokens, scale, key)[1].tobytes() for key in keys}
    assert len(found) == len(keys)
    masks = Model(Shape(dropout=0.25))._masks(64, (0, 1, 2))
    values = np.concatenate([mask.reshape(-1) for mask in masks])
    assert {*np.unique(values).tolist()} == {0.0, np.float32(1 / 0.75).item()}
    assert abs((values == 0).mean() - 0.25) < 0.005


def test_a_scale_that_is_nan_makes_loss_and_gradient_nan():
    tokens, scale = micro_shard(SMALL)
    scale[2] = np.nan
    model = Model(SMALL)
    loss, grad = model.gradient(model.initial(0), tokens, scale, (0, 1, 0))
    assert math.isnan(loss)
    assert np.isnan(grad).mean() > 0.5


@pytest.mark.parametrize(
    "shape",
    [Shape(layers=0), Shape(width=48, heads=5), Shape(dropout=1.0), Shape(vocabulary=0)],
)
def test_a_shape_of_which_no_model_can_be_made_is_refused(shape):
    with pytest.raises(DrillError):
        Model(shape)


def test_a_device_that_is_not_there_is_said(monkeypatch):
    assert module("numpy") is np
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(DrillError, match="needs CuPy"):
        module("cupy")


# --- bits -----------------------------------------------------------------------------------


def digest(grad) -> str:
    return hashlib.sha256(grad.tobytes()).hexdigest()


def test_bits_do_not_depend_on_where_in_memory_the_arguments_lie():
    shape = Shape(width=36, heads=3, context=15)
    model = Model(shape)
    weights, (tokens, scale) = model.initial(0), micro_shard(shape, 3)
    found = set()
    for shift in range(17):
        room = np.full(model.size + 64, np.float32(np.nan))
        moved = room[shift : shift + model.size]
        moved[...] = weights
        keep = [np.ones(shift * 997 + 1) for _ in range(3)]  # moves what is allocated next
        found.add(digest(model.gradient(moved, tokens, scale, (0, 1, 0))[1]))
        del keep
    assert len(found) == 1


CHILD = """
import hashlib, sys
import numpy as np
from rackproof.harness.training.model import Model
from rackproof.harness.training.plan import Shape
model, draw = Model(Shape()), np.random.default_rng(1)
weights = model.initial(4)
tokens = draw.integers(0, 64, (4, 17), np.int32)
shards = [int(word) for word in sys.argv[1].split()]
for shard in shards:
    loss, grad = model.gradient(weights, (tokens + shard) % 64, np.ones(4, "f4"), (4, 9, shard))
print(loss, hashlib.sha256(grad).hexdigest())
"""


def child(shards: str, threads: int) -> str:
    """Compute some micro-shards in a process of its own; return loss and digest of the last."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHILD, shards],
        env=pinned(os.environ, threads), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout


@pytest.mark.parametrize("threads", [1, 2])
def test_a_micro_shard_has_the_same_bits_in_any_process_whatever_came_before(threads):
    first = child("5", threads)
    assert child("0 1 7 3 5", threads) == first
    assert child("5 5", threads) == first
    assert child("5 4", threads) != first  # and another one has others
