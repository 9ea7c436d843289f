"""Without torch there is one clear message; what needs none goes on without."""

import json
import subprocess
import sys

import pytest

from rackproof.harness.errors import DrillError
from rackproof.harness.training.plan import Plan
from rackproof.harness.training.torch import MISSING
from rackproof.harness.training.torch import job as jobs

BLOCKED = """
import importlib.util, sys
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name.split('.')[0] in {'torch', 'torchft'} else real(name, package))
from rackproof.harness.training.torch import train
sys.exit(train.main(['--plan', sys.argv[1]]))
"""


@pytest.fixture
def plan_file(tmp_path):
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(Plan(mode="drop-batch").as_json()), "utf-8")
    return file


def run(plan_file, **words):
    return subprocess.run(
        [sys.executable, "-c", BLOCKED, str(plan_file)],
        env={"PATH": "/usr/bin", "TORCHFT_LIGHTHOUSE": "http://127.0.0.1:1", **words},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_trainer_says_what_to_install(plan_file):
    done = run(plan_file)
    assert done.returncode == 2
    assert done.stderr == f"rackproof: {MISSING}\n"
    assert "pip install 'rackproof[torch]'" in MISSING


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"RP_REPLICA": "7"}, "RP_REPLICA is 7, of 2 replicas"),
        ({"RP_REPLICA": "one"}, "whole numbers"),
    ],
)
def test_a_seat_that_cannot_be_is_said_first(plan_file, words, said):
    done = run(plan_file, **words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_no_plan_is_said(tmp_path):
    done = run(tmp_path / "none")
    assert done.returncode == 2
    assert "is no plan of a training run" in done.stderr


def test_the_job_starts_nothing(tmp_path, monkeypatch):
    def gone():
        raise DrillError(MISSING)

    monkeypatch.setattr(jobs, "require_torch", gone)
    with pytest.raises(DrillError, match="pip install"), jobs.TorchftJob(Plan(), tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()
