"""The controller's process: it caps through the driver, is alone on its rack, and bears nonsense.

Limits are read back from the emulated driver's state, by this process or a third one.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rackproof.fixtures.emulation import environment
from rackproof.harness.devices import STATE, connect, source_of
from rackproof.harness.devices.attached import Source
from rackproof.harness.devices.emulated.driver_state import Flag
from rackproof.harness.errors import DrillError
from rackproof.harness.launch import processes
from rackproof.harness.power.dimmer import Settings
from rackproof.harness.power.keeper import Keeper
from rackproof.harness.spec import load

GPUS, HIGH, FEED = 8, 700.0, "rack0/power"


# --- what it does --------------------------------------------------------------------------------
def test_it_brings_a_feed_under_its_limit_and_puts_all_back(node):
    keeper = node.start()
    assert keeper.pid != os.getpid()
    assert keeper.said == ()
    keeper.limit(FEED, 6000.0, at=node.at, why="a test")
    done = node.ticks(keeper, 60.0)
    load = float(node.power().sum()) + 2000.0
    assert 0.90 * 6000.0 < load <= 6000.0
    assert {act.what for tick in done for act in tick.acts} >= {"overload-detected", "dimmer-acts"}
    ordered = [order for tick in done for order in tick.orders]
    assert {order.job for order in ordered} == {"low"}  # the job of the lower priority
    assert all(order.gpus == order.held == 4 for order in ordered)
    assert all(tick.seconds >= 0.0 and tick.due > tick.at for tick in done)
    assert node.elsewhere() == node.requested().tolist()
    assert keeper.status()["changed"] == 4
    stopped = keeper.stop()
    assert (stopped.restored, stopped.problem) == (4, "")
    assert node.elsewhere() == [HIGH] * GPUS
    assert node.files() == []
    assert not keeper.alive


def test_a_contract_binds_as_a_limit_does(node):
    keeper = node.start()
    keeper.contract(FEED, 6500.0, at=node.at)
    node.ticks(keeper, 40.0)
    assert float(node.power().sum()) + 2000.0 <= 6500.0
    keeper.contract(FEED, None, at=node.at)
    capped = node.requested().sum()
    node.ticks(keeper, 60.0)
    assert node.requested().sum() > capped


def test_a_rack_in_memory_is_controlled_too(tmp_path, monkeypatch, node):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    node.bench.close()
    node.bench = connect(load("hgx-h100"), seed=1)
    node.rows = node.bench.backing.rack.driver.rows
    keeper = node.dimmed()
    with pytest.raises(DrillError, match=f"pid {keeper.pid}"):
        node.start()
    assert keeper.stop().restored > 0
    assert (node.requested() == HIGH).all()


# --- one controller for one rack -----------------------------------------------------------------
def test_the_second_is_refused_and_touches_nothing(node):
    first = node.dimmed()
    capped = node.requested().copy()
    with pytest.raises(DrillError, match=rf"runs already \(pid {first.pid}\)"):
        node.start()
    assert node.requested().tolist() == capped.tolist()
    node.ticks(first, 1.0)
    first.kill()
    assert node.start().alive  # a dead one's lock is free


def test_real_gpus_are_controlled_by_their_uuids_and_journaled_where_burns_look(
    node, tmp_path, monkeypatch
):
    library = source_of(node.bench).library
    for name, value in environment(library, tmp_path / STATE).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    real = {"source": Source(), "folder": None}
    keeper = node.dimmed(**real)
    assert len(list((tmp_path / "state").rglob("changes/*/*.jsonl"))) == 1
    assert len(list((tmp_path / "state").rglob("GPU-*.lock"))) == GPUS
    with pytest.raises(DrillError, match=f"pid {keeper.pid}"):
        node.start(**real)
    keeper.kill()
    look = "from rackproof.harness.devices import connect_local; connect_local(tell=print).close()"
    subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, timeout=60)
    assert (node.requested() == HIGH).all()  # the next start of anything puts it back
    assert list((tmp_path / "state").rglob("*.jsonl")) == []


# --- a rack that does not do as it is told -------------------------------------------------------
def test_a_lost_gpu_and_a_lack_of_rights_are_said_once_and_stop_nobody(node):
    keeper = node.start()
    node.rows["flags"][1] = Flag.LOST
    node.rows["flags"][2] = Flag.NO_PERMISSION
    keeper.limit(FEED, 6200.0, at=node.at, why="a test")
    done = node.ticks(keeper, 30.0)
    unread = [trouble for tick in done for trouble in tick.unread]
    refused = [trouble for tick in done for trouble in tick.refused]
    assert [(each.gpus, each.first) for each in unread] == [(1, node.gpus[1])]
    assert (1, node.gpus[2]) in [(each.gpus, each.first) for each in refused]
    assert len([each for each in refused if "Permission" in each.why]) == 1
    assert node.requested()[2] == HIGH
    assert (node.requested()[[0, 3]] < HIGH).all()
    node.rows["flags"] = 0
    keeper.stop()
    assert (node.requested() == HIGH).all()


def test_a_limit_that_is_not_the_one_that_was_asked_for_is_told(node):
    keeper = node.start()
    node.ticks(keeper, 6.0)
    keeper.limit(FEED, 6500.0, at=node.at, why="a test")
    node.rows["limit_out_of_band_mw"][3] = 250_000
    done = node.ticks(keeper, 6.0)
    differ = [each for tick in done for each in tick.differ]
    assert {each.gpu for each in differ} == {node.gpus[3]}
    assert {each.got for each in differ} == {250.0}
    assert all(each.asked > 250.0 for each in differ)


def test_time_that_jumps_raises_no_cap_and_ends_nothing(node):
    keeper = node.dimmed()
    capped = node.requested().copy()
    for jump in (-1e6, 1e9, -1.0, 0.0, 1e-9, -1e-9):
        keeper.tick(node.at + jump, node.meters())
        assert (node.requested() <= capped).all()
        node.at += jump
        node.ticks(keeper, 1.0)
        assert (node.requested() <= capped).all()


def test_feeds_that_nobody_meters_are_no_reason_to_raise(node):
    keeper = node.dimmed()
    capped = node.requested().copy()
    for _ in range(100):
        node.passes(0.5)
        keeper.tick(node.at)
    assert (node.requested() <= capped).all()


# --- what is said to it --------------------------------------------------------------------------
NONSENSE = [
    b"\n", b"no json\n", b"[]\n", b"{}\n", b'{"do": "dance"}\n', b'{"do": ["tick"]}\n',
    b'{"do": "tick"}\n', b'{"do": "tick", "at": "now"}\n', b'{"do": "tick", "at": 1e400}\n',
    b'{"do": "tick", "at": 1, "meters": 7}\n', b'{"do": "tick", "at": 1, "meters": {}}\n',
    b'{"do": "tick", "at": 1, "meters": {"feed": [1, 2]}}\n', b'{"do": "begin"}\n',
    b'{"do": "begin", "assignment": {"layout": 3}}\n', b'{"do": "limit"}\n',
    b'{"do": "limit", "feed": "moon", "watts": 3, "at": 1}\n',
    b'{"do": "limit", "feed": "rack0/power", "watts": "3", "at": 1}\n',
    b'{"do": "limit", "feed": "rack0/power", "watts": -3, "at": 1}\n',
    b'{"do": "contract", "feed": "rack0/power", "watts": true, "at": 1}\n',
    b'{"do": "contract", "feed": [], "watts": 1, "at": 1}\n', b"[" * 50_000 + b"\n",
]  # fmt: skip


def test_what_makes_no_sense_is_answered_with_a_problem_and_changes_nothing(node):
    keeper = node.dimmed()
    capped = node.requested().copy()
    for line in NONSENSE:
        os.write(keeper._child.stdin.fileno(), line)
        answer = keeper._channel.receive(30.0)
        assert answer is not None, line
        assert b"problem" in answer, line
    assert node.requested().tolist() == capped.tolist()
    node.ticks(keeper, 1.0)


@pytest.mark.parametrize(
    ("how", "said"),
    [({"jobs": ()}, "job"), ({"source": Source(), "folder": None}, "driver"),
     ({"folder": Path("/proc/none")}, "")],
)  # fmt: skip
def test_a_start_that_makes_no_sense_is_refused_and_holds_nothing(node, how, said):
    if not said:  # what it cannot write down it will not change
        node.start(**how).limit(FEED, 6000.0, at=node.at, why="a test")
        done = node.ticks(node.keepers[-1], 12.0)
        refused = next(each for tick in done for each in tick.refused)
        assert "nothing is changed" in refused.why
        assert (node.requested() == HIGH).all()
        node.keepers[-1].stop()
    else:
        with pytest.raises(DrillError, match=said):
            node.start(**how)
    assert node.start().alive


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"settings": {"cycle": -1.0}}, "cycle"), ({"layout": 3}, r"."), ({"jobs": [{}]}, "gpus"),
     ({"folder": None}, "written down"), ({"uuids": {}}, "which GPU"),
     ({"at": float("inf")}, "begin")],
)  # fmt: skip
def test_an_assignment_that_makes_no_sense_is_none(node, wrong, said):
    given = node.assignment()
    with pytest.raises((ValueError, TypeError, KeyError), match=said):
        type(given).from_json(given.to_json() | wrong)


@pytest.mark.parametrize(
    ("name", "value"),
    [("gpus", []), ("gpus", ["a"] * GPUS), ("feeds", ["a", "a"]), ("feed_of", [9] * GPUS),
     ("feed_of", [0]), ("feed_of", [True] * GPUS), ("parent", [0]), ("parent", [-2]),
     ("fixed", [None, None]), ("fixed", "much")],
)  # fmt: skip
def test_a_layout_that_makes_no_sense_is_none(node, name, value):
    body = node.assignment().to_json()
    body["layout"][name] = value
    with pytest.raises(ValueError, match=r"layout|number"):
        type(node.assignment()).from_json(body)


def test_an_assignment_survives_the_way(node):
    given = node.assignment(settings=Settings(jitter=3.0), adopt=True, told=False)
    again = type(given).from_json(given.to_json())
    assert again.layout.gpus == given.layout.gpus
    assert again.layout.parent.tolist() == given.layout.parent.tolist()
    assert [job.name for job in again.jobs] == ["low", "high"]
    assert np.array_equal(again.jobs[1].gpus, given.jobs[1].gpus)
    for name in ("source", "uuids", "settings", "folder", "seed", "told", "at", "adopt"):
        assert getattr(again, name) == getattr(given, name)


def test_one_that_does_not_answer_is_not_waited_for_and_can_go_on(node):
    keeper = node.dimmed()
    child = processes.look(keeper.pid)
    processes.send(child, signal.SIGSTOP)
    with pytest.raises(DrillError, match=r"does not answer tick within 0\.2 s"):
        keeper.tick(node.at + 0.5, node.meters(), within=0.2)
    processes.send(child, signal.SIGCONT)
    node.passes(1.0)
    assert keeper.tick(node.at, node.meters()).at == node.at  # the late answer is passed over


def test_a_controller_that_cannot_be_started_says_why(node, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    with pytest.raises(DrillError, match="cannot be started"):
        Keeper.start(node.assignment())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(DrillError, match="ended with 1"):
        Keeper.start(node.assignment())
