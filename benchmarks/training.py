"""What a step of the reference training run costs beside the matrix products that it cannot avoid.

In: nothing; one thread. Out: ratios, the best of a few tries each, for the default model and one
four times as wide: a micro-shard's gradient to its products alone; the mean of eight gradients to
seven additions of that size; AdamW to one copy of weights, m and v; the digest to sha256 alone.
One above its limit ends with 1.
"""

import hashlib
import os
import sys
import time
from collections.abc import Callable

import numpy as np

from rackproof.harness.training.model import Model
from rackproof.harness.training.optimizer import AdamW, State
from rackproof.harness.training.plan import Optimizer, Shape
from rackproof.harness.training.reduce import mean
from rackproof.harness.training.threads import NAMES, pinned

SAMPLES, SHARDS = 4, 8
TRIES, TIMES = 7, 40
LIMITS = {  # about twice what is seen on a quiet machine
    ("default", "gradient"): 5.0,
    ("wide", "gradient"): 3.0,
    ("any", "mean"): 2.0,
    ("any", "advance"): 12.0,
    ("any", "digest"): 1.5,
}


def best(work: Callable[[], object]) -> float:
    """Return the seconds of one call, the best of a few rounds."""
    found = []
    for _ in range(TRIES):
        begun = time.perf_counter()
        for _ in range(TIMES):
            work()
        found.append((time.perf_counter() - begun) / TIMES)
    return min(found)


def products(shape: Shape) -> Callable[[], None]:
    """Return what does all matrix products of one gradient, forward and backward."""
    rows, width = SAMPLES * shape.context, shape.width
    wide, units = width * shape.feedforward, width // shape.heads
    block = [
        (rows, width, 3 * width),
        (rows, width, width),
        (rows, width, wide),
        (rows, wide, width),
    ]
    ends = [(rows, width, shape.vocabulary)]
    dense = [*block * shape.layers, *ends]
    pairs = []
    for m, k, n in dense:
        for a, b in (((m, k), (k, n)), ((k, m), (m, n)), ((m, n), (n, k))):
            pairs.append((np.ones(a, np.float32), np.ones(b, np.float32)))
    pairs.append(
        (np.ones((shape.vocabulary, rows), np.float32), np.ones((rows, width), np.float32))
    )
    stack, square = (SAMPLES, shape.heads, shape.context), shape.context
    for _ in range(3 * shape.layers):
        look = np.ones((*stack, square), np.float32)
        pairs.append(
            (np.ones((*stack, units), np.float32), np.ones((*stack[:2], units, square), np.float32))
        )
        pairs.append((look, np.ones((*stack, units), np.float32)))

    def work() -> None:
        for a, b in pairs:
            np.matmul(a, b)

    return work


def ratios(shape: Shape) -> dict[str, tuple[float, float]]:
    """Return for each part its milliseconds, and its ratio to what it cannot avoid."""
    model, adamw = Model(shape), AdamW(Optimizer())
    state = State.initial(model, 0)
    tokens = np.arange(SAMPLES * (shape.context + 1), dtype=np.int32).reshape(SAMPLES, -1)
    tokens %= shape.vocabulary
    scale = np.ones(SAMPLES, np.float32)
    _, grad = model.gradient(state.weights, tokens, scale, (0, 1, 0))
    many, into, lent = [grad.copy() for _ in range(SHARDS)], grad.copy(), state.empty()
    room = np.concatenate([state.weights, state.m, state.v])
    other = room.copy()
    pairs = {
        "gradient": (
            lambda: model.gradient(state.weights, tokens, scale, (0, 1, 0)), products(shape)
        ),
        "mean": (lambda: mean(many, into), lambda: [np.add(into, g, out=into) for g in many[1:]]),
        "advance": (lambda: adamw.advance(state, grad, lent), lambda: np.copyto(other, room)),
        "digest": (state.digest, lambda: hashlib.sha256(room.data).hexdigest()),
    }  # fmt: skip
    found = {}
    for name, (ours, least) in pairs.items():
        seconds = best(ours)
        found[name] = (seconds * 1e3, seconds / best(least))
    return found


def main() -> int:
    """Print the ratios, and end with 1 where one is above its limit."""
    if os.environ.get(NAMES[0]) != "1":
        os.execve(sys.executable, [sys.executable, __file__], pinned(os.environ, 1))  # noqa: S606
    good = True
    for size, shape in (("default", Shape()), ("wide", Shape(width=192, heads=4))):
        for name, (milliseconds, ratio) in ratios(shape).items():
            limit = LIMITS.get((size, name)) or LIMITS["any", name]
            good = good and ratio <= limit
            print(f"{ratio:6.2f}  {size} {name} of {limit:g}; {milliseconds:.3f} ms", flush=True)
    return int(not good)


if __name__ == "__main__":
    sys.exit(main())
