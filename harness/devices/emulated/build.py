"""The emulated driver's C library: found in the package, or compiled at first use.

In: the C sources beside this file. Out: the path of a ``libnvidia-ml.so.1``, whose folder serves as
LD_LIBRARY_PATH. A hatch build hook loads this file by its path to put a prebuilt library into a
wheel, so it imports nothing of rackproof until something goes wrong.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

NAME = "libnvidia-ml.so.1"
HERE = Path(__file__).resolve().parent
FLAGS = (
    "-std=c11 -O2 -fPIC -shared -fvisibility=hidden -Wall -Wextra -pthread"
    f" -Wl,-soname,{NAME} -Wl,-z,defs"
).split()
ADVICE = "install one (Debian and Ubuntu: apt-get install gcc libc6-dev)"


class BuildError(Exception):
    """The library cannot be built here; the message says why and what would help."""


def sources() -> list[Path]:
    """Return the C files, in a fixed order."""
    return sorted(HERE.glob("driver*.c"))


def compiler() -> list[str]:
    """Return the C compiler's command: $CC, or the first of cc, gcc and clang that is there."""
    for command in (os.environ.get("CC", ""), "cc", "gcc", "clang"):
        words = shlex.split(command)
        if words and shutil.which(words[0]):
            return words
    msg = f"the emulated driver needs a C compiler and finds none: {ADVICE}"
    raise BuildError(msg)


def compile_to(path: Path, extra: tuple[str, ...] = ()) -> None:
    """Compile the library to `path`, which appears complete or not at all.

    `extra` holds further compiler options. Raises BuildError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".build-") as folder:
        built = Path(folder) / NAME
        command = [*compiler(), *FLAGS, *extra, "-o", str(built), *map(str, sources())]
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != 0:
            said = "\n".join((done.stderr or done.stdout).strip().splitlines()[:20])
            msg = f"the emulated driver does not compile with {command[0]}: {ADVICE}\n{said}"
            raise BuildError(msg)
        built.replace(path)


def fingerprint() -> str:
    """Return what a build depends on: sources, options, Python's and the machine's kind."""
    digest = hashlib.sha256(" ".join([*FLAGS, sys.platform, platform.machine()]).encode())
    for file in sorted([*HERE.glob("driver*.c"), *HERE.glob("driver*.h")]):
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _own_folder(folder: Path) -> bool:
    """Whether `folder` exists or can be made, is ours and can be written."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder.stat().st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK)
    except OSError:
        return False


def cache() -> Path:
    """Return a folder of this user's for built libraries.

    ``$XDG_CACHE_HOME/rackproof`` or ``~/.cache/rackproof``; where neither can be written, one
    among the temporary files that nobody else can write, since a library in it gets loaded.
    """
    named = os.environ.get("XDG_CACHE_HOME", "")
    candidates = [Path(named)] if Path(named).is_absolute() else []
    home = os.environ.get("HOME", "")
    if home:
        candidates.append(Path(home) / ".cache")
    candidates = [folder / "rackproof" for folder in candidates]
    candidates.append(Path(tempfile.gettempdir()) / f"rackproof-{os.getuid()}")
    for folder in candidates:
        if _own_folder(folder):
            return folder
    return Path(tempfile.mkdtemp(prefix="rackproof-"))


def library() -> Path:
    """Return the path of the built library, compiling it where there is none yet.

    Two processes may race: each compiles into a folder of its own and renames. Raises NotPresent.
    """
    prebuilt = HERE / NAME
    if prebuilt.is_file():
        return prebuilt
    path = cache() / f"driver-{fingerprint()}" / NAME
    if not path.is_file():
        try:
            compile_to(path)
        except BuildError as error:
            from rackproof.harness.errors import NotPresent  # noqa: PLC0415

            raise NotPresent(str(error)) from error
    return path
