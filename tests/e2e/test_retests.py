"""`rackproof burn --retest-budget`, as a user runs it: what it says, and what it refuses."""

import json
import signal
import subprocess
import sys
import time

import pytest

from rackproof.diagnostics.judge import judge
from rackproof.reports.read import read_run

GPU = "rack0/tray00/gpu2"
WORDS = ("burn", "hgx-h100", "--only", "health,memory.march,link.all", "--seed", "4")
PLANTS = ("--plant", f"hbm-stuck-bit@{GPU}:rate=0.5")
KEYS = {"test", "subject", "burn", "runs", "struck", "stayed", "seconds", "why"}


def settled(answer):
    """Return what an answer says that no time and no place changes."""
    changing = ("record", "planted")
    return {key: value for key, value in answer.json.items() if key not in changing}


@pytest.mark.parametrize(
    ("budget", "says"),
    [("soon", "write a number and its unit"), ("20", "20 of what?"), ("-1h", "write a number"),
     ("", "is empty"), ("9999d", "write a number"), ("999999h", "at most a year")],
)  # fmt: skip
def test_a_budget_that_is_none_is_refused(cli, budget, says):
    answer = cli(*WORDS, "--retest-budget", budget)
    assert answer.code == 2
    assert "--retest-budget" in answer.err
    assert says in answer.err


def test_json_tells_every_retest_and_diagnose_says_the_same(cli, tmp_path):
    words = (*WORDS, *PLANTS, "--json", "--retest-budget", "1h", "--out")
    answer, none = cli(*words, "run"), cli(*WORDS, *PLANTS, "--json", "--out", "none")
    assert (answer.code, none.code) == (1, 1)
    body = answer.json
    assert none.json["retests"] == []
    assert {key: body[key] for key in ("verdict", "checks", "coverage", "subjects")} == {
        key: none.json[key] for key in ("verdict", "checks", "coverage", "subjects")
    }
    assert body["retests"]
    assert all(row.keys() >= KEYS for row in body["retests"])
    assert sum(row["seconds"] for row in body["retests"]) <= 3600
    told = cli("diagnose", "run", "--json")
    assert told.json["diagnoses"] == body["diagnoses"]
    assert told.json["inputs"][0]["retests"] == body["retests"]
    assert settled(cli(*words, "run", "--resume")) == settled(answer), "a run that is over is over"
    other = cli(*WORDS, "--retest-budget", "2h", "--out", "run", "--resume")
    assert other.code == 2
    assert "retest_budget" in other.err
    (root,) = {d["persistence"] for d in body["diagnoses"] if d["role"] == "root"}
    assert root == "intermittent"
    assert len(json.loads((tmp_path / "run" / "planted.json").read_text())) == 1


def test_workers_leave_the_same_retests_to_be_run(cli, tmp_path):
    words = (*WORDS, *PLANTS, "--plant", f"nvlink-down@{GPU}/link03", "--plant",
             "row-remap-pending@rack0/tray00/gpu5", "--retest-budget", "30m", "--json")  # fmt: skip
    serial = cli(*words, "--out", "serial")
    parallel = cli(*words, "--out", "parallel", "-n", "2")
    assert settled(serial) == settled(parallel)
    assert serial.json["retests"]
    one, other = (read_run(tmp_path / name) for name in ("serial", "parallel"))
    assert one.retests == other.retests
    assert sorted(map(repr, one.seen)) == sorted(map(repr, other.seen))
    assert judge(one).diagnoses == judge(other).diagnoses


def test_the_terminal_and_the_reports_say_what_was_run(cli, tmp_path):
    answer = cli(*WORDS, *PLANTS, "--retest-budget", "30m", "--out", "run")
    words = " ".join(answer.out.split())
    assert "then retests of what failed, up to 30 min in all" in words
    assert "Retests: " in words
    assert " of 30 min" in words
    for form, file in (("html", "report.html"), ("junit", "junit.xml")):
        assert cli("report", "run", "--as", form).code == 0
        text = (tmp_path / "run" / file).read_text()
        assert " of 30 min" in text, form
        assert "the fault showed in" in text, form
    plain = cli(*WORDS, *PLANTS, "--out", "plain")
    assert "etests" not in plain.out
    cli("report", "plain", "--as", "html")
    assert "h-retests" not in (tmp_path / "plain" / "report.html").read_text()
    same = cli("compare", "plain", "run", "--json")
    assert same.json["worse"] == same.json["better"] == [], "what is compared is the plan's"


def test_a_run_that_is_interrupted_among_its_retests_goes_on(command, tmp_path, cli):
    """Ctrl-C as soon as a retest has begun: one line to say so, and --resume ends the run."""
    words = ("burn", "gb300-nvl72", "--only", "health,link.all", "--seed", "4", "--plant",
             "nvlink-flap@rack0/tray11/gpu1/link03:rate=0.6", "--retest-budget", "150s", "--out",
             "run")  # fmt: skip
    child = subprocess.Popen(
        [*command, *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    record = tmp_path / "run" / "record.jsonl"
    deadline = time.monotonic() + 120
    while not record.exists() or '"state":"begun"' not in record.read_text(errors="replace"):
        assert child.poll() is None, "the run ended before a retest began"
        assert time.monotonic() < deadline
    child.send_signal(signal.SIGINT)
    _, said = child.communicate(timeout=120)
    assert child.returncode == 130
    assert "--resume" in said
    assert "Traceback" not in said
    half = read_run(tmp_path / "run")
    assert not half.ended
    answer = cli(*words, "--resume", "--json")
    assert answer.code == 1
    assert len(answer.json["retests"]) >= len([*half.retests, *half.begun])
    assert sum(row["seconds"] for row in answer.json["retests"]) <= 150


def test_plain_pytest_takes_it_too(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--pyargs",
         "rackproof.diagnostics.suites", "--rack", "hgx-h100", "--rack-seed", "4", "--rack-only",
         "memory.march", "--rack-plant", PLANTS[1], "--rack-out", "run",
         "--rack-retest-budget", "10m"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert read_run(tmp_path / "run").retests
