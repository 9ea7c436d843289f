"""The reference reader, which imports nothing of ours, reads what we write; so does safetensors."""

import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from rackproof.harness.checkpoint import verify
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer

READER = Path(__file__).parents[3] / "docs" / "examples" / "read_checkpoint.py"


@pytest.fixture
def tier(tmp_path, snapshot):
    """A tier with a full checkpoint, of step 1, and a delta, of step 2, in two parts each."""
    tier = Tier.of(str(tmp_path / "a"))
    with Writer([tier], parts=2, delta=True) as writer:
        writer.save(snapshot(1, dense=False))
        writer.save(snapshot(2, dense=False))
    return tier


def read(tier, step):
    command = [sys.executable, str(READER), str(tier.root / f"step-{step:012d}")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_it_is_short_and_stands_alone():
    text = READER.read_text("utf-8")
    assert len(text.splitlines()) < 190
    assert "import rackproof" not in text
    assert "from rackproof" not in text


@pytest.mark.parametrize("step", [1, 2])
def test_it_reads_full_and_delta(tier, step):
    said = read(tier, step)
    row = verify.verify(tier, step)
    assert row.verifies
    assert row.kind == ("full", "delta")[step - 1]
    assert said.stdout.split() == [
        "step", f"{step},", *(f"{field}," for field in row.fields), "digest", row.digest
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("step", "name", "words"),
    [(1, "part-1.safetensors", "was changed"), (1, "context.json", "was changed"),
     (2, "part-0.safetensors", "was changed")],
)  # fmt: skip
def test_it_refuses_what_is_damaged(tier, step, name, words):
    path = tier.root / f"step-{step:012d}" / name
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    said = read(tier, step)
    assert said.returncode == 1
    assert words in said.stderr
    if name == "part-1.safetensors":  # what a delta rests on; the context of its parent is its own
        assert read(tier, 2).returncode == 1


def test_it_refuses_what_lacks_a_field(tmp_path, snapshot):
    tier = Tier.of(str(tmp_path / "b"))
    with Writer([tier], leave_out="data") as writer:
        writer.save(snapshot(1))
    assert "REFUSED: the field data is missing" in read(tier, 1).stderr


def test_safetensors_reads_our_parts(tier, snapshot):
    found = {}
    for number in range(2):
        found |= load_file(tier.root / "step-000000000001" / f"part-{number}.safetensors")
    want = snapshot(1, dense=False).tensors
    assert found.keys() == want.keys()
    assert all(found[name].tobytes() == want[name].tobytes() for name in want)
    assert list(load_file(tier.root / "step-000000000002" / "part-0.safetensors")) == ["delta"]
