"""Broken storage, other people's files, and writers that died: what stays, and what is told."""

import errno
import os
import resource
import subprocess
import sys

import pytest

from rackproof.harness.checkpoint import local, restore
from rackproof.harness.checkpoint.faulty import Faulty, Order
from rackproof.harness.checkpoint.files import Files
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer
from rackproof.harness.errors import CheckpointError, DrillError


@pytest.mark.parametrize(("kind", "words"), [("full", errno.ENOSPC), ("lost", errno.EIO)])
def test_broken_storage_is_told_and_the_older_one_stays(tmp_path, snapshot, same, kind, words):
    near, far = Tier.of(f"T1={tmp_path / 'near'}"), Tier.of(f"T2={tmp_path / 'far'}")
    for after in range(20):
        files, told = Faulty(), []
        with Writer([near, far], tell=told.append, files=files) as writer:
            writer.save(snapshot(1))
            assert writer.flush(60)
            files.obey(Order(kind, near.url, after))
            writer.save(snapshot(2))
            assert writer.flush(60)
            files.obey(Order())
        row = [row for row in told if (row["tier"], row["step"]) == ("T1", 2)][-1]
        if row["phase"] == "committed":
            break
        assert files.fired
        assert row["phase"] == "failed"
        assert row["why"] == os.strerror(words)
        newest = restore.newest([near])
        assert same(newest.snapshot, snapshot(newest.snapshot.step))
        if kind == "full":
            assert newest.snapshot.step == 1
            assert not list(near.root.glob(".tmp*"))
        assert restore.newest([near, far]).snapshot.step == 2
    else:
        pytest.fail("it never got through")
    assert after > 5


def test_a_full_hint_is_no_failure(tmp_path, snapshot):
    tier, files, told = Tier.of(str(tmp_path / "a")), Faulty(), []
    with Writer([tier], tell=told.append, files=files) as writer:
        writer.save(snapshot(1))
        assert writer.flush(60)
        before = len(list(_makes(tmp_path, snapshot)))
        files.obey(Order("full", tier.url, before))
        writer.save(snapshot(2))
    assert told[-1]["phase"] == "committed"
    assert "LATEST could not be written" in told[-1]["why"]
    found = restore.newest([tier])
    assert found.snapshot.step == 2
    assert "LATEST of local names step 1; the newest that verifies over all tiers is 2" in (
        found.remarks
    )


def _makes(tmp_path, snapshot):
    """Yield the operations of a commit that need room, LATEST apart."""
    seen = []

    class Counts(Files):
        def mkdir(self, path):
            seen.append("mkdir")
            super().mkdir(path)

        def create(self, path):
            seen.append("create")
            return super().create(path)

        def write(self, descriptor, data):
            seen.append("write")
            super().write(descriptor, data)

    place = Tier.of(str(tmp_path / "b"))
    with Writer([place], files=Counts()) as writer:
        writer.save(snapshot(1))
        assert writer.flush(60)
        seen.clear()
        writer.save(snapshot(2))
    return seen[:-2]


def test_a_file_size_limit_is_told_and_leaves_nothing(tmp_path):
    script = """
import resource, sys
import numpy as np
from rackproof.harness.checkpoint.anatomy import Context, Snapshot
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer
facts = [{"a": 1}, {"a": 1}, {"sha256": "ab" * 32}, {"a": 1}, {"sha": "x"}]
def state(step, size):
    tensor = np.ones(size, np.float32)
    return Snapshot(step, {"weights/w": tensor}, {"m/w": tensor}, Context(*facts))
told = []
with Writer([Tier.of(sys.argv[1])], tell=told.append, parts=1) as writer:
    writer.save(state(1, 100))
    writer.flush()
    resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
    writer.save(state(2, 100_000))
    writer.flush()
    writer.save(state(3, 100))
print([(row["phase"], row["step"]) for row in told if row["phase"] != "staged"])
print([row["why"] for row in told if row["phase"] == "failed"])
"""
    root = tmp_path / "a"
    said = subprocess.run(
        [sys.executable, "-c", script, root], capture_output=True, text=True, check=True, timeout=60
    ).stdout.splitlines()
    assert said == ["[('committed', 1), ('failed', 2), ('committed', 3)]", "['File too large']"]
    assert sorted(path.name for path in root.iterdir() if not path.name.startswith(".r")) == [
        "LATEST", "step-000000000001", "step-000000000003",
    ]  # fmt: skip
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 65536


def test_a_directory_that_is_somebody_elses_is_not_touched(tmp_path, snapshot):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="not ours"):
        Writer([Tier.of(str(tmp_path))])
    place = Tier.of(str(tmp_path / "later"))
    told = []
    with Writer([place], tell=told.append) as writer:
        place.root.mkdir()
        (place.root / "thesis.txt").write_text("mine")
        writer.save(snapshot(1))
    assert told[-1]["phase"] == "failed"
    assert [path.name for path in place.root.iterdir()] == ["thesis.txt"]


def test_what_others_put_beside_ours_stays(tmp_path, snapshot):
    tier = Tier.of(str(tmp_path / "a"))
    with Writer([tier], keep=1) as writer:
        writer.save(snapshot(1))
        assert writer.flush(60)
        (tier.root / "step-000000000001" / "notes.txt").write_text("mine")
        (tier.root / "thesis.txt").write_text("mine")
        (tier.root / ".tmp-mine").mkdir()
        for step in (2, 3):
            writer.save(snapshot(step))
    assert sorted(path.name for path in tier.root.iterdir())[-4:] == [
        "LATEST", "step-000000000001", "step-000000000003", "thesis.txt",
    ]  # fmt: skip
    assert (tier.root / "step-000000000001" / "notes.txt").exists()
    assert (tier.root / ".tmp-mine").exists()


def test_what_a_dead_writer_left_is_removed_and_what_a_live_one_has_is_not(tmp_path, snapshot):
    script = """
import os, sys
from rackproof.harness.checkpoint import local
print(f".tmp-{7:012d}-{local._token()}")
"""
    dead = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()
    tier = Tier.of(str(tmp_path / "a"))
    with Writer([tier]) as writer:
        writer.save(snapshot(1))
    alive = f".tmp-{7:012d}-{local._token()}"
    for name in (dead, alive):
        (tier.root / name).mkdir()
        (tier.root / name / "part-0.safetensors").write_bytes(b"half")
    with Writer([tier]) as writer:
        writer.save(snapshot(2))
    assert (tier.root / alive / "part-0.safetensors").exists()
    assert not (tier.root / dead).exists()


def test_a_torn_machine_keeps_what_was_committed(tmp_path, snapshot, same):
    script = """
import sys
from rackproof.harness.checkpoint.faulty import Faulty, Order
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer
from rackproof.harness.checkpoint import restore
tier, files = Tier.of(sys.argv[1]), Faulty()
state = restore.newest([tier]).snapshot
files.obey(Order("torn", tier.url, int(sys.argv[2])))
with Writer([tier], files=files) as writer:
    writer.save(type(state)(2, state.weights, state.optimizer, state.context))
"""
    died = 0
    for after in (0, 3, 6, 9, 12, 40):
        tier = Tier.of(str(tmp_path / str(after)))
        with Writer([tier]) as writer:
            writer.save(snapshot(1))
        command = [sys.executable, "-c", script, tier.url, str(after)]
        code = subprocess.run(command, check=False, timeout=60).returncode
        died += code == -9
        found = restore.newest([tier]).snapshot
        assert found.step == (1 if code else 2)
        assert found.step == 2 or same(found, snapshot(1))
    assert died == 5


def test_orders_that_there_are_not():
    with pytest.raises(DrillError, match="storage cannot be 'angry'"):
        Order("angry")
