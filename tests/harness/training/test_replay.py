"""One process gives the bits that any number of members had to give, and refuses a false log."""

import os
import subprocess
import sys
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.harness.errors import DrillError
from rackproof.harness.launch import processes
from rackproof.harness.training import replay
from rackproof.harness.training.data import DataSet, DataState, due
from rackproof.harness.training.model import THREADED, Model
from rackproof.harness.training.optimizer import AdamW, State
from rackproof.harness.training.plan import Plan, Samples, Shape
from rackproof.harness.training.reduce import mean
from rackproof.harness.training.replay import Logged

PLAN = Plan(
    seed=5, steps=6, micro_shards=5, micro_batch=2,
    shape=Shape(layers=1, width=8, heads=2, context=4, vocabulary=7),
    samples=Samples(8, 10, 3),
)  # fmt: skip
EVERY = tuple(range(5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("run") / "data"
    DataSet.write(found, PLAN)
    return found


class Members:
    """Members with a state each, which share micro-shards as they like."""

    def __init__(self, plan: Plan, folder) -> None:
        self.plan, self.dataset = plan, DataSet.open(folder)
        self.model, self.adamw = Model(plan.shape), AdamW(plan.optimizer)
        self.data = DataState.initial(self.dataset, plan)
        self.states = {"m0": State.initial(self.model, plan.seed)}

    def step(self, owners: list[int], lost: frozenset[int] = frozenset()) -> str:
        """Have member owners[n] compute micro-shard n, unless it is lost; return the digest."""
        names = [f"m{number}" for number in sorted({*owners})]
        (first, *_) = self.states.values()
        self.states = {name: self.states.get(name, first) for name in names}
        ids, self.data = self.data.batch(self.dataset)
        gradients = {}
        for name in reversed(names):
            for shard in (n for n, own in enumerate(owners) if f"m{own}" == name):
                rows = self.dataset.rows(ids[shard])
                key = (self.plan.seed, first.step + 1, shard)
                gradients[shard] = self.model.gradient(self.states[name].weights, *rows, key)[1]
        total = mean([gradients[shard] for shard in sorted({*gradients} - lost)])
        self.states = {n: self.adamw.advance(s, total) for n, s in self.states.items()}
        (digest,) = {state.digest() for state in self.states.values()}
        return digest


OWNERS = st.lists(st.lists(st.integers(0, 4), min_size=5, max_size=5), min_size=6, max_size=6)


@given(owners=OWNERS)
@settings(deadline=None, max_examples=30)
def test_keep_batch_has_the_fault_free_bits_under_any_membership(folder, owners):
    run = Members(PLAN, folder)
    wanted = replay.fault_free(PLAN, folder)
    assert [run.step(each) for each in owners] == [each.digest for each in wanted]
    log = [Logged(number, EVERY) for number in range(1, 7)]
    assert replay.replay(PLAN, folder, log) == wanted


@given(
    owners=OWNERS,
    lost=st.lists(st.frozensets(st.integers(0, 4), max_size=4), min_size=6, max_size=6),
)
@settings(deadline=None, max_examples=30)
def test_drop_batch_has_the_bits_of_its_log(folder, owners, lost):
    plan = replace(PLAN, mode="drop-batch")
    run = Members(plan, folder)
    digests = [run.step(own, gone) for own, gone in zip(owners, lost, strict=True)]
    log = [
        Logged(number, tuple(shard for shard in EVERY if shard not in gone))
        for number, gone in enumerate(lost, 1)
    ]
    found = replay.replay(plan, folder, log)
    assert [each.digest for each in found] == digests
    assert [len(each.samples) for each in found] == [2 * len(each.shards) for each in log]
    same = replay.fault_free(plan, folder)[-1].digest == digests[-1]
    assert same == (not any(lost))


@pytest.fixture(scope="module")
def poisoned(tmp_path_factory):
    """Return a plan whose first steps meet two poisoned shards, the folder, and those shards."""
    soon = [shard for shard in range(5) if due(PLAN, shard) <= PLAN.steps][:2]
    plan = replace(PLAN, samples=replace(PLAN.samples, poisoned=(*soon, 5)))
    found = tmp_path_factory.mktemp("poisoned") / "data"
    DataSet.write(found, plan)
    return plan, found, soon


def test_a_poisoned_shard_is_put_in_quarantine_in_the_step_that_meets_it(poisoned):
    plan, folder, soon = poisoned
    steps = replay.fault_free(plan, folder)
    met = {shard: each.step for each in steps for shard in each.quarantined}
    assert {shard: met[shard] for shard in soon} == {shard: due(plan, shard) for shard in soon}
    dataset = DataSet.open(folder)
    for each in steps:
        assert len({*each.samples}) == plan.batch
        gone = {shard for shard, step in met.items() if step <= each.step}
        assert not {dataset.shard_of(sample) for sample in each.samples} & gone
        assert not dataset.broken(each.samples)


def test_a_log_with_quarantines_is_replayed_and_one_without_is_refused(poisoned):
    plan, folder, _ = poisoned
    steps = replay.fault_free(plan, folder)
    log = [Logged(each.step, EVERY, each.quarantined) for each in steps]
    assert replay.replay(plan, folder, log) == steps
    early = [*[each for step in steps for each in step.quarantined]]
    moved = [replace(log[0], quarantined=tuple(early)), *[Logged(n, EVERY) for n in range(2, 7)]]
    assert replay.replay(plan, folder, moved)[-1].digest != steps[-1].digest
    with pytest.raises(DrillError, match="loss is nan"):
        replay.replay(plan, folder, [replace(each, quarantined=()) for each in log])


@pytest.mark.parametrize(
    ("mode", "log"),
    [
        ("keep-batch", [Logged(2, EVERY)]),
        ("keep-batch", [Logged(1, EVERY), Logged(1, EVERY)]),
        ("keep-batch", [Logged(1, EVERY), Logged(3, EVERY)]),
        ("keep-batch", [Logged(1, EVERY[:-1])]),
        ("keep-batch", [Logged(1, EVERY[::-1])]),
        ("keep-batch", [Logged(n, EVERY) for n in range(1, 8)]),
        ("drop-batch", [Logged(1, ())]),
        ("drop-batch", [Logged(1, (0, 0, 1))]),
        ("drop-batch", [Logged(1, (1, 0))]),
        ("drop-batch", [Logged(1, (0, 5))]),
        ("drop-batch", [Logged(1, (-1, 0))]),
    ],
)
def test_a_log_that_cannot_be_of_the_plan_is_refused(folder, mode, log):
    with pytest.raises(DrillError, match=r"step \d"):
        replay.replay(replace(PLAN, mode=mode), folder, log)


@pytest.mark.parametrize("change", [{"seed": 6}, {"micro_batch": 1}])
def test_bits_depend_on_the_config(folder, change):
    plan = replace(PLAN, **change)
    assert replay.fault_free(plan, folder)[0].digest != replay.fault_free(PLAN, folder)[0].digest


def test_a_child_gives_the_same(folder):
    # a model so small that no number of threads matters to it
    assert replay.apart(PLAN, folder) == replay.fault_free(PLAN, folder)
    plan = replace(PLAN, mode="drop-batch")
    log = [Logged(1, (0, 3)), Logged(2, (1, 2, 4), (7,))]
    assert replay.apart(plan, folder, log) == replay.replay(plan, folder, log)


@pytest.mark.parametrize("worked", [0.0, 2.0], ids=["at once", "at work"])
def test_the_child_dies_with_whoever_asked(tmp_path, worked):
    text = (
        "import os, pathlib, sys, threading\n"
        "from rackproof.harness.launch import processes\n"
        "from rackproof.harness.training import replay\n"
        "from rackproof.harness.training.dataset import DataSet\n"
        "from rackproof.harness.training.plan import Plan\n"
        "def strike():\n"
        "    while not (found := [p for p in processes.descendants(os.getpid())\n"
        "                         if processes.effort(p) >= float(sys.argv[2])]):\n"
        "        os.sched_yield()\n"
        "    print(found[0].pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "plan, folder = Plan(steps=100000), pathlib.Path(sys.argv[1])\n"
        "DataSet.write(folder, plan)\n"
        "threading.Thread(target=strike).start()\n"
        "replay.apart(plan, folder)\n"
    )
    words = [sys.executable, "-c", text, str(tmp_path), str(worked)]
    done = subprocess.run(words, check=False, capture_output=True, text=True)
    left = processes.look(int(done.stdout))
    assert left is None or processes.gone(left, 10.0), done.stderr


def test_a_child_that_cannot_is_an_error(folder, tmp_path):
    with pytest.raises(DrillError, match="cannot be read"):
        replay.apart(PLAN, tmp_path)
    with pytest.raises(DrillError, match="step 2 stands in the log"):
        replay.apart(PLAN, folder, [Logged(2, EVERY)])
    with pytest.raises(DrillError, match="timed out"):
        replay.apart(PLAN, folder, within=1e-6)


@pytest.fixture(scope="module")
def threaded(tmp_path_factory):
    plan = replace(PLAN, steps=3, micro_batch=4, shape=THREADED)
    found = tmp_path_factory.mktemp("threaded") / "data"
    DataSet.write(found, plan)
    return plan, found


def test_another_number_of_threads_gives_other_weights_and_the_same_loss(threaded):
    plan, folder = threaded
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("optional: with one core there is one thread")
    assert replay.matters(plan, folder)
    one, two = (replay.apart(replace(plan, threads=count), folder) for count in (1, 2))
    assert [each.digest for each in one] != [each.digest for each in two]
    assert [each.loss for each in one] == pytest.approx([each.loss for each in two], rel=1e-5)


def test_the_same_number_of_threads_gives_the_same_bits(threaded):
    plan, folder = threaded
    assert not replay.matters(plan, folder, (2, 2, 2))
    assert not replay.matters(plan, folder, (1, 1))


def test_a_model_too_small_for_threads_does_not_tell_them_apart(folder):
    assert not replay.matters(PLAN, folder)
