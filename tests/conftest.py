"""What our own tests need: tools by name, and no test left out in silence.

A test asks ``tool("chromium")`` for the path of a program, ``module("torch")`` for a package. Where
it is missing the test is skipped with the reason and what to install, and the end of the run lists
in plain words what was left out. With ``REQUIRE_ALL=1``, as in CI, every skip is a failure, but for
those whose reason says ``optional``: what no package gives, such as a GPU, or what is not asked of
CI, such as nvcc.
"""

import importlib.util
import os
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

# The Debian package of a program, where it has another name.
PACKAGES = {"cc": "gcc libc6-dev", "nvcc": "nvidia-cuda-toolkit", "chromium-browser": "chromium"}
# The extra of ours that brings a module.
EXTRAS = {"torch": "test-torch", "torchft": "test-torch"}


def pytest_configure() -> None:
    """Hear the signals that tests send to what they start, also under ``nohup`` and ``&``."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


def require_all() -> bool:
    """Return whether REQUIRE_ALL says that nothing may be left out."""
    return os.environ.get("REQUIRE_ALL", "") not in ("", "0")


def find_tool(name: str, *, optional: bool = False) -> str:
    """Return the path of program `name`; skip the test, or fail it, where it is missing."""
    path = shutil.which(name)
    if path is not None:
        return path
    reason = f"{name} is not installed (Debian: apt-get install {PACKAGES.get(name, name)})"
    if optional:
        pytest.skip(f"optional: {reason}")
    if require_all():
        pytest.fail(f"REQUIRE_ALL: {reason}", pytrace=False)
    pytest.skip(reason)


def find_module(name: str) -> None:
    """Skip the test, or fail it, where module `name` is not installed; it is not imported."""
    if importlib.util.find_spec(name) is not None:
        return
    reason = f"{name} is not installed (pip install '.[{EXTRAS.get(name, 'test')}]')"
    if require_all():
        pytest.fail(f"REQUIRE_ALL: {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def module() -> Callable[[str], None]:
    """Ask for a package that only some tests need: ``module("torch")``."""
    return find_module


@pytest.fixture(scope="session")
def tool() -> Callable[..., str]:
    """The path of a program: ``tool("chromium")``, ``tool("nvcc", optional=True)``."""
    return find_tool


@pytest.fixture(scope="session")
def site() -> Any:
    """The module of stand-ins for what is around GPUs: a tree like /sys, a Redfish controller."""
    spec = importlib.util.spec_from_file_location(
        "site_stand_in", Path(__file__).with_name("site_stand_in.py")
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip that nobody called optional into a failure, in place."""
    if report.skipped and not hasattr(report, "wasxfail") and "optional" not in _reason(report):
        report.outcome = "failed"
        report.longrepr = f"REQUIRE_ALL: left out: {_reason(report)}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Refuse the skip of a test, where nothing may be left out."""
    report = yield
    if require_all():
        refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Refuse the skip of a whole file, where nothing may be left out."""
    report = yield
    if require_all():
        refuse_skip(report)
    return report


def left_out(reasons: list[str]) -> list[str]:
    """Return one line for each reason, the most frequent first: how many tests, and why."""
    counted = Counter(reasons).most_common()
    return [f"{n} test{'s' if n > 1 else ''} left out: {why}" for why, n in counted]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end what was left out, or that nothing was."""
    lines = left_out([_reason(report) for report in terminalreporter.stats.get("skipped", [])])
    terminalreporter.section("left out")
    for line in lines or ["nothing"]:
        terminalreporter.write_line(line)
