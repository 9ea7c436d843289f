"""A power limit that a killed run left is put back by the next start, read back through NVML.

Children work on an emulated rack as if it were the machine's own driver, as `rackproof emulate`
lets any program do.
"""

import os
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager
from pathlib import Path

import pytest

from rackproof.fixtures.emulation import environment
from rackproof.harness.devices import STATE, Emulated
from rackproof.harness.spec import load

ROOT = Path(__file__).resolve().parents[3]
START = f"""
import signal, sys
sys.path.insert(0, {str(ROOT)!r})
from rackproof.harness.devices import connect_local
from rackproof.harness.errors import DeviceError
bench = connect_local(tell=lambda line: print("said", line, flush=True))
device = bench.devices["rack0/tray00/gpu3"]
def limits():
    limits = device.telemetry.power_limits()
    return f"limits {{limits.requested:g}} {{limits.current:g}}"
"""
CHANGE = "device.telemetry.set_power_limit({watts}); print('changed', limits(), flush=True)\n"
WAIT = "signal.pause()\n"
LOOK = "print(limits(), flush=True); bench.close()\n"
BURN = """
from rackproof.harness.burns.base import Burn, Settings
from rackproof.harness.burns.run import execute
def run(device, bench, notes):
    device.telemetry.set_power_limit(300.0)
    print('changed', limits(), flush=True)
    {then}
device.gate = type(device.gate)(0.01, 0.02, 0.05)
burn = Burn('power.cap', '', {{}}, {{}}, run)
seen = execute(burn, bench, device.gpu.subject, Settings('quick', 1))
"""
MAX_W = 700


class Site:
    """An emulated machine, and the state directory of its user."""

    def __init__(self, folder):
        self.backing = Emulated(load("hgx-h100"), 7, folder)
        self.rows = self.backing.rack.driver.rows
        self.state = folder / "state"
        variables = environment(self.backing.library, folder / STATE)
        self.environment = {**variables, "XDG_STATE_HOME": str(self.state)}

    def run(self, code):
        """Run a child to its end; return its lines."""
        done = subprocess.run(
            [sys.executable, "-c", START + code], env=self.environment, capture_output=True,
            text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    @contextmanager
    def started(self, code):
        """Run a child that waits to be ended; what it says first is in `first`."""
        with subprocess.Popen(
            [sys.executable, "-c", START + code], env=self.environment, stdout=subprocess.PIPE,
            text=True,
        ) as child:  # fmt: skip
            try:
                yield child
            finally:
                child.kill()

    def killed(self, code):
        """Run a child until it says that it changed something, and kill it."""
        with self.started(code + WAIT) as child:
            while not (line := child.stdout.readline()).startswith("changed"):
                assert line, "the child ended by itself"
            child.send_signal(signal.SIGKILL)
            assert child.wait(60) == -signal.SIGKILL
        return line.split()[2:]

    def files(self):
        return list(self.state.rglob("*.jsonl"))


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    yield made
    made.backing.close()


def test_the_next_start_puts_back_what_a_killed_run_left(site):
    assert site.killed(CHANGE.format(watts=400)) == ["400", "400"]
    assert len(site.files()) == 1
    said, limits = site.run(LOOK)
    assert said.startswith("said GPU-")
    assert "power.limit of 700 is put back: a run that was killed" in said
    assert limits == f"limits {MAX_W} {MAX_W}"
    assert site.files() == []
    assert site.run(LOOK) == [f"limits {MAX_W} {MAX_W}"]


def test_it_puts_back_what_was_asked_for_and_not_what_was_in_force(site):
    site.rows["limit_requested_mw"][3] = 650_000
    site.rows["limit_out_of_band_mw"][3] = 450_000
    assert site.killed(CHANGE.format(watts=400)) == ["400", "400"]
    assert site.run(LOOK)[-1] == "limits 650 450"


def test_a_run_that_lives_is_left_alone(site):
    with site.started(CHANGE.format(watts=400) + WAIT) as child:
        assert child.stdout.readline().startswith("changed")
        assert site.run(LOOK) == ["limits 400 400"]
        assert len(site.files()) == 1
    assert site.run(LOOK)[-1] == f"limits {MAX_W} {MAX_W}"


def test_of_two_runs_that_were_killed_the_first_knew_the_right_value(site):
    with site.started(CHANGE.format(watts=500) + WAIT) as first:
        assert first.stdout.readline().startswith("changed")
        site.killed(CHANGE.format(watts=400))
        said, limits = site.run(LOOK)
        assert "another run is at work there" in said
        assert limits == "limits 400 400"
    assert site.run(LOOK)[-1] == f"limits {MAX_W} {MAX_W}"
    assert site.files() == []


def test_a_gpu_that_is_gone_keeps_its_entry_until_it_is_back(site):
    site.killed(CHANGE.format(watts=400))
    site.rows["flags"][3] = 2
    (said,) = site.run("bench.close()")
    assert "put back when the GPU is here again" in said
    assert len(site.files()) == 1
    site.rows["flags"][3] = 0
    assert site.run(LOOK)[-1] == f"limits {MAX_W} {MAX_W}"


def test_without_the_right_to_change_it_the_entry_stays_and_is_said(site):
    site.killed(CHANGE.format(watts=400))
    site.rows["flags"][3] = 4
    said, limits = site.run(LOOK)
    assert "not put back" in said
    assert limits == "limits 400 400"
    assert len(site.files()) == 1


def test_a_spoilt_journal_is_no_traceback(site):
    site.killed(CHANGE.format(watts=400))
    (file,) = site.files()
    file.write_bytes(file.read_bytes()[:-20])
    said, limits = site.run(LOOK)
    assert "cannot be read; set aside as" in said
    assert limits == "limits 400 400"  # nobody knows any more what it was


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_puts_back_before_it_ends_the_run(site, number):
    with site.started(CHANGE.format(watts=400) + WAIT) as child:
        assert child.stdout.readline().startswith("changed")
        os.kill(child.pid, number)
        assert child.wait(60) == -number
    assert site.files() == []
    assert site.run(LOOK) == [f"limits {MAX_W} {MAX_W}"]


@pytest.mark.parametrize(
    "then", ["pass", "raise ZeroDivisionError", "raise DeviceError('x')", "raise KeyboardInterrupt"]
)
def test_a_burn_leaves_the_limit_as_it_was_however_it_ends(site, then):
    guarded = "try:\n" + textwrap.indent(BURN.format(then=then), "    ")
    guarded += "except KeyboardInterrupt:\n    pass\n"
    found = site.run(guarded + LOOK)
    assert found == ["changed limits 300 300", f"limits {MAX_W} {MAX_W}"]
    assert site.files() == []


SMOOTH = """
device.telemetry.set_smoothing(enabled=True, profile=2)
state = device.telemetry.smoothing()
print('changed', state.enabled, state.active, flush=True)
"""


def test_smoothing_that_a_killed_run_left_on_is_switched_off_again(site):
    site.rows["smoothing_supported"], site.rows["smoothing_profile"] = 1, 4
    assert site.killed(SMOOTH) == ["2"]
    assert int(site.rows["smoothing_enabled"][3]) == 1
    *said, limits = site.run(LOOK)
    assert [line.split(": ")[1] for line in said] == [
        "power.smoothing of 0 is put back",
        "power.smoothing.profile of 4 is put back",
    ]
    assert limits == f"limits {MAX_W} {MAX_W}"
    assert int(site.rows["smoothing_enabled"][3]) == 0
    assert int(site.rows["smoothing_profile"][3]) == 4
    assert site.files() == []
