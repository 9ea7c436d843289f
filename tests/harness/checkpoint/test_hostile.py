"""Checkpoints that somebody else wrote, to harm: refused in words, and nothing else is opened."""

import hashlib
import json
import os
import struct
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rackproof.harness.checkpoint import delta, load, manifest, parts, strict, verify
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer
from rackproof.harness.errors import CheckpointError


@pytest.fixture
def tier(tmp_path, snapshot):
    """A tier with one good checkpoint, of step 1."""
    tier = Tier.of(f"T1={tmp_path / 'a'}")
    with Writer([tier], parts=2) as writer:
        writer.save(snapshot(1))
    return tier


@pytest.fixture
def folder(tier):
    return tier.root / "step-000000000001"


def sealed(body):
    """Return a manifest's bytes, with a seal that is right, whatever it says."""
    body.pop("seal", None)
    seal = hashlib.sha256(strict.canonical(body)).hexdigest()
    return strict.canonical({**body, "seal": seal})


def rewrite(folder, change):
    path = folder / "MANIFEST.json"
    body = json.loads(path.read_text())
    change(body)
    path.write_bytes(sealed(body))


def named(name):
    def change(body):
        body["files"][name] = body["files"].pop("part-1.safetensors")

    return change


def with_value(*keys, value):
    def change(body):
        for key in keys[:-1]:
            body = body[key]
        body[keys[-1]] = value

    return change


CHANGES = {
    "up": (named("../../secret"), "none of a checkpoint"),
    "absolute": (named("/etc/passwd"), "none of a checkpoint"),
    "nul": (named("part-1.safetensors\0"), "none of a checkpoint"),
    "newline": (named("part-1.safetensors\n"), "none of a checkpoint"),
    "other digits": (named("part-\u0661.safetensors"), "none of a checkpoint"),
    "a hole": (named("part-2.safetensors"), "parts from 0 on"),
    "huge": (with_value("files", "part-0.safetensors", "size", value=10**30), "cannot be"),
    "large": (with_value("files", "part-0.safetensors", "size", value=1 << 49), "memory"),
    "negative": (with_value("files", "part-0.safetensors", "size", value=-1), "cannot be"),
    "true": (with_value("files", "part-0.safetensors", "size", value=True), "cannot be"),
    "a float": (with_value("files", "part-0.safetensors", "size", value=1.0), "cannot be"),
    "no sha": (with_value("files", "part-0.safetensors", "sha256", value="AB" * 32), "no size and"),
    "parent up": (with_value("parent", value={"name": "../x", "sha256": "ab" * 32}), "parent that"),
    "itself": (
        with_value("parent", value={"name": "step-000000000001", "sha256": "ab" * 32}),
        "does not bear its own seal",  # its kind says full
    ),
    "step": (with_value("step", value=2), "is of step 2"),
    "step huge": (with_value("step", value=10**40), "does not hold what it must"),
    "schema": (with_value("schema", value="pickle"), "of schema"),
    "more": (with_value("more", value=1), "holds more"),
    "ratio": (with_value("ratio", value=1), "no number"),
    "files": (with_value("files", value=[]), "lists no files"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_a_manifest_that_says_what_it_must_not(tier, folder, case):
    change, words = CHANGES[case]
    rewrite(folder, change)
    row = verify.verify(tier, 1)
    assert not row.verifies
    assert words in row.problem


def test_a_delta_that_is_its_own_parent(tier, folder):
    def change(body):
        body["parent"] = {"name": folder.name, "sha256": "ab" * 32}
        body["kind"] = "delta"

    rewrite(folder, change)
    assert "is not the one that the delta was made from" in verify.verify(tier, 1).problem


@pytest.mark.parametrize(
    "text",
    [b"", b"null", b"[]", b"{", b'{"schema":NaN}', b"[" * 100_000, b'{"a":1,"a":1}', b"\xff\xfe",
     b'{"schema":' + b"9" * 10_000 + b"}"],
)  # fmt: skip
def test_no_text_is_a_traceback(tier, folder, text):
    (folder / "MANIFEST.json").write_bytes(text)
    assert verify.verify(tier, 1).problem
    with pytest.raises(CheckpointError):
        load.load(tier.store(), folder.name)


def test_a_context_that_was_changed_with_its_sha(tier, folder):
    def put(body):
        text = strict.canonical(body)
        (folder / "context.json").write_bytes(text)
        stored = {"size": len(text), "sha256": hashlib.sha256(text).hexdigest()}
        rewrite(folder, with_value("files", "context.json", value=stored))
        return verify.verify(tier, 1).problem

    good = json.loads((folder / "context.json").read_text())
    assert put(good) == ""
    assert "of step 2" in put({**good, "step": 2})
    assert "gives no step" in put({**good, "step": None})
    assert "no order" in put({**good, "order": "weights"})
    assert "other tensors" in put({**good, "order": good["order"][1:]})
    assert "other tensors" in put({**good, "order": good["order"] + good["order"][:1]})
    assert "none of its fields" in put({**good, "code": "import os"})
    assert "something else than an object" in put({**good, "rng": [1]})
    assert "of schema" in put({**good, "schema": 1})
    assert put({**good, "config": {"sha256": 7}}) == "config holds no sha256"
    assert put({**good, "commit": {"sha": ""}}) == "commit holds no sha"
    assert put({**good, "data": {}}) == "data is missing"


@pytest.mark.parametrize("name", ["part-0.safetensors", "context.json", "MANIFEST.json"])
def test_no_link_is_followed(tier, folder, name, tmp_path):
    away = tmp_path / "away"
    (folder / name).rename(away)
    (folder / name).symlink_to(away)
    assert f"{name} is a link" in verify.verify(tier, 1).problem


def test_no_directory_that_is_a_link_is_followed(tier, folder, tmp_path):
    folder.rename(tmp_path / "away")
    folder.symlink_to(tmp_path / "away")
    assert not verify.verify(tier, 1).verifies


def test_a_pipe_keeps_nobody_waiting(tier, folder):
    (folder / "part-0.safetensors").unlink()
    os.mkfifo(folder / "part-0.safetensors")
    assert "is no plain file" in verify.verify(tier, 1).problem


def test_a_sparse_giant_is_not_read(tier, folder):
    os.truncate(folder / "part-0.safetensors", 1 << 40)
    assert "the manifest says" in verify.verify(tier, 1).problem
    os.truncate(folder / "MANIFEST.json", 1 << 40)
    assert f"over {manifest.MANIFEST_MOST}" in verify.verify(tier, 1).problem


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return np.frombuffer(struct.pack("<Q", len(text)) + text + data, np.uint8)


def row(dtype="F32", shape=(1,), offsets=(0, 4)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


HEADERS = {
    "short": np.zeros(3, np.uint8),
    "long header": np.frombuffer(struct.pack("<Q", 1 << 60) + b"{}", np.uint8),
    "no json": file_of(b"{"),
    "a list": file_of(b"[]"),
    "a dtype that is not": file_of({"a": row("F99")}, bytes(4)),
    "a size that is not": file_of({"a": row(shape=(2,))}, bytes(4)),
    "an overflow": file_of({"a": row(shape=(1 << 32, 1 << 32))}, bytes(4)),
    "negative": file_of({"a": row(shape=(-1,), offsets=(4, 0))}, bytes(4)),
    "many sides": file_of({"a": row(shape=(1,) * 40)}, bytes(4)),
    "overlap": file_of({"a": row(), "b": row()}, bytes(4)),
    "a hole": file_of({"a": row(), "b": row(offsets=(8, 12))}, bytes(12)),
    "a rest": file_of({"a": row()}, bytes(5)),
    "too little": file_of({"a": row()}, bytes(3)),
    "metadata": file_of({"__metadata__": {"a": 1}}),
    "more keys": file_of({"a": {**row(), "code": "x"}}, bytes(4)),
    "true": file_of({"a": row(shape=(True,))}, bytes(4)),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_part_that_is_none(case):
    with pytest.raises(CheckpointError):
        parts.read(HEADERS[case], "part-0.safetensors")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_no_change_of_a_part_is_anything_but_refused_or_read(data):
    good = file_of({"a": row(), "b": row("I8", (2, 2), (4, 8))}, bytes(8)).copy()
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, good.size - 1))] = data.draw(st.integers(0, 255))
    try:
        found, rest = parts.read(good, "x")
    except CheckpointError:
        return
    assert sum(view.nbytes for view in parts.tensors(found, rest).values()) == rest.size


class Bomb:
    """A delta whose metadata or chunks lie."""

    old = np.zeros(64, np.uint8)

    def __init__(self, pool):
        made = delta.encode(np.arange(64, dtype=np.uint8), self.old, 4, pool)
        self.data = np.frombuffer(b"".join(made.pieces()), np.uint8)

    def with_(self, **changes):
        found, data = parts.read(self.data, "x")
        return parts.Layout(found.entries, {**found.metadata, **changes}), data


@pytest.fixture
def bomb():
    with ThreadPoolExecutor(1) as pool:
        yield Bomb(pool)


@pytest.mark.parametrize(
    "changes",
    [{"word": "3"}, {"word": "x"}, {"chunk": "0"}, {"chunk": "-4"}, {"chunk": "7"}, {"chunk": "32"},
     {"chunk": str(1 << 60)}, {"chunks": "[]"}, {"chunks": "{}"}, {"chunks": "[[1]]"},
     {"chunks": "[" * 100_000}, {"chunks": '[[99,"0"]]'}, {"format": "pickle"}, {"word": "1"}],
)  # fmt: skip
def test_a_delta_that_lies(bomb, changes):
    found, data = bomb.with_(**changes)
    with pytest.raises(CheckpointError):
        delta.decode(found, data, bomb.old, "part-0")


def test_a_delta_of_another_size_or_with_broken_chunks(bomb):
    found, data = bomb.with_()
    assert delta.decode(found, data, bomb.old, "x").tolist() == list(range(64))
    for old in (np.zeros(60, np.uint8), np.zeros(66, np.uint8), np.ones(64, np.uint8)):
        with pytest.raises(CheckpointError):
            delta.decode(found, data, old, "x")
    for at in range(data.size):
        broken = data.copy()
        broken[at] ^= 255
        with pytest.raises(CheckpointError):
            delta.decode(found, broken, bomb.old, "x")


@pytest.mark.parametrize("text", ["", "/", "T1=", "a\0b", "a\nb", "file://elsewhere/a", "   "])
def test_places_that_are_none(text):
    with pytest.raises(CheckpointError):
        Tier.of(text)
