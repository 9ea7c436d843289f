"""`rackproof burn`: the verdict, what a person reads, and what a script reads."""

import json
import os
import re
import subprocess

import pytest

from rackproof.fixtures.selection import Wish, choose


def test_a_healthy_node_passes_and_says_so_last(cli):
    answer = cli("burn", "hgx-h100", "--seed", "1")
    assert answer.code == 0
    lines = [line for line in answer.out.splitlines() if line.strip()]
    assert "EMULATED" in lines[0].upper()
    assert lines[-1].lstrip().startswith("PASS")
    assert not re.search(r"\x1b\[", answer.out), "colours only on a terminal"
    assert answer.err == "" or "\x1b" not in answer.err


@pytest.mark.parametrize("rack", ["gb300-nvl72", "gb200-nvl72", "catalina", "hgx-b200", "hgx-h200"])
def test_every_shipped_rack_passes(cli, rack):
    answer = cli("burn", rack, "--seed", "2", "--json")
    assert answer.json["checks"] == []
    assert (answer.code, answer.json["verdict"], answer.accused()) == (0, "PASS", set())
    assert answer.json["coverage"]["judged"] == answer.json["coverage"]["planned"] > 500
    assert answer.json["source"] == "emulated"


def test_announced_values_are_no_limits(cli):
    answer = cli("burn", "vr-nvl72", "--seed", "2", "--json")
    assert (answer.code, answer.json["verdict"]) == (3, "UNKNOWN")
    bare = {c["metric"] for c in answer.json["checks"] if "no limit" in c["message"]}
    assert {"gpu.name", "memory.total", "nvlink.links"} <= bare
    assert answer.accused() == set()


def test_probe_reads_without_load(cli):
    answer = cli("probe", "hgx-h100", "--json")
    assert (answer.code, answer.json["verdict"]) == (0, "PASS")
    words = ("probe", "hgx-h100", "--plant", "row-remap-failure@rack0/tray00/gpu2", "--json")
    assert cli(*words).accused() == {"rack0/tray00/gpu2"}


def test_the_same_seed_gives_the_same_record(cli, tmp_path):
    lines = []
    for name in ("a", "b"):
        words = ("--plant", "sm-sdc@?:rate=0.5", "--plant", "hbm-bit-flip@?", "--out", name)
        cli("burn", "hgx-h100", "--seed", "9", *words, "--json")
        text = (tmp_path / name / "record.jsonl").read_text()
        lines.append([re.sub(r'"at":"[^"]*"', "", line) for line in text.splitlines()])
    assert lines[0] == lines[1]
    assert len(lines[0]) > 500


def test_another_seed_gives_other_noise_and_the_same_serials(cli, tmp_path):
    found = []
    for seed in ("1", "2"):
        cli("burn", "hgx-h100", "--seed", seed, "--out", seed, "--json")
        text = (tmp_path / seed / "record.jsonl").read_text()
        rows = [json.loads(line) for line in text.splitlines()]
        by = {
            m: [r["value"] for r in rows if r.get("metric") == m]
            for m in ("gpu.serial", "gemm.fp32.rate")
        }
        found.append(by)
    assert found[0]["gpu.serial"] == found[1]["gpu.serial"]
    assert found[0]["gemm.fp32.rate"] != found[1]["gemm.fp32.rate"]


def test_a_seed_is_drawn_and_shown(cli):
    seeds = {cli("burn", "hgx-h100", "--only", "health", "--json").json["seed"] for _ in range(2)}
    assert len(seeds) == 2


def test_limits_waivers_and_golden_values_of_the_user(cli, tmp_path):
    gpu = "rack0/tray00/gpu4"
    file = tmp_path / "ours.toml"
    file.write_text(
        '[[limit]]\nmetric = "gemm.fp32.rate"\nlow = 900\nunit = "TFLOP/s"\nsource = "contract 7"\n'
    )
    answer = cli("burn", "hgx-h100", "--limits", str(file), "--only", "gemm", "--json")
    assert answer.code == 1
    assert {c["decided_by"] for c in answer.json["checks"] if c["metric"] == "gemm.fp32.rate"} == {
        "user"
    }
    assert answer.json["checks"][0]["limit"]["source"] == "contract 7"
    file.write_text('[[golden]]\nitem = "driver"\nvalue = "1.2.3"\n')
    answer = cli("burn", "hgx-h100", "--limits", str(file), "--only", "inventory", "--json")
    assert {c["metric"] for c in answer.json["checks"]} == {"driver.version"}
    waiver = f'subject = "{gpu}"\ncheck = "*"\nowner = "ops"\nreason = "on order"\n'
    for until, code in (("2099-01-01", 0), ("2001-01-01", 1)):
        file.write_text(f"[[waiver]]\n{waiver}until = {until}\n")
        words = ("--plant", f"sm-sdc@{gpu}", "--only", "gemm", "--json")
        answer = cli("burn", "hgx-h100", "--limits", str(file), *words)
        assert answer.code == code
        assert "FAIL" in {c["verdict"] for c in answer.json["checks"]}
        assert (code == 0) == all("waived" in c for c in answer.json["checks"])


def test_expect(cli):
    burn = ("burn", "hgx-h100", "--only", "inventory", "--json", "--expect")
    assert cli(*burn, "gpus=8").code == 0
    assert cli(*burn, "gpus=9").code == 2
    assert cli(*burn, "driver=1.0").code == 1
    assert cli(*burn, "colour=red").code == 2


def test_a_real_machine_without_a_driver_is_unknown(cli):
    answer = cli("burn", "local", "--json", env={"PATH": "/usr/bin:/bin"})
    if answer.code != 3:
        pytest.skip("optional: this machine has an NVIDIA driver")
    assert "libnvidia-ml" in answer.err or "driver" in answer.err
    assert answer.json["verdict"] == "UNKNOWN"


def test_all_shows_what_passed(cli):
    answer = cli("burn", "hgx-h100", "--only", "health", "--all", "--json")
    assert {c["verdict"] for c in answer.json["checks"]} >= {"PASS"}
    assert all(c["limit"]["source"] for c in answer.json["checks"] if c["verdict"] == "PASS")


def test_an_emulated_driver_is_never_called_real(cli, command):
    answer = cli("emulate", "hgx-h100", "--", *command, "probe", "local", "--json")
    assert answer.json["source"] == "emulated"
    counted = [c for c in answer.json["checks"] if c["metric"] == "gpu.count"]
    assert [(c["verdict"], "--expect" in c["cure"]) for c in counted] == [("UNKNOWN", True)]
    words = ("probe", "local", "--expect", "hgx-h100", "--json")
    answer = cli("emulate", "hgx-h100", "--", *command, *words)
    assert (answer.code, answer.json["verdict"]) == (0, "PASS")


def test_workers_judge_as_one_process_does(cli, command, tmp_path):
    plants = [f"--rack-plant={fault}" for fault in ("slow-gpu@?", "hbm-bit-flip@?", "sm-sdc@?")]
    for name, parallel in (("serial", ()), ("parallel", ("-n", "2"))):
        words = [command[0], "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs"]
        words += ["rackproof.diagnostics.suites", "--rack=catalina", "--rack-seed=6", *plants]
        words += [f"--rack-out={tmp_path / name}", *parallel]
        done = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 1, done.stdout + done.stderr
    serial, parallel = (cli("diagnose", name, "--json").json for name in ("serial", "parallel"))
    assert serial["diagnoses"] == parallel["diagnoses"]
    assert serial["verdict"] == parallel["verdict"] == "FAIL"
    settled = [
        (row["check"], row["subject"], row["attempt"])
        for path in (tmp_path / "parallel").glob("record*.jsonl")
        for row in map(json.loads, path.read_text().splitlines())
        if row["kind"] == "settled"
    ]
    assert len(settled) == len(set(settled))
    fired = json.loads((tmp_path / "serial/planted.json").read_text())
    assert all(fault["fired"] > 0 for fault in fired)


@pytest.mark.parametrize("parallel", [(), ("-n", "1"), ("-n", "2")], ids=["serial", "one", "two"])
def test_plain_pytest_looks_at_the_whole_rack_without_being_told_where(command, tmp_path, parallel):
    words = [
        command[0],
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--rack=hgx-h100",
        *parallel,
    ]
    words += ["--pyargs", "rackproof.diagnostics.suites"]
    healthy, slow = (
        subprocess.run(
            [*words, *extra], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        for extra in ((), ("--rack-plant=slow-gpu@rack0/tray00/gpu3",))
    )
    assert healthy.returncode == 0, healthy.stdout
    planned = choose(Wish("hgx-h100", 1)).head
    items = sum(len(planned.items(each)) for each in planned.plan)
    (passed,) = re.findall(r"(\d+) passed", healthy.stdout)
    assert int(passed) > items, "all items, and what is relative to the rack"
    assert slow.returncode == 1
    assert "rackwide[gemm.fp32.rate]" in slow.stdout
    assert len(list((tmp_path / "rackproof-runs").iterdir())) == 2


def test_a_pass_that_left_no_record_is_none(command, tmp_path):
    (tmp_path / "loses.py").write_text(
        "from rackproof.fixtures.session import Session\n"
        "Session.run = lambda self, burn, subject, attempt: []\n"
    )
    words = [command[0], "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "loses"]
    words += ["--rack=hgx-h100", "--pyargs", "rackproof.diagnostics.suites"]
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 1
    assert "rackwide[record]" in done.stdout
    assert "is not in the record" in done.stdout


OWN = """
import pytest

def test_looks(rack):
    assert rack.devices

@pytest.mark.burn("health")
def test_health(burn, judge):
    {body}
"""


@pytest.fixture
def own(command, tmp_path):
    """Run tests of a team's own under pytest; return exit code, output, and the verdict."""

    def run(body, *more):
        (tmp_path / "test_own.py").write_text(OWN.format(body=body))
        words = [command[0], "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rack=hgx-h100"]
        words += ["--rack-only=health", "--rack-out=run", *more, "test_own.py"]
        done = subprocess.run(
            words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300
        )
        rows = (tmp_path / "run/record.jsonl").read_text().splitlines()
        return done.returncode, done.stdout, json.loads(rows[-1])["verdict"]

    return run


BLANK = "no burn was run, so that the record says nothing of the rack (UNKNOWN)"


def test_tests_that_only_look_at_a_rack_pass_and_claim_nothing(own):
    code, said, verdict = own("judge(burn())", "-k", "looks")
    assert (code, verdict) == (0, "UNKNOWN")
    assert BLANK in said


@pytest.mark.parametrize("parallel", [(), ("-n", "2")], ids=["serial", "two"])
def test_a_burn_that_was_there_and_did_not_run_is_unknown(own, parallel):
    """Though all tests that did run have passed, and none of them burnt anything."""
    code, said, verdict = own('pytest.skip("not today")', *parallel)
    assert (code, verdict) == (1, "UNKNOWN")
    assert "rackwide[plan]" in said
    assert "health: planned, and not run on 8 items" in said


@pytest.mark.parametrize(
    ("metric", "value", "item"),
    [
        ("remap.pending", "-1", "test_health[health-rack0/tray00/gpu0]"),
        ("power.average", "-5.0", "test_health[health-rack0/tray00/gpu0]"),
    ],
)
def test_a_reading_that_cannot_be_fails_its_test_as_unknown(own, tmp_path, metric, value, item):
    (tmp_path / "conftest.py").write_text(
        "from dataclasses import replace\n"
        "from rackproof.fixtures import session\n"
        "from rackproof.harness.burns import execute\n"
        "def bent(burn, bench, subject, settings):\n"
        "    return [\n"
        f"        replace(s, value={value}) if getattr(s, 'metric', '') == {metric!r}\n"
        "        and subject.endswith('tray00/gpu0') else s\n"
        "        for s in execute(burn, bench, subject, settings)\n"
        "    ]\n"
        "session.execute = bent\n"
    )
    code, said, verdict = own("judge(burn())")
    assert (code, verdict) == (1, "UNKNOWN")
    assert f"UNKNOWN {item}" in said
    assert f"{metric}: read {float(value):g}" in said
    assert "rackwide[verdict]" not in said, "it was said"


def test_a_record_that_is_no_pass_is_no_pass_of_pytest(own):
    """The tests pass, and their readings too: what only the record shows is an item of its own."""
    code, said, verdict = own("burn()", "--rack-plant=sensor-missing@rack0/tray00/gpu3")
    assert (code, verdict) == (1, "UNKNOWN")
    assert "UNKNOWN rackwide[verdict]" in said
    assert "rack0/tray00/gpu3: temperature" in said
