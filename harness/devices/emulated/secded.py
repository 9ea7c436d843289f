"""SECDED over 64 + 8 bits: single errors corrected, double errors detected.

In: a 64-bit word, or a stored 72-bit code word (data in bits 0-63, check bits in 64-71). Out: the
code word, or what a read makes of one. The code is Hsiao's odd-weight-column code (M. Y. Hsiao,
A class of optimal minimum odd-weight-column SEC-DED codes, IBM J. Res. Dev. 14, 1970): the data
columns are the 56 bytes of weight 3 and then the first 8 of weight 5, each in ascending order; the
check columns have weight 1. The code of real HBM is not published; this one has the same promise,
and like every such code it may miscorrect three or more wrong bits, silently.
"""

from enum import Enum

CHECK_SHIFT = 64
CODE_BITS = 72
DATA = (1 << 64) - 1
CODE = (1 << CODE_BITS) - 1

COLUMNS = tuple(
    [byte for byte in range(256) if byte.bit_count() == 3]  # noqa: PLR2004 - the code's weights
    + [byte for byte in range(256) if byte.bit_count() == 5][:8]  # noqa: PLR2004
)
# ROWS[r]: the data bits whose parity is check bit r.
ROWS = tuple(
    sum(1 << bit for bit, column in enumerate(COLUMNS) if column >> row & 1) for row in range(8)
)
# The bit that a syndrome names, for the 72 syndromes that a single wrong bit makes.
BIT_OF = {column: bit for bit, column in enumerate(COLUMNS)} | {
    1 << row: CHECK_SHIFT + row for row in range(8)
}


class Outcome(Enum):
    """What a read did with a code word."""

    CLEAN = "clean"
    CORRECTED = "corrected"
    UNCORRECTED = "uncorrected"


def _checks(data: int) -> int:
    return sum(((data & mask).bit_count() & 1) << row for row, mask in enumerate(ROWS))


def encode(data: int) -> int:
    """Return the 72-bit code word of a 64-bit word."""
    return _checks(data) << CHECK_SHIFT | data


def decode(code: int) -> tuple[int, Outcome]:
    """Return the data that a read of `code` gives, and what it did.

    An uncorrectable word comes back as it is stored. A corrected one may be wrong when three or
    more bits were.
    """
    data = code & DATA
    syndrome = _checks(data) ^ code >> CHECK_SHIFT
    if syndrome == 0:
        return data, Outcome.CLEAN
    bit = BIT_OF.get(syndrome)
    if bit is None:
        return data, Outcome.UNCORRECTED
    return (data ^ 1 << bit) & DATA if bit < CHECK_SHIFT else data, Outcome.CORRECTED
