"""Looks at a checkpoint of whatever format, as a judge does: it hashes, and loads nothing.

In: the address that a trainer gave, which is untrusted. Out: the fields of the fact ``checkpoint``.
Only plain files below the given roots are read: no link is followed, no fifo or device is opened,
and nothing is ever unpickled. What can be told without loading is checked: the layout of
safetensors, the check sums of a zip archive (as torch.save writes), the manifest of our own format.

The digest is sha256. Of a file: over its bytes; of a safetensors file: over the tensors' names,
types, shapes and bytes, since its metadata may hold a date. Of a folder: over the names and digests
of its files, in the order of names.
"""

import hashlib
import json
import math
import os
import stat
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from rackproof.harness.errors import CheckpointError
from rackproof.harness.happening import GONE, Happening

BLOCK = 1 << 20
HEADER = 100_000_000  # bytes of a safetensors header, the bound of its own readers
DIMENSIONS, LARGEST = 64, 1 << 63  # of a tensor, and of each number in a header
FILES = 100_000  # files of one checkpoint
WIDTHS = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2,
    "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
"""Bytes of an element, by the type names of the safetensors format."""


class Elsewhere(CheckpointError):
    """An address at which we do not look: it is no sign of anything."""


def look(uri: str, roots: Sequence[Path], step: int = 0) -> dict[str, Any]:
    """Return the fact of a checkpoint: uri, step, verifies, digest, fields, tensors, problem."""
    found: dict[str, Any] = {
        "uri": uri, "tier": "", "step": step, "verifies": False, "digest": "", "fields": [],
        "tensors": "", "problem": "", "looked": True,
    }  # fmt: skip
    try:
        path = place(uri, roots)
        if path.is_dir() and (path / "MANIFEST.json").is_file():
            return {**found, **_ours(path)}
        digest, tensors = _folder(path) if path.is_dir() else _file(path)
    except Elsewhere as error:
        return {**found, "looked": False, "problem": str(error)}
    except CheckpointError as error:
        return {**found, "problem": str(error)}
    except OSError as error:
        return {**found, "problem": f"cannot be read: {error.strerror or error}"}
    return {**found, "verifies": True, "digest": digest, "tensors": tensors}


def committed(said: Iterable[Happening], roots: Sequence[Path]) -> Iterator[dict[str, Any]]:
    """Yield a fact for each address at which a checkpoint was said to be committed.

    An address that was written more than once is looked at as what was said of it last, and one
    that was said to be removed is not looked at. Nor did a trainer that was killed between a save
    and its line say that it was committed: what was restored is looked at as well.
    """
    newest: dict[str, int] = {}
    for happening in said:
        step, uri = happening.number("step"), happening.text("uri")
        if happening.kind == "restore" and uri and "peer:" not in uri:
            newest.setdefault(uri, step or 0)
        if happening.kind != "ckpt" or not uri:
            continue
        if happening.text("phase") in {"committed", "removed"}:
            newest.pop(uri, None)
        if happening.text("phase") == "committed":
            newest[uri] = step or 0
    for uri, step in newest.items():
        yield look(uri, roots, step)


def place(uri: str, roots: Sequence[Path]) -> Path:
    """Return the path of an address, below one of `roots`; the first is where a name alone lies.

    CheckpointError for an address of another sort, one that is not there, or that leads outside.
    """
    text = unquote(uri.removeprefix("file://")) if uri.startswith("file://") else uri
    if "://" in text:
        msg = "lies on no disk of this machine, and is not of our own format"
        raise Elsewhere(msg)
    if not text or "\0" in text or not roots:
        msg = "no address"
        raise CheckpointError(msg)
    path = Path(os.path.normpath(roots[0] / text))
    homes = [root.resolve() for root in roots]
    if not any(path.resolve().is_relative_to(home) for home in homes):
        msg = "lies outside RP_CKPT_URL and RP_RUN_DIR, and was not looked at"
        raise Elsewhere(msg)
    if path.is_symlink():
        msg = "is a link, which may lead to another place tomorrow"
        raise CheckpointError(msg)
    if not path.exists():
        raise CheckpointError(GONE)
    return path.resolve()


def _ours(path: Path) -> dict[str, Any]:
    """Look at a checkpoint of our own format."""
    from rackproof.harness.checkpoint import verify  # noqa: PLC0415 - NumPy, safetensors
    from rackproof.harness.checkpoint.tiers import Tier  # noqa: PLC0415

    found = verify.look(Tier.of(str(path.parent)), path.name)
    fields = list(found.fields)
    return {"verifies": found.verifies, "digest": found.digest, "fields": fields,
            "problem": found.problem, "step": found.step}  # fmt: skip


def _folder(path: Path) -> tuple[str, str]:
    """Return the digest of a folder, and that of its tensors alone."""
    names = sorted(_names(path))
    if not names:
        msg = "holds no file"
        raise CheckpointError(msg)
    whole, tensors, any_tensors = hashlib.sha256(), hashlib.sha256(), False
    for name in names:
        digest, of_tensors = _file(path / name)
        whole.update(json.dumps([name, digest]).encode())
        if of_tensors:
            any_tensors = True
            tensors.update(json.dumps([name, of_tensors]).encode())
    return whole.hexdigest(), tensors.hexdigest() if any_tensors else ""


def _names(path: Path) -> Iterator[str]:
    count = 0
    for folder, folders, files in os.walk(path, onerror=_refuse):
        # A link to a folder is not walked into: it is taken for a file, and refused as one.
        for name in (*files, *(each for each in folders if (Path(folder) / each).is_symlink())):
            count += 1
            if count > FILES:
                msg = f"holds more than {FILES} files"
                raise CheckpointError(msg)
            yield (Path(folder) / name).relative_to(path).as_posix()


def _refuse(error: OSError) -> None:
    raise error


def _file(path: Path) -> tuple[str, str]:
    """Return the digest of a file, and that of its tensors where they can be told apart."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            msg = f"{path.name} is no regular file"
            raise CheckpointError(msg)
        if path.suffix == ".safetensors":
            digest = _tensors(file, path.name)
            return digest, digest
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        file.seek(0)
        _check_archive(file, path.name)
    return digest, ""


def _check_archive(file: IO[bytes], name: str) -> None:
    """Compare the check sums of a zip archive whose members are stored as they are."""
    try:
        if not zipfile.is_zipfile(file):
            return
        with zipfile.ZipFile(file) as archive:
            stored = all(each.compress_type == zipfile.ZIP_STORED for each in archive.infolist())
            bad = archive.testzip() if stored else None
    except (zipfile.BadZipFile, ValueError, NotImplementedError, EOFError, RuntimeError) as error:
        msg = f"{name}: a damaged archive ({error})"
        raise CheckpointError(msg) from error
    if bad is not None:
        msg = f"{name}: {bad} is damaged, its check sum is another one"
        raise CheckpointError(msg)


def _tensors(file: IO[bytes], name: str) -> str:
    """Return the digest of a safetensors file; https://github.com/huggingface/safetensors."""
    size = os.fstat(file.fileno()).st_size
    length = int.from_bytes(file.read(8), "little")
    if size < 8 or not 2 <= length <= min(HEADER, size - 8):  # noqa: PLR2004 - of the format
        msg = f"{name}: no safetensors file"
        raise CheckpointError(msg)
    try:
        header = json.loads(file.read(length))
        spans = sorted(
            (_span(key, body) for key, body in header.items() if key != "__metadata__"),
            key=lambda span: span[0],
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        msg = f"{name}: a safetensors header that makes no sense"
        raise CheckpointError(msg) from error
    start, place_ = 8 + length, 0
    for begin, end, _ in spans:
        if begin != place_:
            msg = f"{name}: tensors do not lie side by side"
            raise CheckpointError(msg)
        place_ = end
    if start + place_ != size:
        msg = f"{name}: {size} bytes, where its header says {start + place_}"
        raise CheckpointError(msg)
    return _digest(file, start, spans)


def _span(key: str, body: Mapping[str, Any]) -> tuple[int, int, str]:
    """Return begin, end, and name, type and shape of a tensor; ValueError where they disagree."""
    begin, end = body["data_offsets"]
    shape, kind = body["shape"], body["dtype"]
    if len(shape) > DIMENSIONS:
        raise ValueError(key)
    for number in (begin, end, *shape):
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < LARGEST:
            raise ValueError(key)
    if kind in WIDTHS and end - begin != math.prod(shape) * WIDTHS[kind]:
        raise ValueError(key)
    if end < begin:
        raise ValueError(key)
    return begin, end, json.dumps([key, kind, shape])


def _digest(file: IO[bytes], start: int, spans: Sequence[tuple[int, int, str]]) -> str:
    whole = hashlib.sha256()
    for begin, end, words in sorted(spans, key=lambda span: span[2]):
        whole.update(words.encode())
        file.seek(start + begin)
        left = end - begin
        while left:
            block = file.read(min(left, BLOCK))
            if not block:
                msg = "was cut while it was read"
                raise CheckpointError(msg)
            whole.update(block)
            left -= len(block)
    return whole.hexdigest()
