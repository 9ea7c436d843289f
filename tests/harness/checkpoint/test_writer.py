"""Staging, back-pressure, several tiers, broken storage, and what is told of all that."""

import threading

import numpy as np
import pytest

from rackproof.harness.checkpoint import restore, verify
from rackproof.harness.checkpoint.anatomy import FIELDS, Snapshot
from rackproof.harness.checkpoint.files import Files
from rackproof.harness.checkpoint.lane import retained
from rackproof.harness.checkpoint.manifest import Manifest, Parent
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer
from rackproof.harness.errors import CheckpointError


class Gate(Files):
    """Holds every file back that is made under a path, until it is opened."""

    def __init__(self, under):
        self.under, self.arrived, self.open = str(under), threading.Event(), threading.Event()

    def create(self, path):
        if str(path).startswith(self.under):
            self.arrived.set()
            assert self.open.wait(60)
        return super().create(path)


class Told(list):
    """What was told, which can be waited for."""

    def __init__(self):
        super().__init__()
        self.more = threading.Condition()

    def append(self, row):
        with self.more:
            super().append(row)
            self.more.notify_all()

    def until(self, phase, step):
        with self.more:
            assert self.more.wait_for(lambda: (phase, step) in phases(self), 60)


def phases(told, tier=None):
    return [(row["phase"], row["step"]) for row in told if tier is None or row["tier"] == tier]


def test_what_was_saved_is_restored(tmp_path, snapshot, same):
    told = []
    tier = Tier.of(f"T1={tmp_path / 'a'}")
    with Writer([tier], tell=told.append) as writer:
        writer.prepare(snapshot(10))
        for step in (10, 20):
            assert writer.save(snapshot(step)) > 0
    assert phases(told) == [("staged", 10), ("committed", 10), ("staged", 20), ("committed", 20)]
    assert told[-1]["uri"] == f"{tmp_path}/a/step-000000000020"
    found = restore.newest([tier])
    assert same(found.snapshot, snapshot(20))
    assert (found.uri, found.tier, found.promised) == (told[-1]["uri"], "T1", True)
    row = verify.verify(tier, 20)
    assert row.verifies
    assert row.fields == FIELDS
    assert (tmp_path / "a" / "LATEST").read_text() == "step-000000000020\n"


def test_training_may_go_on_as_soon_as_save_returned(tmp_path, snapshot, same):
    gate, tier = Gate(tmp_path), Tier.of(str(tmp_path / "a"))
    with Writer([tier], files=gate) as writer:
        state = snapshot(5)
        writer.save(state)
        for tensor in state.tensors.values():
            tensor[...] = 0
        gate.open.set()
    assert same(restore.newest([tier]).snapshot, snapshot(5))


def test_a_second_save_waits_and_the_wait_is_told(tmp_path, snapshot):
    gate, told = Gate(tmp_path), []
    with Writer([Tier.of(str(tmp_path / "a"))], tell=told.append, files=gate) as writer:
        writer.save(snapshot(1))
        assert gate.arrived.wait(60)
        second = threading.Thread(target=writer.save, args=(snapshot(2),))
        second.start()
        assert phases(told) == [("staged", 1)]
        gate.open.set()
        second.join(60)
        assert writer.flush(60)
        assert writer.stalled > 0
    assert phases(told) == [("staged", 1), ("committed", 1), ("staged", 2), ("committed", 2)]
    assert told[2]["stalled"] > told[0]["stalled"]


def test_or_it_is_skipped_by_policy_and_told(tmp_path, snapshot):
    gate, told = Gate(tmp_path), []
    tier = Tier.of(str(tmp_path / "a"))
    with Writer([tier], tell=told.append, files=gate, busy="skip") as writer:
        writer.save(snapshot(1))
        writer.save(snapshot(2))
        gate.open.set()
        assert writer.flush(60)
        writer.save(snapshot(3))
    assert phases(told)[:2] == [("staged", 1), ("skipped", 2)]
    assert tier.steps() == [1, 3]


def test_a_tier_that_hangs_stops_nobody_else(tmp_path, snapshot, same):
    near, far = Tier.of(f"T1={tmp_path / 'near'}"), Tier.of(f"T2={tmp_path / 'far'}")
    gate, told = Gate(far.root), Told()
    writer = Writer([near, far], tell=told.append, files=gate, patience=2, delta=True)
    for step in (1, 2, 3):
        writer.save(snapshot(step, dense=False))
        told.until("failed" if step == 1 else "skipped", step)
    assert not writer.flush(0)
    assert phases(told, "T1") == [("committed", step) for step in (1, 2, 3)]
    assert phases(told, "T2") == [("failed", 1), ("skipped", 2), ("skipped", 3)]
    gate.open.set()
    assert writer.close(60)
    assert phases(told, "T2")[-1] == ("committed", 1)
    assert same(restore.newest([far]).snapshot, snapshot(1, dense=False))
    assert same(restore.newest([far, near]).snapshot, snapshot(3, dense=False))


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_is_missing_is_refused(tmp_path, snapshot, field):
    whole = snapshot(1)
    groups = {"weights": whole.weights, "optimizer": whole.optimizer}
    if field in groups:
        groups[field] = {}
        whole = Snapshot(1, groups["weights"], groups["optimizer"], whole.context)
    else:
        whole = snapshot(1, **{field: {}})
    tier = Tier.of(str(tmp_path / "a"))
    with Writer([tier]) as writer:
        with pytest.raises(CheckpointError, match=f"{field} is missing"):
            writer.save(whole)
        writer.save(snapshot(2))
    assert tier.steps() == [2]


@pytest.mark.parametrize("field", FIELDS)
def test_the_careless_one_leaves_a_field_out_and_the_strict_one_sees_it(tmp_path, snapshot, field):
    tier = Tier.of(str(tmp_path / "a"))
    with Writer([tier], leave_out=field, delta=True) as writer:
        writer.save(snapshot(1, dense=False))
        writer.save(snapshot(2, dense=False))
    for step in (1, 2):
        row = verify.verify(tier, step)
        assert not row.verifies
        assert row.problem == f"{field} is missing"
        assert row.fields == tuple(name for name in FIELDS if name != field)
    with pytest.raises(CheckpointError, match=f"{field} is missing"):
        restore.newest([tier])
    careless = restore.newest([tier], lenient=True)
    assert (careless.snapshot.step, careless.promised) == (2, False)
    assert careless.remarks == (f"{field} is missing",)


def test_a_tier_that_comes_back_empty_gets_a_full_one(tmp_path, snapshot, same):
    tier, aside, told = Tier.of(str(tmp_path / "a")), tmp_path / "aside", []
    with Writer([tier], tell=told.append, delta=True) as writer:
        for step in (1, 2, 3, 4):
            writer.save(snapshot(step, dense=False))
            assert writer.flush(60)
            if step == 2:
                tier.root.rename(aside)
    kinds = [row["kind"] for row in told if row["phase"] == "committed"]
    assert kinds == ["full", "delta", "full", "delta"]
    assert same(restore.newest([tier]).snapshot, snapshot(4, dense=False))


def test_steps_that_are_reached_again_stand_beside_each_other(tmp_path, snapshot, same):
    tier = Tier.of(str(tmp_path / "a"))
    with Writer([tier]) as writer:
        writer.save(snapshot(1))
        writer.save(snapshot(1, seed=5))
    assert tier.steps() == [1]
    assert tier.store().names() == ["step-000000000001", "step-000000000001.1"]
    assert same(restore.newest([tier]).snapshot, snapshot(1, seed=5))


def test_deltas_are_full_every_so_often_and_where_they_are_not_worth_it(tmp_path, snapshot, same):
    told, tier = [], Tier.of(str(tmp_path / "a"))
    with Writer([tier], tell=told.append, delta=True, full_every=3) as writer:
        for step in range(1, 6):
            writer.save(snapshot(step, dense=False))
        writer.save(snapshot(6, seed=1, dense=True))
        writer.save(snapshot(7, seed=1, dense=True))
    rows = [row for row in told if row["phase"] == "committed"]
    assert [row["kind"] for row in rows[:5]] == ["full", "delta", "delta", "full", "delta"]
    assert all(row["ratio"] < 0.5 for row in rows if row["kind"] == "delta")
    assert rows[5]["kind"] == "full"
    assert rows[5]["ratio"] > 0.8
    for step in range(1, 6):
        assert verify.verify(tier, step).verifies
    assert same(restore.newest([tier]).snapshot, snapshot(7, seed=1))


def test_other_shapes_need_a_full_one(tmp_path, snapshot):
    told, small = [], snapshot(2)
    grown = {
        f"{name}": np.concatenate([value.ravel()] * 2) for name, value in small.weights.items()
    }
    with Writer([Tier.of(str(tmp_path / "a"))], tell=told.append, delta=True) as writer:
        writer.save(snapshot(1))
        writer.save(Snapshot(2, grown, small.optimizer, small.context))
    assert [row["kind"] for row in told if row["phase"] == "committed"] == ["full", "full"]


def test_what_is_kept():
    full, delta = Manifest(0), Manifest(0, {}, Parent("step-000000000003", "ab" * 32))
    known = {"step-000000000001": full, "step-000000000002": full, "step-000000000003": full,
             "step-000000000004": delta}  # fmt: skip
    assert retained(known, 1) == {"step-000000000003", "step-000000000004"}
    assert retained(known, 2) == {*retained(known, 1), "step-000000000002"}


def test_a_tier_in_the_writers_own_failure_domain_is_refused(tmp_path):
    near = Tier.of(f"T1@rack0={tmp_path / 'a'}")
    Writer([near, Tier.of(f"T2@rack1={tmp_path / 'b'}")], domain="rack0").close()
    with pytest.raises(CheckpointError, match="the failure domain of the writer"):
        Writer([near, Tier.of(f"T2@rack0={tmp_path / 'b'}")], domain="rack0")


@pytest.mark.parametrize(
    "policy", [{"busy": "never"}, {"full_every": 0}, {"keep": -1}, {"leave_out": "shoes"}]
)
def test_a_policy_that_makes_no_sense_is_refused(tmp_path, policy):
    with pytest.raises(CheckpointError):
        Writer([Tier.of(str(tmp_path / "a"))], **policy)


def test_no_save_after_the_end(tmp_path, snapshot):
    writer = Writer([Tier.of(str(tmp_path / "a"))])
    assert writer.close()
    with pytest.raises(CheckpointError, match="closed"):
        writer.save(snapshot(1))
