"""Load: one checkpoint, verified as a whole before anything of it is believed.

In: a tier and the name of a directory. Out: a Loaded, or a CheckpointError that says what is wrong:
no manifest, a file that is missing or damaged, a parent that is not the one, a field that is not
there. The order is manifest → sizes → sha256 → headers → delta → fields.
"""

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rackproof.harness.checkpoint import anatomy, context, delta, manifest, parts
from rackproof.harness.checkpoint.manifest import Manifest, Stored
from rackproof.harness.checkpoint.store import Store
from rackproof.harness.errors import CheckpointError

THREADS = 4


@dataclass(frozen=True, slots=True)
class Loaded:
    """A checkpoint whose files are what its manifest says.

    `fields` are those of the seven that are there; `problem` says what a strict reader refuses.
    """

    snapshot: anatomy.Snapshot
    manifest: Manifest
    fields: tuple[str, ...]
    problem: str

    @property
    def digest(self) -> str:
        """The sha256 (hex) of step and tensors: what the optimizer's state has."""
        return anatomy.digest(self.snapshot.step, self.snapshot.tensors)


def load(store: Store, directory: str) -> Loaded:
    """Return a checkpoint; a CheckpointError where it does not verify, its fields apart."""
    try:
        return _load(store, directory)
    except (OSError, MemoryError) as error:
        words = getattr(error, "strerror", None) or str(error) or "it does not fit into memory"
        msg = f"a file cannot be read ({words})"
        raise CheckpointError(msg) from error


def head(store: Store, directory: str) -> tuple[Manifest, str]:
    """Return a directory's manifest and the sha256 of it."""
    try:
        text = store.read(directory, manifest.NAME, manifest.MANIFEST_MOST)
    except FileNotFoundError as error:
        msg = f"it has no {manifest.NAME}: it was never committed"
        raise CheckpointError(msg) from error
    found = manifest.read(text)
    place = manifest.place(directory)
    if place is None or place[0] != found.step:
        msg = f"its manifest is of step {found.step}, and not of {directory}"
        raise CheckpointError(msg)
    return found, hashlib.sha256(text).hexdigest()


def _load(store: Store, directory: str) -> Loaded:
    found, _ = head(store, directory)
    text = store.read(directory, manifest.CONTEXT_NAME, manifest.CONTEXT_MOST)
    _same(np.frombuffer(text, np.uint8), found.files[manifest.CONTEXT_NAME], manifest.CONTEXT_NAME)
    said = context.read(text)
    if said.step != found.step:
        msg = f"its context is of step {said.step}, and its manifest of {found.step}"
        raise CheckpointError(msg)
    read = _parts(store, directory, found)
    if found.parent is not None:
        read = _grown(store, found, read)
    tensors: dict[str, NDArray[Any]] = {}
    for layout, data in read:
        tensors |= parts.tensors(layout, data)
    if sum(len(layout.entries) for layout, _ in read) != len(tensors):
        msg = "two of its parts hold a tensor of the same name"
        raise CheckpointError(msg)
    if sorted(said.order) != sorted(tensors):
        msg = "its context lists other tensors than its parts hold"
        raise CheckpointError(msg)
    laid = [entry.name for layout, _ in read for entry in layout.entries if entry.end > entry.begin]
    if laid != [name for name in said.order if tensors[name].nbytes]:
        msg = "its context lists its tensors in another order than its parts hold them"
        raise CheckpointError(msg)
    return _judged(found, said, tensors)


def _judged(found: Manifest, said: context.Read, tensors: dict[str, NDArray[Any]]) -> Loaded:
    """Return what was loaded, with what its fields lack."""
    ordered = {name: tensors[name] for name in said.order}
    weights = {name: t for name, t in ordered.items() if name.startswith(anatomy.WEIGHTS)}
    rest = {name: tensor for name, tensor in ordered.items() if name not in weights}
    snapshot = anatomy.Snapshot(found.step, weights, rest, said.context())
    fields = anatomy.present(snapshot)
    lacking = [f"{name} is missing" for name in anatomy.FIELDS if name not in fields]
    return Loaded(snapshot, found, fields, ", ".join(lacking + context.faults(said.fields)))


def _parts(store: Store, directory: str, found: Manifest) -> list[tuple[parts.Layout, Any]]:
    """Return layout and data of each part, the files being what the manifest says."""
    sizes = [found.files[name].size for name in found.parts]
    if sum(sizes) > _memory():
        msg = f"its parts have {sum(sizes)} bytes, more than this machine has memory"
        raise CheckpointError(msg)

    def one(name: str) -> tuple[parts.Layout, NDArray[np.uint8]]:
        data = store.fetch(directory, name, found.files[name].size)
        _same(data, found.files[name], name)
        return parts.read(data, name)

    with ThreadPoolExecutor(min(THREADS, len(sizes)) or 1) as pool:
        return list(pool.map(one, found.parts))


def _grown(store: Store, found: Manifest, read: Any) -> list[tuple[parts.Layout, Any]]:
    """Return what a delta's parts stand for, on top of those of its parent."""
    parent = found.parent
    if parent is None:
        return list(read)
    try:
        base, sha256 = head(store, parent.name)
        same = sha256 == parent.sha256 and base.parent is None and len(base.parts) == len(read)
        old = _parts(store, parent.name, base) if same else []
    except (CheckpointError, OSError) as error:
        msg = f"its parent {parent.name} cannot be used: {error}"
        raise CheckpointError(msg) from error
    if not same:
        msg = f"its parent {parent.name} is not the one that the delta was made from"
        raise CheckpointError(msg)
    return [
        (layout, delta.decode(packed, data, before, name))
        for name, (packed, data), (layout, before) in zip(found.parts, read, old, strict=True)
    ]


def _same(data: NDArray[np.uint8], stored: Stored, name: str) -> None:
    if data.size != stored.size or hashlib.sha256(data.data).hexdigest() != stored.sha256:
        msg = f"{name} is not what was stored: its sha256 differs from the manifest's"
        raise CheckpointError(msg)


def _memory() -> int:
    """Return the bytes of memory that this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
