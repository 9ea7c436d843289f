"""The CLI in a child process, as a user runs it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The one JSON object on stdout."""
        body = json.loads(self.out)
        assert isinstance(body, dict)
        return body

    def accused(self) -> set[str]:
        """Whom the answer accuses, as the contract defines it."""
        return accused(self.json)


def accused(body: dict[str, Any]) -> set[str]:
    """Roots, and subjects of a FAIL check that are no victims (nor is their GPU)."""
    roots = {d["subject"] for d in body["diagnoses"] if d["role"] == "root"}
    victims = {d["subject"] for d in body["diagnoses"] if d["role"] == "victim"}
    failed = {c["subject"] for c in body["checks"] if c["verdict"] == "FAIL"}
    innocent = {s for s in failed if s in victims or s.partition("/link")[0] in victims}
    return roots | (failed - innocent)


Command = Callable[..., Answer]


@pytest.fixture
def command() -> list[str]:
    """How the CLI is started."""
    return [sys.executable, "-m", "rackproof.cli"]


@pytest.fixture
def cli(tmp_path: Path, command: list[str]) -> Command:
    """Run `rackproof ...` in an empty folder; returns its Answer."""

    def call(*words: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Answer:
        done = subprocess.run(
            [*command, *words],
            cwd=cwd or tmp_path,
            env={**os.environ, "PYTHONPATH": os.environ.get("PYTHONPATH", ""), **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Answer(done.returncode, done.stdout, done.stderr)

    return call
