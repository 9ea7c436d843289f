"""Output that nobody takes changes no verdict; a device is never replaced by a file."""

import json
import shlex
import subprocess
from pathlib import Path

import pytest

BURN = "burn hgx-h100 --only health --seed 1 --out run"


def shell(command, folder, line):
    """Run a shell line in which $R is the CLI; returns (exit code, stderr)."""
    start = shlex.join(command)
    script = f'set -o pipefail; R() {{ {start} "$@"; }}; {line}'
    done = subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stderr


def test_a_closed_pipe_does_not_stop_a_burn(command, tmp_path):
    assert shell(command, tmp_path, f"R {BURN} | head -n 0") == (0, "")
    last = (tmp_path / "run/record.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["verdict"] == "PASS"


@pytest.mark.parametrize("where", [">&-", ">/dev/full"])
def test_an_answer_that_was_not_delivered_is_no_pass(command, tmp_path, where):
    for line in (BURN, "list racks", "diagnose run"):
        code, err = shell(command, tmp_path, f"R {line} {where}")
        assert code == 3
        assert "not delivered" in err


def test_a_report_never_replaces_what_is_no_file(cli, tmp_path):
    assert cli(*BURN.split()).code == 0
    (tmp_path / "folder").mkdir()
    for out in ("/dev/null", "folder"):
        answer = cli("report", "run", "--as", "csv", "--out", out)
        assert answer.code == 2
        assert "no regular file" in answer.err
    assert Path("/dev/null").is_char_device()


def test_what_is_expected_must_be_read(cli):
    answer = cli("burn", "hgx-h100", "--only", "health", "--expect", "driver=1")
    assert answer.code == 2
    assert "inventory" in answer.err


def test_a_rack_that_is_slow_as_a_whole_is_no_reference(cli):
    plants = [f"--plant=slow-gpu@rack0/tray00/gpu{n}:factor=0.5" for n in range(5)]
    answer = cli("burn", "hgx-h100", "--only", "gemm", "--seed", "1", *plants, "--json")
    assert (answer.code, answer.json["verdict"], answer.accused()) == (3, "UNKNOWN", set())
    assert {c["metric"] for c in answer.json["checks"]} == {"gemm.fp32.rate"}
