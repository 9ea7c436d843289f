"""Where in its data a training run is: a pure function from a state to a batch and the next state.

The epoch's order is a permutation of the samples that are not in reserve, and `offset` counts how
many of its positions were consumed, over all replicas: not what was fetched ahead. Who computes
what is no part of it, so no change of membership can repeat or lose a sample. A step that was
discarded is simply asked for again from the same state; a restart goes on from the state in the
checkpoint.

A position whose sample lies in a quarantined shard takes the next sample of the reserve instead, in
the order of positions, by ascending id, passing over quarantined shards of the reserve; so a
reserve sample is used at most once in an epoch, and every epoch begins with the whole reserve. What
was consumed before a quarantine stays consumed. When a position finds the reserve empty there is no
batch (DrillError): no sample is ever used twice in an epoch.

A quarantine inside a step is ``state.quarantine(shard).batch(dataset)`` from the state before the
step. Positions of the shard get other samples, and so may later positions that were already on
reserve; compare the ids to know which micro-shards are to be computed again. Shards may be
quarantined in any order: the batch depends on their set.
"""

import functools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackproof.harness.errors import DrillError
from rackproof.harness.training import chance
from rackproof.harness.training.dataset import DataSet, poisoned_sample
from rackproof.harness.training.plan import Plan

__all__ = ["Batch", "DataSet", "DataState", "due", "order", "perm"]

Batch = tuple[tuple[int, ...], ...]
"""Sample ids of a step: for each micro-shard, in order, those of its samples."""


@functools.lru_cache(maxsize=8)
def perm(seed: int, epoch: int, count: int) -> NDArray[np.int64]:
    """Return the order of an epoch, int64[count], read-only: 0 … count - 1, each once.

    Positions in the order of 64-bit words of Philox at (ORDER, seed, epoch), equal words by place.
    """
    drawn = chance.words(chance.ORDER, seed, (epoch, 0, 0), count)
    found = np.argsort(drawn, kind="stable")
    found.flags.writeable = False
    return found


@dataclass(frozen=True, slots=True)
class DataState:
    """Before a step: what was consumed, and of what.

    `digest` of the data set · `epoch`, and `offset` in it, in samples · `shuffle`, the seed of the
    orders · `micro_shards` (V) of `micro_batch` samples make a step · `quarantined` shards,
    ascending · `reserve`: how many places of the reserve this epoch has used or passed over.
    """

    digest: str
    epoch: int
    offset: int
    shuffle: int
    micro_shards: int
    micro_batch: int
    quarantined: tuple[int, ...] = ()
    reserve: int = 0

    @classmethod
    def initial(cls, dataset: DataSet, plan: Plan) -> "DataState":
        """Return the state before the first step."""
        return cls(dataset.digest, 0, 0, plan.seed, plan.micro_shards, plan.micro_batch)

    def batch(self, dataset: DataSet) -> "tuple[Batch, DataState]":
        """Return the samples of this step, and the state after it.

        Raises DrillError where `dataset` is another one, or the reserve is empty.
        """
        if dataset.digest != self.digest:
            msg = "this data state is of another data set: their digests differ"
            raise DrillError(msg)
        if self.offset >= dataset.counts.main:
            msg = f"an offset of {self.offset}, where an epoch has {dataset.counts.main} samples"
            raise DrillError(msg)
        ids: list[int] = []
        state = self
        while len(ids) < self.micro_shards * self.micro_batch:
            more, state = state._stretch(dataset, self.micro_shards * self.micro_batch - len(ids))
            ids += more
        size = self.micro_batch
        cut = tuple(tuple(ids[at : at + size]) for at in range(0, len(ids), size))
        return cut, state

    def _stretch(self, dataset: DataSet, most: int) -> "tuple[list[int], DataState]":
        """Return at most so many next samples of this epoch, and the state after them."""
        count = dataset.counts.main
        end = min(self.offset + most, count)
        ids = [int(each) for each in perm(self.shuffle, self.epoch, count)[self.offset : end]]
        reserve = self.reserve
        if self.quarantined:
            barred = frozenset(self.quarantined)
            for place, sample in enumerate(ids):
                if dataset.shard_of(sample) in barred:
                    ids[place], reserve = _instead(dataset, barred, reserve)
        if end == count:
            return ids, replace(self, epoch=self.epoch + 1, offset=0, reserve=0)
        return ids, replace(self, offset=end, reserve=reserve)

    def quarantine(self, shard: int) -> "DataState":
        """Return the state in which nothing of `shard` is used any more, from this step on."""
        if shard < 0:
            msg = f"there is no shard {shard}"
            raise DrillError(msg)
        return replace(self, quarantined=tuple(sorted({*self.quarantined, shard})))

    def as_json(self) -> dict[str, Any]:
        """Return plain values that `read` takes."""
        return {**asdict(self), "quarantined": list(self.quarantined)}

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "DataState":
        """Return the state that `as_json` gave; DrillError for anything else."""
        names = [each.name for each in fields(cls)]
        if set(body) != set(names):
            msg = f"this is no data state: it has {', '.join(names)}, and nothing else"
            raise DrillError(msg)
        barred, plain = body["quarantined"], {**body, "quarantined": 0}
        digest = plain.pop("digest")
        whole = [*plain.values(), *(barred if isinstance(barred, list | tuple) else [None])]
        if not isinstance(digest, str) or any(type(each) is not int for each in whole):
            msg = "this is no data state: a value is of another kind"
            raise DrillError(msg)
        below = any(each < 0 for name, each in plain.items() if name != "shuffle")
        if below or body["micro_shards"] < 1 or body["micro_batch"] < 1:
            msg = "this is no data state: a number is too small"
            raise DrillError(msg)
        state = cls(**{**body, "quarantined": ()})
        return functools.reduce(cls.quarantine, barred, state)


def _instead(dataset: DataSet, barred: frozenset[int], place: int) -> tuple[int, int]:
    """Return the next sample of the reserve at or after `place`, and the place after it."""
    main, samples = dataset.counts.main, dataset.counts.samples
    for sample in range(main + place, samples):
        if dataset.shard_of(sample) not in barred:
            return sample, sample - main + 1
    msg = f"the reserve is used up: {len(barred)} shards are quarantined ({sorted(barred)})"
    raise DrillError(msg)


def order(plan: Plan, epoch: int = 0) -> NDArray[np.int64]:
    """Return the samples of an epoch of `plan` in order, while no shard is quarantined."""
    samples = plan.samples
    return perm(plan.seed, epoch, (samples.shards - samples.reserve) * samples.per_shard)


def due(plan: Plan, shard: int) -> int:
    """Return the step, counted from 1, that meets the NaN of `shard` if it is poisoned.

    In the first epoch, with no other shard quarantined. A shard of the reserve is never due by
    itself: DrillError.
    """
    sample = poisoned_sample(plan, shard)
    (places,) = np.nonzero(order(plan) == sample)
    if not len(places):
        msg = f"shard {shard} is one of the reserve, or there is none of that number"
        raise DrillError(msg)
    return int(places[0]) // plan.batch + 1
