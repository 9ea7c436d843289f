"""Every sample is used exactly once in an epoch, whatever happens to those who compute.

A made-up coordinator lives through any sequence of steps, members that come and go, steps that are
lost, checkpoints, restarts from any of them, and quarantines. What a restart threw away was
repeated, and is no part of the trajectory that survived; that one is looked at.
"""

from collections import Counter
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from rackproof.harness.errors import DrillError
from rackproof.harness.training.data import DataSet, DataState
from rackproof.harness.training.plan import Plan, Samples, Shape

SHARDS, PER_SHARD, RESERVE = 7, 5, 2
MAIN = (SHARDS - RESERVE) * PER_SHARD
PLAN = Plan(
    shape=Shape(context=1, vocabulary=2), samples=Samples(SHARDS, PER_SHARD, RESERVE), replicas=1
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return DataSet.write(tmp_path_factory.mktemp("data"), PLAN)


@dataclass
class Training:
    """The trajectory that survived: samples of each step, and quarantines by step."""

    dataset: DataSet
    state: DataState
    members: list[str] = field(default_factory=lambda: ["a"])
    steps: list[list[int]] = field(default_factory=list)
    barred: list[tuple[int, int]] = field(default_factory=list)  # (step, shard)
    saved: list[tuple[int, dict]] = field(default_factory=list)
    over: bool = False

    def step(self, *, commit: bool) -> None:
        """Share a batch among the members; keep what they used if it is committed."""
        try:
            ids, after = self.state.batch(self.dataset)
        except DrillError:
            self.over = True
            return
        count = len(self.members)
        dealt = {
            name: {shard: ids[shard] for shard in range(at, len(ids), count)}
            for at, name in enumerate(self.members)
        }
        used = {shard: part for own in dealt.values() for shard, part in own.items()}
        assert tuple(used[shard] for shard in sorted(used)) == ids
        if commit:
            self.steps.append([sample for shard in sorted(used) for sample in used[shard]])
            self.state = after

    def save(self) -> None:
        self.saved.append((len(self.steps), self.state.as_json()))

    def restart(self, which: int) -> None:
        """Go back to a checkpoint of the trajectory that survived so far."""
        known = [each for each in self.saved if each[0] <= len(self.steps)]
        if known:
            step, body = known[which % len(known)]
            self.saved = known[: which % len(known) + 1]
            self.state = DataState.read(body)
            del self.steps[step:]
            held = set(self.state.quarantined)
            self.barred = [(at, shard) for at, shard in self.barred if shard in held]

    def quarantine(self, shard: int) -> None:
        if shard not in self.state.quarantined:
            self.state = self.state.quarantine(shard)
            self.barred.append((len(self.steps), shard))


EVENTS = st.one_of(
    st.tuples(st.just("step"), st.integers(1, 9)),
    st.tuples(st.just("lost"), st.just(0)),
    st.tuples(st.just("members"), st.integers(1, 5)),
    st.tuples(st.just("save"), st.just(0)),
    st.tuples(st.just("restart"), st.integers(0, 5)),
    st.tuples(st.just("quarantine"), st.integers(0, SHARDS - 1)),
)


def live(training: Training, history: list[tuple[str, int]]) -> None:
    for what, number in history:
        match what:
            case "step":
                for _ in range(number):
                    training.step(commit=True)
            case "lost":
                training.step(commit=False)
            case "members":
                training.members = [f"m{n}" for n in range(number)]
            case "save":
                training.save()
            case "restart":
                training.restart(number)
            case _:
                training.quarantine(number)
        if training.over:
            return


def last_use(training: Training, shard: int) -> int:
    """Return the newest step that used something of a shard, from 1; 0 where none did."""
    own = range(shard * PER_SHARD, (shard + 1) * PER_SHARD)
    return max((n for n, ids in enumerate(training.steps, 1) if {*own} & {*ids}), default=0)


def check_epoch(training: Training, used: list[int]) -> None:
    """One epoch, or its beginning: nothing twice, and nothing left out but what was barred."""
    assert max(Counter(used).values()) == 1
    left = {*range(MAIN)} - {*used}
    spare = [sample for sample in used if sample >= MAIN]
    assert spare == sorted(spare)
    barred = {shard for _, shard in training.barred}
    if len(used) == MAIN:
        assert len(left) == len(spare)
        assert {sample // PER_SHARD for sample in left} <= barred
    if not barred:
        assert not spare


@given(
    history=st.lists(EVENTS, max_size=40),
    seed=st.integers(0, 1 << 64),
    micro_shards=st.integers(1, 6),
    micro_batch=st.integers(1, 4),
)
@settings(deadline=None, max_examples=400)
def test_every_sample_is_used_exactly_once_in_an_epoch(
    dataset, history, seed, micro_shards, micro_batch
):
    plan = replace(PLAN, seed=seed, micro_shards=micro_shards, micro_batch=micro_batch)
    training = Training(dataset, DataState.initial(dataset, plan))
    live(training, history)
    flat = [sample for ids in training.steps for sample in ids]
    for at in range(0, len(flat), MAIN):
        check_epoch(training, flat[at : at + MAIN])
    assert training.state.epoch * MAIN + training.state.offset == len(flat)
    for step, shard in training.barred:
        assert last_use(training, shard) <= step
    event(f"epochs begun: {-(-len(flat) // MAIN)}, quarantines: {len(training.barred)}")
    if training.over:
        check_exhausted(training)
    check_memory(training, plan)


def check_exhausted(training: Training) -> None:
    """A run that had no batch any more wanted more of the reserve than there was."""
    barred = {shard for _, shard in training.barred}
    wanted = sum(shard < SHARDS - RESERVE for shard in barred) * PER_SHARD
    assert (
        wanted > sum(shard not in barred for shard in range(SHARDS - RESERVE, SHARDS)) * PER_SHARD
    )


def check_memory(training: Training, plan: Plan) -> None:
    """The trajectory remembers nothing but its quarantines: one process without faults has it."""
    state = DataState.initial(training.dataset, plan)
    for number, ids in enumerate(training.steps):
        for shard in (shard for at, shard in training.barred if at == number):
            state = state.quarantine(shard)
        batch, state = state.batch(training.dataset)
        assert [sample for part in batch for sample in part] == ids
