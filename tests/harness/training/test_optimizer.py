"""AdamW is the one of the paper; a state has one digest, and one way into a checkpoint and back."""

import hashlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.harness.errors import DrillError
from rackproof.harness.training.model import Model
from rackproof.harness.training.optimizer import AdamW, State, from_tensors, to_tensors
from rackproof.harness.training.plan import Optimizer, Shape

SHAPE = Shape(layers=1, width=4, heads=2, context=3, vocabulary=5)
MODEL = Model(SHAPE)


def random_state(seed: int, step: int = 3) -> State:
    draw = np.random.default_rng(seed)
    weights, m, v = (draw.standard_normal(MODEL.size).astype(np.float32) for _ in range(3))
    return State(step, weights, m, v * v)


@given(
    rate=st.floats(1e-5, 1e-1), beta1=st.floats(0, 0.99), beta2=st.floats(0, 0.9999),
    decay=st.floats(0, 0.5), seed=st.integers(0, 1000),
)  # fmt: skip
@settings(deadline=None)
def test_steps_are_those_of_the_paper(rate, beta1, beta2, decay, seed):
    draw = np.random.default_rng(seed)
    state = State(0, *(np.zeros(20) for _ in range(3)))
    w, m, v = np.zeros(20), np.zeros(20), np.zeros(20)
    adamw = AdamW(Optimizer(rate, beta1, beta2, 1e-8, decay))
    for t in range(1, 5):
        g = draw.standard_normal(20)
        state = adamw.advance(state, g)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g**2
        m_hat, v_hat = m / (1 - beta1**t), v / (1 - beta2**t)
        w = w - rate * (m_hat / (np.sqrt(v_hat) + 1e-8) + decay * w)
        assert state.step == t
        assert np.allclose(state.weights, w, rtol=1e-9, atol=1e-12)
    assert np.allclose(state.m, m, rtol=1e-12)
    assert np.allclose(state.v, v, rtol=1e-12)


def test_the_state_before_and_the_gradient_are_never_changed():
    state, grad = random_state(0), random_state(1).weights
    before, kept = state.digest(), grad.copy()
    adamw, into = AdamW(Optimizer()), random_state(2)
    lent = adamw.advance(state, grad, into)
    fresh = adamw.advance(state, grad)
    assert state.digest() == before
    assert (grad == kept).all()
    assert lent.digest() == fresh.digest() != before
    assert lent.weights is into.weights
    assert lent.step == state.step + 1
    with pytest.raises(DrillError, match="itself"):
        adamw.advance(state, grad, state)


def test_what_lies_in_the_lent_vectors_is_of_no_account():
    state, grad, into = random_state(0), random_state(1).weights, random_state(2)
    for vector in (into.weights, into.m, into.v):
        vector[...] = np.nan
    lent = AdamW(Optimizer()).advance(state, grad, into)
    assert lent.digest() == AdamW(Optimizer()).advance(state, grad).digest()


def test_the_digest_is_over_step_weights_and_moments():
    state = random_state(0, 12)
    body = b"12" + b"".join(each.tobytes() for each in (state.weights, state.m, state.v))
    assert state.digest() == hashlib.sha256(body).hexdigest()
    for name in ("weights", "m", "v"):
        changed = State(12, state.weights.copy(), state.m.copy(), state.v.copy())
        getattr(changed, name).view(np.uint32)[-1] ^= 1
        assert changed.digest() != state.digest()
    assert State(13, state.weights, state.m, state.v).digest() != state.digest()


def test_the_first_state_is_the_initial_weights_and_zeros():
    state = State.initial(MODEL, 7)
    assert state.step == 0
    assert (state.weights == MODEL.initial(7)).all()
    assert not state.m.any()
    assert not state.v.any()
    assert state.m is not state.v


def test_a_state_goes_into_tensors_and_back():
    state = random_state(4, 8)
    weights, moments = to_tensors(MODEL, state)
    assert list(weights) == [f"weights/{part.name}" for part in MODEL.names]
    assert {name.split("/", 1)[0] for name in moments} == {"m", "v"}
    assert all(np.shares_memory(each, state.weights) for each in weights.values())
    back = from_tensors(MODEL, 8, weights, moments)
    assert back.digest() == state.digest()
    assert not np.shares_memory(back.weights, state.weights)


@pytest.mark.parametrize("change", ["missing", "more", "shape", "dtype"])
def test_tensors_of_another_model_are_refused(change):
    weights, moments = to_tensors(MODEL, random_state(4))
    name = "v/block0.up.weight"
    if change == "missing":
        del moments[name]
    elif change == "more":
        moments["v/other"] = moments[name]
    elif change == "shape":
        moments[name] = moments[name].T
    else:
        moments[name] = moments[name].astype(np.float64)
    with pytest.raises(DrillError, match="names differ" if "m" in change[0] else r"should be"):
        from_tensors(MODEL, 1, weights, moments)
