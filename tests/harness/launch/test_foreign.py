"""Checkpoints of other people's formats: hashed, checked without loading, below their roots."""

import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from rackproof.harness.happening import Happening
from rackproof.harness.launch import foreign

WEIGHTS = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, dtype=np.float16)}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    found = tmp_path / "checkpoints"
    found.mkdir()
    return found


def problem(home: Path, uri: str) -> str:
    found = foreign.look(uri, [home])
    assert not found["verifies"]
    assert not found["digest"]
    return str(found["problem"])


def test_a_file_is_its_bytes(home: Path) -> None:
    (home / "one.bin").write_bytes(b"weights")
    (home / "two.bin").write_bytes(b"weights")
    one, two = (foreign.look(name, [home], 7) for name in ("one.bin", f"file://{home}/two.bin"))
    assert one["verifies"]
    assert one["step"] == 7
    assert one["digest"] == two["digest"]
    (home / "two.bin").write_bytes(b"weightS")
    assert foreign.look("two.bin", [home])["digest"] != one["digest"]


def test_a_folder_is_the_names_and_contents_of_its_files(home: Path) -> None:
    def digest(name: str) -> str:
        found = foreign.look(name, [home])
        assert found["problem"] == ""
        return str(found["digest"])

    for folder in "xyz":
        (home / folder / "deep").mkdir(parents=True)
        (home / folder / "deep" / "w").write_bytes(b"1")
        (home / folder / "v").write_bytes(b"2")
    assert digest("x") == digest("y")
    (home / "y" / "v").rename(home / "y" / "u")
    (home / "z" / "v").write_bytes(b"3")
    assert len({digest("x"), digest("y"), digest("z")}) == 3


def test_a_safetensors_file_is_its_tensors_and_not_its_date(home: Path) -> None:
    for name, when in (("a", "monday"), ("b", "tuesday")):
        save_file(WEIGHTS, home / f"{name}.safetensors", metadata={"date": when})
    one, two = (foreign.look(f"{name}.safetensors", [home]) for name in "ab")
    assert (home / "a.safetensors").read_bytes() != (home / "b.safetensors").read_bytes()
    assert one["digest"] == two["digest"] == one["tensors"]
    save_file({**WEIGHTS, "b": WEIGHTS["b"] + np.float16(1)}, home / "b.safetensors")
    assert foreign.look("b.safetensors", [home])["digest"] != one["digest"]


def test_a_safetensors_file_that_was_cut_or_bent(home: Path) -> None:
    path = home / "w.safetensors"
    save_file(WEIGHTS, path)
    whole = path.read_bytes()
    for cut in (0, 5, 8, 40, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert "w.safetensors: " in problem(home, "w.safetensors")
    path.write_bytes(whole + b"x")
    assert "where its header says" in problem(home, "w.safetensors")


@pytest.mark.parametrize(
    "header",
    [
        [], {"a": 1}, {"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [True], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}},
        {"a": {"dtype": "F32", "shape": [10**400] * 3, "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [1] * 99, "data_offsets": [0, 4]}},
        {"a": {"dtype": [], "shape": [1], "data_offsets": [0, 4]}},
    ],
)  # fmt: skip
def test_a_header_of_somebodys_making(home: Path, header: object) -> None:
    text = json.dumps(header).encode()
    (home / "w.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 4)
    assert "w.safetensors: " in problem(home, "w.safetensors")


def test_an_archive_is_checked_by_its_sums(home: Path) -> None:
    with zipfile.ZipFile(home / "model.pt", "w") as archive:
        archive.writestr("model/data/0", b"\1" * 1000)
    assert foreign.look("model.pt", [home])["verifies"]
    bytes_ = bytearray((home / "model.pt").read_bytes())
    bytes_[200] ^= 1
    (home / "model.pt").write_bytes(bytes_)
    assert (
        problem(home, "model.pt")
        == "model.pt: model/data/0 is damaged, its check sum is another one"
    )


def test_a_pickle_is_bytes_and_is_not_run(home: Path, tmp_path: Path) -> None:
    (home / "model.pkl").write_bytes(
        b"cos\nsystem\n(S'touch " + str(tmp_path).encode() + b"/x'\ntR."
    )
    assert foreign.look("model.pkl", [home])["verifies"]
    assert not (tmp_path / "x").exists()


def test_what_lies_outside_is_not_looked_at(home: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"1")
    (home / "away").symlink_to(tmp_path)
    for uri in ("../secret", f"{tmp_path}/secret", "/etc/passwd", "away/secret", "..", "away",
                f"file://{home}/%2e%2e/secret"):  # fmt: skip
        assert "lies outside" in problem(home, uri)


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("gone", "not there"), ("", "no address"), ("a\0b", "no address"), ("s3://b/k", "no disk"),
        ("link", "is a link"), ("fifo", "no regular file"), ("with-link", "cannot be read"),
        ("with-fifo", "no regular file"), ("empty", "holds no file"),
        ("with-folder-link", "cannot be read"), ("n" * 5000, "cannot be read"),
    ],
)  # fmt: skip
def test_what_is_no_checkpoint(home: Path, uri: str, why: str) -> None:
    (home / "w").write_bytes(b"1")
    (home / "link").symlink_to("w")
    os.mkfifo(home / "fifo")
    for name in ("with-link", "with-fifo", "empty", "with-folder-link"):
        (home / name).mkdir()
    (home / "with-link" / "w").symlink_to(home / "w")
    (home / "with-folder-link" / "w").symlink_to(home / "empty")
    os.mkfifo(home / "with-fifo" / "w")
    assert why in problem(home, uri)


def test_what_was_written_again_is_looked_at_once(home: Path) -> None:
    (home / "latest").write_bytes(b"4")
    said = [
        Happening(0.0, "replica0", "ckpt", {"phase": "committed", "step": step, "uri": uri})
        for step, uri in ((1, "latest"), (2, "old"), (3, "latest"))
    ]
    said.append(Happening(0.0, "replica0", "ckpt", {"phase": "staged", "step": 4, "uri": "new"}))
    found = list(foreign.committed(said, [home]))
    assert [(fact["uri"], fact["step"], fact["verifies"]) for fact in found] == [
        ("old", 2, False),
        ("latest", 3, True),
    ]
