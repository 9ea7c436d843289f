"""From an empty machine: what is missing is said in one message, with its Debian package."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / ".ci" / "environment"
# What any Debian has; of compilers and Pythons, each test brings its own.
BASE = ("sh", "dirname", "cat", "cut", "mkdir", "rm")


@pytest.fixture
def machine(tmp_path):
    """An empty machine: returns a function that puts programs on it, and one that runs there."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in BASE:
        (commands / name).symlink_to(shutil.which(name))

    def put(name, script):
        file = commands / name
        file.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        file.chmod(0o755)

    def run(**environment):
        return subprocess.run(
            ["/bin/sh", str(SCRIPT), "burn"],
            env={"PATH": str(commands)} | environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )

    return put, run


PYTHON = f'exec "{sys.executable}" "$@"'
# An old Python answers every question about its version with no, or with its version.
OLD = 'case "$2" in *sys.exit*) exit 1;; *) echo 3.9;; esac'
WITHOUT_VENV = f'case "$2" in *ensurepip*) exit 1;; esac; {PYTHON}'


def test_no_python(machine):
    _, run = machine
    done = run()
    assert done.returncode == 2
    assert "Python 3.11 or later is needed (no python3 on the PATH)" in done.stderr
    assert "apt-get install python3 python3-venv" in done.stderr


def test_an_old_python_is_named(machine):
    put, run = machine
    put("python3", OLD)
    done = run()
    assert done.returncode == 2
    assert "python3 is 3.9" in done.stderr


def test_a_newer_python_beside_the_old_one_is_taken(machine):
    put, run = machine
    put("python3", OLD)
    put("python3.12", PYTHON)
    done = run()
    assert "a C compiler is needed" in done.stderr  # it got as far as that


def test_no_venv(machine):
    put, run = machine
    put("python3", WITHOUT_VENV)
    done = run()
    assert done.returncode == 2
    assert "cannot make a virtual environment" in done.stderr
    assert "apt-get install python3-venv" in done.stderr


def test_the_python_that_was_named_is_the_only_one_tried(machine, tmp_path):
    put, run = machine
    put("python3", PYTHON)
    done = run(PYTHON=str(tmp_path / "no such python"))
    assert done.returncode == 2
    assert "no such python does not run" in done.stderr


def test_no_compiler(machine):
    put, run = machine
    put("python3", PYTHON)
    done = run()
    assert done.returncode == 2
    assert "a C compiler is needed to build the emulated driver (cc is not there)" in done.stderr
    assert "apt-get install gcc libc6-dev" in done.stderr


def test_a_compiler_without_headers(machine):
    put, run = machine
    put("python3", PYTHON)
    put("cc", "exit 1")
    done = run()
    assert done.returncode == 2
    assert "has no C library headers" in done.stderr


@pytest.mark.parametrize("case", ["no_python", "no_compiler"])
def test_it_is_one_message_of_two_lines(machine, case):
    put, run = machine
    if case == "no_compiler":
        put("python3", PYTHON)
    assert len(run().stderr.splitlines()) == 2


def test_make_passes_the_message_on(machine, tool, tmp_path):
    put, _ = machine
    put("make", f'exec "{tool("make")}" "$@"')
    done = subprocess.run(
        ["make", "-C", str(ROOT), "environment-burn"],
        env={"PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Python 3.11 or later is needed" in done.stderr


@pytest.fixture
def checkout(tmp_path):
    """A checkout whose path has a blank, with a pip that only notes what it was asked for."""
    place = tmp_path / "a check out"
    (place / ".ci").mkdir(parents=True)
    for name in ("pyproject.toml", "hatch_build.py", ".ci/environment"):
        shutil.copy(ROOT / name, place / name)
    fake = tmp_path / "python3"
    fake.write_text(FAKE.format(real=sys.executable), "utf-8")
    fake.chmod(0o755)
    return place


# Stands in for Python where it makes a .venv and runs its pip; all else is the real one's.
FAKE = """#!/bin/sh
case "$*" in
"-m venv --clear .venv")
    echo made >>calls
    rm -rf .venv
    mkdir -p .venv/bin
    cp "$0" .venv/bin/python ;;
"-m pip --version") ;;
"-m pip install"*) echo "$*" >>calls ;;
*) exec "{real}" "$@" ;;
esac
"""


def prepare(checkout, what, **more):
    environment = {"PATH": os.environ["PATH"], "PYTHON": str(checkout.parent / "python3"), **more}
    command = ["/bin/sh", str(checkout / ".ci/environment"), what]
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


def calls(checkout):
    return (checkout / "calls").read_text("utf-8").splitlines()


def finish(*children):
    for child in children:
        _, said = child.communicate()
        assert child.returncode == 0, said


def test_it_is_made_once_and_again_when_pyproject_changes(checkout):
    finish(prepare(checkout, "burn"))
    assert [line.endswith("--editable .") for line in calls(checkout)] == [False, True]
    finish(prepare(checkout, "burn"))
    assert len(calls(checkout)) == 2
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    finish(prepare(checkout, "burn"))
    assert [line == "made" for line in calls(checkout)] == [True, False, False]


def test_what_the_tests_need_serves_a_burn_too(checkout):
    finish(prepare(checkout, "test"))
    assert calls(checkout)[-1].endswith("--editable .[test]")
    finish(prepare(checkout, "burn"))
    assert len(calls(checkout)) == 2


def test_a_burn_does_not_serve_the_tests(checkout):
    finish(prepare(checkout, "burn"))
    finish(prepare(checkout, "test"))
    assert calls(checkout)[-1].endswith("--editable .[test]")


def test_where_nothing_may_be_left_out_there_is_torch(checkout):
    finish(prepare(checkout, "test"))
    finish(prepare(checkout, "test", REQUIRE_ALL="1"))
    assert calls(checkout)[-1].endswith("--editable .[test,test-torch]")
    for what, environment in (("test", {"REQUIRE_ALL": "1"}), ("test", {}), ("burn", {})):
        finish(prepare(checkout, what, **environment))
    assert len(calls(checkout)) == 3  # it serves the others too


@pytest.mark.parametrize("value", ["", "0"])
def test_elsewhere_there_is_none(checkout, value):
    finish(prepare(checkout, "test", REQUIRE_ALL=value))
    assert calls(checkout)[-1].endswith("--editable .[test]")


def test_a_burn_needs_no_torch_even_in_ci(checkout):
    finish(prepare(checkout, "burn", REQUIRE_ALL="1"))
    assert calls(checkout)[-1].endswith("--editable .")


def test_what_serves_is_made_anew_when_pyproject_changes(checkout):
    finish(prepare(checkout, "test", REQUIRE_ALL="1"))
    with (checkout / "pyproject.toml").open("a") as file:
        file.write("# changed\n")
    finish(prepare(checkout, "test"))
    assert calls(checkout)[-1].endswith("--editable .[test]")
    finish(prepare(checkout, "test", REQUIRE_ALL="1"))
    assert calls(checkout)[-1].endswith("--editable .[test,test-torch]")


def test_two_at_once_make_one(checkout):
    finish(prepare(checkout, "burn"), prepare(checkout, "burn"), prepare(checkout, "burn"))
    assert len(calls(checkout)) == 2


def test_a_moved_checkout_is_made_anew(checkout):
    finish(prepare(checkout, "burn"))
    moved = checkout.rename(checkout.parent / "else where")
    finish(prepare(moved, "burn"))
    assert [line == "made" for line in calls(moved)] == [True, False, True, False]
