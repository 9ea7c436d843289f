"""The number formats of matrix products: what their inputs can hold, and how well they add up.

In: the name of a precision. Out: significand and exponent limits of its inputs, inputs rounded to
them (held as fp32, which contains every one of these formats), and the unit roundoff u of the
sums, on which the bound of the result oracle rests. C is fp32 in all of them.
"""

from dataclasses import dataclass
from typing import Any

from rackproof.harness.errors import Unsupported


@dataclass(frozen=True, slots=True)
class Precision:
    """A format of inputs: significand bits with the hidden one, exponents of normal numbers.

    `unit` is the u of the bound in burns/oracle.py: the relative error of one accumulation step.
    """

    name: str
    significand: int
    least_exponent: int
    greatest_exponent: int
    largest: float
    unit: float


# u: fp32 FMA units round to nearest, 2**-24 (IEEE 754). Tensor cores add in fp32 with truncation
# after aligning the addends of a block (Fasi, Higham, Mikaitis, Pranesh, Numerical behavior of
# NVIDIA tensor cores, PeerJ Comput. Sci. 7:e330, 2021): 2**-23, and once more twice that for the
# bias of truncation. For fp8 Hopper keeps about 14 bits of the aligned sum (DeepSeek-V3 technical
# report, section 3.3.2, 2024): 2**-13.
TENSOR = 2.0**-22
PRECISIONS = {
    p.name: p
    for p in (
        Precision("fp32", 24, -126, 127, (2 - 2.0**-23) * 2.0**127, 2.0**-24),
        Precision("tf32", 11, -126, 127, (2 - 2.0**-10) * 2.0**127, TENSOR),
        Precision("bf16", 8, -126, 127, (2 - 2.0**-7) * 2.0**127, TENSOR),
        Precision("fp16", 11, -14, 15, 65504.0, TENSOR),
        Precision("fp8", 4, -6, 8, 448.0, 2.0**-13),  # e4m3: OCP 8-bit floating point, rev. 1.0
    )
}


def precision(name: str) -> Precision:
    """Return the precision of that name; Unsupported when there is none."""
    found = PRECISIONS.get(name)
    if found is None:
        msg = f"no matrix product in {name!r}: known are {', '.join(PRECISIONS)}"
        raise Unsupported(msg)
    return found


def _held(xp: Any, a: Any, form: Precision) -> bool:
    """Say whether every element is a normal number or zero of the format already."""
    below = xp.uint32((1 << (24 - form.significand)) - 1)
    if bool((a.view(xp.uint32) & below).any()):
        return False
    if a.size == 0:
        return True
    size = xp.abs(a)
    least = xp.where(size > 0, size, xp.float32(form.largest)).min()
    # A NaN compares false, and takes the long way.
    return bool(size.max() <= form.largest and least >= 2.0**form.least_exponent)


def rounded(xp: Any, a: Any, name: str) -> Any:
    """Return fp32 array `a` rounded to nearest, ties to even, in the format `name`, as fp32.

    Subnormals of the format are kept and values beyond its largest are clamped to it (the
    saturating conversion of fp8); NaN stays NaN.
    """
    form = precision(name)
    if form.significand == PRECISIONS["fp32"].significand or _held(xp, a, form):
        return a
    exponent = xp.frexp(a)[1] - 1
    step = xp.maximum(exponent, form.least_exponent) - (form.significand - 1)
    near = xp.ldexp(xp.rint(xp.ldexp(a.astype(xp.float64), -step)), step)
    return xp.clip(near, -form.largest, form.largest).astype(xp.float32)
