"""Commands that do what they should not: a verdict or a clear error, and no process left behind.

The `job` fixture looks after each test whether anything still descends from us.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rackproof.harness.errors import DrillError
from rackproof.harness.launch import processes, rackproof_shim
from rackproof.harness.launch.command import CommandJob
from rackproof.harness.launch.member import Outcome

Make = Callable[..., CommandJob]
Trainer = Callable[..., list[str]]


def seen(job: CommandJob, what: str) -> list[dict[str, object]]:
    return [dict(fact.fields) for fact in job.seen if fact.what == what]


def started(job: CommandJob) -> int:
    return len(list((job.folder / "logs").iterdir()))


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["/nowhere/train"], r"cannot start /nowhere/train: No such file or directory"),
        (["/tmp"], r"cannot start /tmp: Permission denied"),  # noqa: S108 - a folder, not a program
        (["true", "x\0y"], r"cannot start true: "),
        (["true", "x" * 3_000_000], r"cannot start true: Argument list too long"),
        ([], r"no training command"),
        ([""], r"no training command"),
    ],
)
def test_one_that_cannot_start(job: Make, words: list[str], why: str) -> None:
    with pytest.raises(DrillError, match=why) as raised, job(words):
        pass
    assert "\n" not in str(raised.value)


def test_a_program_that_is_none(job: Make, tmp_path: Path) -> None:
    program = tmp_path / "train"
    program.write_bytes(b"\x7fELF, or so it says")
    program.chmod(0o755)
    with pytest.raises(DrillError, match="Exec format error"), job([str(program)]):
        pass


@pytest.mark.parametrize(("code", "done"), [(0, True), (1, False), (77, False)])
def test_one_that_ends_at_once(job: Make, code: int, done: bool) -> None:  # noqa: FBT001
    with job(["sh", "-c", f"exit {code}"], steps=10) as run:
        assert run.finish() is done
        with pytest.raises(DrillError, match=f"over before step 1: replica0 ended .* {code}"):
            run.reach(1)
    assert "the command ended at step 0 of 10" in run.problems
    assert all(isinstance(each, Outcome) for each in run.problems)
    assert started(run) == 1  # what never worked is not tried again


def test_one_that_never_makes_a_step(job: Make) -> None:
    with job(["sleep", "1000"], patience=0.2) as run:
        with pytest.raises(DrillError, match=r"replica0 made no step for 0\.2 s"):
            run.reach(1)
        assert not run.finish()
    assert started(run) == 1


def test_one_that_fails_again_and_again(job: Make, trainer: Trainer) -> None:
    with job(trainer("steps(1, 2, 0)\nsys.exit(3)"), restarts=2) as run:
        assert not run.finish()
    assert started(run) == 3
    assert "replica0 ended with exit code 3, after 2 restarts" in run.problems


def test_garbage_is_counted_and_said(job: Make, trainer: Trainer) -> None:
    body = r"""
    steps(1, 3)
    with open(os.environ["RP_EVENTS"], "ab") as file:
        file.write(b"\xff\xfe\n{\n[]\n" + b"{" * 5000 + b"\n" + b'"' + b"x" * (3 << 20) + b"\n")
        file.write(b'{"kind": "ended", "step": 9}\n{"kind": "step", "step": "7"}\n')
        file.write(b'{"kind": "step", "step": -1}\n{"kind": "step", "at": 1e300, "step": 4}\n')
        file.write(b'{"kind": "step", "step": 5, "at": 7, "attempt": 9, "who": "drill"}\n{"kind')
    """
    with job(trainer(body), steps=5) as run:
        assert run.finish()
    told = " | ".join(run.problems)
    for part in ("no JSON", "no JSON object", "longer than", "'ended' is not a command's to say",
                 "a step without a number", "times are not", "cut short"):  # fmt: skip
        assert part in told
    last = run.happenings[-2]
    assert (last.number("step"), last.who, last.attempt) == (5, "replica0", 1)
    assert run.committed() == 5


def test_going_backwards_is_said(job: Make, trainer: Trainer) -> None:
    with job(trainer("steps(1, 5, 0)\nsteps(3, 6, 0)"), steps=6) as run:
        assert run.finish()
    assert run.problems == ["replica0: step 3 after step 5, without a restore"]


LEAVES = {
    "a child in the background": "sleep 1000 &",
    "another session": "setsid sleep 1000 & sleep 0.1",
    "a double fork": "(setsid sh -c 'sleep 1000 & exit 0' &) ; sleep 0.2",
    "a daemon that ignores SIGTERM": "(setsid sh -c 'trap \"\" TERM; sleep 1000; sleep 1000' &); "
    "sleep 0.2",
    "closed files": "sleep 1000 <&- >&- 2>&- & exec <&- >&- 2>&-",
}


@pytest.mark.parametrize("script", LEAVES.values(), ids=LEAVES.keys())
def test_children_that_are_left_behind_are_ended_and_told(job: Make, script: str) -> None:
    with job(["sh", "-c", script], grace=0.3) as run:
        assert run.finish()
    (fact,) = seen(run, "left-behind")
    assert isinstance(fact["pids"], list)
    assert all(processes.look(pid) is None for pid in fact["pids"])


def test_a_fork_bomb_of_some_size(job: Make, trainer: Trainer) -> None:
    body = """
    def grow(depth):
        while True:
            if os.fork() == 0:
                os.setsid()
                if depth:
                    grow(depth - 1)
                time.sleep(1000)
            time.sleep(0.01)
    steps(1, 1)
    grow(2)
    """
    with job(trainer(body), grace=0.0) as run:
        run.reach(1)


def test_one_that_ignores_sigterm(job: Make, trainer: Trainer) -> None:
    body = """
    import signal
    signal.signal(signal.SIGTERM, lambda *_: say("fault", text="SIGTERM"))
    steps(1, 100000)
    """
    with job(trainer(body), grace=2.0) as run:
        run.reach(1)
        run.close()
    assert run.happenings[-2].kind in {"fault", "step", "ckpt"}
    assert any(each.kind == "fault" for each in run.happenings)
    assert seen(run, "died")[0]["code"] == -signal.SIGKILL


ENDLESS = {
    "prints, and makes no step": "while :; do echo working; sleep 0.01; done",
    "sleeps and ignores SIGTERM": "trap '' TERM; while :; do sleep 1000; done",
    "stops itself": "kill -STOP $$; sleep 1000",
    "waits for a line that never comes": "mkfifo $RP_RUN_DIR/in; read line <$RP_RUN_DIR/in",
    "leaves its output open": "trap '' TERM; (setsid sh -c 'trap \"\" TERM; sleep 1000' &); "
    "sleep 1000",
}


@pytest.mark.parametrize("pattern", ["", r"step (?P<step>\d+)"], ids=["", "log-regex"])
@pytest.mark.parametrize("script", ENDLESS.values(), ids=ENDLESS.keys())
def test_one_that_would_never_end_is_ended(job: Make, script: str, pattern: str) -> None:
    with job(["sh", "-c", script], patience=0.3, grace=0.2, log_regex=pattern) as run:
        assert not run.finish(1e9)
    assert "replica0 made no step for 0.3 s" in run.problems
    assert started(run) == 1


def test_one_that_stops_its_keeper(job: Make) -> None:
    script = "while [ ! -e $RP_RUN_DIR/go ]; do sleep 0.01; done; kill -STOP $PPID; sleep 1000"
    with job(["sh", "-c", script], patience=1.0, grace=0.1) as run:
        (run.folder / "go").touch()
        assert not run.finish(1e9)
    assert run.problems == ["replica0 made no step for 1 s"]
    assert seen(run, "died")[0]["code"] == -signal.SIGTERM  # its keeper was there to see it


def test_one_that_stops_its_keeper_at_once_is_started_all_the_same(job: Make) -> None:
    script = "kill -STOP $PPID; exit 0"
    with job(["sh", "-c", script], patience=1e9) as run:
        assert run.finish(1e9)
    assert run.problems == []


def test_output_that_a_child_keeps_open_is_read_to_its_end(job: Make) -> None:
    script = "echo step 1; setsid sh -c 'trap \"\" TERM; echo step 2; sleep 1000' &"
    terms = {"log_regex": r"step (?P<step>\d+)", "grace": 0.2}
    with job(["sh", "-c", f"{script} sleep 0.1"], steps=2, **terms) as run:
        assert run.finish(1e9)
    assert run.committed() == 2
    assert len(seen(run, "left-behind")) == 1


def test_one_that_goes_on_after_its_last_step_is_ended(
    job: Make, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackproof.harness.launch.crew.OVER", 0.1)
    with job(trainer("steps(1, 10**9)"), steps=5) as run:
        assert not run.finish(1e9)
    (problem,) = run.problems
    said = rf"replica0 went on after its last step: step {run.committed()} was told, and 5 were pl"
    assert problem.startswith(said)
    assert started(run) == 1  # it would do so again


def test_one_that_ends_soon_after_its_last_step_is_waited_for(job: Make, trainer: Trainer) -> None:
    with job(trainer("steps(1, 6)\ntime.sleep(0.3)\nsay('fault', text='saved')"), steps=5) as run:
        assert run.finish(1e9)
    assert run.problems == []
    assert run.happenings[-2].text("text") == "saved"


ROUNDS = """
for turn in range({turns}):
    say("hello", pid=os.getpid(), rank=0, world=1)
    say("restore", step=0, uri="peer:x", fields=[])
    steps(1, 30, 0)
steps(31, 33)
"""


@pytest.mark.parametrize(("turns", "done"), [(8, True), (10**9, False)])
def test_one_that_goes_round_in_circles_is_ended(
    job: Make,
    trainer: Trainer,
    turns: int,
    done: bool,  # noqa: FBT001
) -> None:
    with job(trainer(ROUNDS.format(turns=turns)), steps=33) as run:
        assert run.finish(1e9) is done
    said = "replica0 told its steps again and again, and none after 30"
    assert (said in run.problems) is not done


def test_sigterm_reaches_the_trainer_inside_a_script(job: Make, trainer: Trainer) -> None:
    inner = trainer("""
    import signal
    def save(*_):
        say("fault", text="saved")
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
    steps(1, 100000)
    """)
    with job(["sh", "-c", '"$@"; exit $?', "sh", *inner]) as run:
        run.reach(1)
    assert any(each.text("text") == "saved" for each in run.happenings)


@pytest.mark.parametrize("what", ["os.mkdir(name)", "os.mkfifo(name)", "os.symlink('/etc', name)"])
def test_events_that_are_no_file(job: Make, trainer: Trainer, what: str) -> None:
    body = f"name = os.environ['RP_EVENTS']\nos.remove(name)\n{what}\ntime.sleep(1000)"
    with job(trainer(body), grace=0.1) as run:
        assert run._wait(lambda: run.problems != [], 60.0)
    assert run.problems == ["replica0.1.jsonl: is no regular file"]


def test_events_that_are_written_anew(job: Make, trainer: Trainer) -> None:
    body = """
    steps(1, 5)
    os.truncate(os.environ["RP_EVENTS"], 0)
    time.sleep(0.1)
    steps(6, 7)
    """
    with job(trainer(body), steps=7) as run:
        run.reach(5)
        assert run.finish()
    assert run.committed() == 7


def test_one_that_writes_without_end(
    job: Make, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackproof.harness.launch.crew.TOO_MUCH", 1 << 20)
    with job(["sh", "-c", "while :; do echo yes yes yes; done"]) as run:
        assert not run.finish()
    assert run.problems == ["replica0 wrote more than can be kept"]


def test_one_that_tells_without_end(
    job: Make, trainer: Trainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rackproof.harness.launch.tail.BYTES", 1 << 20)
    with job(trainer("while True:\n    say('fault', text='x' * 1000)")) as run:
        assert not run.finish()
    assert sum(len(str(each.fields)) for each in run.happenings) < 3 << 20
    assert "replica0 wrote more than can be kept" in run.problems


def test_a_full_disk(job: Make, trainer: Trainer) -> None:
    body = """
    import resource
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    steps(1, 3)
    with open(place + ".big", "wb") as file:
        while True:
            file.write(b"x" * 4096)
    """
    with job(trainer(body)) as run:
        assert not run.finish()
    assert any("ended with" in problem for problem in run.problems)


def test_a_folder_that_cannot_be_written(job: Make, tmp_path: Path) -> None:
    (tmp_path / "run0").write_text("a file of somebody", "utf-8")
    with pytest.raises(DrillError, match="run0"), job(["true"]):
        pass


def test_a_folder_whose_name_is_no_text(tmp_path: Path, trainer: Trainer) -> None:
    folder = tmp_path / os.fsdecode(b"a \xff b")
    body = """
    sys.path.insert(0, os.environ["SHIM"])
    import rackproof_shim as rp
    with rp.committing(rp.checkpoint_dir() + "/step-1", 1) as path, open(path, "w") as file:
        file.write("1")
    rp.step(1)
    """
    shim = {"SHIM": str(Path(rackproof_shim.__file__).parent)}
    with CommandJob(trainer(body), folder, steps=1, environment=shim) as run:
        assert run.finish(60.0)
    assert run.problems == []
    (fact,) = seen(run, "checkpoint")
    assert fact["verifies"] is True


def test_a_trainer_that_kills_its_keeper(job: Make) -> None:
    script = "(setsid sleep 1000 &); while [ ! -e $RP_RUN_DIR/go ]; do sleep 0.01; done;"
    with job(["sh", "-c", f"{script} kill -9 $PPID; sleep 1000"]) as run:
        (run.folder / "go").touch()
        assert not run.finish()
    assert run.problems == ["replica0 ended with signal 9"]


def test_a_keeper_that_ends_before_it_has_told(job: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DrillError, match="cannot start sh: its keeper was ended"), job(["sh"]):
        pass


DRILL = """
import pathlib, sys
from rackproof.harness.launch.command import CommandJob
with CommandJob(sys.argv[2:], pathlib.Path(sys.argv[1]), grace=0.5) as run:
    run.reach(1)
    print(*(member.pid for member in run.members()), flush=True)
    run.finish(600)
"""


@pytest.mark.parametrize("stopped", [False, True])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_a_drill_that_is_killed_leaves_nothing(
    tmp_path: Path,
    trainer: Trainer,
    number: signal.Signals,
    stopped: bool,  # noqa: FBT001
) -> None:
    inner = trainer("""
    import signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            say("hello", pid=os.getpid(), rank=0, world=1)
            steps(1, 100000)
    time.sleep(1000)
    """)
    words = [sys.executable, "-c", DRILL, str(tmp_path / "run"), *inner]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as drill:
        assert drill.stdout is not None
        pid = int(drill.stdout.readline())
        there = processes.look(pid)
        assert there is not None
        keeper = next(
            process for process in processes.descendants(drill.pid) if process.parent == drill.pid
        )
        everyone = [keeper, *processes.descendants(keeper.pid)]
        assert len(everyone) >= 3
        if stopped:
            os.kill(keeper.pid, signal.SIGSTOP)
            assert processes.in_state(keeper, "T", 30.0)
        os.kill(drill.pid, number)
    assert all(processes.gone(process, 30.0) for process in everyone)
