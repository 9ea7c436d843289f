"""An installed rackproof: one name, all of it reachable, and in nobody's way."""

import hashlib

import pytest

ROOMS = ("harness", "diagnostics", "fixtures", "reports")
# The smallest rack: what is shown here does not depend on how large it is.
RACK = "hgx-h100"


def digest(folder):
    files = sorted(file for file in folder.rglob("*") if file.suffix != ".pyc" and file.is_file())
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def foreign_distribution(site, name):
    """Lay down an installed distribution `name`, as pip would, that is not ours."""
    package = site / name
    package.mkdir()
    (package / "__init__.py").write_text(f"OWNER = 'the {name} of somebody else'\n", "utf-8")
    facts = site / f"{name}-4.2.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 4.2.0\n")
    (facts / "INSTALLER").write_text("pip\n")
    (facts / "RECORD").write_text(
        f"{name}/__init__.py,,\n{name}-4.2.0.dist-info/METADATA,,\n"
        f"{name}-4.2.0.dist-info/INSTALLER,,\n{name}-4.2.0.dist-info/RECORD,,\n"
    )
    return package


def test_site_packages_gets_one_name(installed):
    got = {entry.name for entry in installed.site.iterdir()} - {"borrowed.pth"}
    assert {name for name in got if not name.endswith(".dist-info")} == {"rackproof"}
    assert len(got) == 2


@pytest.mark.parametrize("room", ROOMS)
def test_each_room_is_imported_from_an_empty_folder(either, empty, room):
    code = f"import rackproof.{room} as r; print(r.__name__)"
    done = either.run(either.python, "-c", code, cwd=empty)
    assert done.stdout.strip() == f"rackproof.{room}", done.stderr


@pytest.mark.parametrize("room", ROOMS)
def test_a_wheel_gives_no_bare_room(installed, empty, room):
    done = installed.run(installed.python, "-c", f"import {room}", cwd=empty)
    assert "ModuleNotFoundError" in done.stderr


def test_tables_come_along(either, empty):
    code = "from rackproof.harness.metrics import metrics; print(len(metrics()))"
    done = either.run(either.python, "-c", code, cwd=empty)
    assert int(done.stdout) > 10, done.stderr


@pytest.mark.parametrize("name", ROOMS)
def test_a_distribution_of_the_same_name_stays_intact(fresh, empty, name):
    theirs = foreign_distribution(fresh.site, name)
    before = digest(theirs)
    code = (
        f"import {name}, rackproof.{name} as ours; "
        f"print({name}.OWNER); print(ours.__file__ != {name}.__file__)"
    )
    done = fresh.run(fresh.python, "-c", code, cwd=empty)
    assert done.stdout.splitlines() == [f"the {name} of somebody else", "True"], done.stderr
    fresh.pip("uninstall", "--yes", "rackproof")
    assert digest(theirs) == before
    assert not (fresh.site / "rackproof").exists()


def test_beside_an_editable_install_their_distribution_wins_its_name(editable, empty):
    theirs = editable.site / "fixtures"
    if not theirs.exists():
        foreign_distribution(editable.site, "fixtures")
    code = "import fixtures, rackproof.fixtures; print(fixtures.OWNER)"
    done = editable.run(editable.python, "-c", code, cwd=empty)
    assert done.stdout.strip() == "the fixtures of somebody else", done.stderr


def test_the_command_is_there_and_knows_its_version(either, empty):
    done = either.run(either.command, "--version", cwd=empty)
    assert done.returncode == 0, done.stderr
    assert "0." in done.stdout


def test_the_shipped_suites_run_from_an_empty_folder(either, empty):
    done = either.run(
        *(either.python, "-m", "pytest", "--rack", RACK, "--rack-seed", "7"),
        *("--rack-out", str(empty / "run"), "--pyargs", "rackproof.diagnostics.suites"),
        cwd=empty,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
    assert " failed" not in done.stdout


def test_the_shipped_suites_run_on_a_whole_rack(installed, empty):
    done = installed.run(
        *(installed.python, "-m", "pytest", "--rack", "gb300-nvl72"),
        *("--pyargs", "rackproof.diagnostics.suites"),
        cwd=empty,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_the_shipped_suites_run_on_two_workers(installed, empty):
    done = installed.run(
        *(installed.python, "-m", "pytest", "-n", "2", "--rack", RACK, "--rack-seed", "7"),
        *("--rack-out", str(empty / "run"), "--pyargs", "rackproof.diagnostics.suites"),
        cwd=empty,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 workers" in done.stdout
    assert "93 passed" in done.stdout, "83 items, and 10 that only the whole rack shows"


def test_until_a_rack_is_named_the_plugin_does_nothing(installed, empty):
    (empty / "test_theirs.py").write_text(
        "import sys\n\ndef test_theirs(request):\n"
        "    assert 'rackproof.fixtures' not in sys.modules\n"
        "    assert 'numpy' not in sys.modules\n",
        "utf-8",
    )
    done = installed.run(installed.python, "-m", "pytest", "-p", "no:allure_pytest", cwd=empty)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def project(tmp_path):
    """Somebody's project, with a fixtures/ and a reports/ of its own, and a test that uses both."""
    place = tmp_path / "project"
    for name in ("fixtures", "reports"):
        (place / name).mkdir(parents=True)
        (place / name / "__init__.py").write_text(f"OWNER = 'our own {name}'\n", "utf-8")
    (place / "tests").mkdir()
    (place / "tests" / "conftest.py").write_text(
        "import pytest\nimport fixtures\n\n@pytest.fixture\ndef owner():\n"
        "    return fixtures.OWNER\n",
        "utf-8",
    )
    (place / "tests" / "test_theirs.py").write_text(
        "import reports\n\ndef test_theirs(owner):\n"
        "    assert (owner, reports.OWNER) == ('our own fixtures', 'our own reports')\n",
        "utf-8",
    )
    return place


def test_a_project_with_such_folders_is_left_alone(either, project):
    done = either.run(either.python, "-m", "pytest", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_a_project_with_such_folders_may_use_a_rack(either, project):
    (project / "tests" / "test_rack.py").write_text(
        "import fixtures\n\ndef test_rack(rack, owner):\n"
        "    import rackproof.fixtures\n"
        "    assert rackproof.fixtures.__file__ != fixtures.__file__\n"
        "    assert owner == 'our own fixtures'\n",
        "utf-8",
    )
    done = either.run(either.python, "-m", "pytest", "--rack", RACK, cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_ini_key_names_a_rack_too(installed, project):
    (project / "pytest.ini").write_text(f"[pytest]\nrack = {RACK}\n", "utf-8")
    (project / "tests" / "test_rack.py").write_text(
        "def test_rack(rack):\n    assert rack is not None\n", "utf-8"
    )
    done = installed.run(installed.python, "-m", "pytest", cwd=project)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout
