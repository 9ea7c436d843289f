"""`rackproof drill` in a child: our own run and anybody's command, hit for real, interrupted."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackproof.diagnostics.drills.table import DRILLS
from rackproof.reports.drill_read import read_drill

TRAINER = """
import hashlib, json, os, pathlib, sys, time
events = open(os.environ["RP_EVENTS"], "a", buffering=1)
def say(kind, **fields):
    events.write(json.dumps({"kind": kind, "at": time.monotonic(), **fields}) + "\\n")
store = pathlib.Path(os.environ["RP_CKPT_URL"].removeprefix("file://"))
store.mkdir(parents=True, exist_ok=True)
step = state = 0
say("hello", pid=os.getpid(), rank=0, world=1)
if os.environ["RP_RESUME"] == "1":
    saved = max(store.glob("step-*"), default=None)
    if saved is not None:
        step, state = json.loads(saved.read_text())
        say("restore", step=step, uri=str(saved))
while step < int(sys.argv[1]):
    time.sleep(0.02)
    step, state = step + 1, (state * 31 + step) % (1 << 61)
    digest = hashlib.sha256(str(state).encode()).hexdigest()
    say("step", step=step, loss=1 / step, samples=4, digest=digest)
    if step % 5 == 0:
        path = store / f"step-{step:04}"
        path.with_name("part").write_text(json.dumps([step, state]))
        path.with_name("part").rename(path)
        say("ckpt", phase="committed", step=step, uri=str(path))
"""


@pytest.fixture
def trainer(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(TRAINER, "utf-8")
    return [sys.executable, str(path)]


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def pids(run):
    courses = read_drill(run).courses.values()
    return {what.number("pid") for c in courses for what in c.happenings if what.kind == "hello"}


def gone(found, within=30.0):
    deadline = time.monotonic() + within
    while any(alive(pid) for pid in found) and time.monotonic() < deadline:
        os.sched_yield()
    return not any(alive(pid) for pid in found)


@pytest.fixture(scope="module")
def held(tmp_path_factory):
    """One gpu-loss of our own run, as JSON: what several tests look at."""
    folder = tmp_path_factory.mktemp("held")
    words = "drill gpu-loss --seed 7 --steps 60 --out run --json".split()
    done = subprocess.run(
        [sys.executable, "-m", "rackproof.cli", *words],
        cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    return done, folder / "run"


def test_our_own_run_loses_a_gpu_and_keeps_its_bits(held):
    done, run = held
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    assert {"schema", "drill", "verdict", "proof", "fault_fired", "restarts", "steps", "timeline",
            "ledger", "claims", "planted", "record"} <= set(body)  # fmt: skip
    assert body["schema"] == "rackproof.drill/1"
    assert (body["verdict"], body["proof"], body["restarts"]) == ("PASS", "L4", 0)
    assert body["fault_fired"] is True
    assert body["steps"]["planned"] == body["steps"]["committed"] == 60
    words = [entry["what"] for entry in body["timeline"]]
    assert list(dict.fromkeys(words)) == [
        "fault", "detected", "isolated", "spare-active", "restored", "resynchronised", "resumed"
    ]  # fmt: skip
    shares = [v for v in body["ledger"].values() if isinstance(v, int | float)]
    assert abs(sum(shares) - 1) < 1e-6
    (planted,) = body["planted"]
    assert (planted["kind"], planted["fired"]) == ("gpu-lost", 1)
    assert "what must hold:" in done.stderr
    assert gone(pids(run))


def test_the_record_is_judged_again_to_the_same_page(held, cli):
    _, run = held
    for form in ("html", "junit", "csv"):
        first = cli("report", str(run), "--as", form, "--out", "-")
        assert first.code == 0, first.err
        assert cli("report", str(run), "--as", form, "--out", "-").out == first.out
    assert cli("report", str(run), "--as", "ocp").code == 2


def test_a_finished_drill_is_not_written_over(held, cli):
    _, run = held
    before = (run / "drill.jsonl").read_bytes()
    for verb in (("drill", "gpu-loss"), ("burn", "hgx-h100")):
        answer = cli(*verb, "--out", str(run))
        assert answer.code == 2
        assert "choose another --out" in answer.err
    assert (run / "drill.jsonl").read_bytes() == before


def test_a_command_is_killed_and_goes_on_from_its_checkpoint(cli, trainer, tmp_path):
    answer = cli("drill", "gpu-loss", "--seed", "7", "--steps", "40", "--out", "run", "--",
                 *trainer, "40")  # fmt: skip
    assert answer.code == 0, answer.out + answer.err
    last = answer.out.rstrip("\n").splitlines()[-1]
    assert last.startswith("PASS  gpu-loss: ")
    assert last.endswith(", 1 restart")
    assert "started: " in answer.out
    assert gone(pids(tmp_path / "run"))


@pytest.mark.parametrize("steps", [["--steps", "40"], []])
def test_a_command_that_counts_from_0_is_judged_alike(cli, tmp_path, steps):
    path = tmp_path / "train0.py"
    path.write_text(TRAINER.replace("step=step,", "step=step - 1,"), "utf-8")
    answer = cli("drill", "gpu-loss", "--seed", "7", *steps, "--out", "run", "--json", "--",
                 sys.executable, str(path), "40")  # fmt: skip
    assert answer.code == 0, answer.out + answer.err
    assert (answer.json["steps"]["planned"], answer.json["steps"]["committed"]) == (40, 40)
    assert read_drill(tmp_path / "run").problems == ()


def test_a_command_is_told_how_many_steps_it_makes_when_it_counts_from_0(cli, tmp_path):
    path = tmp_path / "train0.py"
    path.write_text(TRAINER.replace("step=step,", "step=step - 1,"), "utf-8")
    answer = cli("drill", "gpu-loss", "--steps", "39", "--", sys.executable, str(path), "40")
    assert answer.code == 3
    assert "makes 40 steps, and not 39: give --steps 40" in " ".join(answer.out.split())


def test_a_command_is_killed_again_when_it_has_gone_on(cli, trainer, tmp_path):
    answer = cli("drill", "double-fault", "--seed", "7", "--steps", "30", "--out", "run", "--json",
                 "--", *trainer, "30")  # fmt: skip
    assert (answer.code, answer.json["restarts"]) == (0, 2), answer.out + answer.err
    said = read_drill(tmp_path / "run").faulted.happenings
    first, second = (what for what in said if what.kind == "injected")
    assert first.number("pid") != second.number("pid")
    assert any(what.kind == "step" and first.at < what.at < second.at for what in said)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("raise SystemExit(3)", "exit code 3"),
        ("pass", "no step"),
        (
            "import os; open(os.environ['RP_EVENTS'], 'w').write('{]\\n\\x00\\n[]\\n' * 50)",
            "no JSON",
        ),
    ],
)
def test_a_command_that_does_not_train_is_unknown_with_its_reason(cli, tmp_path, code, said):
    answer = cli("drill", "gpu-loss", "--out", "run", "--json", "--", sys.executable, "-c", code)
    assert answer.code == 3, answer.err
    assert answer.json["verdict"] == "UNKNOWN"
    assert said in json.dumps(answer.json)


def test_a_command_that_is_not_there_is_a_usage_error(cli, tmp_path):
    answer = cli("drill", "gpu-loss", "--out", "run", "--json", "--", "./no-such-program")
    assert answer.code == 2
    assert "there is no program './no-such-program'" in answer.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gpu-los",), "did you mean gpu-loss?"),
        (("power-dim", "hgx-h100"), "no power shelves"),
        (("gpu-loss", "gb300"), "gb300"),
        (("gpu-loss", "local"), "name a shipped rack"),
        (("gpu-loss", "--require", "L5"), "one of L0, L1, L2, L3, L4"),
        (("gpu-loss", "--layer", "torchfx"), "did you mean torchft?"),
        (("gpu-loss", "--log-regex", "x"), "there is none"),
        (("gpu-loss", "--log-regex", "(", "--", "true"), "--log-regex"),
        (("gpu-loss", "--log-regex", r"loss (\d+)", "--", "true"), "needs a group (?P<step>"),
        (("gpu-loss", "--layer", "torchft", "--", "x"), "exclude each other"),
        (("coordinator-loss", "--", "x"), "these can: gpu-loss"),
        (("gpu-loss", "gb300-nvl72", "x"), "one word too many"),
        (("gpu-loss", "--"), "no command after --"),
        (("nan-shard", "--require", "L4", "--out", "run"), "L3 at best"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_leaves_nothing(cli, tmp_path, words, said):
    answer = cli("drill", *words)
    assert answer.code == 2, answer.err
    assert said in answer.err
    assert answer.out == ""
    assert not any(tmp_path.glob("*/drill.jsonl"))
    assert not (tmp_path / "run").exists()


def test_a_folder_that_holds_something_is_left_alone(cli, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("x", "utf-8")
    answer = cli("drill", "gpu-loss", "--out", "mine")
    assert answer.code == 2
    assert "is not empty" in answer.err
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["notes.txt"]


def test_the_list_says_which_drills_can_be_held_on_a_command(cli):
    on = {item["name"]: item["on"] for item in cli("list", "drills", "--json").json["items"]}
    able = {name for name, where in on.items() if "command" in where.split(", ")}
    assert able == {name for name, drill in DRILLS.items() if drill.command}
    lines = cli("list", "drills").out.splitlines()
    assert {line.split()[0] for line in lines if "on your command" in line} == able


def until(run, what, within=120.0):
    """Wait until a record holds something."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        if (run / "drill.jsonl").exists() and (run / "drill.jsonl").stat().st_size:
            record = read_drill(run)
            if what(record):
                return record
        os.sched_yield()
    pytest.fail("it did not come")
    return None


def started(tmp_path, trainer, *words):
    return subprocess.Popen(
        [sys.executable, "-m", "rackproof.cli", "drill", "gpu-loss", "--steps", "100000",
         "--out", "run", *words, "--", *trainer, "100000"],
        cwd=tmp_path, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip


def training(record):
    course = record.courses.get("clean1")
    return course is not None and any(what.kind == "step" for what in course.happenings)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_interrupted_drill_ends_its_processes_and_keeps_its_record(tmp_path, trainer, number):
    child = started(tmp_path, trainer, "--json")
    until(tmp_path / "run", training)
    child.send_signal(number)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 128 + number, err
    body = json.loads(out)
    assert (body["schema"], body["verdict"]) == ("rackproof.error/1", "UNKNOWN")
    assert "interrupted" in body["error"]
    assert "Traceback" not in err
    record = read_drill(tmp_path / "run")
    assert not record.ended
    assert gone(pids(tmp_path / "run"))


def test_a_killed_drill_leaves_a_record_that_can_be_judged_and_nobody(tmp_path, trainer, cli):
    child = started(tmp_path, trainer)
    until(tmp_path / "run", training)
    child.kill()
    child.communicate(timeout=120)
    assert gone(pids(tmp_path / "run"))
    answer = cli("report", "run", "--as", "csv", "--out", "-")
    assert answer.code == 0, answer.err
    assert "UNKNOWN" in answer.out
    assert cli("report", "run", "--as", "html").code == 0


def test_help_loads_nothing_that_only_a_run_needs():
    code = (
        "import sys; sys.argv = ['rackproof', 'drill', '--help']\n"
        "from rackproof.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.partition("LOADED")[2].split())
    assert "rackproof.cli" in loaded
    assert not loaded & {"numpy", "safetensors", "fsspec", "pandas", "pytest", "jinja2"}
