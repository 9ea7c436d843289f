"""Was a matrix product right? Freivalds' check, independent of what computed the product.

In: operands and the C that a device returned. Out: the largest residual as a ratio of what healthy
rounding can make, the rows beyond it, NaN and Inf counted, and the elements at fault: the same
check by columns crosses the wrong rows, and each crossing is computed again. Works on NumPy and
CuPy arrays alike: the array module is passed in as `xp`.

The check (R. Freivalds, Probabilistic machines can use less running time, IFIP 1977): draw x of
+-1, compare C x with A (B x) in float64, in O(n^2). Here x comes in 16 pieces: X has a column for
each sixteenth of C's columns, with the signs there and 0 elsewhere. One wrong element enters one
residual in full; it cannot cancel.

The bound. A healthy C is A B + E, and the residual of row i and group g is the sum of E_ij x_j over
the group. Operands have random signs, so a partial sum of c_ij grows like the 2-norm of its
products, not like their sum, and its roundings are independent: with the most generous reading,
in which each of the n steps rounds the whole of c_ij, var(E_ij) <= u^2 n sum_k A_ik^2 B_kj^2. The
signs in x make the variances of a group add up, hence
    bound_ig = 6 sqrt(n) u sqrt(sum_k A_ik^2 ||B_kg||^2),   ||B_kg|| the 2-norm of row k of B in g.
The standard deviation of a plain running sum is 0.07 of it (partial sums grow, which halves the
variance, and a rounding is u / sqrt(3) of its sum). The worst-case bound n u sum |A||B| sees
nothing: at n = 2048 not even a doubled element. In exchange this bound holds for operands of random
sign, such as those of `operands`, and not for any.

What it sees: c_ij is about sqrt(sum_k A_ik^2 B_kj^2), so the bound is 6 n u / 4 of the row's rms
|c| (6 n u without the groups), and a relative error d of c_ij is seen where |c_ij| is above
1.5 n u / d of the rms. `detectable` says it for the median element.

Measured with NumPy (OpenBLAS, operands of this module), errors put into one random element:
    n     inputs  products  alarms  largest ratio   found at 0.1   0.06    2**-8   detectable
    256   fp32    2100      0       0.32            1.000          0.9999  0.9965  5.2e-5
    2048  fp32    2100      0       0.12            0.9990         0.9976  0.9610  4.1e-4
    256   bf16    2000      0       0.03            0.9990         0.9985  0.9820  2.1e-4
    256   fp16    2000      0       0.08            0.9995         0.9990  0.9825  2.1e-4
    256   fp8     2000      0       0.00            0.6585         0.4520  0       1.1e-1
(fp32: 8400 errors of each size at n = 256, 2100 at 2048; the rest 2000. tf32 is as fp16. NumPy adds
the narrow formats up in fp32, the bound allows for tensor cores: their ratio on silicon is larger
and was not measured.) What is missed are elements that are small beside their row.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rackproof.harness.devices.patterns import ALL, GOLDEN, MIX_1, MIX_2
from rackproof.harness.devices.precisions import precision

SIGMAS = 6.0
BLOCK_ROWS = 1024  # rows that are held in float64 at a time
GROUPS = 16  # of columns of C, each with a residual of its own
SAMPLE_ROWS = 64  # rows from which `detectable` takes its medians
HEALTHY = 0.5  # of the bound: more than any healthy residual that was measured
SIGNS = 0x5167  # Philox streams of one key: x, and the operands' exponents
SCALES = 0x5CA1
# By format, how far the exponents of rows and of the inner index spread to each side: with the
# 3 that an element adds, within the normal numbers of the narrowest.
SPREADS = {"fp16": (3, 5), "fp8": (1, 2)}
WIDE = (16, 16)
CROSSINGS = 8  # rows, and columns, that are looked into for the element
Shape = tuple[int, int, int]
DIPS = 2  # bits of an element's own exponent, downwards


@dataclass(frozen=True, slots=True)
class Operands:
    """A (m, n) and B (n, p), fp32 arrays whose values the format `precision` can hold."""

    a: Any
    b: Any
    precision: str


@dataclass(frozen=True, slots=True)
class Residual:
    """What one check of a product showed.

    ratio: the largest |residual| / bound, in `row`; `rows_wrong` rows have one above 1;
    nonfinite: elements that are NaN or Inf.
    """

    ratio: float
    row: int
    rows_wrong: int
    nonfinite: int

    @property
    def wrong(self) -> bool:
        """Say whether the product is wrong."""
        return self.rows_wrong > 0 or self.nonfinite > 0


@dataclass(frozen=True, slots=True)
class WrongElement:
    """One element of C, what it is, and what it should be (in float64)."""

    row: int
    column: int
    actual: float
    expected: float


def operands(xp: Any, shape: int | Shape, key: int, name: str = "fp32") -> Operands:
    """Return fresh random A (m, n), B (n, p) for the precision `name`, the same for one key.

    `shape` is (m, n, p), or one order for all three.

    Signs are random, magnitudes spread over three bits, and exponents widely by row of A and, in
    opposite senses, by column of A and row of B: the inputs span the format (2**+-35 in fp32),
    while all products of one element of C weigh about the same, so that none hides the others.
    Bits come from splitmix64 (devices/patterns.py) on the device, scales from Philox on the host:
    both are the same bits on every plane.
    """
    form = precision(name)
    m, n, p = (shape, shape, shape) if isinstance(shape, int) else shape
    wide_rows, wide_inner = SPREADS.get(name, WIDE)
    draw = np.random.Generator(np.random.Philox(key=[key & ALL, SCALES]))
    rows = xp.asarray(draw.integers(-wide_rows, wide_rows, m, endpoint=True, dtype=np.int32))
    inner = xp.asarray(draw.integers(-wide_inner, wide_inner, n, endpoint=True, dtype=np.int32))
    bits = _bits(xp, n * max(m, p), key)
    low = (bits[: m * n] & xp.uint64(0xFFFFFFFF)).astype(xp.uint32).reshape(m, n)
    high = (bits[: n * p] >> xp.uint64(32)).astype(xp.uint32).reshape(n, p)
    a = _floats(xp, low, rows[:, None] + inner[None, :], form.significand)
    b = _floats(xp, high, -inner[:, None], form.significand)
    return Operands(a, b, name)


def freivalds(xp: Any, given: Operands, c: Any, key: int) -> Residual:
    """Check C (m, p) against A B, with the x that `key` draws; ValueError for a wrong shape.

    A key that the operands' own draw used is fine: x comes from a stream of its own.
    """
    if c.shape != (given.a.shape[0], given.b.shape[1]):
        msg = f"the product of {given.a.shape} and {given.b.shape} has no shape {c.shape}"
        raise ValueError(msg)
    ratios, nonfinite = _residuals(xp, given, c, key)
    row = int(xp.argmax(ratios))
    return Residual(float(ratios[row]), row, int((ratios > 1).sum()), nonfinite)


def _residuals(xp: Any, given: Operands, c: Any, key: int) -> tuple[Any, int]:
    """Return each row's largest |residual| / bound, (m,), and how many elements are not finite."""
    a, b = given.a, given.b
    draw = np.random.Generator(np.random.Philox(key=[key & ALL, SIGNS]))
    x = _grouped(xp, draw.integers(0, 2, b.shape[1]) * 2.0 - 1.0)
    bx, norms = _summed(xp, b, x)
    found, nonfinite = [], 0
    for top in range(0, len(a), BLOCK_ROWS):
        part = a[top : top + BLOCK_ROWS].astype(xp.float64)
        got = c[top : top + BLOCK_ROWS]
        finite = xp.isfinite(got)
        nonfinite += got.size - int(finite.sum())
        got = xp.where(finite, got, 0).astype(xp.float64)
        off = xp.abs(got @ x - part @ bx)
        limit = _limit(xp, part, norms, given.precision)
        # Zeros have the bound 0, and only 0 is right there.
        ratio = off / xp.where(limit > 0, limit, 1.0)
        found.append(xp.where((limit == 0) & (off > 0), np.inf, ratio).max(axis=1))
    return xp.concatenate(found), nonfinite


def detectable(xp: Any, given: Operands, c: Any) -> float:
    """Return the smallest relative error of a typical element of C that the check surely sees.

    Typical: the row's median |c|, and the median over 64 rows; with a margin for the healthy
    residual that may work against it.
    """
    step = -(-len(c) // SAMPLE_ROWS)
    _, norms = _summed(xp, given.b, _grouped(xp, np.ones(given.b.shape[1])))
    limit = _limit(xp, given.a[::step].astype(xp.float64), norms, given.precision).max(axis=1)
    typical = xp.median(xp.abs(c[::step]).astype(xp.float64), axis=1)
    return float(xp.median((1 + HEALTHY) * limit / typical))


def locate(xp: Any, given: Operands, c: Any, key: int) -> Sequence[WrongElement]:
    """Return the wrong elements of C, the worst first, at most CROSSINGS^2 of them.

    Row checksums name rows and column checksums columns; where they cross, the element is computed
    again in float64 and is wrong beyond 6 sqrt(n) u sqrt(sum_k A_ik^2 B_kj^2), or when it is not
    finite. Rows are scaled by powers of two for the columns' check, so that no row hides another.
    """
    strange = ~xp.isfinite(c)
    rows = _worst(xp, _residuals(xp, given, c, key)[0], strange.any(axis=1))
    largest = xp.abs(given.a).max(axis=1)
    scale = xp.ldexp(xp.ones(len(given.a), xp.float32), -xp.frexp(largest)[1])[:, None]
    turned = Operands(given.b.T, (given.a * scale).T, given.precision)
    columns = _worst(xp, _residuals(xp, turned, (c * scale).T, key)[0], strange.any(axis=0))
    found = [e for i in rows for e in [_element(xp, given, c, (i, j)) for j in columns] if e]
    return [element for _, element in sorted(found, key=lambda pair: -pair[0])]


def _worst(xp: Any, ratios: Any, strange: Any) -> list[int]:
    """Return the indices of what is wrong, the worst first, at most CROSSINGS."""
    ratios = xp.where(strange, np.inf, ratios)
    order = [int(i) for i in xp.argsort(-ratios)[:CROSSINGS]]
    return [i for i in order if float(ratios[i]) > 1]


def _element(
    xp: Any, given: Operands, c: Any, at: tuple[int, int]
) -> tuple[float, WrongElement] | None:
    """Return how wrong an element is, over its bound, and the element; None when it is right."""
    row, column = at
    products = given.a[row].astype(xp.float64) * given.b[:, column].astype(xp.float64)
    expected, actual = float(products.sum()), float(c[row, column])
    unit = precision(given.precision).unit
    limit = SIGMAS * unit * float(xp.sqrt(len(products) * (products * products).sum()))
    off = abs(actual - expected) if np.isfinite(actual) else np.inf
    if off <= limit:
        return None
    return off / limit if limit else np.inf, WrongElement(row, column, actual, expected)


def digest(xp: Any, c: Any) -> str:
    """Return 16 hexadecimal digits of C's bits and their places: equal for equal products.

    A sum modulo 2^64 of every 32-bit word times an odd number of its place.
    """
    total = 0
    weights = xp.arange(c.shape[1], dtype=xp.uint64) * xp.uint64(2 * GOLDEN & ALL) + xp.uint64(1)
    for top in range(0, len(c), BLOCK_ROWS):
        words = xp.ascontiguousarray(c[top : top + BLOCK_ROWS]).view(xp.uint32).astype(xp.uint64)
        rows = xp.arange(top, top + len(words), dtype=xp.uint64) * xp.uint64(2) + xp.uint64(1)
        total += int(((words * weights).sum(axis=1) * rows).sum())
    return f"{total & ALL:016x}"


def _grouped(xp: Any, signs: Any) -> Any:
    """Return X (p, groups): the signs of each group of neighbouring columns in its own column."""
    columns = np.arange(len(signs))
    x = np.zeros((len(signs), min(GROUPS, len(signs))))
    x[columns, columns * x.shape[1] // len(signs)] = signs
    return xp.asarray(x)


def _summed(xp: Any, b: Any, x: Any) -> tuple[Any, Any]:
    """Return B X and the squared 2-norms of B's rows by group, both (n, groups) in float64."""
    products, norms = [], []
    for top in range(0, len(b), BLOCK_ROWS):
        part = b[top : top + BLOCK_ROWS].astype(xp.float64)
        products.append(part @ x)
        part *= part
        norms.append(part @ xp.abs(x))
    return xp.concatenate(products), xp.concatenate(norms)


def _limit(xp: Any, a: Any, norms: Any, name: str) -> Any:
    """Return the bound of each row of `a` (float64) and each group."""
    scale = SIGMAS * float(np.sqrt(a.shape[1])) * precision(name).unit
    return scale * xp.sqrt((a * a) @ norms)


def _bits(xp: Any, count: int, key: int) -> Any:
    """Return `count` words of splitmix64, from the state that `key` gives."""
    z = xp.arange(count, dtype=xp.uint64)
    z += xp.uint64((GOLDEN * ((key & ALL) + 1)) & ALL)
    for shift, factor in ((30, MIX_1), (27, MIX_2)):
        z ^= z >> xp.uint64(shift)
        z *= xp.uint64(factor)
    z ^= z >> xp.uint64(31)
    return z


def _floats(xp: Any, bits: Any, exponents: Any, significand: int) -> Any:
    """Return fp32 numbers +-1.f * 2**(exponent - dip) from 32 random bits each."""
    sign = bits & xp.uint32(1 << 31)
    dip = (bits >> xp.uint32(23)) & xp.uint32((1 << DIPS) - 1)
    kept = ((1 << (significand - 1)) - 1) << (24 - significand)
    biased = (exponents + 127).astype(xp.uint32) - dip
    return (sign | biased << xp.uint32(23) | bits & xp.uint32(kept)).view(xp.float32)
