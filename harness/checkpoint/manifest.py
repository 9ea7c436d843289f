"""The manifest: which files a checkpoint has, with size and sha256 of each. It is written last.

In and out: the bytes of ``MANIFEST.json``, in exactly one way of writing (canonical JSON), with a
seal: the sha256 of the same without the seal. So every changed bit of it is noticed. The names of
files are of a closed set; nothing else in a directory is ever opened.
"""

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rackproof.harness.checkpoint.strict import canonical, parse, sha, whole
from rackproof.harness.errors import CheckpointError

SCHEMA = "rackproof.checkpoint/1"
NAME, CONTEXT_NAME, LATEST = "MANIFEST.json", "context.json", "LATEST"
MANIFEST_MOST, CONTEXT_MOST = 16 << 20, 64 << 20  # bytes
FILE = re.compile(r"part-(0|[1-9]\d{0,5})\.safetensors|context\.json", re.ASCII)
DIRECTORY = re.compile(r"step-(\d{12})(?:\.([1-9]\d{0,5}))?", re.ASCII)
STEP_MOST = 10**12 - 1
SIZE_MOST = 1 << 50  # bytes of one file
KEYS = frozenset("schema step kind parent files ratio seal".split())


def directory(step: int, again: int = 0) -> str:
    """Return the name of a step's directory; `again` counts how often the step was there before."""
    return f"step-{step:012d}" + (f".{again}" if again else "")


def place(name: str) -> tuple[int, int] | None:
    """Return (step, how often it was there before) of a directory's name, or None."""
    match = DIRECTORY.fullmatch(name)
    return (int(match[1]), int(match[2] or 0)) if match else None


def free(step: int, names: Iterable[str]) -> str:
    """Return the name for a step's directory, above all of that step among `names`."""
    places = [found for name in names if (found := place(name))]
    taken = [again for where, again in places if where == step]
    return directory(step, max(taken, default=-1) + 1)


@dataclass(frozen=True, slots=True)
class Stored:
    """A file: bytes, and the sha256 in hexadecimal digits."""

    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Parent:
    """The full checkpoint that a delta rests on, in the same tier; sha256 of its manifest."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint consists of. `ratio` is bytes of a delta's parts over those of a full."""

    step: int
    files: Mapping[str, Stored] = field(default_factory=dict)
    parent: Parent | None = None
    ratio: float = 1.0

    @property
    def parts(self) -> list[str]:
        """The names of the parts, in their order."""
        return [f"part-{number}.safetensors" for number in range(len(self.files) - 1)]

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        body = self._body()
        return canonical({**body, "seal": hashlib.sha256(canonical(body)).hexdigest()})

    def _body(self) -> dict[str, Any]:
        files = {name: {"size": f.size, "sha256": f.sha256} for name, f in self.files.items()}
        parent = self.parent and {"name": self.parent.name, "sha256": self.parent.sha256}
        return {
            "schema": SCHEMA,
            "step": self.step,
            "kind": "delta" if self.parent else "full",
            "parent": parent,
            "files": files,
            "ratio": self.ratio,
        }


def read(text: bytes) -> Manifest:
    """Return the Manifest in `text`; a CheckpointError for anything that we would not write."""
    if len(text) > MANIFEST_MOST:
        msg = f"{NAME} has over {MANIFEST_MOST} bytes"
        raise CheckpointError(msg)
    body = parse(text, NAME)
    if body.get("schema") != SCHEMA:
        msg = f"{NAME} is of schema {str(body.get('schema'))[:40]!r}, and not {SCHEMA!r}"
        raise CheckpointError(msg)
    if set(body) != KEYS or not whole(body["step"], STEP_MOST):
        msg = f"{NAME} does not hold what it must, or holds more"
        raise CheckpointError(msg)
    ratio = body["ratio"]
    if not isinstance(ratio, float) or not math.isfinite(ratio):
        msg = f"{NAME} gives no number as its ratio"
        raise CheckpointError(msg)
    found = Manifest(body["step"], _files(body["files"]), _parent(body["parent"]), ratio)
    if found.encode() != text:
        msg = f"{NAME} does not bear its own seal: it was changed after it was written"
        raise CheckpointError(msg)
    return found


def _files(body: object) -> dict[str, Stored]:
    if not isinstance(body, dict):
        msg = f"{NAME} lists no files"
        raise CheckpointError(msg)
    files = {}
    for name, row in body.items():
        if not FILE.fullmatch(name):
            msg = f"{NAME} names a file {name[:80]!r}, which is none of a checkpoint"
            raise CheckpointError(msg)
        if not isinstance(row, dict) or set(row) != {"size", "sha256"} or not sha(row["sha256"]):
            msg = f"{NAME} gives no size and sha256 of {name}"
            raise CheckpointError(msg)
        if not whole(row["size"], CONTEXT_MOST if name == CONTEXT_NAME else SIZE_MOST):
            msg = f"{NAME} gives {name} a size that cannot be"
            raise CheckpointError(msg)
        files[name] = Stored(row["size"], row["sha256"])
    parts = {f"part-{number}.safetensors" for number in range(len(files) - 1)}
    if set(files) != parts | {CONTEXT_NAME}:
        msg = f"{NAME} must list {CONTEXT_NAME} and the parts from 0 on"
        raise CheckpointError(msg)
    return files


def _parent(body: object) -> Parent | None:
    if body is None:
        return None
    if isinstance(body, dict) and set(body) == {"name", "sha256"} and sha(body["sha256"]):
        name = body["name"]
        if isinstance(name, str) and DIRECTORY.fullmatch(name):
            return Parent(name, body["sha256"])
    msg = f"{NAME} names a parent that cannot be one"
    raise CheckpointError(msg)
