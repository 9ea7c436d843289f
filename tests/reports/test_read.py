"""Reading a run directory: which files, in which order, and what is not believed."""

import hashlib
import json
import os

import pytest

from rackproof.diagnostics.evidence import Head
from rackproof.harness.errors import RecordError
from rackproof.harness.model import Measurement
from rackproof.reports.read import fingerprint, is_run, read_run, record_files
from rackproof.reports.record import RecordWriter

GPU = "rack0/tray00/gpu0"
HEAD = Head(
    rack="test", source="emulated", seed=7, level="quick", verb="burn", gpus={GPU: "b300"},
    hosts=[], links=None, plan=[], limits={}, today="2026-07-30",
)  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """A run directory with a controller's and two workers' files."""
    folder = tmp_path / "run"
    with RecordWriter(folder) as writer:
        writer.run(HEAD)
        writer.conclusion("end", {"verdict": "PASS"})
    for value, worker in ((2, "gw1"), (1, "gw0")):
        with RecordWriter(folder, worker) as writer:
            writer.seen(Measurement("health", GPU, "temperature", value, "C"))
    return folder


def test_files_come_in_order_the_controllers_first(run):
    (run / "record.txt").write_text("x", "ascii")
    (run / "other.jsonl").write_text("{}", "ascii")
    (run / "record.dir.jsonl").mkdir()
    names = [p.name for p in record_files(run)]
    assert names == ["record.jsonl", "record.gw0.jsonl", "record.gw1.jsonl"]
    assert [s.value for s in read_run(run).seen] == [1, 2]


def test_a_link_out_of_the_folder_is_not_followed(run, tmp_path):
    outside = tmp_path / "elsewhere.jsonl"
    outside.write_text('{"kind":"nonsense"}\n', "ascii")
    (run / "record.gw9.jsonl").symlink_to(outside)
    assert read_run(run).problems == ()


def test_a_pipe_is_not_read(run):
    os.mkfifo(run / "record.gw9.jsonl")
    assert len(record_files(run)) == 3


def test_what_is_a_run(run, tmp_path):
    assert is_run(run)
    assert is_run(run / "record.jsonl")
    assert is_run(run / "record.gw0.jsonl")
    assert not is_run(tmp_path)
    assert not is_run(tmp_path / "nothing")
    other = tmp_path / "other.jsonl"
    other.write_text("{}", "ascii")
    assert not is_run(other)


def test_the_record_file_stands_for_its_folder(run):
    assert read_run(run / "record.gw1.jsonl") == read_run(run)


def test_the_fingerprint_is_of_names_and_contents(run):
    digest = hashlib.sha256()
    for name in ("record.jsonl", "record.gw0.jsonl", "record.gw1.jsonl"):
        digest.update(name.encode() + b"\0" + (run / name).read_bytes())
    first = fingerprint(run)
    assert first == digest.hexdigest()
    (run / "planted.json").write_text("[]", "ascii")
    assert fingerprint(run) == first
    (run / "record.gw1.jsonl").rename(run / "record.gw2.jsonl")
    assert fingerprint(run) != first


def test_blank_lines_and_a_bom_are_nothing(run):
    file = run / "record.jsonl"
    file.write_bytes(b"\n\r\n" + file.read_bytes().replace(b"\n", b"\r\n") + b"\n")
    assert read_run(run).problems == ()


def test_two_equal_first_lines_are_one_and_two_others_a_problem(run):
    file = run / "record.jsonl"
    first = json.loads(file.read_text("ascii").splitlines()[0])
    with file.open("a", encoding="ascii") as more:
        more.write(json.dumps(first) + "\n")
    assert read_run(run).problems == ()
    with file.open("a", encoding="ascii") as more:
        more.write(json.dumps({**first, "gpus": {}}) + "\n")
    record = read_run(run)
    assert record.head.gpus == HEAD.gpus
    assert record.problems == (
        "record.jsonl line 4: bad 'run' line (a second run line, with another plan)",
    )


def test_a_record_error_says_what_was_wrong(run):
    (run / "record.jsonl").write_text('{"kind": "run", "schema": "rackproof.record/1"}\n', "ascii")
    with pytest.raises(RecordError, match=r"no readable run line in its record.*line 1"):
        read_run(run)
    (run / "record.jsonl").write_text('{"kind": "run", "schema": "rackproof.record/7"}\n', "ascii")
    with pytest.raises(RecordError, match=r"record/7.*reads rackproof\.record/1"):
        read_run(run)


def test_an_end_counts_wherever_it_stands_and_its_verdict_nowhere(run):
    file = run / "record.jsonl"
    lines = file.read_text("ascii").splitlines()
    file.write_text(f"{lines[0]}\n", "ascii")
    assert not read_run(run).ended
    file.write_text(f'{lines[0]}\n{{"kind": "end", "verdict": ["x"]}}\n', "ascii")
    assert read_run(run).ended


def test_a_file_that_may_not_be_read_is_a_problem(run, monkeypatch):
    from pathlib import Path  # noqa: PLC0415 - to stand in for it

    true = Path.open

    def refuse(self, *args, **more):
        if self.name == "record.gw0.jsonl":
            raise PermissionError(13, "Permission denied")
        return true(self, *args, **more)

    monkeypatch.setattr(Path, "open", refuse)
    record = read_run(run)
    assert record.problems == ("record.gw0.jsonl: cannot be read (Permission denied)",)
    with pytest.raises(RecordError, match="Permission denied"):
        fingerprint(run)
