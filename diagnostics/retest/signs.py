"""What a case begins with: Signs of a root in the record of a run, and of a case in files.

In: a Group of failed checks with what was said there, or a Case of episodes. Out: Signs. The
evidence itself may hold outcomes: a fault that comes again after a boot is a failed reboot.
"""

from collections.abc import Sequence
from itertools import pairwise

from rackproof.diagnostics.cases import Case
from rackproof.diagnostics.episodes import lives
from rackproof.diagnostics.evidence import Head
from rackproof.diagnostics.groups import Group
from rackproof.diagnostics.retest.model import Outcome, Signs, Test
from rackproof.diagnostics.retest.tables import value
from rackproof.diagnostics.rules.xid import cause_of
from rackproof.harness.model import Event

HOUR = 3600.0
_BURN = 60.0  # seconds, of a burn whose time nobody planned
_RESETS = frozenset(("reset-gpu", "reboot-node"))
_LASTS = frozenset(("wrong-part",))  # a part of another SKU stays one


def boots(case: Case) -> set[object]:
    """Return the boots in which a case's root was told of, as far as the files tell them apart."""
    return lives(said for episode in case.root for said in episode.said)


def incidents(case: Case) -> int:
    """Return how often a case's root came, more than an hour apart."""
    times = sorted(episode.first for episode in case.root if episode.first is not None)
    return 1 + sum(later - one > HOUR for one, later in pairwise(times))


def of_case(case: Case, earlier: int | None = None, hours: float = 0.0) -> Signs:
    """Return the signs of a case in files; `earlier` cases of its serial in the `hours` before."""
    again = len(boots(case)) - 1
    rules = [said.rule for episode in case.root for said in episode.said]
    return Signs(
        case.rule.component,
        case.rule.kind,
        case.root[0].family if case.root else "",
        max((rule.prior for rule in rules), default=case.rule.prior),
        incidents=incidents(case),
        alike=max(0, len(case.victims()) - 1) if case.outside else 0,
        known=(Outcome(Test.REBOOT, again, again),) if again > 0 else (),
        earlier=earlier,
        hours=hours,
        waits=case.rule.action in _RESETS,
    )


def _prior(group: Group, events: Sequence[Event]) -> float:
    if group.cause in _LASTS:
        return value("priors.toml", "outlasts", "terminal")
    codes = [event.code for event in events if event.code.startswith("xid.")]
    return cause_of(codes).prior if codes else value("priors.toml", "outlasts", "burn")


def _family(group: Group) -> str:
    """Return the group's cause; of a core that computes right and only slowly, ``slow``."""
    wrong = any(metric.endswith((".wrong", ".digest")) for metric in group.metrics)
    return "slow" if group.component == "sm" and not wrong else group.cause


def of_group(
    head: Head, group: Group, runs: tuple[int, int], events: Sequence[Event] = (), burn: str = ""
) -> Signs:
    """Return the signs of a root in a run's record.

    `runs` are (failed, passed) of the burns that tell how lasting it is, before any retest;
    `events` what was said on its subject; `burn` the one to run again, else the shortest.
    """
    took = {planned.burn: planned.seconds for planned in head.plan}
    own = [took[check.id] for check in group.checks if took.get(check.id)]
    seconds = took.get(burn) or min(own, default=0.0)
    kind = "driver" if group.component == "driver" else "hardware"
    return Signs(
        group.component,
        "terminal" if "remap.failure" in group.metrics else kind,
        _family(group),
        _prior(group, events),
        failed=runs[0],
        passed=runs[1],
        burn_seconds=seconds or _BURN,
        waits=cause_of(event.code for event in events).action in _RESETS,
    )
