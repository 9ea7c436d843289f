"""What the retests of a run showed: their own readings, held against the same limits as all others.

In: the record with its retests, and the limits in force. Out: for a root's group of failed checks
the outcomes of the retests that were run for it. Nothing that an earlier judgement concluded is
read: a run struck when a metric that failed before was outside again, where it was looked for.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rackproof.diagnostics.evidence import Record, Retested, gpu_of
from rackproof.diagnostics.groups import Group
from rackproof.diagnostics.limits import Limits
from rackproof.diagnostics.peers import Key, Runs, Scale, gather, peer_limits
from rackproof.diagnostics.retest.model import Outcome, Test
from rackproof.harness.model import item_of


def _moved(subject: str, root: str, other: str) -> str:
    """Return what `subject` is called on the GPU `other`, where it is of the root's GPU."""
    gpu = gpu_of(root)
    if other and gpu_of(subject) == gpu:
        return gpu_of(other) + subject[len(gpu) :]
    return subject


@dataclass(frozen=True, slots=True)
class Retests:
    """The retests of one run, by the root and the cause that they were run for.

    `pasts` gives (earlier cases, in hours) by serial number, as other runs tell of them.
    """

    of_root: Mapping[tuple[str, str], Sequence[Retested]]
    found: Mapping[Key, Runs]
    scale: Scale
    wide: frozenset[str]
    pasts: Mapping[str, tuple[int, float]]

    @classmethod
    def of(cls, record: Record, limits: Limits) -> "Retests | None":
        """Return the retests that were finished; None where there is none, nor a past."""
        if not record.retests and not record.pasts:
            return None
        by_root: dict[tuple[str, str], list[Retested]] = defaultdict(list)
        for each in record.retests:
            by_root[each.root, each.cause].append(each)
        head = record.head
        peers = peer_limits(head, gather(record.planned()))
        wide = frozenset(planned.burn for planned in head.plan if planned.wide)
        return cls(by_root, gather(record), Scale.of(head, limits, peers), wide, record.pasts)

    def outcomes(self, group: Group) -> tuple[Outcome, ...]:
        """Return the outcomes of a group's retests, in order; those that read nothing are none."""
        told = (
            self.outcome(group, each)
            for each in self.of_root.get((group.subject, group.cause), ())
            if each.test in set(Test)
        )
        return tuple(outcome for outcome in told if outcome.runs)

    def outcome(self, group: Group, retest: Retested) -> Outcome:
        """Return what one retest of a group showed."""
        test = Test(retest.test)
        keys = [
            (check.id, check.subject, check.metric)
            for check in group.telling() if check.id == retest.burn
        ]  # fmt: skip
        away = retest.other if test in (Test.ELSEWHERE, Test.SWAP) else ""
        there = [(burn, _moved(s, group.subject, away), metric) for burn, s, metric in keys]
        ran = self._struck(there, retest.ran)
        if test is not Test.SWAP:
            return Outcome(test, len(ran), sum(ran))
        stayed = self._struck(keys, retest.stayed)
        runs = min(len(ran), len(stayed))
        return Outcome(test, runs, sum(ran[:runs]), sum(stayed[:runs]))

    def _struck(self, keys: Iterable[Key], attempts: Sequence[tuple[str, int]]) -> list[bool]:
        """Return for each attempt that read any of `keys` whether one of them was outside."""
        keys, found = list(keys), []
        for item, attempt in attempts:
            own = [k for k in keys if item_of(k[1], wide=k[0] in self.wide) == item]
            read = [(k, self.found[k].values[attempt]) for k in own
                    if k in self.found and attempt in self.found[k].values]  # fmt: skip
            if read:
                found.append(any(
                    not limit.allows(value)
                    for key, values in read for limit in self.scale.layers(key) for value in values
                ))  # fmt: skip
        return found
