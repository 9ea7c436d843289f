"""One check of one GPU in under four minutes, and one JSON file of it, whatever fails.

    python benchmarks/gpu/check.py [--out FILE]     (make gpu-check installs what it needs first)
    python benchmarks/gpu/check.py --extra          the extra of ours that this driver needs

In: this machine. Out: versions, the contract tests on the real GPU, a quick burn, and what
ratios.py measures, each part with its own verdict and reason (schema rackproof.gpu-check/1). The
exit code is the worst part's: 0 PASS, 1 FAIL, 3 UNKNOWN; without a GPU it says so and ends with 3.
"""

import argparse
import contextlib
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))


SCHEMA = "rackproof.gpu-check/1"
WORST = ("PASS", "UNKNOWN", "FAIL")
CODES = {"PASS": 0, "FAIL": 1, "UNKNOWN": 3}
TOTAL_S = 230.0  # under four minutes, with what it takes to end
CONTRACT_S, BURN_S, RATIOS_S = 70.0, 80.0, 90.0
BUDGET = "45s"  # of planned device time: settling, preparing and judging come on top
RATIOS = ("memory", "stream", "pcie", "sensors", "gemm.bf16", "gemm.fp32", "emulator")
PARTS = ("contract", "burn", *RATIOS)
GRACE_S = 5.0
SHOWN = 40  # checks of the burn that are kept
TAIL = 600  # letters of what a child said last


@dataclass(slots=True)
class Part:
    """One part of the check."""

    id: str
    verdict: str
    reason: str
    seconds: float = 0.0
    values: dict[str, Any] = field(default_factory=dict)


def extra_for(cuda: int) -> str:
    """Return our extra for a driver whose newest CUDA is `cuda` (1000 x major + 10 x minor)."""
    return "gpu-cuda13" if cuda >= 13000 else "gpu-cuda12"  # noqa: PLR2004 - CUDA 13.0


def driver() -> dict[str, Any]:
    """Return the driver's version, its newest CUDA, and its GPUs by name.

    Raises ImportError without nvidia-ml-py, and NVMLError without a driver.
    """
    pynvml = importlib.import_module("pynvml")
    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]
        return {
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "cuda_of_driver": pynvml.nvmlSystemGetCudaDriverVersion(),
            "gpus": [pynvml.nvmlDeviceGetName(handle) for handle in handles],
        }
    finally:
        pynvml.nvmlShutdown()


def cupy_versions() -> dict[str, Any]:
    """Return CuPy's version, CUDA's as it sees it, and NCCL's; raises what it meets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cupy = importlib.import_module("cupy")
        found = {
            "cupy": cupy.__version__,
            "cuda_runtime": cupy.cuda.runtime.runtimeGetVersion(),
            "cuda_gpus": cupy.cuda.runtime.getDeviceCount(),
        }
        try:
            nccl = importlib.import_module("cupy.cuda.nccl")
            found["nccl"] = nccl.get_version() if nccl.available else None
        except ImportError:
            found["nccl"] = None
    return found


def environment() -> tuple[Part, int]:
    """Return what stands here, and how many GPUs there are to work on."""
    begun = time.monotonic()
    values: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        **{name: _version(name) for name in ("rackproof", "nvidia-ml-py", "numpy", "pytest")},
    }
    part = Part("environment", "UNKNOWN", "", values=values)
    try:
        values |= driver()
        part.reason = _looked_at(values)
    except ImportError as error:
        part.reason = f"{error}: pip install rackproof"
    except Exception as error:  # noqa: BLE001 - NVMLError, whose class may not be there
        part.reason = f"no NVIDIA GPU here: NVML says {error}"
    part.seconds = round(time.monotonic() - begun, 3)
    if part.reason:
        return part, 0
    part.verdict, part.reason = "PASS", f"{len(values['gpus'])} GPUs: {values['gpus'][0]}"
    return part, len(values["gpus"])


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _looked_at(values: dict[str, Any]) -> str:
    """Add CuPy's versions; return why nothing can be done on these GPUs, or an empty text."""
    if not values["gpus"]:
        return "the driver is here and lists no GPU: see dmesg"
    devices = importlib.import_module("rackproof.harness.devices")
    if devices.emulated_driver():
        return "this machine's driver is an emulated one: nothing here is silicon"
    try:
        values |= cupy_versions()
    except Exception as error:  # noqa: BLE001 - no CuPy, no CUDA library, a driver that is too old
        wanted = extra_for(int(values["cuda_of_driver"]))
        return f"CuPy cannot be used ({error}): pip install 'rackproof[{wanted}]'"
    return ""


@dataclass(frozen=True, slots=True)
class Ended:
    """A child that ended, or was ended: None is the code of one that took too long."""

    code: int | None
    out: str
    said: str

    @property
    def tail(self) -> str:
        """The end of what it said."""
        return " ".join((self.said or self.out)[-TAIL:].split())


def child(command: Sequence[str], seconds: float) -> Ended:
    """Run a program of ours, and end it with all that it started when its time is over."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {**os.environ, "PYTHONPATH": path}
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as said:
        started = subprocess.Popen(
            [sys.executable, *command], cwd=ROOT, env=given, stdin=subprocess.DEVNULL, stdout=out,
            stderr=said, start_new_session=True,
        )  # fmt: skip
        code: int | None
        try:
            code = started.wait(max(1.0, seconds))
        except subprocess.TimeoutExpired:
            code = None
            _end(started)
        out.seek(0)
        said.seek(0)
        return Ended(code, out.read(), said.read())


def _end(started: "subprocess.Popen[bytes]") -> None:
    """End a child and what it started; it is asked first, so that it puts back what it changed."""
    os.killpg(started.pid, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        started.wait(GRACE_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(started.pid, signal.SIGKILL)
    started.wait()


def contract(seconds: float, folder: Path, _gpus: int) -> list[Part]:
    """Run the contract tests on the real GPU."""
    report = folder / "contract.xml"
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/contract", "-k", "real"]
    ended = child([*command, f"--junitxml={report}"], seconds)
    part = Part("contract", "UNKNOWN", "")
    if ended.code is None:
        part.reason = f"cut short after {seconds:.0f} s"
    elif not report.exists():
        part.reason = f"the tests did not run: {ended.tail}"
    else:
        _read_tests(report, part)
    return [part]


def _read_tests(report: Path, part: Part) -> None:
    root = ET.parse(report).getroot()  # noqa: S314 - our own child wrote it
    cases = list(root.iter("testcase"))
    bad = [case for case in cases if {child.tag for child in case} & {"failure", "error"}]
    skipped = [case for case in cases if case.find("skipped") is not None]
    passed = len(cases) - len(bad) - len(skipped)
    names = [f"{case.get('classname')}::{case.get('name')}" for case in bad]
    part.values = {"passed": passed, "failed": len(bad), "skipped": len(skipped), "names": names}
    part.verdict = "FAIL" if bad else "PASS" if passed else "UNKNOWN"
    part.reason = f"{passed} passed, {len(bad)} failed, {len(skipped)} left out"


def burn(seconds: float, folder: Path, gpus: int) -> list[Part]:
    """Burn the machine's GPUs at the quick level, as far as the time allows."""
    command = ["-c", "from rackproof.cli import main; main()", "burn", "local", "--level", "quick"]
    command += ["--expect", f"gpus={gpus}", "--budget", BUDGET, "--seed", "7", "--json"]
    ended = child([*command, "--out", str(folder / "run")], seconds)
    part = Part("burn", "UNKNOWN", "")
    try:
        found = json.loads(ended.out)
        part.verdict, checks = found["verdict"], found.get("checks", [])
        kept = ("coverage", "subjects", "diagnoses", "problems", "error")
        part.values = {key: found[key] for key in kept if key in found}
        part.values |= {"checks": checks[:SHOWN], "checks_in_all": len(checks)}
        part.reason = found.get("error") or f"coverage {found.get('coverage')}"
    except (ValueError, KeyError):
        part.reason = f"it gave no answer: {ended.tail}"
    if ended.code is None:
        part.verdict, part.reason = "UNKNOWN", f"cut short after {seconds:.0f} s"
    return [part]


def ratios(seconds: float, _folder: Path, _gpus: int) -> list[Part]:
    """Measure what ratios.py measures."""
    ended = child([str(Path(__file__).with_name("ratios.py"))], seconds)
    found: dict[str, Part] = {}
    for line in ended.out.splitlines():
        try:
            part = Part(**json.loads(line))
        except (ValueError, TypeError):
            continue
        found[part.id] = part
    why = f"cut short after {seconds:.0f} s" if ended.code is None else f"not reached: {ended.tail}"
    return [found.get(name) or Part(name, "UNKNOWN", why) for name in RATIOS]


def check() -> dict[str, Any]:
    """Do all parts, each in what is left of the time; return the JSON object."""
    began, at = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    first, gpus = environment()
    parts = [first]
    if first.verdict == "PASS":
        steps = ((contract, CONTRACT_S), (burn, BURN_S), (ratios, RATIOS_S))
        with tempfile.TemporaryDirectory(prefix="rackproof-gpu-check-") as folder:
            for work, most in steps:
                begun = time.monotonic()
                left = TOTAL_S - (begun - began)
                found = work(min(most, left), Path(folder), gpus)
                if len(found) == 1:
                    found[0].seconds = round(time.monotonic() - begun, 3)
                parts += found
    else:
        parts += [Part(name, "UNKNOWN", f"not run: {first.reason}") for name in PARTS]
    return {
        "schema": SCHEMA,
        "verdict": max((p.verdict for p in parts if p.verdict != "SKIP"), key=WORST.index),
        "at": at,
        "seconds": round(time.monotonic() - began, 3),
        "parts": [asdict(part) for part in parts],
    }


def main() -> int:
    """Check, write the file, say the parts; return the exit code."""
    parser = argparse.ArgumentParser(description="check one GPU in under four minutes")
    parser.add_argument("--out", type=Path, default=ROOT / "gpu-check.json", metavar="FILE")
    parser.add_argument("--extra", action="store_true", help="print the extra that is needed")
    given = parser.parse_args()
    if given.extra:
        try:
            found = driver()
        except Exception:  # noqa: BLE001 - no driver, or nothing to ask it with
            return CODES["UNKNOWN"]
        print(extra_for(int(found["cuda_of_driver"])) if found["gpus"] else "")
        return 0
    result = check()
    given.out.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    for part in result["parts"]:
        print(f"{part['verdict']:<8} {part['id']:<12} {part['reason']}")
    print(f"{given.out}: {result['verdict']} after {result['seconds']:.0f} s")
    return CODES[result["verdict"]]


if __name__ == "__main__":
    sys.exit(main())
