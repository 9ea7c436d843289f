"""Reads one checkpoint of rackproof.checkpoint/1 and verifies all of it, from its own files alone.

python read_checkpoint.py RUN/step-000000000020     prints step, fields and the digest of the state
Needs safetensors and NumPy, and zstandard for a delta. docs/checkpoint-format.md tells more.
"""

import hashlib
import json
import re
import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import load

FIELDS = ("weights", "optimizer", "rng", "data", "config", "topology", "commit")
PLACE = re.compile(r"step-(\d{12})(\.[1-9]\d{0,5})?", re.ASCII)
FILE = re.compile(r"part-(0|[1-9]\d{0,5})\.safetensors|context\.json", re.ASCII)


def need(true, what):
    """Refuse a checkpoint."""
    if not true:
        sys.exit(f"REFUSED: {what}")


def manifest(folder):
    """Return the manifest of a directory, its seal checked, and its own sha256."""
    place = PLACE.fullmatch(folder.name)
    need(place and not folder.is_symlink(), f"{folder} is no checkpoint")
    text = (folder / "MANIFEST.json").read_bytes()
    body = json.loads(text)
    sealed = {key: value for key, value in body.items() if key != "seal"}
    sealed["seal"] = hashlib.sha256(canonical(sealed)).hexdigest()
    need(canonical(sealed) == text, "the manifest was changed")
    known = body["schema"] == "rackproof.checkpoint/1" and body["step"] == int(place[1])
    need(known, "a manifest of another schema, or of another step")
    return body, hashlib.sha256(text).hexdigest()


def canonical(body):
    """Return the one way to write a JSON object."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def contents(folder, body):
    """Return the bytes of each file, its size and sha256 checked."""
    files = {}
    for name, stored in body["files"].items():
        path = folder / name
        need(FILE.fullmatch(name) and path.is_file() and not path.is_symlink(), f"{name!r}")
        need(path.stat().st_size == stored["size"], f"{name} has another size")
        files[name] = path.read_bytes()
        need(hashlib.sha256(files[name]).hexdigest() == stored["sha256"], f"{name} was changed")
    return files


def undo(packed, old):
    """Return a part's bytes: its delta, on top of the same part of its parent."""
    import zstandard  # noqa: PLC0415 - only a delta needs it

    how = json.loads(packed[8 : 8 + int.from_bytes(packed[:8], "little")])["__metadata__"]
    head = 8 + int.from_bytes(old[:8], "little")
    before, chunks = np.frombuffer(old, np.uint8, offset=head), load(packed)["delta"].tobytes()
    word, size, after, at = int(how["word"]), int(how["chunk"]), [old[:head]], 0
    for number, (length, _) in enumerate(json.loads(how["chunks"])):
        piece = before[number * size : (number + 1) * size]
        plain = np.frombuffer(zstandard.decompress(chunks[at : at + length]), np.uint8)
        after.append((plain.reshape(word, -1).T.reshape(-1) ^ piece).tobytes())
        at += length
    return b"".join(after)


def read(folder):
    """Return (step, tensors in their order, context), everything verified."""
    body, _ = manifest(folder)
    files = contents(folder, body)
    context = json.loads(files.pop("context.json"))
    if body["parent"]:
        need(PLACE.fullmatch(body["parent"]["name"]), "a parent that cannot be one")
        parent = folder.parent / body["parent"]["name"]
        base, sha = manifest(parent)
        need(sha == body["parent"]["sha256"] and not base["parent"], "another parent")
        old = contents(parent, base)
        files = {name: undo(data, old[name]) for name, data in files.items()}
    tensors = {name: value for data in files.values() for name, value in load(data).items()}
    need(sorted(context["order"]) == sorted(tensors), "tensors that the context does not list")
    weights = {name for name in tensors if name.startswith("weights/")}
    have = {**context, "weights": weights, "optimizer": set(tensors) - weights}
    for field in FIELDS:
        need(have.get(field), f"the field {field} is missing")
    need(context["step"] == body["step"], "the context of another step")
    return body["step"], {name: tensors[name] for name in context["order"]}, context


if __name__ == "__main__":
    step, state, _ = read(Path(sys.argv[1]).absolute())
    digest = hashlib.sha256(b"%d" % step + b"".join(value.tobytes() for value in state.values()))
    sys.stdout.write(f"step {step}, {', '.join(FIELDS)}, digest {digest.hexdigest()}\n")
