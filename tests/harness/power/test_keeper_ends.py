"""However the controller's process ends, nothing is left behind: at its end, or at the next start.

Limits are read back from the emulated driver's state, by this process or a third one.
"""

import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rackproof.harness.devices import STATE
from rackproof.harness.devices.emulated.driver import EmulatedDriver
from rackproof.harness.devices.emulated.driver_state import Flag
from rackproof.harness.errors import DrillError
from rackproof.harness.launch import processes
from rackproof.harness.power.keeper import recover

GPUS, HIGH, FEED = 8, 700.0, "rack0/power"
PARENT = """
import signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from conftest import Node
node = Node(Path(sys.argv[2]))
keeper = node.dimmed()
print(keeper.pid, flush=True)
signal.pause()
"""


def test_after_a_sigkill_the_next_start_puts_back_what_was_asked_for_before(node):
    node.rows["limit_requested_mw"][0] = 650_000
    node.rows["limit_out_of_band_mw"][1] = 500_000
    keeper = node.dimmed()
    keeper.kill()
    assert not keeper.alive
    assert node.requested()[:4].max() < 650.0  # nobody put anything back
    with pytest.raises(DrillError, match=r"was ended by SIGKILL"):
        keeper.tick(node.at + 1.0)
    changed = int((node.requested() < [650.0, *[HIGH] * 7]).sum())
    assert changed >= 4
    following = node.start()
    assert node.elsewhere() == [650.0, *[HIGH] * 7]
    assert node.rows["limit_out_of_band_mw"][1] == 500_000
    assert len(following.said) == changed
    assert "had left it changed" in following.said[0]
    assert following.stop().restored == 0
    assert node.files() == []


def test_one_that_adopts_lets_nothing_go_and_still_puts_back_what_was_before(node):
    node.dimmed().kill()
    capped = node.requested().copy()
    following = node.start(adopt=True)
    assert node.requested().tolist() == capped.tolist()
    assert following.status()["changed"] == 4
    assert "taken over" in following.said[0]
    before = float(node.requested().sum())
    steps = []
    for _ in range(400):  # nobody limits the feed any more: it rises by the ramp, to what was
        node.ticks(following, 0.5)
        steps.append(float(node.requested().sum()) - before)
        before += steps[-1]
    assert max(steps) <= 4 * 20.0 + 1.0
    assert (node.requested() == HIGH).all()
    following.kill()
    third = node.start(adopt=True)  # eldest entries win over those of the second
    assert third.stop().problem == ""
    assert node.elsewhere() == [HIGH] * GPUS
    assert node.files() == []


def test_recover_puts_back_at_once_and_leaves_no_process(node):
    keeper = node.dimmed()
    with pytest.raises(DrillError, match=f"pid {keeper.pid}"):
        recover(node.assignment())
    keeper.kill()
    assert len(recover(node.assignment())) == 4
    assert node.elsewhere() == [HIGH] * GPUS
    assert recover(node.assignment()) == ()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_puts_back_before_it_ends(node, number):
    keeper = node.dimmed()
    os.kill(keeper.pid, number)
    assert keeper._child.wait(60) == 128 + number
    assert (node.requested() == HIGH).all()
    assert node.files() == []
    with pytest.raises(DrillError, match=rf"pid {keeper.pid}\) ended with {128 + number}"):
        keeper.tick(node.at)


def test_a_signal_amid_ticks_leaves_nothing_either(node):
    keeper = node.dimmed()
    sent = threading.Timer(0.02, os.kill, (keeper.pid, signal.SIGTERM))
    sent.start()
    keeper.limit(FEED, 5000.0, at=node.at, why="a test")
    with pytest.raises(DrillError):
        node.ticks(keeper, 1e6)
    assert keeper._child.wait(60) == 128 + signal.SIGTERM
    assert (node.requested() == HIGH).all()
    assert node.files() == []


@pytest.mark.parametrize("stopped", [False, True])
def test_it_outlives_its_parent_only_to_put_back(tmp_path, stopped):
    here = str(Path(__file__).parent)
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, here, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as parent:
        child = processes.look(int(parent.stdout.readline()))
        rows = EmulatedDriver(tmp_path / STATE).rows
        assert rows["limit_requested_mw"].min() < HIGH * 1e3
        if stopped:
            processes.send(child, signal.SIGSTOP)
            assert processes.in_state(child, "T", 30.0)
        parent.kill()
    assert processes.gone(child, 60.0)
    assert rows["limit_requested_mw"].tolist() == [HIGH * 1e3] * GPUS
    assert list((tmp_path / "journal").glob("*.jsonl")) == []


def test_the_end_of_its_input_is_its_end(node):
    keeper = node.dimmed()
    keeper.close()
    keeper.close()
    assert (node.requested() == HIGH).all()
    assert keeper._child.returncode == 0


def test_what_cannot_be_put_back_is_said_and_stays_written_down(node):
    keeper = node.dimmed()
    node.rows["flags"][0] = Flag.NO_PERMISSION
    stopped = keeper.stop()
    assert stopped.restored == 3
    assert "1 limits could not be put back" in stopped.problem
    assert len(node.files()) == 1
    node.rows["flags"][0] = 0
    node.start()
    assert (node.requested() == HIGH).all()


def test_one_that_is_stopped_is_let_go_on_for_its_end(node):
    keeper = node.dimmed()
    child = processes.look(keeper.pid)
    processes.send(child, signal.SIGSTOP)
    assert processes.in_state(child, "T", 30.0)
    keeper.close()
    assert keeper._child.returncode == 0
    assert (node.requested() == HIGH).all()


def test_killed_at_any_moment_it_leaves_what_the_next_can_put_back(node):
    draw = random.Random(6)
    node.rows["limit_requested_mw"][2] = 333_000
    before = node.requested().tolist()
    for adopt in (True, False, True, False):
        keeper = node.start(adopt=adopt)
        keeper.limit(FEED, draw.uniform(3000.0, 6000.0), at=node.at, why="a test")
        ended = threading.Timer(draw.uniform(0.0, 0.05), os.kill, (keeper.pid, signal.SIGKILL))
        ended.start()
        with pytest.raises(DrillError):
            node.ticks(keeper, 1e6)
        ended.join()
    node.start(adopt=True).stop()
    assert node.requested().tolist() == before
    assert node.files() == []
