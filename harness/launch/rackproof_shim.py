"""rackproof_shim: what a training script says to a recovery drill. One file, no dependencies.

Copy it beside your script (``python -m rackproof.harness.launch.rackproof_shim`` prints it); it
works without rackproof, on Python 3.8 and later, and does nothing outside a drill::

    import rackproof_shim as rp
    rp.hello()
    ...
    rp.step(n, loss=loss.item(), samples=batch, digest=rp.digest(model.state_dict()))

Under a launcher that sets RANK and WORLD_SIZE every rank says hello, and rank 0 the rest. Nothing
in here raises because a drill cannot be told: training goes on, and one line on stderr says so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import shutil
import signal
import struct
import sys
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_BLOCK = 1 << 20
_place: dict[str, int] = {}
_state: dict[str, bool] = {"stopping": False, "told": False}


# --- what the drill tells us ---------------------------------------------------------------------


def active() -> bool:
    """Return whether a drill listens."""
    return bool(os.environ.get("RP_EVENTS"))


def resume() -> bool:
    """Return whether to go on from the newest checkpoint: after a restart by drill or torchrun."""
    again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return os.environ.get("RP_RESUME") == "1" or (again.isdigit() and int(again) > 0)


def attempt() -> int:
    """Return which start of the command this is, from 1."""
    return int(os.environ.get("RP_ATTEMPT", "1"))


def replica() -> int:
    """Return which copy of the command this is, from 0."""
    return int(os.environ.get("RP_REPLICA", "0"))


def seed(default: int = 0) -> int:
    """Return the seed of the drill, `default` outside of one."""
    return int(os.environ.get("RP_SEED", default))


def checkpoint_dir(default: str = "checkpoints") -> str:
    """Return the folder in which checkpoints belong (made if need be), or a URL that is no path."""
    url = os.environ.get("RP_CKPT_URL") or default
    path = url
    if url.startswith("file://"):  # with %20 for a blank
        path = os.fsdecode(unquote_to_bytes(url[len("file://") :]))
    if "://" not in path:
        os.makedirs(path, exist_ok=True)  # noqa: PTH103 - as fast as it gets, on old Pythons too
    return path


def environment() -> dict[str, str]:
    """Return the drill's variables, for processes that do not inherit them (another machine)."""
    return {name: value for name, value in os.environ.items() if name.startswith("RP_")}


def rank() -> int:
    """Return this process's rank."""
    return _place.get("rank", _number("RANK", 0))


def world() -> int:
    """Return how many ranks there are."""
    return _place.get("world", _number("WORLD_SIZE", 1))


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else default


# --- what we tell the drill ----------------------------------------------------------------------


def hello(rank: int | None = None, world: int | None = None) -> None:
    """Say that this process is a rank; call it in each of them, once, before the first step.

    Give `rank` and `world` where they are not in the environment (Ray Train, MPI).
    """
    for name, value in (("rank", rank), ("world", world)):
        if value is not None:
            _place[name] = int(value)
    _say("hello", pid=os.getpid(), **_seat())


def _seat() -> dict[str, int]:
    return {"rank": rank(), "world": world()}


def step(
    step: int,
    loss: float | None = None,
    samples: int | Sequence[int] | None = None,
    digest: str | None = None,
    *,
    every_rank: bool = False,
) -> None:
    """Say that a step (from 1) is done, after the optimizer has moved.

    `samples`: how many, or the ids of them, that this step consumed in the whole job. `digest`: of
    the state after it, see `digest`; without one a drill cannot prove that two runs are equal.
    Only rank 0 says it, unless `every_rank`.
    """
    if rank() == 0 or every_rank:
        _say("step", step=int(step), loss=_plain(loss), samples=samples, digest=digest)


def checkpoint(phase: str, step: int, uri: str, seconds: float | None = None) -> None:
    """Say what became of a checkpoint: staged, committed, failed, skipped or removed.

    Committed means that it is on the disk whole, under its name: see `committing`.
    """
    if rank() == 0:
        _say("ckpt", phase=phase, step=int(step), uri=_uri(uri), seconds=seconds)


def restored(step: int, uri: str, fields: Sequence[str] = ()) -> None:
    """Say that the state after `step` was read from a checkpoint, or from ``peer:NAME``."""
    if rank() == 0:
        _say("restore", step=int(step), uri=_uri(uri), fields=list(fields))


def fault(text: str) -> None:
    """Say what went wrong, as this rank saw it."""
    _say("fault", text=str(text)[:1000])


def _uri(uri: str) -> str:
    text = os.fspath(uri)
    plain = "://" not in text and not text.startswith("peer:")
    return os.path.abspath(text) if plain else text  # noqa: PTH100


def _plain(value: Any) -> Any:
    if value is None:
        return None
    value = float(value)
    return value if math.isfinite(value) else str(value)


def _say(kind: str, **fields: Any) -> None:
    """Append one line, in one write: lines of several processes do not mix."""
    path = os.environ.get("RP_EVENTS")
    if not path:
        return
    said = {"kind": kind, "at": round(time.monotonic(), 6)}
    if world() > 1:
        said["who"] = "rank%d" % rank()  # noqa: UP031 - the same on every Python
    said.update((name, value) for name, value in fields.items() if value is not None)
    try:
        line = json.dumps(said, separators=(",", ":")).encode() + b"\n"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(path, flags, 0o644)
        try:
            os.write(file, line)
        finally:
            os.close(file)
    except (OSError, TypeError, ValueError) as error:
        if not _state["told"]:
            _state["told"] = True
            sys.stderr.write("rackproof_shim: a %s was not told: %s\n" % (kind, error))  # noqa: UP031


# --- digests -------------------------------------------------------------------------------------

# The names of the safetensors format for the names that torch and NumPy have for types.
_KINDS = {
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "bfloat16": "BF16",
    "complex64": "C64",
}
for _letter, _word, _sizes in (
    ("U", "uint", (8, 16, 32, 64)),
    ("I", "int", (8, 16, 32, 64)),
    ("F", "float", (16, 32, 64)),
):
    _KINDS.update({"%s%d" % (_word, n): "%s%d" % (_letter, n) for n in _sizes})  # noqa: UP031


def digest(state: Any) -> str:
    """Return the sha256 (hex) of a state: a tensor or array, or dicts, lists and plain values.

    Hash all that must come back from a checkpoint: model, optimizer, random numbers, data offset.
    Tensors are hashed by their bits, never by what they print; a GPU's are copied to the host. A
    dict of names and tensors has the digest of the safetensors file that holds the same, which the
    judge computes from the file by itself.
    """
    whole = hashlib.sha256()
    if isinstance(state, dict) and state and all(_named_tensor(item) for item in state.items()):
        for words, name in sorted((_words(name, array), name) for name, array in state.items()):
            whole.update(words)
            whole.update(_bytes(state[name]))
    else:
        _add(whole, state)
    return whole.hexdigest()


def digest_file(path: str) -> str:
    """Return the digest of a file as the judge computes it: sha256 (hex) of its bytes.

    Of a safetensors file that of its tensors, as `digest` has it.
    """
    with open(path, "rb") as file:  # noqa: PTH123
        if os.fspath(path).endswith(".safetensors"):
            return _digest_tensors(file)
        whole = hashlib.sha256()
        _copy(whole, file, None)
        return whole.hexdigest()


def _digest_tensors(file: Any) -> str:
    length = int.from_bytes(file.read(8), "little")
    header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    whole = hashlib.sha256()
    found = [
        (json.dumps([name, body["dtype"], body["shape"]]).encode(), body["data_offsets"])
        for name, body in header.items()
    ]
    for words, (begin, end) in sorted(found):
        whole.update(words)
        file.seek(8 + length + begin)
        _copy(whole, file, end - begin)
    return whole.hexdigest()


def _copy(whole: Any, file: Any, left: int | None) -> None:
    while left is None or left > 0:
        block = file.read(_BLOCK if left is None else min(left, _BLOCK))
        if not block:
            return
        whole.update(block)
        left = None if left is None else left - len(block)


def _named_tensor(item: tuple[Any, Any]) -> bool:
    name, array = item
    return isinstance(name, str) and hasattr(array, "dtype") and hasattr(array, "shape")


def _words(name: str, array: Any) -> bytes:
    kind = str(array.dtype).replace("torch.", "")
    return json.dumps([name, _KINDS.get(kind, kind), list(array.shape)]).encode()


def _bytes(array: Any) -> Any:
    """Return the bytes of a torch tensor, or of an array of NumPy, CuPy or JAX."""
    torch = sys.modules.get("torch")  # nothing is imported for it
    if torch is not None and isinstance(array, torch.Tensor):
        flat = array.detach().cpu().contiguous().reshape(-1)
        return flat.view(torch.uint8).numpy() if flat.numel() else b""
    host = array.get() if hasattr(array, "get") else array
    if not hasattr(host, "tobytes"):
        host = host.__array__()
    if str(host.dtype) == "object":
        msg = "no digest of an array of Python objects"
        raise TypeError(msg)
    return host.tobytes()


def _add(whole: Any, state: Any) -> None:
    if isinstance(state, dict):
        whole.update(b"{%d" % len(state))
        # By name: the order in which keys were put in is no part of a state.
        for key, value in sorted(state.items(), key=lambda item: repr(item[0])):
            _add(whole, key)
            _add(whole, value)
    elif isinstance(state, (list, tuple)):
        whole.update(b"[%d" % len(state))
        for value in state:
            _add(whole, value)
    elif state is None or isinstance(state, (bool, int, float, str, bytes)):
        _add_plain(whole, state)
    elif _named_tensor(("", state)):
        whole.update(_words("", state))
        whole.update(_bytes(state))
    else:
        msg = "no digest of a %s: give tensors, arrays and plain values" % type(state).__name__  # noqa: UP031
        raise TypeError(msg)


def _add_plain(whole: Any, value: Any) -> None:
    if isinstance(value, float):
        body = struct.pack("<d", value)
    elif isinstance(value, bytes):
        body = value
    else:
        body = repr(value).encode()
    whole.update(b"%s%d:" % (type(value).__name__.encode(), len(body)))
    whole.update(body)


# --- checkpoints and the end ---------------------------------------------------------------------


@contextlib.contextmanager
def committing(path: str, step: int) -> Iterator[str]:
    """Give a name to write a checkpoint to (a file or a folder), and commit it as `path`.

    It is on the disk before it has its name, so a reader never meets half of one; then the drill is
    told. Call it on one rank. A folder needs a new name each time; a file may be replaced.
    """
    path = os.path.abspath(path)  # noqa: PTH100
    folder, name = os.path.split(path)
    writing = os.path.join(folder, ".writing-" + name)  # noqa: PTH118
    if os.path.isdir(writing):  # noqa: PTH112 - what a killed process left
        shutil.rmtree(writing)
    began = time.monotonic()
    yield writing
    for each in _below(writing):
        _sync(each)
    os.replace(writing, path)  # noqa: PTH105
    _sync(folder)
    checkpoint("committed", step, path, seconds=round(time.monotonic() - began, 6))


def _below(path: str) -> Iterator[str]:
    for folder, _, names in os.walk(path):
        for name in names:
            yield os.path.join(folder, name)  # noqa: PTH118
        yield folder
    if not os.path.isdir(path):  # noqa: PTH112
        yield path


def _sync(path: str) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def catch_sigterm() -> None:
    """Have SIGTERM only set `stopping`, so that the loop can save and exit; main thread only."""
    signal.signal(signal.SIGTERM, _stop)


def _stop(*_: object) -> None:
    _state["stopping"] = True


def stopping() -> bool:
    """Return whether this process was asked to save and exit (SIGTERM)."""
    return _state["stopping"]


if __name__ == "__main__":
    with open(__file__, encoding="utf-8") as source:  # noqa: PTH123
        sys.stdout.write(source.read())
