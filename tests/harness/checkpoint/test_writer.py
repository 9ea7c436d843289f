import numpy as np

from rackproof.harness.checkpoint import restore, verify
from rackproof.harness.checkpoint.anatomy import FIELDS, Context, Snapshot
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer

SHA = "ab" * 32


def snapshot(step, seed=0, size=40):
    draw = np.random.default_rng(seed + step)
    state = {
        f"{group}/{name}": draw.normal(size=shape).astype(np.float32)
        for group in ("weights", "m", "v")
        for name, shape in (("embed", (size, 4)), ("out", (4,)), ("scale", ()))
    }
    weights = {name: value for name, value in state.items() if name.startswith("weights/")}
    rest = {name: value for name, value in state.items() if name not in weights}
    context = Context(
        {"philox": [7, step]},
        {"offset": step * 32},
        {"sha256": SHA},
        {"replicas": 2, "threads": 1, "blas": "b", "isa": "i"},
        {"sha": "cd" * 20, "dirty": False},
    )
    return Snapshot(step, weights, rest, context)


def test_what_was_saved_is_restored(tmp_path):
    told = []
    tier = Tier.of(f"T1={tmp_path / 'a'}")
    with Writer([tier], tell=told.append) as writer:
        for step in (10, 20):
            writer.save(snapshot(step))
    assert [row["phase"] for row in told] == ["staged", "committed"] * 2
    found = restore.newest([tier])
    assert found.snapshot.step == 20
    for name, value in snapshot(20).tensors.items():
        assert found.snapshot.tensors[name].tobytes() == value.tobytes()
    assert found.snapshot.context == snapshot(20).context
    row = verify.verify(tier, 20)
    assert row.verifies
    assert row.fields == FIELDS
