"""Causes that lie outside of the nodes that tell of them, and health that is told twice.

Episodes come in; what many nodes of a cluster have in the same second, or in one table without
times, is one cause, and lies in what they share: the controller or its configuration. The health
that a parent rolls up from its parts says nothing more where a part of that machine is told of.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from rackproof.diagnostics.cases import Case
from rackproof.diagnostics.episodes import Clock, Episode

# Three nodes within a second have no faults of their own by chance: node failures are a few a year.
FEWEST, SECOND = 3, 1.0
_WIDE = ("slurm-", "kube-")
_OWN = frozenset(("slurm-job", "slurm-oom"))
_ROLLUP = "bmc-rollup"


def _runs(group: list[Episode]) -> list[list[Episode]]:
    """Part a group where more than a second lies between one and the next."""
    group.sort(key=Episode.order)
    runs = [[group[0]]]
    for before, one in pairwise(group):
        apart = None if before.first is None or one.first is None else one.first - before.first
        if apart is not None and apart > SECOND:
            runs.append([])
        runs[-1].append(one)
    return runs


def _case(run: list[Episode]) -> Case:
    lead = min(run, key=Episode.order).lead
    action = lead.rule.action if lead.rule.action == "watch" else "retest"
    rule = replace(lead.rule, action=action, kind="watch")
    return Case("", "host", rule, [], run, "host")


def common(found: Sequence[Episode]) -> tuple[list[Episode], list[Case]]:
    """Return the episodes that stand for themselves, and a case for each common cause."""
    ill = {e.machine for e in found if e.family.startswith("bmc-") and e.family != _ROLLUP}
    rest = [e for e in found if e.family != _ROLLUP or e.machine not in ill]
    groups: dict[tuple[str, Clock], list[Episode]] = defaultdict(list)
    for episode in rest:
        if episode.family.startswith(_WIDE) and episode.family not in _OWN:
            groups[episode.family, episode.clock].append(episode)
    runs = [run for group in groups.values() for run in _runs(group)]
    taken = [_case(run) for run in runs if len({e.machine for e in run}) >= FEWEST]
    gone = {id(e) for case in taken for e in case.tied}
    return [e for e in rest if id(e) not in gone], taken
