"""The shipped suites: fixtures plus one judgement. The types of the two fixtures stand here."""

from collections.abc import Iterable
from typing import Protocol

from rackproof.harness.model import Seen


class Burning(Protocol):
    """The fixture `burn`: runs the item's burn on its subject and records what was seen."""

    def __call__(self) -> list[Seen]:
        """Burn, and again while it fails; return everything that was seen."""
        ...


class Judging(Protocol):
    """The fixture `judge`: fails, cannot judge, skips, or returns."""

    def __call__(self, seen: Iterable[Seen]) -> None:
        """Hold what was seen against the limits in force."""
        ...
