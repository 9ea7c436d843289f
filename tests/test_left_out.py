"""The rule of tests/conftest.py: no test is left out in silence, and in CI none at all."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = """
import pytest

def test_passes():
    pass

def test_needs_a_tool(tool):
    tool("no-such-program")

def test_wants_a_tool(tool):
    tool("no-such-compiler", optional=True)

def test_needs_a_module(module):
    module("pytest")
    module("torch_of_another_world")

def test_skips_by_itself():
    pytest.skip("no reason worth telling")
"""
OWN = Path(__file__).with_name("conftest.py")


def run(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(OWN.read_text("utf-8"), "utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", "utf-8")
    (folder / "test_it.py").write_text(SUITE, "utf-8")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "REQUIRE_ALL"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:rackproof"],
        cwd=folder,
        env=kept | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_elsewhere_a_missing_tool_is_listed_with_its_package(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 4 skipped" in done.stdout
    assert (
        "1 test left out: no-such-program is not installed "
        "(Debian: apt-get install no-such-program)" in done.stdout
    )
    assert (
        "1 test left out: torch_of_another_world is not installed (pip install '.[test]')"
        in done.stdout
    )
    assert "1 test left out: no reason worth telling" in done.stdout


@pytest.mark.parametrize("value", ["0", ""])
def test_require_all_may_be_switched_off(tmp_path, value):
    assert run(tmp_path, REQUIRE_ALL=value).returncode == 0


def test_in_ci_only_what_is_optional_may_be_left_out(tmp_path):
    done = run(tmp_path, REQUIRE_ALL="1")
    assert done.returncode == 1
    assert "3 failed, 1 passed, 1 skipped" in done.stdout
    assert "REQUIRE_ALL: no-such-program is not installed" in done.stdout
    assert "REQUIRE_ALL: torch_of_another_world is not installed" in done.stdout
    assert "REQUIRE_ALL: left out: no reason worth telling" in done.stdout
    assert "1 test left out: optional: no-such-compiler" in done.stdout


def test_a_file_that_skips_itself_is_refused_too(tmp_path):
    (tmp_path / "test_whole.py").write_text(
        "import pytest\npytest.importorskip('no_such_module')\n", "utf-8"
    )
    done = run(tmp_path, REQUIRE_ALL="1")
    assert done.returncode != 0
    assert "REQUIRE_ALL: left out: could not import 'no_such_module'" in done.stdout
