"""A signal while modules are still being loaded: one line and its code, whatever is loaded then."""

import json
import os
import signal
import subprocess
import sys

import pytest

STRIKES = """import importlib, os, sys
os.kill(os.getpid(), {})
sys.path.remove(os.path.dirname(__file__))
del sys.modules[__name__]
sys.modules[__name__] = importlib.import_module(__name__)
"""
SIGNALS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGHUP: 129}
VERBS = (("drill", "gpu-loss"), ("burn", "hgx-h100"), ("list", "racks"))


def interrupted(tmp_path, module, *words, number=signal.SIGINT, ignore=False):
    """Run a command in which a module sends a signal to its own process while it is loaded."""
    stubs = tmp_path / "stubs"
    stubs.mkdir()
    (stubs / f"{module}.py").write_text(STRIKES.format(int(number)), "utf-8")
    path = os.pathsep.join([str(stubs), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [*(["nohup"] if ignore else []), sys.executable, "-m", "rackproof.cli", *words],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, stdin=subprocess.DEVNULL,
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip


@pytest.mark.parametrize("words", VERBS, ids=[words[0] for words in VERBS])
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("number", SIGNALS)
def test_while_the_command_line_is_loaded(tmp_path, words, as_json, number):
    more = ["--json"] if as_json else []
    done = interrupted(tmp_path, "click", *words, *more, number=number)
    assert (done.returncode, done.stderr) == (SIGNALS[number], "rackproof: interrupted\n")
    assert (json.loads(done.stdout)["error"] if as_json else done.stdout or "interrupted") == (
        "interrupted"
    )


@pytest.mark.parametrize("number", SIGNALS)
@pytest.mark.parametrize("as_json", [False, True])
def test_while_the_verb_is_loaded(tmp_path, number, as_json):
    more = ["--json"] if as_json else []
    done = interrupted(tmp_path, "numpy", "drill", "gpu-loss", *more, number=number)
    assert (done.returncode, done.stderr) == (SIGNALS[number], "rackproof: interrupted\n")
    assert bool(done.stdout) == as_json
    assert not as_json or json.loads(done.stdout)["error"] == "interrupted"


def test_a_hangup_under_nohup_ends_nothing(tmp_path):
    done = interrupted(tmp_path, "click", "list", "racks", number=signal.SIGHUP, ignore=True)
    assert done.returncode == 0
    assert "gb300-nvl72" in done.stdout
    assert "interrupted" not in done.stderr


def test_the_json_of_a_command_is_its_own(tmp_path):
    done = interrupted(tmp_path, "click", "drill", "gpu-loss", "--", "train", "--json")
    assert (done.returncode, done.stdout) == (130, "")
