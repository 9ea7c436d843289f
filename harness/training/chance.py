"""All chance of a training run: counter-based Philox, keyed by what it is for and where it is used.

A stream is a pure function of (purpose, seed, place), so what was drawn before, by whom, and in
which process never matters: a micro-shard that is computed again on another replica gets the same
masks. Philox4x64-10 (Salmon et al., SC'11, doi:10.1145/2063384.2063405) as numpy has it: the key is
(seed, purpose), the counter's upper three words are the place, and the lowest is counted up from 0.
Two places never share a number before 2**64 blocks were drawn. Only raw words are used, because
numpy promises their stream for good, and that of its distributions not (NEP 19).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

WEIGHTS, DROPOUT, ORDER, CONTENT = 1, 2, 3, 4
PURPOSES = {"weights": WEIGHTS, "dropout": DROPOUT, "order": ORDER, "content": CONTENT}
WORD = 1 << 64


def words(purpose: int, seed: int, place: tuple[int, int, int], count: int) -> NDArray[np.uint64]:
    """Return the first `count` words, uint64[count], of the stream at `place`."""
    key = np.array([seed % WORD, purpose], np.uint64)
    counter = np.array([0, *(each % WORD for each in place)], np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(count)


def halves(purpose: int, seed: int, place: tuple[int, int, int], count: int) -> NDArray[np.uint16]:
    """Return uint16[count]: four numbers of each word, the lowest first."""
    drawn = words(purpose, seed, place, -(-count // 4))
    return drawn.astype("<u8", copy=False).view("<u2")[:count]


def fractions(
    purpose: int, seed: int, place: tuple[int, int, int], count: int
) -> NDArray[np.float64]:
    """Return float64[count], evenly spread in [0, 1): the upper 53 bits of each word."""
    upper = words(purpose, seed, place, count) >> np.uint64(11)
    return upper.astype(np.float64) * 2.0**-53


def facts(seed: int, step: int) -> dict[str, Any]:
    """Return the rng field of a checkpoint after `step`, as JSON: all that the streams need."""
    return {"philox": {"version": 1, "seed": seed, "step": step, "purposes": PURPOSES}}
