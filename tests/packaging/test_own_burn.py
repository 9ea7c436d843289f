"""A team's own burn, from a project outside the repository that has a `fixtures` of its own."""

import json
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RACK = "hgx-h100"
GPU = "rack0/tray00/gpu5"


@pytest.fixture
def project(empty):
    shutil.copytree(ROOT / "docs" / "examples" / "acme", empty / "acme")
    return empty / "acme"


def burnt(installed, project, *options):
    return installed.run(
        *(installed.python, "-m", "pytest", "--rack", RACK, "--rack-seed", "7"),
        *("--rack-out", str(project / "run"), *options, "tests"),
        cwd=project,
    )


def told(installed, project):
    """What `rackproof diagnose` says of the run, in a process that knows no ACME."""
    done = installed.run(
        installed.command, "diagnose", "--json", str(project / "run"), cwd=project.parent
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize("workers", [(), ("-n", "2")])
def test_a_healthy_rack_passes_it_and_the_record_holds_it(installed, project, workers):
    done = burnt(installed, project, "--rack-only", "acme", *workers)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "17 passed" in done.stdout, "a burn and a plain test on 8 GPUs, and one median"
    assert told(installed, project)["verdict"] == "PASS"
    csv = installed.run(
        *(installed.command, "report", str(project / "run"), "--as", "csv", "--out", "-"),
        cwd=project.parent,
    )
    assert csv.stdout.count("acme.clock.lowest") == 8


def test_a_fault_that_it_sees_fails_it_and_is_diagnosed(installed, project):
    plant = f"--rack-plant=thermal-throttle@{GPU}"
    done = burnt(installed, project, "--rack-only", "acme", plant)
    assert done.returncode == 1, done.stdout + done.stderr
    said = told(installed, project)
    assert said["verdict"] == "FAIL"
    (root,) = [d for d in said["diagnoses"] if d["role"] == "root"]
    assert (root["subject"], root["component"]) == (GPU, "thermal")
    assert any("acme.clock.lowest" in line for line in root["because"])
    html = project / "page.html"
    done = installed.run(
        *(installed.command, "report", str(project / "run"), "--as", "html"),
        *("--out", str(html)),
        cwd=project.parent,
    )
    assert done.returncode == 0, done.stderr
    assert "acme.clock" in html.read_text("utf-8")


def test_what_is_planned_and_not_run_is_no_pass(installed, project):
    done = burnt(installed, project)
    assert done.returncode == 1
    assert told(installed, project)["verdict"] == "UNKNOWN"


def test_a_name_of_ours_is_refused_in_one_line(installed, project):
    conftest = project / "tests" / "conftest.py"
    conftest.write_text(conftest.read_text("utf-8").replace("acme.", "gemm."), "utf-8")
    done = burnt(installed, project, "--rack-only", "gemm")
    assert done.returncode != 0
    assert "begin its name with a word of your own" in done.stdout + done.stderr
