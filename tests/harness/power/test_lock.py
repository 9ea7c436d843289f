"""One controller for one rack: the second is told who the first is, and a dead one's place is free.

Children hold locks as controllers do, and are killed.
"""

import fcntl
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

from rackproof.harness.devices.attached import Source
from rackproof.harness.errors import DrillError
from rackproof.harness.power.lock import RackLock, places

HOLD = """
import sys
from pathlib import Path
from rackproof.harness.power.lock import RackLock
lock = RackLock([Path(name) for name in sys.argv[1:]])
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def holder(*files):
    """Hold locks in a child until the end of the block, at which it is killed."""
    words = [sys.executable, "-c", HOLD, *map(str, files)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout.readline() == "held\n"
            yield child
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait(60)


def test_the_second_is_refused_and_told_who_has_it(tmp_path):
    file = tmp_path / "deep" / "rack.lock"
    with holder(file) as child, pytest.raises(DrillError) as caught:
        RackLock([file])
    assert f"runs already (pid {child.pid})" in str(caught.value)
    with RackLock([file]):  # its holder was killed
        assert file.read_text() == str(os.getpid())
    assert not file.exists()


def test_two_controllers_that_share_one_gpu_are_one_too_many(tmp_path):
    a, b, c = (tmp_path / f"{name}.lock" for name in "abc")
    with holder(b):
        with pytest.raises(DrillError):
            RackLock([a, b])
        with holder(a, c):  # what the refused one had taken is free again
            pass


def test_a_lock_that_cannot_be_opened_is_a_refusal(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DrillError, match="left alone"):
        RackLock([tmp_path / "file" / "rack.lock"])
    (tmp_path / "link").symlink_to(tmp_path / "file")
    with pytest.raises(DrillError, match="left alone"):
        RackLock([tmp_path / "link"])


def test_where_a_racks_locks_lie(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    real = places(Source(), ["GPU-2", "GPU-1", "GPU-2"])
    assert [file.name for file in real] == ["GPU-1.lock", "GPU-2.lock"]
    assert all(file.is_relative_to(tmp_path / "rackproof" / "controllers") for file in real)
    state = tmp_path / "driver.state"
    beside = places(Source(Path("lib"), state), ["GPU-1"])
    assert beside == [tmp_path / "driver.state.lock"]
    (tmp_path / "other").symlink_to(tmp_path)
    assert places(Source(Path("lib"), tmp_path / "other" / "driver.state"), []) == beside


def test_a_rack_in_memory_is_its_own_lock_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    memory, other = (os.memfd_create("rack") for _ in range(2))
    os.write(memory, b"state")
    name = Path(f"/proc/{os.getpid()}/fd/{memory}")
    try:
        (place,) = places(Source(Path("lib"), name), ["GPU-1"])
        with holder(place) as child, pytest.raises(DrillError) as caught:
            RackLock([place])
        assert f"runs already (pid {child.pid})" in str(caught.value)
        with RackLock([place]), RackLock([Path(f"/proc/self/fd/{other}")]):
            assert os.pread(memory, 100, 0) == b"state"
        assert os.pread(memory, 100, 0) == b"state"
        assert list(tmp_path.iterdir()) == []
    finally:
        os.close(memory)
        os.close(other)
    with pytest.raises(DrillError, match="left alone"):
        RackLock([name])


def test_a_lock_that_is_taken_away_while_it_is_opened_is_opened_again(tmp_path, monkeypatch):
    file, real, goes = tmp_path / "rack.lock", fcntl.flock, [True, True]

    def flock(descriptor, how):
        if goes.pop() if goes else False:
            file.unlink()
        return real(descriptor, how)

    monkeypatch.setattr("fcntl.flock", flock)
    with RackLock([file]) as held:
        assert os.path.samestat(os.fstat(held._open[0][0]), file.stat())
        assert file.read_text() == str(os.getpid())
    goes += [True] * 100
    with pytest.raises(DrillError, match="too fast"):
        RackLock([file])
