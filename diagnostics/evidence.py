"""The record of a run as objects: what was planned, what was seen, what was settled.

It is the seam between acting and judging: `judge` needs nothing else, so a run can be judged again
with no hardware. Reading and writing the lines is reports' business.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rackproof.harness.model import WIDE, Event, Seen, item_of

SCHEMA = "rackproof.record/1"


@dataclass(frozen=True, slots=True)
class Planned:
    """One burn of the plan. `owes` maps a sort of subject to the metrics that it owes there.

    `wide` says that it works on the whole rack at once: one item, whatever it owes.
    """

    burn: str
    owes: Mapping[str, Sequence[str]]
    seconds: float = 0.0
    wide: bool = False


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of a record: what was to be burnt, and the limits in force.

    `gpus` maps each GPU's subject to its SKU; `links` is how many NVLinks each has (None:
    unknown); `limits` is the plain form of diagnostics.limits.Limits; `today` is the date (ISO)
    on which the run began, against which waivers are held; `absent` names the metrics that the
    platform's spec says do not exist there; `domain` is how many GPUs one NVLink domain has;
    `switches` is how many NVSwitches each rack has (None: not said). `around` maps the sorts of
    what stands around the GPUs (nic, power, shelf, cooling) to the planned subjects; `skipped` maps
    burns that this rack cannot have to the reason; `metrics` are those that do not come with
    rackproof, each as a plain table. The plan is run in `rounds`, to fill `lasting` seconds;
    `left_out` maps burns that did not fit into `budget` seconds to the reason; `allowed` are the
    burns that may change settings of real GPUs; `retest_budget` is the device time, in seconds,
    that retests may take after the plan.
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
    around: Mapping[str, Sequence[str]] = field(default_factory=dict)
    skipped: Mapping[str, str] = field(default_factory=dict)
    metrics: Sequence[Mapping[str, Any]] = ()
    rounds: int = 1
    lasting: float | None = None
    budget: float | None = None
    left_out: Mapping[str, str] = field(default_factory=dict)
    allowed: Sequence[str] = ()
    retest_budget: float | None = None

    def subjects(self, sort: str) -> list[str]:
        """Return the planned subjects of a sort of SORTS."""
        if sort == "gpu":
            return list(self.gpus)
        if sort == "host":
            return list(self.hosts)
        if sort == "link":
            return [f"{gpu}/link{n:02d}" for gpu in self.gpus for n in range(self.links or 0)]
        if sort == "fabric":
            return [WIDE]
        if sort in SORTS:
            return list(self.around.get(sort, ()))
        msg = f"no subjects of sort {sort!r}"
        raise ValueError(msg)

    def items(self, planned: Planned) -> list[str]:
        """Return the items of a burn: what it is run on, once each."""
        owing = (subject for sort in planned.owes for subject in self.subjects(sort))
        return list(dict.fromkeys(item_of(subject, wide=planned.wide) for subject in owing))

    def item_of(self, burn: str, subject: str) -> str:
        """Return the item of a burn that `subject` is burnt with."""
        wide = any(planned.wide for planned in self.plan if planned.burn == burn)
        return item_of(subject, wide=wide)


SORTS = ("gpu", "link", "host", "nic", "power", "shelf", "cooling", "fabric")
Settled = tuple[str, str, int]
RUNS = 3
"""Runs in all of a burn whose check failed, from the first failure on."""


@dataclass(frozen=True, slots=True)
class Retested:
    """A retest that was run: which attempts of `burn` belong to it, by (item, attempt).

    `root` and `cause` name the diagnosis that it was run for, `test` is a word of retest.Test.
    `stayed` are the attempts at the old place, for a swap alone. `other` is the other GPU, of
    ELSEWHERE the one that was burnt, of SWAP the one whose place the root's GPU took for a while: a
    burn of the whole rack has one item, and saw both of its places in one attempt. What the
    attempts saw stands in the record like all else; they weigh nothing in the verdict. `seconds` is
    the device time that it took, `why` the words of its choice.
    """

    test: str
    root: str
    cause: str
    burn: str
    ran: Sequence[tuple[str, int]]
    stayed: Sequence[tuple[str, int]] = ()
    seconds: float = 0.0
    other: str = ""
    why: str = ""

    @property
    def attempts(self) -> frozenset[Settled]:
        """Return its attempts as (burn, item, attempt), those at the old place included."""
        return frozenset((self.burn, *which) for which in (*self.ran, *self.stayed))


@dataclass(frozen=True, slots=True)
class Record:
    """All that is known of a run. `settled` holds (check, subject, attempt) of finished attempts.

    `ended` says that the run came to its end; `problems` what was wrong with the lines; `turns`
    gives the round (from 1) of those attempts that were not of the first; `retests` are those that
    were run after the plan, in order. Those that were `begun` and not finished prove nothing, and
    their attempts are none of the plan's. `aside` is what the driver said while retests ran.
    `pasts` gives (earlier cases, in hours) of serial numbers that other runs tell of.
    """

    head: Head
    seen: Sequence[Seen]
    settled: frozenset[Settled]
    ended: bool = True
    problems: Sequence[str] = ()
    turns: Mapping[Settled, int] = field(default_factory=dict)
    retests: Sequence[Retested] = ()
    begun: Sequence[Retested] = ()
    aside: Sequence[Event] = ()
    pasts: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    def planned(self) -> "Record":
        """Return the record of the plan and its repeated runs alone, which the verdict rests on."""
        apart = frozenset(key for each in (*self.retests, *self.begun) for key in each.attempts)
        if not apart:
            return self
        burns = {burn for burn, _, _ in apart}
        wide = {planned.burn for planned in self.head.plan if planned.wide}

        def own(what: Seen) -> bool:
            if isinstance(what, Event) or what.check not in burns:
                return True
            item = item_of(what.subject, wide=what.check in wide)
            return (what.check, item, what.attempt) not in apart

        seen = [what for what in self.seen if own(what)]
        turns = {key: turn for key, turn in self.turns.items() if key not in apart}
        return replace(self, seen=seen, settled=self.settled - apart, turns=turns)

    def finished(self) -> dict[tuple[str, str], set[int]]:
        """Return the finished attempts by check and item; none while a round of it is still due."""
        found: dict[tuple[str, str], set[int]] = defaultdict(set)
        turns: dict[tuple[str, str], set[int]] = defaultdict(set)
        for burn, item, attempt in self.settled:
            found[burn, item].add(attempt)
            turns[burn, item].add(self.turns.get((burn, item, attempt), 1))
        rounds = self.head.rounds
        return {key: done for key, done in found.items() if len(turns[key]) >= rounds}


def gpu_of(subject: str) -> str:
    """Return the GPU that a link belongs to, and any other subject as it is."""
    head, sign, last = subject.rpartition("/")
    return head if sign and last.startswith("link") else subject
