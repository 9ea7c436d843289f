"""Random numbers by name: each is a pure function of the words that name it.

No stream is shared, so a result depends neither on the order in which GPUs and burns run nor on
where a run was taken up again. What comes from a rack's identity is named by it, what comes from
the seed by the seed.
"""

import hashlib
from statistics import NormalDist

_NORMAL = NormalDist()
_WORD = 1 << 64

Name = str | int


def word(*name: Name) -> int:
    """Return 64 random bits."""
    return int.from_bytes(octets(8, *name), "little")


def octets(size: int, *name: Name) -> bytes:
    """Return `size` random bytes, at most 64."""
    text = "\x1f".join(map(str, name)).encode()
    return hashlib.blake2b(text, digest_size=size).digest()


def uniform(*name: Name) -> float:
    """Return a number in (0, 1)."""
    return (word(*name) + 0.5) / _WORD


def below(bound: int, *name: Name) -> int:
    """Return a whole number in [0, bound); the bias is under bound / 2**64."""
    return word(*name) * bound >> 64


def normal(cut: float, *name: Name) -> float:
    """Return a standard normal number, given that it lies within `cut` standard deviations."""
    edge = _NORMAL.cdf(-cut)
    return _NORMAL.inv_cdf(edge + (1.0 - 2.0 * edge) * uniform(*name))


class Noise:
    """The noise of one GPU's readings: factors around 1, named by run, reading and count."""

    SIGMA = 0.003
    CUT = 3.0

    def __init__(self, seed: int, subject: str) -> None:
        self._seed = seed
        self._subject = subject
        self.run: tuple[str, int] = ("", 0)
        self._counts: dict[str, int] = {}

    def begin(self, check: str, attempt: int) -> None:
        """Name the run that the next readings belong to, and count them from 0 again."""
        self.run = (check, attempt)
        self._counts.clear()

    def factor(self, reading: str) -> float:
        """Return the next factor for `reading`: sigma 0.3 %, cut at three times that."""
        return 1.0 + self.SIGMA * normal(self.CUT, "noise", *self._next(reading))

    def key(self, what: str) -> int:
        """Return the next 64 random bits for `what`."""
        return word("key", *self._next(what))

    def _next(self, reading: str) -> tuple[Name, ...]:
        count = self._counts.get(reading, 0)
        self._counts[reading] = count + 1
        return (self._seed, self._subject, *self.run, reading, count)
