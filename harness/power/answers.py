"""What a controller of power answers, as the process that asked has it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rackproof.harness.power.dimmer.words import Act
from rackproof.harness.power.lines import Object, unpacked
from rackproof.harness.power.zone import Array


@dataclass(frozen=True, slots=True)
class Ordered:
    """What was asked for a job: caps from `low` to `high` W of `gpus` GPUs, `held` of them by it.

    The job is "" for GPUs that are of none.
    """

    job: str
    low: float
    high: float
    gpus: int
    held: int


@dataclass(frozen=True, slots=True)
class Differs:
    """A GPU that reads `got` W as its limit in force after `asked` W were asked for."""

    gpu: str
    asked: float
    got: float


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why `gpus` GPUs, of which `first` is the first, could not be read or set. It is said once."""

    why: str
    gpus: int
    first: str


@dataclass(frozen=True, slots=True)
class Ticked:
    """What came of one tick at the moment `at`; the next is due at the latest at `due`.

    `seconds` are the machine's, which the decision alone took. `load` is what each feed carried, as
    the controller knows it, W (NaN: not known). `differ` names the first 16.
    """

    at: float
    due: float
    seconds: float
    load: Array
    orders: tuple[Ordered, ...]
    acts: tuple[Act, ...]
    differ: tuple[Differs, ...]
    unread: tuple[Trouble, ...]
    refused: tuple[Trouble, ...]


@dataclass(frozen=True, slots=True)
class Stopped:
    """The end of a controller: how many limits it put back, and what went wrong with others."""

    restored: int
    problem: str = ""


def ticked(answer: Object) -> Ticked:
    """Return the answer to a tick; KeyError, TypeError or ValueError where it is none."""
    due = answer["due"]
    return Ticked(
        at=float(answer["at"]),
        due=math.inf if due is None else float(due),
        seconds=float(answer["seconds"]),
        load=unpacked(answer["load"], len(answer["load"])),
        orders=tuple(Ordered(**each) for each in answer["orders"]),
        acts=tuple(_act(each) for each in answer["acts"]),
        differ=tuple(Differs(**each) for each in answer["differ"]),
        unread=tuple(Trouble(**each) for each in answer["unread"]),
        refused=tuple(Trouble(**each) for each in answer["refused"]),
    )


def _act(body: Mapping[str, Any]) -> Act:
    fields = {name: math.nan if v is None else float(v) for name, v in body["fields"].items()}
    return Act(**{**body, "fields": fields})
