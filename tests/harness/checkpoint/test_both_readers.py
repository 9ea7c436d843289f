"""One table for both readers, ours and the short one of the documentation: what both must refuse.

In words, and never by a traceback, by waiting, or by unpacking what is longer than it may be. Below
it stands what somebody else may write, which both must read alike.
"""

import pickle
import runpy
import shutil
import struct
import sys

import numpy as np
import pytest
import zstandard
from safetensors.numpy import save

from rackproof.harness.checkpoint import parts, verify
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer
from tests.harness.checkpoint.hands import (
    DELTA,
    FULL,
    PART,
    Thing,
    alone,
    backwards,
    context,
    cut,
    delta,
    file_of,
    gone,
    link,
    linked_folder,
    manifest,
    names_twice,
    no_folder,
    of_parent,
    part,
    pipe,
    put,
    renamed,
    reparented,
    row,
    swapped,
    text,
    twice_in_context,
    without,
)
from tests.harness.checkpoint.test_reader import READER


@pytest.fixture(scope="module")
def stored(tmp_path_factory, snapshot):
    """A tier with a full checkpoint, of step 1, and a delta, of step 2, in two parts each."""
    root = tmp_path_factory.mktemp("stored") / "a"
    with Writer([Tier.of(str(root))], parts=2, delta=True) as writer:
        writer.save(snapshot(1, dense=False))
        writer.save(snapshot(2, dense=False))
    return root


@pytest.fixture
def root(stored, tmp_path):
    return shutil.copytree(stored, tmp_path / "a")


def short(folder, monkeypatch, capsys):
    """Return (digest, why it refused) of the short reader."""
    monkeypatch.setattr(sys, "argv", [str(READER), str(folder)])
    code = ""
    try:
        runpy.run_path(str(READER), run_name="__main__")
    except SystemExit as stop:
        code = str(stop.code)
    assert not code or code.startswith("REFUSED: ")
    return "" if code else capsys.readouterr().out.split()[-1], code


def ours(folder):
    """Return (digest, why it refused) of our reader."""
    row = verify.look(Tier.of(str(folder.parent)), folder.name)
    return (row.digest, "") if row.verifies else ("", row.problem)


HEX = "ab" * 32
SHAPE = {"name": DELTA, "sha256": HEX}
BOMB = zstandard.compress(bytes(64 << 20))
LIES = struct.pack("<IBI", 0xFD2FB528, 0xA0, 640) + BOMB[9:]  # names 640 bytes, stands for 64 MiB

HOSTILE = {
    "no manifest": gone("MANIFEST.json"),
    "torn manifest": cut("MANIFEST.json", 100),
    "empty manifest": cut("MANIFEST.json", 0),
    "sparse manifest": cut("MANIFEST.json", 1 << 40),
    "manifest a list": text(b"[]"),
    "manifest null": text(b"null"),
    "manifest deep": text(b"[" * 100_000),
    "manifest not text": text(b"\xff\xfe"),
    "manifest a long number": text(b'{"schema":' + b"9" * 10_000 + b"}"),
    "manifest a link": link("MANIFEST.json"),
    "manifest a pipe": pipe("MANIFEST.json"),
    "context a link": link("context.json"),
    "context a pipe": pipe("context.json"),
    "part a link": link(PART(0)),
    "part a pipe": pipe(PART(1)),
    "no part": gone(PART(0)),
    "torn part": cut(PART(0), 100),
    "sparse part": cut(PART(0), 1 << 40),
    "no folder": no_folder,
    "folder a link": linked_folder,
    "other key": manifest(more=1),
    "no files": without("files"),
    "no ratio": without("ratio"),
    "no context listed": without("files", "context.json"),
    "files a list": manifest(files=[]),
    "files a text": manifest(files="x"),
    "a row that is none": manifest(files={"context.json": 1, PART(0): 2}),
    "ratio a text": manifest(ratio="1.0"),
    "ratio whole": manifest(ratio=1),
    "step a float": manifest(step=1.0),
    "step true": manifest(step=True),
    "step of another": manifest(step=2),
    "schema": manifest(schema="pickle"),
    "delta without parent": manifest(kind="delta", parent=None),
    "full with parent": manifest(parent=SHAPE),
    "kind unknown": manifest(kind="half"),
    "parent a text": manifest(kind="delta", parent="x"),
    "parent false": manifest(parent=False),
    "parent empty": manifest(kind="delta", parent={}),
    "parent up": manifest(kind="delta", parent={"name": f"../{FULL}", "sha256": HEX}),
    "parent a number": manifest(kind="delta", parent={"name": 7, "sha256": HEX}),
    "parent missing": manifest(kind="delta", parent={"name": "step-000000000007", "sha256": HEX}),
    "parent itself": manifest(kind="delta", parent={"name": FULL, "sha256": HEX}),
    "newline in a name": renamed(PART(1), f"{PART(1)}\n"),
    "zeros in a name": renamed(PART(1), "part-01.safetensors"),
    "part 3 alone": alone,
    "names twice": names_twice,
    "order reversed": backwards,
    "order swapped": swapped,
    "order a text": context(order="weights"),
    "order of numbers": context(order=[1, 2]),
    "context empty": lambda folder: put(folder, "context.json", b"{}"),
    "context not json": lambda folder: put(folder, "context.json", b"\x80"),
    "context with NaN": lambda folder: put(folder, "context.json", b'{"rng":NaN}'),
    "context key twice": twice_in_context,
    "context other key": context(code="import os"),
    "context of another step": context(step=2),
    "context step a float": context(step=1.0),
    "context schema": context(schema=1),
    "accumulating a number": context(accumulating=1),
    "rng empty": context(rng={}),
    "rng a list": context(rng=[1]),
    "config without sha": context(config={"sha256": 7}),
    "commit without sha": context(commit={"sha": ""}),
    "part a pickle": part(pickle.dumps(Thing())),
    "part empty": part(b""),
    "part short": part(b"abc"),
    "header huge": part(struct.pack("<Q", 1 << 63) + b"{}"),
    "header no json": part(file_of(b"{")),
    "header a list": part(file_of(b"[]")),
    "header deep": part(file_of(b"[" * 100_000)),
    "header key twice": part(file_of(b'{"a":1,"a":1}')),
    "header other key": part(file_of({"a": row(code="x")}, bytes(4))),
    "a dtype that is not": part(file_of({"a": row("F99")}, bytes(4))),
    "a size that is not": part(file_of({"a": row(shape=(2,))}, bytes(4))),
    "an overflow": part(file_of({"a": row(shape=(1 << 32, 1 << 32))}, bytes(4))),
    "sides of nothing": part(file_of({"a": row(shape=(0, 1 << 62), offsets=(0, 0))})),
    "overlap": part(file_of({"a": row(), "b": row()}, bytes(4))),
    "a hole": part(file_of({"a": row(), "b": row(offsets=(8, 12))}, bytes(12))),
    "a rest": part(file_of({"a": row()}, bytes(5))),
    "metadata a number": part(file_of({"__metadata__": {"a": 1}})),
}  # fmt: skip
OF_A_DELTA = {
    "parent gone": of_parent(no_folder),
    "parent without manifest": of_parent(gone("MANIFEST.json")),
    "parent without part": of_parent(gone(PART(1))),
    "parent torn": of_parent(cut(PART(1), 50)),
    "parent a link": of_parent(linked_folder),
    "parent's manifest a pipe": of_parent(pipe("MANIFEST.json")),
    "another parent": reparented,
    "no metadata": part(file_of({"delta": row("U8", (4,))}, bytes(4))),
    "no delta": part(file_of({})),
    "another tensor": part(
        file_of({"delta": row("U8", (1,), (0, 1)), "b": row("U8", (0,), (1, 1))}, b"0")
    ),
    "format": delta(format="pickle"),
    "word 3": delta(word="3"),
    "word a text": delta(word="x"),
    "chunk 0": delta(chunk="0"),
    "chunk negative": delta(chunk="-4"),
    "chunk odd": delta(chunk="4194303"),
    "chunk too large": delta(chunk=str(1 << 40)),
    "no chunks": delta(chunks="[]"),
    "chunks that are none": delta(chunks="[[1]]"),
    "chunks deep": delta(chunks="[" * 100_000),
    "chunks longer": delta(chunks='[[99999,"0"]]'),
    "no frame": delta(frames=b"no zstd at all"),
    "a bomb": delta(frames=BOMB),
    "a bomb that lies": delta(frames=LIES),
    "other data": delta(frames=zstandard.compress(bytes(640))),
}  # fmt: skip


@pytest.mark.parametrize("case", HOSTILE)
def test_what_both_refuse(root, case, monkeypatch, capsys):
    HOSTILE[case](root / FULL)
    refused(root / FULL, monkeypatch, capsys)


@pytest.mark.parametrize("case", OF_A_DELTA)
def test_a_delta_that_both_refuse(root, case, monkeypatch, capsys):
    OF_A_DELTA[case](root / DELTA)
    refused(root / DELTA, monkeypatch, capsys)


def refused(folder, monkeypatch, capsys):
    digest, why = ours(folder)
    assert why
    assert not digest
    digest, why = short(folder, monkeypatch, capsys)
    assert why
    assert not digest


def test_a_bomb_is_not_unpacked(root, monkeypatch, capsys):
    delta(frames=BOMB)(root / DELTA)

    def never(*_, **__):
        pytest.fail("it was unpacked")

    monkeypatch.setattr(zstandard, "decompress", never)
    monkeypatch.setattr(zstandard, "ZstdDecompressor", never)
    refused(root / DELTA, monkeypatch, capsys)


def test_no_argument_is_no_traceback(monkeypatch):
    monkeypatch.setattr(sys, "argv", [str(READER)])
    with pytest.raises(SystemExit, match="REFUSED"):
        runpy.run_path(str(READER), run_name="__main__")


# --- what both read -------------------------------------------------------------------------------
def foreign(folder):
    """As somebody else writes it: safetensors' own order, m/ and v/ before the weights."""
    state = {
        name: np.full(3, n, np.float32) for n, name in enumerate(("weights/a", "v/a", "m/a", "z"))
    }
    data = save(state)
    found, _ = parts.read(np.frombuffer(data, np.uint8), "x")
    without("files", PART(1))(folder)
    part(data)(folder)
    context(order=[entry.name for entry in found.entries])(folder)


def odd(folder):
    """With bfloat16, of which NumPy knows nothing, and with tensors of no bytes."""
    rows = {
        "weights/b": row("BF16", (2, 2), (0, 8)),
        "m/none": row("F32", (0, 3), (8, 8)),
        "a/none": row("I8", (0,), (8, 8)),
        "v/b": row("BOOL", (2,), (8, 10)),
    }
    without("files", PART(1))(folder)
    part(file_of(rows, bytes(10)))(folder)
    context(order=list(rows))(folder)


GOOD = {
    "full": (FULL, lambda _: None),
    "delta": (DELTA, lambda _: None),
    "foreign": (FULL, foreign),
    "odd": (FULL, odd),
    "the parent's context is not needed": (DELTA, of_parent(gone("context.json"))),
}


@pytest.mark.parametrize("case", GOOD)
def test_what_both_read_alike(root, case, monkeypatch, capsys):
    name, change = GOOD[case]
    change(root / name)
    digest, why = ours(root / name)
    assert not why
    assert short(root / name, monkeypatch, capsys) == (digest, "")
