"""What one step still waits for: answers to its micro-shards, and what they are worth. Pure.

In: which members were asked and what they answered. Out: a gradient for each micro-shard, who gave
a wrong one, and which samples give no finite one. A micro-shard that is audited has two answers,
bit for bit equal; where they differ a third decides. A gradient that is not finite is asked of
another member: finite there means that the first is suspect, not finite again that the samples are.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

Answer = tuple[str, bytearray, float, bool]  # member, gradient, loss, whether it is finite


@dataclass(frozen=True, slots=True)
class Suspicion:
    """A member whose gradient of a micro-shard others refute: `why` is nan or differs."""

    member: str
    shard: int
    why: str


@dataclass(slots=True)
class _Shard:
    need: int
    asked: list[str] = field(default_factory=list)  # who still has to answer, in order
    answers: list[Answer] = field(default_factory=list)
    bad: set[int] = field(default_factory=set)
    chosen: Answer | None = None


class Ballot:
    """One step: `audited` micro-shards need two answers."""

    def __init__(self, shards: Iterable[int], audited: Iterable[int] = ()) -> None:
        """Wait for nothing yet: see `missing`."""
        twice = frozenset(audited)
        self._shards = {shard: _Shard(2 if shard in twice else 1) for shard in shards}
        self.suspicions: list[Suspicion] = []
        self.poisoned: set[int] = set()

    @property
    def shards(self) -> list[int]:
        """The micro-shards of the step, in order."""
        return sorted(self._shards)

    def missing(self) -> list[tuple[int, frozenset[str]]]:
        """Return the micro-shards that need one more member asked, and who was asked already."""
        found = []
        for number in self.shards:
            shard = self._shards[number]
            if shard.chosen is None and len(shard.asked) + len(shard.answers) < shard.need:
                known = frozenset((*shard.asked, *(answer[0] for answer in shard.answers)))
                found.append((number, known))
        return found

    def ask(self, shard: int, member: str) -> None:
        """Note that a member was asked."""
        self._shards[shard].asked.append(member)

    def waits_for(self, member: str) -> bool:
        """Say whether a member still has to answer."""
        return any(member in shard.asked for shard in self._shards.values())

    def answer(self, number: int, answer: Answer, bad: Iterable[int]) -> None:
        """Take an answer; one that nobody waits for is dropped."""
        shard = self._shards.get(number)
        if shard is None or answer[0] not in shard.asked:
            return
        shard.asked.remove(answer[0])
        shard.answers.append(answer)
        shard.bad.update(bad)
        if shard.chosen is None and len(shard.answers) >= shard.need:
            self._weigh(number, shard)

    def leave(self, member: str, *, forget: bool = False) -> None:
        """A member is lost: what it was asked is missing; `forget` drops its answers as well."""
        for shard in self._shards.values():
            shard.asked = [name for name in shard.asked if name != member]
            if forget:
                shard.answers = [each for each in shard.answers if each[0] != member]
                if shard.chosen is not None and shard.chosen[0] == member:
                    shard.chosen = None

    def drop(self, shards: Iterable[int]) -> None:
        """Go on without some micro-shards: drop-batch."""
        for number in shards:
            self._shards.pop(number, None)

    @property
    def done(self) -> bool:
        """Whether every micro-shard has its gradient."""
        return all(shard.chosen is not None for shard in self._shards.values())

    def chosen(self) -> Sequence[Answer]:
        """Return the answers that count, in the order of micro-shards; only when `done`."""
        found = [self._shards[number].chosen for number in self.shards]
        return [answer for answer in found if answer is not None]

    def _weigh(self, number: int, shard: _Shard) -> None:
        """Choose the gradient of a micro-shard from its answers, or ask for one more."""
        finite = [answer for answer in shard.answers if answer[3]]
        if not finite:
            if len(shard.answers) < 2:  # noqa: PLR2004 - no answer counts against itself
                shard.need = 2
            else:
                self.poisoned |= shard.bad
            return
        for answer in shard.answers:
            if not answer[3]:
                self.suspicions.append(Suspicion(answer[0], number, "nan"))
        if len(finite) < len(shard.answers) or len(finite) == 1:
            shard.chosen = finite[0]
            return
        equal = {bytes(a[1]): [b for b in finite if b[1] == a[1]] for a in finite}
        most = max(equal.values(), key=len)
        if len(most) * 2 <= len(finite) or (len(equal) > 1 and len(finite) < 3):  # noqa: PLR2004
            shard.need = len(shard.answers) + 1
            return
        shard.chosen = most[0]
        for answer in finite:
            if answer[1] != most[0][1]:
                self.suspicions.append(Suspicion(answer[0], number, "differs"))
