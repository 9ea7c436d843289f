"""What `make burn` and CI call: the verdict becomes the exit code, and nothing is left out."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def program(file, script):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
    file.chmod(0o755)


def run(*command, **environment):
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


# Stands in for rackproof: a burn makes its folder and ends as it is told, a report makes a page.
RACKPROOF = """
echo "$*" >>calls
case "$1" in
burn) mkdir -p "$4"; exit "$CODE" ;;
report) echo "<html>" >"$2/report.html" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    place = tmp_path / "a check out"
    (place / ".ci").mkdir(parents=True)
    shutil.copy(ROOT / ".ci/burn", place / ".ci/burn")
    program(place / ".venv/bin/rackproof", RACKPROOF)
    return place


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_burn_ends_as_its_verdict_and_names_the_report(checkout, code):
    done = run("/bin/sh", str(checkout / ".ci/burn"), "hgx-h100", PATH=os.defpath, CODE=str(code))
    assert done.returncode == code
    (line,) = done.stderr.splitlines()
    page = Path(line.removeprefix("The report: "))
    assert page.is_file()
    assert page.parent.parent == checkout / "rackproof-runs"
    assert page.parent.name.count("-hgx-h100-") == 1


@pytest.mark.parametrize("code", [2, 130, 143])
def test_a_burn_that_did_not_end_has_no_report(checkout, code):
    done = run("/bin/sh", str(checkout / ".ci/burn"), "hgx-h100", PATH=os.defpath, CODE=str(code))
    assert done.returncode == code
    assert "The report" not in done.stderr


def test_options_reach_the_command_as_they_were_given(checkout):
    run(
        *("/bin/sh", str(checkout / ".ci/burn"), "racks/my rack.toml", "--plant"),
        "slow-gpu@?:factor=0.8",
        PATH=os.defpath,
        CODE="0",
    )
    burn = (checkout / "calls").read_text("utf-8").splitlines()[0]
    assert burn.startswith("burn racks/my rack.toml --out rackproof-runs/")
    assert "-my rack-" in burn
    assert burn.endswith(" --plant slow-gpu@?:factor=0.8")


@pytest.fixture
def debian(tmp_path):
    """A machine with everything but chromium, whose apt-get and make only note what they do."""
    commands = tmp_path / "bin"
    notes = tmp_path / "notes"
    program(commands / "python3", f'exec "{sys.executable}" "$@"')
    for name in ("bash", "dirname", "cc", "g++"):
        program(commands / name, f'exec "{shutil.which(name) or "/bin/true"}" "$@"')
    program(commands / "id", "echo 0")
    program(commands / "apt-get", f'echo "apt-get $*" >>"{notes}"')
    program(commands / "make", f'echo "REQUIRE_ALL=$REQUIRE_ALL make $*" >>"{notes}"; exit $CODE')

    def ci(code=0):
        bash = shutil.which("bash")
        done = run(bash, str(ROOT / ".ci/run"), PATH=str(commands), CODE=str(code))
        return done, notes.read_text("utf-8").splitlines()

    return commands, ci


def test_ci_installs_what_is_missing_once_and_lets_nothing_be_left_out(debian):
    _, ci = debian
    done, notes = ci()
    assert done.returncode == 0, done.stderr
    assert notes == [
        "apt-get update -qq",
        "apt-get install -y -qq --no-install-recommends chromium",
        "REQUIRE_ALL=1 make test",
    ]


def test_ci_installs_nothing_that_is_there(debian):
    commands, ci = debian
    program(commands / "chromium", "")
    _, notes = ci()
    assert notes == ["REQUIRE_ALL=1 make test"]


def test_ci_without_root_says_what_it_lacks_and_goes_on(debian):
    commands, ci = debian
    program(commands / "id", "echo 1000")
    done, notes = ci()
    assert "not root on Debian to do it: chromium" in done.stderr
    assert notes == ["REQUIRE_ALL=1 make test"]


def test_ci_fails_when_the_tests_do(debian):
    _, ci = debian
    done, _ = ci(code=2)
    assert done.returncode == 2
