"""Who takes part in a training job, and what we looked at ourselves: the words of every layer.

They stand on this floor, so that a job, which acts, can use them without knowing who judges it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Member:
    """A process of a job; `role` is replica, spare or coordinator, `subject` its GPU."""

    name: str
    role: str
    pid: int | None = None
    subject: str = ""
    region: str = ""


class Outcome(str):
    """A problem that tells how a job ended, or was given up: no line is unread for it."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """A fact: `what` and `fields` as in diagnostics.recovery.record.Fact, `at` monotonic s."""

    what: str
    fields: Mapping[str, Any]
    at: float
