"""Every burn runs over the real path: an emulated driver for NVML, a stand-in for CuPy.

Nothing is measured here. What it shows is that no burn asks the real planes for what they do not
have, so that the first run on silicon is not the first run of these lines.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rackproof.fixtures.emulation import environment
from rackproof.harness.devices import STATE, Emulated
from rackproof.harness.spec import load

ROOT = Path(__file__).resolve().parents[3]
CODE = """
import importlib.util, json, sys
root = {root!r}
sys.path.insert(0, root)
spec = importlib.util.spec_from_file_location(
    "stand_in", root + "/tests/harness/devices/cupy_stand_in.py")
stand_in = importlib.util.module_from_spec(spec)
spec.loader.exec_module(stand_in)
MIB = stand_in.MIB
machine = stand_in.Machine([stand_in.Card(12 * MIB, 8 * MIB) for _ in range(8)])
sys.modules.update(machine.modules())
from rackproof.harness.burns import gemm, links
from rackproof.harness.burns.base import Settings
from rackproof.harness.burns.run import execute
from rackproof.harness.burns.table import BURNS
from rackproof.harness.clock import VirtualClock
from rackproof.harness.devices import connect_local, cupy_load, cupy_moves, cupy_plane
from rackproof.harness.model import Missing
cupy_plane.ORDER, cupy_plane.LEAST_CHUNK = 64, 2 * MIB
cupy_load.BackgroundLoad.__init__.__defaults__ = (16,)
cupy_moves.LARGEST_ARRAY = cupy_moves.LEAST_ARRAY = cupy_moves.BUFFER = MIB // 16
cupy_moves.MIB = MIB // 16
gemm.SECONDS = dict.fromkeys(gemm.SECONDS, 0.03)
links.COPY = links.REDUCED = 1 << 16
bench = connect_local()
places = [bench.identity(subject).pci for subject in bench.devices]
sys.modules["cupy"].cuda.runtime.deviceGetByPCIBusId = places.index
for device in bench.devices.values():  # time is told by whoever waits, and by each look at it
    device.clock = VirtualClock()
    device.sleep = device.clock.advance
    now = device.clock.now
    device.clock.now = lambda clock=device.clock, now=now: (clock.advance(1e-4), now())[1]
for name, burn in BURNS.items():
    if (burn.run is None and burn.wide is None) or name not in ({only!r} or BURNS):
        continue
    item = "fabric" if burn.wide else next(iter(bench.devices))
    seen = execute(burn, bench, item, Settings("acceptance", 7, allowed=tuple(BURNS)))
    missing = [(m.metric, str(m.why), m.reason) for m in seen if isinstance(m, Missing)]
    print(json.dumps([name, len(seen) - len(missing), missing]), flush=True)
bench.close()
"""
# What neither an emulated driver that no load reaches nor a plane without cublasLt can give.
GIVEN_UP = {
    "health": {"retired.pending", "retired.pages", "nvlink.ber"},
    "inventory": {"fabric.health"},
    "link.pair": {"nvlink.share"},
    "link.all": {"nvlink.share"},
    "power.steady": {"power.agreement"},
    "power.smoothing": {"power.smoothing.excess", "power.smoothing.restored"},  # Hopper has none
}


def burnt(folder, rack, only=()):
    """Run the burns of one kind of machine; return what was read, what is missing, the rows."""
    backing = Emulated(load(rack), 7, folder)
    variables = environment(backing.library, folder / STATE)
    code = CODE.format(root=str(ROOT), only=only)
    done = subprocess.run(
        [sys.executable, "-c", code], env={**variables, "XDG_STATE_HOME": str(folder / "state")},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    rows = backing.rack.driver.rows.copy()
    backing.close()
    assert done.returncode == 0, done.stderr
    assert not list((folder / "state").rglob("*.jsonl"))
    lines = map(json.loads, done.stdout.split("\n")[:-1])
    return {name: (read, missing) for name, read, missing in lines}, rows


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Return by burn what was read, and what is missing."""
    found, rows = burnt(tmp_path_factory.mktemp("burns"), "hgx-h200")
    assert set(rows["limit_requested_mw"]) == {700_000}  # whatever power.cap did
    return found


def test_power_smoothing_is_switched_and_put_back_on_the_real_path(tmp_path):
    found, rows = burnt(tmp_path, "hgx-b200", ("power.smoothing",))
    ((read, missing),) = found.values()
    assert missing == []
    assert read > 8 * 5
    assert set(rows["smoothing_enabled"]) == set(rows["smoothing_profile"]) == {0}


def test_no_burn_breaks_on_the_real_path(found):
    assert len(found) > 20
    broken = {n: m for n, (_, missing) in found.items() for m in missing if m[1] == "crashed"}
    assert broken == {}


def test_what_is_owed_is_read(found):
    for name, (read, missing) in found.items():
        if name in ("gemm.fp8", "power.step"):  # no cublasLt; no load reaches the driver's sensor
            continue
        assert read, name
        assert {metric for metric, _, _ in missing} <= GIVEN_UP.get(name, set()), (
            name,
            missing[:3],
        )


def test_fp8_says_what_it_lacks(found):
    read, missing = found["gemm.fp8"]
    assert read < len(missing) + 5
    assert all("cublasLt" in reason for metric, _, reason in missing if "fp8" in metric)
