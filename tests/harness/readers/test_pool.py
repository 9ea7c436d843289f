"""Several processes give the answer of one."""

from pathlib import Path

import pytest

from rackproof.harness.readers import pool, read_all
from rackproof.harness.readers.recognise import FIRST, recognise

XID = (
    "2026-03-02T04:05:06Z n1 kernel: NVRM: Xid (PCI:0000:19:00): 79, GPU has fallen off the bus.\n"
)


@pytest.fixture
def folder(tmp_path):
    for number in range(6):
        (tmp_path / f"n{number}").mkdir()
        (tmp_path / f"n{number}" / "kern.log").write_text(XID.replace("n1", f"n{number}") * 20)
    (tmp_path / "notes").write_text("nothing of ours\n")
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "away").symlink_to(tmp_path / "nowhere")
    return tmp_path


def test_workers_change_nothing(folder, monkeypatch):
    alone = read_all([folder])
    monkeypatch.setattr(pool, "MUCH", 0)
    assert read_all([folder], 2) == alone
    assert [r.path.name for r in alone if r.kind == "unrecognised"] == ["away", "empty", "notes"]
    assert {r.folder for r in alone} == {folder}
    assert not any(r.named for r in alone)


def test_without_processes_this_one_reads(folder, monkeypatch):
    def none(*_, **__):
        raise OSError

    monkeypatch.setattr(pool, "MUCH", 0)
    monkeypatch.setattr(pool, "ProcessPoolExecutor", none)
    assert len(read_all([folder], 2)) == 9


def test_little_to_read_starts_no_process(folder, monkeypatch):
    monkeypatch.setattr(pool, "ProcessPoolExecutor", None)
    assert len(read_all([folder], 2)) == 9


def test_an_empty_folder_says_so(tmp_path):
    (only,) = read_all([tmp_path])
    assert (only.named, only.problems) == (True, ("a folder with no file in it",))


def test_what_first_shows_far_into_a_head_is_found_there():
    noise = b"a line of no log that is known here.\n" * (FIRST // 36)
    assert recognise(noise + XID.encode()) is not None
    assert recognise(noise) is None


def test_a_path_may_be_relative(folder, monkeypatch):
    monkeypatch.chdir(folder)
    assert [r.path for r in read_all([Path("n1")])] == [Path("n1/kern.log")]
