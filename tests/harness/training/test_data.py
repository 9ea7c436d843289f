"""Where in its data a run is: orders, epochs, quarantine and reserve, and what a state is worth."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rackproof.harness.errors import DrillError
from rackproof.harness.training.data import DataSet, DataState, due, order, perm
from rackproof.harness.training.plan import Plan, Samples, Shape

PLAN = Plan(
    seed=3, micro_shards=3, micro_batch=2, replicas=1, shape=Shape(context=3, vocabulary=5),
    samples=Samples(6, 5, 2),
)  # fmt: skip
"""Of 30 samples 20 make an epoch, in 4 shards; 10 are in reserve, in 2; a step takes 6."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    return DataSet.write(tmp_path_factory.mktemp("data"), PLAN)


def flat(ids) -> list[int]:
    return [sample for part in ids for sample in part]


def take(state, dataset, steps: int) -> tuple[list[int], DataState]:
    """Return the samples of so many steps, and the state after them."""
    found = []
    for _ in range(steps):
        ids, state = state.batch(dataset)
        found += flat(ids)
    return found, state


def test_an_order_is_a_permutation_that_seed_and_epoch_decide():
    found = {perm(seed, epoch, 50).tobytes() for seed in range(3) for epoch in range(3)}
    assert len(found) == 9
    assert sorted(perm(1, 2, 50).tolist()) == list(range(50))
    with pytest.raises(ValueError, match="read-only"):
        perm(1, 2, 50)[0] = 0


def test_an_order_is_spread_evenly():
    firsts = np.bincount([perm(seed, 0, 10)[0] for seed in range(4000)], minlength=10)
    assert firsts.min() > 300
    assert firsts.max() < 500


def test_a_step_takes_what_comes_next_whatever_epoch_that_is_of(dataset):
    state = DataState.initial(dataset, PLAN)
    found, after = take(state, dataset, 10)
    wanted = [int(each) for epoch in range(3) for each in perm(3, epoch, 20)]
    assert found == wanted
    assert (after.epoch, after.offset, after.reserve) == (3, 0, 0)
    ids, between = state.batch(dataset)
    assert [len(part) for part in ids] == [2, 2, 2]
    assert (between.epoch, between.offset) == (0, 6)


def test_a_batch_can_be_larger_than_the_data_set(dataset):
    state = replace(DataState.initial(dataset, PLAN), micro_batch=15)
    ids, after = state.batch(dataset)
    assert flat(ids) == [int(each) for epoch in range(3) for each in perm(3, epoch, 20)][:45]
    assert (after.epoch, after.offset) == (2, 5)


def test_asking_changes_nothing(dataset):
    state = DataState.initial(dataset, PLAN)
    assert state.batch(dataset) == state.batch(dataset)
    assert state == DataState.initial(dataset, PLAN)


def test_a_quarantined_shard_is_replaced_in_order_from_the_reserve(dataset):
    before, state = take(DataState.initial(dataset, PLAN), dataset, 1)
    found, after = take(state.quarantine(1), dataset, 2)
    plain, _ = take(state, dataset, 2)
    reserve = iter(range(20, 30))
    assert found == [next(reserve) if sample // 5 == 1 else sample for sample in plain]
    assert after.reserve == sum(sample // 5 == 1 for sample in plain) > 1
    used = [sample for sample in before if sample // 5 == 1]
    assert len(used) + after.reserve <= 5


def test_every_epoch_begins_with_the_whole_reserve(dataset):
    found, _ = take(DataState.initial(dataset, PLAN).quarantine(2), dataset, 10)
    for epoch in range(3):
        own = found[20 * epoch : 20 * epoch + 20]
        assert sorted(own) == [*range(10), *range(15, 25)]


def test_a_reserve_shard_in_quarantine_is_passed_over(dataset):
    state = DataState.initial(dataset, PLAN).quarantine(0).quarantine(4)
    found, after = take(state, dataset, 3)
    assert {sample for sample in found if sample >= 20} <= set(range(25, 30))
    assert after.reserve == 5 + sum(sample >= 20 for sample in found)


def test_a_quarantine_inside_a_step_begins_it_again_with_other_samples(dataset):
    state = DataState.initial(dataset, PLAN)
    plain, _ = state.batch(dataset)
    bad = dataset.shard_of(plain[1][0])
    ids, after = state.quarantine(bad).batch(dataset)
    same = [mine == theirs for mine, theirs in zip(flat(ids), flat(plain), strict=True)]
    assert same == [dataset.shard_of(sample) != bad for sample in flat(plain)]
    again, _ = state.quarantine(bad).quarantine(4).batch(dataset)  # and the reserve was bad too
    assert {sample for sample in flat(again) if sample >= 20} <= set(range(25, 30))
    assert after.offset == 6


def test_the_order_of_quarantines_does_not_matter(dataset):
    state = DataState.initial(dataset, PLAN)
    assert state.quarantine(4).quarantine(1) == state.quarantine(1).quarantine(4).quarantine(1)


def test_an_empty_reserve_is_an_error_and_not_a_second_use(dataset):
    state = DataState.initial(dataset, PLAN)
    for shard in (0, 1, 2):  # fifteen samples, where the reserve has ten
        state = state.quarantine(shard)
    found, state = take(state, dataset, 2)
    assert len(set(found)) == 12
    with pytest.raises(DrillError, match="reserve is used up"):
        take(state, dataset, 2)


def test_a_state_goes_into_json_and_back(dataset):
    _, state = take(DataState.initial(dataset, PLAN).quarantine(1).quarantine(0), dataset, 3)
    assert DataState.read(json.loads(json.dumps(state.as_json()))) == state


@pytest.mark.parametrize(
    "change",
    [
        {"offset": -1}, {"offset": 1.0}, {"offset": True}, {"epoch": None}, {"digest": 3},
        {"quarantined": 1}, {"quarantined": ["1"]}, {"quarantined": [-1]}, {"micro_batch": 0},
        {"micro_shards": 0}, {"more": 1}, {"reserve": "0"},
    ],
)  # fmt: skip
def test_what_is_no_state_is_refused(dataset, change):
    body = DataState.initial(dataset, PLAN).as_json()
    with pytest.raises(DrillError):
        DataState.read({**body, **change})
    body.pop("offset")
    with pytest.raises(DrillError):
        DataState.read(body)


def test_a_state_of_another_data_set_or_beyond_its_epoch_is_refused(dataset):
    state = DataState.initial(dataset, PLAN)
    with pytest.raises(DrillError, match="another data set"):
        replace(state, digest="0" * 64).batch(dataset)
    with pytest.raises(DrillError, match="offset of 20"):
        replace(state, offset=20).batch(dataset)
    with pytest.raises(DrillError, match="no shard"):
        state.quarantine(-1)


def test_due_says_which_step_meets_the_poisoned_sample(tmp_path):
    plan = replace(PLAN, samples=Samples(6, 5, 2, (0, 2, 5)))
    dataset = DataSet.write(tmp_path, plan)
    for shard in (0, 2):
        state = DataState.initial(dataset, plan)
        met = []
        for step in range(1, 5):
            ids, state = state.batch(dataset)
            met += [step] if shard in dataset.broken(flat(ids)) else []
        assert met[0] == due(plan, shard)
    assert order(plan).tolist() == perm(3, 0, 20).tolist()
    with pytest.raises(DrillError, match="reserve"):
        due(plan, 5)
