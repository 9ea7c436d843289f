"""Ctrl-C while modules are still being loaded: one line and 130, whatever is loaded just then."""

import json
import os
import subprocess
import sys

import pytest

STRIKES = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
VERBS = (("drill", "gpu-loss"), ("burn", "hgx-h100"), ("list", "racks"))


def interrupted(tmp_path, module, *words):
    """Run a command in which a module sends SIGINT to its own process while it is loaded."""
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    (stubs / f"{module}.py").write_text(STRIKES, "utf-8")
    path = os.pathsep.join([str(stubs), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "rackproof.cli", *words],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("words", VERBS, ids=[words[0] for words in VERBS])
@pytest.mark.parametrize("as_json", [False, True])
def test_while_the_command_line_is_loaded(tmp_path, words, as_json):
    done = interrupted(tmp_path, "click", *words, *(["--json"] if as_json else []))
    assert (done.returncode, done.stderr) == (130, "rackproof: interrupted\n")
    assert (json.loads(done.stdout)["error"] if as_json else done.stdout or "interrupted") == (
        "interrupted"
    )


def test_while_the_verb_is_loaded(tmp_path):
    done = interrupted(tmp_path, "numpy", "drill", "gpu-loss")
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.strip() == "rackproof: interrupted"


def test_the_json_of_a_command_is_its_own(tmp_path):
    done = interrupted(tmp_path, "click", "drill", "gpu-loss", "--", "train", "--json")
    assert (done.returncode, done.stdout) == (130, "")
