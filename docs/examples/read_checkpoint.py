"""Reads one checkpoint of rackproof.checkpoint/1 and verifies all of it, from its own files alone.

python read_checkpoint.py RUN/step-000000000020     prints step, fields and the digest of the state
Needs safetensors and NumPy, and zstandard and xxhash for a delta. What does not verify is REFUSED,
exit code 1. docs/checkpoint-format.md tells more.
"""

import json
import os
import re
import stat
import sys
from hashlib import sha256
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, deserialize

SCHEMA = "rackproof.checkpoint/1"
FIELDS = ("weights", "optimizer", "rng", "data", "config", "topology", "commit")
GROUPS = ("weights/", "m/", "v/")
CONTEXT = (*FIELDS[2:], "schema", "step", "order", "accumulating")
PLACE = re.compile(r"step-(\d{12})(\.[1-9]\d{0,5})?", re.ASCII)
TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2", "BOOL": "?", "C64": "<c8"}
TYPES |= {f"{sign}{8 * size}": f"<{sign.lower()}{size}" for sign in "IU" for size in (1, 2, 4, 8)}
BAD = (ArithmeticError, AttributeError, ImportError, LookupError, MemoryError, OSError)
BAD += (RecursionError, SafetensorError, TypeError, ValueError)


def need(true, what):
    """Refuse a checkpoint."""
    if not true:
        raise ValueError(what)


def plain(path, most, size=None):
    """Return the bytes of a plain file, no link and no pipe: `size`, or at most `most`."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        found = os.fstat(file.fileno())
        need(stat.S_ISREG(found.st_mode), f"{path.name} is no plain file")
        good = found.st_size <= most and size in {None, found.st_size}
        need(good, f"{path.name} has another size")
        return file.read(found.st_size)


def once(pairs):
    """Return a JSON object in which no key is twice."""
    need(len(dict(pairs)) == len(pairs), "a key is there twice")
    return dict(pairs)


def parse(text, *keys):
    """Return a JSON object, with no other keys than these."""
    body = json.loads(text, object_pairs_hook=once, parse_constant=lambda word: need(0, word))
    need(isinstance(body, dict) and set(body) <= set(keys or body), "no object, or other keys")
    return body


def canonical(body):
    """Return the one way to write JSON."""
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def manifest(folder):
    """Return the manifest of a directory, checked, and its own sha256."""
    place = PLACE.fullmatch(folder.name)
    need(place and not folder.is_symlink(), f"{folder} is no checkpoint")
    text = plain(folder / "MANIFEST.json", 16 << 20)
    body = parse(text, "schema", "step", "kind", "parent", "files", "ratio", "seal")
    sealed = {key: value for key, value in body.items() if key != "seal"}
    sealed["seal"] = sha256(canonical(sealed)).hexdigest()
    need(canonical(sealed) == text, "the manifest was changed")
    need(body["schema"] == SCHEMA and type(body["ratio"]) is float, "a manifest of another schema")
    need(type(body["step"]) is int and body["step"] == int(place[1]), "a manifest of another step")
    need(set(body["files"]) == {"context.json", *parts(body)}, "other files than context and parts")
    need(body["kind"] == ("full" if body["parent"] is None else "delta"), "a kind that is not so")
    return body, sha256(text).hexdigest()


def parts(body):
    """Return the names of the parts, in their order."""
    return [f"part-{number}.safetensors" for number in range(len(body["files"]) - 1)]


def content(folder, body, name, most=1 << 50):
    """Return the bytes of a file, which are those that the manifest names."""
    stored = body["files"][name]
    data = plain(folder / name, most, stored["size"])
    found = {"size": len(data), "sha256": sha256(data).hexdigest()}
    need(canonical(stored) == canonical(found), f"{name} was changed")
    return data


def head(part):
    """Return where the data of a part begin, and its header."""
    end = 8 + int.from_bytes(part[:8], "little")
    need(end <= min(len(part), 8 + (100 << 20)), "a header that is too long")
    return end, parse(part[8:end])


def tensors(part):
    """Return [(name, tensor)] in their order; safetensors refuses holes, overlaps, wrong sizes."""
    rows, (_, header), found = dict(deserialize(part)), head(part), []
    header.pop("__metadata__", None)
    for name in sorted(header, key=lambda name: header[name]["data_offsets"]):
        need(set(header[name]) == {"dtype", "shape", "data_offsets"}, "a header with other keys")
        flat = np.frombuffer(rows[name]["data"], TYPES[rows[name]["dtype"]])
        found.append((name, flat.reshape(rows[name]["shape"])))
    return found


def undo(packed, old):
    """Return a part's bytes: its delta, on top of the same part of its parent."""
    import xxhash  # noqa: PLC0415 - only a delta needs it
    import zstandard  # noqa: PLC0415

    (_, header), (begin, _), [(name, delta)] = head(packed), head(old), tensors(packed)
    how, chunks, after, at = header["__metadata__"], delta.tobytes(), [old[:begin]], 0
    word, size, rows = int(how["word"]), int(how["chunk"]), json.loads(how["chunks"])
    known = (how["format"], name, str(delta.dtype)) == ("xor-shuffle-zstd/1", "delta", "uint8")
    need(known and word in {1, 2, 4, 8} and 0 < size <= 64 << 20, "a delta of another format")
    need(size % word == 0, "chunks that cut an element")
    pieces = np.split(np.frombuffer(old, np.uint8)[begin:], range(size, len(old) - begin, size))
    for (length, xxh3), piece in zip(rows, pieces, strict=True):
        frame, at = chunks[at : at + length], at + length
        need(type(length) is int and len(frame) == length, "a chunk that is not there")
        try:
            need(zstandard.frame_content_size(frame) == len(piece), "a chunk of another size")
            flat = np.frombuffer(zstandard.decompress(frame), np.uint8)
        except zstandard.ZstdError as error:
            raise ValueError(error) from error
        after.append((flat.reshape(word, -1).T.reshape(-1) ^ piece).tobytes())
        need(xxhash.xxh3_64_hexdigest(after[-1]) == xxh3, "a chunk that gives other data")
    need(at == len(chunks), "data behind the chunks")
    return b"".join(after)


def state(folder, body):
    """Return [(name, tensor)] of all parts; those of a delta on top of its parent."""
    files = [content(folder, body, name) for name in parts(body)]
    if body["parent"] is not None:
        need(PLACE.fullmatch(body["parent"]["name"]), "a parent that cannot be one")
        parent = folder.parent / body["parent"]["name"]
        base, its = manifest(parent)
        same = canonical(body["parent"]) == canonical({"name": parent.name, "sha256": its})
        need(same and base["parent"] is None and parts(base) == parts(body), "another parent")
        old = [content(parent, base, name) for name in parts(base)]
        files = [undo(*pair) for pair in zip(files, old, strict=True)]
    return [pair for data in files for pair in tensors(data)]


def read(folder):
    """Return (step, tensors in the order of the digest, context); raises one of BAD."""
    body, _ = manifest(folder)
    context = parse(content(folder, body, "context.json", 64 << 20), *CONTEXT)
    found, order = state(folder, body), context["order"]
    held, weights = dict(found), {name for name in order if name.startswith("weights/")}
    need(len(held) == len(found) and sorted(held) == sorted(order), "other tensors than it lists")
    laid = [name for name, value in found if value.size]
    need(laid == [name for name in order if held[name].size], "tensors in another order")
    have = {**context, "weights": weights, "optimizer": set(order) - weights}
    for field in FIELDS:
        good = have.get(field) and (field in FIELDS[:2] or isinstance(have[field], dict))
        need(good, f"the field {field} is missing")
    need(re.fullmatch("[0-9a-f]{64}", context["config"]["sha256"]), "config holds no sha256")
    need(context["commit"]["sha"] and isinstance(context["commit"]["sha"], str), "no commit")
    step, within = context["step"], context["accumulating"]
    known = context["schema"] == SCHEMA and type(step) is int and isinstance(within, bool)
    need(known and step == body["step"], "the context of another schema, or of another step")
    order = sorted(order, key=lambda name: [not name.startswith(group) for group in GROUPS])
    return step, {name: held[name] for name in order}, context


if __name__ == "__main__":
    try:
        step, tensors_of, _ = read(Path(*sys.argv[1:2]).absolute())
    except BAD as error:
        sys.exit(f"REFUSED: {str(error) or type(error).__name__}")
    digest = sha256(b"%d" % step + b"".join(value.tobytes() for value in tensors_of.values()))
    sys.stdout.write(f"step {step}, {', '.join(FIELDS)}, digest {digest.hexdigest()}\n")
