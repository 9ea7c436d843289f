"""`rackproof qualify` as a user has it: its JSON, its exit codes, and how it stops."""

import json
import os
import re
import signal
import subprocess
from importlib import resources

import pytest

KINDS = "hbm-stuck-bit,nvlink-down,coolant-loss"


@pytest.fixture
def real(tmp_path):
    shipped = resources.files("rackproof.harness").joinpath("racks/hgx-h100.toml").read_text()
    path = tmp_path / "real.toml"
    path.write_text(re.sub(r'source\s*=\s*"emulated"', 'source = "real"', shipped))
    return str(path)


def test_the_matrix_is_one_object(cli, tmp_path):
    before = set(tmp_path.iterdir())
    answer = cli("qualify", "hgx-h100", "--kinds", KINDS, "--seed", "3", "--json")
    body = answer.json
    assert (answer.code, body["verdict"], body["false_alarms"]) == (0, "PASS", 0)
    assert body["schema"] == "rackproof.qualify/1"
    rows = {row["fault"]: row for row in body["matrix"]}
    assert set(rows) == set(KINDS.split(","))
    assert (rows["coolant-loss"]["planted"], rows["coolant-loss"]["skip"]) == (0, "air-cooled")
    for name in ("hbm-stuck-bit", "nvlink-down"):
        cells = ("planted", "detected", "attributed", "component_right", "persistence_right")
        assert [rows[name][cell] for cell in cells] == [1] * 5
        assert rows[name]["seconds"] > 0
        assert rows[name]["by"]
    assert [(p["kind"], p["fired"] > 0) for p in body["planted"]] == [
        ("hbm-stuck-bit", True), ("nvlink-down", True),
    ]  # fmt: skip
    assert set(tmp_path.iterdir()) == before


def test_its_runs_can_be_kept_and_judged_again(cli, tmp_path):
    words = ("--kinds", "nvlink-down", "--seed", "3", "--out", "kept")
    answer = cli("qualify", "hgx-h100", *words)
    assert answer.code == 0
    assert answer.out.rstrip().splitlines()[-1].startswith("PASS")
    body = json.loads((tmp_path / "kept" / "qualify.json").read_text())
    runs = sorted(path.name for path in (tmp_path / "kept").iterdir() if path.is_dir())
    assert len(runs) == body["runs"] == 2
    again = cli("diagnose", f"kept/{runs[0]}", "--json").json
    (root,) = [d for d in again["diagnoses"] if d["role"] == "root"]
    assert root["subject"] == body["planted"][0]["subject"]
    assert cli("qualify", "hgx-h100", *words).code == 2


def test_what_cannot_be_qualified_is_refused(cli, real):
    for rack, said in (("vr-nvl72", "announced"), (real, "real"), ("local", "real")):
        answer = cli("qualify", rack)
        assert (answer.code, answer.out) == (2, "")
        assert said in answer.err
    answer = cli("qualify", "gb300-nvl71", "--json")
    assert (answer.code, "gb300-nvl72" in answer.json["error"]) == (2, True)
    answer = cli("qualify", "hgx-h100", "--kinds", "hbm-stuk-bit")
    assert (answer.code, "hbm-stuck-bit" in answer.err) == (2, True)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_it_stops_when_it_is_told_to_and_leaves_nothing(tmp_path, command, number, code):
    own = tmp_path / "tmp"
    own.mkdir()
    words = ["qualify", "hgx-h100", "--seed", "3", "--json"]
    child = subprocess.Popen(
        [*command, *words], env={**os.environ, "TMPDIR": str(own)}, cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    said = child.stderr.readline()  # its head, after which the signals are in our hands
    while child.poll() is None and not list(own.glob("*/tmp")):
        pass
    child.send_signal(number)
    out, err = child.communicate()
    assert "EMULATED" in said
    assert child.returncode == code
    assert json.loads(out)["verdict"] == "UNKNOWN"
    assert "interrupted" in err
    assert list(own.iterdir()) == []


def test_the_help_says_what_it_does(cli):
    answer = cli("qualify", "--help")
    assert answer.code == 0
    assert "--kinds" in answer.out
