"""The worked examples of docs/howto/drill-your-own-training.md, run as a user would."""

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rackproof.harness.launch import rackproof_shim
from rackproof.harness.launch.command import CommandJob

DOCS = Path(__file__).resolve().parents[3] / "docs"
EXAMPLES = DOCS / "examples"
REGEX = (
    r"step (?P<step>\d+) loss (?P<loss>\S+) samples (?P<samples>\d+)"
    r" digest (?P<digest>\S+) in (?P<ckpt>.+)"
)

Make = Callable[..., CommandJob]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a folder with the examples and the shim, and nothing of rackproof."""
    found = tmp_path / "project"
    found.mkdir()
    for path in EXAMPLES.glob("train*"):
        shutil.copy(path, found)
    shutil.copy(rackproof_shim.__file__, found)
    return found


def states(job: CommandJob) -> dict[int | None, str]:
    """Return the digest that was told of each step, as it was told last."""
    return {
        each.number("step"): each.text("digest") for each in job.happenings if each.kind == "step"
    }


def stored(job: CommandJob) -> list[dict[str, Any]]:
    return [dict(fact.fields) for fact in job.seen if fact.what == "checkpoint"]


def hit(run: CommandJob, at: int) -> None:
    """Kill whoever takes part, and see it go on to its end from a checkpoint."""
    run.reach(at)
    run.kill(run.members()[-1].name)
    assert run.finish(), run.problems
    assert any(each.kind == "restore" for each in run.happenings)
    assert any(each.kind == "restarted" for each in run.acts)


def test_the_howto_says_what_is_run_here() -> None:
    text = (DOCS / "howto" / "drill-your-own-training.md").read_text("utf-8")
    for path in EXAMPLES.glob("train*"):
        assert f"examples/{path.name}" in text
    assert REGEX in text
    assert REGEX in (EXAMPLES / "train.sh").read_text("utf-8")


def test_a_shell_script(project: Path, job: Make) -> None:
    words = ["bash", str(project / "train.sh"), "40"]
    runs = []
    for at in (0, 7, 20):
        with job(words, steps=40, seed=3, log_regex=REGEX) as run:
            if at:
                hit(run, at)
            else:
                assert run.finish(), run.problems
        runs.append(run)
    clean = states(runs[0])
    assert len(clean) == 40
    for run in runs:
        assert run.problems == []
        # Killed between its save and its line, it goes on from what it saved, and tells no line.
        restored = {each.number("step") for each in run.happenings if each.kind == "restore"}
        assert clean.keys() - states(run).keys() <= restored
        assert clean | states(run) == clean
        for fact in stored(run):
            assert fact["verifies"], fact
            assert fact["digest"] == clean[fact["step"]]


def test_a_shell_script_ends_when_asked_and_has_saved(project: Path, job: Make) -> None:
    words = ["bash", str(project / "train.sh"), "100000"]
    with job(words, log_regex=REGEX, grace=30.0) as run:
        run.reach(3)
        run.close()
    assert run._crew.copies[0].code in {-15, 128 + 15}
    assert max(step or 0 for step in states(run)) == max(fact["step"] for fact in stored(run))


@pytest.mark.slow
def test_a_pytorch_script_under_torchrun(
    project: Path, job: Make, module: Callable[[str], None]
) -> None:
    module("torch")
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words += ["--max-restarts", "3", str(project / "train_torchrun.py"), "--steps", "40"]
    needed = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "lo"}
    runs = []
    for at in (0, 23):
        with job(words, steps=40, seed=3, environment=needed) as run:
            if at:
                run.reach(1)
                assert [each.name for each in run.members()] == ["replica0.rank0", "replica0.rank1"]
                hit(run, at)
            else:
                assert run.finish(), run.problems
        runs.append(run)
    clean, faulted = runs
    assert states(clean) == states(faulted)
    assert len(states(clean)) == 40
    for run in runs:
        assert [fact["step"] for fact in stored(run)] == [10, 20, 30, 40]
        for fact in stored(run):
            assert fact["verifies"], fact
            assert fact["digest"] == states(run)[fact["step"]], "the judge's own hash of the file"


AT_THE_END = """
import os, pathlib
import train_torchrun
import torch.distributed as dist
dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
def threads():
    names = [path.read_text() for path in pathlib.Path("/proc/self/task").glob("*/comm")]
    return sum("gloo" in name for name in names)
train_torchrun.train(2, 10)
during = threads()
dist.destroy_process_group()
print(during > 0, threads())
"""


@pytest.mark.slow
def test_no_thread_of_gloo_outlives_its_group(
    project: Path, module: Callable[[str], None], tmp_path: Path
) -> None:
    module("torch")
    here = {"GLOO_SOCKET_IFNAME": "lo", "RP_CKPT_URL": (tmp_path / "store").as_uri()}
    words = [sys.executable, "-c", AT_THE_END]
    done = subprocess.run(
        words, cwd=project, env={**os.environ, **here}, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "0"]


STAND_IN = """
import os, sys, types
ray = types.ModuleType("ray")
ray.train, ray.train.torch = types.ModuleType("ray.train"), types.ModuleType("ray.train.torch")
for module in (ray, ray.train, ray.train.torch):
    sys.modules[module.__name__] = module
ray.init = lambda **how: None
ray.shutdown = lambda: None
def words(**how):
    return how
ray.train.ScalingConfig = ray.train.RunConfig = ray.train.FailureConfig = words
ray.train.torch.TorchConfig = words
class TorchTrainer:
    def __init__(self, loop, *, train_loop_config, **how):
        self.run = lambda: loop(train_loop_config)
        assert how["scaling_config"] == {"num_workers": 1}
    def fit(self):
        import torch.distributed as dist
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
        self.run()
        dist.destroy_process_group()
ray.train.torch.TorchTrainer = TorchTrainer
import runpy
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_ray_job_is_a_program_that_asks_ray_for_what_it_has() -> None:
    tree = ast.parse((EXAMPLES / "train_ray.py").read_text("utf-8"))
    asked = {ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    names = {"ray.init", "ray.shutdown", "ray.train.torch.TorchTrainer", "ray.train.ScalingConfig"}
    assert names <= asked


@pytest.mark.slow
def test_a_ray_job_on_a_stand_in(project: Path, job: Make, module: Callable[[str], None]) -> None:
    module("torch")
    (project / "stand_in.py").write_text(STAND_IN, "utf-8")
    words = [sys.executable, str(project / "stand_in.py"), str(project / "train_ray.py")]
    words += ["--steps", "40", "--workers", "1"]
    with job(words, steps=40, environment={"GLOO_SOCKET_IFNAME": "lo"}) as run:
        hit(run, 15)
    assert run.problems == []
    assert sorted(step or 0 for step in states(run)) == list(range(1, 41))


def test_the_shim_is_had_by_one_command(project: Path) -> None:
    words = [sys.executable, "-m", "rackproof.harness.launch.rackproof_shim"]
    printed = subprocess.run(words, capture_output=True, check=True, env=os.environ).stdout
    assert printed == (project / "rackproof_shim.py").read_bytes()
    text = (DOCS / "howto" / "drill-your-own-training.md").read_text("utf-8")
    assert "python -m rackproof.harness.launch.rackproof_shim >rackproof_shim.py" in text
