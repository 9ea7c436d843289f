"""How tensors lie in parts: order, dtypes, shares, and what cannot be stored."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from rackproof.harness.checkpoint import anatomy, parts, restore
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer
from rackproof.harness.errors import CheckpointError

ALL = [np.dtype(numpy) for name, numpy in parts.DTYPES.items() if name != "BF16"]


def file_of(tensors):
    found = parts.layout(tensors)
    return found.header() + b"".join(np.ascontiguousarray(t).tobytes() for t in tensors.values())


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_every_dtype_both_ways_with_the_library(dtype):
    tensors = {"odd": np.arange(3, dtype=np.int8), "it": np.ones((2, 3), dtype)}
    theirs = load(file_of(tensors))
    assert all(np.array_equal(theirs[name], tensors[name]) for name in tensors)
    found, data = parts.read(np.frombuffer(save(tensors), np.uint8), "x")
    ours = parts.tensors(found, data)
    assert ours["it"].dtype == dtype
    assert all(np.array_equal(ours[name], tensors[name]) for name in tensors)
    assert all(view.flags.aligned for view in ours.values())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(1, 9))
def test_parts_hold_everything_once_in_order_and_about_equally(sizes, count):
    tensors = {str(number): np.zeros(size, np.uint8) for number, size in enumerate(sizes)}
    whole = parts.layout(tensors)
    shares = parts.split(whole, count)
    assert [entry.name for _, share in shares for entry in share.entries] == list(tensors)
    assert len(shares) <= count
    at = 0
    for begin, share in shares:
        assert begin == at
        at += share.nbytes
    assert at == whole.nbytes
    assert max(share.nbytes for _, share in shares) <= whole.nbytes / count + 2 * max(sizes)


@pytest.mark.parametrize(
    "tensor", [np.array(["text"]), np.array([object()]), np.zeros(2, np.longdouble)]
)
def test_what_has_no_name_in_safetensors_is_refused(tensor):
    with pytest.raises(CheckpointError, match="cannot be stored"):
        parts.layout({"a": tensor})


def test_order_is_weights_m_v_and_the_rest():
    names = ["v/a", "x/a", "m/b", "weights/b", "m/a", "weights/a"]
    tensors = {name: np.zeros(1, np.float32) for name in names}
    weights = {name: tensors[name] for name in names if name.startswith("weights/")}
    rest = {name: tensors[name] for name in names if name not in weights}
    snapshot = anatomy.Snapshot(1, weights, rest, anatomy.Context({}, {}, {}, {}, {}))
    assert list(snapshot.tensors) == ["weights/b", "weights/a", "m/b", "m/a", "v/a", "x/a"]


def test_all_kinds_of_arrays_come_back(tmp_path, snapshot):
    base = snapshot(1)
    weights = {
        "weights/big-endian": np.arange(5, dtype=">f4"),
        "weights/turned": np.arange(6, dtype=np.float64).reshape(2, 3).T,
        "weights/every-other": np.arange(10, dtype=np.int16)[::2],
        "weights/none": np.zeros((0, 3), np.float32),
        "weights/flag": np.array([True, False]),
    }
    tier = Tier.of(str(tmp_path / "a"))
    with Writer([tier], parts=3, delta=True) as writer:
        for step in (1, 2):
            writer.save(anatomy.Snapshot(step, weights, base.optimizer, base.context))
    found = restore.newest([tier]).snapshot.weights
    assert list(found) == list(weights)
    assert all(np.array_equal(found[name], weights[name]) for name in weights)


def test_weights_are_known_by_their_names(tmp_path, snapshot):
    base = snapshot(1)
    with Writer([Tier.of(str(tmp_path / "a"))]) as writer:
        wrong = {"embed": np.zeros(1)}
        with pytest.raises(CheckpointError, match="'embed' among weights"):
            writer.save(anatomy.Snapshot(1, wrong, base.optimizer, base.context))
        with pytest.raises(CheckpointError, match="among the optimizer's"):
            writer.save(anatomy.Snapshot(1, base.weights, base.weights, base.context))
