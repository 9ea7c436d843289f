"""`rackproof compare` as a user runs it, on runs that were burnt and on what is none."""

import json
import shutil

import pytest

BURNS = ("--only", "inventory,health,gemm.fp32,hbm.bandwidth", "--json")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder in which the runs of this module lie."""
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def burnt(cli, runs):
    """Burn a rack once for all tests of this module; returns the run directory."""

    def burn(name, rack, seed, *words):
        out = runs / name
        if not out.exists():
            cli("burn", rack, "--seed", str(seed), "--out", str(out), *BURNS, *words)
        return out

    return burn


@pytest.fixture
def old(burnt):
    return burnt("old", "gb300-nvl72", 1)


@pytest.fixture
def new(burnt):
    return burnt("new", "gb300-nvl72", 2)


def edited(run, folder, change):
    """Copy a run with `change(line)` in the place of each line of its record."""
    shutil.copytree(run, folder)
    path = folder / "record.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(change(line)) + "\n" for line in lines))
    return folder


def test_two_seeds_of_a_healthy_rack_differ_in_nothing(cli, old, new):
    answer = cli("compare", str(old), str(new), "--json")
    found = answer.json
    assert (answer.code, found["schema"], found["verdict"]) == (0, "rackproof.compare/1", "PASS")
    assert [found[k] for k in ("worse", "better", "only_old", "only_new")] == [[], [], [], []]
    assert found["compared"] > 1000
    told = cli("compare", str(old), str(new))
    assert told.out.splitlines()[-1].startswith("PASS  nothing got worse in ")


def test_a_gpu_that_lost_six_percent_is_the_only_one_named(cli, old, burnt):
    fault = "slow-gpu@rack0/tray03/gpu1:factor=0.94"
    slow = burnt("slow", "gb300-nvl72", 3, "--plant", fault)
    answer = cli("compare", str(old), str(slow), "--json")
    assert (answer.code, answer.json["verdict"]) == (1, "FAIL")
    assert {entry["subject"] for entry in answer.json["worse"]} == {"rack0/tray03/gpu1"}
    for entry in answer.json["worse"]:
        assert entry.keys() >= {"subject", "serial", "metric", "old", "new", "change", "limit"}
        assert -0.08 < entry["change"] < -0.04
        assert entry["serial"]
    told = cli("compare", str(old), str(slow)).out
    assert told.splitlines()[-1] == "FAIL  worse than before: rack0/tray03/gpu1"
    assert "gemm.fp32.rate" in told
    assert answer.json == cli("compare", str(old), str(slow), "--json").json


def test_a_swapped_gpu_is_told_by_its_serial(cli, old, new, tmp_path):
    slot = "rack0/tray05/gpu2"

    def swap(line):
        if line.get("subject") == slot and line.get("metric") in ("gpu.serial", "gpu.uuid"):
            return {**line, "value": f"other {line['metric']}"}
        return line

    answer = cli("compare", str(old), str(edited(new, tmp_path / "swapped", swap)), "--json")
    assert (answer.code, answer.json["worse"]) == (0, [])
    (before,), (after,) = answer.json["only_old"], answer.json["only_new"]
    assert (before["subject"], after["subject"]) == (slot, slot)
    assert (before["serial"], after["serial"]) != (None, None)
    assert after["serial"] == "other gpu.serial"
    told = cli("compare", str(old), str(tmp_path / "swapped")).out.splitlines()[-1]
    assert told.startswith("PASS  nothing got worse in ")
    assert told.endswith("; 1 part of the old run is gone, 1 is new")


def test_a_run_of_a_smaller_plan_is_no_pass(cli, old, tmp_path):
    out = tmp_path / "small"
    cli("burn", "gb300-nvl72", "--seed", "2", "--out", str(out), "--only", "inventory", "--json")
    answer = cli("compare", str(old), str(out), "--json")
    assert (answer.code, answer.json["verdict"], answer.json["worse"]) == (3, "UNKNOWN", [])
    (reason,) = answer.json["reasons"]
    assert all(burn in reason for burn in ("health", "gemm.fp32", "hbm.bandwidth"))
    told = cli("compare", str(old), str(out)).out
    assert f"UNKNOWN  {reason}" in " ".join(told.split("\n")[-4:]).replace("\n", " ")
    assert cli("compare", str(out), str(old), "--json").json["verdict"] == "PASS"


def test_gpus_of_no_serial_and_what_is_no_number_are_no_pass(cli, old, new, tmp_path):
    def dumb(line):
        hidden = line.get("metric") in ("gpu.serial", "gpu.uuid")
        return {**line, "subject": "rack0/tray00/gpu0"} if hidden else line

    def odd(line):
        return {**line, "value": "nan"} if line.get("metric") == "gemm.fp32.rate" else line

    for name, change, why in (("dumb", dumb, "serial number"), ("odd", odd, "gemm.fp32.rate")):
        answer = cli("compare", str(old), str(edited(new, tmp_path / name, change)), "--json")
        assert (answer.code, answer.json["better"]) == (3, [])
        assert why in " ".join(answer.json["reasons"])


def test_a_vbios_that_changed_on_one_gpu_is_worse_there(cli, old, new, tmp_path):
    slot = "rack0/tray02/gpu0"

    def flash(line):
        if line.get("subject") == slot and line.get("metric") == "vbios.version":
            return {**line, "value": "97.00.00.00.00"}
        return line

    answer = cli("compare", str(old), str(edited(new, tmp_path / "flashed", flash)), "--json")
    assert answer.code == 1
    assert [(e["subject"], e["metric"]) for e in answer.json["worse"]] == [(slot, "vbios.version")]


def test_another_rack_is_unknown(cli, old, burnt):
    other = burnt("other", "hgx-h100", 1)
    answer = cli("compare", str(old), str(other), "--json")
    assert (answer.code, answer.json["verdict"]) == (3, "UNKNOWN")
    assert "hgx-h100" in answer.json["reasons"][0]


def test_what_is_no_run_is_a_mistake_of_the_users(cli, old, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "record.jsonl").write_text("not a record\n")
    for word, pair in (
        ("OLD", ("nowhere", str(old))),
        ("NEW", (str(old), "nowhere")),
        ("NEW", (str(old), "empty")),
        ("OLD", (str(tmp_path), str(old))),
    ):
        answer = cli("compare", *pair, "--json")
        assert answer.code == 2
        assert answer.json["error"].startswith(f"{word}: ")
    assert cli("compare", str(old)).code == 2


def test_a_run_that_was_cut_short_is_no_pass(cli, old, new, tmp_path):
    short = tmp_path / "short"
    shutil.copytree(new, short)
    path = short / "record.jsonl"
    path.write_bytes(path.read_bytes()[:-200])
    answer = cli("compare", str(old), str(short), "--json")
    assert (answer.code, answer.json["verdict"]) == (3, "UNKNOWN")
