"""Seeds: whatever is taken is exact in the record, to the largest; what is none is refused."""

import json
import subprocess
import sys

import pytest

from rackproof.reports.read import read_run

LARGEST = 2**63 - 1
SEEDS = [2**53 + 1, LARGEST]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_burn_of_a_large_seed_is_read_back(cli, tmp_path, seed):
    answer = cli("burn", "hgx-h100", "--only", "inventory", "--seed", str(seed), "--out", "run")
    assert answer.code == 0, answer.err
    assert read_run(tmp_path / "run").head.seed == seed


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drill_of_a_large_seed_is_seen_by_telemetry(cli, seed):
    answer = cli(
        "drill", "gpu-loss", "--steps", "20", "--seed", str(seed), "--out", "run", "--json"
    )
    assert (answer.code, answer.json["verdict"], answer.json["seed"]) == (0, "PASS", seed)


@pytest.mark.parametrize("verb", ["burn", "probe", "drill", "qualify", "evaluate-classifier"])
@pytest.mark.parametrize("seed", ["-1", str(LARGEST + 1), "9" * 5000, "1.5", "x"])
def test_what_is_no_seed_is_refused(cli, verb, seed):
    what = {"drill": ("gpu-loss",), "evaluate-classifier": ()}.get(verb, ("hgx-h100",))
    answer = cli(verb, *what, f"--seed={seed}", "--json")
    assert answer.code == 2
    assert "--seed" in json.loads(answer.out)["error"]


@pytest.mark.parametrize("seed", ["-1", str(LARGEST + 1), "9" * 5000, "1.5", "x"])
def test_pytest_refuses_it_as_well(tmp_path, seed):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--rack", "hgx-h100", f"--rack-seed={seed}"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    assert done.returncode == 4
    assert f"is no whole number from 0 to {LARGEST}" in done.stderr
    assert "Traceback" not in done.stderr
