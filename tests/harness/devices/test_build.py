"""The emulated driver's library is compiled at first use, once, and never half."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rackproof.harness.devices.emulated import build
from rackproof.harness.errors import NotPresent

SCRIPT = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("build", sys.argv[1])
build = importlib.util.module_from_spec(spec)
spec.loader.exec_module(build)
sys.stdin.readline()
print(build.library())
"""


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "rackproof"


def test_the_sources_compile_without_a_warning(tool, tmp_path):
    tool("cc")
    library = tmp_path / "a" / build.NAME
    build.compile_to(library, extra=("-Werror", "-Wshadow", "-Wvla"))
    assert library.read_bytes()[:4] == b"\x7fELF"
    assert [entry.name for entry in library.parent.iterdir()] == [build.NAME]


def test_the_build_hook_needs_nothing_of_rackproof(tool, tmp_path):
    tool("cc")
    script = SCRIPT.replace("build.library()", "build.compile_to(build.Path(sys.argv[2]))")
    done = subprocess.run(
        [sys.executable, "-I", "-c", script, build.__file__, str(tmp_path / build.NAME)],
        input="\n",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / build.NAME).is_file()


def test_two_processes_may_race_for_the_build(tool, home):
    tool("cc")
    children = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, build.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for child in children:  # both are ready before either begins
        child.stdin.write("\n")
        child.stdin.flush()
    said = {child.communicate(timeout=120)[0].strip() for child in children}
    assert [child.returncode for child in children] == [0, 0]
    (path,) = map(Path, said)
    assert path.parent.parent == home
    assert [entry.name for entry in path.parent.iterdir()] == [build.NAME]


@pytest.mark.usefixtures("home")
def test_a_second_use_compiles_nothing(tool, monkeypatch):
    tool("cc")
    path = build.library()
    monkeypatch.setattr(build, "compile_to", lambda _: pytest.fail("compiled again"))
    assert build.library() == path


def test_another_source_is_another_build(tmp_path, monkeypatch):
    before = build.fingerprint()
    for file in build.HERE.glob("driver*.[ch]"):
        shutil.copy(file, tmp_path)
    monkeypatch.setattr(build, "HERE", tmp_path)
    assert build.fingerprint() == before
    with (tmp_path / "driver_state.h").open("a", encoding="utf-8") as file:
        file.write("\n")
    assert build.fingerprint() != before


def test_a_prebuilt_library_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "HERE", tmp_path)
    (tmp_path / build.NAME).write_bytes(b"\x7fELF")
    assert build.library() == tmp_path / build.NAME


def test_without_a_compiler_the_error_names_the_package(home, monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(NotPresent, match="apt-get install gcc libc6-dev"):
        build.library()
    assert not list(home.rglob(build.NAME))


def test_a_compiler_without_headers_is_explained(home, monkeypatch, tmp_path):
    broken = tmp_path / "broken-cc"
    broken.write_text("#!/bin/sh\necho 'fatal error: stdint.h: No such file' >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CC", str(broken))
    with pytest.raises(NotPresent, match=r"libc6-dev\)\nfatal error: stdint\.h"):
        build.library()
    assert list(home.rglob("*")) == [home / f"driver-{build.fingerprint()}"]


def test_a_home_that_cannot_be_written_leaves_the_temporary_files(tmp_path, monkeypatch):
    file = tmp_path / "file"
    file.write_text("", "utf-8")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(file))
    monkeypatch.setattr(build.tempfile, "gettempdir", lambda: str(tmp_path))
    folder = build.cache()
    assert folder == tmp_path / f"rackproof-{os.getuid()}"
    assert folder.stat().st_mode & 0o077 == 0
    monkeypatch.setattr(build.os, "getuid", lambda: os.geteuid() + 1)
    monkeypatch.setattr(build.tempfile, "mkdtemp", lambda prefix: str(tmp_path / f"{prefix}new"))
    assert build.cache() == tmp_path / "rackproof-new"  # that one is not ours
