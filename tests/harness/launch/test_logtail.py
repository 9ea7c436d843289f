"""The log-tail adapter: lines become steps, and no line or expression can hold it up."""

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rackproof.harness.errors import DrillError
from rackproof.harness.launch import logtail
from rackproof.harness.launch.command import CommandJob

Make = Callable[..., CommandJob]
PATTERN = r"step (?P<step>\d+) loss (?P<loss>\S+)"


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bytes], list[dict]]:
    """Return what becomes of a log by an expression, within this process."""
    monkeypatch.setattr(logtail, "LIMIT", 0.02)
    before = signal.signal(signal.SIGALRM, logtail._interrupt)

    def read(pattern: str, log: bytes) -> list[dict]:
        (tmp_path / "log").write_bytes(log)
        opened = os.open(tmp_path / "log", os.O_RDONLY)
        events = os.open(tmp_path / "events", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        counts = logtail.Reading(logtail.check(pattern), opened, events).end()
        for file in (opened, events):
            os.close(file)
        lines = (tmp_path / "events").read_text("utf-8").splitlines()
        return [counts, *(json.loads(line) for line in lines)]

    yield read
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(", "missing \\)"),
        (r"loss (?P<loss>\S+)", r"needs a group \(\?P<step>"),
        (r"(?P<step>\d+) (?P<los>\S+)", "'los' is none of step, loss"),
        ("(?P<step>" + "(" * 5000 + ")" * 5000 + ")", "--log-regex"),
    ],
)
def test_an_expression_that_will_not_do(job: Make, pattern: str, why: str) -> None:
    with pytest.raises(DrillError, match=why):
        job(["true"], log_regex=pattern)


def test_all_groups(reading: Callable[[str, bytes], list[dict]]) -> None:
    pattern = r"s=(?P<step>\w+) l=(?P<loss>\S+) n=(?P<samples>\d*)"
    pattern += r"( d=(?P<digest>\w+))?( c=(?P<ckpt>\S+))?"
    log = b"s=3 l=1e-2 n=8 d=ab c=/x/y\nnothing\ns=four l=1 n=\ns=4 l=nan n=\ns=5 l=? n=1"
    counts, *said = reading(pattern, log)
    assert counts == {"lines": 5, "matched": 4, "slow": 0}
    for each in said:
        assert each.pop("at") <= time.monotonic()
    assert said[0] == {"kind": "step", "step": 3, "loss": 0.01, "samples": 8, "digest": "ab"}
    assert said[1]["kind"] == "ckpt"
    assert said[1]["uri"] == "/x/y"
    assert said[2:] == [
        {"kind": "step", "step": 4, "loss": "nan"},
        {"kind": "step", "step": 5, "samples": 1},
    ]


def test_long_lines_and_other_bytes(reading: Callable[[str, bytes], list[dict]]) -> None:
    log = b"step 1 loss 1 " + b"x" * (1 << 20) + b" step 9 loss 9\n\xff\xfe\0 step 2 loss 2\r\n"
    _, *said = reading(PATTERN, log)
    assert [each["step"] for each in said] == [1, 2]


def test_an_expression_that_would_run_for_ever(
    reading: Callable[[str, bytes], list[dict]],
) -> None:
    log = (b"a" * 3000 + b"!\nb7\n") * 15
    counts, *said = reading(r"^(a+)+$|b(?P<step>\d)", log)
    assert counts["slow"] == logtail.PATIENCE
    assert len(said) == logtail.PATIENCE - 1  # those between were read, the rest was given up


def test_a_script_that_knows_nothing_of_drills(job: Make) -> None:
    script = (
        "for n in 1 2 3 4 5; do echo step $n loss 0.$n; sleep 0.05; done; printf 'step 6 loss 0'"
    )
    with job(["sh", "-c", script], steps=6, log_regex=PATTERN) as run:
        run.reach(2)
        assert run.finish()
    steps = [
        (each.number("step"), each.fields["loss"]) for each in run.happenings if each.kind == "step"
    ]
    assert steps == [(n, n / 10) for n in range(1, 6)] + [(6, 0.0)]
    assert run.problems == []


def test_an_expression_that_matches_nothing_is_said(job: Make) -> None:
    with job(["sh", "-c", "echo one; echo two"], log_regex=PATTERN) as run:
        assert run.finish()
    assert run.problems == ["replica0: --log-regex matched none of 2 lines"]


def test_a_killed_script_goes_on_with_its_log(job: Make) -> None:
    script = """
    cd "$RP_RUN_DIR"
    n=$(cat n 2>/dev/null || echo 0)
    while [ $n -lt 40 ]; do
        n=$((n + 1)); sleep 0.01; echo $n > n.new; mv n.new n
        echo step $n loss 1
    done
    """
    with job(["sh", "-c", script], steps=40, log_regex=PATTERN) as run:
        run.reach(5)
        run.kill("replica0")
        assert run.finish()
    assert [each.kind for each in run.acts].count("restarted") == 1
    assert run.committed() == 40
