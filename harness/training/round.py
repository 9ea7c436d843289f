"""One step after the other: intent, gradients, mean, votes, commit.

In: answers of members. Out: a commit of all who take part, or the same step again under a new
epoch. keep-batch: what a lost member had is computed by the others. drop-batch: it is left out of
this step, and its micro-shards of the next ones until somebody sits in its slot. A sample that
gives no finite gradient on two members puts its shard of the data set in quarantine: the step goes
on with what the reserve gives instead.
"""

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from rackproof.harness.training.ballot import Ballot
from rackproof.harness.training.places import ACTIVE, Place
from rackproof.harness.training.reduce import mean
from rackproof.harness.training.shares import Shares, blocks, even

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from rackproof.harness.training.coordinator import Coordinator
    from rackproof.harness.training.data import DataState


class Round:
    """The step that is under way."""

    def __init__(self, run: "Coordinator") -> None:
        """No step yet."""
        self.run = run
        self.shares = Shares(run.plan.micro_shards)
        self.ballot: Ballot | None = None
        self.votes: dict[str, str] | None = None
        self.ids: tuple[tuple[int, ...], ...] = ()
        self.owners: dict[str, list[int]] = {}
        self.after: DataState | None = None
        self.saved = 0
        self.due = False
        self.loss = 0.0
        self.began = 0.0
        self._noted = -1
        self._drawn = 0  # the epoch in which the samples of this step were drawn

    @property
    def open(self) -> bool:
        """Whether a step is under way."""
        return self.ballot is not None

    @property
    def next(self) -> int:
        """The number of the step that is under way, from 1."""
        return self.run.step + 1

    # --- the beginning --------------------------------------------------------------------------
    def begin(self) -> None:
        """Begin the next step, or begin it again."""
        self.began = time.monotonic()
        self.votes = None
        assert self.run.data is not None  # noqa: S101 - a state was begun or taken over
        self.ids, self.after = self.run.data.batch(self.run.dataset)
        self._drawn = self.run.epoch
        self.owners = self._owned()
        shards = [shard for own in self.owners.values() for shard in own]
        self.ballot = Ballot(shards, self._audited(shards))
        for place in self.run.places.active:
            place.spent, place.count, place.sent = 0.0, 0, self.began
        self._intent()
        for name, own in list(self.owners.items()):  # one may be found to be gone when it is asked
            self._ask(self.run.places.all[name], own)
        if self.ballot is not None:
            self._fill()

    def _owned(self) -> dict[str, list[int]]:
        """Return which micro-shards each member computes."""
        names = [place.name for place in self.run.places.active]
        if self.run.plan.mode == "keep-batch":
            return blocks(self.shares.of(names), names)
        slots = self.run.places.slots
        own = blocks(even(slots, self.run.plan.micro_shards), slots)
        return {name: own[name] for name in names}

    def _audited(self, shards: list[int]) -> list[int]:
        match self.run.plan.audit:
            case "all":
                return shards
            case "one":
                return [shards[(self.next * 2654435761 + self.run.plan.seed) % len(shards)]]
            case _:
                return []

    def _intent(self) -> None:
        """Log who takes part and with what, before anything is reduced."""
        assert self.ballot is not None  # noqa: S101
        names = list(self.owners)
        if self._noted != self.run.epoch:
            self._noted = self.run.epoch
            own = {name: list(shards) for name, shards in self.owners.items()}
            self.run.diary.note("epoch", epoch=self.run.epoch, participants=names, shards=own)
        self.run.diary.note(
            "intent", epoch=self.run.epoch, step=self.next, participants=names,
            shards=self.ballot.shards, samples=self._samples(),
        )  # fmt: skip

    def _samples(self) -> list[int]:
        assert self.ballot is not None  # noqa: S101
        return [sample for shard in self.ballot.shards for sample in self.ids[shard]]

    def _ask(self, place: Place, shards: list[int], *, check: bool = False) -> None:
        if self.ballot is None or place.state != ACTIVE:
            return
        for shard in shards:
            self.ballot.ask(shard, place.name)
        work = [[shard, list(self.ids[shard])] for shard in shards]
        self.run.send(place, "work", epoch=self.run.epoch, step=self.next, shards=work, check=check)

    def _fill(self) -> None:
        """Ask for what is missing: second answers, and what lost members had."""
        assert self.ballot is not None  # noqa: S101
        active = self.run.places.active
        if not active:
            return
        asked: dict[str, list[int]] = {}
        for shard, known in self.ballot.missing():
            place = self._other(active, known, shard)
            asked.setdefault(place.name, []).append(shard)
        for name, shards in asked.items():
            self._ask(self.run.places.all[name], shards, check=True)

    @staticmethod
    def _other(active: list[Place], known: frozenset[str], shard: int) -> Place:
        """Return a member to ask, one that was not asked before where there is one."""
        turned = [active[(shard + 1 + n) % len(active)] for n in range(len(active))]
        return next((place for place in turned if place.name not in known), turned[0])

    # --- answers --------------------------------------------------------------------------------
    def gradient(self, place: Place, head: dict[str, Any], payload: bytearray) -> None:
        """Take a member's gradient of a micro-shard of this step."""
        if self.ballot is None or head.get("step") != self.next or place.state != ACTIVE:
            return
        if int(head.get("epoch", -1)) < self._drawn:  # asked before a quarantine: other samples
            return
        place.spent += float(head["seconds"])
        place.count += 1
        answer = (place.name, payload, float(head["loss"]), bool(head["finite"]))
        self.ballot.answer(int(head["shard"]), answer, [int(i) for i in head["bad"]])
        if not self.ballot.waits_for(place.name) and place.count:
            link = time.monotonic() - place.sent - place.spent
            self.shares.learn(place.name, place.spent / place.count, max(link, 0.0))

    def turn(self) -> None:
        """Go on as far as the answers allow."""
        if self.ballot is None:
            return
        if self.votes is None:
            self._suspicions()
            if self.ballot.poisoned:
                self._quarantine()
            elif self.ballot.done and self.run.places.active:
                self._reduce()
            else:
                self._fill()
        elif len(self.votes) >= len(self.run.places.active):
            self._count()

    def _suspicions(self) -> None:
        assert self.ballot is not None  # noqa: S101
        suspicions, self.ballot.suspicions = self.ballot.suspicions, []
        for each in suspicions:
            self.run.diary.note(
                "suspect", member=each.member, step=self.next, shard=each.shard, why=each.why
            )
            place = self.run.places.all[each.member]
            if len(self.run.places.active) > 1:
                self.run.lose(place, "suspect")

    def _quarantine(self) -> None:
        """Put the shards of poisoned samples out of use, and begin the step again without them."""
        assert self.ballot is not None  # noqa: S101
        assert self.run.data is not None  # noqa: S101
        bad = sorted(self.ballot.poisoned)
        for shard in sorted({self.run.dataset.shard_of(sample) for sample in bad}):
            self.run.data = self.run.data.quarantine(shard)
            own = [sample for sample in bad if self.run.dataset.shard_of(sample) == shard]
            self.run.diary.note("quarantine", shard=shard, step=self.next, samples=own)
        self.run.epoch += 1
        self.begin()

    def _reduce(self) -> None:
        """Take the mean, in the order of micro-shards, and ask for votes."""
        assert self.ballot is not None  # noqa: S101
        chosen = self.ballot.chosen()
        gradients: list[NDArray[np.float32]] = [
            np.frombuffer(answer[1], np.float32) for answer in chosen
        ]
        self.loss = float(np.mean([answer[2] for answer in chosen]))
        total = mean(gradients)
        self.votes = {}
        for place in self.run.places.active:
            self.run.send(place, "reduce", total.data.cast("B"), epoch=self.run.epoch)

    def vote(self, place: Place, head: dict[str, Any]) -> None:
        """Take a member's vote."""
        current = head.get("epoch") == self.run.epoch and head.get("step") == self.next
        if self.votes is not None and current and place.state == ACTIVE:
            self.votes[place.name] = str(head["digest"])

    # --- the end --------------------------------------------------------------------------------
    def leave(self, place: Place) -> None:
        """A member is lost while a step is under way."""
        self.shares.forget(place.name)
        if self.saved < self.run.step:
            self.due = True  # it may have been the one that was writing the checkpoint
        if self.ballot is None:
            return
        if self.votes is not None:
            self._again("a vote failed")
        elif self.run.plan.mode == "drop-batch":
            self.ballot.drop(self.owners.pop(place.name, []))
            if self.owners:
                self._intent()
            else:
                self._again("nobody is left in it")
        else:
            self.ballot.leave(place.name, forget=True)
            self.owners.pop(place.name, None)
            left = self.ballot.missing()
            for turn, (shard, _) in enumerate(left):
                if self.owners:
                    list(self.owners.values())[turn % len(self.owners)].append(shard)
            if self.owners:
                self._intent()

    def _again(self, why: str) -> None:
        """Discard the step; it is begun again with the same samples."""
        self.run.diary.note("discarded", epoch=self.run.epoch, step=self.next, why=why)
        self.ballot = self.votes = None
        self.run.epoch += 1
        for place in self.run.places.active:
            self.run.send(place, "discard")

    def _count(self) -> None:
        """Commit where all voted for one digest; whoever has another one is lost."""
        assert self.votes is not None  # noqa: S101
        digests = list(self.votes.values())
        first = max(dict.fromkeys(digests), key=digests.count)
        if digests.count(first) * 2 <= len(digests) and len(set(digests)) > 1:
            self._again("no digest has a majority")
            for name in list(self.votes or ()):
                self.run.lose(self.run.places.all[name], "wrong-digest")
            return
        odd = [name for name, digest in self.votes.items() if digest != first]
        if odd:
            for name in odd:
                self.run.diary.note("suspect", member=name, step=self.next, why="differs")
                self.run.lose(self.run.places.all[name], "wrong-digest")
            return  # losing one discards the step
        self._commit(first)

    def _commit(self, digest: str) -> None:
        assert self.ballot is not None  # noqa: S101
        assert self.after is not None  # noqa: S101
        plan, samples = self.run.plan, self._samples()
        self.run.step, self.run.digest, self.run.data = self.next, digest, self.after
        step = self.run.step
        active = self.run.places.active
        names, shards = [place.name for place in active], self.ballot.shards
        save = step % plan.every == 0 or step == plan.steps or self.due
        self.run.diary.note(
            "step", step=step, epoch=self.run.epoch, loss=self.loss, samples=samples,
            participants=names, shards=shards, digest=digest,
            seconds=round(time.monotonic() - self.began, 6),
        )  # fmt: skip
        self.ballot = self.votes = None
        self.due = False
        self.run.handover.stale()
        for turn, place in enumerate(active):
            self.run.send(
                place, "commit", epoch=self.run.epoch, step=step, digest=digest, loss=self.loss,
                samples=samples, data=self.run.data.as_json(), save=save and turn == 0,
            )  # fmt: skip
        self._learn(names)

    def _learn(self, names: list[str]) -> None:
        """Say who is behind the others, and share anew where that pays."""
        if self.run.plan.mode != "keep-batch" or set(names) != {
            place.name for place in self.run.places.active
        }:
            return
        for name, why, factor in self.shares.slow(names):
            self.run.diary.note("slow", member=name, why=why, factor=factor)
        if self.shares.improve(names):
            self.run.epoch += 1
            self.run.diary.note("reslot", shards=dict(self.shares.of(names)))
