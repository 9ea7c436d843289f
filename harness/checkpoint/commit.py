"""Commit: which code wrote a checkpoint.

In: a folder. Out: ``{"sha", "dirty"}`` of the git checkout that it lies in, read from git's files,
and `git status` for what was changed. Outside a checkout the sha is that of this package's own
version and sources: never empty, and never that of something else.
"""

import contextlib
import functools
import hashlib
import re
import subprocess
from pathlib import Path
from typing import Any

import rackproof
from rackproof import __version__

SHA = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?", re.ASCII)
REFERENCE = re.compile(r"ref: (refs/[\w./+-]+)", re.ASCII)
INSTALLED = frozenset({"site-packages", "dist-packages"})  # lie in checkouts of other things
WITHIN = 10.0  # seconds for `git status`
SMALL = 1 << 20  # bytes of a file of git's that is read here


def here(folder: Path) -> dict[str, Any]:
    """Return ``{"sha": …, "dirty": bool}``; where dirty cannot be told it is true, with `why`."""
    whole = folder.resolve()
    places = () if INSTALLED & set(whole.parts) else (whole, *whole.parents)
    for place in places:
        if (place / ".git").exists():
            sha = _head(place / ".git")
            if sha:
                return {"sha": sha, **_dirty(place)}
            break
    return {"sha": f"rackproof-{__version__}+{_sources()}", "dirty": False}


def _head(git: Path) -> str:
    """Return the commit that HEAD stands on, or an empty text."""
    with contextlib.suppress(OSError, UnicodeDecodeError, ValueError):
        if git.is_file():  # a worktree or a submodule
            git = (git.parent / git.read_text("utf-8").removeprefix("gitdir:").strip()).resolve()
        text = _small(git / "HEAD")
        if SHA.fullmatch(text):
            return text
        match = REFERENCE.fullmatch(text)
        common = git / "commondir"
        roots = [git, (git / _small(common)).resolve()] if common.is_file() else [git]
        if match and ".." not in match[1]:
            found = (_resolved(root, match[1]) for root in roots)
            return next((sha for sha in found if SHA.fullmatch(sha)), "")
    return ""


def _resolved(root: Path, reference: str) -> str:
    """Return what a reference stands for, loose or packed, or an empty text."""
    if (root / reference).is_file():
        return _small(root / reference)
    packed = root / "packed-refs"
    lines = _small(packed).splitlines() if packed.is_file() else []
    return next((line.split(" ")[0] for line in lines if line.endswith(f" {reference}")), "")


def _small(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(SMALL).decode("utf-8").strip()


def _dirty(place: Path) -> dict[str, Any]:
    command = ["git", "-C", str(place), "status", "--porcelain", "--untracked-files=no"]
    try:
        said = subprocess.run(  # noqa: S603 - a list of our own making
            command, capture_output=True, timeout=WITHIN, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"dirty": True, "why": f"git status cannot be asked ({type(error).__name__})"}
    if said.returncode:
        return {"dirty": True, "why": f"git status ended with {said.returncode}"}
    return {"dirty": bool(said.stdout.strip())}


@functools.cache
def _sources() -> str:
    """Return the sha256 (hex, the first 40 digits) of all sources of this package."""
    total = hashlib.sha256()
    for folder in rackproof.__path__:
        for room in ("rackproof", "harness", "diagnostics", "fixtures", "reports", "."):
            root = Path(folder) / room
            files = root.glob("*.py") if room == "." else root.rglob("*.py")
            for file in sorted(files) if root.is_dir() else ():
                total.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return total.hexdigest()[:40]
