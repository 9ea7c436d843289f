"""What is in the wheel and in the sdist, under which names, and for which platform."""

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PINNED = "test-torch"  # the extra that our own tests run beside
LIBRARY = "rackproof/harness/devices/emulated/libnvidia-ml.so.1"
# What is code or data of the product, by the end of its name.
SHIPPED = {".py", ".toml", ".csv", ".cu", ".h", ".c", ".html", ".css", ".js", ".j2", ".svg"}


def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode("utf-8"))


def test_the_wheel_has_one_name_and_its_description(wheel):
    assert {name.split("/")[0].split("-")[0] for name in names(wheel)} == {"rackproof"}


@pytest.mark.parametrize("room", ["harness", "diagnostics", "fixtures", "reports"])
def test_each_room_is_inside_with_all_its_files(wheel, room):
    want = {
        f"rackproof/{file.relative_to(ROOT)}"
        for file in (ROOT / room).rglob("*")
        if file.suffix in SHIPPED and "__pycache__" not in file.parts
    }
    assert want
    assert want <= names(wheel)


def test_no_test_or_cache_is_inside(wheel):
    strays = [n for n in names(wheel) if "__pycache__" in n or "/tests/" in n or n.endswith(".pyc")]
    assert strays == []


def test_it_is_typed_and_licensed(wheel):
    inside = names(wheel)
    assert "rackproof/py.typed" in inside
    assert any(name.endswith("licenses/LICENSE") for name in inside)
    assert metadata(wheel)["License-Expression"] == "Apache-2.0"


def test_the_version_is_that_of_the_package(wheel):
    scope = {}
    line = next(
        text
        for text in (ROOT / "rackproof/__init__.py").read_text("utf-8").splitlines()
        if text.startswith("__version__")
    )
    exec(line, scope)  # noqa: S102 - one line of ours
    assert metadata(wheel)["Version"] == scope["__version__"]


def test_torch_and_cupy_stay_extras(wheel):
    required = metadata(wheel).get_all("Requires-Dist")
    heavy = [line for line in required if line.startswith(("torch", "cupy", "pyarrow"))]
    assert heavy
    assert all("extra ==" in line for line in heavy)


def test_a_compiled_driver_is_inside_and_the_wheel_is_of_the_platform(wheel, tool, tmp_path):
    tool("cc")
    assert LIBRARY in names(wheel)
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        library = Path(archive.extract(LIBRARY, tmp_path))
    code = "import ctypes, sys; ctypes.CDLL(sys.argv[1]).nvmlInit_v2"
    subprocess.run([sys.executable, "-c", code, str(library)], check=True)


def without_compiler(source, out, compiler):
    return subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", out, source],
        env={"PATH": "/nowhere", "CC": str(compiler)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_without_a_compiler_the_wheel_is_pure_and_says_so(copy_of_source, tmp_path):
    done = without_compiler(copy_of_source, tmp_path / "out", "no-such-cc")
    assert done.returncode == 0, done.stdout + done.stderr
    (pure,) = (tmp_path / "out").glob("*.whl")
    assert pure.name.endswith("-py3-none-any.whl")
    assert LIBRARY not in names(pure)
    assert "needs a C compiler and finds none" in done.stdout + done.stderr
    assert "libc6-dev" in done.stdout + done.stderr


def test_a_compiler_that_fails_is_told_and_the_wheel_is_pure(copy_of_source, tmp_path):
    done = without_compiler(copy_of_source, tmp_path / "out", shutil.which("false"))
    assert done.returncode == 0, done.stdout + done.stderr
    (pure,) = (tmp_path / "out").glob("*.whl")
    assert pure.name.endswith("-py3-none-any.whl")
    assert "does not compile with" in done.stdout + done.stderr
    assert "left out of this wheel" in done.stdout + done.stderr


def test_the_sdist_makes_the_same_wheel(built, wheel):
    (again,) = (built / "again").glob("*.whl")
    assert again.name == wheel.name
    assert names(again) == names(wheel)


def test_the_sdist_holds_what_runs_the_tests(built):
    (file,) = built.glob("*.tar.gz")
    with tarfile.open(file) as archive:
        inside = {name.split("/", 1)[-1] for name in archive.getnames()}
    wanted = {"Makefile", "conftest.py", "hatch_build.py", "LICENSE", ".ci/run", ".ci/environment"}
    assert wanted <= inside
    assert "tests/packaging/test_distributions.py" in inside
    assert not [name for name in inside if name.startswith((".venv", ".typing", "rackproof-runs"))]


def test_every_dependency_says_its_oldest_version():
    """Only what our own tests run beside is pinned, and then exactly."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    asked = [
        *project["dependencies"],
        *(
            line
            for extra, lines in project["optional-dependencies"].items()
            for line in lines
            if extra != PINNED
        ),
    ]
    assert [line for line in asked if ">=" not in line] == []
    pinned = project["optional-dependencies"][PINNED]
    assert [line for line in pinned if "==" not in line] == []
    assert "torch==2.13.0" in pinned
