"""Builds the distributions once, and makes environments that hold one of them and nothing of us.

What comes in is the checkout; what goes out: `built` (the folder with wheel and sdist), `installed`
(an environment with the wheel) and `editable` (one with an unpacked sdist, installed editable). The
dependencies are lent by the environment that runs the tests, so that no network is needed: a
``.pth`` file names its site-packages, whose own ``.pth`` files are not followed, so the checkout's
editable install does not leak in.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("harness", "diagnostics", "fixtures", "reports")


def clean_environment(**more: str) -> dict[str, str]:
    """Return the process environment without what bends Python, pip or pytest."""
    bending = ("PYTEST_", "PYTHON", "PIP_TARGET", "PIP_USER", "RACKPROOF_", "COV_", "VIRTUAL_ENV")
    return {k: v for k, v in os.environ.items() if not k.startswith(bending)} | more


@dataclass(frozen=True, slots=True)
class Installed:
    """An environment that holds rackproof, in one of its forms."""

    place: Path

    @property
    def python(self) -> str:
        return str(self.place / "bin" / "python")

    @property
    def command(self) -> str:
        return str(self.place / "bin" / "rackproof")

    @property
    def site(self) -> Path:
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return self.place / "lib" / version / "site-packages"

    def run(
        self, *arguments: str, cwd: Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a program to its end in `cwd`; the first argument is its path."""
        return subprocess.run(
            arguments,
            cwd=cwd,
            env=clean_environment(**environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def pip(self, *arguments: str) -> None:
        """Run the testing environment's pip on this one, without network."""
        done = subprocess.run(
            [sys.executable, "-m", "pip", "--python", self.python, *arguments],
            env=clean_environment(PIP_NO_INDEX="1", PIP_DISABLE_PIP_VERSION_CHECK="1"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def made_once(place: Path) -> Iterator[bool]:
    """Hold the lock of `place`; True for the one who is to make it, False when it is made."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = place.with_suffix(".done")
        yield not done.exists()
        done.touch()


def make_environment(place: Path) -> Installed:
    """Make an environment that borrows the dependencies of the one that runs the tests."""
    venv.create(place, with_pip=False, symlinks=True)
    environment = Installed(place)
    (environment.site / "borrowed.pth").write_text(sysconfig.get_paths()["purelib"] + "\n", "utf-8")
    return environment


@pytest.fixture(scope="session")
def common(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all workers of this run share."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "packaging"


@pytest.fixture(scope="session")
def built(common: Path) -> Path:
    """The folder with the wheel, the sdist, and a second wheel, made from that sdist, in again/."""
    place = common / "built"
    with made_once(place) as mine:
        if mine:
            build(ROOT, place, "--wheel", "--sdist")
            build(unpacked(place, common / "unpacked"), place / "again", "--wheel")
    return place


def build(source: Path, out: Path, *what: str) -> subprocess.CompletedProcess[str]:
    """Build distributions of `source` into `out` with what is installed here."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "build", "--no-isolation", *what),
            *("--outdir", str(out), str(source)),
        ],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def unpacked(built: Path, out: Path) -> Path:
    """Unpack the sdist of `built` into `out`; return the folder that it made."""
    (archive,) = built.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(out, filter="data")
    return out / archive.name.removesuffix(".tar.gz")


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="session")
def installed(wheel: Path, common: Path) -> Installed:
    """An environment with the wheel."""
    place = common / "installed"
    with made_once(place) as mine:
        if mine:
            make_environment(place).pip("install", "--no-deps", str(wheel))
    return Installed(place)


@pytest.fixture(scope="session")
def editable(built: Path, common: Path) -> Installed:
    """An environment with an editable install of the unpacked sdist, in editable-source/."""
    place = common / "editable"
    with made_once(place) as mine:
        if mine:
            source = unpacked(built, common / "editable-source")
            make_environment(place).pip(
                "install", "--no-deps", "--no-build-isolation", "--editable", str(source)
            )
    return Installed(place)


@pytest.fixture(params=["installed", "editable"])
def either(request: pytest.FixtureRequest) -> Installed:
    """Both forms, one after the other."""
    form: Installed = request.getfixturevalue(request.param)
    return form


@pytest.fixture
def fresh(wheel: Path, tmp_path: Path) -> Installed:
    """An environment of this test alone, with the wheel: it may be spoilt."""
    environment = make_environment(tmp_path / "environment")
    environment.pip("install", "--no-deps", str(wheel))
    return environment


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """A folder with nothing in it."""
    place = tmp_path / "empty"
    place.mkdir()
    return place


@pytest.fixture
def copy_of_source(built: Path, tmp_path: Path) -> Path:
    """An unpacked sdist that the test may spoil."""
    return shutil.copytree(unpacked(built, tmp_path / "sdist"), tmp_path / "source")
