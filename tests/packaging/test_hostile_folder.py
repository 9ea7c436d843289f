"""The folder that a user stands in cannot bend the command."""

import json

import pytest

RAISES = "raise SystemExit('the hostile folder was read')\n"
# Modules that the command, its child and what they use import.
SHADOWED = ("json", "pytest", "click", "rich", "numpy", "pandas", "random", "conftest", "rackproof")


@pytest.fixture
def hostile(tmp_path):
    """A folder where everything that Python or pytest picks up by itself is a trap."""
    place = tmp_path / "hostile"
    place.mkdir()
    for name in (*SHADOWED, "harness", "diagnostics", "fixtures", "reports", "sitecustomize"):
        (place / f"{name}.py").write_text(RAISES, "utf-8")
    (place / "pytest.ini").write_text("[pytest]\naddopts = -k nothing -x\n", "utf-8")
    (place / "tox.ini").write_text("[pytest]\naddopts = --no-such-option\n", "utf-8")
    (place / "pyproject.toml").write_text("this is no TOML\n", "utf-8")
    (place / "test_theirs.py").write_text(RAISES, "utf-8")
    return place


@pytest.mark.parametrize("form", ["installed", "editable"])
def test_a_burn_in_a_hostile_folder_gives_its_verdict(request, hostile, tmp_path, form):
    rackproof = request.getfixturevalue(form)
    done = rackproof.run(
        *(rackproof.command, "burn", "hgx-h100", "--json", "--seed", "7"),
        *("--out", str(tmp_path / "run")),
        cwd=hostile,
        PYTEST_ADDOPTS="-k nothing --no-such-option",
        PYTEST_PLUGINS="no_such_plugin",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    answer = json.loads(done.stdout)
    assert answer["verdict"] == "PASS"
    assert answer["coverage"]["judged"] == answer["coverage"]["planned"] > 0


def test_it_is_a_trap_for_the_unwary(installed, hostile):
    """The folder really is hostile: plain pytest does not get through it."""
    done = installed.run(installed.python, "-m", "pytest", cwd=hostile)
    assert done.returncode != 0


@pytest.mark.parametrize("verb", [["list", "racks"], ["probe", "hgx-h100"]])
def test_other_verbs_are_not_bent_either(installed, hostile, verb):
    done = installed.run(installed.command, *verb, "--json", cwd=hostile)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)
