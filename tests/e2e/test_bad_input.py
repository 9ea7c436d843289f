"""A user's mistake gets one clear line and exit 2, and never a traceback."""

import json
import os

import pytest

BURN = ("burn", "hgx-h100", "--only", "health")
WRONG = [
    (("burn", "gb300-nvl71"), "gb300-nvl72"),
    (("burn", "no/such/rack.toml"), "no/such/rack.toml"),
    (("burn", "hgx-h100", "--only", "memory.marsh"), "memory.march"),
    (("burn", "hgx-h100", "--only", "copy.both"), "not of level quick"),
    (("burn", "hgx-h100", "--only", ""), "--only"),
    (("burn", "hgx-h100", "--only", " , "), "--only"),
    (("burn", "hgx-h100", "--budget", "20"), "20m"),
    (("burn", "hgx-h100", "--budget", "0.5s"), "nothing fits"),
    (("burn", "hgx-h100", "--budget", "0m"), "above 0"),
    (("burn", "hgx-h100", "--budget", "soon"), "20m"),
    (("burn", "hgx-h100", "--for", "72h"), "--level soak"),
    (("burn", "hgx-h100", "--for", "72", "--level", "soak"), "20m"),
    (("burn", "hgx-h100", "--for", "1h", "--budget", "1h", "--level", "soak"), "--budget"),
    (("burn", "hgx-h100", "--for", "99999h", "--level", "soak"), "at most a year"),
    (("burn", "hgx-h100", "--allow", "power.cup"), "power.cap"),
    (("burn", "hgx-h100", "--allow", "memory"), "changes no setting"),
    (("burn", "hgx-h100", "--allow", ""), "--allow"),
    (("burn", "hgx-h100", "-n", "0"), "-n"),
    (("burn", "hgx-h100", "--level", "quik"), "quick"),
    (("burn", "hgx-h100", "--plant", "hbm-stuk-bit@?"), "hbm-stuck-bit"),
    (("burn", "hgx-h100", "--plant", "hbm-stuck-bit@rack0/tray00/gpu8"), "rack0/tray00/gpu"),
    (("burn", "hgx-h100", "--plant", "hbm-stuck-bit@?:cuont=1"), "count"),
    (("burn", "hgx-h100", "--plant", "hbm-stuck-bit@?:count=nan"), "count"),
    (("burn", "hgx-h100", "--plant", "hbm-stuck-bit"), "KIND@SUBJECT"),
    (("burn", "hgx-h100", "--plant", "nvlink-down@rack0/tray00/gpu0"), "link"),
    (("burn", "hgx-h100", "--seed", "-1"), "-1"),
    (("burn", "hgx-h100", "--seed", "x"), "x"),
    (("burn", "hgx-h100", "--limits", "nowhere.toml"), "nowhere.toml"),
    (("burn", "hgx-h100", "--expect", "gpus=many"), "gpus"),
    (("drill", "gpu-loss", "--steps", "3"), "gpu-loss needs at least 4 steps"),
    (("drill", "gpu-loss", "--steps", "3", "--", "true"), "gpu-loss needs at least 4 steps"),
    (("drill", "slow-tier", "--steps", "30"), "slow-tier needs at least"),
    (("drill", "slow-tier", "--steps", "0"), "--steps"),
    (("drill", "slow-tier", "--steps", "-5"), "--steps"),
    (("drill", "slow-tier", "--steps", "99999999999"), "--steps"),
    (("drill", "sdc", "--replicas", "2"), "sdc needs at least 3 replicas"),
    (("drill", "sdc", "--replicas", "0"), "--replicas"),
    (("drill", "link-drop", "--replicas", "8"), "hgx-h100 has 8 GPUs"),
    (("drill", "gpu-loss", "--replicas", "4000", "--", "true"), "gb300-nvl72 has 72 GPUs"),
    (("drill", "gpu-loss", "--replicas", "4097"), "--replicas"),
    (("bum", "hgx-h100"), "bum"),
    (("list", "raks"), "racks"),
    (("report", "nowhere", "--as", "html"), "nowhere"),
    (("report", ".", "--as", "html"), "no record"),
    (("report", ".", "--as", "pdf"), "pdf"),
    (("diagnose", "nowhere.log"), "nowhere.log"),
    (("emulate", "hgx-h101", "--", "true"), "hgx-h100"),
]


@pytest.mark.parametrize(("words", "hint"), WRONG, ids=[" ".join(w)[:50] for w, _ in WRONG])
def test_a_mistake_gets_one_line(cli, words, hint):
    answer = cli(*words)
    assert answer.code == 2
    assert hint in answer.err
    assert answer.out == ""
    assert len(answer.err.strip().splitlines()) == 1


def test_with_json_a_mistake_is_one_object_too(cli):
    answer = cli("burn", "gb300-nvl71", "--json")
    assert answer.code == 2
    assert "gb300-nvl72" in json.loads(answer.out)["error"]


LIMITS = [
    ("[[limit]]\nmetric='gemm.fp32.rat'\nlow=1\nunit='TFLOP/s'\nsource='x'", "gemm.fp32.rate"),
    ("[[limit]]\nmetric='gemm.fp32.rate'\nlow=1\nunit='GB/s'\nsource='x'", "cannot be compared"),
    ("[[limit]]\nmetric='gemm.fp32.rate'\nlow=inf\nunit='TFLOP/s'\nsource='x'", "finite"),
    ("[[limit]]\nmetric='gemm.fp32.rate'\nlow=-1\nunit='TFLOP/s'\nsource='x'", "negative"),
    ("[[limit]]\nmetric='gemm.fp32.rate'\nlow='1'\nunit='TFLOP/s'\nsource='x'", "number"),
    ("[limit]\nmetric='gemm.fp32.rate'", "[[limit]]"),
    ("[[limits]]\nmetric='gemm.fp32.rate'", "limit"),
    ("[[waiver]]\ncheck='*'\nuntil=2030-01-01\nowner='x'\nreason='y'", "subject or serial"),
    ("", "holds no"),
    ("\x00\x01", "TOML"),
]


@pytest.mark.parametrize(("text", "hint"), LIMITS, ids=range(len(LIMITS)))
def test_a_limits_file_that_makes_no_sense(cli, tmp_path, text, hint):
    (tmp_path / "ours.toml").write_text(text)
    answer = cli(*BURN, "--limits", "ours.toml")
    assert answer.code == 2
    assert "ours.toml" in answer.err
    assert hint in answer.err


def test_a_directory_is_used_once(cli, tmp_path):
    assert cli(*BURN, "--out", "run", "--seed", "1").code == 0
    before = (tmp_path / "run/record.jsonl").read_bytes()
    again = cli(*BURN, "--out", "run")
    assert again.code == 2
    assert "--resume" in again.err
    assert (tmp_path / "run/record.jsonl").read_bytes() == before
    assert cli(*BURN, "--out", "run", "--resume", "--json").json["seed"] == 1
    assert cli(*BURN, "--out", "run", "--resume", "--seed", "2").code == 2
    assert cli("burn", "hgx-h100", "--out", "run", "--resume", "--only", "gemm").code == 2
    assert cli("burn", "hgx-h200", "--out", "run", "--resume").code == 2
    plant = ("--plant", "sm-sdc@?")
    assert cli("burn", "hgx-h100", "--out", "run", "--resume", *plant).code == 2
    assert (tmp_path / "run/record.jsonl").read_bytes() == before


def test_out_is_a_file(cli, tmp_path):
    (tmp_path / "file").write_text("mine")
    assert cli(*BURN, "--out", "file").code == 2
    assert cli(*BURN, "--out", "file/below").code == 2
    assert (tmp_path / "file").read_text() == "mine"


def test_a_plan_of_nothing_is_judged_as_nothing(cli):
    """What was asked for is not on this rack: that is no accident of the run."""
    answer = cli("burn", "hgx-h100", "--level", "acceptance", "--only", "power.smoothing")
    assert answer.code == 3
    assert "not on this rack: power smoothing" in answer.out
    assert "no GPU was looked at" in answer.out
    assert answer.err == ""


@pytest.mark.skipif(os.geteuid() == 0, reason="optional: root writes everywhere")
def test_out_is_read_only(cli, tmp_path):
    (tmp_path / "ro").mkdir(mode=0o555)
    answer = cli(*BURN, "--out", "ro/run")
    assert answer.code == 2
    assert "cannot write" in answer.err
