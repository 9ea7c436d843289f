"""Facts about this machine and this code, which go into a checkpoint."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rackproof import __version__
from rackproof.harness.checkpoint import commit, topology


def git(folder, *words):
    who = ["-c", "user.name=n", "-c", "user.email=e@example.org", "-c", "commit.gpgsign=false"]
    env = {**os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    done = subprocess.run(
        ["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True, env=env
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, tool):
    tool("git")
    git(tmp_path, "init", "-q", "-b", "main", "work")
    folder = tmp_path / "work"
    (folder / "a.py").write_text("1\n")
    git(folder, "add", "a.py")
    git(folder, "commit", "-qm", "a")
    return folder


def test_the_commit_of_a_checkout(checkout):
    sha = git(checkout, "rev-parse", "HEAD")
    assert commit.here(checkout) == {"sha": sha, "dirty": False}
    (checkout / "b").mkdir()
    assert commit.here(checkout / "b")["sha"] == sha
    (checkout / "a.py").write_text("2\n")
    assert commit.here(checkout) == {"sha": sha, "dirty": True}


def test_packed_detached_and_in_a_worktree(checkout):
    sha = git(checkout, "rev-parse", "HEAD")
    git(checkout, "pack-refs", "--all")
    assert commit.here(checkout)["sha"] == sha
    git(checkout, "worktree", "add", "-q", "../other")
    assert commit.here(checkout.parent / "other")["sha"] == sha
    git(checkout, "checkout", "-q", "--detach")
    assert commit.here(checkout)["sha"] == sha


@pytest.mark.parametrize("head", ["", "ref: ../../../etc/passwd", "ref: refs/heads/none", "zz\n"])
def test_a_broken_checkout_is_none(checkout, head):
    (checkout / ".git" / "HEAD").write_text(head)
    assert commit.here(checkout)["sha"].startswith(f"rackproof-{__version__}+")


def test_without_git_the_files_still_tell_and_the_rest_is_dirty(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    found = commit.here(checkout)
    assert len(found["sha"]) == 40
    assert found["dirty"]
    assert "cannot be asked" in found["why"]


def test_outside_of_any_checkout_it_is_version_and_sources(tmp_path):
    found = commit.here(tmp_path)
    assert found["sha"].startswith(f"rackproof-{__version__}+")
    assert len(found["sha"].partition("+")[2]) == 40
    installed = Path(commit.__file__).parent / "site-packages" / "x"
    assert commit.here(installed)["sha"] == found["sha"]


def test_the_topology_of_this_machine():
    found = topology.here(4, 1, gpus=["GPU-1"], domains=["rack0"])
    assert {"replicas", "threads", "blas", "isa", "versions", "gpus", "domains"} <= set(found)
    assert (found["replicas"], found["gpus"], found["domains"]) == (4, ["GPU-1"], ["rack0"])
    assert found["isa"]
    assert found["versions"]["numpy"]


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_asked_of_the_blas_and_not_of_who_says_so(threads):
    script = "from rackproof.harness.checkpoint import topology as t; x = t.here(1, 9); print(x)"
    env = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads)}
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env=env
    ).stdout
    if "'threads_by': 'told'" in said:
        pytest.skip("optional: this NumPy's BLAS does not say how many threads it uses")
    # A machine with one core has one thread, whatever is asked for.
    assert f"'threads': {min(threads, os.cpu_count() or 1)}," in said


def test_a_blas_that_does_not_say_is_told(monkeypatch):
    monkeypatch.setattr(topology, "_ask_blas", lambda *_: None)
    found = topology.here(1, 9)
    assert (found["threads"], found["threads_by"]) == (9, "told")
