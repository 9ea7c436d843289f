"""How an emulated copy's bytes spread over links: arithmetic over many copies at once.

In: what each link can carry, and who copies to whom. Out: how many links' worth each copy gets,
its bytes by link, the noise of both, and the words that are really sent and compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rackproof.harness.devices.emulated.draw import Noise
from rackproof.harness.spec import RackSpec
from rackproof.harness.topology import switch_of

WORDS = 64
"""Words of 64 bits that are really sent and compared in each copy."""
UNEVEN = 0.003
"""How unevenly a copy falls on its links, one standard deviation: assumed."""
FLIPPED = np.uint64(1 << 17)
"""The bit that is wrong in a spoilt word; any would do."""
_GOLDEN, _MIX_1, _MIX_2 = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)

Indices = npt.NDArray[np.intp]
Numbers = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Routes:
    """Which links end at one switch. `ends` is (links, switches) of 0 and 1, alike for all GPUs."""

    links: int
    ends: Numbers

    @classmethod
    def of(cls, spec: RackSpec) -> "Routes":
        """Return the routes of a rack; without switches any link reaches any GPU (assumed)."""
        first = spec.gpus[0]
        names = [str(switch_of(spec, first, link)) for link in range(spec.links)]
        known = list(dict.fromkeys(names))
        return cls(spec.links, np.array([[name == s for s in known] for name in names], float))

    def width(self, capacity: Numbers, a: Indices, b: Indices) -> Numbers:
        """Return (copies, switches): the links' worth that goes through each switch."""
        through = capacity @ self.ends
        return np.minimum(through[a], through[b])

    def split(self, capacity: Numbers, width: Numbers, end: Indices, noise: Numbers) -> Numbers:
        """Return (copies, links): the share of each copy that crosses each link of its `end`."""
        own = capacity[end]
        through = (own @ self.ends) @ self.ends.T  # by link: what all links to its switch carry
        share = (width @ self.ends.T) * np.divide(own, through, out=own * 0.0, where=through > 0.0)
        share *= noise
        shares: Numbers = share / share.sum(axis=1, keepdims=True)
        return shares


@dataclass(frozen=True, slots=True)
class LinkNoise:
    """Factors around 1 of copies: of their rates, and of their links at either end."""

    rate: Numbers
    out: Numbers
    into: Numbers

    @classmethod
    def of(cls, keys: Sequence[int], links: int) -> "LinkNoise":
        """Return the noise that 64 bits name for each copy."""
        drawn = normals(keys, 1 + 2 * links)
        rate, out, into = np.split(drawn, [1, 1 + links], axis=1)
        return cls(1.0 + Noise.SIGMA * rate[:, 0], 1.0 + UNEVEN * out, 1.0 + UNEVEN * into)


def normals(keys: Sequence[int], count: int) -> Numbers:
    """Return `count` standard normal numbers for each key, cut at Noise.CUT (Box and Muller)."""
    states = np.array(keys, np.uint64)[:, None]
    steps: Words = _GOLDEN * np.arange(1, 2 * count + 1, dtype=np.uint64)
    bits = _mixed(states + steps)
    uniform = ((bits >> np.uint64(11)) + 0.5) * 2.0**-53
    radius = np.sqrt(-2.0 * np.log(uniform[:, :count]))
    found: Numbers = radius * np.cos(2.0 * np.pi * uniform[:, count:])
    return found.clip(-Noise.CUT, Noise.CUT)


def sent(seed: int, senders: Indices) -> Words:
    """Return (copies, WORDS): what each sender sends, a pure function of seed and sender."""
    states: Words = senders.astype(np.uint64) << np.uint64(32)
    states += np.uint64(seed % (1 << 64))
    return _mixed(_GOLDEN * np.add.outer(states, np.arange(1, WORDS + 1, dtype=np.uint64)))


def arrived(words: Words, spoils: Sequence[int]) -> Words:
    """Return what arrives of `words`: the first `spoils` of each copy with a bit flipped."""
    for row, count in zip(words, spoils, strict=True):
        if count:
            row[:count] ^= FLIPPED
    return words


def _mixed(state: Words) -> Words:
    """Return splitmix64's output for its states (Steele, Lea, Flood, OOPSLA 2014)."""
    state = (state ^ state >> np.uint64(30)) * _MIX_1
    state = (state ^ state >> np.uint64(27)) * _MIX_2
    return state ^ state >> np.uint64(31)
