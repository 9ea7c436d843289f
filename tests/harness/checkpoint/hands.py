"""Hands that change a stored checkpoint, under seals and hashes that are right again.

In: what is to be changed. Out: a function that does it to the directory of a checkpoint.
"""

import hashlib
import json
import os
import shutil
import struct

import numpy as np

from rackproof.harness.checkpoint import parts
from rackproof.harness.checkpoint.strict import canonical

FULL, DELTA = "step-000000000001", "step-000000000002"
PART = "part-{}.safetensors".format


def written(folder, body):
    """Put a manifest there, under a seal that is right, whatever it says."""
    body.pop("seal", None)
    seal = hashlib.sha256(canonical(body)).hexdigest()
    (folder / "MANIFEST.json").write_bytes(canonical({**body, "seal": seal}))


def manifest(**changes):
    def change(folder):
        written(folder, json.loads((folder / "MANIFEST.json").read_text()) | changes)

    return change


def without(key, name=""):
    def change(folder):
        body = json.loads((folder / "MANIFEST.json").read_text())
        del (body[key] if name else body)[name or key]
        written(folder, body)

    return change


def text(data):
    return lambda folder: (folder / "MANIFEST.json").write_bytes(data)


def put(folder, name, data):
    """Put a file there, and its size and sha256 into the manifest."""
    (folder / name).write_bytes(data)
    body = json.loads((folder / "MANIFEST.json").read_text())
    body["files"][name] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    written(folder, body)


def part(data, number=0):
    return lambda folder: put(folder, PART(number), data)


def context(**changes):
    def change(folder):
        body = json.loads((folder / "context.json").read_text())
        put(folder, "context.json", canonical({**body, **changes}))

    return change


def backwards(folder):
    body = json.loads((folder / "context.json").read_text())
    put(folder, "context.json", canonical({**body, "order": body["order"][::-1]}))


def swapped(folder):
    """Two tensors of the same field change places in the order: another digest."""
    order = json.loads((folder / "context.json").read_text())["order"]
    context(order=[order[1], order[0], *order[2:]])(folder)


def twice_in_context(folder):
    data = (folder / "context.json").read_bytes()
    put(folder, "context.json", data.replace(b'{"acc', b'{"step":1,"acc', 1))


def names_twice(folder):
    put(folder, PART(2), (folder / PART(1)).read_bytes())


def renamed(old, new):
    def change(folder):
        body = json.loads((folder / "MANIFEST.json").read_text())
        body["files"][new] = body["files"].pop(old)
        written(folder, body)
        (folder / old).rename(folder / new)

    return change


def alone(folder):
    body = json.loads((folder / "MANIFEST.json").read_text())
    body["files"] = {name: body["files"][name] for name in ("context.json", PART(0))}
    written(folder, body)
    renamed(PART(0), PART(3))(folder)


def link(name):
    def change(folder):
        (folder / name).rename(folder.parent / "away")
        (folder / name).symlink_to(folder.parent / "away")

    return change


def pipe(name):
    def change(folder):
        (folder / name).unlink()
        os.mkfifo(folder / name)

    return change


def gone(name):
    return lambda folder: (folder / name).unlink()


def cut(name, size):
    return lambda folder: os.truncate(folder / name, size)


def no_folder(folder):
    shutil.rmtree(folder)


def linked_folder(folder):
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")


def of_parent(change):
    return lambda folder: change(folder.parent / FULL)


def reparented(folder):
    """The parent is another full checkpoint, which is itself in order."""
    context(rng={"philox": [1]})(folder.parent / FULL)


def file_of(header, data=b""):
    body = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(body)) + body + data


def row(dtype="F32", shape=(1,), offsets=(0, 4), **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def delta(frames=None, **changes):
    """Have the first part of a delta say something else, or hold other frames."""

    def change(folder):
        found, data = parts.read(np.fromfile(folder / PART(0), np.uint8), "x")
        told = {**found.metadata, **changes}
        held = data.tobytes() if frames is None else frames
        if frames is not None:
            told["chunks"] = json.dumps([[len(held), json.loads(told["chunks"])[0][1]]])
        entry = row("U8", (len(held),), (0, len(held)))
        put(folder, PART(0), file_of({"__metadata__": told, "delta": entry}, held))

    return change


class Thing:
    def __reduce__(self):
        return (os.abort, ())
