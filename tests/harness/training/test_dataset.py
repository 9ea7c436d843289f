"""A data set is what its index says, file by file, or it is refused."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load, save

from rackproof.harness.errors import DrillError
from rackproof.harness.training.dataset import INDEX, DataSet, poisoned_sample
from rackproof.harness.training.plan import Plan, Samples, Shape

PLAN = Plan(shape=Shape(context=6, vocabulary=11), samples=Samples(5, 8, 2, (1, 4)))


def test_what_was_written_is_read(tmp_path):
    written = DataSet.write(tmp_path / "data", PLAN)
    read = DataSet.open(tmp_path / "data")
    assert read.digest == written.digest
    tokens, scale = read.rows(range(40))
    assert tokens.shape == (40, 7)
    assert tokens.dtype == np.int32
    assert scale.dtype == np.float32
    assert 0 <= tokens.min() <= tokens.max() < 11
    assert np.unique(tokens).size == 11
    assert len({row.tobytes() for row in tokens}) > 35
    assert (read.counts.main, read.counts.samples) == (24, 40)
    assert [read.shard_of(each) for each in (0, 7, 8, 39)] == [0, 0, 1, 4]


def test_a_poisoned_shard_holds_one_nan(tmp_path):
    dataset = DataSet.write(tmp_path / "data", PLAN)
    _, scale = dataset.rows(range(40))
    (bad,) = np.nonzero(np.isnan(scale))
    assert bad.tolist() == [poisoned_sample(PLAN, 1), poisoned_sample(PLAN, 4)]
    assert dataset.broken(range(40)) == (1, 4)
    assert dataset.broken([each for each in range(40) if each not in bad]) == ()
    healthy = DataSet.write(tmp_path / "b", replace(PLAN, samples=Samples(5, 8, 2)))
    assert healthy.digest != dataset.digest
    same = np.delete(np.arange(40), bad)
    assert (healthy.rows(same)[1] == scale[same]).all()


def test_the_same_data_set_is_kept_and_another_one_refused(tmp_path):
    first = DataSet.write(tmp_path / "data", PLAN)
    other = replace(PLAN, replicas=4, steps=7)  # which is no matter of the data
    assert DataSet.write(tmp_path / "data", other).digest == first.digest
    with pytest.raises(DrillError, match="another plan"):
        DataSet.write(tmp_path / "data", replace(PLAN, seed=1))


def test_a_folder_of_somebody_else_is_never_touched(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DrillError, match="other files"):
        DataSet.write(tmp_path, PLAN)
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]
    with pytest.raises(DrillError, match="cannot be written"):
        DataSet.write(tmp_path / "notes.txt", PLAN)


def test_each_damaged_or_missing_file_is_found(tmp_path):
    DataSet.write(tmp_path, PLAN)
    for file in sorted(tmp_path.glob("shard-*")):
        body = file.read_bytes()
        file.write_bytes(body[:-1] + bytes([body[-1] ^ 1]))
        with pytest.raises(DrillError, match=f"{file.name} is damaged"):
            DataSet.open(tmp_path)
        file.unlink()
        with pytest.raises(DrillError, match="cannot be read"):
            DataSet.open(tmp_path)
        file.write_bytes(body)
    assert DataSet.open(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("version", "rackproof.dataset/2", "version"),
        ("shards", 6, "sha256 for each"),
        ("shards", -1, "cannot be"),
        ("shards", True, "whole numbers"),
        ("per_shard", 7, "shape"),
        ("per_shard", "8", "whole numbers"),
        ("length", 9, "shape"),
        ("vocabulary", 10, "vocabulary"),
        ("reserve", 5, "cannot be"),
        ("sha256", "none", "sha256 for each"),
        ("sha256", [None] * 5, "damaged"),
    ],
)
def test_an_index_that_lies_is_refused(tmp_path, name, value, said):
    DataSet.write(tmp_path, PLAN)
    body = json.loads((tmp_path / INDEX).read_text())
    (tmp_path / INDEX).write_text(json.dumps({**body, name: value}))
    with pytest.raises(DrillError, match=said):
        DataSet.open(tmp_path)


@pytest.mark.parametrize("text", [b"", b"[", b"[]", b"3", b"[" * 100_000, b"\xff\xfe"])
def test_an_index_that_is_none_is_refused(tmp_path, text):
    DataSet.write(tmp_path, PLAN)
    (tmp_path / INDEX).write_bytes(text)
    with pytest.raises(DrillError, match=INDEX):
        DataSet.open(tmp_path)


@pytest.mark.parametrize("change", ["junk", "name", "dtype", "tokens"])
def test_a_shard_with_the_right_hash_and_the_wrong_content_is_refused(tmp_path, change):
    DataSet.write(tmp_path, PLAN)
    file = tmp_path / "shard-0000.safetensors"
    tensors = load(file.read_bytes())
    if change == "name":
        tensors["other"] = tensors.pop("scale")
    elif change == "dtype":
        tensors["scale"] = tensors["scale"].astype(np.float64)
    elif change == "tokens":
        tensors["tokens"][0, 0] = -1
    body = b"junk" if change == "junk" else save(tensors)
    file.write_bytes(body)
    index = json.loads((tmp_path / INDEX).read_text())
    index["sha256"][0] = hashlib.sha256(body).hexdigest()
    (tmp_path / INDEX).write_text(json.dumps(index))
    with pytest.raises(DrillError, match=r"shard-0000\.safetensors"):
        DataSet.open(tmp_path)


@pytest.mark.parametrize("ids", [[-1], [0, 40]])
def test_a_sample_that_there_is_not_is_refused(tmp_path, ids):
    with pytest.raises(DrillError, match="outside"):
        DataSet.write(tmp_path, PLAN).rows(ids)


@pytest.mark.parametrize(
    "samples",
    [
        Samples(4, 8, 4),
        Samples(0, 8, 0),
        Samples(4, 0, 1),
        Samples(4, 8, 1, (4,)),
        Samples(4, 8, -1),
    ],
)
def test_samples_of_which_no_data_set_can_be_made_are_refused(tmp_path, samples):
    with pytest.raises(DrillError):
        DataSet.write(tmp_path / "data", replace(PLAN, samples=samples))
    assert not (tmp_path / "data").exists()
