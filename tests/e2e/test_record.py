"""What was recorded is never lost: kills, resumes, forgeries, and judging without hardware."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

PLANTS = ("--plant", "hbm-stuck-bit@rack0/tray03/gpu1", "--plant", "nvlink-down@?")


def large_rack(folder, trays=144):
    """A rack file that takes long enough to be met in the middle."""
    path = folder / "large.toml"
    path.write_text(
        '[rack]\nname = "large"\ngeneration = "Blackwell Ultra"\nsource = "emulated"\n'
        f'[[tray]]\ncount = {trays}\ngpus = 4\ncpus = 2\nnics = 4\n[gpu]\nsku = "gb300"\n'
        f"[fabric]\nswitches = 18\nlinks_per_gpu = 18\ndomain = {4 * trays}\n"
        '[cooling]\nkind = "flc"\n'
    )
    return str(path)


def start(command, folder, *words):
    """Start the CLI in its own process; returns it."""
    return subprocess.Popen(
        [*command, *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for_lines(path, kind, count, child):
    """Return once the record holds `count` lines of a kind; the run must still be alive."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and path.read_text(errors="replace").count(f'"kind":"{kind}"') >= count:
            return
        assert child.poll() is None, child.communicate()
    pytest.fail("the run never came so far")


def lock_holder(run):
    return int((run / "lock").read_text().split()[0])


def test_a_killed_run_keeps_what_it_had_and_goes_on(cli, command, tmp_path):
    run = tmp_path / "run"
    words = ("burn", "gb300-nvl72", *PLANTS, "--seed", "4", "--out", "run", "--json")
    child = start(command, tmp_path, *words)
    wait_for_lines(run / "record.jsonl", "settled", 150, child)
    os.kill(lock_holder(run), signal.SIGKILL)
    out, _ = child.communicate(timeout=60)
    assert child.returncode in (1, 3)
    assert json.loads(out)["verdict"] != "PASS"
    before = (run / "record.jsonl").read_bytes()
    half = cli("diagnose", "run", "--json")
    assert half.code != 0
    assert half.json["verdict"] in ("UNKNOWN", "FAIL")
    assert any("no end" in p for p in half.json["inputs"][0]["problems"])
    done = cli(*words, "--resume")
    assert done.code == 1
    after = (run / "record.jsonl").read_bytes()
    assert after.startswith(before.rpartition(b"\n")[0])
    keys = [
        (r["check"], r["subject"], r["attempt"])
        for r in map(json.loads, after.splitlines())
        if r["kind"] == "settled"
    ]
    assert len(keys) == len(set(keys)), "what was settled is not burnt again"
    whole = cli(*words[:-3], "--out", "other", "--json")
    assert done.accused() == whole.accused()
    assert done.json["coverage"]["judged"] == whole.json["coverage"]["judged"]


def test_the_record_is_judged_again_without_hardware(cli, tmp_path):
    run = tmp_path / "run"
    first = cli("burn", "gb300-nvl72", *PLANTS, "--seed", "4", "--out", "run", "--json")
    (run / "planted.json").unlink()
    again = cli("diagnose", "run", "--json")
    assert again.code == first.code == 1
    assert again.json["verdict"] == "FAIL"
    assert again.json["diagnoses"] == first.json["diagnoses"]
    assert again.out == cli("diagnose", "run", "--json").out
    lines = (run / "record.jsonl").read_text().splitlines()
    kept = [x for x in lines if json.loads(x)["kind"] not in ("check", "diagnosis")]
    assert len(kept) < len(lines)
    (run / "record.jsonl").write_text("\n".join(kept).replace('"FAIL"', '"PASS"') + "\n")
    assert cli("diagnose", "run", "--json").json["diagnoses"] == first.json["diagnoses"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_says_how_to_go_on(cli, command, tmp_path, number, code):
    run = tmp_path / "run"
    words = ("burn", "gb300-nvl72", "--seed", "4", "--out", "run", "--json")
    child = start(command, tmp_path, *words)
    wait_for_lines(run / "record.jsonl", "settled", 20, child)
    child.send_signal(number)
    out, err = child.communicate(timeout=60)
    assert child.returncode == code
    assert json.loads(out)["verdict"] == "UNKNOWN"
    assert "--resume" in err
    assert "Traceback" not in err
    done = cli(*words, "--resume")
    assert (done.code, done.json["verdict"]) == (0, "PASS")


def test_two_runs_never_share_a_directory(cli, command, tmp_path):
    run = tmp_path / "run"
    words = ("burn", large_rack(tmp_path), "--seed", "4", "--out", "run", "--json")
    child = start(command, tmp_path, *words)
    wait_for_lines(run / "record.jsonl", "settled", 10, child)
    for extra in ((), ("--resume",)):
        second = cli(*words, *extra)
        assert second.code == 2
        assert "run" in second.err
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=60)
    assert child.returncode == 143


def test_the_child_dies_with_its_parent(command, tmp_path):
    run = tmp_path / "run"
    child = start(command, tmp_path, "burn", large_rack(tmp_path), "--out", "run", "--json")
    wait_for_lines(run / "record.jsonl", "settled", 10, child)
    worker = lock_holder(run)
    assert worker != child.pid
    child.kill()
    child.communicate(timeout=60)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        state = Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[0]
        if state == "Z":
            return
    pytest.fail("the run goes on without anybody to read it")


def test_a_full_disk_is_said_and_nothing_is_lost(cli, command, tmp_path):
    run = tmp_path / "run"
    words = [*command, "burn", "gb300-nvl72", "--seed", "4", "--out", "run", "--json"]
    full = subprocess.run(
        ["bash", "-c", 'ulimit -f 1500; exec "$@"', "-", *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert full.returncode == 3
    assert json.loads(full.stdout)["verdict"] == "UNKNOWN"
    assert "record.jsonl: cannot be written" in full.stderr
    assert "Traceback" not in full.stderr
    before = (run / "record.jsonl").read_bytes()
    whole = before.rpartition(b"\n")[0]
    assert len(whole) > 1_000_000
    done = cli(*words[len(command) :], "--resume")
    assert (done.code, done.json["verdict"], done.json["problems"]) == (0, "PASS", [])
    assert (run / "record.jsonl").read_bytes().startswith(whole)
