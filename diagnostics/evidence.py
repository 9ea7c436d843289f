"""The record of a run as objects: what was planned, what was seen, what was settled.

It is the seam between acting and judging: `judge` needs nothing else, so a run can be judged again
with no hardware. Reading and writing the lines is reports' business.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rackproof.harness.model import Seen

SCHEMA = "rackproof.record/1"


@dataclass(frozen=True, slots=True)
class Planned:
    """One burn of the plan. `owes` maps a sort of subject (gpu, link, host) to its metrics."""

    burn: str
    owes: Mapping[str, Sequence[str]]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a record: what was to be burnt, and the limits in force.

    `gpus` maps each GPU's subject to its SKU; `links` is how many NVLinks each has (None:
    unknown); `limits` is the plain form of diagnostics.limits.Limits; `today` is the date (ISO)
    on which the run began, against which waivers are held; `absent` names the metrics that the
    platform's spec says do not exist there; `domain` is how many GPUs one NVLink domain has;
    `switches` is how many NVSwitches each rack has (None: not said).
    """

    rack: str
    source: str
    seed: int
    level: str
    verb: str
    gpus: Mapping[str, str]
    hosts: Sequence[str]
    links: int | None
    plan: Sequence[Planned]
    limits: Mapping[str, Any]
    today: str
    versions: Mapping[str, str] = field(default_factory=dict)
    absent: Sequence[str] = ()
    domain: int | None = None
    switches: int | None = None

    def subjects(self, sort: str) -> list[str]:
        """Return the planned subjects of a sort: gpu, link, host."""
        if sort == "gpu":
            return list(self.gpus)
        if sort == "host":
            return list(self.hosts)
        if sort == "link":
            return [f"{gpu}/link{n:02d}" for gpu in self.gpus for n in range(self.links or 0)]
        msg = f"no subjects of sort {sort!r}"
        raise ValueError(msg)


SORTS = ("gpu", "link", "host")
Settled = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class Record:
    """All that is known of a run. `settled` holds (check, subject, attempt) of finished attempts.

    `ended` says that the run came to its end; `problems` what was wrong with the lines.
    """

    head: Head
    seen: Sequence[Seen]
    settled: frozenset[Settled]
    ended: bool = True
    problems: Sequence[str] = ()


def gpu_of(subject: str) -> str:
    """Return the GPU that a link belongs to, and any other subject as it is."""
    head, sign, last = subject.rpartition("/")
    return head if sign and last.startswith("link") else subject


def sort_of(subject: str) -> str:
    """Return the sort of a subject in a rack: gpu, link, host, switch, nic and so on."""
    return subject.rpartition("/")[2].rstrip("0123456789")
