"""Drills with torch: torchft's layer and a script under torchrun, judged like our own run."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rackproof.diagnostics.drills import acts
from rackproof.diagnostics.drills.base import Drill
from rackproof.fixtures.drill import hold
from rackproof.fixtures.stage import Asked, Silence
from rackproof.harness.spec import load
from rackproof.harness.training.plan import Plan
from rackproof.reports.drill_read import read_drill

pytestmark = pytest.mark.slow
EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "train_torchrun.py"
WORDS = ["fault", "detected", "isolated", "spare-active", "restored", "resynchronised", "resumed"]


def drill(folder, *words, **environment):
    """Return (exit code, JSON) of a drill in a child."""
    here = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-m", "rackproof.cli", "drill", *words],
        cwd=folder,
        env={**os.environ, **here, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, json.loads(done.stdout)


def failed(body):
    return {each["id"]: each["message"] for each in body["claims"] if each["verdict"] == "FAIL"}


@pytest.fixture(scope="module")
def torchft(module, tmp_path_factory):
    """One gpu-loss under torchft."""
    module("torch")
    module("torchft")
    folder = tmp_path_factory.mktemp("torchft")
    words = "gpu-loss --layer torchft --seed 3 --steps 100 --out run --json".split()
    return (*drill(folder, *words), folder / "run")


def test_torchft_shows_that_its_bits_are_those_of_its_own_membership(torchft):
    code, body, _ = torchft
    assert (code, body["verdict"], body["proof"]) == (0, "PASS", "L3"), failed(body)
    assert body["layer"] == "B"
    assert body["restarts"] == 0
    assert (body["steps"]["committed"], body["steps"]["lost"]) == (100, 0)


def test_torchft_goes_through_all_the_words_of_a_recovery(torchft):
    _, body, _ = torchft
    assert [moment["what"] for moment in body["timeline"]] == WORDS
    assert sum(body["ledger"].values()) == pytest.approx(1.0, abs=1e-6)


def test_torchft_claims_no_more_than_a_dropped_batch_can_show(torchft):
    _, body, run = torchft
    verdicts = {each["id"]: each["verdict"] for each in body["claims"]}
    assert verdicts["fault-free"] == verdicts["proof L4"] == "SKIP"
    assert verdicts["replay"] == "PASS"
    record = read_drill(run)
    assert record.head.mode == "drop-batch"
    assert {"faulted", "clean1", "clean2", "replay"} <= set(record.courses)


def test_more_than_a_dropped_batch_can_show_is_refused(module, tmp_path):
    module("torch")
    code, body = drill(tmp_path, *"gpu-loss --layer torchft --require L4 --out run --json".split())
    assert code == 2
    assert "can show L3 at best" in body["error"]


def control(folder, **more):
    """Hold gpu-loss under torchft with a trainer that does something wrong; no fault-free runs."""
    plan = Plan(steps=40, mode="drop-batch", pace=0.05, **more)

    def body(stage):
        stage.expect(acts.TORCHFT)
        with stage.run(stage.sized(plan)) as job:
            job.reach(12)
            job.kill("r1")
            job.finish()

    asked = Asked(Drill("gpu-loss", "a control", body), load("gb300-nvl72"), 5, folder, "B")
    return hold(asked, Silence()).recovery


def test_a_liar_under_torchft_fails(module, tmp_path):
    module("torch")
    recovery = control(tmp_path / "run", defect="lie")
    wrong = {claim.id for claim in recovery.claims if claim.verdict == "FAIL"}
    assert str(recovery.verdict) == "FAIL"
    assert {"replay", "checkpoints"} <= wrong
    assert recovery.proof in {"none", "L0", "L1"}


def test_a_field_forgotten_under_torchft_fails(module, tmp_path):
    module("torch")
    recovery = control(tmp_path / "run", defect="forget:rng")
    wrong = {claim.id: claim.message for claim in recovery.claims if claim.verdict == "FAIL"}
    assert str(recovery.verdict) == "FAIL"
    assert "rng" in wrong["checkpoints"]


@pytest.fixture
def project(module, tmp_path):
    """A project as the guide makes it: the example, and the shim beside it."""
    module("torch")
    shutil.copy(EXAMPLE, tmp_path)
    shim = subprocess.run(
        [sys.executable, "-m", "rackproof.harness.launch.rackproof_shim"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (tmp_path / "rackproof_shim.py").write_text(shim, "utf-8")
    return tmp_path


def test_a_script_under_torchrun_is_proven_bit_for_bit(project):
    command = "torchrun --standalone --nproc-per-node 2 --max-restarts 3 train_torchrun.py"
    code, body = drill(
        project,
        *"gpu-loss --seed 3 --steps 40 --replicas 1 --require L4 --out run --json --".split(),
        *command.split(), "--steps", "40",
        TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
        GLOO_SOCKET_IFNAME="lo",
    )  # fmt: skip
    assert (code, body["verdict"], body["proof"]) == (0, "PASS", "L4"), failed(body)
    assert body["layer"] == "C"
    assert body["restarts"] == 1
    assert body["steps"]["committed"] == 40
