"""A small decoder transformer with an explicit backward pass, on one flat vector of parameters.

In: weights, float32[P], tokens, int32[b, context + 1], and what each sample counts, float32[b].
Out: the loss and its gradient, float32[P]. Nothing is kept between calls, and dropout comes from
Philox at (seed, step, micro-shard): the same arguments give the same bits in any process with the
same library, instruction set and number of BLAS threads. Layer norms stand before attention and
before the MLP (Xiong et al., arXiv:2002.04745). `xp` is numpy, or cupy where there is a GPU.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rackproof.harness.errors import DrillError
from rackproof.harness.training import chance, layers
from rackproof.harness.training.layers import Array
from rackproof.harness.training.plan import Shape

BLOCK = (
    ("norm1.gain", "w"), ("norm1.bias", "w"), ("mix.weight", "w 3w"), ("mix.bias", "3w"),
    ("out.weight", "w w"), ("out.bias", "w"), ("norm2.gain", "w"), ("norm2.bias", "w"),
    ("up.weight", "w f"), ("up.bias", "f"), ("down.weight", "f w"), ("down.bias", "w"),
)  # fmt: skip

THREADED = Shape(layers=1, width=50, heads=2, feedforward=14)
"""A model that shows the number of BLAS threads: its weights differ between 1 and 2, its loss not.

With a micro_batch of 4, on a machine of two cores or more. The inner 700 of the MLP's second
product is what does it: OpenBLAS cuts so long a sum in one way alone and in another way among
threads. Seen with OpenBLAS 0.3.31 for each of its Haswell, Zen, SkylakeX, Cooperlake,
SapphireRapids, Sandybridge, Nehalem and Prescott kernels; replay.matters asks the machine at hand.
"""


class Part(NamedTuple):
    """One tensor of the model: its name, its shape, and where it lies in the flat vector."""

    name: str
    shape: tuple[int, ...]
    where: slice


def parts(shape: Shape) -> tuple[Part, ...]:
    """Return the tensors in the order in which they lie in the flat vector."""
    width, wide = shape.width, shape.width * shape.feedforward
    sizes = {"w": width, "3w": 3 * width, "f": wide}
    listed: list[tuple[str, tuple[int, ...]]]
    listed = [("embedding", (shape.vocabulary, width)), ("position", (shape.context, width))]
    for block in range(shape.layers):
        for word, letters in BLOCK:
            listed.append((f"block{block}.{word}", tuple(sizes[each] for each in letters.split())))
    listed += [("norm.gain", (width,)), ("norm.bias", (width,))]
    listed += [("head.weight", (width, shape.vocabulary)), ("head.bias", (shape.vocabulary,))]
    found, at = [], 0
    for name, form in listed:
        end = at + math.prod(form)
        found.append(Part(name, form, slice(at, end)))
        at = end
    return tuple(found)


def module(device: str) -> Any:
    """Return the array module of a plan's device, numpy or cupy.

    Raises DrillError where there is no cupy, or no GPU for it.
    """
    if device == "numpy":
        return np
    try:
        import cupy  # noqa: PLC0415  heavy, and absent where there is no GPU
    except ImportError as error:
        msg = "device = cupy needs CuPy: install rackproof[gpu-cuda12] or [gpu-cuda13]"
        raise DrillError(msg) from error
    if not cupy.cuda.is_available():
        msg = "device = cupy, and CuPy finds no GPU here"
        raise DrillError(msg)
    return cupy


def sound(shape: Shape) -> None:
    """Raise DrillError for a shape of which no transformer can be made."""
    whole = "layers width heads context vocabulary feedforward".split()
    for name in whole:
        if getattr(shape, name) < 1:
            msg = f"a model with {name} = {getattr(shape, name)} cannot be"
            raise DrillError(msg)
    if shape.width % shape.heads:
        msg = f"a width of {shape.width} cannot be shared by {shape.heads} heads"
        raise DrillError(msg)
    if not 0 <= shape.dropout < 1:
        msg = f"dropout = {shape.dropout}: a share of at least 0 and below 1"
        raise DrillError(msg)


class Model:
    """The transformer of a Shape. `dtype` is float32, or float64 to check the gradient itself."""

    __slots__ = ("dtype", "hidden", "names", "shape", "size", "xp")

    def __init__(self, shape: Shape, xp: Any = np, dtype: str = "float32") -> None:
        sound(shape)
        self.shape, self.xp, self.dtype = shape, xp, np.dtype(dtype)
        self.names: Sequence[Part] = parts(shape)
        self.size: int = self.names[-1].where.stop
        ahead = np.triu(np.full((shape.context, shape.context), -1e9, self.dtype), 1)
        self.hidden = xp.asarray(ahead)

    def initial(self, seed: int) -> Array:
        """Return the weights at step 0, [P]: even in ± sqrt(3 / inputs), gains 1 and biases 0."""
        flat = np.zeros(self.size, np.float64)
        for number, part in enumerate(self.names):
            size = math.prod(part.shape)
            if part.name.endswith("gain"):
                flat[part.where] = 1.0
            elif not part.name.endswith("bias"):
                drawn = chance.fractions(chance.WEIGHTS, seed, (number, 0, 0), size)
                inputs = part.shape[0] if part.name.endswith("weight") else part.shape[1]
                flat[part.where] = (drawn * 2 - 1) * math.sqrt(3 / inputs)
        return self.xp.asarray(flat.astype(self.dtype))

    def tensors(self, flat: Array) -> dict[str, Array]:
        """Return a view of `flat`, [P], for each tensor, by name."""
        return {part.name: flat[part.where].reshape(part.shape) for part in self.names}

    def gradient(
        self, weights: Array, tokens: Array, scale: Array, key: tuple[int, int, int]
    ) -> tuple[float, Array]:
        """Return the mean loss of a micro-shard in nats, and its gradient [P].

        `tokens` int [b, context + 1] are inputs and, one further, what is to be predicted; `scale`
        [b] is what each sample counts: NaN there makes both results NaN. `key` is (seed, step,
        micro-shard), by which dropout is drawn. The loss is the mean over samples and tokens of
        scale x cross entropy.
        """
        grad = self.xp.empty(self.size, self.dtype)
        one = _Pass(self, self.tensors(weights), self.tensors(grad), len(tokens))
        one.masks = self._masks(len(tokens), key)
        return one.run(self.xp.asarray(tokens), self.xp.asarray(scale)), grad

    def _masks(self, samples: int, key: tuple[int, int, int]) -> "list[Array | None]":
        """Return the masks of one pass, those of a block after each other: 0 or 1 / (1 - p)."""
        shape = self.shape
        rows, looks = (samples * shape.context, shape.width), (samples, shape.heads)
        forms = [rows, *[(*looks, shape.context, shape.context), rows, rows] * shape.layers]
        if not shape.dropout:
            return [None] * len(forms)
        seed, step, shard = key
        sizes = [math.prod(form) for form in forms]
        drawn = chance.halves(chance.DROPOUT, seed, (step, shard, 0), sum(sizes))
        kept = drawn >= round(shape.dropout * (1 << 16))
        flat = self.xp.asarray(np.multiply(kept, 1 / (1 - shape.dropout), dtype=self.dtype))
        found, at = [], 0
        for form, size in zip(forms, sizes, strict=True):
            found.append(flat[at : at + size].reshape(form))
            at += size
        return found


class _Pass:
    """One forward and backward pass; what the backward half needs lives as long as it does."""

    def __init__(
        self, model: Model, weights: Mapping[str, Array], grads: Mapping[str, Array], samples: int
    ) -> None:
        shape = model.shape
        self.xp, self.hidden, self.shape, self.dtype = model.xp, model.hidden, shape, model.dtype
        self.weights, self.grads = weights, grads
        self.sizes = layers.Sizes(samples, shape.context, shape.heads, shape.width // shape.heads)
        self.masks: list[Array | None] = []

    def run(self, tokens: Array, scale: Array) -> float:
        """Go through the model and back; the gradient is then complete. Return the loss."""
        xp, context = self.xp, self.shape.context
        kinds = xp.arange(self.shape.vocabulary, dtype=tokens.dtype)
        hot = (tokens[:, :, None] == kinds).astype(self.dtype)
        given = hot[:, :-1].reshape(-1, self.shape.vocabulary)
        wanted = hot[:, 1:].reshape(-1, self.shape.vocabulary)
        weight = xp.repeat(scale.astype(self.dtype), context)[:, None]
        weight *= 1.0 / weight.shape[0]

        x = self.weights["embedding"][tokens[:, :-1]] + self.weights["position"]
        x = self._dropped(x.reshape(given.shape[0], -1), self.masks[0])
        kept = []
        for block in range(self.shape.layers):
            x, saved = self._block(x, block)
            kept.append(saved)
        loss, grad = self._head(x, wanted, weight)
        for block in reversed(range(self.shape.layers)):
            grad = self._block_back(grad, block, kept.pop())
        grad = self._dropped(grad, self.masks[0])
        xp.matmul(given.T, grad, out=self.grads["embedding"])
        grad.reshape(-1, context, self.shape.width).sum(axis=0, out=self.grads["position"])
        return loss

    def _dropped(self, x: Array, mask: Array | None) -> Array:
        if mask is not None:
            x *= mask
        return x

    def _two(self, name: str, words: str = "weight bias") -> tuple[tuple[Array, Array], ...]:
        """Return two tensors of a part, and their gradients."""
        first, second = (f"{name}.{word}" for word in words.split())
        return (self.weights[first], self.weights[second]), (self.grads[first], self.grads[second])

    def _block(self, x: Array, number: int) -> tuple[Array, tuple[Any, ...]]:
        name, xp = f"block{number}", self.xp
        look, first, second = self.masks[1 + 3 * number : 4 + 3 * number]
        calm, norm1 = layers.norm(x, *self._two(f"{name}.norm1", "gain bias")[0], xp)
        mixed = layers.linear(calm, *self._two(f"{name}.mix")[0])
        seen, attended = layers.attention(mixed, look, self.hidden, self.sizes, xp)
        x = x + self._dropped(layers.linear(seen, *self._two(f"{name}.out")[0]), first)
        level, norm2 = layers.norm(x, *self._two(f"{name}.norm2", "gain bias")[0], xp)
        bent, curve = layers.gelu(layers.linear(level, *self._two(f"{name}.up")[0]), xp)
        x = x + self._dropped(layers.linear(bent, *self._two(f"{name}.down")[0]), second)
        return x, (calm, norm1, seen, attended, level, norm2, bent, curve)

    def _block_back(self, grad: Array, number: int, saved: tuple[Any, ...]) -> Array:
        name, xp = f"block{number}", self.xp
        look, first, second = self.masks[1 + 3 * number : 4 + 3 * number]
        calm, norm1, seen, attended, level, norm2, bent, curve = saved
        (down, _), into = self._two(f"{name}.down")
        branch = grad if second is None else grad * second
        branch = layers.gelu_back(layers.linear_back(branch, bent, down, into, xp), curve)
        (up, _), into = self._two(f"{name}.up")
        branch = layers.linear_back(branch, level, up, into, xp)
        (gain, _), into = self._two(f"{name}.norm2", "gain bias")
        grad = grad + layers.norm_back(branch, gain, norm2, into)
        (out, _), into = self._two(f"{name}.out")
        branch = grad if first is None else grad * first
        branch = layers.linear_back(branch, seen, out, into, xp)
        branch = layers.attention_back(branch, attended, look, self.sizes, xp)
        (mix, _), into = self._two(f"{name}.mix")
        branch = layers.linear_back(branch, calm, mix, into, xp)
        (gain, _), into = self._two(f"{name}.norm1", "gain bias")
        return grad + layers.norm_back(branch, gain, norm1, into)

    def _head(self, x: Array, wanted: Array, weight: Array) -> tuple[float, Array]:
        """Return the loss, and the gradient of the last block's result."""
        xp = self.xp
        (gain, bias), norm_into = self._two("norm", "gain bias")
        calm, saved = layers.norm(x, gain, bias, xp)
        (head, shift), into = self._two("head")
        loss, grad = layers.cross_entropy(layers.linear(calm, head, shift), wanted, weight, xp)
        grad = layers.linear_back(grad, calm, head, into, xp)
        return float(loss), layers.norm_back(grad, gain, saved, norm_into)
