"""Which checkpoint a run goes on from, what is passed over, what is refused, what is remarked."""

import contextlib
import hashlib
import threading

import pytest

from rackproof.harness.checkpoint import load, restore, verify
from rackproof.harness.checkpoint.restore import Expect
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer
from rackproof.harness.errors import CheckpointError


def save(tiers, *snapshots, **policy):
    with Writer(tiers, **policy) as writer:
        for each in snapshots:
            writer.save(each)
            assert writer.flush(60)


def flip(path, at=-1):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture
def two(tmp_path):
    return [Tier.of(f"T1={tmp_path / 'near'}"), Tier.of(f"T2={tmp_path / 'far'}")]


def test_the_newest_over_all_tiers_and_the_nearest_of_equals(two, snapshot):
    save(two, snapshot(1), snapshot(2))
    assert restore.newest(two).tier == "T1"
    save(two[1:], snapshot(3))
    found = restore.newest(two)
    assert (found.tier, found.snapshot.step) == ("T2", 3)


@pytest.mark.parametrize("name", ["part-0.safetensors", "context.json", "MANIFEST.json"])
def test_every_bit_of_every_file_counts(two, snapshot, same, name):
    save(two, snapshot(1), snapshot(2))
    path = two[0].root / "step-000000000002" / name
    size = path.stat().st_size
    good = path.read_bytes()
    for at in {0, 7, 8, size // 3, size // 2, size - 2, size - 1}:
        flip(path, at)
        row = verify.verify(two[0], 2)
        assert not row.verifies
        assert row.problem
        found = restore.newest(two)
        assert (found.tier, found.snapshot.step) == ("T2", 2)
        assert found.passed_over == ((f"{two[0].url}/step-000000000002", row.problem),)
        path.write_bytes(good)
    assert verify.verify(two[0], 2).verifies
    path.unlink()
    assert same(restore.newest(two[:1]).snapshot, snapshot(1))


def test_a_damaged_parent_takes_its_deltas_along(two, snapshot, same):
    save(two[:1], *(snapshot(step, dense=False) for step in (1, 2, 3, 4)), delta=True, full_every=3)
    flip(two[0].root / "step-000000000004" / "part-0.safetensors")
    assert restore.newest(two[:1]).snapshot.step == 3
    flip(two[0].root / "step-000000000001" / "part-0.safetensors")
    with pytest.raises(CheckpointError, match=r"its parent step-0+1 cannot be used: part-0"):
        restore.newest(two[:1])
    assert [row.verifies for row in verify.everything(two[:1])] == [False] * 4


def test_another_parent_of_that_name_is_not_the_one(two, snapshot):
    save(two[:1], *(snapshot(step, dense=False) for step in (1, 2)), delta=True)
    save(two[1:], snapshot(1, seed=3))
    parent = two[0].root / "step-000000000001"
    parent.rename(two[0].root / "aside")
    (two[1].root / "step-000000000001").rename(parent)
    assert "is not the one that the delta was made from" in verify.verify(two[0], 2).problem


@pytest.mark.parametrize(
    "text", ["step-000000000001\n", "step-000000000009\n", "../..\n", "\0\xff"]
)
def test_latest_is_a_hint_and_no_more(two, snapshot, text):
    save(two[:1], snapshot(1), snapshot(2))
    (two[0].root / "LATEST").write_bytes(text.encode("latin-1"))
    found = restore.newest(two[:1])
    assert found.snapshot.step == 2
    assert len(found.remarks) == 1
    assert "LATEST of T1 names" in found.remarks[0]


def test_without_latest_nothing_is_missing(two, snapshot):
    save(two[:1], snapshot(1), snapshot(2))
    (two[0].root / "LATEST").unlink()
    found = restore.newest(two[:1])
    assert (found.snapshot.step, found.remarks) == (2, ())


def test_a_lost_tier_is_passed_over_and_said(two, snapshot):
    save(two, snapshot(1))
    two[0].root.rename(two[0].root.with_name("gone"))
    found = restore.newest(two)
    assert (found.tier, len(found.passed_over)) == ("T2", 1)
    assert found.passed_over[0][0] == two[0].url
    two[0].root.mkdir()
    assert "gone, or was never used" in restore.newest(two).passed_over[0][1]


def test_a_tier_that_does_not_answer_is_passed_over(two, snapshot, monkeypatch):
    save(two, snapshot(1))
    asked = threading.Event()

    class Silent:
        def names(self):
            assert asked.wait(60)
            return []

        def unfinished(self):
            return []

        def latest(self):
            return None

    real = Tier.store
    monkeypatch.setattr(
        Tier, "store", lambda tier, files=None: Silent() if tier.name == "T1" else real(tier, files)
    )
    found = restore.newest(two, expect=Expect(within=0.01))
    asked.set()
    assert found.passed_over == ((two[0].url, "no answer in 0.01 s"),)
    assert found.tier == "T2"


def test_nothing_anywhere_is_an_error(two):
    with pytest.raises(CheckpointError, match=r"no checkpoint that verifies .*near"):
        restore.newest(two)
    with pytest.raises(CheckpointError, match="no tier was named"):
        restore.newest([])


def test_another_config_or_commit_is_refused_unless_allowed(two, snapshot):
    save(two[:1], snapshot(1))
    fits = Expect(config_sha="ab" * 32, commit_sha="cd" * 20)
    assert restore.newest(two[:1], expect=fits).promised
    for other in ({"config_sha": "ee" * 32}, {"commit_sha": "ee" * 20}):
        with pytest.raises(CheckpointError, match="is of another run"):
            restore.newest(two[:1], expect=Expect(**other))
        found = restore.newest(two[:1], expect=Expect(**other, allow_other=True))
        assert not found.promised
        assert "of this run" in found.remarks[0]


@pytest.mark.parametrize("key", ["threads", "blas", "isa"])
def test_another_topology_loads_and_promises_less(two, snapshot, key):
    save(two[:1], snapshot(1))
    topology = snapshot(1).context.topology
    assert restore.newest(two[:1], expect=Expect(topology=topology)).promised
    found = restore.newest(two[:1], expect=Expect(topology={**topology, key: "other"}))
    assert not found.promised
    assert found.remarks == (f"bit identity not promised: {key} was {topology[key]} and is other",)
    fewer = restore.newest(two[:1], expect=Expect(topology={**topology, "replicas": 1}))
    assert fewer.promised
    assert fewer.remarks == ("2 replicas wrote it, and 1 go on",)


def test_uncommitted_changes_are_remarked(two, snapshot):
    save(two[:1], snapshot(1, commit={"sha": "cd" * 20, "dirty": True}))
    assert "changes that its commit does not hold" in restore.newest(two[:1]).remarks[0]


def test_accumulating_is_kept(two, snapshot):
    save(two[:1], snapshot(1, accumulating=True))
    assert restore.newest(two[:1]).snapshot.context.accumulating


def test_verify_tells_the_digest_and_what_is_not_there(two, snapshot):
    save(two[:1], snapshot(1))
    row = verify.verify(two[0], 1)
    text = b"1" + b"".join(tensor.tobytes() for tensor in snapshot(1).tensors.values())
    assert row.digest == hashlib.sha256(text).hexdigest()
    assert (row.kind, row.tier) == ("full", "T1")
    assert verify.verify(two[0], 5).problem == "there is no such checkpoint"
    assert verify.verify(two[1], 5).problem
    assert [row.verifies for row in verify.everything(two)] == [True, False]


def test_the_newest_of_a_step_that_was_reached_twice_counts(two, snapshot, same):
    save(two[:1], snapshot(1), snapshot(1, seed=4))
    assert verify.verify(two[0], 1).uri.endswith("step-000000000001.1")
    flip(two[0].root / "step-000000000001.1" / "part-0.safetensors")
    assert not verify.verify(two[0], 1).verifies
    found = restore.newest(two[:1])
    assert same(found.snapshot, snapshot(1))
    assert len(found.passed_over) == 1


def test_what_does_not_fit_into_memory_is_not_tried(two, snapshot, monkeypatch):
    save(two[:1], snapshot(1))
    monkeypatch.setattr(load, "_memory", lambda: 1000)
    assert "more than this machine has memory" in verify.verify(two[0], 1).problem


def test_a_file_that_may_not_be_read_is_no_traceback(two, snapshot, monkeypatch):
    save(two[:1], snapshot(1))

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("rackproof.harness.checkpoint.local.fill", refuse)
    with contextlib.suppress(FileNotFoundError):
        assert verify.verify(two[0], 1).problem == "a file cannot be read (Permission denied)"
