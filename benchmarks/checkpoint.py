"""A checkpoint of 1 GiB: what training waits for, and how long until it is durable; as ratios.

In: a folder on the file system to be measured (the first argument; else the temporary one). Out:
ratios of one run, each of the best of rounds in which everything takes its turn: blocking over one
copy of the same bytes in memory, total over write and fsync of the same bytes, and both beside
torch's distributed checkpoint (`async_save`) where torch is installed. A ratio above its limit ends
with 1.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rackproof.harness.checkpoint.anatomy import Context, Snapshot
from rackproof.harness.checkpoint.tiers import Tier
from rackproof.harness.checkpoint.writer import Writer

SIZE, TENSORS, ROUNDS = 1 << 30, 96, 5
BLOCKING, TOTAL = 1.5, 1.3
PIECE = 32 << 20
Seconds = tuple[float, float]


def state() -> Snapshot:
    """Return a snapshot of SIZE bytes, of normal numbers, in TENSORS tensors."""
    draw = np.random.default_rng(1)
    side = SIZE // TENSORS // 4
    names = [
        f"{group}/{number}" for group in ("weights", "m", "v") for number in range(TENSORS // 3)
    ]
    tensors = {name: draw.standard_normal(side, np.float32) for name in names}
    weights = {name: value for name, value in tensors.items() if name.startswith("weights/")}
    rest = {name: value for name, value in tensors.items() if name not in weights}
    one = {"one": 1}
    return Snapshot(0, weights, rest, Context(one, one, {"sha256": "0" * 64}, one, {"sha": "none"}))


def timed(what: Callable[[], Any]) -> float:
    """Return the seconds that a call takes."""
    begun = time.perf_counter()
    what()
    return time.perf_counter() - begun


def plain(data: np.ndarray[Any, np.dtype[np.uint8]], path: Path) -> None:
    """Write all bytes into a new file and have them on disk."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    view = data.data
    for at in range(0, view.nbytes, PIECE):
        os.write(descriptor, view[at : at + PIECE])
    os.fsync(descriptor)
    os.close(descriptor)


def ours(whole: Snapshot, folder: Path) -> Callable[[], Seconds]:
    """Return what saves once: (seconds blocked, seconds until committed)."""
    committed: list[float] = []

    def tell(row: Mapping[str, Any]) -> None:
        if row["phase"] == "committed":
            committed.append(row["seconds"])

    # The one before is removed after each: that is not part of a save, and is not counted.
    writer = Writer([Tier.of(str(folder / "ours"))], tell=tell, keep=1)
    writer.prepare(whole)
    steps = iter(range(1, 1000))

    def once() -> Seconds:
        begun = time.perf_counter()
        writer.save(Snapshot(next(steps), whole.weights, whole.optimizer, whole.context))
        blocked = time.perf_counter() - begun
        writer.flush()
        return blocked, committed.pop()

    return once


def torchs(whole: Snapshot, folder: Path) -> Callable[[], Seconds] | None:
    """Return the same for torch's distributed checkpoint, or None without torch."""
    try:
        import torch  # noqa: PLC0415 - an extra
        from torch.distributed import checkpoint as dcp  # noqa: PLC0415
    except ImportError:
        return None
    tensors = {name: torch.from_numpy(value) for name, value in whole.tensors.items()}
    place = folder / "torch"

    def once() -> Seconds:
        shutil.rmtree(place, ignore_errors=True)
        begun = time.perf_counter()
        future = dcp.async_save(tensors, checkpoint_id=str(place), no_dist=True)
        blocked = time.perf_counter() - begun
        getattr(future, "upload_completion", future).result()
        return blocked, time.perf_counter() - begun

    return once


def rounds(whole: Snapshot, folder: Path) -> Iterator[tuple[float, float, Seconds, Seconds | None]]:
    """Yield (copy, plain, ours, torch's) in seconds, once warm."""
    data = np.concatenate([value.view(np.uint8) for value in whole.tensors.values()])
    into = np.zeros_like(data)
    mine, theirs = ours(whole, folder), torchs(whole, folder)
    for number in range(ROUNDS + 1):
        copy = timed(lambda: np.copyto(into, data))
        path = folder / "plain"
        written = timed(lambda: plain(data, path))  # noqa: B023 - called at once
        path.unlink()
        row = copy, written, mine(), theirs() if theirs else None
        if number:
            yield row


def main() -> int:
    """Measure, and print ratios; 1 when one is over its limit."""
    where = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    with tempfile.TemporaryDirectory(prefix="rackproof-bench-", dir=where) as name:
        rows = list(rounds(state(), Path(name)))
    copy, written = (min(row[at] for row in rows) for at in (0, 1))
    mine = [min(row[2][at] for row in rows) for at in (0, 1)]
    ratios = [
        (mine[0] / copy, BLOCKING, "blocking, of one copy in memory"),
        (mine[1] / written, TOTAL, "until durable, of write and fsync of the same bytes"),
    ]
    beside = [row[3] for row in rows if row[3]]
    for at, what in enumerate(("blocking", "until durable")) if beside else ():
        theirs = min(row[at] for row in beside)
        ratios.append((mine[at] / theirs, 1.0, f"{what}, of torch's async_save"))
    for ratio, limit, what in ratios:
        print(f"{ratio:6.2f}  at most {limit:g}: {'OK ' if ratio <= limit else 'NOT'}  {what}")
    print(f"        copy {copy:.3f} s, write and fsync {written:.3f} s, blocking {mine[0]:.3f} s, "
          f"until durable {mine[1]:.3f} s")  # fmt: skip
    if not beside:
        print("        torch is not installed: its async_save was left out")
    return int(any(ratio > limit for ratio, limit, _ in ratios))


if __name__ == "__main__":
    sys.exit(main())
