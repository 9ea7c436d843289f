"""A soak runs in rounds; a budget and a rack may leave burns out. All of it is shown and kept."""

import json
import os
import signal
from collections import Counter, defaultdict
from pathlib import Path

from tests.e2e.test_record import lock_holder, start, wait_for_lines

SOAK = ("burn", "hgx-h100", "--level", "soak", "--seed", "3", "--only", "health,memory.march")


def lines(run, kind):
    return [
        row
        for path in sorted(Path(run).glob("record*.jsonl"))
        for row in map(json.loads, path.read_text().splitlines())
        if row["kind"] == kind
    ]


def rounds_of(run):
    """Each item's rounds, in the order in which they were settled."""
    found = defaultdict(list)
    for row in lines(run, "settled"):
        found[row["check"], row["subject"]].append(row.get("round", 1))
    return found


def test_a_soak_runs_its_burns_in_rounds(cli, tmp_path):
    answer = cli(*SOAK, "--for", "11s", "--out", "run", "--json")
    assert (answer.code, answer.json["verdict"], answer.json["rounds"]) == (0, "PASS", 3)
    assert "3 rounds" in answer.err
    assert set(map(tuple, rounds_of(tmp_path / "run").values())) == {(1, 2, 3)}
    attempts = Counter(row["attempt"] for row in lines(tmp_path / "run", "settled"))
    assert attempts == {1: 16, 2: 16, 3: 16}, "attempts go on counting"


def test_a_fault_of_a_later_round_is_run_again_there(cli, tmp_path):
    plant = ("--plant", "hbm-stuck-bit@rack0/tray00/gpu2:rate=0.3")
    answer = cli(*SOAK, "--seed", "5", "--for", "40s", *plant, "--out", "run", "--json")
    assert answer.code == 1
    (found,) = (c for c in answer.json["checks"] if c["metric"] == "ecc.corrected.delta")
    first = next(n for n, value in enumerate(found["runs"]) if value > 0)
    assert first > 0, "this seed strikes after the first round"
    rounds = rounds_of(tmp_path / "run")["memory.march", "rack0/tray00/gpu2"]
    assert rounds == [*range(1, first + 2), first + 1, first + 1, *range(first + 2, 11)]
    assert answer.accused() == {"rack0/tray00/gpu2"}


def test_a_killed_soak_goes_on_in_the_right_round(cli, command, tmp_path):
    words = (*SOAK, "--for", "400s", "--out", "run", "--json")
    child = start(command, tmp_path, *words)
    wait_for_lines(tmp_path / "run/record.jsonl", "settled", 100, child)
    os.kill(lock_holder(tmp_path / "run"), signal.SIGKILL)
    out, _ = child.communicate(timeout=60)
    body = json.loads(out)
    assert body["verdict"] == "UNKNOWN"
    assert any("cut short" in check["message"] for check in body["checks"])
    before = lines(tmp_path / "run", "settled")
    assert max(row.get("round", 1) for row in before) > 1
    again = cli("burn", "hgx-h100", "--resume", "--out", "run", "--json")
    assert (again.code, again.json["verdict"], again.json["rounds"]) == (0, "PASS", 100)
    after = lines(tmp_path / "run", "settled")
    keys = [(r["check"], r["subject"], r.get("round", 1)) for r in after]
    assert len(keys) == len(set(keys)) == 16 * 100, "each item once in each round"
    assert after[: len(before)] == before


def test_a_soak_of_which_a_round_is_missing_is_no_pass(cli, tmp_path):
    cli(*SOAK, "--for", "11s", "--out", "run")
    record = tmp_path / "run/record.jsonl"
    kept = [row for row in record.read_text().splitlines() if '"round":3' not in row]
    record.write_text("\n".join(kept) + "\n")
    answer = cli("diagnose", "run", "--json")
    assert (answer.code, answer.json["verdict"]) == (3, "UNKNOWN")


def test_what_a_budget_leaves_out_is_shown_and_recorded(cli, tmp_path):
    answer = cli("burn", "hgx-h100", "--budget", "9s", "--out", "run", "--json")
    assert answer.code == 0
    assert "gemm.fp32" in answer.json["left_out"]
    assert "left out: takes 12 s" in answer.err
    (head,) = lines(tmp_path / "run", "run")
    assert (head["budget"], head["left_out"]) == (9.0, answer.json["left_out"])
    assert {row["check"] for row in lines(tmp_path / "run", "settled")} == {
        planned["burn"] for planned in head["plan"]
    }


BARE = """[rack]
name = "bare"
generation = "Hopper"
source = "emulated"
[[tray]]
count = 1
gpus = 1
[gpu]
sku = "h100"
[cooling]
kind = "air"
"""


def test_a_burn_that_the_rack_cannot_have_is_no_pass(cli, tmp_path):
    (tmp_path / "bare.toml").write_text(BARE)
    answer = cli("burn", "bare.toml", "--only", "link", "--out", "run", "--json")
    assert (answer.code, answer.json["verdict"]) == (3, "UNKNOWN")
    assert answer.json["coverage"] == {"planned": 0, "judged": 0}
    assert answer.json["problems"] == []
    assert answer.json["skipped"]["link.all"]
    assert answer.json["skipped"]["link.all"] in " ".join(answer.err.split())
    whole = cli("burn", "bare.toml", "--only", "link,health", "--out", "other", "--json")
    assert whole.code == 0
    assert "link.all" in whole.json["skipped"]


def test_a_limit_that_meets_nothing_is_remarked(cli, tmp_path):
    (tmp_path / "ours.toml").write_text(
        '[[limit]]\nmetric = "gemm.fp32.rate"\nlow = 1\nunit = "TFLOP/s"\nsource = "ours"\n'
    )
    answer = cli("burn", "hgx-h100", "--only", "health", "--limits", "ours.toml")
    assert answer.code == 0
    assert "limit on gemm.fp32.rate: no planned burn reads it" in answer.err


def test_a_killed_run_leaves_nothing_in_the_temporary_folder(command, tmp_path, monkeypatch):
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    child = start(command, tmp_path, *SOAK, "--for", "4000s", "--out", "run")
    wait_for_lines(tmp_path / "run/record.jsonl", "settled", 20, child)
    os.kill(lock_holder(tmp_path / "run"), signal.SIGKILL)
    child.kill()
    child.communicate(timeout=60)
    assert list((tmp_path / "tmp").iterdir()) == []
