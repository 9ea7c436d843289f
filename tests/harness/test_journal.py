"""What was changed is put back: at the end, on a signal, and by the next start."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from rackproof.harness import journal
from rackproof.harness.errors import DeviceError, NotPermitted, NotPresent
from rackproof.harness.journal import Change, Journal, Writer, state_folder, this_process

ROOT = Path(__file__).resolve().parents[2]
ONE, TWO = Change("GPU-1", "power.limit", 700.0), Change("GPU-2", "power.limit", 650.5)
DEAD = Writer(1 << 22, 7)  # above the largest id that Linux gives


class Gpus:
    """What is put back; an error by UUID is raised instead."""

    def __init__(self):
        self.put, self.errors = [], {}

    def __call__(self, change):
        if change.uuid in self.errors:
            raise self.errors[change.uuid]
        self.put.append(change)


@pytest.fixture
def gpus():
    return Gpus()


@pytest.fixture
def own(tmp_path, gpus):
    made = Journal(tmp_path / "state", gpus)
    yield made
    gpus.errors.clear()
    made.restore()


@pytest.fixture
def leave(tmp_path):
    """Write changes as a process that was killed leaves them."""

    def left(*changes, writer=DEAD):
        made = Journal(tmp_path / "state", pytest.fail, writer)
        for change in changes:
            made.keep(change)
        made._ignore()
        made._file.close()
        return made.path

    return left


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines() if line]


def test_a_change_is_on_disk_before_it_is_made(own, monkeypatch):
    synced = []
    monkeypatch.setattr(journal.os, "fsync", synced.append)
    own.keep(ONE)
    (entry,) = lines(own.path)
    me = this_process()
    assert (entry["uuid"], entry["setting"], entry["was"]) == ("GPU-1", "power.limit", 700.0)
    assert (entry["pid"], entry["started"]) == (os.getpid(), me.started)
    assert len(synced) == 2  # the file, and the folder that names it


def test_only_the_first_value_of_a_setting_is_kept(own, gpus):
    own.keep(ONE)
    own.keep(Change("GPU-1", "power.limit", 500.0))
    assert own.changes == (ONE,)
    own.restore()
    assert gpus.put == [ONE]


def test_what_is_put_back_leaves_no_file(own, gpus):
    own.keep(ONE)
    own.keep(TWO)
    own.restore("GPU-2")
    assert (gpus.put, own.changes) == ([TWO], (ONE,))
    assert lines(own.path)[-1] == {"restored": ["GPU-2", "power.limit"]}
    own.restore()
    assert not own.path.exists()
    own.restore()
    assert gpus.put == [TWO, ONE]
    own.keep(ONE)  # and it can begin again
    assert own.path.exists()


def test_what_cannot_be_put_back_is_raised_and_stays_and_the_others_are(own, gpus):
    gpus.errors["GPU-1"] = NotPermitted("no")
    own.keep(ONE)
    own.keep(TWO)
    with pytest.raises(NotPermitted):
        own.restore()
    assert (gpus.put, own.changes) == ([TWO], (ONE,))
    assert own.path.exists()


def test_nothing_is_changed_where_it_cannot_be_written_down(tmp_path, gpus):
    (tmp_path / "state").write_text("a file, no folder")
    made = Journal(tmp_path / "state", gpus)
    with pytest.raises(DeviceError, match="nothing is changed"):
        made.keep(ONE)
    assert made.changes == ()


def test_the_next_start_puts_back_what_a_killed_run_left(leave, own, gpus):
    path = leave(ONE, TWO)
    said = own.recover()
    assert sorted(gpus.put, key=str) == [ONE, TWO]
    assert not path.exists()
    assert len(said) == 2
    assert all("is put back: a run that was killed" in line for line in said)
    assert own.recover() == []


def test_a_writer_that_lives_is_left_alone(leave, own, gpus):
    path = leave(ONE, writer=Writer(os.getppid(), journal.started(os.getppid())))
    assert own.recover() == []
    assert gpus.put == []
    assert path.exists()


def test_a_process_that_took_over_a_dead_ones_id_is_another(leave, own, gpus):
    leave(ONE, writer=Writer(os.getppid(), journal.started(os.getppid()) - 1))
    own.recover()
    assert gpus.put == [ONE]


def test_a_writer_that_holds_its_file_lives_wherever_it_is(tmp_path, own, gpus):
    """As one in a container whose processes we do not see."""
    other = Journal(tmp_path / "state", gpus, DEAD)
    other.keep(ONE)
    assert own.recover() == []
    assert gpus.put == []
    other.restore()


def test_a_gpu_that_another_run_works_on_waits_for_it(leave, own, gpus):
    path = leave(ONE)
    own.keep(Change("GPU-1", "power.limit", 500.0))  # what the killed run had set
    (said,) = own.recover()
    assert "another run is at work" in said
    assert gpus.put == []
    assert path.exists()
    own.restore()
    own.recover()
    assert gpus.put[-1] == ONE  # and not 500 W, which was nobody's wish


def test_of_several_killed_runs_the_eldest_knows_the_value_before_all(
    leave, own, gpus, monkeypatch
):
    clock = iter((30.0, 10.0, 20.0))
    monkeypatch.setattr(journal.time, "time", lambda: next(clock))
    for number, was in enumerate((500.0, 700.0, 600.0)):
        leave(Change("GPU-1", "power.limit", was), writer=Writer(DEAD.pid + number, 7))
    own.recover()
    assert gpus.put == [ONE]
    assert list(own._folder.glob("*.jsonl")) == []


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotPresent("gone"), "when the GPU is here again"),
        (NotPermitted("NVML says no"), "not put back: NVML says no"),
    ],
)
def test_what_cannot_be_put_back_keeps_its_entry(leave, own, gpus, error, said):
    path = leave(ONE, TWO)
    gpus.errors["GPU-1"] = error
    assert any(said in line for line in own.recover())
    assert gpus.put == [TWO]
    assert [entry["uuid"] for entry in lines(path)] == ["GPU-1"]
    gpus.errors.clear()
    own.recover()
    assert gpus.put == [TWO, ONE]
    assert not path.exists()


def entry(**other):
    """Return a line as the journal writes it, but for `other`."""
    good = {"uuid": "GPU-1", "setting": "power.limit", "was": 700, "pid": 1, "started": 1, "at": 1}
    return json.dumps({**good, **other}).encode()


@pytest.mark.parametrize(
    "spoilt",
    [
        b"\x00\xff\x80",
        b'{"uuid": "GPU-1"',
        b"[" * 100_000,
        b'{"restored": 5}',
        b"7",
        b"null",
        entry(was=1).replace(b'"was": 1', b'"was": 1e999'),
        entry(was="x"),
        entry(was=-700),
        entry(uuid=["GPU-1"]),
        entry(pid={}),
        entry(at=None),
    ],
)
def test_a_spoilt_file_is_set_aside_and_said_and_its_good_lines_count(leave, own, gpus, spoilt):
    path = leave(TWO)
    whole = path.read_bytes() + spoilt
    path.write_bytes(whole)
    said = own.recover()
    assert gpus.put == [TWO]
    assert "cannot be read; set aside as" in said[0]
    assert path.with_suffix(".broken").read_bytes() == whole
    assert not path.exists()
    assert own.recover() == []


def test_a_file_of_any_name_or_none_of_ours_is_said_and_not_a_traceback(leave, own):
    folder = leave(ONE).parent
    (folder / "x-y.jsonl").write_bytes(b"hello")
    (folder / "٣-٤.jsonl").write_bytes(b"")
    (folder / "9.jsonl").mkdir()
    said = own.recover()
    assert any("x-y.jsonl: line 1" in line for line in said)
    assert any("9.jsonl: cannot be read" in line for line in said)
    assert (folder / "9.jsonl").exists()


def test_a_line_that_a_full_disk_cut_short_spoils_no_other(own, gpus):
    own.keep(ONE)
    own._file.write(b'{"uuid": "GPU-7", "set')
    own.keep(TWO)
    entries = [json.loads(line) for line in own.path.read_bytes().splitlines() if b'"at"' in line]
    assert [entry["uuid"] for entry in entries] == ["GPU-1", "GPU-2"]


def test_two_journals_of_one_process_have_a_file_each(tmp_path, own, gpus):
    other = Journal(tmp_path / "state", gpus)
    own.keep(ONE)
    other.keep(TWO)
    own.restore()
    assert other.path.exists()
    assert own.recover() == []  # nor does one put back what the other works with
    other.restore()
    assert gpus.put == [ONE, TWO]


def test_nothing_is_made_where_nothing_was_changed(tmp_path, gpus):
    made = Journal(tmp_path / "state", gpus)
    assert made.recover() == []
    made.restore()
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_the_users_state_of_this_boot():
    boot = journal.boot()
    at = Path("/s/rackproof/changes") / boot
    assert state_folder({"XDG_STATE_HOME": "/s"}) == at
    home = Path.home() / ".local/state/rackproof/changes" / boot
    assert state_folder({}) == state_folder({"XDG_STATE_HOME": "relative"}) == home


CHILD = """
import os, signal, sys
sys.path.insert(0, {root!r})
from pathlib import Path
from rackproof.harness.journal import Change, Journal
def put(change):
    print("put", change.uuid, change.was, flush=True)
{before}
journal = Journal(Path({folder!r}), put)
journal.keep(Change("GPU-1", "power.limit", 700.0))
os.kill(os.getpid(), {number})
print("went on", signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, flush=True)
"""


def child(folder, number, before=""):
    code = CHILD.format(root=str(ROOT), folder=str(folder), number=int(number), before=before)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_puts_back_and_then_ends_the_program_as_it_would_have(tmp_path, number):
    done = child(tmp_path, number)
    assert (done.returncode, done.stdout, done.stderr) == (-number, "put GPU-1 700.0\n", "")
    assert list(tmp_path.iterdir()) == []


def test_the_programs_own_handler_comes_after_ours(tmp_path):
    own = "signal.signal(signal.SIGTERM, lambda *_: print('own', flush=True))"
    done = child(tmp_path, signal.SIGTERM, own)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["put GPU-1 700.0", "own", "went on True"]


def test_a_handler_that_was_set_since_is_left_alone(own):
    before = signal.getsignal(signal.SIGHUP)
    try:
        own.keep(ONE)
        assert signal.signal(signal.SIGHUP, signal.SIG_IGN) == own._stop
        own.restore()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGTERM) != own._stop
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_the_program_ignores_stays_ignored(tmp_path):
    done = child(tmp_path, signal.SIGHUP, "signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    assert done.stdout.splitlines() == ["went on True"]


def test_sigkill_leaves_the_entry_for_the_next_start(tmp_path, gpus):
    assert child(tmp_path, signal.SIGKILL).returncode == -signal.SIGKILL
    assert Journal(tmp_path, gpus).recover()
    assert gpus.put == [ONE]


def test_many_changes_are_one_write(own, gpus, monkeypatch):
    synced = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(real(descriptor)))
    own.keep(ONE, TWO, Change("GPU-1", "power.limit", 300.0))
    assert len(synced) == 2  # the file and its folder
    assert own.changes == (ONE, TWO)  # the first of a setting counts
    own.keep(TWO)
    assert len(synced) == 2
    own.restore()
    assert gpus.put == [ONE, TWO]
    assert not own.path.exists()


def test_what_a_killed_run_left_is_taken_over_and_put_back_later(own, gpus, leave):
    eldest = leave(ONE)
    leave(Change("GPU-1", "power.limit", 400.0), TWO, writer=Writer(DEAD.pid, 8))
    said = own.adopt({"GPU-1"})
    assert [line.split()[0] for line in said] == ["1", "1"]
    assert gpus.put == []
    assert own.changes == (ONE,)  # with the value before both of them
    assert not eldest.exists()
    assert own.recover() != []  # the other GPU's is still a dead writer's
    assert gpus.put == [TWO]
    own.restore()
    assert gpus.put == [TWO, ONE]


def test_what_a_living_run_changed_is_not_taken_over(own, gpus, leave, tmp_path):
    leave(ONE)
    other = Journal(tmp_path / "state", gpus)
    other.keep(Change("GPU-1", "power.limit", 500.0))
    assert own.adopt({"GPU-1"}) == []
    assert own.changes == ()
    other.restore()


def test_what_cannot_be_written_down_is_not_taken_over(own, leave, monkeypatch):
    left = leave(ONE)
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError(28, "no space")))
    with pytest.raises(DeviceError):
        own.adopt({"GPU-1"})
    assert left.exists()


def test_a_journal_that_does_not_listen_leaves_the_signals_alone(tmp_path, gpus):
    before = [signal.getsignal(number) for number in journal.STOPS]
    made = Journal(tmp_path / "state", gpus, listens=False)
    made.keep(ONE)
    assert [signal.getsignal(number) for number in journal.STOPS] == before
    made.restore()
