"""Writing the record: what stands there stays, and trouble is a RecordError, never a traceback."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rackproof.diagnostics.evidence import SCHEMA, Head, Planned
from rackproof.harness.errors import RecordError
from rackproof.harness.model import Event, Measurement, Missing, Why
from rackproof.reports.read import read_run
from rackproof.reports.record import RecordWriter, RunLock

ROOT = Path(__file__).resolve().parents[2]
GPU = "rack0/tray00/gpu0"
PLANNED = Planned("health", {"gpu": ["temperature"]}, 1.0)
HEAD = Head(
    rack="test", source="emulated", seed=7, level="quick", verb="burn", gpus={GPU: "b300"},
    hosts=["rack0/tray00/host"], links=18, plan=[PLANNED], limits={}, today="2026-07-30",
    absent=["retired.pages"], domain=72, switches=18, versions={"rackproof": "0.1.0"},
)  # fmt: skip


def reading(value, attempt=1, metric="temperature", unit="C", window=None):
    return Measurement("health", GPU, metric, value, unit, attempt, window)


def child(code, *arguments):
    """Start Python with `code`; it finds rackproof in the checkout."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_what_is_written_is_read_back(tmp_path):
    seen = [
        reading(50, window=(1.25, 2.5)),
        reading(1e-15, metric="nvlink.ber", unit="ratio"),
        reading("580.1 ☃ \x00\n", metric="driver.version", unit="text"),
        Missing("health", GPU, "thermal.margin", Why.TIMED_OUT, "no answer", "again", 2),
        Event(GPU, "xid.79", "off the bus", 12.5, "virtual", {"pid": 3, "who": "x"}),
        Event(GPU, "aer.fatal", "", None),
    ]
    with RecordWriter(tmp_path) as writer:
        writer.run(HEAD)
        for what in seen:
            writer.seen(what)
        writer.settled("health", GPU, 2)
        writer.conclusion("end", {"verdict": "PASS"})
    record = read_run(tmp_path)
    assert record.head == HEAD
    assert record.seen == seen
    assert record.settled == frozenset({("health", GPU, 2)})
    assert (record.ended, record.problems) == (True, ())


def test_every_line_is_one_ascii_object_with_kind_and_time(tmp_path):
    with RecordWriter(tmp_path) as writer:
        writer.run(HEAD)
        writer.seen(reading("a\nb\u2028c", metric="gpu.name", unit="text"))
    lines = (tmp_path / "record.jsonl").read_bytes().splitlines()
    assert len(lines) == 2
    for line in lines:
        body = json.loads(line.decode("ascii"))
        assert {"kind", "at"} <= body.keys()
    assert json.loads(lines[0])["schema"] == SCHEMA


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, np.float64("nan")])
def test_what_json_cannot_hold_comes_back(tmp_path, value):
    with RecordWriter(tmp_path) as writer:
        writer.run(HEAD)
        writer.seen(reading(value))
        writer.seen(Event(GPU, "x", "", value, detail={"a": value}))
    for line in (tmp_path / "record.jsonl").read_text("ascii").splitlines():
        json.loads(line, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    record = read_run(tmp_path)
    assert record.problems == ()
    assert str(record.seen[0].value) == str(float(value))
    assert str(record.seen[1].at) == str(float(value))


def test_numbers_of_numpy_are_numbers(tmp_path):
    with RecordWriter(tmp_path) as writer:
        writer.run(HEAD)
        for value in (np.int64(3), np.float32(2.5), np.float64(2.5), np.float32("inf")):
            writer.seen(reading(value))
    record = read_run(tmp_path)
    assert record.problems == ()
    assert [s.value for s in record.seen] == [3, 2.5, 2.5, math.inf]


def test_a_line_is_in_the_file_as_soon_as_it_is_written(tmp_path):
    writer = RecordWriter(tmp_path)
    writer.run(HEAD)
    assert (tmp_path / "record.jsonl").read_bytes().endswith(b"\n")
    writer.seen(reading(1))
    assert (tmp_path / "record.jsonl").read_bytes().count(b"\n") == 2
    writer.close()


def test_writing_goes_on_after_what_stands_there(tmp_path):
    with RecordWriter(tmp_path) as writer:
        writer.run(HEAD)
        writer.seen(reading(1))
    with RecordWriter(tmp_path) as writer:
        writer.seen(reading(2, attempt=2))
    record = read_run(tmp_path)
    assert [s.value for s in record.seen] == [1, 2]
    assert record.problems == ()


@pytest.mark.parametrize("left", [1, 60, -1, -9])
def test_a_cut_last_line_is_set_aside_and_the_record_is_whole_again(tmp_path, left):
    with RecordWriter(tmp_path) as writer:
        writer.run(HEAD)
        writer.seen(reading(1))
        writer.seen(reading(2))
    file = tmp_path / "record.jsonl"
    *kept, last = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(kept) + last[:left])
    assert len(read_run(tmp_path).problems) == (left != -1)
    with RecordWriter(tmp_path) as writer:
        writer.seen(reading(3))
        writer.seen(reading(4))
    record = read_run(tmp_path)
    assert [s.value for s in record.seen] == [1, 3, 4]
    assert record.problems == ()
    assert (tmp_path / "record.jsonl.cut").read_bytes() == last[:left] + b"\n"


@pytest.mark.parametrize("content", [b"", b"{", b"\n", b'{"kind":"x"}\n'])
def test_any_beginning_can_be_written_after(tmp_path, content):
    (tmp_path / "record.jsonl").write_bytes(content)
    with RecordWriter(tmp_path) as writer:
        writer.run(HEAD)
    assert read_run(tmp_path).head == HEAD


def test_workers_have_files_of_their_own(tmp_path):
    with RecordWriter(tmp_path) as main, RecordWriter(tmp_path, "gw0") as worker:
        main.run(HEAD)
        worker.seen(reading(1))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["record.gw0.jsonl", "record.jsonl"]
    assert len(read_run(tmp_path).seen) == 1


# --- the lock -----------------------------------------------------------------------------------


def test_a_second_writer_is_refused_with_the_first_ones_pid(tmp_path):
    lock = RunLock(tmp_path / "run")
    with pytest.raises(RecordError, match=rf"process {os.getpid()}\b.*--out"):
        RunLock(tmp_path / "run")
    lock.release()
    RunLock(tmp_path / "run").release()


HOLD = """
import sys
from pathlib import Path
from rackproof.reports.record import RecordWriter, RunLock
lock = RunLock(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


def test_a_lock_dies_with_its_holder(tmp_path):
    holder = child(HOLD, tmp_path)
    assert holder.stdout.readline() == "held\n"
    with pytest.raises(RecordError, match=rf"process {holder.pid}\b"):
        RunLock(tmp_path)
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    lock = RunLock(tmp_path)
    assert lock.path.read_text("ascii") == f"{os.getpid()}\n"
    lock.release()


def test_what_was_written_survives_a_kill(tmp_path):
    code = HOLD + "# never reached"
    code = code.replace(
        'print("held"',
        "writer = RecordWriter(Path(sys.argv[1]))\n"
        "[writer.settled('health', 'gpu', n) for n in range(1, 101)]\n"
        'print("held"',
    )
    writer = child(code, tmp_path)
    assert writer.stdout.readline() == "held\n"
    os.kill(writer.pid, signal.SIGKILL)
    writer.communicate()
    lines = (tmp_path / "record.jsonl").read_bytes().splitlines()
    assert len(lines) == 100
    assert json.loads(lines[-1])["attempt"] == 100


# --- where nothing can be written ---------------------------------------------------------------


@pytest.mark.parametrize("what", [RunLock, RecordWriter])
def test_a_folder_that_is_a_file_is_a_record_error(tmp_path, what):
    (tmp_path / "run").write_text("x", "ascii")
    with pytest.raises(RecordError, match="choose another --out"):
        what(tmp_path / "run")
    with pytest.raises(RecordError, match="choose another --out"):
        what(tmp_path / "run" / "below")


def test_a_record_file_that_is_a_folder_is_a_record_error(tmp_path):
    (tmp_path / "record.jsonl").mkdir()
    with pytest.raises(RecordError, match="cannot be written"):
        RecordWriter(tmp_path)
    (tmp_path / "lock").mkdir()
    with pytest.raises(RecordError, match="cannot write there"):
        RunLock(tmp_path)


FULL = """
import resource, sys
from pathlib import Path
from rackproof.harness.errors import RecordError
from rackproof.reports.record import RecordWriter, RunLock
run = Path(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
errors = 0
with RecordWriter(run) as writer:
    for n in range(1, 41):
        try:
            writer.settled("health", "gpu", n)
        except RecordError as error:
            errors += 1
            assert "cannot be written" in str(error) and "is kept" in str(error)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    writer.settled("health", "gpu", 99)
resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
try:
    RunLock(run)
except RecordError as error:
    print(errors, flush=True)
"""


def test_a_full_disk_is_a_record_error_and_keeps_what_stood_there(tmp_path):
    writer = child(FULL, tmp_path)
    out, _ = writer.communicate()
    assert writer.returncode == 0
    lines = (tmp_path / "record.jsonl").read_bytes().splitlines()
    whole = [json.loads(line) for line in lines if line.endswith(b"}")]
    written = [line["attempt"] for line in whole]
    assert written == [*range(1, len(written)), 99]
    assert len(written) - 1 == 40 - int(out)
    assert len(lines) == len(whole) + 1  # the one that did not fit, on a line of its own
