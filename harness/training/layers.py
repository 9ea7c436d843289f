"""The parts of the transformer, forward and backward, as plain functions of arrays.

In: activations [n, width], where n = samples x context, and weights. Out of a forward part: the
result and what the backward part needs; out of a backward part: the gradient of its input, while
those of its weights are written into views of the flat gradient. Each is made of few array calls
whose order is fixed, so the bits depend on the values, the library and its threads alone. `xp` is
numpy or cupy.
"""

from dataclasses import dataclass
from typing import Any

Array = Any  # of numpy or of cupy, in the model's dtype

TINY = 1e-5  # added to the variance in a layer norm
ROOT = 0.7978845608028654  # sqrt(2 / pi)
CUBIC = 0.044715  # both of GELU's tanh form (Hendrycks and Gimpel, arXiv:1606.08415)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one pass: samples, context, heads, and units of a head."""

    samples: int
    context: int
    heads: int
    units: int


def norm(x: Array, gain: Array, bias: Array, xp: Any) -> tuple[Array, tuple[Array, Array]]:
    """Normalise each row (Ba et al., arXiv:1607.06450)."""
    share = 1.0 / x.shape[-1]
    even = x - x.sum(axis=-1, keepdims=True) * share
    spread = (even * even).sum(axis=-1, keepdims=True) * share
    inverse = 1.0 / xp.sqrt(spread + TINY)
    even *= inverse
    result = even * gain
    result += bias
    return result, (even, inverse)


def norm_back(
    grad: Array, gain: Array, saved: tuple[Array, Array], into: tuple[Array, Array]
) -> Array:
    """Return the gradient of x; those of gain and bias go to `into`."""
    even, inverse = saved
    share = 1.0 / grad.shape[-1]
    product = grad * even
    product.sum(axis=0, out=into[0])
    grad.sum(axis=0, out=into[1])
    product *= gain
    pull = product.sum(axis=-1, keepdims=True) * share
    result = grad * gain
    mean = result.sum(axis=-1, keepdims=True) * share
    result -= mean
    result -= even * pull
    result *= inverse
    return result


def linear(x: Array, weight: Array, bias: Array) -> Array:
    """Return x @ weight + bias."""
    result = x @ weight
    result += bias
    return result


def linear_back(grad: Array, x: Array, weight: Array, into: tuple[Array, Array], xp: Any) -> Array:
    """Return the gradient of x; those of weight and bias go to `into`."""
    xp.matmul(x.T, grad, out=into[0])
    grad.sum(axis=0, out=into[1])
    return grad @ weight.T


def gelu(x: Array, xp: Any) -> tuple[Array, tuple[Array, Array]]:
    """Return GELU in its tanh form."""
    inner = x * x
    inner *= CUBIC
    inner += 1.0
    inner *= x
    inner *= ROOT
    bend = xp.tanh(inner)
    result = bend + 1.0
    result *= x
    result *= 0.5
    return result, (x, bend)


def gelu_back(grad: Array, saved: tuple[Array, Array]) -> Array:
    """Return the gradient of x."""
    x, bend = saved
    slope = x * x
    slope *= 3.0 * CUBIC
    slope += 1.0
    slope *= ROOT
    steep = bend * bend
    steep -= 1.0
    steep *= x
    slope *= steep  # minus x (1 - tanh²) times the inner slope
    slope -= bend
    slope -= 1.0
    slope *= -0.5
    slope *= grad
    return slope


def attention(
    mixed: Array, mask: Array | None, hidden: Array, sizes: Sizes, xp: Any
) -> tuple[Array, tuple[Array, ...]]:
    """Causal attention of all heads over `mixed`, the queries, keys and values [n, 3 width].

    `hidden` [context, context] is 0 where a token may look, and very negative where not; `mask`
    drops out attention, or is None.
    """
    shape = (sizes.samples, sizes.context, 3, sizes.heads, sizes.units)
    query, key, value = mixed.reshape(shape).transpose(2, 0, 3, 1, 4)
    share = query @ key.swapaxes(-1, -2)
    share *= sizes.units**-0.5
    share += hidden
    share -= share.max(axis=-1, keepdims=True)
    xp.exp(share, out=share)
    share /= share.sum(axis=-1, keepdims=True)
    kept = share if mask is None else share * mask
    result = xp.empty((sizes.samples, sizes.context, sizes.heads, sizes.units), mixed.dtype)
    result[...] = (kept @ value).transpose(0, 2, 1, 3)
    flat = result.reshape(mixed.shape[0], -1)
    return flat, (query, key, value, share, kept)


def attention_back(
    grad: Array, saved: tuple[Array, ...], mask: Array | None, sizes: Sizes, xp: Any
) -> Array:
    """Return the gradient of `mixed`."""
    query, key, value, share, kept = saved
    samples, context, heads, units = sizes.samples, sizes.context, sizes.heads, sizes.units
    heading = grad.reshape(samples, context, heads, units).transpose(0, 2, 1, 3)
    result = xp.empty((3, samples, heads, context, units), grad.dtype)
    xp.matmul(kept.swapaxes(-1, -2), heading, out=result[2])
    slope = heading @ value.swapaxes(-1, -2)
    if mask is not None:
        slope *= mask
    slope *= share
    slope -= share * slope.sum(axis=-1, keepdims=True)
    slope *= units**-0.5
    xp.matmul(slope, key, out=result[0])
    xp.matmul(slope.swapaxes(-1, -2), query, out=result[1])
    return xp.ascontiguousarray(result.transpose(1, 3, 0, 2, 4)).reshape(samples * context, -1)


def cross_entropy(scores: Array, wanted: Array, weight: Array, xp: Any) -> tuple[Array, Array]:
    """Return the loss, a scalar, and its gradient by `scores` [n, vocabulary].

    `wanted` [n, vocabulary] is 1 at the right token and 0 elsewhere; `weight` [n, 1] holds what
    each row counts. The loss is the sum of weight x cross entropy.
    """
    even = scores - scores.max(axis=-1, keepdims=True)
    grad = xp.exp(even)
    total = grad.sum(axis=-1, keepdims=True)
    rows = xp.log(total)
    rows -= (even * wanted).sum(axis=-1, keepdims=True)
    rows *= weight
    grad /= total
    grad -= wanted
    grad *= weight
    return rows.sum(), grad
