"""The check of one GPU: it writes the same JSON whatever there is, and its parts run.

Without a GPU the parts that measure run on the stand-in for CuPy and an emulated driver: their
figures mean nothing there, but every line of theirs has run once.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rackproof.fixtures.emulation import environment
from rackproof.harness.devices import STATE, Emulated
from rackproof.harness.spec import load

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "gpu" / "check.py"
NAMES = ["environment", "contract", "burn", "memory", "stream", "pcie", "sensors", "gemm.bf16",
         "gemm.fp32", "emulator"]  # fmt: skip
DRY = """
import importlib.util, sys, types
def loaded(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
stand_in = loaded("stand_in", {root!r} + "/tests/harness/devices/cupy_stand_in.py")
MIB = stand_in.MIB
cards = [stand_in.Card(100 * MIB, 100 * MIB) for _ in range(8)]
machine = stand_in.Machine(cards)
sys.modules.update(machine.modules())
ratios = loaded("ratios", {root!r} + "/benchmarks/gpu/ratios.py")
from rackproof.harness.burns import gemm
from rackproof.harness.devices import cupy_load, cupy_moves, cupy_plane, real, settle
sys.modules["cupy"].cuda.runtime.deviceGetByPCIBusId = lambda pci: 0
cupy_plane.ORDER = 64
cupy_load.BackgroundLoad.__init__.__defaults__ = (16,)
cupy_moves.LARGEST_ARRAY = cupy_moves.LEAST_ARRAY = cupy_moves.BUFFER = MIB
gemm.SECONDS = dict.fromkeys(gemm.SECONDS, 0.05)
settle.Gate.__init__.__defaults__ = (0.01, 0.02, 0.2)
ratios.BARE_S = ratios.TRANSFER_S = ratios.SENSOR_S = ratios.TOGGLE_S = 0.05
real.RealDevice.wait = lambda self, seconds: None
{spoil}
ratios.main()
"""


@pytest.fixture
def check():
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture
def site(tmp_path):
    """The variables of a machine whose driver is an emulated one."""
    backing = Emulated(load("hgx-h200"), 7, tmp_path)
    variables = environment(backing.library, tmp_path / STATE)
    yield {**variables, "XDG_STATE_HOME": str(tmp_path / "state")}
    backing.close()


def run(out, variables):
    command = [sys.executable, str(SCRIPT), "--out", str(out)]
    done = subprocess.run(
        command, env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    return done, json.loads(out.read_text("utf-8"))


def looked(result):
    """Check the shape, which is the same whatever happened; return verdict and reason by part."""
    assert result["schema"] == "rackproof.gpu-check/1"
    assert [part["id"] for part in result["parts"]] == NAMES
    for part in result["parts"]:
        assert set(part) == {"id", "verdict", "reason", "seconds", "values"}
        assert part["verdict"] in {"PASS", "FAIL", "UNKNOWN"}
        assert part["reason"]
    return {part["id"]: (part["verdict"], part["reason"]) for part in result["parts"]}


def test_without_a_gpu_it_says_so_and_ends_with_3(tmp_path):
    empty = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    done, result = run(tmp_path / "out.json", empty)
    parts = looked(result)
    if parts["environment"][0] == "PASS":
        pytest.skip("optional: this machine has a GPU")
    assert (done.returncode, result["verdict"], done.stderr) == (3, "UNKNOWN", "")
    assert "GPU" in parts["environment"][1]
    assert all(verdict == "UNKNOWN" for verdict, _ in parts.values())
    assert all(reason.startswith("not run: ") for _, reason in list(parts.values())[1:])
    assert "UNKNOWN" in done.stdout.splitlines()[-1]


def test_an_emulated_driver_is_not_taken_for_silicon(tmp_path, site):
    done, result = run(tmp_path / "out.json", site)
    assert done.returncode == 3
    assert "emulated" in looked(result)["environment"][1]
    assert result["parts"][0]["values"]["gpus"] == ["NVIDIA H200"] * 8


def test_what_is_missing_here_is_said_and_written(tmp_path):
    """An interpreter without our dependencies, as one without a package index may have."""
    out = tmp_path / "out.json"
    command = [sys.executable, "-S", "-E", str(SCRIPT), "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (3, "")
    assert "pynvml" in looked(json.loads(out.read_text("utf-8")))["environment"][1]


def measured(tmp_path, site, spoil="pass"):
    code = DRY.format(root=str(ROOT), spoil=spoil)
    done = subprocess.run(
        [sys.executable, "-c", code], env=site, capture_output=True, text=True, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {part["id"]: part for part in map(json.loads, done.stdout.splitlines())}


def test_every_part_that_measures_runs(tmp_path, site):
    parts = measured(tmp_path, site)
    assert list(parts) == NAMES[3:]
    broken = [part["reason"] for part in parts.values() if "Error" in part["reason"]]
    assert broken == []
    memory, bf16 = parts["memory"]["values"], parts["gemm.bf16"]["values"]
    assert memory["bytes"] > 64 << 20
    assert memory["miscompares"] == parts["stream"]["values"]["copy_wrong"] == 0
    assert bf16["every"] > 1
    assert 0 <= bf16["share"] < 1
    assert bf16["wrong"] == 0
    assert f"every {bf16['every']:.0f}th product checked" in parts["gemm.bf16"]["reason"]
    assert parts["pcie"]["values"]["ratio"] > 0
    table = {row["what"]: row for row in parts["emulator"]["values"]["table"]}
    assert table["hbm_copy_rate"]["ratio"] > 0
    assert parts["sensors"]["values"]["instant_reads_per_s"] > 0


def test_a_part_that_breaks_takes_no_other_with_it(tmp_path, site):
    parts = measured(tmp_path, site, "ratios.best = None")
    assert parts["memory"]["verdict"] == "UNKNOWN"
    assert "TypeError" in parts["memory"]["reason"]
    assert parts["stream"]["verdict"] == "PASS"
    assert list(parts) == NAMES[3:]


def test_wrong_words_are_a_fail(tmp_path, site):
    spoil = "sys.modules['cupy'].cuda.runtime.memcpyAsync = lambda *_: None"
    parts = measured(tmp_path, site, spoil)
    assert parts["pcie"]["verdict"] == "FAIL"
    assert "arrived wrong" in parts["pcie"]["reason"]


def alive(pid):
    """Say whether a process runs; one that nobody waits for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_that_hangs_is_ended_with_what_it_started(check, tmp_path):
    mark = tmp_path / "pid"
    code = (
        "import pathlib, signal, subprocess, sys\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        f"pathlib.Path({str(mark)!r}).write_text(str(p.pid))\n"
        "print('so far', flush=True)\n"
        "signal.pause()\n"
    )
    ended = check.child(["-c", code], 1.0)
    assert ended.code is None
    if mark.exists():  # else the machine was too slow to start it
        deadline = time.monotonic() + 60
        while alive(int(mark.read_text())):
            assert time.monotonic() < deadline


def test_a_child_that_ends_says_how(check):
    ended = check.child(["-c", "import sys; print('a'); sys.exit('no  such\\nthing')"], 60.0)
    assert (ended.code, ended.out, ended.tail) == (1, "a\n", "no such thing")


@pytest.mark.parametrize(
    ("cuda", "wanted"), [(12040, "gpu-cuda12"), (12090, "gpu-cuda12"), (13000, "gpu-cuda13")]
)
def test_the_extra_goes_by_the_drivers_cuda(check, cuda, wanted):
    assert check.extra_for(cuda) == wanted


def answers(check, monkeypatch, code, out, said=""):
    monkeypatch.setattr(check, "child", lambda *_: check.Ended(code, out, said))


@pytest.mark.parametrize(
    ("code", "out", "verdict", "reason"),
    [
        (0, '{"verdict": "PASS", "coverage": {"planned": 9}, "checks": []}', "PASS", "planned"),
        (1, '{"verdict": "FAIL", "checks": [{"id": "gemm.fp32"}]}', "FAIL", "coverage"),
        (3, '{"verdict": "UNKNOWN", "error": "no GPU"}', "UNKNOWN", "no GPU"),
        (2, "", "UNKNOWN", "it gave no answer: usage"),
        (None, "", "UNKNOWN", "cut short after 5 s"),
    ],
)
def test_the_burns_verdict_is_its_own(check, monkeypatch, tmp_path, code, out, verdict, reason):
    answers(check, monkeypatch, code, out, "usage")
    (part,) = check.burn(5.0, tmp_path, 1)
    assert part.verdict == verdict
    assert reason in part.reason


@pytest.mark.parametrize(
    ("cases", "verdict"),
    [
        ("<testcase/><testcase><skipped/></testcase>", "PASS"),
        ("<testcase/><testcase><failure/></testcase>", "FAIL"),
        ("<testcase/><testcase><error/></testcase>", "FAIL"),
        ("<testcase><skipped/></testcase>", "UNKNOWN"),
        ("", "UNKNOWN"),
    ],
)
def test_contract_tests_that_were_all_left_out_pass_nothing(
    check, monkeypatch, tmp_path, cases, verdict
):
    answers(check, monkeypatch, 0, "")
    (tmp_path / "contract.xml").write_text(f"<testsuites>{cases}</testsuites>")
    (part,) = check.contract(5.0, tmp_path, 1)
    assert part.verdict == verdict


def test_what_ratios_did_not_reach_is_unknown_with_why(check, monkeypatch, tmp_path):
    line = {"id": "memory", "verdict": "PASS", "reason": "x", "seconds": 1, "values": {}}
    answers(check, monkeypatch, -11, json.dumps(line) + "\nnoise\n{}\n", "Segmentation fault")
    parts = {part.id: part for part in check.ratios(5.0, tmp_path, 1)}
    assert list(parts) == list(check.RATIOS)
    assert parts["memory"].verdict == "PASS"
    assert parts["pcie"].verdict == "UNKNOWN"
    assert "Segmentation fault" in parts["pcie"].reason


@pytest.mark.parametrize(
    ("verdicts", "worst"),
    [(["PASS", "PASS"], "PASS"), (["PASS", "UNKNOWN"], "UNKNOWN"), (["UNKNOWN", "FAIL"], "FAIL")],
)
def test_the_worst_part_is_the_verdict(check, monkeypatch, verdicts, worst):
    first, second = (check.Part(str(n), verdict, "x") for n, verdict in enumerate(verdicts))
    monkeypatch.setattr(check, "environment", lambda: (check.Part("environment", "PASS", "x"), 1))
    monkeypatch.setattr(check, "contract", lambda *_: [first])
    monkeypatch.setattr(check, "burn", lambda *_: [second])
    monkeypatch.setattr(check, "ratios", lambda *_: [])
    assert check.check()["verdict"] == worst


def test_all_parts_together_take_less_than_four_minutes(check):
    assert check.CONTRACT_S < check.TOTAL_S < 4 * 60 - 5
    assert tuple(NAMES[1:]) == check.PARTS
