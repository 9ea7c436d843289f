"""The shim, as somebody's project has it: a copy of one file, without rackproof."""

import ast
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from rackproof.harness.happening import Happening, parse
from rackproof.harness.launch import foreign, rackproof_shim

SOURCE = Path(rackproof_shim.__file__)


@pytest.fixture
def rp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return a copy of the shim that a drill listens to."""
    for name in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT", *os.environ):
        if name.startswith("RP_") or name in {"RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"}:
            monkeypatch.delenv(name, raising=False)
    shutil.copy(SOURCE, tmp_path / "rackproof_shim.py")
    spec = importlib.util.spec_from_file_location("my_shim", tmp_path / "rackproof_shim.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("RP_EVENTS", str(tmp_path / "events.jsonl"))
    return module


@pytest.fixture
def said(tmp_path: Path) -> Any:
    """Return what was told so far."""

    def read() -> list[Happening]:
        path = tmp_path / "events.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        found = [parse(line, "replica0", 0.0) for line in lines]
        assert all(isinstance(each, Happening) for each in found), found
        return [each for each in found if isinstance(each, Happening)]

    return read


def test_it_needs_nothing_but_the_standard_library_of_an_old_python() -> None:
    tree = ast.parse(SOURCE.read_text("utf-8"), feature_version=(3, 8))
    names = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name).split(".")[0]  # type: ignore[union-attr]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert names <= sys.stdlib_module_names


def test_it_prints_itself() -> None:
    words = [sys.executable, "-m", "rackproof.harness.launch.rackproof_shim"]
    printed = subprocess.run(words, capture_output=True, check=True).stdout
    assert printed == SOURCE.read_bytes()


def test_a_run_in_its_words(rp: ModuleType, said: Any, tmp_path: Path) -> None:
    rp.hello()
    rp.step(1, loss=0.5, samples=8, digest="ab")
    rp.step(2, loss=float("nan"), samples=[4, 5])
    rp.checkpoint("staged", 2, "here")
    rp.restored(2, "peer:replica1", ["weights"])
    rp.fault("too hot")
    hello, one, two, ckpt, restore, fault = said()
    assert hello.fields == {"pid": os.getpid(), "rank": 0, "world": 1}
    assert one.fields == {"step": 1, "loss": 0.5, "samples": 8, "digest": "ab"}
    assert two.fields == {"step": 2, "loss": "nan", "samples": [4, 5]}
    assert ckpt.fields == {"phase": "staged", "step": 2, "uri": str(Path.cwd() / "here")}
    assert restore.fields == {"step": 2, "uri": "peer:replica1", "fields": ["weights"]}
    assert fault.fields == {"text": "too hot"}
    assert 0 < hello.at <= one.at


def test_outside_of_a_drill_it_does_nothing(
    rp: ModuleType, said: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("RP_EVENTS")
    monkeypatch.chdir(tmp_path)
    rp.hello()
    rp.step(1)
    assert said() == []
    assert not rp.active()
    assert not rp.resume()
    assert (rp.attempt(), rp.replica(), rp.seed(5)) == (1, 0, 5)
    assert Path(rp.checkpoint_dir()).is_dir()


def test_of_several_ranks_each_says_hello_and_the_first_the_rest(
    rp: ModuleType, said: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in ("0", "1"):
        monkeypatch.setenv("RANK", rank)
        rp.hello()
        rp.step(1)
        rp.checkpoint("committed", 1, "x")
        rp.restored(1, "x")
        rp.fault("seen")
    found = [(each.who, each.kind) for each in said()]
    first = [("rank0", kind) for kind in ("hello", "step", "ckpt", "restore", "fault")]
    assert found == [*first, ("rank1", "hello"), ("rank1", "fault")]
    rp.step(2, every_rank=True)
    assert said()[-1].who == "rank1"


def test_ranks_that_are_not_in_the_environment(rp: ModuleType, said: Any) -> None:
    rp.hello(rank=3, world=4)
    rp.step(1)
    (hello,) = said()
    assert (hello.who, hello.fields["rank"], hello.fields["world"]) == ("rank3", 3, 4)


@pytest.mark.parametrize(
    ("name", "value", "again"),
    [("RP_RESUME", "1", True), ("RP_RESUME", "0", False), ("TORCHELASTIC_RESTART_COUNT", "1", True),
     ("TORCHELASTIC_RESTART_COUNT", "0", False)],
)  # fmt: skip
def test_when_to_go_on_from_a_checkpoint(
    rp: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str, value: str, *, again: bool
) -> None:
    monkeypatch.setenv(name, value)
    assert rp.resume() is again


@pytest.mark.parametrize("name", ["a b", "a%20b%", "a?b#c", "ü é", os.fsdecode(b"\xff")])
def test_the_folder_of_checkpoints(
    rp: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv("RP_CKPT_URL", (tmp_path / name).as_uri())
    assert rp.checkpoint_dir() == str(tmp_path / name)
    made = {path.name for path in tmp_path.iterdir() if path.is_dir()}
    assert made - {"__pycache__"} == {name}  # which lies beside where bytecode is written


def test_checkpoints_on_no_disk(rp: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RP_CKPT_URL", "s3://bucket/run")
    assert rp.checkpoint_dir() == "s3://bucket/run"
    assert rp.environment()["RP_CKPT_URL"] == "s3://bucket/run"


def test_a_drill_that_cannot_be_told_does_not_stop_training(
    rp: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RP_EVENTS", "/nowhere/events")
    rp.step(1)
    rp.step(2)
    monkeypatch.setenv("RP_EVENTS", "/")
    rp.step(3, samples=object())
    assert capsys.readouterr().err.count("was not told") == 1


def test_lines_of_several_processes_do_not_mix(tmp_path: Path, said: Any) -> None:
    body = "import rackproof_shim as rp\nfor n in range(300): rp.fault('x' * 900)"
    shutil.copy(SOURCE, tmp_path / "rackproof_shim.py")
    words = {**os.environ, "RP_EVENTS": str(tmp_path / "events.jsonl"), "PYTHONPATH": str(tmp_path)}
    children = [subprocess.Popen([sys.executable, "-c", body], env=words) for _ in range(4)]
    assert [child.wait() for child in children] == [0] * 4
    assert len(said()) == 1200


def test_equal_states_have_equal_digests_and_others_have_not(rp: ModuleType) -> None:
    one = {"w": np.arange(6, dtype=np.float32), "n": [1, 2.5, None, True, "x", b"y"]}
    same = {"n": (1, 2.5, None, True, "x", b"y"), "w": np.arange(6, dtype=np.float32)}
    assert rp.digest(one) == rp.digest(same)
    others = [
        {**one, "w": np.arange(6, dtype=np.float64)},
        {**one, "w": np.arange(6, dtype=np.float32).reshape(2, 3)},
        {**one, "w": np.nextafter(one["w"], 9)},
        {**one, "w": np.zeros(0, np.float32)},
        {**one, "n": [1.0, 2.5, None, True, "x", b"y"]},
        {**one, "n": [1, 2.5, None, 1, "x", b"y"]},
        {**one, "n": [1, 2.5, None, True, "xy", b""]},
        {"v": one["w"], "n": one["n"]},
        [one],
    ]
    found = {rp.digest(each) for each in (one, *others)}
    assert len(found) == len(others) + 1
    assert rp.digest({"z": np.float32(0.0)}) != rp.digest({"z": np.float32(-0.0)})


@pytest.mark.parametrize("state", [{1, 2}, object(), np.array([object()])])
def test_what_has_no_digest_is_an_error(rp: ModuleType, state: object) -> None:
    with pytest.raises(TypeError, match="no digest of"):
        rp.digest({"x": state})


def test_a_state_has_the_digest_that_the_judge_finds_in_its_file(
    rp: ModuleType, tmp_path: Path
) -> None:
    kinds = "bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64"
    state = {f"w/{kind}": np.arange(3).astype(kind) for kind in kinds.split()}
    state |= {"é": np.float32(1.5), "none": np.zeros((0, 3)), "a": np.ones((2, 2))[:, ::-1]}
    path = tmp_path / "w.safetensors"
    plain = {name: np.ascontiguousarray(array) for name, array in state.items()}
    save_file({**plain, "é": np.array(1.5, np.float32)}, path, metadata={"step": "7"})
    found = foreign.look(str(path), [tmp_path])
    assert found["problem"] == ""
    assert rp.digest(state) == rp.digest_file(path) == found["digest"]
    (tmp_path / "w.bin").write_bytes(b"weights")
    assert rp.digest_file(tmp_path / "w.bin") == foreign.look("w.bin", [tmp_path])["digest"]


def test_tensors_have_digests(module: Callable[[str], None], tmp_path: Path) -> None:
    module("torch")
    import torch  # noqa: PLC0415 - where it is installed
    from safetensors.torch import save_file as save  # noqa: PLC0415

    rp = rackproof_shim
    kinds = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
    found = {rp.digest({"w": torch.ones(3, dtype=kind)}) for kind in kinds}
    assert len(found) == len(kinds)
    across = torch.arange(6.0).reshape(2, 3).t()
    assert rp.digest(across) == rp.digest(across.contiguous().requires_grad_())
    assert rp.digest(torch.tensor(1.0)) != rp.digest(torch.tensor([1.0]))
    assert rp.digest(torch.zeros(0)) == rp.digest(torch.zeros(0))
    more = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float64, torch.uint8, torch.float16)
    state = {str(kind): torch.ones(3).to(kind) for kind in (*kinds[:4], *more)}
    save(state, tmp_path / "w.safetensors")
    found = foreign.look("w.safetensors", [tmp_path])
    assert found["problem"] == ""
    assert rp.digest(state) == found["digest"]


def test_a_file_has_a_digest(rp: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    assert rp.digest_file(tmp_path / "empty").startswith("e3b0c44298fc1c14")


def test_a_checkpoint_gets_its_name_last(rp: ModuleType, said: Any, tmp_path: Path) -> None:
    place = tmp_path / "step-3"
    (tmp_path / ".writing-step-3").mkdir()
    (tmp_path / ".writing-step-3" / "stale").touch()
    with rp.committing(str(place), 3) as writing:
        Path(writing, "deep").mkdir(parents=True)
        Path(writing, "deep", "w").write_bytes(b"1")
        assert not place.exists()
        assert said() == []
    assert [path.name for path in place.iterdir()] == ["deep"]
    (ckpt,) = said()
    assert (ckpt.fields["phase"], ckpt.fields["step"], ckpt.fields["uri"]) == (
        "committed", 3, str(place),
    )  # fmt: skip
    with pytest.raises(RuntimeError), rp.committing(str(tmp_path / "step-4"), 4):
        raise RuntimeError
    assert not (tmp_path / "step-4").exists()


def test_sigterm_asks_to_save_and_exit(tmp_path: Path) -> None:
    shutil.copy(SOURCE, tmp_path / "rackproof_shim.py")
    body = "import rackproof_shim as rp, time\nrp.catch_sigterm()\nprint('ready', flush=True)\n"
    body += "while not rp.stopping(): time.sleep(0.005)\nprint('saved')"
    words = {**os.environ, "PYTHONPATH": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", body], env=words, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        os.kill(child.pid, signal.SIGTERM)
        assert child.stdout.read() == b"saved\n"
    assert child.returncode == 0


def test_its_lines_are_plain_json(rp: ModuleType, tmp_path: Path) -> None:
    rp.step(1, loss=float("inf"))
    line = json.loads((tmp_path / "events.jsonl").read_text("utf-8"), parse_constant=pytest.fail)
    assert line["loss"] == "inf"
